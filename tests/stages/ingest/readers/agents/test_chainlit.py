"""Chainlit's data layer: steps of a thread, tools as calls, thumbs of the step that they are about."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel import Project
from flywheel.config import Config
from flywheel.extensions import BadRecordError, Sample
from flywheel.stages.ingest.readers.agents.chainlit import READER

STEPS: list[dict[str, Any]] = [
    {"id": "i0", "name": "on_chat_start", "type": "run", "input": "{}"},
    {"id": "i1", "name": "s@x", "type": "user_message", "output": "Where is order 7?"},
    {"id": "i2", "name": "on_message", "type": "run", "parentId": "i1", "input": "Where is order 7?"},
    {"id": "i3", "name": "find", "type": "tool", "parentId": "i2", "input": '{"order": 7}', "output": "Lima"},
    {"id": "i4", "name": "lookup", "type": "tool", "parentId": "i2", "input": "7", "output": "no", "isError": 1},
    {
        "id": "i5", "name": "qwen", "type": "llm", "parentId": "i2", "output": "In Lima.",
        "generation": '{"model": "qwen3-4b", "inputTokenCount": 10, "outputTokenCount": 4}',
    },
    {"id": "i6", "name": "Assistant", "type": "assistant_message", "parentId": "i2", "output": "In Lima."},
]  # fmt: skip
THREAD = {"id": "t1", "createdAt": "2026-11-29T11:49:17Z", "userId": "u1", "userIdentifier": "ann", "metadata": "{}"}


def steps() -> list[dict[str, Any]]:
    return [
        {"isError": 0, **step, "threadId": "t1", "createdAt": f"2026-11-29T11:49:{20 + n}Z"}
        for n, step in enumerate(STEPS)
    ]


def database(path: Path) -> None:
    made = sqlite3.connect(path)
    tables = {"steps": steps(), "threads": [THREAD], "feedbacks": [{"id": "f", "forId": "i6", "value": 0}]}
    for name, rows in tables.items():
        columns = sorted({column for row in rows for column in row})
        made.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        places = ", ".join("?" for _ in columns)
        made.executemany(f"INSERT INTO {name} VALUES ({places})", [[row.get(c) for c in columns] for row in rows])
    made.commit()
    made.close()


def test_a_database_of_chainlit_is_talks_with_calls_and_thumbs(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    database(tmp_path / "logs" / "chainlit.db")
    (tmp_path / "project").mkdir()
    project = Project(tmp_path / "project", config=Config())
    answer = project.ingest([tmp_path / "logs"])
    assert not answer.quarantined
    project.build()
    query = "SELECT conversation_id, n_steps, n_tool_calls, n_tool_errors, input_tokens, output_tokens FROM episodes"
    assert project.query(query).to_pylist() == [
        {"conversation_id": "t1", "n_steps": 3, "n_tool_calls": 2, "n_tool_errors": 1, "input_tokens": 10,
         "output_tokens": 4},
    ]  # fmt: skip
    thumbs = project.query("SELECT score FROM rewards WHERE signal = 'thumbs'").to_pylist()
    assert thumbs == [{"score": -1.0}]


def test_calls_keep_what_they_were_given() -> None:
    made = [event["payload"]["message"] for step in steps() for event in READER.read(step, 1)
            if event["kind"] == "model_call"]  # fmt: skip
    calls = [call["arguments"] for message in made for call in message.get("tool_calls", ())]
    assert calls == [{"order": 7}, {"input": "7"}]


def test_rows_of_chainlit_are_known_and_a_step_needs_its_thread() -> None:
    assert READER.sniff(Sample("steps", steps())) == 1.0
    assert READER.sniff(Sample("other", [{"id": "x", "type": "run", "createdAt": "2026-11-29"}])) == 0.0
    with pytest.raises(BadRecordError):
        list(READER.read({**steps()[1], "threadId": None}, 1))


def test_exported_steps_are_read_as_the_table_is(tmp_path: Path, take: Callable[..., Any]) -> None:
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps()))
    kinds = sorted(take().events["kind"])
    assert kinds == ["model_call"] * 3 + ["request"] * 2 + ["tool_result"] * 2
