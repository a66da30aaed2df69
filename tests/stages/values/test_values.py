"""What actions are worth: which attempts count where, what is left out, and worlds whose truth is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from flywheel.config import RewardsConfig
from flywheel.funnel import Funnel
from flywheel.stages.common.canonical import call_key
from flywheel.stages.credit.posterior import skills
from flywheel.stages.values.alternatives import build_alternatives, transplanted
from flywheel.stages.values.evidence import build_evidence
from flywheel.stages.values.fit import build_values
from flywheel.stages.values.keys import keyed
from flywheel.stages.values.model import Model, Sides, Values

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
Make = Callable[[list[dict[str, Any]]], Frames]
CFG = RewardsConfig()


@pytest.fixture
def frames(frames: Make) -> Make:
    """Give frames whose calls have the keys that a log's have."""

    def made(attempts: list[dict[str, Any]]) -> Frames:
        episodes, steps, returns = frames(attempts)
        calls = {
            (a["id"], n): call_key({"name": step["call"][0], "arguments": step["call"][1]})
            for a in attempts
            for n, step in enumerate(a["steps"])
            if "call" in step
        }
        keys = [calls.get(place) for place in steps.select("episode_id", "index").rows()]
        return episodes, steps.with_columns(action_key=pl.Series(keys, dtype=pl.String)), returns

    return made


def attempt(name: str, tool: str, p: float | None, **more: Any) -> dict[str, Any]:
    steps = [{"user": more.pop("user_says", "Cancel order 4711"), "call": (tool, {})}, {"say": "done"}]
    return {"id": name, "steps": steps, **({} if p is None else {"p": p}), **more}


def crowd(n: int, good: float = 0.95, bad: float = 0.05, **more: Any) -> list[dict[str, Any]]:
    """Attempts at a task each, of one intent, half of them with each tool."""
    return [
        attempt(f"e{i:03d}", "ask" if i % 2 else "act", good if i % 2 else bad, task=f"t{i}",
                user_says=f"Cancel order {4000 + i}", **more)
        for i in range(n)
    ]  # fmt: skip


def valued(made: Frames) -> Values:
    return Values.read(build_values(build_evidence(*made, CFG), Funnel()))


def test_tasks_of_one_intent_share_a_state_and_the_holdout_shares_none(frames: Make) -> None:
    rows = [*crowd(2), attempt("h", "act", 0.9, task="t9", split="holdout"), attempt("o", "act", 0.9, task="t8")]
    rows[3]["steps"][0]["user"] = "Where is my parcel?"
    keys = keyed(*frames(rows)[:2]).filter(pl.col("index") == 0).sort("episode_id")
    one, two, held, other = keys.rows(named=True)
    assert one["state_0"] != two["state_0"]
    assert one["state_1"] == two["state_1"]
    assert held["state_2"] != one["state_2"], "what held-out tasks show is not trained on"
    assert other["state_1"] != one["state_1"]
    assert other["state_2"] == one["state_2"]


def test_what_a_request_names_is_alike_in_all_requests_of_its_task(frames: Make) -> None:
    """A log that names no tasks: cancelling order 4003 for "cancel order 4003" is what all others did for theirs."""
    rows = crowd(40, rule="first_request")
    for n, row in enumerate(rows):
        row["task"], step = "t", row["steps"][0]
        step["call"] = (step["call"][0], {"order": 4000 + n})
    rows[2]["steps"][0]["call"] = ("act", {"order": 4999})
    episodes, steps, returns = frames(rows)
    first = keyed(episodes, steps).filter(pl.col("index") == 0).sort("episode_id")
    assert first["state_0"].n_unique() == 1
    assert first["action_0"].n_unique() == 3, "the wrong order is another action"
    values = Values.read(build_values(build_evidence(episodes, steps, returns, CFG), Funnel()))
    credit = skills(episodes, steps, returns, values, CFG).filter(pl.col("step") == 0).sort("episode_id")
    assert credit.filter(pl.col("level").is_null())["episode_id"].to_list() == ["e002"]
    better = credit["p_better"].to_list()
    assert min(better[1::2]) > 0.9
    assert max(better[::2]) < 0.1


def test_evidence_adds_up_over_any_partition(frames: Make) -> None:
    episodes, steps, returns = frames([*crowd(12, user="ann"), *crowd(0)])
    whole = build_evidence(episodes, steps, returns, CFG)
    halves = []
    for half in (0, 1):
        names = episodes.filter(pl.col("task_id").str.slice(1).cast(pl.Int64) % 2 == half)["episode_id"].implode()
        parts = [frame.filter(pl.col("episode_id").is_in(names)) for frame in (episodes, steps, returns)]
        halves.append(build_evidence(parts[0], parts[1], parts[2], CFG))
    assert build_values(whole, Funnel()).equals(build_values(pl.concat(halves[::-1]), Funnel()))


def test_sums_that_are_added_up_a_few_at_a_time_are_the_same(frames: Make) -> None:
    rows = crowd(60, good=0.8, bad=0.3)
    for n, row in enumerate(rows):
        row["task"], row["user"] = f"t{n // 4}", None if n % 7 == 0 else f"user{n // 9}"
        row["steps"][0]["user"] = f"{('Cancel', 'Return', 'Send')[n % 3]} order {4000 + n // 4}"
    evidence = build_evidence(*frames(rows), CFG)
    whole, few = Funnel(), Funnel()
    assert build_values(evidence, whole).equals(build_values(evidence, few, at_once=10))
    assert evidence.filter(pl.col("level") == 0).height > 10
    assert whole.as_dict() == few.as_dict()


def test_a_user_counts_once_in_an_action_however_many_tasks(frames: Make) -> None:
    cells = valued(frames(crowd(40, user="ann"))).cells[1]
    assert set(cells["voters"]) == {1}
    assert cells["n"].to_list() == pytest.approx([1.0] * cells.height)
    assert set(valued(frames(crowd(40))).cells[1]["voters"]) == {20}


def test_noise_is_of_single_outcomes_within_a_state(frames: Make) -> None:
    """Neither a user's mean nor what an action explains makes chance look smaller: outcomes are -.9 and .9."""
    for rows in (crowd(60), crowd(60, user="ann")):
        model = valued(frames(rows)).model
        assert model.widest == pytest.approx(0.81, abs=0.02)
    thirty, mixed, alike = np.array([30.0]), np.array([0.0]), np.array([27.0])
    chance = model.observed(Sides(thirty, mixed, thirty, mixed)).variance
    assert chance == pytest.approx(0.81 * 2 / 30, rel=0.05)
    assert model.observed(Sides(thirty, alike, thirty, -alike)).variance == pytest.approx(chance)
    assert model.observed(Sides(thirty, alike, thirty, alike)).variance < chance / 4, "this state always ends alike"


def test_tasks_that_always_end_alike_do_not_make_one_attempt_against_one_certain(frames: Make) -> None:
    """As of a deterministic agent: 60 tasks with two attempts that end alike, one with a success and a failure."""
    rows = [
        attempt(f"e{i:03d}", "ask" if i % 2 else "act", 0.03 if i // 2 % 3 else 0.97, task=f"t{i // 2}",
                user_says=f"Please see to matter {chr(97 + i // 52)}{chr(97 + i // 2 % 26)}")
        for i in range(120)
    ]  # fmt: skip
    rows += [
        attempt(name, name, p, task="t", user_says="Cancel my order") for name, p in (("think", 0.97), ("count", 0.03))
    ]
    model = valued(frames(rows)).model
    one = Sides(*(np.array([x]) for x in (1.0, 0.94, 1.0, -0.94)))
    assert model.posterior(model.combined({0: one})[0]).above[0] < 0.6


def test_what_holds_in_other_intents_counts_as_much_as_what_holds_here_at_the_most(frames: Make) -> None:
    """A hundred intents, two attempts each: a single one shows little, all together that one tool is better."""
    rng = np.random.default_rng(2)
    rows = []
    for i in range(200):
        tools = rng.choice(["ask", "act"], 12)
        said: list[dict[str, Any]] = [{"call": (tool, {})} for tool in tools]
        said[0]["user"] = f"Please see to matter {chr(97 + i // 52)}{chr(97 + i // 2 % 26)}"
        rows.append({"id": f"e{i:03d}", "task": f"t{i // 2}", "p": 0.97 if (tools == "ask").mean() > 0.5 else 0.03,
                     "steps": [*said, {"say": "done"}]})  # fmt: skip
    model = valued(frames(rows)).model
    assert 0 < model.slope <= 1
    one = Sides(*(np.array([x]) for x in (1.0, 0.94, 1.0, -0.94)))
    elsewhere = Sides(*(np.array([x]) for x in (120.0, 60.0, 120.0, -60.0)))
    alone, together = (
        model.posterior(model.combined(sides)[0]).above[0] for sides in ({0: one}, {0: one, 2: elsewhere})
    )
    assert together > alone


def test_few_coarse_states_show_nothing_about_other_intents(frames: Make) -> None:
    rows = [
        attempt(f"e{i:03d}", "ask" if i % 2 else "act", 0.97 if i % 2 else 0.03, task=f"t{i // 2}",
                user_says=f"Please see to matter {chr(97 + i // 52)}{chr(97 + i // 2 % 26)}")
        for i in range(160)
    ]  # fmt: skip
    assert valued(frames(rows)).model.slope == 0


def test_a_step_is_judged_without_its_own_attempt(frames: Make) -> None:
    made = frames([*crowd(24), attempt("one", "third", 0.05, task="t99", user_says="Cancel order 7")])
    found = skills(*made, valued(made), CFG).filter(pl.col("step") == 0)
    by_tool = dict(found.select("episode_id", "skill").iter_rows())
    assert by_tool["e001"] > 0.3
    assert by_tool["e000"] < -0.3
    assert by_tool["one"] == 0.0, "its own failure is no evidence against its step"
    turned = frames([{**row, "p": 0.95} if row["id"] == "e000" else row for row in crowd(24)])
    assert skills(*turned, valued(turned), CFG).filter(pl.col("episode_id") == "e000")["skill"][0] < -0.3


def test_an_interval_holds_the_mean_and_shrinks_with_attempts(frames: Make) -> None:
    widths = []
    for n in (16, 120):
        made = frames(crowd(n, 0.9, 0.6))
        row = skills(*made, valued(made), CFG).filter(pl.col("step") == 0).row(0, named=True)
        assert row["low"] <= row["skill"] <= row["high"]
        widths.append(row["high"] - row["low"])
    assert widths[1] < widths[0] or widths[0] == 0


def test_unknown_and_immature_outcomes_are_no_evidence(frames: Make) -> None:
    episodes, steps, returns = frames([attempt("a", "act", None), attempt("b", "act", 0.9, task="u")])
    immature = returns.with_columns(provisional=pl.lit(value=True))
    assert build_evidence(episodes, steps, immature, CFG).is_empty()
    assert set(build_evidence(episodes, steps, returns, CFG)["sample_episode"]) == {"b"}


def test_values_of_no_attempts_are_nothing(frames: Make) -> None:
    empty = valued(frames([]))
    assert empty.model.prior.none > 0.5
    assert empty.cells[1].is_empty()


@pytest.mark.parametrize("effect", [0.0, 0.7])
def test_a_world_without_effects_is_not_believed_and_one_with_is(frames: Make, effect: float) -> None:
    rng = np.random.default_rng(5)
    rows = crowd(160)
    for i, row in enumerate(rows):
        row["p"] = 0.97 if rng.random() < (0.9 if i % 2 else 0.9 - effect) else 0.03
    made = frames(rows)
    found = skills(*made, valued(made), CFG).filter(pl.col("step") == 0)
    sure = np.maximum(found["p_better"].to_numpy(), found["p_worse"].to_numpy())
    assert (sure.max() < 0.5) if effect == 0 else (sure.min() > 0.9)


def test_an_action_is_put_into_another_attempt_with_that_ones_own_names(frames: Make) -> None:
    rows = crowd(12)
    for i, row in enumerate(rows):
        row["steps"][0]["call"] = ("cancel" if i % 2 else "refund", {"order": str(4000 + i), "why": "asked"})
    made = frames(rows)
    values = build_values(build_evidence(*made, CFG), Funnel())
    row = build_alternatives(made[0], made[1], values).row(0, named=True)
    message = transplanted(row["message"], row["slots"], "Cancel order 77")
    assert message is not None
    assert message["tool_calls"][0]["arguments"] == {"order": "77", "why": "asked"}
    assert transplanted(row["message"], row["slots"], "Cancel order 77 and 78") is None
    assert transplanted(row["message"], row["slots"], None) is None


def test_a_users_other_attempts_do_not_turn_an_outcome_against_its_own_steps(frames: Make) -> None:
    """Three users with many tasks, of two intents: a step's skill is the same whether its own attempt succeeded."""

    def world(p: float) -> Frames:
        rows = [
            attempt(f"e{i:03d}", "ask" if i % 5 % 2 else "act", 0.9 if i % 5 % 2 or i % 7 == 0 else 0.1, task=f"t{i}",
                    user=("ann", "bob", "cid")[i % 3], user_says="Cancel order 40" if i % 4 else "Where is my parcel?")
            for i in range(60)
        ]  # fmt: skip
        return frames([rows[0] | {"p": p}, *rows[1:]])

    model = Model(slope=0.8, scatter=0.05, prior=valued(frames(crowd(160))).model.prior)
    found = []
    for p in (0.95, 0.05):
        made = world(p)
        of_all = skills(*made, valued(made)._replace(model=model), CFG)
        found.append(of_all.filter((pl.col("episode_id") == "e000") & (pl.col("step") == 0)).row(0))
    succeeded, failed = found
    assert succeeded[2:] == pytest.approx(failed[2:], abs=1e-9)
    assert succeeded[2] < -0.05
