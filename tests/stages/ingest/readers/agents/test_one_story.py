"""One story as many programs keep it: whatever its log looks like, the agent saw and did the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.extensions import BadRecordError, Reader
from flywheel.extensions import Sample as Seen
from tests.stages.ingest.formats import samples
from tests.stages.ingest.mutate import wrong_with

READERS = ("exchanges", "message_files", "message_rows", "openhands", "transcripts")
ASKED = "What is the weather in Rome today, please?"
SAID = "It is 21 degrees and sunny in Rome."
STORY = [("user", ASKED), ("call", '{"city": "Rome"}'), ("tool", "21"), ("assistant", SAID)]
SHORT = [("user", "How do I reset my router model X12?"), ("assistant", "Hold the button for ten seconds.")]


def told(steps: pl.DataFrame) -> list[tuple[str, str]]:
    """Return what was seen and done, in order, without system prompts."""
    story: list[tuple[str, str]] = []
    for seen, done in steps.sort("index").select("observation", "action").iter_rows():
        for message in json.loads(seen):
            content = re.sub(r'\{"(?:temp|output)": ?"?21"?\}', "21", message["content"])
            story += [(message["role"], content)] if message["role"] != "system" else []
        act = json.loads(done)
        calls = act.get("tool_calls", ())
        story += [("call", json.dumps(call["arguments"])) for call in calls if call["name"] == "get_weather"]
        story += [("assistant", act["content"])] if not calls else []
    return story


def test_every_log_tells_the_story(tmp_path: Path, take: Callable[..., Any]) -> None:
    taken = take(*(one.write(tmp_path) for name in READERS for one in samples()[name]))
    assert (taken.quarantined.height, dict(taken.ignored)) == (0, {"nothing of an agent in it": 6})
    episodes, steps = taken.built()
    with_calls = episodes.filter(pl.col("n_tool_calls") > 0)["episode_id"]
    stories = [told(steps.filter(pl.col("episode_id") == one)) for one in with_calls]
    unlike = [STORY[:1], [*STORY[:2], STORY[3]]]  # smolagents' code is its own tool; Cursor keeps no results
    assert sorted((story for story in stories if story != STORY), key=len) == unlike
    assert len(stories) == 42
    assert set(steps["tool_status"].explode().drop_nulls()) <= {"ok", "unknown"}
    assert not any("malformed" in tag or "orphan" in tag for tags in episodes["tags"] for tag in tags)
    by_name = {row["conversation_id"]: row for row in episodes.to_dicts()}
    counted = {name: (row["input_tokens"], row["output_tokens"]) for name, row in by_name.items()}
    assert (counted["g1"], counted["th1"], counted["ses_1"]) == ((220, 23), (120, 19), (13, 5))
    assert by_name["ses_1"]["cost_usd"] == pytest.approx(0.01)
    assert {counted[name] for name in ("hay_1", "agno_1", "amp_1", "qwen_1")} == {(100, 16)}
    models = {"gemini-2.5-pro", "gpt-4o-2024-08-06", "claude-sonnet-4", "amazon.nova-pro-v1:0", "llama3.1"}
    assert models <= set(episodes["model"].drop_nulls())
    assert {"i__x-1", "django__django-1"} <= set(taken.events["task_key"].drop_nulls())


def test_right_answers_and_tool_logs_are_no_conversations(readers: Mapping[str, Reader]) -> None:
    oracle = Seen("oracle.jsonl", [{"question": "Where is order 7?", "answer": "Monday"}] * 3)
    spans = Seen("spans.jsonl", [{"tool": "bash", "input": "ls", "output": "a.py", "timestamp": "2026-10-01"}] * 3)
    gold = Seen("gold.jsonl", [{"input": "2+2", "output": "4", "expected": "4", "model": "m"}] * 3)
    for sample in (oracle, spans, gold):
        assert [name for name in READERS if readers[name].sniff(sample) >= 0.5] == []


def test_a_stream_whose_calls_no_reader_knows_is_refused(readers: Mapping[str, Reader]) -> None:
    call = {
        "type": "tool_call",
        "call_id": "c1",
        "session_id": "s",
        "tool_call": {"readToolCall": {"args": {"path": "a"}}},
    }
    with pytest.raises(BadRecordError, match="a tool's call"):
        list(readers["message_rows"].read(call, 1))


def opened(**event: Any) -> dict[str, Any]:
    return {"id": 3, "timestamp": "2026-10-01T10:00:00", "source": "agent", **event}


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (opened(observation="browse", cause=2, content="page", extras={"error": True}), "failed"),
        (opened(observation="browse", cause=2, content="page", extras={"error": False}), "unknown"),
        (opened(observation="run", cause=2, content="", extras={"exit_code": 128}), "failed"),
    ],
)
def test_how_a_call_of_openhands_ended(event: dict[str, Any], status: str, readers: Mapping[str, Reader]) -> None:
    (result,) = readers["openhands"].read(event, 1)
    assert result["payload"]["status"] == status


def test_what_an_evaluated_run_of_openhands_cost_is_told_at_its_end(readers: Mapping[str, Reader]) -> None:
    asked = {**opened(action="message", args={"content": "Fix it."}), "source": "user"}
    ran, seen = opened(action="run", args={"command": "ls"}), opened(observation="run", content="a.py", extras={})
    history = [asked, ran, seen]
    record = {"instance_id": "acme__a-1", "history": history, "metrics": {"accumulated_cost": 0.07}}
    told = [
        e["payload"]["usage_so_far"] for e in readers["openhands"].read(record, 1) if "usage_so_far" in e["payload"]
    ]
    assert told == [{"cost_usd": 0.07}]


BROKEN = [
    ("openhands", {"id": "e4", "timestamp": "2026-10-01T10:00:04", "source": "agent", "kind": "MessageEvent",
                   "llm_message": {"role": "helper", "content": [{"type": "text", "text": "It is sunny."}]},
                   "llm_response_id": "r1"}),
    ("platforms", {"type": "message", "from": {"role": {"is": "bot"}}, "text": "Hello", "conversation": {"id": "c"}}),
    ("transcripts", {"messages": [{"role": "assistant", "name": ["x"], "content": "a", "tool_calls": [{"name": "f"}]},
                                  {"role": "user", "name": ["y"], "content": "b"}]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "record"), BROKEN, ids=[name for name, _ in BROKEN])
def test_a_field_of_another_type_breaks_no_reader(
    name: str, record: dict[str, Any], readers: Mapping[str, Reader]
) -> None:
    """What fuzzing found, one record each."""
    with suppress(BadRecordError):
        for event in readers[name].read(record, 1):
            assert not wrong_with(event)
