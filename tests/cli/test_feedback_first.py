"""Judgements that are exported before the spans they judge, as a user types it: the reward lies on the right step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.store import Store
from tests.projects import flywheel

TRACE = "7dbaeba682933bd2484f9fd16655bde5"
CALLS = ("1" * 16, "2" * 16)
ASKED = ({"role": "user", "content": "Where is order 7?"}, {"role": "user", "content": "When does it come?"})
SAID = ({"role": "assistant", "content": "On its way."}, {"role": "assistant", "content": "I do not know."})
HEARD = ([ASKED[0]], [ASKED[0], SAID[0], ASKED[1]])


def phoenix_span(n: int) -> dict[str, Any]:
    def told(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{f"message.{name}": value for name, value in message.items()} for message in messages]

    attributes = {"llm.input_messages": told(HEARD[n]), "llm.output_messages": told([SAID[n]]), "session.id": "conv-1"}
    return {
        "id": f"s{n}", "name": "chat", "context": {"trace_id": TRACE, "span_id": CALLS[n]}, "span_kind": "LLM",
        "parent_id": None, "start_time": f"2026-10-01T09:0{n}:00+00:00", "end_time": f"2026-10-01T09:0{n}:05+00:00",
        "status_code": "OK", "status_message": "", "attributes": attributes, "events": [],
    }  # fmt: skip


def phoenix_annotation() -> dict[str, Any]:
    return {
        "id": "A1", "span_id": CALLS[1], "name": "user_feedback", "annotator_kind": "HUMAN", "identifier": "",
        "result": {"score": 0, "label": "thumbs-down", "explanation": "no date"}, "metadata": {}, "source": "API",
        "created_at": "2026-10-01T09:05:00+00:00", "updated_at": "2026-10-01T09:06:00+00:00",
    }  # fmt: skip


def langfuse_observation(n: int) -> dict[str, Any]:
    return {
        "id": CALLS[n], "trace_id": TRACE, "type": "GENERATION", "name": "chat", "input": json.dumps(HEARD[n]),
        "output": json.dumps(SAID[n]), "start_time": f"2026-10-01 09:0{n}:00.000", "level": "DEFAULT",
        "end_time": f"2026-10-01 09:0{n}:05.000", "parent_observation_id": None, "provided_model_name": "m",
    }  # fmt: skip


def langfuse_score() -> dict[str, Any]:
    return {
        "id": "s1", "timestamp": "2026-10-01 09:05:00.000", "project_id": "p1", "environment": "production",
        "trace_id": TRACE, "observation_id": CALLS[1], "session_id": None, "dataset_run_id": None,
        "name": "user-feedback", "value": 0, "source": "API", "comment": "no date", "data_type": "BOOLEAN",
        "string_value": "False",
    }  # fmt: skip


EXPORTS = {
    "phoenix": ([phoenix_annotation()], [phoenix_span(0), phoenix_span(1)]),
    "langfuse": ([langfuse_score()], [langfuse_observation(0), langfuse_observation(1)]),
}


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


@pytest.mark.parametrize("system", EXPORTS)
def test_feedback_that_came_first_waits_for_its_step(system: str, tmp_path: Path) -> None:
    feedback, spans = EXPORTS[system]
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs" / "feedback.jsonl", feedback)
    first = json.loads(flywheel(tmp_path, "ingest", "--json").stdout)
    assert (first["kept"], first["quarantined"]) == (1, {})
    write(tmp_path / "logs" / "spans.jsonl", spans)
    second = json.loads(flywheel(tmp_path, "ingest", "--json").stdout)
    assert (second["read"], second["quarantined"]) == (2, {})
    flywheel(tmp_path, "build")
    store = Store(tmp_path / ".flywheel")
    steps = store.table("steps", "episodes").collect().sort("index")
    assert [json.loads(action)["content"] for action in steps["action"]] == [said["content"] for said in SAID]
    thumbs = store.table("rewards", "rewards").collect().filter(pl.col("signal") == "thumbs")
    assert thumbs.select("episode_id", "step", "score").rows() == [(steps["episode_id"][0], 1, -1.0)]
