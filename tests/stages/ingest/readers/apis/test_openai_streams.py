"""Streamed Chat Completions: inside a pair, and chunk by chunk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import BadRecordError
from flywheel.reading.streams import assembled, stream_events
from flywheel.stages.ingest.readers.apis.openai import READER

ASK = {"messages": [{"role": "user", "content": "where is order 7?"}]}


def read(record: Any, line: int = 1) -> list[dict[str, Any]]:
    return list(READER.read(record, line))


def chunk(delta: dict[str, Any] | None, *, index: int = 0, **choice: Any) -> dict[str, Any]:
    told = [] if delta is None else [{"index": index, "delta": delta, "finish_reason": None, **choice}]
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1790850000, "model": "m", "choices": told}


def piece(index: int, arguments: str, **first: Any) -> dict[str, Any]:
    name = {"name": first.pop("name")} if "name" in first else {}
    return {"tool_calls": [{"index": index, **first, "function": {"arguments": arguments, **name}}]}


CHUNKS = [
    chunk({"role": "assistant", "content": "One "}),
    chunk({"content": "moment.", "reasoning_content": "Look"}),
    chunk({"reasoning_content": " it up."}),
    chunk(piece(0, "", id="call_7", name="get_order")),
    chunk(piece(1, '{"id":', id="call_8", name="get_order")),
    chunk(piece(0, '{"id":7}')),
    chunk(piece(1, " 8}"), token_ids=[5], logprobs={"content": [{"token": "a", "logprob": -0.5}]}),
    chunk({}, finish_reason="tool_calls", token_ids=[6], logprobs={"content": [{"token": "b", "logprob": -1}]}),
    {**chunk(None), "usage": {"prompt_tokens": 10, "completion_tokens": 4}},
]
SSE = "".join(f"data: {json.dumps(c)}\n\n" for c in CHUNKS) + "data: [DONE]\n\n"
MESSAGE = {
    "role": "assistant",
    "content": "One moment.",
    "reasoning": "Look it up.",
    "tool_calls": [{"id": f"call_{n}", "name": "get_order", "arguments": {"id": n}} for n in (7, 8)],
}


@pytest.mark.parametrize(
    "response",
    [
        SSE,
        SSE.replace("\n", "\r\n"),
        ": keep-alive\n\n" + SSE,
        SSE.replace("\n\n", "\n"),
        "\n".join(map(json.dumps, CHUNKS)),
        CHUNKS,
        [f"data: {json.dumps(c)}" for c in CHUNKS],
        [{"event": "message", "data": json.dumps(c)} for c in CHUNKS],
        json.dumps(CHUNKS),
        {"chunks": CHUNKS},
        {"events": SSE},
        {"status_code": 200, "body": SSE},
    ],
)
def test_a_streamed_answer_is_the_same_however_it_was_kept(response: Any) -> None:
    (call,) = read({"request": ASK, "response": response})
    assert call["payload"]["message"] == MESSAGE
    found = {k: v for k, v in call["payload"].items() if k not in {"message", "input"}}
    assert found == {
        "response_id": "c1",
        "finish_reason": "tool_calls",
        "input_tokens": 10,
        "output_tokens": 4,
        "completion_token_ids": [5, 6],
        "completion_logprobs": [-0.5, -1],
    }
    assert (call["model"], call["ts"].year) == ("m", 2026)


def test_chunks_beside_the_request() -> None:
    (call,) = read({"request": ASK, "chunks": CHUNKS})
    assert call["payload"]["message"] == MESSAGE
    (call,) = read({**ASK, "chunks": CHUNKS})
    assert call["payload"]["message"] == MESSAGE


def test_a_stream_without_an_end_is_partial() -> None:
    cut = SSE[: SSE.index(" 8}") + 2]
    (call,) = read({"request": ASK, "response": cut})
    assert call["payload"]["tags"] == ["partial"]
    made = call["payload"]["message"]["tool_calls"]
    assert made[0]["arguments"] == {"id": 7}
    assert (made[1]["arguments"], made[1]["arguments_raw"]) == (None, '{"id":')


def test_a_stream_that_said_nothing_is_a_failed_call() -> None:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, {"role": "assistant"}]
    for delta in deltas:
        (event,) = read({"request": ASK, "response": [chunk(delta)]})
        assert (event["kind"], event["payload"]["tags"]) == ("request", ["partial", "call_failed"])


def test_each_choice_is_put_together_for_itself() -> None:
    told = [
        chunk({"content": "a"}),
        chunk({"content": "x"}, index=1),
        chunk({"content": "b"}, finish_reason="stop"),
        chunk({"content": "y"}, index=1, finish_reason="length"),
    ]
    (call,) = read({"request": ASK, "response": told})
    assert call["payload"]["message"]["content"] == "ab"
    assert [c["content"] for c in call["payload"]["other_choices"]] == ["xy"]


def test_a_legacy_function_call_and_calls_without_an_index() -> None:
    legacy = [
        chunk({"function_call": {"name": "f", "arguments": '{"a"'}}),
        chunk({"function_call": {"arguments": ":1}"}}),
    ]
    (call,) = read({"request": ASK, "response": legacy})
    assert call["payload"]["message"]["tool_calls"] == [{"id": "", "name": "f", "arguments": {"a": 1}}]
    one = {"id": "1", "function": {"name": "f", "arguments": '{"a"'}}
    parts: list[dict[str, Any]] = [
        {"tool_calls": [one]},
        {"tool_calls": [{"function": {"arguments": ":1}"}}]},
        {"tool_calls": [{**one, "id": "2"}]},
    ]
    made = assembled([chunk(delta) for delta in parts])["choices"][0]["message"]["tool_calls"]
    assert [(c["id"], c["function"]["arguments"]) for c in made] == [("1", '{"a":1}'), ("2", '{"a"')]


def test_a_line_separator_in_a_text_ends_no_event() -> None:
    told = json.dumps(chunk({"content": "a\u2028b"}, finish_reason="stop"), ensure_ascii=False)
    (call,) = read({"request": ASK, "response": f"data: {told}\n\n"})
    assert call["payload"]["message"]["content"] == "a\u2028b"


@pytest.mark.parametrize("value", [None, 7, "plain words", {}, [], "data: {broken", "data: [DONE]", [7, None]])
def test_what_is_no_stream_has_no_events(value: Any) -> None:
    assert stream_events(value) == []


def test_chunks_that_are_records_are_pieces_of_their_response() -> None:
    events = [e for line, c in enumerate(CHUNKS, 1) for e in read(c, line)]
    assert {(e["conversation_id"], e["kind"], e["payload"]["fragment"]) for e in events} == {
        ("response:c1", "model_call", "delta")
    }
    assert [e["seq"] for e in events] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert events[3]["payload"]["message"]["tool_calls"] == [
        {"index": 0, "id": "call_7", "name": "get_order", "arguments_raw": ""}
    ]
    assert events[-1]["payload"]["input_tokens"] == 10
    (named,) = read({**CHUNKS[0], "session_id": "s1"})
    assert (named["conversation_id"], named["ids"]) == ("s1", ["response:c1"])


def test_a_chunk_that_adds_nothing_gives_nothing() -> None:
    assert read(chunk({"role": "assistant"})) == []
    assert read(chunk({"content": "x"}, index=1)) == []
    assert read({**CHUNKS[0], "id": None, "choices": []}) == []


def test_a_chunk_of_no_response_is_refused() -> None:
    with pytest.raises(BadRecordError, match="without the id of its response"):
        read({**CHUNKS[0], "id": None, "choices": [{"delta": {"content": "x"}}]})


def test_chunks_become_one_step(write: Callable[..., Path], take: Callable[..., Any]) -> None:
    taken = take(write("chunks.jsonl", CHUNKS))
    assert taken.adds_up()
    assert taken.quarantined.is_empty()
    _, steps = taken.built()
    assert [json.loads(action) for action in steps["action"]] == [MESSAGE]


def test_what_the_openai_client_gives(fixtures: Path, take: Callable[..., Any]) -> None:
    """One call four ways: whole, as a list of chunks, as the text that came over the wire, and chunk by chunk."""
    for name in ("chat_stream.jsonl", "chat_sse.jsonl", "chunks.jsonl"):
        taken = take(fixtures / "openai" / name, root=fixtures)
        assert set(taken.events["source_format"]) == {"openai"}
        assert taken.quarantined.is_empty()
        assert taken.adds_up()
        episodes, steps = taken.built()
        action = json.loads(steps["action"][0])
        assert (episodes.height, steps.height, action["content"]) == (1, 1, "One moment.")
        assert action["tool_calls"] == [{"id": "call_7", "name": "get_order", "arguments": {"id": 7}}]
        assert "partial" not in episodes["tags"][0]


def test_a_tool_loop_of_the_openai_client(fixtures: Path, take: Callable[..., Any]) -> None:
    taken = take(fixtures / "openai" / "chat.jsonl", root=fixtures)
    episodes, steps = taken.built()
    assert (episodes.height, episodes["stop_reason"][0], episodes["input_tokens"][0]) == (1, "answered", 20)
    assert [list(s) for s in steps["tool_status"]] == [["failed"], []]
    assert steps["resets_context"].to_list() == [False, False]
