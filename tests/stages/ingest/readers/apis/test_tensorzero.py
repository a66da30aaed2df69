"""TensorZero rows: JSON in texts or objects, times inside ids, feedback that does not say what its target is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import BadRecordError, Sample
from flywheel.stages.ingest.readers.apis.tensorzero import READER

INFERENCE, EPISODE = "01920c75-d114-7aa1-aadb-26a31bb3c7a0", "01920c75-cdcb-7fa3-bd69-fd28cf615f91"
CALL = {
    "type": "tool_call", "id": "call_1", "name": "get_order", "arguments": {"id": 7}, "raw_name": "get_order",
    "raw_arguments": '{"id": 7}',
}  # fmt: skip
INPUT = {
    "system": "be kind",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "where is order 6?"}]},
        {"role": "assistant", "content": [{**CALL, "id": "call_0", "arguments": '{"id": 6}'}]},
        {"role": "user", "content": [{"type": "tool_result", "id": "call_0", "name": "get_order", "result": "gone"}]},
        {"role": "user", "content": "and order 7?"},
    ],
}
ROW: dict[str, Any] = {
    "id": INFERENCE, "function_name": "support", "variant_name": "qwen-r11", "episode_id": EPISODE,
    "input": json.dumps(INPUT), "output": json.dumps([{"type": "thought", "text": "Hm."}, CALL]),
    "tool_params": json.dumps({"tools_available": [{"name": "get_order", "description": "d", "parameters": {}}]}),
    "inference_params": json.dumps({"chat_completion": {"temperature": 0.5}}), "processing_time_ms": 900,
    "tags": {"user_id": "u-1", "tensorzero::datapoint_id": "d-1"},
}  # fmt: skip


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 3))


def test_an_inference_is_a_call_in_its_episode() -> None:
    (event,) = read(ROW)
    assert (event["conversation_id"], event["policy"], event["user"], event["task_key"]) == (
        EPISODE, "support/qwen-r11", "u-1", "d-1",
    )  # fmt: skip
    assert event["ts"].isoformat() == "2024-09-19T22:45:00.820000+00:00"
    assert event["ids"] == [f"trace:{INFERENCE}", f"response:{INFERENCE}"]
    payload = event["payload"]
    assert [m["role"] for m in payload["input"]] == ["system", "user", "assistant", "tool", "user"]
    assert payload["input"][2]["tool_calls"][0]["arguments"] == {"id": 6}
    assert (payload["input"][3]["content"], payload["input"][3]["tool_call_id"]) == ("gone", "call_0")
    assert payload["message"] == {
        "role": "assistant", "reasoning": "Hm.",
        "tool_calls": [{"id": "call_1", "name": "get_order", "arguments": {"id": 7}}],
    }  # fmt: skip
    assert (payload["latency_s"], payload["sampling"], payload["response_id"]) == (0.9, {"temperature": 0.5}, INFERENCE)
    assert payload["tools"][0]["function"]["name"] == "get_order"


def test_what_the_api_lists_is_the_same() -> None:
    listed = {k: v for k, v in ROW.items() if k not in {"id", "tool_params"}}
    listed |= {
        "inference_id": INFERENCE, "type": "chat", "timestamp": "2026-10-01T09:00:00Z", "input": INPUT,
        "output": [CALL], "additional_tools": [{"name": "get_order", "description": "d", "parameters": {}}],
    }  # fmt: skip
    (event,) = read(listed)
    assert event["ts"].isoformat() == "2026-10-01T09:00:00+00:00"
    assert (event["payload"]["input"], event["payload"]["tools"]) == (
        read(ROW)[0]["payload"]["input"],
        read(ROW)[0]["payload"]["tools"],
    )


def test_calls_that_did_not_parse_templates_and_json_functions() -> None:
    bad = {**CALL, "name": None, "arguments": None, "raw_arguments": '{"id":'}
    (call,) = read({**ROW, "output": json.dumps([bad])})[0]["payload"]["message"]["tool_calls"]
    assert call == {"id": "call_1", "name": "get_order", "arguments": None, "arguments_raw": '{"id":'}
    template = {"type": "template", "name": "ask", "arguments": {"topic": "orders"}}
    asked = {"messages": [{"role": "user", "content": [template]}]}
    assert read({**ROW, "input": asked})[0]["payload"]["input"] == [{"role": "user", "content": '{"topic":"orders"}'}]
    made = read({**ROW, "output": json.dumps({"raw": '{"a": 1}', "parsed": {"a": 1}})})[0]["payload"]["message"]
    assert made == {"role": "assistant", "content": '{"a": 1}'}


def test_a_model_inference_is_a_piece_that_adds_tokens_and_the_model() -> None:
    row = {
        "id": "01920c75-d11a-7150-81d8-15d497ce7eb8", "inference_id": INFERENCE, "raw_request": "{}",
        "raw_response": "{}", "model_name": "qwen3-8b", "input_tokens": 10, "output_tokens": 4,
    }  # fmt: skip
    (event,) = read(row)
    assert (event["conversation_id"], event["model"]) == (INFERENCE, "qwen3-8b")
    assert event["payload"] == {
        "message": {"role": "assistant"}, "response_id": INFERENCE, "fragment": "block", "input_tokens": 10,
        "output_tokens": 4,
    }  # fmt: skip


FEEDBACK = "01920c75-d11b-7150-81d8-15d497ce7eb8"


@pytest.mark.parametrize(
    ("row", "kind", "payload"),
    [
        (
            {"target_id": EPISODE, "metric_name": "task_success", "value": False},
            "outcome",
            {"name": "task_success", "value": 0.0, "scale": [0, 1], "source": "callback"},
        ),
        (
            {"target_id": EPISODE, "metric_name": "minutes", "value": 3.5},
            "feedback",
            {"name": "minutes", "value": 3.5},
        ),
        (
            {"target_id": EPISODE, "target_type": "episode", "value": "no date"},
            "feedback",
            {"name": "comment", "comment": "no date", "annotator": "human"},
        ),
    ],
)
def test_a_feedback_is_for_an_inference_or_an_episode(row: dict[str, Any], kind: str, payload: dict[str, Any]) -> None:
    (event,) = read({"id": FEEDBACK, **row})
    assert (event["kind"], event["target"], event["conversation_id"]) == (kind, f"trace:{EPISODE}", f"trace:{EPISODE}")
    assert event["payload"] == {**payload, "target_id": EPISODE}
    assert event["ts"] is not None


def test_a_demonstration_is_the_output_that_should_have_been() -> None:
    said = json.dumps([{"type": "text", "text": "It arrives on Monday."}])
    (event,) = read({"id": FEEDBACK, "inference_id": INFERENCE, "value": said})
    assert (event["payload"]["name"], event["payload"]["text"]) == ("edit", "It arrives on Monday.")
    (event,) = read({"id": FEEDBACK, "inference_id": INFERENCE, "value": json.dumps([CALL])})
    assert (event["payload"]["text"], event["target"]) == ('{"id":7}', f"trace:{INFERENCE}")


def test_detection_and_refusal(take: Callable[..., Any], write: Callable[..., Path]) -> None:
    assert READER.sniff(Sample("x.jsonl", [{"id": "1", "value": 2}, []])) == 0
    broken: list[Any] = [[], {"id": "x"}, {**ROW, "episode_id": None}]
    for record in broken:
        with pytest.raises(BadRecordError):
            read(record)
    write("ChatInference.jsonl", [ROW])
    write("BooleanMetricFeedback.jsonl", [{"id": FEEDBACK, "target_id": EPISODE, "metric_name": "ok", "value": True}])
    taken = take()
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (2, 0, True)
    assert set(taken.events["source_format"]) == {"tensorzero"}
