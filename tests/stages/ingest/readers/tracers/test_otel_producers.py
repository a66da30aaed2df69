"""What real libraries wrote: the same two turns with two tool calls, one of which fails, by each of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.config import EpisodesConfig
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes

if TYPE_CHECKING:
    import polars as pl

FIXTURES = Path(__file__).parents[4] / "fixtures" / "otel"
ANSWER = "Order 7 comes on Monday; there is no order 8."
TRACE = "7dbaeba682933bd2484f9fd100000001"
Take = Callable[..., Any]


def taken(take: Take, name: str) -> Any:
    found = take(FIXTURES / name, root=FIXTURES)
    assert found.quarantined.height == 0
    assert found.adds_up()
    assert set(found.events["source_format"]) == {"otel"}
    return found


def episode(events: pl.DataFrame) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    episodes, steps = build_episodes(events.filter(conversation_id="conv-42"), EpisodesConfig(), Funnel())
    return episodes.row(0, named=True), steps.sort("index").to_dicts()


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("current.jsonl", ["ok", "failed"]),
        ("openinference.jsonl", ["ok", "failed"]),
        ("console.json", ["ok", "failed"]),
        ("openllmetry.jsonl", ["unknown", "failed"]),
        ("openllmetry_numbered.jsonl", ["unknown", "failed"]),
        ("pydantic_ai_v2.jsonl", ["ok", "failed"]),
        ("pydantic_ai_v5.jsonl", ["ok", "failed"]),
        ("strands.jsonl", ["ok", "failed"]),
        ("strands_latest.jsonl", ["ok", "failed"]),
    ],
)
def test_every_library_gives_the_same_episode(name: str, status: list[str], take: Take) -> None:
    made, steps = episode(taken(take, name).events)
    assert (made["n_steps"], made["n_tool_calls"], made["stop_reason"], made["model"]) == (2, 2, "answered", "qwen3-8b")
    assert made["started"] is not None
    assert not {"context_reset", "content_missing", "call_without_message"} & set(made["tags"])
    if name != "strands.jsonl":  # which has the tools' names alone, unless it is asked for more
        assert json.loads(made["tools"])[0]["function"]["name"] == "get_order"
    assert [m["role"] for m in json.loads(steps[0]["observation"])] == ["system", "user"]
    calls = json.loads(steps[0]["action"])["tool_calls"]
    assert [c["arguments"] for c in calls] == [{"id": 7}, {"id": 8}]
    assert (steps[0]["tool_names"], steps[0]["tool_status"]) == (["get_order"] * 2, status)
    assert [m["role"] for m in json.loads(steps[1]["observation"])] == ["tool", "tool"]
    assert json.loads(steps[1]["action"])["content"] == ANSWER
    assert (made["input_tokens"], made["output_tokens"]) in {(30, 8), (122, 27)}


@pytest.mark.parametrize(("name", "answers"), [("current.jsonl", 4), ("legacy.jsonl", 2)])
def test_events_of_a_call_name_its_span_and_trace(name: str, answers: int, take: Take) -> None:
    events = taken(take, name).events.filter(kind="model_call")
    logged = events.filter(conversation_id=TRACE).sort("ts")
    told = events.filter(conversation_id="conv-42").sort("ts")
    assert list(logged["span_id"]) == list(told["span_id"])
    assert all(f"trace:{TRACE}" in ids for ids in told["ids"])
    payloads = [json.loads(p) for p in events["payload"]]
    assert sum("content_missing" not in p.get("tags", ()) for p in payloads) == answers
    last = json.loads(logged["payload"][-1])
    assert last["message"]["content"] == ANSWER
    assert [m["role"] for m in last["input"]] == ["system", "user", "assistant", "tool", "tool"]
    assert all("response_id" in json.loads(p) for p in told["payload"])


def test_ids_are_hex_as_the_collector_writes_them(take: Take) -> None:
    events = taken(take, "current.jsonl").events
    assert all(len(span) == 16 for span in events["span_id"])


def test_base64_ids_of_protobufs_json_are_the_same_ids(tmp_path: Path, take: Take) -> None:
    def coded(match: dict[str, Any]) -> dict[str, Any]:
        import base64

        names = ("traceId", "spanId", "parentSpanId")
        return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in names else v for k, v in match.items()}

    text = (FIXTURES / "current.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line, object_hook=coded) for line in text.splitlines()]
    (tmp_path / "base64.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert set(take(tmp_path).events["event_id"]) == set(taken(take, "current.jsonl").events["event_id"])


def test_what_is_delivered_twice_is_the_same_events(tmp_path: Path, take: Take) -> None:
    for name, before in (("a.jsonl", ""), ("b.jsonl", "\n")):
        (tmp_path / name).write_text(before + (FIXTURES / "current.jsonl").read_text(encoding="utf-8"))
    events = take(tmp_path).events
    assert events["event_id"].n_unique() * 2 == events.height
