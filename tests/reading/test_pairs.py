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
