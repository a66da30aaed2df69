"""The baseline that is shown successes: which ones, and where they are in its prompt."""

from __future__ import annotations

from typing import Any

import polars as pl
from flywheel.contracts import polars_schema
from flywheel.records import Example, canonical_json
from flywheel.stages.evaluate.few_shot import FewShot, demonstrations
from tests.policies import LogReplay

YES = {"role": "assistant", "content": "yes"}


def example(task: str, number: int, **rest: Any) -> dict[str, Any]:
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"{task} " * number}]
    return {
        "example_id": f"{task}{number}", "task_id": task, "split": "train", "state_key": "s",
        "prompt": canonical_json(prompt), "tools": None, "completion": canonical_json([YES]), "label": True,
        "p_success": 0.9, "weight": 1.0, "episode_id": f"e{task}", "step": 0, "policy": None, "users": [], **rest,
    }  # fmt: skip


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    schema = polars_schema(Example)
    return pl.DataFrame([{k: row.get(k) for k in schema} for row in rows], schema=schema)


def test_only_successes_of_training_tasks_are_shown_one_a_task_and_without_system_messages() -> None:
    rows = [example(task, n) for task in "abcd" for n in (1, 3)]
    rows += [example("x", 1, split="holdout"), example("y", 1, label=False), example("z", 1, p_success=0.6)]
    rows += [example("long", 5_000)]

    shown = demonstrations(table(*rows), 10, seed=0)
    asked = [s["messages"][0]["content"] for s in shown]

    assert sorted(asked) == ["a a a ", "b b b ", "c c c ", "d d d "]  # the longest that is short enough
    assert all(s["messages"][-1] == YES for s in shown)
    assert demonstrations(table(*reversed(rows)), 10, seed=0) == shown
    assert demonstrations(table(*rows), 2, seed=0) == shown[:2]
    assert len({canonical_json(demonstrations(table(*rows), 10, seed=s)) for s in range(5)}) > 1
    assert demonstrations(table(), 3, seed=0) == []


def test_examples_stand_between_the_system_message_and_the_prompt() -> None:
    system, user = {"role": "system", "content": "s"}, {"role": "user", "content": "q"}
    shown = [{"messages": [{"role": "user", "content": "p"}, YES]}]
    whole = [system, *shown[0]["messages"], user]
    policy = LogReplay({canonical_json(whole): YES}, likes={canonical_json(YES): -2.0}, window=500)
    shots = FewShot(policy, "base + 1 example", shown)

    assert shots.generate([[system, user]], [None], max_new_tokens=4)[0].message == YES
    assert shots.log_prob([[system, user]], [None], [YES])[0][0] == -2.0
    assert shots.lengths([[user]], [None]) == policy.lengths([[*shown[0]["messages"], user]], [None])
    assert (shots.window, shots.name) == (500, "base + 1 example")
    assert shots.sha256 != policy.sha256
