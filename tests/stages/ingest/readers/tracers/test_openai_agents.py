"""The OpenAI Agents SDK: spans of both APIs become one conversation, with calls, results, tokens and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import BadRecordError
from flywheel.stages.ingest.readers.tracers.openai_agents import READER
from tests.stages.ingest.formats import samples

GENERATIONS, RESPONSES = (sample.records for sample in samples()["openai_agents"])


def test_a_trace_is_one_conversation_of_its_group(write: Callable[..., Path], take: Callable[..., Any]) -> None:
    episodes, steps = take(write("spans.jsonl", GENERATIONS[::-1])).built()
    row = episodes.row(0, named=True)
    assert (row["conversation_id"], row["model"], row["input_tokens"], row["output_tokens"]) == (
        "thread-1", "gpt-5", 50, 11,
    )  # fmt: skip
    assert steps["tool_names"].to_list() == [["get_order"], []]
    assert json.loads(steps["action"][1]) == {"content": "It arrives on Monday.", "role": "assistant"}


def test_a_response_has_its_instructions_and_one_that_is_only_named_no_content() -> None:
    _, call, _, bare = (list(READER.read(record, 1)) for record in RESPONSES)
    assert [m["role"] for m in call[0]["payload"]["input"]] == ["system", "user"]
    assert call[0]["payload"]["response_id"] == "resp_1"
    assert bare[0]["payload"]["tags"] == ["content_missing"]
    assert bare[0]["payload"]["response_id"] == "resp_2"


def test_a_tool_that_raised_failed() -> None:
    span = {**GENERATIONS[2], "error": {"message": "Error running tool", "data": {"tool_name": "get_order"}}}
    _, result = READER.read(span, 1)
    assert result["payload"]["status"] == "failed"


def test_a_span_of_nothing_is_refused() -> None:
    with pytest.raises(BadRecordError, match="neither an id of its own nor of a trace"):
        list(READER.read({**GENERATIONS[1], "id": None, "trace_id": None}, 1))
