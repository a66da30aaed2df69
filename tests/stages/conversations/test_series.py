"""A chat that a program writes again as it grows, a file each time, is one conversation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel import Project
from flywheel.config import Config

if TYPE_CHECKING:
    import polars as pl

Message = dict[str, Any]


def act(n: int) -> list[Message]:
    call = {"id": f"c{n}", "type": "function", "function": {"name": "grep", "arguments": json.dumps({"for": f"x{n}"})}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": f"found {n}"},
    ]


def talk(acts: int, prompt: str = "You mend faults.", request: str = "Mend it.") -> list[Message]:
    asked = [{"role": "system", "content": prompt}, {"role": "user", "content": request}]
    return [*asked, *(message for n in range(acts) for message in act(n))]


def episodes(folder: Path, files: dict[str, list[Message]]) -> pl.DataFrame:
    for name, messages in files.items():
        (folder / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "logs" / name).write_text(json.dumps(messages))
    (folder / "project").mkdir()
    project = Project(folder / "project", config=Config())
    project.ingest([folder / "logs"])
    project.build()
    table = project.store.table("episodes", "episodes").select("conversation_id", "policy", "n_steps", "n_tool_calls")
    return table.sort("conversation_id").collect()


def test_the_last_file_is_the_conversation(tmp_path: Path) -> None:
    runs = {f"run_{run}/round_{n}.json": talk(n, f"Round {n}.", f"Mend {run}.") for run in "ab" for n in (1, 2, 3)}
    built = episodes(tmp_path, runs)
    assert [name.split("/")[-3:-1] for name in built["conversation_id"]] == [["run_a", "round_3"], ["run_b", "round_3"]]
    assert built.select("policy", "n_steps", "n_tool_calls").unique().rows() == [("unknown", 3, 3)]


@pytest.mark.parametrize(
    "files",
    [
        {"round_1.json": talk(1), "round_2.json": talk(2)},  # one equal answer may be chance
        {"round_1.json": talk(2), "round_2.json": [*talk(1), *act(7), *act(8)]},  # two ways from one call on
        {"round_1.json": talk(2), "round_2.json": talk(2)},  # two equal attempts
        {"one/round_1.json": talk(2), "other/round_2.json": talk(3)},  # of two folders
        {"attempt_1.json": talk(2), "attempt_2.json": talk(3)},  # which ended earlier
        {"first.json": talk(2), "last.json": talk(3)},  # of no series
    ],
)
def test_other_files_are_conversations_of_their_own(tmp_path: Path, files: dict[str, list[Message]]) -> None:
    assert episodes(tmp_path, files).height == len(files)


def test_two_equal_answers_are_a_series(tmp_path: Path) -> None:
    built = episodes(tmp_path, {"round_1.json": talk(2), "round_2.json": talk(4)})
    assert built["n_steps"].to_list() == [4]


def stream(thread: str, *commands: str) -> list[dict[str, Any]]:
    items = [{"id": f"item_{n}", "type": "command_execution", "command": one, "aggregated_output": "x", "exit_code": 0}
             for n, one in enumerate(commands)]  # fmt: skip
    items.append({"id": f"item_{len(items)}", "type": "agent_message", "text": f"I ran {len(commands)}."})
    return [{"type": "thread.started", "thread_id": thread}, *({"type": "item.completed", "item": i} for i in items)]


def test_copies_of_a_stream_are_one_and_what_resumes_its_thread_is_another(tmp_path: Path) -> None:
    first = stream("t-1", "ls", "cat a")
    built = episodes(tmp_path, {"raw.json": first, "session.json": first, "resumed.json": stream("t-1", "rm a")})
    assert sorted(built["n_tool_calls"]) == [1, 2]
