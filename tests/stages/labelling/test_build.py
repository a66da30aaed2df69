"""What the log as a whole says of its signals: fitted with known outcomes, left alone without, never by suspects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from flywheel.config import RewardsConfig
from flywheel.contracts import polars_schema
from flywheel.funnel import Funnel
from flywheel.records import Episode, Reliability, Reward, canonical_json
from flywheel.stages.common.pieces import InMemory
from flywheel.stages.labelling.build import build_reliability, learned, shown_in
from flywheel.stages.labelling.label import label_episodes
from flywheel.stages.labelling.posterior import Posterior, Vote
from flywheel.stages.signals.audit import audit
from tests.stages.talks import Talk, made

START = datetime(2026, 9, 1, tzinfo=UTC)
Row = dict[str, Any]


class World:
    """Episodes and rewards written by hand; a number decides what happens in each, without chance."""

    def __init__(self) -> None:
        self.episodes: list[Row] = []
        self.rewards: list[Row] = []

    def episode(self, name: str, *votes: tuple[str, str, float], **columns: Any) -> str:
        arrived = columns.pop("arrived", None)
        inclusion = columns.pop("inclusion", None)
        fixed = {"tags": [], "task_id": "t", "policy": "p", "n_steps": 2, "n_tool_errors": 0}
        self.episodes.append({"episode_id": name} | fixed | columns)
        for signal, family, score in votes:
            kind = "outcome" if family in {"verifier", "audit"} else "implicit"
            self.rewards.append(
                {"episode_id": name, "task_id": "t", "signal": signal, "family": family, "kind": kind, "score": score,
                 "weight": 1.0, "evidence": [], "arrived": arrived, "signal_version": 1,
                 "inclusion": inclusion if family == "audit" else None}
            )  # fmt: skip
        return name

    @property
    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        return (
            pl.DataFrame(self.episodes, schema=polars_schema(Episode)),
            pl.DataFrame(self.rewards, schema=polars_schema(Reward)),
        )

    def learned(self, **cfg: Any) -> pl.DataFrame:
        funnel = Funnel()
        table = build_reliability(*self.frames, RewardsConfig(**cfg), None, funnel)
        funnel.check("reliability")
        return table


def signals(n: int, *, good: bool) -> list[tuple[str, str, float]]:
    """Return the votes of the n-th success or failure: complaints tell, thanks do not, escalation is upside down."""
    votes = []
    if n % (50 if good else 4) == 0:
        votes.append(("complaint", "sentiment_neg", -1.0))
    if n % 3 == 0:
        votes.append(("thanks", "sentiment_pos", 1.0))
    if n % (4 if good else 20) == 1:
        votes.append(("escalate", "followup", -1.0))
    return votes


def taught(n: int = 300, gold: int = 300) -> World:
    world = World()
    for i in range(n):
        good = i % 10 < 7
        verdict = [("outcome", "verifier", 1.0 if good else -1.0)] if i < gold else []
        started = START + timedelta(days=i % 60)
        world.episode(f"{i:04d}", *signals(i // 10, good=good), *verdict, started=started, ended=started)
    return world


def rate(table: pl.DataFrame, signal: str, scope: str = "all") -> Row:
    rows = table.filter((pl.col("kind") == "vote") & (pl.col("name") == signal) & (pl.col("scope") == scope))
    (row,) = rows.iter_rows(named=True)
    return row


def odds(row: Row) -> float:
    return float(row["tpr"] / (1 - row["tnr"]) if row["sign"] > 0 else (1 - row["tpr"]) / row["tnr"])


def test_known_outcomes_teach_what_a_vote_is_worth() -> None:
    table = taught(3000, 3000).learned(scope="all")
    assert odds(rate(table, "complaint")) == pytest.approx(4 / 50, rel=0.2)
    assert odds(rate(table, "thanks")) == pytest.approx(1, abs=0.05)
    assert odds(rate(table, "escalate")) == pytest.approx(1, abs=1e-6), "what points the wrong way says nothing"
    (prior,) = table.filter(kind="class").iter_rows(named=True)
    assert (prior["value"], prior["source"]) == (pytest.approx(0.7, abs=0.01), "fitted with gold")
    assert Posterior.read(table).score([Vote("thanks", "sentiment_pos", 1, 1)]) == pytest.approx(0.65), "praise is held"


def test_few_known_outcomes_leave_the_priors_and_say_so() -> None:
    table = taught(300, 20).learned()
    assert rate(table, "complaint")["source"] == "prior"
    assert rate(table, "complaint")["tnr"] == 0.85
    notes = table.filter(kind="warning")["note"].to_list()
    assert any("priors, not measured: fewer than 30 outcomes are known" in note for note in notes)
    assert any("uncalibrated: 0 of at least 30" in note for note in notes)
    assert rate(taught().learned(fit="never"), "complaint")["source"] == "prior"


def test_without_any_outcome_a_fit_must_be_asked_for_and_is_marked() -> None:
    world = World()
    for i in range(200):
        votes = [("complaint", "sentiment_neg", -1.0), ("rephrase", "followup", -1.0), ("loop", "exec", -1.0)]
        world.episode(f"{i:04d}", *(vote for k, vote in enumerate(votes) if i % (k + 5) == 0))
    assert rate(world.learned(), "loop")["source"] == "prior"
    table = world.learned(fit="always")
    assert rate(table, "loop")["source"] == "prior", "three families never speak on ten episodes together"
    for i in range(10):
        world.episode(f"all{i}", *votes)
    table = world.learned(fit="always")
    assert rate(table, "loop")["source"] == "fitted"
    assert odds(rate(table, "loop")) <= 1
    assert "no gold" in table.filter(kind="warning")["name"].to_list()


def test_months_differ_as_far_as_they_can_tell() -> None:
    world = taught(1000, 1000)
    table = world.learned()
    scopes = table.filter(kind="class")["scope"].to_list()
    assert scopes == ["2026-09", "2026-10", "all"]
    assert odds(rate(table, "complaint", "2026-09")) == pytest.approx(odds(rate(table, "complaint")), rel=0.5)
    assert world.learned(scope="policy").filter(kind="class")["scope"].to_list() == ["all"], "one policy is all"


def test_suspect_rewards_teach_nothing() -> None:
    world = taught()
    before = world.learned()
    for i in range(200):
        votes = (("outcome", "verifier", 1.0), ("complaint", "sentiment_neg", -1.0))
        world.episode(f"s{i}", *votes, tags=["suspect"], started=START, ended=START)
    assert world.learned().equals(before)
    judged = label_episodes(*world.frames, RewardsConfig(), Posterior.read(before))
    assert judged["s1"][:6] == (0.5, 0.0, 0.0, 0.0, False, 0)
    assert judged["s1"].basis == "suspect"


def test_the_order_of_rows_does_not_matter() -> None:
    episodes, rewards = taught().frames
    cfg = RewardsConfig()
    once = build_reliability(episodes, rewards, cfg, None, Funnel())
    mixed = [f.sample(fraction=1, shuffle=True, seed=3) for f in (episodes, rewards)]
    assert build_reliability(mixed[0], mixed[1], cfg, None, Funnel()).equals(once)
    assert once.schema == polars_schema(Reliability)


def test_copies_of_a_signal_change_no_probability() -> None:
    plain, copied = taught(), taught()
    for row in [r for r in plain.rewards + copied.rewards if r["signal"] == "complaint"]:
        row["signal"] = "copy"  # of which nothing is known before, as of its copies
    for row in [r for r in copied.rewards if r["signal"] == "copy"]:
        copied.rewards += [row | {"signal": f"copy{n}"} for n in range(3)]
    vote = Vote("copy", "sentiment_neg", -1, 1)
    once = Posterior.read(plain.learned()).score([vote])
    copies = [vote, *(Vote(f"copy{n}", "sentiment_neg", -1, 1) for n in range(3))]
    assert Posterior.read(copied.learned()).score(copies) == pytest.approx(once)


def test_young_episodes_are_provisional() -> None:
    world = World()
    for i in range(100):
        started = START + timedelta(hours=i)
        late = [("thumbs", "sentiment_neg", -1.0)] if i % 4 == 0 and i < 90 else []
        world.episode(
            f"{i:04d}", ("tool_error", "exec", -1.0), started=started, ended=started, arrived=started
        )  # fmt: skip
        for signal, family, score in late:
            world.rewards.append(
                world.rewards[-1] | {"signal": signal, "family": family, "score": score,
                                     "arrived": started + timedelta(hours=2 + i % 8)}
            )  # fmt: skip
    table = world.learned()
    (delay,) = table.filter(kind="delay").iter_rows(named=True)
    assert (delay["name"], delay["n"]) == ("thumbs", 23)
    assert delay["x"][0] == pytest.approx(2 * 3600)
    judged = label_episodes(*world.frames, RewardsConfig(), Posterior.read(table))
    assert (judged["0099"].maturity, judged["0099"].provisional) == (0.0, True)
    assert judged["0099"].weight == 0
    assert (judged["0001"].maturity, judged["0001"].provisional) == (1.0, False)
    assert not judged["0088"].provisional, "it has spoken"
    relaxed = label_episodes(*world.frames, RewardsConfig(min_maturity=0), Posterior.read(table))
    assert not relaxed["0099"].provisional
    timeless = label_episodes(*world.frames, RewardsConfig(), Posterior())
    assert not timeless["0099"].provisional


def test_the_vote_that_ends_the_log_says_nothing_of_delays() -> None:
    world = World()
    for i in range(48):  # one night; every eighth user votes, the last of them when the log ends
        ended = START + timedelta(minutes=2 * i)
        world.episode(f"{i:04d}", started=ended, ended=ended)
        if i % 8 == 0:
            late = timedelta(hours=23 if i == 0 else 4 + i // 8)
            world.rewards.append(
                {"episode_id": f"{i:04d}", "task_id": "t", "signal": "complaint", "family": "sentiment_neg",
                 "kind": "implicit", "score": -1.0, "weight": 1.0, "evidence": [], "arrived": ended + late,
                 "signal_version": 1}
            )  # fmt: skip
    table = world.learned()
    (delay,) = table.filter(kind="delay").iter_rows(named=True)
    assert delay["y"][-1] == pytest.approx(5 / 48), "the sixth came when only it was still watched"
    judged = label_episodes(*world.frames, RewardsConfig(), Posterior.read(table))
    assert not any(label.provisional for label in judged.values())


def test_a_build_as_of_a_time_measures_ages_from_it() -> None:
    world = taught(40, 40)
    at = datetime(2027, 1, 1, tzinfo=UTC)
    table = build_reliability(*world.frames, RewardsConfig(), at, Funnel())
    assert table.filter(kind="time")["value"][0] == at.timestamp()


def audited(n: int = 60) -> World:
    """Return a world in which adoption promises much more than reviewers find."""
    world = World()
    for i in range(n):
        votes = [("adopted", "adoption", 1.0), ("audit", "audit", 1.0 if i % 5 < 2 else -1.0)]
        world.episode(f"{i:04d}", *votes, inclusion=0.5, user=f"u{i}")
    world.episode("other", ("adopted", "adoption", 1.0))
    return world


def test_an_audit_calibrates_those_who_were_not_drawn() -> None:
    world = audited()
    belief = Posterior.read(world.learned())
    (row,) = world.learned().filter(kind="calibration").iter_rows(named=True)
    assert row["n"] == 60
    judged = label_episodes(*world.frames, RewardsConfig(), belief)
    assert judged["0000"].p_success == 0.97
    assert judged["0003"].p_success == pytest.approx(0.03)
    assert judged["0000"].basis == "audit"
    assert judged["other"].basis == "signals"
    assert judged["other"].p_success == pytest.approx(0.4, abs=0.12)
    assert audited(20).learned().filter(kind="calibration").is_empty(), "twenty answers are noise"


def test_an_audit_that_is_spread_over_sources_teaches_what_they_share() -> None:
    world = World()
    for i in range(360):
        votes = [("thanks", "sentiment_pos", 1.0)] if i % 4 < 2 else []  # after successes and failures alike
        votes += [("complaint", "sentiment_neg", -1.0)] if i % 12 == 5 else []
        answer = [("audit", "audit", 1.0 if i % 2 else -1.0)] if i % 6 < 2 else []
        world.episode(f"{i:04d}", *votes, *answer, source_format="abc"[i % 3], inclusion=1 / 3)
    table = world.learned()
    before, after = (rate(one, "thanks") for one in (world.learned(fit="never"), table))
    assert odds(before) > 1.5
    assert odds(after) == pytest.approx(1, abs=0.3)
    assert after["source"] == "fitted with gold"
    assert rate(table, "complaint")["source"] == "prior", "no complaint met an answer"
    assert not any("; success ;" in note for note in table.filter(kind="warning")["note"].drop_nulls())


def test_answers_without_a_design_calibrate_nothing() -> None:
    world = audited()
    for row in world.rewards:
        row["inclusion"] = None
    assert world.learned().filter(kind="calibration").is_empty()


def test_a_sample_that_looks_at_what_is_rare_does_not_make_it_frequent() -> None:
    world = World()
    for i in range(200):
        rare = i < 100  # complaints: all of them drawn, of the others one in nine
        good = i % 10 == 0 if rare else i % 10 < 9
        votes = [("complaint", "sentiment_neg", -1.0)] if rare else [("thanks", "sentiment_pos", 1.0)]
        answer = ("audit", "audit", 1.0 if good else -1.0)
        world.episode(f"{i:04d}", *votes, answer, inclusion=1.0 if rare else 1 / 9)
    (prior,) = world.learned().filter(kind="class").iter_rows(named=True)
    assert prior["value"] == pytest.approx(0.1 * 0.1 + 0.9 * 0.9, abs=0.02)


def test_users_who_rate_against_the_truth_are_trusted_less() -> None:
    world = World()
    for i in range(40):
        truth = 1.0 if i % 2 else -1.0
        rating = -truth if i < 20 else truth
        family = "sentiment_pos" if rating > 0 else "sentiment_neg"
        votes = (("outcome", "verifier", truth), ("thumbs", family, rating))
        world.episode(f"{i:04d}", *votes, user="liar" if i < 20 else "honest")
    world.episode("more", ("adopted", "adoption", 1.0), user="liar")
    table = world.learned()
    trust = dict(table.filter(kind="user").select("name", "value").iter_rows())
    expected = 20 * (10 + 8) / (10 + 10)  # by the other account's ratings
    assert trust == {"honest": 1.0, "liar": pytest.approx(8 / (8 + expected))}
    judged = label_episodes(*world.frames, RewardsConfig(), Posterior.read(table))
    odds = (0.85 / 0.25) ** trust["liar"]
    assert judged["more"].p_success == pytest.approx(odds / (1 + odds), abs=0.01), "other deeds count less, too"
    assert judged["0001"].trust == 1, "a verdict needs no trust"


def test_who_adopts_everything_shows_nothing_by_it() -> None:
    world = World()
    for i in range(40):
        world.episode(f"all{i:02d}", ("adopted", "adoption", 1.0), user="adopter")
        world.episode(f"some{i:02d}", *([("adopted", "adoption", 1.0)] if i % 2 else []), user="chooser")
    table = world.learned()
    assert table.filter(kind="user")["name"].to_list() == ["adopter"]
    judged = label_episodes(*world.frames, RewardsConfig(), Posterior.read(table))
    assert judged["all01"].p_success < 0.6
    assert judged["some01"].p_success > 0.75
    assert judged["all01"].trust < 0.5


def test_only_the_audits_own_files_answer() -> None:
    def answer(file: str, value: float, **payload: Any) -> Talk:
        talk = Talk(f"{file}{value}").ask("x").act("y")
        said = {"name": "audit", "value": value, "reviewer": "r", "inclusion": 0.25, **payload}
        talk.feedback("audit")
        talk.rows[-1] |= {"source_file": file, "payload": canonical_json(said)}
        return talk

    given = made(answer("audits/0001.answers.jsonl", 1), answer("logs/app.jsonl", 0))
    rows = audit(*given)
    assert rows.select("score", "inclusion", "family", "kind").rows() == [(1.0, 0.25, "audit", "outcome")]
    twice = answer("audits/1.jsonl", 1)
    for reviewer, value in (("r", 0.0), ("s", 1.0)):
        twice.feedback("audit")
        said = {"name": "audit", "value": value, "reviewer": reviewer}
        twice.rows[-1] |= {"source_file": "audits/1.jsonl", "payload": canonical_json(said)}
    assert audit(*made(twice))["score"].to_list() == [0.0], "each reviewer's latest, then their mean"


def test_an_empty_log_teaches_nothing() -> None:
    table = World().learned()
    assert set(table["kind"]) == {"warning"}


def test_rules_are_an_option() -> None:
    world = World()
    world.episode("a", ("adopted", "adoption", 1.0), n_steps=4, n_tool_errors=1)
    world.episode("b", ("complaint", "sentiment_neg", -1.0), n_steps=2)
    world.rewards.append(world.rewards[-1] | {"signal": "risk", "family": "risk", "kind": "risk", "score": 0.5})
    judged = label_episodes(*world.frames, RewardsConfig(scheme="rules"))
    assert judged["a"].value == pytest.approx(5 - 0.4 - 0.3 + 0.5)
    assert judged["b"].value == pytest.approx(-0.2 - 5)


def test_a_judge_is_believed_as_far_as_known_outcomes_agree_and_not_before() -> None:
    world = World()
    asked = world.episode("asked", ("judge", "judge", 1.0))
    before = label_episodes(*world.frames, RewardsConfig(), Posterior.read(world.learned()))[asked]
    for n in range(120):
        good = n % 2 == 0
        right = n % 10 != 1
        verdict = 1.0 if good == right else -1.0
        world.episode(f"e{n}", ("judge", "judge", verdict), ("outcome", "verifier", 1.0 if good else -1.0))
    after = label_episodes(*world.frames, RewardsConfig(), Posterior.read(world.learned()))[asked]

    assert (before.known, before.p_success, before.weight) == (False, 0.5, 0.0)
    assert after.known
    assert 0.7 < after.p_success < 0.9


def test_a_judge_that_known_outcomes_contradict_says_nothing() -> None:
    world = World()
    asked = world.episode("asked", ("judge", "judge", 1.0))
    for n in range(120):
        world.episode(f"e{n}", ("judge", "judge", 1.0), ("outcome", "verifier", 1.0 if n % 2 else -1.0))
    found = label_episodes(*world.frames, RewardsConfig(), Posterior.read(world.learned()))[asked]

    assert abs(found.p_success - 0.5) < 0.05


def many_sided() -> World:
    """Return a log of two sources, three months and some users, with verdicts, an audit, late votes and a stray."""
    world = World()
    for i in range(1200):
        good, started = i % 10 < 7, START + timedelta(days=i % 80, seconds=i)
        votes = [*signals(i // 10, good=good), *([("outcome", "verifier", 1.0 if good else -1.0)] if i % 3 else [])]
        votes += [("thumbs", "feedback", 1.0 if i % 7 else -1.0)] if i % 2 else []
        votes += [("audit", "audit", 1.0 if good else -1.0)] if i % 11 == 0 else []
        world.episode(
            f"{i:04d}", *votes, user=f"user{i % 90}" if i % 5 else None, source_format=("app", "desk")[i % 2],
            started=started, ended=started + timedelta(minutes=i % 9), arrived=started + timedelta(hours=i % 30),
            inclusion=0.05 + 0.01 * (i % 7), tags=["suspect"] if i % 100 == 0 else [],
        )  # fmt: skip
    world.episode("stray", started=datetime(2099, 1, 1, tzinfo=UTC))
    return world


@pytest.mark.parametrize("number", [1, 4, 16])
@pytest.mark.parametrize("scope", ["all", "month"])
def test_pieces_of_a_log_add_up_to_the_same_bytes(number: int, scope: str) -> None:
    episodes, rewards = many_sided().frames
    cfg, whole, added = RewardsConfig.model_validate({"scope": scope}), Funnel(), Funnel()
    once = build_reliability(episodes, rewards, cfg, None, whole)
    kinds = {*once["kind"]}
    assert {"time", "vote", "class", "delay", "user", "calibration"} <= kinds
    home = pl.col("episode_id").hash() % number
    pieces = [
        shown_in(InMemory(episodes=episodes.filter(home == place), rewards=rewards.filter(home == place)), None, cfg)
        for place in range(number)
    ]
    assert learned(pieces[::-1], cfg, None, added).equals(once)
    assert added.as_dict() == whole.as_dict()
