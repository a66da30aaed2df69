"""Conversations that tests write by hand, and the real airline log, as events."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

import polars as pl
from flywheel.config import EpisodesConfig, RewardsConfig
from flywheel.contracts import polars_schema
from flywheel.funnel import Funnel
from flywheel.records import LogEvent, canonical_json, content_id
from flywheel.stages.conversations.episodes import build_episodes

START = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)
Message = dict[str, Any]


def user(text: str) -> Message:
    """Return a user message."""
    return {"role": "user", "content": text}


def call(name: str, arguments: dict[str, Any] | None, call_id: str = "", raw: str | None = None) -> dict[str, Any]:
    """Return a tool call."""
    return {"id": call_id, "name": name, "arguments": arguments} | ({} if raw is None else {"arguments_raw": raw})


class Talk:
    """Writes one conversation, an event a minute (or without times)."""

    def __init__(self, name: str, *, task: str | None = None, timed: bool = True) -> None:
        self.name, self.task, self.timed = name, task, timed
        self.rows: list[dict[str, Any]] = []

    def event(self, kind: str, payload: dict[str, Any], **columns: Any) -> Self:
        seq = len(self.rows)
        row: dict[str, Any] = {**dict.fromkeys(LogEvent.model_fields), "ids": []}
        row |= {
            "event_id": content_id(self.name, seq),
            "ts": START + timedelta(minutes=seq) if self.timed else None,
            "seq": seq,
            "conversation_id": self.name,
            "kind": kind,
            "task_key": self.task,
            "payload": canonical_json(payload),
            "source_format": "hand",
            "source_file": "hand.jsonl",
            "source_line": seq + 1,
        }
        self.rows.append(row | columns)
        return self

    def ask(self, *messages: Message | str, **payload: Any) -> Self:
        given = [user(m) if isinstance(m, str) else m for m in messages]
        return self.event("request", {"messages": given, **payload})

    def act(
        self, content: str | None = None, calls: Sequence[dict[str, Any]] = (), *, columns: Any = None, **payload: Any
    ) -> Self:
        message: Message = {"role": "assistant"} | ({} if content is None else {"content": content})
        message |= {"tool_calls": list(calls)} if calls else {}
        return self.event("model_call", {"message": message, **payload}, **(columns or {}))

    def result(self, content: str, status: str = "ok", *, call_id: str | None = None, name: str | None = None) -> Self:
        return self.event("tool_result", {"content": content, "status": status}, tool_call_id=call_id, tool_name=name)

    def use(self, name: str, arguments: dict[str, Any], status: str = "ok") -> Self:
        """Call a tool and get its result."""
        call_id = f"{self.name}-{len(self.rows)}"
        return self.act(calls=[call(name, arguments, call_id)]).result(status, status, call_id=call_id)

    def feedback(self, name: str, **payload: Any) -> Self:
        return self.event("feedback", {"name": name, **payload})

    def outcome(self, value: float, **payload: Any) -> Self:
        return self.event("outcome", {"name": "reward", "value": value, **payload})


def events_of(talks: Iterable[Talk]) -> pl.DataFrame:
    """Return the conversations' events."""
    return pl.DataFrame([row for talk in talks for row in talk.rows], schema=polars_schema(LogEvent))


class Made(NamedTuple):
    """What a signal is given."""

    episodes: pl.DataFrame
    steps: pl.DataFrame
    events: pl.DataFrame
    cfg: RewardsConfig


def made(*talks: Talk) -> Made:
    """Return the conversations as episodes, steps and events."""
    events = events_of(talks)
    return Made(*build_episodes(events, EpisodesConfig(), Funnel()), events, RewardsConfig())


def airline_events(path: Path) -> pl.DataFrame:
    """Return the airline log's events, read as plainly as can be."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return events_of(map(_airline_talk, json.load(stream)))


def _airline_talk(record: dict[str, Any]) -> Talk:
    talk = Talk(f"{record['task_id']}-{record['trial']}", task=str(record["task_id"]), timed=False)
    for message in record["traj"]:
        if message["role"] == "assistant":
            talk.act(message["content"], list(_airline_calls(message)))
        elif message["role"] == "tool":
            status = "failed" if message["content"].startswith("Error") else "ok"
            talk.result(message["content"], status, call_id=message["tool_call_id"], name=message["name"])
        else:
            talk.ask(message)
    return talk.outcome(record["reward"])


def _airline_calls(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for one in message.get("tool_calls") or []:
        yield call(one["function"]["name"], json.loads(one["function"]["arguments"]), one["id"])
