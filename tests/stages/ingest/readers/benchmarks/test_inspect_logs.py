"""Inspect logs: what Inspect itself wrote, whole and as an archive's members, and the parts its messages may have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.benchmarks.inspect_logs import READER

MADE = Path(__file__).parents[4] / "fixtures" / "inspect"
MEMBERS = MADE / "shop.eval!"
TURNS: list[dict[str, Any]] = [
    {"id": "m1", "role": "user", "content": "attachment://a1", "source": "input"},
    {"id": "m2", "role": "assistant", "content": "Let me see.", "source": "generate", "model": "vllm/qwen"},
]
SAMPLE: dict[str, Any] = {
    "id": "order-eta", "epoch": 1, "input": "Where is order 7?", "target": "Monday", "messages": TURNS,
    "scores": {"includes": {"value": "C"}}, "attachments": {"a1": "Where is order 7?"}, "error": None,
}  # fmt: skip


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def with_turns(*turns: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {**SAMPLE, "messages": [TURNS[0], *turns], **changed}


def test_a_whole_log(take: Callable[..., Any]) -> None:
    taken = take(MADE / "shop.json", root=MADE)
    assert (taken.read, dict(taken.ignored), taken.quarantined.height) == (1, {}, 0)
    assert taken.adds_up()
    assert (set(taken.events["policy"]), set(taken.events["model"])) == ({"mockllm/model"}, {"mockllm/model", None})
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert (episodes.height, episodes["task_id"].n_unique(), steps.height) == (4, 2, 8)
    assert not steps["resets_context"].any()
    assert "context_reset" not in episodes["tags"].explode().to_list()
    assert sorted(list(s) for s in steps["tool_status"] if len(s)) == [["failed"], ["failed"], ["ok"], ["ok", "failed"]]


def test_scores_are_outcomes_and_none_is_none(take: Callable[..., Any]) -> None:
    payloads = take(MADE / "shop.json", root=MADE).payloads()
    found = sorted((p["name"], p["value"]) for p in payloads if p.get("source") == "verifier")
    assert found == [
        ("includes", 0.0), ("includes", 1.0), ("includes", 1.0), ("includes", 1.0),
        ("politeness", 0.5), ("politeness", 0.5), ("politeness", 0.5),
    ]  # fmt: skip


def test_events_add_to_messages_and_repeat_nothing(take: Callable[..., Any]) -> None:
    taken = take(MADE / "shop.json", root=MADE)
    calls = [p for p in taken.payloads() if "message" in p]
    assert len(calls) == 8
    assert {c["finish_reason"] for c in calls} == {"tool_calls", "stop"}
    assert {c["sampling"]["temperature"] for c in calls} == {0.7}
    assert all("input_tokens" in c and "latency_s" in c for c in calls)
    assert taken.events.filter(kind="model_call")["ts"].null_count() == 0
    failed = [p for p in taken.payloads() if p.get("status") == "failed"]
    assert {p["error_type"] for p in failed} == {"timeout", "unknown"}
    assert any(p["content"] == "Error: no such order" for p in failed)


def test_messages_without_ids_as_inspect_once_wrote_them_have_the_facts_of_their_own_call(
    tmp_path: Path, take: Callable[..., Any]
) -> None:
    log = json.loads((MADE / "shop.json").read_text())
    for sample in log["samples"]:
        said = [as_message for event in sample["events"] if event["event"] == "model"
                for as_message in (choice["message"] for choice in event["output"]["choices"])]  # fmt: skip
        for message in (*sample["messages"], *said):
            message.pop("id", None)
        for event in sample["events"]:
            event.pop("message_id", None)
    (tmp_path / "older.json").write_text(json.dumps(log))
    facts = [
        [(p.get("input_tokens"), p.get("output_tokens"), p.get("finish_reason"), p.get("error_type")) for p in payloads]
        for payloads in (take(MADE / "shop.json", root=MADE).payloads(), take().payloads())
    ]
    assert sorted(map(str, facts[0])) == sorted(map(str, facts[1]))
    assert len({one for one in facts[1] if one[0]}) > 1


def test_examples_in_the_input_were_not_sampled(take: Callable[..., Any]) -> None:
    _, steps = build_episodes(take(MADE / "shop.json", root=MADE).events, EpisodesConfig(), Funnel())
    shown = [json.loads(o) for o in steps.filter(index=0)["observation"]]
    assert sorted([m["role"] for m in o] for o in shown) == [
        ["system", "user"], ["system", "user"],
        ["system", "user", "assistant", "user"], ["system", "user", "assistant", "user"],
    ]  # fmt: skip


def test_the_members_of_an_archive_are_the_same_attempts(tmp_path: Path, take: Callable[..., Any]) -> None:
    for file in [*MEMBERS.glob("samples/*.json"), MEMBERS / "header.json"]:
        shutil.copy(file, tmp_path / file.name)
    taken = take(tmp_path, root=tmp_path)
    assert (taken.read, dict(taken.ignored), taken.quarantined.height) == (5, {"metadata of a run": 1}, 0)
    assert taken.adds_up()
    whole = take(MADE / "shop.json", root=MADE)
    place = ["conversation_id", "task_key", "kind", "seq", "ts"]
    assert set(taken.events.select(place).iter_rows()) == set(whole.events.select(place).iter_rows())
    assert set(taken.events["policy"]) == {"mockllm/model"}


def test_the_other_members_say_nothing(take: Callable[..., Any]) -> None:
    others = [MEMBERS / name for name in ("summaries.json", "reductions.json", "_journal/start.json")]
    taken = take(*others, root=MADE)
    assert (taken.events.height, taken.quarantined.height) == (0, 0)
    assert taken.adds_up()


def test_what_is_attached_is_put_in_its_place() -> None:
    assert read(SAMPLE)[0]["payload"]["messages"][0]["content"] == "Where is order 7?"
    lost = read({**SAMPLE, "attachments": {}})[0]["payload"]["messages"][0]["content"]
    assert lost == "attachment://a1"


def test_calls_that_did_not_parse_keep_their_text() -> None:
    call = {"id": "c1", "function": "get", "arguments": {"raw": "{7"}, "parse_error": "bad", "type": "function"}
    event = read(with_turns({"role": "assistant", "content": "", "tool_calls": [call]}))[1]
    (made,) = event["payload"]["message"]["tool_calls"]
    assert (made["name"], made["arguments"], made["arguments_raw"]) == ("get", None, "{7")


def test_reasoning_and_tools_that_the_provider_ran() -> None:
    parts = [
        {"type": "reasoning", "reasoning": "think", "redacted": False},
        {"type": "reasoning", "reasoning": "gibberish", "redacted": True, "summary": "short"},
        {"type": "reasoning", "reasoning": "gibberish", "redacted": True},
        {"type": "tool_use", "tool_type": "web_search", "id": "s1", "name": "search", "arguments": '{"q": 1}',
         "result": "", "error": "quota"},
        {"type": "text", "text": "Here."},
    ]  # fmt: skip
    _, call, result, _ = read(with_turns({"role": "assistant", "content": parts, "source": "generate"}))
    said = call["payload"]["message"]
    assert (said["reasoning"], said["content"]) == ("think\nshort", "Here.")
    assert said["tool_calls"] == [{"id": "s1", "name": "search", "arguments": {"q": 1}}]
    assert (result["tool_call_id"], result["tool_name"], result["payload"]["status"]) == ("s1", "search", "failed")


def test_a_result_says_itself_whether_it_failed() -> None:
    call = {"id": "c1", "function": "get", "arguments": {}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call], "source": "generate"}
    told = {"role": "tool", "tool_call_id": "c1", "function": "get", "content": "x"}
    for extra, status in (
        ({}, "ok"),
        ({"error": None}, "ok"),
        ({"error": {"type": "timeout", "message": "late"}}, "failed"),
        ({"content": "Error: none"}, "failed"),
    ):
        result = read(with_turns(asked, {**told, **extra}))[2]
        assert result["payload"]["status"] == status, extra


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("I", [("s", 0.0)]), ("P", [("s", 0.5)]), ("N", [("s", 0.0)]), ("yes", [("s", 1.0)]), ("0.25", [("s", 0.25)]),
        (True, [("s", 1.0)]), (7, [("s", 7.0)]), (None, []), ("a remark", []), ([1, "I"], [("s/0", 1.0), ("s/1", 0.0)]),
        ({"a": 0.5, "b": None}, [("s/a", 0.5)]),
    ],
    ids=str,
)  # fmt: skip
def test_scores_of_every_kind(value: Any, expected: list[Any]) -> None:
    outcomes = [e["payload"] for e in read({**SAMPLE, "scores": {"s": {"value": value}}}) if e["kind"] == "outcome"]
    assert [(p["name"], p["value"]) for p in outcomes] == expected
    assert all(("scale" in p) == (p["value"] <= 1) for p in outcomes)


def test_samples_that_failed_or_were_declared_void() -> None:
    failed = read({**SAMPLE, "error": {"message": "the sandbox is gone", "traceback": ""}})
    assert [e["kind"] for e in failed] == ["request", "model_call"]
    assert failed[0]["payload"]["tags"] == ["sample_error"]
    assert read({**SAMPLE, "invalidation": {"author": "a", "reason": "b"}}) == []
    assert [e["kind"] for e in read({**SAMPLE, "messages": []})] == ["request", "outcome"]
    assert read({**SAMPLE, "messages": [], "scores": None}) == []


def test_runs_of_other_models_meet_in_the_task_and_not_in_the_attempt() -> None:
    asked = [{"id": "x1", "role": "user", "content": "Where is order 7?"}]
    again = [{"id": "y2", "role": "user", "content": "Where is order 7?"}]
    one, other = read({**SAMPLE, "input": asked, "uuid": "u1"}), read({**SAMPLE, "input": again, "uuid": "u2"})
    assert one[0]["task_key"] == other[0]["task_key"]
    assert one[0]["conversation_id"] != other[0]["conversation_id"]
    assert read({**SAMPLE, "id": 9})[0]["task_key"] != read(SAMPLE)[0]["task_key"]


def test_policy_and_header() -> None:
    header = {"version": 2, "eval": {"task": "shop", "model": "m", "solver": "react"}, "plan": {}, "status": "success"}
    assert READER.from_sidecar(header) == {"model": "m", "policy": "react/m"}
    others: list[Any] = [[], {"eval": {"model": "m"}}, {"eval": 7}, {"model": "m"}]
    for other in others:
        assert READER.from_sidecar(other) == {}
    assert read({**header, "samples": [SAMPLE]})[0]["policy"] == "react/m"


def test_what_is_no_log_is_refused() -> None:
    refused: list[Any] = [[], {"eval": 1, "samples": []}, {**SAMPLE, "messages": [{"role": "wizard"}]}]
    for record in refused:
        with pytest.raises(BadRecordError):
            read(record)


def test_detection() -> None:
    assert READER.sniff(Sample("x", [SAMPLE])) == 1
    assert READER.sniff(Sample("x", [{"version": 2, "eval": {"task": "t", "model": "m"}, "samples": []}])) == 1
    others = [{"id": "1", "input": "a", "target": "b"}, {"eval": {"x": 1}, "version": 1}, {"scorer": "a"}, []]
    assert READER.sniff(Sample("x", others)) == 0
