"""Replay success on hand-made turns: what the log knows, what it does not, and what that is worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.config import EvalConfig, ReplayConfig
from flywheel.contracts import polars_schema
from flywheel.extensions import CaseScore, Holdout
from flywheel.records import TABLES, canonical_json
from flywheel.replay import START, call_text, next_state
from flywheel.stages.evaluate.suites.replay import replay
from tests.policies import LogReplay

CFG = EvalConfig(max_new_tokens=8, max_cases=10)
DONE = {"role": "assistant", "content": "Done."}
UP = next_state(START, call_text("move", {"to": "up"}))
DOWN = next_state(START, call_text("move", {"to": "down"}))


def turn(name: str, *, split: str = "holdout", n_calls: int = 1) -> dict[str, Any]:
    return {
        "scenario_id": name, "task_id": f"task {name}", "split": split, "turn": 1, "state": START, "episode_id": "e",
        "step": 0, "prompt": canonical_json([{"role": "user", "content": f"Move me, {name}."}]), "tools": None,
        "judged_by": "state", "n_calls": n_calls, "n_attempts": 4, "states_E": [UP, DOWN], "answers_E": ["", ""],
        "rewards_E": [0.8, -0.6], "successes_E": [0.9, 0.2], "counts_E": [2, 2], "episodes_E": [["a"], ["b"]],
    }  # fmt: skip


def fixture(name: str, to: str) -> dict[str, Any]:
    return {
        "fixture_id": f"{name} {to}", "task_id": f"task {name}", "split": "holdout", "state": START, "tool": "move",
        "arguments": canonical_json({"to": to}), "effect": "changes", "result": "moved", "status": "ok",
        "n_attempts": 2, "n_agree": 2, "episodes": ["a"], "event_ids": [],
    }  # fmt: skip


def holdout(turns: list[dict[str, Any]], **rest: Any) -> Holdout:
    frames = {table: pl.DataFrame(schema=polars_schema(row)) for table, row in TABLES.items()}
    known = [fixture(t["scenario_id"], to) for t in turns for to in ("up", "down")]
    return Holdout(
        frames["episodes"], frames["steps"], frames["returns"], frames["pairs"], Path(),
        scenarios=pl.DataFrame(turns, schema=polars_schema(TABLES["scenarios"])),
        fixtures=pl.DataFrame(known, schema=polars_schema(TABLES["fixtures"])),
        replay=ReplayConfig(), **rest,
    )  # fmt: skip


def acting(*does: tuple[str, dict[str, Any] | None]) -> LogReplay:
    """A policy that moves once in each named turn, and then says that it is done."""
    actions: dict[str, dict[str, Any]] = {}
    for name, arguments in does:
        prompt: list[dict[str, Any]] = [{"role": "user", "content": f"Move me, {name}."}]
        call = {"id": "call00000", "name": "move", "arguments": arguments}
        actions[canonical_json(prompt)] = {"role": "assistant", "tool_calls": [{**call, "id": ""}]}
        result = {"role": "tool", "tool_call_id": "call00000", "name": "move", "content": "moved"}
        actions[canonical_json([*prompt, {"role": "assistant", "tool_calls": [call]}, result])] = DONE
    return LogReplay(actions)


def values(scores: list[CaseScore], metric: str) -> dict[str, float]:
    return {s.case_id: s.score for s in scores if s.metric == metric}


def test_an_attempt_is_worth_what_the_attempts_were_that_ended_like_it() -> None:
    turns = holdout([turn(name) for name in ("good", "bad", "new call", "silent", "broken")])
    policy = acting(("good", {"to": "up"}), ("bad", {"to": "down"}), ("new call", {"to": "out"}), ("broken", None))

    scores = replay(policy, turns, CFG)

    worst = {"good": 0.9, "bad": 0.2, "new call": 0.0, "silent": 0.0, "broken": 0.0}
    assert values(scores, "replay_success") == pytest.approx(worst)
    assert values(scores, "success_matched") == pytest.approx({"good": 0.9, "bad": 0.2})
    for metric, case in (("missed_call", "new call"), ("missed_end", "silent"), ("malformed", "broken")):
        assert [name for name, value in values(scores, metric).items() if value] == [case]
    assert {s.metric for s in scores if not s.unit} == {"replay_success"}
    assert {s.task_id for s in scores} == {f"task {t}" for t in worst}


def test_turns_of_other_splits_and_without_calls_are_no_cases_and_known_ones_come_last() -> None:
    turns = [turn("a"), turn("b"), turn("train", split="train"), turn("chat", n_calls=0)]
    every = replay(LogReplay({}), holdout(turns), CFG)
    assert values(every, "replay_success") == {"a": 0.0, "b": 0.0}

    one = CFG.model_copy(update={"replay_cases": 1})
    for known, left in (("a", "b"), ("b", "a")):
        scores = replay(LogReplay({}), holdout(turns, known=frozenset({f"task {known}"})), one)
        assert list(values(scores, "replay_success")) == [left]


def test_a_conversation_beyond_the_window_is_over_budget() -> None:
    policy = acting(("a", {"to": "up"}))
    policy.window = len(json.dumps([{"role": "user", "content": "Move me, a."}])) + 20
    scores = replay(policy, holdout([turn("a")]), CFG)

    assert values(scores, "over_budget") == {"a": 1.0}
    assert policy.asked == 1


def test_without_scenarios_there_is_no_case() -> None:
    assert replay(LogReplay({}), holdout([]), CFG) == []
