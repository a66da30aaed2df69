"""Streams: texts, deltas of several shapes, calls in pieces; and what is no stream at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flywheel.reading.shapes import about_answer, answered, joined_chunks


def delta(**said: Any) -> dict[str, Any]:
    return {"id": "x1", "model": "m", "choices": [{"delta": said, "finish_reason": said.pop("reason", None)}]}


def call(index: int, **function: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "id": function.pop("id", None), "function": function}]}


def lc(**kwargs: Any) -> dict[str, Any]:
    return {"lc": 1, "id": ["langchain", "AIMessageChunk"], "kwargs": kwargs}


@pytest.mark.parametrize(
    "chunks",
    [
        ["He", "re."],
        [delta(role="assistant", content="He"), delta(content="re."), {"id": "x1", "choices": [], "usage": {}}],
        [json.dumps(delta(content=said)) for said in ("He", "re.")],
        [lc(content="He"), lc(content=[{"type": "text", "text": "re."}])],
    ],
)
def test_words_are_joined(chunks: list[Any]) -> None:
    assert answered(joined_chunks(chunks)) == [{"role": "assistant", "content": "Here."}]


def test_calls_come_in_pieces() -> None:
    chunks = [
        delta(**call(0, id="c1", name="find", arguments='{"n"')),
        delta(**call(1, id="c2", name="send", arguments="{}")),
        delta(**call(0, arguments=": 7}")),
        delta(reason="tool_calls"),
    ]
    joined = joined_chunks(chunks)
    (message,) = answered(joined)
    assert message["tool_calls"] == [
        {"id": "c1", "name": "find", "arguments": {"n": 7}},
        {"id": "c2", "name": "send", "arguments": {}},
    ]
    assert about_answer(joined) == {"model": "m", "response_id": "x1", "finish_reason": "tool_calls"}


def test_what_is_no_stream() -> None:
    assert joined_chunks([]) is None
    assert joined_chunks([{"role": "assistant", "content": "Here."}]) is None
    assert joined_chunks([1, None]) is None
