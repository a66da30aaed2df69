"""Events of LangChain's astream_events, as langgraph 1.2.24 wrote them (`tests/fixtures/produce`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import BadRecordError
from flywheel.stages.ingest.readers.tracers.langchain_events import READER
from tests.stages.ingest.conftest import COUNTING

Take = Callable[..., Any]
FIXTURES = Path(__file__).parents[4] / "fixtures" / "langchain_events"


@pytest.mark.parametrize("name", ["objects", "classes"])
def test_models_and_tools_are_read_once_with_what_they_were_given(name: str, take: Take) -> None:
    taken = take(FIXTURES / f"{name}.jsonl", cfg=COUNTING)
    assert taken.quarantined.is_empty()
    assert set(taken.events["conversation_id"]) == {"t1"}
    rows = sorted(zip(taken.events["seq"], taken.events["kind"], taken.payloads(), strict=True), key=lambda row: row[0])
    assert [kind for _, kind, _ in rows] == ["model_call", "tool_call", "tool_result", "model_call"]
    first, _, gave, last = (payload for *_, payload in rows)
    assert [(m["role"], m["content"]) for m in first["input"]] == [
        ("system", "You sell parts."), ("user", "What does part 2 cost?")
    ]  # fmt: skip
    assert first["message"]["tool_calls"] == [{"id": "c1", "name": "look", "arguments": {"n": 2}}]
    assert (gave["content"], gave["status"]) == ("part 2 costs 20", "ok")
    assert (last["message"]["content"], last["input_tokens"], last["output_tokens"]) == ("It costs 20.", 20, 5)
    assert set(taken.events.filter(taken.events["kind"] == "model_call")["model"]) == {"scripted-1"}


def test_messages_as_texts_are_refused_with_what_to_do(tmp_path: Path, take: Take) -> None:
    lines = (FIXTURES / "objects.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    for event in events:
        event["data"] = {key: str(held) for key, held in event["data"].items()}
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    refused = take(tmp_path / "texts.jsonl", cfg=COUNTING).quarantined
    assert any("model_dump" in detail for detail in refused["detail"])


def test_a_tool_that_raised_has_failed(tmp_path: Path, take: Take) -> None:
    event = {"event": "on_tool_error", "name": "look", "run_id": "r2", "parent_ids": ["r1"],
             "data": {"input": {"n": 3}, "error": "ValueError('no such part')"}}  # fmt: skip
    (tmp_path / "events.jsonl").write_text(json.dumps(event) + "\n", encoding="utf-8")
    taken = take(tmp_path / "events.jsonl", cfg=COUNTING)
    assert [payload.get("status") for payload in taken.payloads() if "status" in payload] == ["failed"]
    assert set(taken.events["conversation_id"]) == {"r1"}


def test_an_event_without_data_gives_nothing() -> None:
    for data in ("text", None, [1]):
        assert list(READER.read({"event": "on_chain_end", "data": data, "run_id": "r"}, 1)) == []


def test_an_event_of_no_run_is_refused() -> None:
    with pytest.raises(BadRecordError):
        list(READER.read({"event": "on_tool_end", "data": {}, "run_id": None, "parent_ids": [{}]}, 1))
