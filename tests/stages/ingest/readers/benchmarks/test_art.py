"""ART's trajectories: every form that its own writers gave, and what older files lack."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.benchmarks.art import READER

MADE = Path(__file__).parents[4] / "fixtures" / "art"
SAMPLED = {"finish_reason": "stop", "index": 0, "message": {"role": "assistant", "content": "Try later."}}
PLAIN: dict[str, Any] = {
    "messages_and_choices": [{"role": "user", "content": "Where is order 7?"}, SAMPLED],
    "reward": 0.5, "metrics": {"duration": 5.0, "note": "fast"}, "metadata": {"scenario": 7}, "logs": [],
}  # fmt: skip


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


@pytest.mark.parametrize(
    ("name", "attempts", "acts", "records"),
    [
        ("groups.jsonl", 3, 8, 2),
        ("logged.jsonl", 2, 4, 2),
        ("compact.json", 2, 6, 1),
        ("models/shop/trajectories/train/0004.parquet", 3, 8, 3),
        ("v1.parquet", 2, 4, 2),
    ],
)
def test_every_form_gives_the_same_attempts(
    name: str, attempts: int, acts: int, records: int, take: Callable[..., Any]
) -> None:
    taken = take(MADE / name, root=MADE)
    assert (taken.read, dict(taken.ignored), taken.quarantined.height) == (records, {}, 0)
    assert taken.adds_up()
    assert set(taken.events["source_format"]) == {"art"}
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert (episodes.height, steps.height) == (attempts, acts)
    named = taken.events.filter(task_key="art/order-eta")
    assert named["conversation_id"].n_unique() == 2, "a group is one task"
    rewards = sorted(p["value"] for p in taken.payloads() if p.get("name") == "reward")
    assert rewards == [0.0] * (attempts - 1) + [1.0]


def test_only_what_was_sampled_is_an_act(take: Callable[..., Any]) -> None:
    taken = take(MADE / "logged.jsonl", root=MADE)
    _, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    first, second = [json.loads(o) for o in steps["observation"]][:2]
    assert [m["role"] for m in first] == ["system", "user", "assistant", "user"]
    assert [m["role"] for m in second] == ["tool"]
    assert not steps["resets_context"].any()
    assert [list(names) for names in steps["tool_names"]][:2] == [["get_order"], []]
    assert steps["tool_status"][0].to_list() == ["failed"]


def test_tokens_schemas_and_metrics_are_kept(take: Callable[..., Any]) -> None:
    calls = [p for p in take(MADE / "compact.json", root=MADE).payloads() if "message" in p]
    assert {
        (str(c["prompt_token_ids"]), str(c["completion_token_ids"]), str(c["completion_logprobs"])) for c in calls
    } == {("[1, 2, 3]", "[4]", "[-0.25]")}
    assert [c["finish_reason"] for c in calls][:2] == ["tool_calls", "stop"]
    assert calls[0]["tools"][0]["function"]["name"] == "get_order"
    (metric,) = [e for e in read(PLAIN) if e["kind"] == "feedback"]
    assert (metric["payload"]["name"], metric["payload"]["annotator"]) == ("duration", "code")


def test_another_history_begins_anew(take: Callable[..., Any]) -> None:
    _, steps = build_episodes(take(MADE / "compact.json", root=MADE).events, EpisodesConfig(), Funnel())
    assert steps.filter(index=2)["resets_context"].to_list() == [True, True]
    assert json.loads(steps.filter(index=2)["observation"][0]) == [{"content": "Sum it up.", "role": "user"}]


def test_exchanges_are_calls_in_time(take: Callable[..., Any]) -> None:
    events = take(MADE / "groups.jsonl", root=MADE).events.filter(source_line=2)
    calls = events.filter(kind="model_call").sort("seq")
    assert calls["ts"].is_sorted()
    assert (calls["ts"].null_count(), set(calls["policy"])) == (0, {"shop@4"})
    _, steps = build_episodes(events, EpisodesConfig(), Funnel())
    assert not steps["resets_context"].any()
    assert steps["tool_status"].to_list() == [["failed"], []]


def test_exchanges_of_two_protocols() -> None:
    asked = {"model": "base", "messages": [{"role": "user", "content": "Where?"}], "max_tokens": 9}
    said = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Here."}], "model": "base"}
    later = {"start_time": "2026-10-01T09:00:02Z", "request": asked, "response": said}
    chat = {"id": "c", "object": "chat.completion", "model": "base", "choices": [SAMPLED]}
    sooner = {"start_time": "2026-10-01T09:00:01Z", "request": asked, "response": chat}
    exchanges = {"messages": [later], "chat_completions": [sooner], "responses": [], "completions": [{}]}
    events = read({"exchanges": exchanges, "reward": 1, "initial_policy_version": 3, "metrics": {}})
    assert [e["payload"]["message"]["content"] for e in events[:2]] == ["Try later.", "Here."]
    assert {e["policy"] for e in events[:2]} == {"base@3"}


def test_where_a_run_keeps_its_files_tells_the_policy(take: Callable[..., Any]) -> None:
    taken = take(MADE / "models", root=MADE)
    named = taken.events.filter(task_key="art/order-eta")
    assert (set(named["policy"]), set(named["model"])) == ({"shop@4"}, {"shop"})
    assert set(take(MADE / "v1.parquet", root=MADE).events["policy"]) == {None}


def test_attempts_of_one_group_are_one_task_even_unnamed() -> None:
    other = {**PLAIN, "metadata": {}, "messages_and_choices": [{"role": "user", "content": "WHERE?"}, SAMPLED]}
    first = {**PLAIN, "metadata": {}}
    group = {"trajectories": [first, other, other], "exceptions": [], "metadata": {}, "metrics": {}, "logs": []}
    events = read(group)
    assert len({e["task_key"] for e in events}) == 1
    assert len({e["conversation_id"] for e in events}) == 3, "equal words in another place are another attempt"
    assert read(first)[0]["task_key"] == events[0]["task_key"]
    assert read({**group, "metadata": {"scenario_id": "x"}})[0]["task_key"] == "art/x"


def test_without_marks_every_answer_is_an_act() -> None:
    bare = {**PLAIN, "messages_and_choices": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]}
    assert [e["kind"] for e in read(bare)][:2] == ["request", "model_call"]


def test_what_is_left_after_the_last_act_is_kept() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{"}}
    turns = [
        {"role": "assistant", "content": "Hi."},
        {"finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [call]}},
        {"role": "tool", "tool_call_id": "c1", "content": "Error: cut"},
        {"role": "assistant", "content": "written by a script"},
        {"role": "user", "content": "Bye."},
    ]
    events = read({**PLAIN, "messages_and_choices": turns, "metrics": None})
    assert [(e["kind"], e["seq"]) for e in events] == [
        ("model_call", 1), ("tool_result", 2), ("request", 3), ("outcome", 4),
    ]  # fmt: skip
    assert events[0]["payload"]["message"]["tool_calls"][0]["arguments_raw"] == "{"
    assert events[0]["payload"]["input"] == [{"role": "assistant", "content": "Hi."}]


def test_what_holds_nothing_gives_nothing_and_what_is_none_is_refused() -> None:
    empty: list[Any] = [
        {"trajectory_json": None, "group_json": "{}", "group_index": 0},
        {"trajectories": [], "metadata": {}},
        {"format": "art.trajectories", "version": 1, "kind": "tokenized_history", "strings": [], "data": {"value": {}}},
        {**PLAIN, "messages_and_choices": [], "reward": None},
    ]
    for record in empty:
        assert read(record) == []
    unbegun = read({**PLAIN, "messages_and_choices": []})
    assert [e["kind"] for e in unbegun[:2]] == ["request", "outcome"]
    refused: list[Any] = [[], {"messages": []}, {**PLAIN, "messages_and_choices": [7]}]
    for record in refused:
        with pytest.raises((BadRecordError, TypeError, ValueError)):
            read(record)


def test_the_compact_form_of_what_was_tokenized() -> None:
    data = {"trajectory": {"$0": PLAIN["messages_and_choices"], "reward": "1"}, "history": {"tokens": [1]}}
    record = {"format": "art.trajectories", "strings": {"$0": "messages_and_choices"}, "data": [data]}
    assert [e["kind"] for e in read(record)] == ["request", "model_call", "outcome"]


def test_detection() -> None:
    assert READER.sniff(Sample("x", [PLAIN])) == 1
    assert READER.sniff(Sample("x", [{"trajectories": [PLAIN], "metadata": {}}])) == 1
    others = [{"messages": [{"role": "user", "content": "a"}], "reward": 1}, {"trajectories": [{"steps": []}]}, []]
    assert READER.sniff(Sample("x", others)) == 0
