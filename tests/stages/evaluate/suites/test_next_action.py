"""The built-in suites on policies that replay the log."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.config import EvalConfig, ModelConfig
from flywheel.contracts import polars_schema
from flywheel.extensions import CaseScore, Holdout
from flywheel.records import PreferencePair, canonical_json
from flywheel.stages.datasets.context import contexts
from flywheel.stages.evaluate.suites.next_action import length_slopes, next_action, preference
from hypothesis import given
from hypothesis import strategies as st
from tests.policies import LogReplay

Frames = Callable[[Sequence[dict[str, Any]]], tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]]

CFG = EvalConfig(max_new_tokens=8, batch_size=2)
TOOLS = canonical_json(
    [
        {"type": "function", "function": {"name": name, "parameters": {"properties": {arg: {"type": "string"}}}}}
        for name, arg in (("find", "q"), ("book", "id"))
    ]
)
ATTEMPTS: list[dict[str, Any]] = [
    {
        "id": f"{task}-{kind}",
        "task": task,
        "p": 0.9 if kind == "good" else 0.1,
        "split": "holdout",
        "tools": TOOLS,
        "steps": [
            {"user": f"please {task}", "call": ("find", {"q": task if kind == "good" else "nothing"})},
            {"call": ("book", {"id": f"{task}-1"})},
        ],
    }
    for task in ("t1", "t2", "t3")
    for kind in ("good", "bad")
]


def pair(number: int, *, chosen: str, rejected: str, split: str = "holdout") -> dict[str, Any]:
    return {
        "pair_id": f"p{number}",
        "task_id": f"t{number}",
        "split": split,
        "state_key": "s",
        "prompt": canonical_json([{"role": "user", "content": "hi"}]),
        "tools": None,
        "chosen": canonical_json([{"role": "assistant", "content": chosen}]),
        "rejected": canonical_json([{"role": "assistant", "content": rejected}]),
        "margin": 1.0,
        "p_better": 0.9,
        "weight": 1.0,
        "builder": "sibling",
        "chosen_episode": "a",
        "chosen_step": 0,
        "rejected_episode": "b",
        "rejected_step": 0,
        "same_prefix_until": 0,
    }


@pytest.fixture
def holdout(frames: Frames) -> Holdout:
    """Three tasks with a good and a bad attempt each, and four pairs."""
    episodes, steps, returns = frames(ATTEMPTS)
    pairs = [
        pair(1, chosen="yes", rejected="not"),
        pair(2, chosen="a long and careful answer", rejected="no"),
        pair(3, chosen="no", rejected="a long and careless answer"),
        pair(4, chosen="x", rejected="y", split="train"),
    ]
    return Holdout(episodes, steps, returns, pl.DataFrame(pairs, schema=polars_schema(PreferencePair)), Path())


def replay(holdout: Holdout, kind: str, **options: Any) -> LogReplay:
    """Replay the attempts of one kind, in the contexts of the good ones."""
    import json

    found = contexts(holdout.steps)
    actions = {
        found[episode.replace(kind, "good"), index].prompt: json.loads(context.completion)[0]
        for (episode, index), context in found.items()
        if episode.endswith(kind)
    }
    return LogReplay(actions, **options)


def values(scores: Sequence[CaseScore], metric: str) -> list[float]:
    return [s.score for s in scores if s.metric == metric]


def test_replaying_good_attempts_scores_full_marks(holdout: Holdout) -> None:
    scores = next_action(replay(holdout, "good"), holdout, CFG)

    assert {s.metric for s in scores} == {"next_action_good", "next_tool", "well_formed"}
    assert {s.score for s in scores} == {1.0}
    assert len(values(scores, "next_action_good")) == 6  # two states of three tasks
    assert {s.slices["tool"] for s in scores} == {"find", "book"}
    assert {s.metric for s in scores if s.primary} == {"next_action_good"}


def test_replaying_bad_attempts_scores_what_they_share_with_good_ones(holdout: Holdout) -> None:
    scores = next_action(replay(holdout, "bad"), holdout, CFG)

    by_tool = {(s.slices["tool"], s.metric): s.score for s in scores}
    assert by_tool[("find", "next_action_good")] == 0.0  # the wrong query
    assert by_tool[("find", "next_tool")] == 1.0
    assert by_tool[("book", "next_action_good")] == 1.0
    assert set(values(scores, "well_formed")) == {1.0}


def test_saying_nothing_useful_scores_nothing(holdout: Holdout) -> None:
    scores = next_action(LogReplay({}), holdout, CFG)

    assert {s.score for s in scores} == {0.0}


def test_a_case_beyond_the_window_is_missing_with_a_reason_and_never_asked(holdout: Holdout) -> None:
    whole = replay(holdout, "good")
    lengths = sorted(whole.lengths([s.prompt for s in _cases(holdout)], [None] * 6))
    small = replay(holdout, "good", window=lengths[2] + CFG.max_new_tokens)

    scores = next_action(small, holdout, CFG)

    missing = [s for s in scores if math.isnan(s.score)]
    assert small.asked == 3
    assert len(scores) == 18
    assert len(missing) == 9
    assert {s.slices["missing"] for s in missing} == {"longer than the model's window"}


def _cases(holdout: Holdout) -> list[Any]:
    from flywheel.stages.evaluate.cases import state_cases

    return state_cases(holdout, 100)


def test_the_cap_holds_for_both_suites(holdout: Holdout) -> None:
    cfg = EvalConfig(max_cases=2)

    assert len(values(next_action(LogReplay({}), holdout, cfg), "next_tool")) == 2
    assert len(values(preference(LogReplay({}), holdout, cfg), "preference_accuracy")) == 2


def test_preference_sums_log_probabilities_and_controls_for_length(holdout: Holdout) -> None:
    likes = {canonical_json({"role": "assistant", "content": "yes"}): -1.0}

    scores = preference(LogReplay({}, likes=likes), holdout, CFG)

    accuracy = {s.case_id: s.score for s in scores if s.metric == "preference_accuracy"}
    assert accuracy == {"p1": 1.0, "p2": 0.0, "p3": 1.0}  # p2: the longer side loses by its length alone
    assert [s.case_id for s in scores if s.metric == "preference_like_length"] == ["p1"]
    assert [s.case_id for s in scores if s.primary] == ["p1", "p2", "p3"]


def test_a_tie_is_no_preference(holdout: Holdout) -> None:
    likes = {canonical_json({"role": "assistant", "content": word}): -1.0 for word in ("yes", "not")}

    scores = preference(LogReplay({}, likes=likes), holdout, CFG)

    assert next(s.score for s in scores if s.case_id == "p1") == 0.0


def test_a_pair_beyond_the_window_is_missing(holdout: Holdout) -> None:
    scores = preference(LogReplay({}, window=80), holdout, CFG)

    found = {s.case_id: s.slices.get("missing") for s in scores if s.metric == "preference_accuracy"}
    assert found == {"p1": None, "p2": "longer than the model's window", "p3": "longer than the model's window"}


def test_an_empty_holdout_has_no_cases(holdout: Holdout) -> None:
    empty = Holdout(
        holdout.episodes.clear(), holdout.steps.clear(), holdout.returns.clear(), holdout.pairs.clear(), Path()
    )

    assert next_action(LogReplay({}, window=5), empty, CFG) == []
    assert preference(LogReplay({}, window=5), empty, CFG) == []


@pytest.mark.e2e  # `make demo` scores it too
@pytest.mark.model
def test_the_embedded_model_is_scored_the_same_twice(holdout: Holdout) -> None:
    from flywheel.models.policy import PolicySet

    cfg = EvalConfig(max_cases=1, max_new_tokens=4)
    policy = PolicySet(ModelConfig(dtype="float32"), cfg).policy(None, "base")

    scores = next_action(policy, holdout, cfg), preference(policy, holdout, cfg)
    again = next_action(policy, holdout, cfg), preference(policy, holdout, cfg)

    assert scores == again
    assert not any(math.isnan(s.score) for part in scores for s in part)


def test_a_small_window_leaves_long_cases_out(holdout: Holdout, tiny_model: Path) -> None:
    from flywheel.models.policy import PolicySet

    owner = PolicySet(ModelConfig(base=str(tiny_model), dtype="float32"), CFG)
    policy = owner.policy(None, "base")
    lengths = policy.lengths([c.prompt for c in _cases(holdout)], [c.tools for c in _cases(holdout)])
    owner.window = min(lengths) + CFG.max_new_tokens

    scores = values(next_action(policy, holdout, CFG), "well_formed")

    assert sum(not math.isnan(s) for s in scores) == lengths.count(min(lengths))


def test_what_length_is_worth_is_learned_from_the_other_pairs() -> None:
    # d = -1, -2, -3.5 nats at l = 1, 2, 3 tokens: b of the first from the others = (-4 - 10.5) / (4 + 9)
    assert length_slopes([-1.0, -2.0, -3.5], [1, 2, 3]) == pytest.approx([-14.5 / 13, -11.5 / 10, -5 / 5])
    assert length_slopes([0.5, 0.5], [0, 3]) == [pytest.approx(1.5 / 9), 0.0]
    assert length_slopes([], []) == []


@given(st.lists(st.tuples(st.floats(-50, 50), st.integers(-30, 30)), min_size=1, max_size=8))
def test_naming_the_sides_the_other_way_round_changes_no_slope(pairs: list[tuple[float, int]]) -> None:
    ahead, longer = [d for d, _ in pairs], [n for _, n in pairs]
    turned = length_slopes([-d for d in ahead], [-n for n in longer])
    assert turned == pytest.approx(length_slopes(ahead, longer))


def test_a_policy_that_only_counts_characters_prefers_nothing_once_length_is_controlled(holdout: Holdout) -> None:
    longer = [pair(i, chosen="a" * (5 * i), rejected="b" * (7 * i)) for i in range(1, 7)]
    pairs = pl.DataFrame(longer, schema=polars_schema(PreferencePair))
    scores = preference(LogReplay({}), dataclasses.replace(holdout, pairs=pairs), CFG)

    assert set(values(scores, "preference_accuracy")) == {1.0}  # the shorter one, always
    assert set(values(scores, "preference_length_controlled")) == {0.0}


def test_the_newest_third_of_the_pairs_is_a_slice(holdout: Holdout) -> None:
    days = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 7)]
    ids = [f"e{day}" for day in range(1, 7)]
    episodes = pl.concat([holdout.episodes.head(1)] * 6).with_columns(
        episode_id=pl.Series(ids), started=pl.Series(days)
    )
    rows = [
        {**pair(i, chosen="yes", rejected="no"), "chosen_episode": episode} for i, episode in enumerate(ids, start=1)
    ]
    pairs = pl.DataFrame(rows, schema=polars_schema(PreferencePair))
    scores = preference(LogReplay({}), dataclasses.replace(holdout, episodes=episodes, pairs=pairs), CFG)

    newest = {s.case_id for s in scores if s.slices.get("time") == "newest third"}
    assert newest == {"p5", "p6"}
