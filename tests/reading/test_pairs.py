"""Requests and responses under all their names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flywheel.reading.pairs import common_payload, pair_of, sampled
from flywheel.reading.reader import share

ASK = {"messages": [{"role": "user", "content": "u"}], "temperature": 0.5, "stop": None}
ANSWER = {"id": "r", "choices": []}


@pytest.mark.parametrize(
    "record",
    [
        {"request": ASK, "response": ANSWER},
        {"request_body": ASK, "response_body": ANSWER},
        {"kwargs": ASK, "response": ANSWER},
        {"input": ASK, "output": ANSWER},
        {"body": ASK, "response": ANSWER},
        {"request": json.dumps(ASK), "response": json.dumps(ANSWER)},
        {"custom_id": "a", "body": ASK, "response": {"status_code": 200, "body": ANSWER}},
        {**ASK, "response": ANSWER},
        {**ASK, **ANSWER},
    ],
)
def test_a_pair_in_every_envelope(record: dict[str, Any]) -> None:
    pair = pair_of(record)
    assert pair.request["messages"] == ASK["messages"]
    assert (pair.response["id"], pair.response["choices"]) == ("r", [])
    assert common_payload(pair)["sampling"] == {"temperature": 0.5}


@pytest.mark.parametrize(
    "record",
    [None, [], {"response": ANSWER}, {"custom_id": "a", "response": {"body": ANSWER}}, {"request": {"input": "x"}}],
)
def test_without_a_prompt_there_is_no_request(record: Any) -> None:
    assert pair_of(record).request == {}


@pytest.mark.parametrize(
    "record",
    [
        {**ASK, "response": "Paris"},
        {**ASK, "completion": "Paris"},
        {**ASK, "output": "Paris"},
        {**ASK, "answer": "Paris"},
        {"request": ASK, "response": "Paris", "usage": {"prompt_tokens": 3}},
        {"request": ASK, "response": {"role": "assistant", "content": "Paris", "usage": {"prompt_tokens": 3}}},
        {"request": ASK, "response": '{"city": "Paris"}'},
        {"prompt": "u", "completion": "Paris"},
    ],
)
def test_an_answer_of_which_only_the_text_was_logged(record: dict[str, Any]) -> None:
    pair = pair_of({"prompt_tokens": 3, **record}, ("messages", "prompt"))
    (choice,) = pair.response["choices"]
    assert choice["message"]["role"] == "assistant"
    assert "Paris" in choice["message"]["content"]
    assert pair.response["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize(
    "fields",
    [
        {"response": "data: [DONE]"},
        {"response": '{"error": {"message": "rate limit"}}'},
        {"response": '{"choices": []}'},
        {"response": "upstream timeout", "error": "504"},
        {"response": "Bad Gateway", "status_code": 502},
        {"response": "u", "messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "u"}]},
        {"prompt": "what is 6 times 7?", "messages": None, "answer": "42"},
    ],
)
def test_what_is_no_answer_in_words(fields: dict[str, Any]) -> None:
    assert "said" not in pair_of({**ASK, **fields}, ("messages", "prompt")).response


def test_seconds_and_dollars() -> None:
    assert common_payload(pair_of({"request": {"messages": []}, "latency_ms": 1500, "cost": "0.01"})) == {
        "latency_s": 1.5,
        "cost_usd": 0.01,
    }


def test_shares() -> None:
    assert share([1, 2, 3, 4], lambda n: n > 1) == 0.75
    assert share([], bool) == 0


def test_what_a_choice_says_of_its_making() -> None:
    choice = {"finish_reason": "stop", "token_ids": [4], "logprobs": {"content": [{"logprob": -0.5}, "x"]}}
    assert sampled(choice) == {
        "finish_reason": "stop", "completion_token_ids": [4], "completion_logprobs": [-0.5, None],
    }  # fmt: skip
    assert sampled({"logprobs": None, "token_ids": "4", "prompt_token_ids": [1]}) == {"prompt_token_ids": [1]}
