"""Pairs across tasks: the action of another task makes sense here, with what was seen here, or there is no pair."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pytest
from flywheel.config import PairsConfig, RewardsConfig
from flywheel.contracts import polars_schema
from flywheel.funnel import Funnel
from flywheel.records import PreferencePair
from flywheel.stages.common.canonical import call_key
from flywheel.stages.datasets.pairs import build_pairs, sibling
from flywheel.stages.datasets.pairs.believed import Shown
from flywheel.stages.values.alternatives import build_alternatives
from flywheel.stages.values.evidence import build_evidence
from flywheel.stages.values.fit import build_values
from flywheel.stages.values.model import Values

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
Make = Callable[[list[dict[str, Any]]], Frames]
REWARDS = RewardsConfig()


def mined(
    frames: Make, bad: Callable[[str], dict[str, Any]], looked: Sequence[str] = (), policies: Sequence[str] = ("p",)
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Mine 24 tasks of one intent with one attempt each; half of them do `bad` and fail.

    With `looked` they look first, and see the one text (who fails) or the other. With two `policies` the first is that
    of those who fail.
    """
    rows, calls = list[dict[str, Any]](), dict[tuple[str, int], str]()
    for n in range(24):
        order, good = str(4000 + n), n % 2
        call = ("refund", {"order": order}) if good else ("cancel", bad(order))
        steps: list[dict[str, Any]] = [{"call": call}, {"say": "done"}]
        if looked:
            steps = [{"call": ("look", {"order": order}), "result": f"{order}: {looked[good]}"}, *steps]
        steps[0]["user"] = f"Give me my money back for order {order}"
        for at, step in enumerate(steps[:-1]):
            calls[f"e{n:02}", at] = call_key({"name": step["call"][0], "arguments": step["call"][1]})
        rows.append({"id": f"e{n:02}", "task": f"t{n}", "p": 0.97 if good else 0.03, "steps": steps})
    episodes, steps_, returns = frames(rows)
    acted = [policies[int(name[1:]) % 2 % len(policies)] for name in episodes["episode_id"]]
    episodes = episodes.with_columns(policy=pl.Series(acted))
    keys = [calls.get(place) for place in steps_.select("episode_id", "index").rows()]
    steps_ = steps_.with_columns(action_key=pl.Series(keys, dtype=pl.String))
    table = build_values(build_evidence(episodes, steps_, returns, REWARDS), Funnel())
    shown = Shown(Values.read(table), build_alternatives(episodes, steps_, table), REWARDS)
    funnel = Funnel()
    pairs = build_pairs(episodes, steps_, returns, PairsConfig(), {"none": _nothing}, funnel, shown)
    funnel.check("pairs")
    return pairs.to_dicts(), funnel.as_dict()


def _nothing(episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, cfg: PairsConfig) -> pl.DataFrame:
    del episodes, steps, returns, cfg
    return pl.DataFrame(schema=polars_schema(PreferencePair))


def test_the_other_action_has_this_requests_ids(frames: Make) -> None:
    pairs, counts = mined(frames, lambda order: {"order": order})
    assert counts["kept"] == len(pairs) > 0
    for pair in pairs:
        order = json.loads(pair["prompt"])[-1]["content"].rsplit(" ", 1)[1]
        sides = [json.loads(pair[side])[0]["tool_calls"][0] for side in ("chosen", "rejected")]
        assert [(call["name"], call["arguments"]) for call in sides] == [
            ("refund", {"order": order}), ("cancel", {"order": order}),
        ]  # fmt: skip


@pytest.mark.parametrize("other", [{"account": "ACC-77120"}, {"name": "Maria Lopez"}])
def test_what_only_the_other_task_showed_makes_no_pair(frames: Make, other: dict[str, Any]) -> None:
    """Failed attempts (even) named it themselves; put beside the successes (odd), it would be a stranger's."""
    pairs, counts = mined(frames, lambda order: {"order": order, **other})
    assert {int(pair["chosen_episode"][1:]) % 2 for pair in pairs} == {0}
    assert counts["dropped: pooled: other context"] == 12


@pytest.mark.parametrize(
    ("looked", "some"), [(("paid 12", "paid 15"), True), (("paid 12", "sent, it cannot be cancelled"), False)]
)
def test_what_tools_had_shown_decides_where_an_action_makes_sense(
    frames: Make, looked: tuple[str, str], *, some: bool
) -> None:
    pairs, _ = mined(frames, lambda order: {"order": order}, looked)
    assert bool(pairs) == some


def test_what_the_better_policy_happens_to_do_is_not_preferred_for_it(frames: Make) -> None:
    """Each of two policies always does the same: why the one succeeds is not known."""
    pairs, _ = mined(frames, lambda order: {"order": order}, policies=("weak", "strong"))
    assert not pairs


@pytest.mark.parametrize(("policies", "some"), [(("one",), True), (("weak", "strong"), False)])
def test_nor_where_attempts_at_one_task_meet(frames: Make, policies: tuple[str, ...], *, some: bool) -> None:
    rows = []
    for n in range(24):
        steps = [
            {"user": "Give me my money back", "call": ("look", {}), "result": "paid"},
            {"call": (("refund", "cancel")[n % 2 == 0], {"order": "7"})},
            {"say": "done"},
        ]
        rows.append({"id": f"e{n:02}", "task": "t", "p": 0.97 if n % 2 else 0.03, "steps": steps,
                     "policy": policies[n % 2 % len(policies)]})  # fmt: skip
    episodes, steps_, returns = frames(rows)
    table = build_values(build_evidence(episodes, steps_, returns, REWARDS), Funnel())
    shown = Shown(Values.read(table), build_alternatives(episodes, steps_, table), REWARDS)
    pairs = build_pairs(episodes, steps_, returns, PairsConfig(), {"sibling": sibling}, Funnel(), shown)
    assert bool(pairs.height) == some
