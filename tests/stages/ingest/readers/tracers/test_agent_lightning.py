"""agent-lightning: what its own gateway and tracer wrote, and the shapes that older versions left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.tracers.agent_lightning import READER

MADE = Path(__file__).parents[4] / "fixtures" / "agent_lightning"
SPAN: dict[str, Any] = {
    "rollout_id": "ro-1", "attempt_id": "at-1", "sequence_id": 3, "trace_id": "7d" * 16, "span_id": "0a" * 8,
    "parent_id": None, "name": "agentlightning.annotation", "status": {"status_code": "OK", "description": None},
    "attributes": {}, "events": [], "links": [], "start_time": 1790850060.0, "end_time": 1790850060.5,
    "context": None, "parent": None, "resource": {"attributes": {}, "schema_url": ""},
}  # fmt: skip
EVENT: dict[str, Any] = {"event_type": "reward", "rollout_id": "ro-1", "attempt_id": "0", "timestamp": 1790850060.0}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def span(**attributes: Any) -> dict[str, Any]:
    return {**SPAN, "attributes": {name.replace("__", "."): value for name, value in attributes.items()}}


def test_a_rollout_through_the_gateway_of_1_0_2(take: Callable[..., Any]) -> None:
    taken = take(MADE / "v1_events.json", root=MADE)
    assert (taken.read, dict(taken.ignored), taken.quarantined.height) == (6, {"nothing of an agent in it": 1}, 0)
    assert taken.adds_up()
    assert set(taken.events["conversation_id"]) == {"ro-1/0"}
    calls = [p for p in taken.payloads() if "message" in p]
    assert [(c["prompt_token_ids"], c["completion_token_ids"], c["completion_logprobs"]) for c in calls] == [
        ([1, 2, 3], [4, 5], [-0.25, -0.5])
    ] * 2
    assert {(p, m) for k, p, m in taken.events.select("kind", "policy", "model").iter_rows() if k == "model_call"} == {
        ("qwen3-8b@11", "qwen3-8b")
    }
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert (episodes["n_tool_calls"].sum(), steps.height) == (1, 2)
    assert episodes["tags"][0].to_list() == ["call_failed", "logprobs"]
    assert [p["value"] for p in taken.payloads() if "value" in p] == [0.0, 1.0]


def test_the_rollouts_name_the_task(take: Callable[..., Any]) -> None:
    taken = take(MADE / "v1_rollouts.json", MADE / "v1_events.json", root=MADE)
    assert taken.quarantined.height == 0
    assert set(taken.events["conversation_id"]) == {"ro-1/0"}
    episodes, _ = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert episodes["task_rule"].to_list() == ["task_key"]
    assert set(taken.events["task_key"]) == {"agent_lightning/order-eta", None}


def test_a_rollout_through_the_tracer_of_0_3_0(take: Callable[..., Any]) -> None:
    taken = take(MADE / "v0.jsonl", root=MADE)
    assert (taken.read, dict(taken.ignored), taken.quarantined.height) == (7, {"nothing of an agent in it": 1}, 0)
    assert taken.adds_up()
    assert set(taken.events["conversation_id"]) == {"ro-1/at-1"}
    kinds = taken.events.sort("ts")["kind"].to_list()
    assert kinds == ["request", "model_call", "model_call", "model_call", "outcome", "outcome", "outcome"]
    call, answer, last = (p for p in taken.payloads() if "message" in p)
    assert answer["response_id"] == call["response_id"]
    assert {answer["fragment"], call["fragment"]} == {"block"}
    assert call["message"]["tool_calls"] == [{"id": "call_1", "name": "get_order", "arguments": {"id": 7}}]
    assert [t["function"]["name"] for t in answer["tools"]] == ["get_order"]
    assert (last["message"]["content"], last["prompt_token_ids"], last["completion_token_ids"]) == (
        "It arrives on Monday.", [1, 2, 3], [4, 5],
    )  # fmt: skip
    assert last["completion_logprobs"] == [-0.25, -0.25]
    assert last["input"][2]["tool_calls"][0]["arguments"] == {"id": 7}
    assert "fragment" not in last


def test_the_rewards_of_0_3_0_say_what_they_mean(take: Callable[..., Any]) -> None:
    taken = take(MADE / "v0.jsonl", root=MADE)
    given = taken.events.filter(kind="outcome")
    assert [t for t in given["target"] if t] == ["response:chatcmpl-0"]
    assert "response:chatcmpl-0" in taken.events.filter(kind="model_call")["ids"].explode().to_list()
    assert {(p["name"], p["value"]) for p in taken.payloads() if "value" in p} == {
        ("primary", 0.5), ("solved", 1.0), ("short", 0.25),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (span(agentlightning__reward=0.5), [("primary", 0.5, None)]),
        (span(reward=1), [("primary", 1.0, None)]),
        ({**span(reward=1), "name": "agentlightning.message"}, []),
        (span(agentops__task__output='{"type": "reward", "value": 0.25}'), [("primary", 0.25, None)]),
        (span(agentops__entity__output='{"type": "reward", "value": null}'), []),
        (span(agentlightning__reward__0__value="NaN"), []),
        (
            span(
                agentlightning__reward__0__value=1.0,
                agentlightning__link__0__key_match="span_id",
                agentlightning__link__0__value_match="bb" * 8,
            ),
            [("reward 0", 1.0, "span:" + "bb" * 8)],
        ),
        (
            span(
                agentlightning__reward__0__value=1.0,
                agentlightning__link__0__key_match="my.own",
                agentlightning__link__0__value_match="x",
            ),
            [("reward 0", 1.0, None)],
        ),
        (span(agentlightning__reward__0__value=1, agentlightning__link__0__key_match=[]), [("reward 0", 1.0, None)]),
    ],
    ids=["early", "0.2", "no annotation", "AgentOps", "no value", "no number", "span", "unknown link", "no key"],
)
def test_rewards_of_every_version(record: dict[str, Any], expected: list[Any]) -> None:
    found = [(e["payload"]["name"], e["payload"]["value"], e.get("target")) for e in read(record)]
    assert found == expected


def test_what_the_weave_tracer_writes() -> None:
    said = {
        "input.model": "qwen3-8b", "input.messages.0.role": "user", "input.messages.0.content": "Where?",
        "output.id": "chatcmpl-9", "output.object": "chat.completion", "output.model": "qwen3-8b",
        "output.choices.0.finish_reason": "stop", "output.choices.0.message.role": "assistant",
        "output.choices.0.message.content": "Here.", "output.prompt_token_ids": [1],
        "output.choices.0.token_ids": [2],
    }  # fmt: skip
    attributes = {f"agentlightning.operation.{name}": value for name, value in said.items()}
    (event,) = read({**SPAN, "name": "openai.chat.completions.create", "attributes": attributes})
    assert event["conversation_id"] == "ro-1/at-1"
    assert "response:chatcmpl-9" in event["ids"]
    payload = event["payload"]
    assert (payload["message"]["content"], payload["input"][0]["content"]) == ("Here.", "Where?")
    assert (payload["prompt_token_ids"], payload["completion_token_ids"]) == ([1], [2])


def test_what_the_proxy_of_0_3_0_writes() -> None:
    said = {
        "gen_ai.operation.name": "chat", "llm.request.type": "completion", "gen_ai.response.id": "chatcmpl-3",
        "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "Where?"}]}]',
        "gen_ai.output.messages": '[{"role": "assistant", "parts": [], "finish_reason": "tool_calls"}]',
        "gen_ai.completion.0.function_call.name": "get", "gen_ai.completion.0.function_call.arguments": "{}",
        "prompt_token_ids": [1, 2], "response_token_ids": [3],
    }  # fmt: skip
    (event,) = read({**SPAN, "name": "litellm_request", "attributes": said})
    payload = event["payload"]
    assert payload["message"]["tool_calls"] == [{"id": "", "name": "get", "arguments": {}}]
    assert (payload["prompt_token_ids"], payload["completion_token_ids"]) == ([1, 2], [3])
    assert (payload["response_id"], payload.get("fragment")) == ("chatcmpl-3", None)


def test_spans_that_hold_nothing_of_a_conversation() -> None:
    for name in ("agentlightning.message", "agentlightning.exception", "shop.session", "raw_gen_ai_request"):
        assert read({**SPAN, "name": name}) == []
    assert read({**SPAN, "name": "tool_call.f", "parent_id": "0b" * 8}) == []


def test_a_rollout_without_its_attempt_is_found_by_its_name() -> None:
    plain = {"rollout_id": "ro-1", "input": {"q": 1}, "start_time": 1.0, "mode": "train", "status": "succeeded"}
    (event,) = read(plain)
    assert (event["conversation_id"], event["payload"]) == ("ro-1", {"messages": []})
    assert event["task_key"] == read({**plain, "rollout_id": "ro-2"})[0]["task_key"]
    assert event["task_key"] != read({**plain, "input": {"q": 2}})[0]["task_key"]
    asked = {"messages": [{"role": "user", "content": "Where?"}]}
    call = {**EVENT, "event_type": "model_request", "data": {"request": asked, "response": {}}}
    assert read(call)[0]["ids"] == ["session:ro-1"]
    assert read({**plain, "input": None}) == []


def test_what_nobody_judged_is_no_outcome() -> None:
    assert read({**EVENT, "data": {"value": 0.0, "source": "fallback"}}) == []
    assert read({**EVENT, "data": {"value": None}}) == []


def test_calls_without_a_readable_answer() -> None:
    asked = {"messages": [{"role": "user", "content": "Where?"}]}
    unreadable: list[Any] = [[{"choices": []}], None, {}]
    for response in unreadable:
        record = {**EVENT, "event_type": "model_request", "data": {"request": asked, "response": response}}
        (event,) = read(record)
        assert (event["kind"], event["payload"]["tags"], event["policy"]) == ("request", ["call_failed"], None)


def test_pages_and_what_is_refused() -> None:
    page = {"items": [{**EVENT, "data": {"value": 1.0}}, SPAN], "limit": -1, "offset": 0, "total": 2}
    assert [e["kind"] for e in read(page)] == ["outcome"]
    refused: list[Any] = [[], {"rollout_id": "ro-1"}, {**EVENT, "rollout_id": None, "data": {}}]
    for other in refused:
        with pytest.raises(BadRecordError):
            read(other)


def test_detection() -> None:
    for record in ({**EVENT, "data": {}}, SPAN, {"items": [SPAN]}):
        assert READER.sniff(Sample("x", [record])) == 1
    assert READER.sniff(Sample("x", [{"rollout_id": "ro-1", "messages": []}, {"items": []}])) == 0
