"""Broken bytes of every format: no crash, no hang, and every record accounted for."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import zstandard
from flywheel.extensions import BadRecordError, Reader, Sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "u é"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a":1}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "Error: x"},
]
BLOCKS = [
    {"role": "user", "content": "u"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": "x"}]},
]


def attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def answered(**response: Any) -> dict[str, Any]:
    return {"id": "r", "model": "m", **response}


MODEL_SPAN = {
    "traceId": "a" * 32,
    "spanId": "b" * 16,
    "name": "chat m",
    "startTimeUnixNano": "1790850000000000000",
    "attributes": [
        attribute("gen_ai.operation.name", "chat"),
        attribute("gen_ai.input.messages", json.dumps(CHAT[:2])),
        attribute("gen_ai.output.messages", '[{"role":"assistant","parts":[{"type":"text","content":"a"}]}]'),
    ],
}
TOOL_SPAN = {
    "traceId": "a" * 32,
    "spanId": "c" * 16,
    "status": {"code": 2},
    "attributes": [attribute("gen_ai.operation.name", "execute_tool"), attribute("gen_ai.tool.name", "f")],
}
RESOURCE = {"attributes": [attribute("service.version", "r")]}
PAIR = {"timestamp": 1790850000, "request": {"model": "m", "messages": CHAT}}
CHOICES = [{"message": {"role": "assistant", "content": "a"}}]
TEXT = [{"type": "text", "text": "a"}]
DELTA = {"content": "a", "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a":1}'}}]}
CHUNK = answered(object="chat.completion.chunk", choices=[{"index": 0, "delta": DELTA, "finish_reason": "stop"}])
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_text", "text": "u"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'},
    {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "q"}},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
]
RESPONSE_EVENTS = [
    {"type": "response.output_item.done", "output_index": 0, "item": ITEMS[2]},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "a"},
    {"type": "response.completed", "response": answered(object="response", output=ITEMS[1:])},
]
MESSAGE_EVENTS = [
    {"type": "message_start", "message": answered(type="message", content=[], usage={"input_tokens": 1})},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    },
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
]

SEEDS: dict[str, list[Any]] = {
    "native": [
        {"conversation_id": "c", "kind": "request", "ts": "2026-10-01T09:00:00Z", "payload": {"messages": CHAT[:2]}},
        {"conversation_id": "c", "kind": "model_call", "seq": 2, "payload": {"message": CHAT[2], "input": CHAT[:2]}},
        {"conversation_id": "c", "kind": "feedback", "payload": {"name": "thumbs", "value": 1}},
    ],
    "openai": [
        PAIR | {"response": answered(choices=CHOICES, usage={"prompt_tokens": 1})},
        {"messages": CHAT, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        {"messages": [{**m, "weight": 0} for m in CHAT[:3]] + [{"role": "assistant", "content": "a", "weight": 1}]},
        PAIR | {"response": [CHUNK, {**CHUNK, "choices": [], "usage": {"prompt_tokens": 1}}]},
        PAIR | {"response": f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]"},
        CHUNK,
        {"request": {"prompt": ["p", "q"]}, "response": answered(choices=[{"text": "a"}, {"text": "b"}])},
        {"input": {"messages": CHAT}, "preferred_output": CHOICES, "non_preferred_output": [{"content": "b"}]},
    ],
    "responses": [
        {"request": {"instructions": "s", "input": ITEMS}, "response": answered(object="response", output=ITEMS[1:])},
        {"request": {"input": "u", "previous_response_id": "p"}, "response": {"events": RESPONSE_EVENTS}},
        RESPONSE_EVENTS[-1],
    ],
    "batch": [
        {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": CHAT}},
        {"custom_id": "a", "response": {"status_code": 200, "body": answered(choices=CHOICES)}, "error": None},
        {"custom_id": "a", "params": {"system": "s", "messages": BLOCKS}},
        {"custom_id": "a", "result": {"type": "succeeded", "message": answered(type="message", content=TEXT)}},
    ],
    "helicone": [
        {
            "request_id": "q",
            "request_created_at": "2026-10-01T09:00:00Z",
            "response_created_at": "2026-10-01T09:00:01Z",
            "response_status": 200,
            "request_properties": {"Helicone-Session-Id": "s"},
            "feedback_rating": True,
            "request_body": {"messages": CHAT},
            "response_body": answered(choices=CHOICES),
            "scores": {"a": 1},
        }
    ],
    "litellm": [
        {
            "litellm_call_id": "l",
            "trace_id": "t",
            "call_type": "acompletion",
            "messages": CHAT,
            "startTime": 1790850000.0,
            "model_parameters": {"tools": []},
            "response": answered(choices=CHOICES),
            "metadata": {"requester_metadata": {}},
        },
        {
            "request_id": "r",
            "call_type": "aresponses",
            "api_key": "",
            "startTime": "2026-10-01 09:00:00",
            "proxy_server_request": json.dumps({"input": ITEMS}),
            "response": json.dumps({"object": "response", "output": ITEMS}),
        },
    ],
    "anthropic": [
        {
            "request": {"system": "s", "messages": BLOCKS},
            "response": answered(type="message", content=TEXT, usage={"input_tokens": 1}),
        },
        {"request": {"system": "s", "messages": BLOCKS}, "response": MESSAGE_EVENTS},
    ],
    "otel": [{"resourceSpans": [{"resource": RESOURCE, "scopeSpans": [{"spans": [MODEL_SPAN, TOOL_SPAN]}]}]}],
    "tau_bench": [
        {"task_id": 0, "trial": 0, "reward": 1.0, "traj": CHAT, "info": {"task": {"actions": [{"name": "cancel"}]}}}
    ],
}

ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1e308,
        2**70,
        "",
        "x",
        "\ud83d",
        "{",
        "[1]",
        '{"a":1}',
        [],
        [[]],
        [None],
        {},
        {"": {}},
        {"a": [1]},
    ]
)
EDITS = st.lists(
    st.tuples(st.integers(0, 10**6), ODD, st.sampled_from(["set", "drop", "wrap"])), min_size=1, max_size=4
)
LAX = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        found.append((value, key))
        places(inner, found)
    return found


def edited(record: Any, edits: list[tuple[int, Any, str]]) -> Any:
    copy = json.loads(json.dumps(record))
    for where, odd, how in edits:
        spots = places(copy, [])
        if not spots:
            break
        container, key = spots[where % len(spots)]
        if how == "drop":
            del container[key]
        else:
            container[key] = deepcopy(odd) if how == "set" else [container[key]]
    return copy


@pytest.mark.parametrize("name", SEEDS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_built_in_reader_only_ever_refuses(name: str, data: st.DataObject, readers: Mapping[str, Reader]) -> None:
    record = edited(data.draw(st.sampled_from(SEEDS[name])), data.draw(EDITS))
    for reader in readers.values():
        assert 0 <= reader.sniff(Sample("x", [record])) <= 1
    with suppress(BadRecordError):
        assert all(e["conversation_id"] and e["kind"] for e in readers[name].read(record, 1))


PACKS: dict[str, Callable[[list[Any]], bytes]] = {
    "lines": lambda records: "".join(json.dumps(r) + "\n" for r in records).encode(),
    "array": lambda records: json.dumps(records).encode(),
    "document": lambda records: json.dumps(records[0], indent=1).encode(),
    "gzip": lambda records: gzip.compress(PACKS["lines"](records), mtime=0),
    "zstd": lambda records: zstandard.compress(PACKS["lines"](records)),
}
MUTATIONS = st.lists(
    st.tuples(
        st.integers(0, 10**6), st.sampled_from(["flip", "cut", "insert", "double"]), st.binary(min_size=1, max_size=3)
    ),
    min_size=1,
    max_size=4,
)


def mutated(content: bytes, mutations: list[tuple[int, str, bytes]]) -> bytes:
    for where, how, odd in mutations:
        at = where % (len(content) + 1)
        if how == "flip":
            content = content[:at] + odd + content[at + len(odd) :]
        elif how == "cut":
            content = content[:at]
        elif how == "insert":
            content = content[:at] + odd + content[at:]
        else:
            content += content[at:]
    return content


@pytest.mark.parametrize("pack", PACKS)
@LAX
@given(data=st.data())
def test_mutated_files_are_read_and_add_up(
    pack: str, data: st.DataObject, tmp_path: Path, take: Callable[..., Any]
) -> None:
    records = SEEDS[data.draw(st.sampled_from(sorted(SEEDS)))]
    content = mutated(PACKS[pack](records * 3), data.draw(MUTATIONS))
    (tmp_path / "x").write_bytes(content)
    taken = take(tmp_path / "x")
    assert taken.adds_up()
    assert (taken.read == 0) <= (content.strip(b"\0 \t\r\n\xef\xbb\xbf[],") == b"")


@LAX
@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_and_add_up(content: bytes, tmp_path: Path, take: Callable[..., Any]) -> None:
    (tmp_path / "x").write_bytes(content)
    assert take(tmp_path / "x").adds_up()
