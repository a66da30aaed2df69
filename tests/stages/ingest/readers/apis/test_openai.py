"""OpenAI logs: pairs, batches, transcripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import BadRecordError
from flywheel.stages.ingest.readers.apis.openai import READER

TOOLS = [{"type": "function", "function": {"name": "get_order", "parameters": {"type": "object"}}}]
PAIR: dict[str, Any] = {
    "timestamp": 1790850000,
    "latency_ms": 900,
    "request": {
        "model": "asked",
        "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "where are 7 and 8?"}],
        "tools": TOOLS,
        "temperature": 0.7,
        "metadata": {"session_id": "s1", "release": "r3", "user_id": "u1", "task_id": "t1"},
    },
    "response": {
        "id": "chatcmpl-1",
        "model": "served",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "logprobs": {"content": [{"token": "a", "logprob": -0.5}]},
                "token_ids": [5, 6],
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": f"call_{n}",
                            "type": "function",
                            "function": {"name": "get_order", "arguments": f'{{"id":{n}}}'},
                        }
                        for n in (7, 8)
                    ],
                },
            },
            {"index": 1, "message": {"role": "assistant", "content": "Which ones?"}},
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 9},
    },
    "feedback": {"name": "thumbs", "value": 1},
}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_a_pair_is_one_model_call_with_its_input() -> None:
    call, feedback = read(PAIR)
    assert (call["kind"], call["conversation_id"], call["policy"], call["user"]) == ("model_call", "s1", "r3", "u1")
    assert (call["model"], call["task_key"], call["seq"], str(call["ts"])) == (
        "served",
        "t1",
        2,
        "2026-10-01 10:20:00+00:00",
    )
    assert call["payload"] == {
        "message": {
            "role": "assistant",
            "tool_calls": [{"id": f"call_{n}", "name": "get_order", "arguments": {"id": n}} for n in (7, 8)],
        },
        "input": PAIR["request"]["messages"],
        "tools": TOOLS,
        "response_id": "chatcmpl-1",
        "finish_reason": "tool_calls",
        "input_tokens": 10,
        "output_tokens": 9,
        "completion_token_ids": [5, 6],
        "completion_logprobs": [-0.5],
        "other_choices": [{"role": "assistant", "content": "Which ones?"}],
        "sampling": {"temperature": 0.7},
        "latency_s": 0.9,
    }
    assert feedback["payload"]["target_id"] == "chatcmpl-1"


@pytest.mark.parametrize("cost", [0.0025, {"usd": 0.0025, "credits": 2.5}, {"input_cost": 0.002, "total_cost": 0.0025}])
def test_what_a_gateway_charged_stands_with_the_tokens(cost: Any) -> None:
    """OpenRouter's, Hyper's and Perplexity's ways."""
    charged = {**PAIR["response"]["usage"], "cost": cost}
    call, _ = read({**PAIR, "response": {**PAIR["response"], "usage": charged}})
    assert call["payload"]["cost_usd"] == 0.0025


def test_without_a_session_calls_join_by_how_the_conversation_begins() -> None:
    request = {k: v for k, v in PAIR["request"].items() if k != "metadata"}
    later = [*request["messages"], {"role": "assistant", "content": "a"}, {"role": "user", "content": "more"}]
    one, _ = read(PAIR | {"request": request})
    two, _ = read(PAIR | {"request": request | {"messages": later}})
    other, _ = read(PAIR | {"request": request | {"user": "somebody else"}})
    assert one["conversation_id"] == two["conversation_id"] != other["conversation_id"]
    assert one["seq"] < two["seq"]


def test_a_transcript_is_an_attempt_of_its_own() -> None:
    record = {
        "messages": [
            {"role": "user", "content": "where is order 7?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": PAIR["response"]["choices"][0]["message"]["tool_calls"][:1],
            },
            {"role": "tool", "tool_call_id": "call_7", "content": '{"eta":"Monday"}'},
            {"role": "assistant", "content": "On Monday.", "weight": 1},
        ],
        "tools": TOOLS,
    }
    events = read(record)
    assert [e["kind"] for e in events] == ["request", "model_call", "tool_result", "model_call"]
    assert events[0]["payload"]["tools"] == TOOLS
    assert events[2]["tool_name"] == "get_order"
    assert {e["conversation_id"] for e in events} == {e["conversation_id"] for e in read(record)}
    other = {"messages": [*record["messages"][:3], {"role": "assistant", "content": "Tuesday."}]}
    assert read(other)[0]["conversation_id"] != events[0]["conversation_id"]


def test_a_run_that_an_error_ended_keeps_what_was_done() -> None:
    """A record of a run has messages and an error like a call that failed: its task or its reward tells them apart."""
    messages = [*PAIR["request"]["messages"][:1], {"role": "assistant", "content": "I look."},
                {"role": "user", "content": "Thanks."}]  # fmt: skip
    for fields, acts in (({"task_id": "t7"}, 1), ({"reward_info": {"reward": 0.0}}, 1), ({"success": False}, 0)):
        events = read({"messages": messages, "error": "timeout", **fields})
        assert sum(event["kind"] == "model_call" for event in events) == acts, fields


def test_a_failed_call_leaves_what_was_asked() -> None:
    (event,) = read({"request": PAIR["request"], "response": None, "error": {"message": "rate limit"}})
    assert (event["kind"], event["payload"]["tags"]) == ("request", ["call_failed"])
    assert event["payload"]["messages"] == PAIR["request"]["messages"]


def test_an_answer_that_was_logged_as_its_text() -> None:
    record = {"messages": PAIR["request"]["messages"], "session_id": "s1", "response": "On Monday.", "prompt_tokens": 9}
    (call,) = read(record)
    assert (call["kind"], call["payload"]["input"]) == ("model_call", record["messages"])
    assert (call["payload"]["message"]["content"], call["payload"]["input_tokens"]) == ("On Monday.", 9)
    over = {**record, "messages": [*record["messages"], {"role": "assistant", "content": "On Monday."}]}
    assert [event["kind"] for event in read(over)] == ["request", "model_call"]
    (call,) = read({"prompt": PAIR["request"]["messages"], "completion": "On Monday."})
    assert call["payload"]["input"] == PAIR["request"]["messages"]


def test_a_response_without_its_prompt_is_known_by_its_id() -> None:
    (call,) = read({**PAIR["response"], "metadata": {"release": "r4"}})
    assert (call["conversation_id"], call["kind"], call["policy"]) == ("response:chatcmpl-1", "model_call", "r4")
    assert "input" not in call["payload"]
    (call,) = read({"session_id": "s1", "trace_id": "t1", "request_id": "q1", "response": PAIR["response"]})
    assert (call["conversation_id"], call["ids"]) == ("s1", ["response:chatcmpl-1", "request:q1", "trace:t1"])


def test_a_refusal_is_what_was_said() -> None:
    refused = {"role": "assistant", "content": None, "refusal": "I must not."}
    (call,) = read({"request": PAIR["request"], "response": {"choices": [{"message": refused}]}})
    assert call["payload"]["message"] == {"role": "assistant", "content": "I must not."}


COMPLETION: dict[str, Any] = {
    "request": {"prompt": "say hi", "echo": True, "n": 2},
    "response": {
        "id": "cmpl-1",
        "object": "text_completion",
        "choices": [
            {"index": 0, "text": "say hi: hi", "finish_reason": "stop", "logprobs": {"token_logprobs": [None, -0.5]}},
            {"index": 1, "text": "hello", "finish_reason": "stop"},
        ],
    },
}


def test_a_text_completion() -> None:
    (call,) = read(COMPLETION)
    assert call["payload"]["input"] == [{"role": "user", "content": "say hi"}]
    assert call["payload"]["message"]["content"] == ": hi"
    assert call["payload"]["other_choices"] == [{"role": "assistant", "content": "hello"}]
    assert call["payload"]["completion_logprobs"] == [None, -0.5]


def test_a_text_completion_of_several_prompts_is_several_calls() -> None:
    one, two = read({**COMPLETION, "request": {"prompt": ["say hi", "say hello"]}})
    assert (one["payload"]["message"]["content"], two["payload"]["message"]["content"]) == ("say hi: hi", "hello")
    assert one["conversation_id"] != two["conversation_id"]
    assert [one["payload"]["response_id"], two["payload"]["response_id"]] == ["cmpl-1#0", "cmpl-1#1"]
    assert not {"other_choices", "input_tokens"} & set(one["payload"])


def test_the_answers_of_dspys_history() -> None:
    (call,) = read(
        {"prompt": None, "messages": PAIR["request"]["messages"], "outputs": ["Rome"], "model": "m", "kwargs": {}}
    )
    assert (call["payload"]["message"]["content"], call["model"]) == ("Rome", "m")


def test_token_ids_that_vllm_writes_as_tokens() -> None:
    logprobs = {"content": [{"token": "token_id:5", "logprob": -1}, {"token": "token_id:6", "logprob": -2}]}
    choice = {"message": {"role": "assistant", "content": "x"}, "logprobs": logprobs}
    (call,) = read({"request": PAIR["request"], "response": {"choices": [choice], "prompt_token_ids": [1, 2]}})
    told = call["payload"]
    assert (told["prompt_token_ids"], told["completion_token_ids"]) == ([1, 2], [5, 6])
    assert told["completion_logprobs"] == [-1, -2]


@pytest.mark.parametrize(
    "record",
    [7, "x", [], {"messages": [{"role": "oracle"}]}, {"request": {"messages": 7}, "response": PAIR["response"]}],
)
def test_what_is_no_log_is_refused(record: Any) -> None:
    with pytest.raises(BadRecordError):
        read(record)


CHATML = (
    "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWhere is order 7?<|im_end|>\n<|im_start|>assistant\n"
)
LLAMA = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nWhere is order 7?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)
WRITTEN = '<tool_call>\n{"name": "get_order", "arguments": {"id": 7}}\n</tool_call>'
CAME = "<|im_end|>\n<|im_start|>user\n<tool_response>\non its way\n</tool_response><|im_end|>\n<|im_start|>assistant\n"


def completion(text: str, own: str) -> dict[str, Any]:
    return {"id": own, "object": "text_completion", "model": "qwen", "choices": [{"index": 0, "text": text}]}


def test_prompts_that_a_chat_template_rendered_are_the_messages(
    take: Callable[..., Any], write: Callable[..., Path]
) -> None:
    """As a server's log of text completions has them: the model's template puts the marks there again."""
    rows = [
        {"request": {"prompt": CHATML}, "response": completion(f"{WRITTEN}<|im_end|>", "r1")},
        {"request": {"prompt": CHATML + WRITTEN + CAME}, "response": completion("On its way.", "r2")},
    ]
    episodes, steps = take(write("log.jsonl", rows)).built()
    assert (len(episodes), episodes["n_tool_calls"][0], episodes["request"][0]) == (1, 1, "Where is order 7?")
    first, last = (json.loads(action) for action in steps.sort("index")["action"])
    assert [(c["name"], c["arguments"]) for c in first["tool_calls"]] == [("get_order", {"id": 7})]
    assert last["content"] == "On its way."
    seen = json.loads(steps.sort("index")["observation"][1])
    assert [(m["role"], m["content"]) for m in seen] == [("tool", "on its way")]
    assert "<|im_" not in str(episodes.rows()) + str(steps.rows())


@pytest.mark.parametrize("prompt", [CHATML, LLAMA, CHATML + "<think>\n\n</think>"], ids=["chatml", "llama", "think"])
def test_an_answer_next_to_a_rendered_prompt_is_without_its_marks(prompt: str) -> None:
    (call,) = read({"prompt": prompt, "response": "On its way.<|im_end|>", "model": "qwen", "timestamp": 1790850000})
    assert [(m["role"], m["content"]) for m in call["payload"]["input"]] == [
        ("system", "Be kind."), ("user", "Where is order 7?")
    ]  # fmt: skip
    assert call["payload"]["message"] == {"role": "assistant", "content": "On its way."}


def test_a_prompt_that_only_names_a_mark_stays_as_it_is() -> None:
    (call,) = read({"request": {"prompt": "What does im_start mean?"}, "response": completion("A mark.", "r1")})
    assert call["payload"]["input"] == [{"role": "user", "content": "What does im_start mean?"}]
