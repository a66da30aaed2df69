"""Every refused pair has its reason, and what is left holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from flywheel.config import PairsConfig
from flywheel.contracts import conform, polars_schema
from flywheel.errors import ExtensionError
from flywheel.funnel import Funnel
from flywheel.records import PreferencePair, canonical_json, content_id
from flywheel.stages.common.canonical import action_key, call_key
from flywheel.stages.datasets.pairs import build_pairs, first_divergence, retry_fixed, sibling
from flywheel.stages.datasets.pairs.requests import only_in_one
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
Make = Callable[[list[dict[str, Any]]], Frames]
CFG = PairsConfig()
TOOLS = canonical_json(
    [{"name": "look"}, {"name": "good"}, {"name": "bad"}, {"name": "sql", "keys": ["q", "text", "n"]}]
)


def run(made: Frames, cfg: PairsConfig = CFG, **builders: Any) -> tuple[list[dict[str, Any]], dict[str, int]]:
    funnel = Funnel()
    pairs = build_pairs(*made, cfg, builders or {"retry_fixed": retry_fixed, "sibling": sibling}, funnel)
    funnel.check("pairs")
    conform(pairs, PreferencePair).collect()
    return pairs.to_dicts(), {k.removeprefix("dropped: "): v for k, v in funnel.as_dict().items() if v}


def with_keys(made: Frames) -> Frames:
    """Return frames whose calls have the keys that a log's have."""
    episodes, steps, returns = made
    calls = [json.loads(action).get("tool_calls") or [] for action in steps["action"]]
    keys = [action_key([call_key(call) for call in made]) for made in calls]
    return episodes, steps.with_columns(pl.Series("action_key", keys, dtype=pl.String)), returns


def attempt(name: str, call: tuple[str, Any], p: float, *later: dict[str, Any], **turn: Any) -> dict[str, Any]:
    steps = [
        {"user": "I need 5 of West, order 77", "call": ("look", {}), "result": "seen"},
        {"call": call, **turn},
        *later,
    ]
    return {"id": name, "p": p, "steps": steps, "tools": TOOLS}


GOOD = attempt("a", ("good", {"n": 5}), 0.95)
BAD = attempt("b", ("bad", {"n": 5}), 0.05)


def test_a_clear_pair_survives(frames: Make) -> None:
    pairs, counts = run(frames([GOOD, BAD]))
    assert [pair["builder"] for pair in pairs] == ["sibling"]
    assert counts == {
        "considered": 1,
        "kept": 1,
        "note: candidates of sibling": 1,
        "note: kept of sibling": 1,
    }


@pytest.mark.parametrize(
    ("attempts", "reason"),
    [
        ([GOOD, attempt("b", ("bad", {"n": 5}), 0.9)], "margin"),
        ([attempt("a", ("good", {"n": 5}), 0.6), attempt("b", ("bad", {"n": 5}), 0.4)], "p_better"),
        ([attempt("a", ("good", None), 0.95, status="unknown"), BAD], "malformed chosen"),
        ([attempt("a", ("good", {"n": 5}), 0.95, status="failed"), BAD], "chosen call failed"),
        ([attempt("a", ("good", {"n": 5}), 0.95, {"call": ("bad", {"n": 5})}), BAD], "other order"),
        ([attempt("a", ("good", {"n": 123}), 0.95), BAD], "not grounded"),
    ],
)
def test_each_filter_drops_and_counts(frames: Make, attempts: list[dict[str, Any]], reason: str) -> None:
    pairs, counts = run(frames(attempts))
    assert pairs == []
    assert counts[f"sibling: {reason}"] == 1


def test_a_call_that_answers_another_conversation_is_dropped(frames: Make) -> None:
    listed = "We hold lamps, desks, chairs, clocks and rugs in West, and all of them are counted under the code"
    good, bad = (
        {**one, "steps": [{**one["steps"][0], "result": f"{listed} 12"}, *one["steps"][1:]]} for one in (GOOD, BAD)
    )
    foreign = {**BAD, "steps": [{**bad["steps"][0], "result": f"{listed} 4711"}, {"call": ("bad", {"n": 4711})}]}
    invented = {**BAD, "steps": [BAD["steps"][0], {"call": ("bad", {"n": 4711})}]}
    assert run(frames([good, foreign]))[1]["sibling: other context"] == 1
    assert run(frames([GOOD, invented]))[1]["kept"] == 1


def asked(name: str, *turns: str, call: tuple[str, Any], p: float, said: str = "Sure?") -> dict[str, Any]:
    """Return an attempt that answers each turn but the last in words."""
    *talk, last = turns
    steps = [*({"user": turn, "say": said} for turn in talk), {"user": last, "call": call}]
    return {"id": name, "p": p, "steps": steps, "tools": TOOLS}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (["please cancel order 77 of my account"], ["please cancel order 77 of my account"], True),
        (["please cancel order 77 of my account"], ["please cancel my order 77 of that account"], True),
        (["please cancel order 77 of my account"], ["please cancel order 78 of my account"], True),  # neither names it
        (["please cancel order 77 of my account"], ["please do not cancel order 77 of my account"], False),
        (["please cancel order 77 of my account"], ["please exchange the shoes of order 77"], False),
        (["please cancel order 77 of my account"], ["please cancel order 77 of my account 5"], False),
        (["cancel the order of shoes", "yes please"], ["cancel the order of shoes", "yes please"], True),
        (["cancel the order of shoes", "yes please"], ["cancel the order of shoes", "no, it is too late"], False),
    ],
)
def test_siblings_have_the_same_requests_before_them(
    frames: Make, one: list[str], other: list[str], *, same: bool
) -> None:
    made = [asked("a", *one, call=("good", {}), p=0.95), asked("b", *other, call=("bad", {}), p=0.05)]
    _, counts = run(frames(made))
    assert (counts.get("kept", 0), counts.get("sibling: other request", 0)) == (int(same), int(not same))


def test_a_yes_to_another_question_is_another_request(frames: Make) -> None:
    one, other = "Shall I cancel the order of shoes now?", "Shall I keep the order of hats instead?"
    made = [
        asked("a", "about my order of shoes", "yes please", call=("good", {}), p=0.95, said=one),
        asked("b", "about my order of shoes", "yes please", call=("bad", {}), p=0.05, said=other),
    ]
    assert run(frames(made))[1]["sibling: other request"] == 1
    made[1] = asked("b", "about my order of shoes", "yes please", call=("bad", {}), p=0.05, said=one)
    assert run(frames(made))[1]["kept"] == 1


def test_an_action_names_no_fact_that_only_one_user_gave(frames: Make) -> None:
    made = [
        asked("a", "please cancel order 77 of my account", call=("good", {"n": 77}), p=0.95),
        asked("b", "please cancel order 78 of my account", call=("bad", {}), p=0.05),
    ]
    assert run(frames(made))[1]["sibling: other request"] == 1


def test_where_a_call_of_both_showed_something_else_is_another_state(frames: Make) -> None:
    other = {**BAD, "steps": [{**BAD["steps"][0], "result": "gone"}, *BAD["steps"][1:]]}
    counts = [run(with_keys(frames([GOOD, bad])))[1] for bad in (BAD, other)]
    assert [(c.get("kept", 0), c.get("sibling: other course", 0)) for c in counts] == [(1, 0), (0, 1)]


@pytest.mark.parametrize(("said", "same"), [("I take it to be 5 of them.", True), ("There are 7 of them.", False)])
def test_a_turn_that_answers_other_words_is_another_state(frames: Make, said: str, *, same: bool) -> None:
    turns = ("how many lamps does order 77 have", "that is not what I had ordered then")
    made = [
        asked("a", *turns, call=("good", {}), p=0.95, said="There are 5 of them."),
        asked("b", *turns, call=("bad", {}), p=0.05, said=said),
    ]
    counts = run(frames(made))[1]
    assert (counts.get("kept", 0), counts.get("sibling: other course", 0)) == (int(same), int(not same))


@pytest.mark.parametrize(
    ("said", "kept"), [("Let me look.", True), ("Let me look.\nObservation: 5", False), ("**User:** thanks", False)]
)
def test_who_writes_a_tools_result_is_no_example(frames: Make, said: str, *, kept: bool) -> None:
    good = {**GOOD, "steps": [GOOD["steps"][0], {**GOOD["steps"][1], "say": said}]}
    counts = run(frames([good, BAD]))[1]
    assert (counts.get("kept", 0), counts.get("sibling: invented result", 0)) == (int(kept), int(not kept))


def test_calls_that_give_the_same_to_go_on_with_are_no_better_than_each_other(frames: Make) -> None:
    def found(result: str, tool: str = "sql") -> dict[str, int]:
        one = attempt("a", (tool, {"q": "good"}), 0.95, {"say": "done"}, result=result)
        other = attempt("b", (tool, {"q": "bad"}), 0.05, {"say": "done"}, result=result)
        return run(frames([one, other]))[1]

    assert found("the total of West is 5")["sibling: same result"] == 1
    assert found("ok")["kept"] == 1
    assert found("the order was updated: 5", "update_order")["kept"] == 1


@pytest.mark.parametrize(
    ("said", "reason"),
    [(None, None), ("let me see", None), ("The column does not exist, so region", "later words")],
)
def test_what_was_thought_after_the_failure_is_not_said_before_it(
    frames: Make, said: str | None, reason: str | None
) -> None:
    made = retry("e", "no column revenue", "SELECT region FROM sales")
    made["steps"][0]["say"] = "let me see"
    made["steps"][1] |= {} if said is None else {"say": said}
    counts = run(frames([made]))[1]
    assert counts.get("kept", 0) == int(reason is None)
    assert counts.get(f"retry_fixed: {reason}", 0) == int(reason is not None)


def test_a_fix_that_repeats_an_earlier_call_is_none(frames: Make) -> None:
    made = retry("e", "no column revenue", "SELECT region FROM sales")
    user = made["steps"][0].pop("user")
    made["steps"].insert(0, {"user": user, "call": made["steps"][1]["call"]})
    assert run(frames([made]))[1]["retry_fixed: done before"] == 1


@pytest.mark.parametrize(
    ("fixed", "kept"),
    [("rm -rf a.txt  # force", False), ("rm a.txt 2>/dev/null || true", False), ("rm ./files/a.txt", True)],
)
def test_to_silence_an_error_mends_nothing(frames: Make, fixed: str, *, kept: bool) -> None:
    made = retry("e", "rm: cannot remove 'a.txt': No such file", fixed)
    made["steps"][0] |= {"user": "remove a.txt of ./files", "call": ("sql", {"q": "rm a.txt"})}
    assert run(frames([made]))[1].get("kept", 0) == int(kept)


@pytest.mark.parametrize(
    ("tool", "result", "kept"),
    [
        ("sql", "", False),
        ("sql", "[]", False),
        ("sql", "[Run finished without output]", False),
        ("sql", "0", True),
        ("rename", "", True),
    ],
)
def test_a_fix_that_gives_nothing_shows_only_that_it_ran(frames: Make, tool: str, result: str, *, kept: bool) -> None:
    made = retry("e", "no column revenue", "SELECT region FROM sales")
    made["steps"][1]["result"] = result
    for step in made["steps"][:2]:
        step["call"] = (tool, step["call"][1])
    made["tools"] = canonical_json([{"name": name} for name in ("sql", "rename")])
    counts = run(frames([made]))[1]
    assert (counts.get("kept", 0), counts.get("retry_fixed: nothing shown", 0)) == (int(kept), int(not kept))


def test_a_fix_of_letter_case_is_a_fix(frames: Make) -> None:
    made = retry("e", "no such option: c", "tar -C west")
    made["steps"][0] |= {"user": "unpack west", "call": ("sql", {"q": "tar -c west"})}
    (pair,), _ = run(with_keys(frames([made])))
    assert [json.loads(pair[side])[-1]["tool_calls"][0]["arguments"]["q"] for side in ("chosen", "rejected")] == [
        "tar -C west", "tar -c west",
    ]  # fmt: skip


def test_a_search_that_finds_nothing_is_no_error(frames: Make) -> None:
    made = retry("e", "<code>1</code>", "SELECT region FROM sales")
    made["steps"][1]["result"] = "<code>0</code> West"
    assert run(frames([made]))[1].get("retry_fixed: no error") == 1


def test_answers_that_tell_the_same_are_the_same(frames: Make) -> None:
    def answers(one: str, other: str) -> dict[str, int]:
        steps: list[dict[str, Any]] = [{"user": "how much is 3 times 5?", "call": ("look", {}), "result": "it is 15"}]
        made = [{"id": "a", "p": 0.95, "steps": [*steps, {"say": one}]}]
        made.append({"id": "b", "p": 0.05, "steps": [*steps, {"say": other}]})
        return run(frames(made), first_divergence=first_divergence)[1]

    assert answers("That makes 15.", "Three times five is fifteen, that is 15")["first_divergence: near-identical"] == 1
    assert answers("That makes 15.", "That makes three.")["kept"] == 1


PROSE = "The user would like to have the order of the West moved"


@pytest.mark.parametrize(
    ("chosen", "rejected", "dropped"),
    [
        ({"text": PROSE}, {"text": PROSE.replace("would like", "wants")}, True),
        ({"text": PROSE + " to 77"}, {"text": PROSE}, True),
        ({"text": PROSE + " to 77"}, {"text": PROSE + " to 5"}, False),
        ({"text": PROSE, "n": 5}, {"text": PROSE, "n": 77}, False),
        ({"q": "SELECT n FROM West"}, {"q": "SELECT text FROM West"}, False),
    ],
)
def test_calls_that_differ_in_wording_only(frames: Make, chosen: Any, rejected: Any, *, dropped: bool) -> None:
    _, counts = run(frames([attempt("a", ("sql", chosen), 0.95), attempt("b", ("sql", rejected), 0.05)]))
    assert counts.get("sibling: near-identical", 0) == int(dropped)
    assert counts["kept" if not dropped else "sibling: near-identical"] == 1


@pytest.mark.parametrize(
    ("tool", "one", "other", "dropped"),
    [
        ("search", "Who built the West tower?", "who built the west tower", True),
        ("search_pages", "builder of the tower in West", "West tower builder", True),
        ("search", "who built the West tower", "when was the West tower built", False),
        ("search", "tower West not built", "tower West built", False),
        ("search", "maker of the old blue West tower clock", "maker of the tall old blue West tower clock", True),
        ("search", "maker of the old blue West tower clock", "maker of the old blue East tower clock", False),
        ("search", "maker of the old blue West tower clock", "maker of the old blue West tower clock 77", False),
        ("search", "order 5", "order 77", False),
        ("sql", "order by West", "West by order", False),  # in code the order counts
        ("sql", f"def n():\n    # {PROSE}\n    return 5 + 5", f"def n():\n    # Why {PROSE}\n    return 5 + 5", True),
        ("sql", f"def n():\n    # {PROSE}\n    return 5 + 5", f"def n():\n    # {PROSE}\n    return 5 * 5", False),
    ],
)
def test_searches_are_their_words_and_code_is_no_prose(
    frames: Make, tool: str, one: str, other: str, *, dropped: bool
) -> None:
    ours, theirs = (attempt(name, (tool, {"q": text}), p) for name, text, p in (("a", one, 0.95), ("b", other, 0.05)))
    _, counts = run(frames([ours, theirs]))
    assert counts.get("sibling: near-identical", 0) == int(dropped), counts


def retry(name: str, error: str, fixed: str, p: float = 0.95) -> dict[str, Any]:
    steps = [
        {"user": "total by region of table sales", "call": ("sql", {"q": "SELECT revenue"}), "status": "failed",
         "result": error},
        {"call": ("sql", {"q": fixed}), "result": "West 5"},
        {"say": "done"},
    ]  # fmt: skip
    return {"id": name, "p": p, "steps": steps, "tools": TOOLS, "task": name}


def test_a_planted_leak_is_refused_and_an_honest_fix_is_kept(frames: Make) -> None:
    leak = retry("leak", "no column revenue; did you mean amount_usd?", "SELECT amount_usd")
    honest = retry("honest", "no column revenue", "SELECT region FROM sales")
    pairs, counts = run(frames([leak, honest]))
    assert [pair["task_id"] for pair in pairs] == ["honest"]
    assert counts["retry_fixed: not grounded"] == 1


def test_a_fix_in_a_failed_episode_is_no_evidence(frames: Make) -> None:
    _, counts = run(frames([retry("e", "no", "SELECT region FROM sales", p=0.05)]))
    assert counts["retry_fixed: margin"] == 1


def custom(**changes: Any) -> Callable[..., pl.DataFrame]:
    """Return a builder of one pair of plain texts between the episodes a and b."""

    def build(*_: Any) -> pl.DataFrame:
        row: dict[str, Any] = {
            "task_id": "t", "split": "train", "state_key": "s", "prompt": '[{"content":"hi","role":"user"}]',
            "chosen": '[{"content":"good day to you","role":"assistant"}]', "tools": None, "same_prefix_until": 0,
            "rejected": '[{"content":"no","role":"assistant"}]', "margin": 1.0, "p_better": 0.9, "weight": 1.0,
            "builder": "mine", "chosen_episode": "a", "chosen_step": 0, "rejected_episode": "b", "rejected_step": 0,
        }  # fmt: skip
        row |= changes
        row["pair_id"] = content_id(row["prompt"], row["chosen"], row["rejected"])
        return pl.DataFrame([row], schema=polars_schema(PreferencePair))

    return build


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"rejected_episode": "nobody"}, "unknown outcome"),
        ({"chosen": '[{"content":"NO","role":"assistant"}]'}, "near-identical"),
        ({"chosen": '[{"content":" no ","role":"assistant"}]'}, "same action"),
        ({"chosen": '[{"content":" ","role":"assistant"}]'}, "malformed chosen"),
        ({"chosen": '[{"content":"call 555-0100","role":"assistant"}]'}, "not grounded"),
    ],
)
def test_pairs_of_a_plugin_pass_the_same_filters(frames: Make, changes: dict[str, Any], reason: str | None) -> None:
    _, counts = run(frames([GOOD, BAD]), mine=custom(**changes))
    assert counts.get("kept", 0) == int(reason is None)
    assert counts.get(f"mine: {reason}", 0) == int(reason is not None)


def test_a_plugin_may_leave_the_texts_to_the_log(frames: Make) -> None:
    made = frames([GOOD, BAD])
    texts = ("pair_id", "prompt", "chosen", "rejected", "tools")

    def bare(*given: Any) -> pl.DataFrame:
        return sibling(*given).drop(texts)

    (pair,), counts = run(made, mine=bare, sibling=sibling)
    assert counts["duplicate"] == 1  # the same pair, whoever wrote it down
    assert pair["prompt"].startswith("[{")

    def lost(*given: Any) -> pl.DataFrame:
        return bare(*given).with_columns(chosen_step=pl.lit(99, dtype=pl.Int64))

    with pytest.raises(ExtensionError, match="not in the log"):
        run(made, mine=lost)


def test_duplicates_and_caps_prefer_the_first_builder_then_the_margin(frames: Make) -> None:
    made = frames([GOOD, BAD])
    texts = [f'[{{"content":"answer {word}","role":"assistant"}}]' for word in ("one", "two", "three")]
    builders: dict[str, Any] = {
        "b1": custom(chosen=texts[0], margin=0.5, prompt='[{"content":"zero 1 2 3","role":"user"}]'),
        "b2": custom(chosen=texts[1], margin=0.9, prompt='[{"content":"zero 1 2 3","role":"user"}]'),
        "b3": custom(chosen=texts[1], margin=0.9, prompt='[{"content":"zero 1 2 3","role":"user"}]'),
        "b4": custom(chosen=texts[2], margin=0.8, state_key="other"),
    }
    pairs, counts = run(made, PairsConfig(max_per_state=1), **builders)
    assert sorted(pair["margin"] for pair in pairs) == [0.5, 0.8]
    assert counts["duplicate"] == 1
    assert counts["over pairs.max_per_state"] == 1
    pairs, counts = run(made, PairsConfig(max_per_task=2), **builders)
    assert sorted(pair["margin"] for pair in pairs) == [0.5, 0.9]
    assert counts["over pairs.max_per_task"] == 1


def test_no_builders_and_no_rows_give_no_pairs(frames: Make) -> None:
    funnel = Funnel()
    assert build_pairs(*frames([]), CFG, {}, funnel).height == 0
    assert run(frames([])) == ([], {})


names = st.sampled_from(["look", "good", "bad", "sql"])
outcomes = st.sampled_from([0.05, 0.3, 0.5, 0.8, 0.95])
logs = st.lists(st.tuples(st.sampled_from("tu"), outcomes, st.lists(names, min_size=1, max_size=4)), max_size=12)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(logs)
@example(
    [("t", 0.05, ["look"]), ("t", 0.05, ["look"]), ("t", 0.5, ["sql"]), ("u", 0.05, ["look"]), ("u", 0.8, ["sql"])]
)
def test_what_always_holds(frames: Make, log: list[tuple[str, float, list[str]]]) -> None:
    made = frames(
        [
            {
                "id": f"e{n}",
                "task": task,
                "p": p,
                "tools": TOOLS,
                "steps": [{"user": "5", "call": (c, {"n": 5})} for c in calls],
            }
            for n, (task, p, calls) in enumerate(log)
        ]
    )
    pairs, _ = run(made)
    assert pairs == run((made[0].reverse(), made[1].reverse(), made[2].reverse()))[0]
    for pair in pairs:
        assert pair["chosen"] != pair["rejected"]
        assert pair["margin"] >= CFG.min_margin - 1e-9
        assert pair["p_better"] >= CFG.min_p_better - 1e-9
    assert len({pair["pair_id"] for pair in pairs}) == len(pairs)


def searched(name: str, p: float, query: str, result: str, *later: dict[str, Any], **turn: Any) -> dict[str, Any]:
    steps = [
        {"user": "who wrote West 5, and in which year?", "call": ("search", {"q": query}), "result": result, **turn}
    ]
    return {"id": name, "p": p, "tools": canonical_json([{"name": "search", "keys": ["q"]}]), "steps": [*steps, *later]}


ANN = '[{"id": "west_5_book", "by": "Ann Lee"}, {"id": "other"}]'


@pytest.mark.parametrize(
    ("chosen", "rejected", "reason"),
    [
        (searched("a", 0.95, "West", ANN), searched("b", 0.05, "5", '[{"id": "none of it"}]'), None),
        (searched("a", 0.95, "West", ANN), searched("b", 0.05, "5", ANN.replace("other", "others")), "same result"),
        (
            searched("a", 0.95, "/data/west_5", "line one"),
            searched("b", 0.05, "/data/west_5 -x", "read: /data/west_5: No such file or directory", status="failed"),
            "other environment",
        ),
        (searched("a", 0.95, "West", "Invalid query, try again"), searched("b", 0.05, "5", "q"), "chosen call failed"),
    ],
)
def test_the_better_call_is_what_made_the_attempt_better(
    frames: Make, chosen: dict[str, Any], rejected: dict[str, Any], reason: str | None
) -> None:
    for attempt_ in (chosen, rejected):
        attempt_["steps"][0]["user"] += " it is in /data/west_5 -x"
        attempt_["steps"].append({"say": "done"})
    counts = run(frames([chosen, rejected]))[1]
    assert counts.get("kept", 0) == int(reason is None)
    assert counts.get(f"sibling: {reason}", 0) == int(reason is not None)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ("7 rows", None),
        ("md5: West: No such file or directory\nWest", "still failing"),
        ("it is known already: 12", "still failing"),
    ],
)
def test_a_call_that_works_without_mending_anything_is_no_fix(frames: Make, result: str, reason: str | None) -> None:
    made = retry("e", "md5: West: No such file or directory", "SELECT region FROM sales")
    user = made["steps"][0].pop("user")
    made["steps"].insert(0, {"user": user, "call": ("look", {}), "result": "it is known already: 12"})
    made["steps"][2]["result"] = result
    made["steps"].append({"say": "done"})
    counts = run(frames([made]))[1]
    assert (counts.get("kept", 0), counts.get(f"retry_fixed: {reason}", 0)) == (int(reason is None), int(bool(reason)))


def test_a_call_that_its_own_attempt_went_on_to_vary_was_not_what_helped(frames: Make) -> None:
    query = {"q": "West 5 wrote it"}
    again = {"call": ("search", {"q": "West 5 wrote it in"}), "result": "Ann"}
    one = searched("a", 0.95, query["q"], "x y z", again, {"say": "done"})
    counts = run(with_keys(frames([one, searched("b", 0.05, "in which year", "a b c", {"say": "done"})])))[1]
    assert counts["sibling: tried again"] == 1


RULES = "Answer with tools only.\nToday is 2024-05-01, the user is Ann Lee.\nAlways confirm before you cancel an order."


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (RULES.replace("2024-05-01", "2025-12-24").replace("Ann Lee", "Bo Ek"), True),
        (RULES.replace("Always confirm before", "Always confirm twice, in their words, before"), False),
        (f"{RULES}\nUse the search before you answer.", False),
        ("", False),
    ],
)
def test_two_agents_with_other_instructions_are_in_other_states(other: str, *, same: bool) -> None:
    def prompt(system: str, user: str) -> str:
        return canonical_json([{"role": "system", "content": system}, {"role": "user", "content": user}])

    assert (only_in_one(prompt(RULES, "cancel order 77"), prompt(other, "cancel order 77")) is not None) == same
    template = "\n".join(f"An example in which the agent was {n} and they asked again." for n in ("ill", "new", "lost"))
    shown = prompt("", f"{template}\n{RULES}\ncancel"), prompt("", f"{template}\n{other}\ncancel")
    assert (only_in_one(*shown) is not None) == same
