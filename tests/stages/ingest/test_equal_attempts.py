"""Attempts that must not be taken for one, and calls that must not be taken for none, as in logs of benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel import Project

TALK = [{"role": "user", "content": "How many orders?"}, {"role": "assistant", "content": "21"}]


def project(folder: Path, files: dict[str, list[dict[str, Any]]]) -> Project:
    """Return a project that has read and built some files of JSON lines."""
    for name, records in files.items():
        path = folder / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    made = Project(folder)
    made.ingest([folder / "logs"])
    made.build()
    return made


def rows(made: Project, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    table = pl.from_arrow(made.query(query))
    assert isinstance(table, pl.DataFrame)
    return table.rows()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYWHEEL_KEY", "test")


def test_equal_words_of_two_models_or_runs_are_two_attempts(tmp_path: Path) -> None:
    runs: list[dict[str, Any]] = [{"model": "a"}, {"model": "b"}, {"model": "b", "run_id": "r1"}]
    records = [{"messages": TALK, "task_id": "t", **run} for run in (*runs, {"model": "b", "run_id": "r2"}, runs[0])]
    made = project(tmp_path, {"all.jsonl": records})
    assert rows(made, "select policy, count(*) from episodes group by 1 order by 1") == [("a", 1), ("b", 3)]


@pytest.mark.parametrize("written", ['{"command":"echo hello', '"<invoke>x</invoke>"', '["ls"]'])
def test_a_call_whose_arguments_are_no_object_is_read_as_written(tmp_path: Path, written: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "run_command", "arguments": written}}
    messages = [
        {"role": "user", "content": "Find the flag in the files."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "error: no object"},
        {"role": "assistant", "content": "I could not find it."},
    ]
    made = project(tmp_path, {"runs.jsonl": [{"session_id": "s", "model": "m", "messages": messages}]})
    (step, *_) = rows(made, "select tool_names, malformed from steps order by index")
    assert step == (["run_command"], True)


def test_older_runs_of_swe_agent_have_their_instances_and_verdicts(tmp_path: Path) -> None:
    """Version 0: the file is named like the instance, which stands nowhere in it; `results.json` is beside `trajs`."""
    history = [
        {"role": "system", "content": "You are an agent.", "agent": "primary"},
        {"role": "user", "content": "Here is a demonstration.", "is_demo": True, "agent": "demo"},
        {"role": "user", "content": "Solve the issue.", "agent": "primary"},
        {"role": "assistant", "content": "I look.", "action": "ls", "agent": "primary"},
    ]
    report = {"submitted_ids": ["o__p-1", "o__p-2"], "unresolved_ids": ["o__p-2"], "resolved": ["o__p-1"]}
    files: dict[str, list[dict[str, Any]]] = {}
    for run in ("run-a", "run-b"):
        files[f"{run}/results/results.json"] = [report]
        for n in (1, 2):
            seen = {"role": "user", "content": f"{n}.py of {run}", "agent": "primary"}
            record = {"environment": "swe_main", "trajectory": [], "history": [*history, seen]}
            files[f"{run}/trajs/o__p-{n}.traj"] = [record | {"info": {"exit_status": "submitted"}}]
    made = project(tmp_path, files)
    solved = "select episode_id, p_success > .5 as solved from labels where step is null"
    counted = "select policy, count(distinct e.task_id), sum(solved::int)::int from episodes e"
    found = rows(made, f"{counted} join ({solved}) using (episode_id) group by 1 order by 1")
    assert found == [("run-a", 2, 1), ("run-b", 2, 1)]
    assert rows(made, "select count(distinct task_id) from episodes") == [(2,)]


def test_files_of_one_task_in_the_folders_of_several_runs_are_several_chats(tmp_path: Path) -> None:
    tool = {"id": "c1", "type": "function", "function": {"name": "count", "arguments": "{}"}}
    files: dict[str, list[dict[str, Any]]] = {}
    for run in ("model-a/run-1", "model-a/run-2", "model-b/run-1"):
        chat: list[dict[str, Any]] = [
            TALK[0],
            {"role": "assistant", "content": f"I count for {run}.", "tool_calls": [tool]},
        ]
        result = {"role": "tool", "tool_call_id": "c1", "content": "21"}
        files[f"{run}/count-orders/messages.json"] = [
            *chat,
            result,
            {"role": "assistant", "content": f"21, says {run}."},
        ]
    made = project(tmp_path, files)
    assert rows(made, "select count(*), sum(n_steps)::int from episodes") == [(3, 6)]
