"""Roles of their own in a log: kept in the episode and shown, never an action, never a user's words, never trained."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flywheel.config import Config
from flywheel.models.chat import native_message
from flywheel.pipeline.build.run import build
from flywheel.pipeline.ingest.run import ingest_logs
from flywheel.store import Store

PRAISE = "thanks, that is perfect, exactly what I wanted"  # a user who said this would be content


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Twelve conversations in which a planner speaks before the agent, and praises it in the end."""
    project = tmp_path_factory.mktemp("speakers")
    rows = []
    for n in range(12):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "book", "arguments": json.dumps({"room": n})}}
        turns: list[dict[str, Any]] = [
            {"role": "user", "content": f"book room {n}"},
            {"role": "subtask_creator", "content": f"first find room {n}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": "booked"},
            {"role": "assistant", "content": "done"},
            {"role": "subtask_creator", "content": PRAISE},
        ]
        rows.append({"traj": turns, "task_id": n, "reward": n % 2, "trial": 0, "info": {}})
    (project / "runs.json").write_text(json.dumps(rows))
    store = Store(project / ".flywheel")
    store.create()
    config = Config()
    answer = ingest_logs(store, config, project, [project / "runs.json"], key=b"k")
    assert (answer.kept, answer.quarantined, answer.set_aside) == (12, {}, [])
    build(store, config, project)
    return store


def test_they_are_in_the_episode_under_their_name(store: Store) -> None:
    steps = store.table("steps", "episodes").collect().filter(index=0)
    seen = [json.loads(observation) for observation in steps["observation"]]
    assert all(("context", "subtask_creator") in [(m["role"], m.get("name")) for m in o] for o in seen)
    tails = store.table("episodes", "episodes").collect()["tail"]
    assert all(json.loads(tail)[-1]["content"] == PRAISE for tail in tails)


def test_they_act_for_nobody_and_praise_nobody(store: Store) -> None:
    episodes = store.table("episodes", "episodes").collect()
    assert episodes["n_steps"].to_list() == [2] * 12
    assert set(episodes["stop_reason"]) == {"answered"}
    votes = store.table("rewards", "rewards").collect()
    assert not set(votes["signal"]) & {"thanks", "praise", "adopted", "followup", "sentiment"}
    assert set(votes.filter(kind="outcome")["signal"]) == {"outcome"}


def test_they_are_never_in_what_is_trained(store: Store) -> None:
    examples = store.table("examples", "examples").collect()
    assert examples.height > 0
    assert not any("first find room" in completion for completion in examples["completion"])


def test_a_template_gets_them_as_input_with_their_name() -> None:
    message = {"role": "context", "name": "planner", "content": "go on"}
    assert native_message(message) == {"role": "user", "content": "[planner] go on"}
