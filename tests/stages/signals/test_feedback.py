"""What users' doings and words are taken for."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.config import RewardsConfig
from flywheel.reading.feedback import is_rating
from flywheel.stages.signals.feedback import adopted, complaint, thanks, undo, user_edit
from flywheel.stages.signals.followup import abandon, correction, escalate, rephrase, retry
from flywheel.stages.signals.ratings import thumbs
from tests.stages.talks import Talk, call, made

if TYPE_CHECKING:
    from flywheel.extensions import Signal


def base(name: str = "a") -> Talk:
    return Talk(name).ask("Which orders are late this week?").act("Order 7 and order 9 are late.")


@pytest.mark.parametrize(
    ("payload", "score"),
    [
        ({"name": "thumbs", "value": 1}, 1.0),
        ({"name": "thumbs", "value": 0}, -1.0),
        ({"name": "thumbs", "value": -1}, -1.0),
        ({"name": "thumbs_down"}, -1.0),
        ({"name": "thumbs-up"}, 1.0),
        ({"name": "thumbs", "label": "Up"}, 1.0),
        ({"name": "feedback", "label": "thumbsDown"}, -1.0),
        ({"name": "feedback", "label": "thumbs-up"}, 1.0),
        ({"name": "rating", "label": "\U0001f44d"}, 1.0),
        ({"name": "stars", "value": 5}, 1.0),
        ({"name": "stars", "value": 1}, -1.0),
        ({"name": "rating", "value": 4}, 0.5),
        ({"name": "rating", "value": 3}, None),
        ({"name": "rating", "value": 1}, None),
        ({"name": "rating", "value": 1, "scale": [1, 5]}, -1.0),
        ({"name": "score", "value": 0.75}, 0.5),
        ({"name": "score", "value": 80}, None),
        ({"name": "thumbs", "value": 1, "annotator": "llm"}, None),
        ({"name": "thumbs"}, None),
        ({"name": "user_score", "value": 0.75}, 0.5),
        ({"name": "user_score", "value": 1}, None),
        ({"name": "user_feedback", "value": 1}, None),
        ({"name": "helpfulness", "value": 1}, None),
        ({"name": "user_feedback", "value": 0}, -1.0),
        ({"name": "was_helpful", "value": 1}, 1.0),
        ({"name": "userRating", "value": 4}, 0.5),
        ({"name": "star_rating", "value": 1}, -1.0),
        ({"name": "was_helpful", "label": "no"}, -1.0),
        ({"name": "disliked", "value": 0}, None),
        ({"name": "nps", "value": 10}, 1.0),
        ({"name": "\u7528\u6237\u8bc4\u4ef7", "value": 1}, None),
        ({"name": "bleu_score", "value": 1}, None),
        ({"name": "judge_rating", "value": 5}, None),
    ],
)
def test_thumbs(payload: dict[str, Any], score: float | None) -> None:
    rows = thumbs(*made(base().event("feedback", payload)))
    family = "sentiment_pos" if (score or 0) > 0 else "sentiment_neg"
    assert rows.select("score", "family").rows() == ([] if score is None else [(score, family)])


def test_the_latest_thumb_about_each_thing_counts() -> None:
    talk = base().feedback("thumbs", value=1).feedback("thumbs", value=0)
    step = talk.rows[1]["event_id"]
    talk.feedback("thumbs", value=0, target_id=step).feedback("thumbs", value=1, target_id=step)
    rows = thumbs(*made(talk)).sort("step")
    assert rows.select("step", "score").rows() == [(None, -1.0), (0, 1.0)]
    assert rows["evidence"].to_list() == [[talk.rows[3]["event_id"]], [talk.rows[5]["event_id"]]]


def test_adoption() -> None:
    talk = base().feedback("export").feedback("copy").feedback("view")
    row = adopted(*made(talk)).row(0, named=True)
    assert (row["score"], row["family"], len(row["evidence"])) == (1.0, "adoption", 2)


@pytest.mark.parametrize(
    ("name", "text", "score"),
    [
        ("edit", "Order 7 and order 8 are late.", 1.0),
        ("edit", "Nothing to see at all in this place, sorry!", -1.0),
        ("edit", "Order 7 is late.", None),
        ("edit", None, None),
    ],
)
def test_what_became_of_an_answer(name: str, text: str | None, score: float | None) -> None:
    rows = user_edit(*made(base().feedback(name, **({} if text is None else {"text": text}))))
    assert rows.select("step", "score").rows() == ([] if score is None else [(0, score)])


def test_an_edit_of_a_named_call() -> None:
    talk = Talk("a").ask("x").act(calls=[call("f", {"q": "late orders"}, "c")]).result("y", call_id="c").act("other")
    rows = user_edit(*made(talk.feedback("edit", text='{"q":"late orders"}', target_id="c")))
    assert rows.select("step", "score").rows() == [(0, 1.0)]


def test_complaints_in_turns_comments_and_reports() -> None:
    first = Talk("a").ask("this is useless").act("Sorry?")  # about something else: nobody had acted yet
    turn, comment, report = base("b").ask("that is useless"), base("c"), base("d").feedback("ticket")
    comment.feedback("thumbs", value=0, comment="not helpful")
    rows = complaint(*made(first, turn, comment, report))
    assert (rows.height, set(rows["score"]), set(rows["family"])) == (3, {-1.0}, {"sentiment_neg"})
    proofs = {turn.rows[2]["event_id"], comment.rows[2]["event_id"], report.rows[2]["event_id"]}
    assert {e for (e,) in rows["evidence"]} == proofs


def test_thanks_only_when_the_work_is_over() -> None:
    done = base("a").ask("Thank you!")
    courteous = base("b").ask("Thanks. Now cancel 7.").use("cancel", {}).ask("hm")
    sour = base("c").ask("Thanks, but that's wrong")
    rows = thanks(*made(done, courteous, sour))
    assert rows["evidence"].to_list() == [[done.rows[2]["event_id"]]]


def test_the_configuration_tells_what_a_score_means() -> None:
    cfg = RewardsConfig(score_names={"toxicity": (1, 0), "quality_10": (1, 10)})
    bad, good = base("a").feedback("Toxicity", value=1, annotator="human"), base("b").feedback("quality-10", value=10)
    found = made(bad, good)
    assert sorted(thumbs(*found[:3], cfg)["score"]) == [-1.0, 1.0]
    assert thumbs(*found).is_empty()


@pytest.mark.parametrize(
    "name", ["thumbs", "user_feedback", "csat", "answer_rating", "explicit_user_score", "feedback"]
)
def test_names_of_ratings(name: str) -> None:
    assert is_rating(name)


def test_bare_thanks_are_half_a_vote() -> None:
    rows = thanks(*made(base("a").ask("Thanks, bye"), base("b").ask("Perfect, thank you!")))
    assert sorted(rows["score"]) == [0.5, 1.0]


def test_what_was_kept_for_long() -> None:
    kept, gone, some = (base(n).feedback("retained", value=v) for n, v in (("a", 0.9), ("b", 0.1), ("c", 0.6)))
    assert sorted(user_edit(*made(kept, gone, some))["score"]) == [-1.0, 1.0]


def test_undoing_by_a_button_and_by_word() -> None:
    button, word, other = base("a").feedback("undo"), base("b").ask("please undo that"), base("c").ask("do it")
    rows = undo(*made(button, word, other))
    assert rows.select("step", "score").rows() == [(0, -1.0), (0, -1.0)]


def session(name: str, *refused: int, edits: int = 4) -> Talk:
    """Return a session of edits, some of which the user refused."""
    talk = Talk(name).ask("mend the parser")
    for n in range(edits):
        talk.act(calls=[call("Edit", {"file_path": "a.py", "old_string": "x", "new_string": str(n)}, f"{name}{n}")])
        talk.result("no" if n in refused else "ok", "unknown" if n in refused else "ok", call_id=f"{name}{n}")
        if n in refused:
            talk.feedback("reject", annotator="human", target="call", target_id=f"{name}{n}")
    return talk.act("Done.")


def test_one_refused_edit_is_not_a_failed_session() -> None:
    rows = undo(*made(session("a", 1))).rows(named=True)
    assert [(row["step"], row["score"], row["weight"]) for row in rows] == [(1, -1.0, 0.25)]
    assert set(undo(*made(session("b", 0, 1, 2)))["weight"]) == {0.75}
    assert set(undo(*made(session("c", 3)))["weight"]) == {1.0}  # the last word on it
    assert undo(*made(base("d").feedback("reject")))["weight"].to_list() == [1.0]


def test_asking_again_is_one_of_three_things() -> None:
    reworded = base("a").ask("Which orders are late in this week?").act("...")
    other = base("b").ask("And who works in the warehouse today?").act("...")
    corrected = base("c").ask("No, I meant last week").act("...")
    short = Talk("d").ask("yes").act("Sure?").ask("yes").act("...")
    unanswered = Talk("e").ask("Which orders are late?", "Which orders are late??").act("...")
    button = base("f").feedback("regenerate")
    again = base("g").ask("which orders are late this week?").act("...")
    value = (
        Talk("h")
        .ask("Book a table at 7 for four people")
        .act("Done.")
        .ask("Book a table at 8 for four people")
        .act("ok")
    )
    goodbye = base("i").ask("No, that's all.").act("...")
    found = made(reworded, other, corrected, short, unanswered, button, again, value, goodbye)
    names = dict(found.episodes.select("episode_id", "conversation_id").iter_rows())
    said = {
        s: {names[e]: v for e, v in s(*found).select("episode_id", "score").iter_rows()}
        for s in (rephrase, correction, retry)
    }
    assert list(said.values()) == [{"a": -1.0}, {"c": -1.0, "h": -0.5}, {"f": -1.0, "g": -1.0}]


@pytest.mark.parametrize(
    ("signal", "words", "family"),
    [(correction, "No, I meant last week", "followup"), (complaint, "This is useless and wrong!", "sentiment_neg")],
)
def test_a_rejection_that_the_agent_answered_is_a_signal_of_its_own(signal: Signal, words: str, family: str) -> None:
    name = getattr(signal, "__name__", "")
    left, went_on = base("left").ask(words), base("went on").ask(words).act("...")
    both = base("both").ask(words).act("...").ask(words)
    found = made(left, went_on, both)
    names = dict(found.episodes.select("episode_id", "conversation_id").iter_rows())
    rows = signal(*found).select("episode_id", "step", "signal", "family").iter_rows()
    last, answered = (name, family), (f"answered_{name}", "answered")
    assert {(names[e], step): told for e, step, *told in rows} == {
        ("left", 0): [*last],
        ("went on", 0): [*answered],
        ("both", 0): [*answered],
        ("both", 1): [*last],
    }


@pytest.mark.parametrize(("minutes", "exported", "votes"), [(9, False, 1), (11, False, 0), (9, True, 0)])
def test_rephrasing_needs_haste_and_no_adoption(minutes: int, exported: bool, votes: int) -> None:  # noqa: FBT001
    talk = base()
    if exported:
        talk.feedback("export")
    talk.ask("Which orders are late in this week?").act("...")
    talk.rows[-2]["ts"] = talk.rows[0]["ts"] + timedelta(minutes=minutes)
    talk.rows[-1]["ts"] = talk.rows[-2]["ts"]
    assert rephrase(*made(talk)).height == votes


def test_escalation_is_what_the_application_says_or_a_wish_not_met() -> None:
    wished, recorded = base("a").ask("let me talk to a human"), base("b").feedback("escalation")
    by_agent = Talk("c").ask("x").use("transfer_to_human_agents", {})
    granted = base("d").ask("let me talk to a human").use("transfer_to_human_agents", {})
    found = made(wished, recorded, by_agent, granted, base("e"))
    names = dict(found.episodes.select("episode_id", "conversation_id").iter_rows())
    rows = escalate(*found).select("episode_id", "score").iter_rows()
    assert {names[e]: score for e, score in rows} == {"a": -0.5, "b": -1.0}


def test_abandonment() -> None:
    pending = Talk("a").ask("x").act(calls=[call("f", {}, "1")])
    failed = Talk("b").ask("x").use("f", {}, "failed")
    closed, answered, left = Talk("c").ask("x").use("f", {}), base("d"), base("e").ask("hm")
    ended = [
        Talk(name).ask("x").act(calls=[call(name, {}, "1")]) for name in ("final_result", "submit", "attemptCompletion")
    ]
    found = made(pending, failed, closed, answered, left, *ended)
    names = dict(found.episodes.select("episode_id", "conversation_id").iter_rows())
    assert sorted(names[e] for e in abandon(*found)["episode_id"]) == ["a", "b"]
