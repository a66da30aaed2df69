"""InterCode results: actions as calls, thoughts, flags that say nothing, the model in the file's name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl
import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.benchmarks.intercode import READER


def attempt(actions: list[str], seen: list[str], valid: list[Any], reward: float = 0.5, **more: Any) -> dict[str, Any]:
    thoughts = {"thoughts": more.pop("thoughts")} if "thoughts" in more else {}
    turns = {"actions": actions, "observations": seen, "rewards": [reward], "valid_action": valid, **thoughts}
    return {
        "environment": "ic_bash", "dataset": "./data/nl2bash/nl2bash_fs_1.json", "task_id": 4, "query": "List files.",
        "turn_history": turns, "summary": {"max_reward": reward, "turns_taken": 1, "turns_max": 10},
    } | more  # fmt: skip


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_actions_are_calls_with_their_results_and_a_graded_outcome() -> None:
    events = read({"0": attempt(["ls", "lss"], ["a\n", "lss: not found"], [True, False])})
    assert [e["kind"] for e in events] == [
        "request", "model_call", "tool_result", "model_call", "tool_result", "outcome",
    ]  # fmt: skip
    calls = [e["payload"]["message"]["tool_calls"][0] for e in events if e["kind"] == "model_call"]
    assert [(c["name"], c["arguments"]) for c in calls] == [("bash", {"command": "ls"}), ("bash", {"command": "lss"})]
    assert [(e["tool_name"], e["payload"]["status"]) for e in events if e["kind"] == "tool_result"] == [
        ("bash", "ok"),
        ("bash", "failed"),
    ]
    assert events[-1]["payload"] == {"name": "reward", "value": 0.5, "scale": [0, 1], "source": "recorded"}
    assert {(e["conversation_id"], e["task_key"]) for e in events} == {
        ("intercode/bash/nl2bash_fs_1/0", "intercode/bash/nl2bash_fs_1/4")
    }


def test_thoughts_stay_and_what_is_no_command_is_only_said() -> None:
    record = attempt(
        ["execute[ls [ab]]", "ls", "submit"],
        ["a", "Invalid action", "a"],
        [True, False, True],
        thoughts=["1", "2", "3"],
    )
    made = [e["payload"]["message"] for e in read({"0": record}) if e["kind"] == "model_call"]
    assert [m["content"] for m in made] == ["1", "2\nls", "3"]
    assert made[0]["tool_calls"][0]["arguments"] == {"command": "ls [ab]"}
    assert "tool_calls" not in made[1]
    assert (made[2]["tool_calls"][0]["name"], made[2]["tool_calls"][0]["arguments"]) == ("submit", {})


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        ("{'output': '3', 'error': ''}", "ok"),
        ("Error executing action: invalid syntax", "failed"),
        ("Test case did not pass. Please try again.", "unknown"),
    ],
)
def test_the_flag_of_python_runs_says_nothing(seen: str, status: str) -> None:
    record = attempt(["x = 3"], [seen], [False], environment="ic_python")
    events = read({"7": record})
    assert events[1]["payload"]["message"]["tool_calls"][0]["arguments"] == {"code": "x = 3"}
    assert (events[2]["tool_name"], events[2]["payload"]["status"]) == ("python", status)


def test_what_a_provider_blocked_is_no_action() -> None:
    events = read({"0": attempt(["ls", "blocked"], ["a"], [True])})
    assert [e["kind"] for e in events] == ["request", "model_call", "tool_result", "outcome"]
    assert events[0]["payload"]["tags"] == ["blocked_by_provider"]


@pytest.mark.parametrize(
    ("path", "model", "policy"),
    [
        ("bash/qwen/ic_bash_multiturn_qwen-3_10_turns_fs_1.json.gz", "qwen-3", "qwen-3/multiturn"),
        ("bash/qwen/ic_bash_react_10_turns_fs_1.json", "qwen", "qwen/react"),
        ("bash/qwen/other.json", "qwen", "qwen"),
    ],
)
def test_the_model_stands_in_the_path(path: str, model: str, policy: str) -> None:
    found = READER.from_path(PurePosixPath(path))
    assert (found["model"], found["policy"]) == (model, policy)
    assert found["scope"] == "qwen/" + path.rsplit("/", maxsplit=1)[-1].split(".", maxsplit=1)[0]


def test_detection_and_refusal(tmp_path: Path, take: Callable[..., Any]) -> None:
    run = {"0": attempt(["ls"], ["a"], [True]), "1": attempt(["ls"], ["a"], [True], task_id=5)}
    assert READER.sniff(Sample("run.json", [run])) == 1
    assert READER.sniff(Sample("run.json", [{"0": {"query": "x"}}])) == 0
    others: list[Any] = [[], {}, {"0": {"query": "x"}}]
    for other in others:
        with pytest.raises(BadRecordError):
            read(other)
    (tmp_path / "ic_bash_multiturn_qwen_10_turns_fs_1.json").write_text(json.dumps(run, indent=1), encoding="utf-8")
    taken = take()
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (1, 0, True)
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert (episodes.height, set(episodes["policy"])) == (2, {"qwen/multiturn"})
    assert steps["tool_status"].to_list() == [["ok"], ["ok"]]


@pytest.mark.e2e
def test_the_real_attempts_have_their_known_counts(real: Callable[[str], Any]) -> None:
    taken = real("intercode")
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (35, 0, True)
    events = taken.events
    assert events.select(pl.col("conversation_id", "task_key", "policy", "model").n_unique()).row(0) == (
        1778, 319, 8, 7,
    )  # fmt: skip
    won = pl.col("payload").str.json_path_match("$.value").cast(pl.Float64) >= 1
    outcomes = events.filter(pl.col("kind") == "outcome").with_columns(won=won)
    tasks = outcomes.group_by("task_key").agg(pl.col("won").sum(), n=pl.len())
    assert (outcomes.height, outcomes["won"].sum()) == (1778, 600)
    assert tasks.filter((pl.col("won") > 0) & (pl.col("won") < pl.col("n"))).height == 153
