"""Batch files: what was sent and what came back, joined by custom ids that count within a folder only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from flywheel.extensions import BadRecordError, Sample
from flywheel.stages.ingest.readers.apis.batch import READER

TURNS = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": "Where is order 7?"},
]
TOOLS = [{"type": "function", "function": {"name": "get_order", "parameters": {"type": "object"}}}]
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "On Monday."}}
CHAT = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1790850000, "model": "m", "choices": [CHOICE]}
CONTENT = [{"type": "text", "text": "On Monday."}]
CLAUDE = {"id": "msg_1", "type": "message", "role": "assistant", "content": CONTENT, "stop_reason": "end_turn"}
ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "On Monday."}]}
RESPONSE = {"id": "resp_1", "object": "response", "status": "completed", "output": [ITEM], "created_at": 1790850000}
SENT = {"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions"}
INPUT = SENT | {"body": {"model": "m", "messages": TURNS, "tools": TOOLS}}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def output(body: Any, code: int = 200, custom_id: str = "request-1") -> dict[str, Any]:
    response = {"status_code": code, "request_id": "q1", "body": body}
    return {"id": "batch_req_1", "custom_id": custom_id, "response": response, "error": None}


def test_an_input_line_is_what_was_asked() -> None:
    (event,) = read(INPUT)
    assert (event["kind"], event["conversation_id"], event["model"], event["ts"]) == (
        "request",
        "batch/request-1",
        "m",
        None,
    )
    assert event["payload"] == {"messages": TURNS, "tools": TOOLS}


@pytest.mark.parametrize(
    ("body", "response_id"), [(CHAT, "chatcmpl-1"), (RESPONSE, "resp_1"), (json.dumps(CHAT), "chatcmpl-1")]
)
def test_an_output_line_is_the_answer(body: Any, response_id: str) -> None:
    (event,) = read(output(body))
    assert (event["kind"], event["conversation_id"]) == ("model_call", "batch/request-1")
    assert event["payload"]["message"] == {"role": "assistant", "content": "On Monday."}
    assert f"response:{response_id}" in event["ids"] or event["payload"]["response_id"] == response_id
    assert "input" not in event["payload"]


def test_the_lines_of_anthropic() -> None:
    params = {"model": "c", "max_tokens": 9, "system": "Be kind.", "messages": TURNS[1:]}
    (asked,) = read({"custom_id": "a", "params": params})
    assert asked["payload"] == {"messages": TURNS}
    (told,) = read({"custom_id": "a", "result": {"type": "succeeded", "message": CLAUDE}})
    assert told["payload"]["message"]["content"] == "On Monday."
    assert asked["conversation_id"] == told["conversation_id"] == "batch/a"


@pytest.mark.parametrize(
    "line",
    [
        output({"error": {"message": "no such model"}}, 400),
        {"custom_id": "request-1", "response": None, "error": {"code": "batch_expired", "message": "late"}},
        {"custom_id": "request-1", "result": {"type": "errored", "error": {"type": "invalid_request"}}},
        {"custom_id": "request-1", "result": {"type": "expired"}},
        {"custom_id": "request-1", "result": {"type": "canceled"}},
    ],
)
def test_an_error_line_is_a_call_that_failed(line: dict[str, Any]) -> None:
    (event,) = read(line)
    assert (event["conversation_id"], event["kind"]) == ("batch/request-1", "request")
    assert event["payload"] == {"messages": [], "tags": ["call_failed"]}


def test_other_endpoints_give_nothing() -> None:
    assert read({**SENT, "url": "/v1/embeddings", "body": {"input": "text", "model": "e"}}) == []
    assert read(output({"object": "list", "data": [{"embedding": [0.5]}]})) == []


def test_what_has_no_custom_id_is_refused() -> None:
    others: list[Any] = [[], {}, {"custom_id": None}]
    for record in others:
        with pytest.raises(BadRecordError):
            read(record)


def test_detection() -> None:
    lines = [INPUT, output(CHAT), {"custom_id": "a", "response": None, "error": {"code": "x"}}]
    assert READER.sniff(Sample("x", lines)) == 1
    assert READER.sniff(Sample("x", [{"custom_id": "a", "messages": TURNS}, CHAT])) == 0


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("logs/batches/monday/output.jsonl", "batches/monday"),
        ("monday/output.jsonl", "monday"),
        ("output.jsonl", ""),
        ("/output.jsonl", ""),
        ("../x/output.jsonl", "x"),
    ],
)
def test_custom_ids_count_within_a_folder(path: str, scope: str) -> None:
    assert READER.from_path(PurePosixPath(path)) == {"scope": scope}


def test_two_batches_with_the_same_custom_ids(tmp_path: Path, take: Callable[..., Any]) -> None:
    for day, url, asked, answered in (
        ("monday", "/v1/chat/completions", {"messages": TURNS, "tools": TOOLS}, CHAT),
        ("tuesday", "/v1/responses", {"input": TURNS[1:], "instructions": "Be kind."}, RESPONSE),
    ):
        folder = tmp_path / "batches" / day
        folder.mkdir(parents=True)
        sent = [{**SENT, "custom_id": f"request-{n}", "url": url, "body": asked} for n in (1, 2)]
        (folder / "requests.jsonl").write_text("".join(json.dumps(line) + "\n" for line in sent))
        (folder / "output.jsonl").write_text(json.dumps(output(answered)) + "\n")
        failed = output({"error": {"message": "no"}}, 500, "request-2")
        (folder / "errors.jsonl").write_text(json.dumps(failed) + "\n")
    taken = take()
    assert taken.adds_up()
    assert taken.quarantined.is_empty()
    assert set(taken.events["source_format"]) == {"batch"}
    episodes, steps = taken.built()
    assert sorted(episodes["conversation_id"]) == [
        f"batches/{day}/batch/request-{n}" for day in ("monday", "tuesday") for n in (1, 2)
    ]
    assert steps["action"].to_list() == ['{"content":"On Monday.","role":"assistant"}'] * 2
    assert [m["content"] for m in json.loads(steps["observation"][0])] == [t["content"] for t in TURNS]
    assert [("call_failed" in tags) for tags in episodes.sort("conversation_id")["tags"]] == [False, True] * 2
