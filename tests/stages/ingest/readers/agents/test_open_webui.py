"""Open WebUI exports: a tree of messages, answers side by side, thumbs with reasons, chats without a snapshot."""

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
from flywheel.stages.ingest.readers.agents.open_webui import READER


def message(name: str, parent: str | None, role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "parentId": parent, "childrenIds": [], "role": role, "content": content, **more}


TREE = [
    message("m1", None, "user", "where is order 7?", timestamp=1790850000),
    message("m2", "m1", "assistant", "Try later.", model="qwen3-8b", timestamp=1790850001, usage={"prompt_tokens": 9}),
    message("m3", "m1", "assistant", "It arrives on Monday.", model="qwen3-14b", timestamp=1790850001),
    message("m4", "m3", "user", "Thanks.", timestamp=1790850002),
    message("m5", "m4", "assistant", "Bye.", model="qwen3-14b", timestamp=1790850003),
]


def chat(current: str = "m5") -> dict[str, Any]:
    history = {"currentId": current, "messages": {m["id"]: m for m in TREE}}
    return {"id": "c1", "title": "Orders", "chat": {"id": "", "history": history}}


def feedback(**changed: Any) -> dict[str, Any]:
    return {
        "id": "f1", "user_id": "u1", "version": 0, "type": "rating",
        "data": {
            "rating": -1, "model_id": "qwen3-8b", "reason": "not_helpful", "comment": "no date",
            "details": {"rating": 2},
        },
        "meta": {"arena": False, "chat_id": "c1", "message_id": "m2"},
        "snapshot": {"chat": chat()}, "created_at": 1790850300, "updated_at": 1790850400, **changed,
    }  # fmt: skip


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 2))


def test_the_chat_its_other_answer_and_the_rating() -> None:
    events = read(feedback())
    assert [(e["conversation_id"], e["kind"]) for e in events] == [
        ("c1", "request"), ("c1", "model_call"), ("c1", "request"), ("c1", "model_call"),
        ("c1/m2", "model_call"), ("c1/m2", "feedback"), ("c1/m2", "feedback"),
    ]  # fmt: skip
    other, thumb, mark = events[4:]
    assert (other["model"], other["policy"], other["ids"]) == ("qwen3-8b", "qwen3-8b", ["message:m2"])
    assert other["payload"] == {
        "message": {"role": "assistant", "content": "Try later."}, "response_id": "m2", "input_tokens": 9,
        "input": [{"role": "user", "content": "where is order 7?"}],
    }  # fmt: skip
    aim = {"target": "response", "target_id": "m2", "annotator": "human"}
    assert thumb["payload"] == {
        "name": "rating", "value": -1, "label": "down", "comment": "not_helpful; no date", **aim,
    }  # fmt: skip
    assert mark["payload"] == {"name": "rating_detail", "value": 2, "scale": [1, 10], **aim}
    assert (thumb["target"], thumb["user"], thumb["ts"].isoformat()) == (
        "message:m2",
        "u1",
        "2026-10-01T10:26:40+00:00",
    )


def test_a_rated_answer_on_the_way_is_judged_there() -> None:
    record = feedback(meta={"chat_id": "c1", "message_id": "m3"}, data={"rating": "1", "model_id": "qwen3-14b"})
    events = read(record)
    assert events[-1]["conversation_id"] == "c1"
    assert events[-1]["payload"]["label"] == "up"
    assert {e["conversation_id"] for e in events} == {"c1", "c1/m2"}


def test_without_a_snapshot_the_rating_waits_for_its_chat() -> None:
    (event,) = read(feedback(snapshot=None, data={"rating": 1, "model_id": "m"}))
    assert (event["conversation_id"], event["target"], event["payload"]["label"]) == ("c1", "message:m2", "up")


def test_an_exported_chat_with_ratings_on_its_messages() -> None:
    rated = {**TREE[2], "annotation": {"rating": 1, "comment": "yes"}}
    record = chat()
    record["chat"]["history"]["messages"]["m3"] = rated
    events = read({**record, "user_id": "u1"})
    assert [e["kind"] for e in events] == ["request", "model_call", "request", "model_call", "feedback"]
    assert (events[-1]["payload"]["comment"], events[-1]["target"]) == ("yes", "message:m3")


def test_rows_of_its_database_are_read_as_they_are_exported() -> None:
    """`sqlite3 -json` writes columns that hold JSON as text."""
    for whole in (feedback(), chat()):
        row = {name: json.dumps(held) if isinstance(held, dict) else held for name, held in whole.items()}
        assert READER.sniff(Sample("rows.json", [row])) == READER.sniff(Sample("rows.json", [whole])) > 0
        assert read(row) == read(whole)


def test_a_circle_ends() -> None:
    record = chat("m1")
    record["chat"]["history"]["messages"]["m1"] = {**TREE[0], "parentId": "m5"}
    assert len(read(record)) == 4


def test_detection_refusal_and_steps(tmp_path: Path, take: Callable[..., Any]) -> None:
    assert READER.sniff(Sample("x.json", [{"type": "rating", "data": {}, "meta": {}}, {"chat": {}}])) == 0
    broken: list[Any] = [[], {"type": "rating"}]
    for record in broken:
        with pytest.raises(BadRecordError):
            read(record)
    twice = [feedback(), feedback(id="f2", meta={"chat_id": "c1", "message_id": "m5"})]
    (tmp_path / "feedback-history-export.json").write_text(json.dumps(twice), encoding="utf-8")
    taken = take()
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (2, 0, True)
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert sorted(episodes["conversation_id"]) == ["c1", "c1/m2"]
    assert (steps.height, episodes["task_id"].n_unique()) == (3, 1)
