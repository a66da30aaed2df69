"""Episodes written by hand: a few words a step give the frames that the stages after `returns` read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pytest
from flywheel.contracts import polars_schema
from flywheel.records import TABLES, canonical_json, content_id

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
_BELIEVED = {"p_better", "p_worse", "risk", "level"}


def _action(turn: dict[str, Any], number: int, name: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant"}
    if "say" in turn:
        message["content"] = turn["say"]
    if "call" in turn:
        tool, arguments = turn["call"]
        call = {"id": f"{name}-{number}", "name": tool, "arguments": arguments}
        message["tool_calls"] = [call | ({"arguments_raw": "{oops}"} if arguments is None else {})]
    return message


def _result(turn: dict[str, Any], number: int, name: str) -> list[dict[str, Any]]:
    if "call" not in turn:
        return []
    status, content = turn.get("status", "ok"), turn.get("result", "done")
    return [
        {
            "role": "tool",
            "content": content,
            "tool_call_id": f"{name}-{number}",
            "name": turn["call"][0],
            "status": status,
        }
    ]


def _steps(attempt: dict[str, Any]) -> list[dict[str, Any]]:
    name, task = attempt["id"], attempt.get("task", "t")
    rows: list[dict[str, Any]] = []
    made: list[Any] = []
    observation: list[dict[str, Any]] = [{"role": "system", "content": attempt.get("system", "Help.")}]
    for number, turn in enumerate(attempt["steps"]):
        if "user" in turn:
            observation.append({"role": "user", "content": turn["user"]})
        called = [[turn["call"][0], turn["call"][1]]] if "call" in turn else []
        rows.append(
            {
                "episode_id": name,
                "task_id": task,
                "index": number,
                "observation": canonical_json(observation),
                "resets_context": turn.get("resets", False),
                "action": canonical_json(_action(turn, number, name)),
                "state_key": content_id(task, made),
                "action_key": content_id(called) if called else None,
                "tool_names": [c[0] for c in called],
                "tool_status": [turn.get("status", "ok")] if called else [],
                "malformed": "call" in turn and turn["call"][1] is None,
                "event_id": content_id(name, number),
                "result_event_ids": [],
                "served": canonical_json(turn["served"]) if "served" in turn else None,
            }
        )
        made = made + called
        observation = _result(turn, number, name)
    return rows


def _episode(attempt: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any]:
    calls = [step for step in steps if step["action_key"]]
    return {
        "episode_id": attempt["id"],
        "conversation_id": attempt["id"],
        "task_id": attempt.get("task", "t"),
        "task_rule": attempt.get("rule", "task_key"),
        "policy": attempt.get("policy", "p"),
        "user": attempt.get("user"),
        "stop_reason": "answered",
        "split": attempt.get("split", "train"),
        "n_steps": len(steps),
        "n_tool_calls": len(calls),
        "n_tool_errors": sum("failed" in step["tool_status"] for step in calls),
        "tools": attempt.get("tools"),
        "tail": "[]",
        "tags": [],
        "source_format": "hand",
    }


def _return(attempt: dict[str, Any], step: int | None, value: float) -> dict[str, Any]:
    p = attempt.get("p", 0.5)
    return {
        "episode_id": attempt["id"],
        "task_id": attempt.get("task", "t"),
        "step": step,
        "p_success": p,
        "cost": 0.0,
        "risk": attempt.get("risk", 0.0) if step is None else 0.0,
        "value": value,
        "luck": 0.0,
        "weight": abs(2 * p - 1),
        "known": "p" in attempt,
        "n_support": 1,
        "level": None if step is None else 0,
    }


def _frames(attempts: Sequence[dict[str, Any]]) -> Frames:
    rows: dict[str, list[dict[str, Any]]] = {"episodes": [], "steps": [], "returns": []}
    for attempt in attempts:
        steps = _steps(attempt)
        rows["steps"] += steps
        rows["episodes"].append(_episode(attempt, steps))
        rows["returns"].append(_return(attempt, None, 2 * attempt.get("p", 0.5) - 1))
        rows["returns"] += [
            _return(attempt, n, turn.get("credit", 0.0)) | {name: turn[name] for name in _BELIEVED & turn.keys()}
            for n, turn in enumerate(attempt["steps"])
            if turn.keys() & {"credit", *_BELIEVED}
        ]
    tables = [pl.DataFrame(rows[name], schema=polars_schema(TABLES[name])) for name in ("episodes", "steps", "returns")]
    return tables[0], tables[1], tables[2]


@pytest.fixture
def frames() -> Callable[[Sequence[dict[str, Any]]], Frames]:
    """Give a function from attempts to the frames (episodes, steps, returns).

    An attempt is {"id", "steps": [turn, ...], "task", "p" (left out: unknown), "split", "policy", "tools", "system",
    "user", "risk", "rule"}; a turn is {"user", "say", "call": (tool, arguments), "status", "result", "credit",
    "p_better", "p_worse", "risk", "resets", "served"}.
    """
    return _frames
