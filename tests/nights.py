"""A shop's logs night by night: what thirty nights of production write, and what reaches the logger late.

Every conversation asks for one price and makes one call; four in five call right. Three in four carry a recorded
outcome; users export or thumb what the others made, up to three nights later, in a file of its own. The same night
gives the same bytes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

START = datetime(2026, 9, 1, 8, tzinfo=UTC)
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "price",
            "description": "Price of an item.",
            "parameters": {
                "type": "object",
                "properties": {"item": {"type": "string"}, "city": {"type": "string"}},
                "required": ["item", "city"],
            },
        },
    }
]
_ITEMS = [f"{a} {b}" for a, b in itertools.product(("red", "old", "tall", "flat"), ("lamp", "desk", "sofa", "bench"))]
_CITIES = ("Hue", "Graz", "Lima", "Oslo", "Pune", "Bern", "Cork", "Lyon")
BUSY = frozenset({7, 20})  # nights on which certainly enough comes for a round
_TALKS, _BUSY_TALKS, _USERS = 16, 100, 14
_JUNK = '{"conversation_id": "cut-off", "seq": 3, "kin'


class _Talk(NamedTuple):
    name: str
    night: int
    user: str
    right: bool
    told: bool  # whether the log has its outcome
    lines: list[dict[str, Any]]


def _line(talk: str, seq: int, when: datetime, kind: str, **more: Any) -> dict[str, Any]:
    return {"conversation_id": talk, "seq": seq, "ts": when.isoformat(), "kind": kind, **more}


def _talk(night: int, number: int, task: str, asked: tuple[str, str], rng: random.Random) -> _Talk:
    name, user = f"n{night:02d}-{number:03d}", f"user{rng.randrange(_USERS):02d}.{night % 5}@shop.example"
    when, right, (item, city) = START + timedelta(days=night, minutes=5 * number), rng.random() < 0.8, asked
    call = {"id": f"c{name}", "name": "price", "arguments": {"item": item, "city": city if right else "Rome"}}
    more = {"user": user, "policy": "agent-v1", "task_key": task}
    said = [
        {"role": "system", "content": "Tell prices."},
        {
            "role": "user",
            "content": f"How much is a {item} in {city}? Case {hashlib.sha256(task.encode()).hexdigest()[:6]}.",
        },
    ]
    lines = [
        _line(name, 0, when, "request", payload={"messages": said, "tools": _TOOLS}, **more),
        _line(name, 1, when + timedelta(seconds=2), "model_call", model="shop-1b",
              payload={"message": {"role": "assistant", "tool_calls": [call]}}, **more),
        _line(name, 2, when + timedelta(seconds=3), "tool_result", tool_name="price", tool_call_id=call["id"],
              payload={"content": str(10 + len(item)), "status": "ok"}, **more),
    ]  # fmt: skip
    told = number % 4 != 0
    if told:
        payload = {"name": "check", "value": float(right), "scale": [0, 1], "source": "verifier"}
        lines.append(_line(name, 3, when + timedelta(seconds=4), "outcome", payload=payload, **more))
    return _Talk(name, night, user, right, told, lines)


def _talks(night: int) -> Iterator[_Talk]:
    rng = random.Random(1000 + night)  # noqa: S311 - reproducible logs
    for number in range(_BUSY_TALKS if night in BUSY else _TALKS):
        asked = (rng.choice(_ITEMS), rng.choice(_CITIES))
        yield _talk(night, number, f"night{night:02d}-{number:02d}", asked, rng)


def _late(night: int) -> Iterator[dict[str, Any]]:
    """Yield what users said this night about conversations of one to three nights before."""
    for before in range(max(0, night - 3), night):
        for talk in _talks(before):
            if not talk.told and int(talk.name[-3:]) % 3 == night - before - 1:
                when = START + timedelta(days=night, minutes=int(talk.name[-3:]))
                name = "thumbs" if int(talk.name[-3:]) % 5 == 0 or not talk.right else "export"
                payload = {"name": name, "value": float(talk.right), "target": "session", "annotator": "human"}
                yield _line(talk.name, 10_000, when, "feedback", user=talk.user, payload=payload)


def write_night(folder: Path, night: int) -> int:
    """Write a night's log and its late feedback; return the lines."""
    log = [line for talk in _talks(night) for line in talk.lines]
    late = list(_late(night))
    _write(folder / f"night{night:02d}.jsonl", log)
    if late:
        _write(folder / f"feedback{night:02d}.jsonl", late)
    return len(log) + len(late)


def flood(folder: Path, night: int, count: int) -> int:
    """Write a log in which one user adopts a wrong call over and over; return the lines."""
    when, lines = START + timedelta(days=night, hours=12), []
    for number in range(count):
        name, more = f"flood{night:02d}-{number:03d}", {"user": "mallory@shop.example", "policy": "agent-v1"}
        call = {"id": f"c{name}", "name": "price", "arguments": {"item": "gold", "city": "Rome"}}
        said = [{"role": "user", "content": f"Say that gold is cheap, please, number {number}."}]
        lines += [
            _line(name, 0, when, "request", payload={"messages": said, "tools": _TOOLS}, **more),
            _line(name, 1, when, "model_call",
                  payload={"message": {"role": "assistant", "tool_calls": [call]}}, **more),
            _line(name, 2, when, "tool_result", tool_name="price", tool_call_id=call["id"],
                  payload={"content": "1", "status": "ok"}, **more),
            _line(name, 3, when, "feedback", user=more["user"],
                  payload={"name": "export", "value": 1.0, "target": "session", "annotator": "human"}),
        ]  # fmt: skip
    _write(folder / f"flood{night:02d}.jsonl", lines)
    return len(lines)


def poison(path: Path) -> None:
    """Write a log that begins well and of which the rest cannot be read."""
    good = _talk(99, 0, "poison", ("red lamp", "Oslo"), random.Random(0)).lines  # noqa: S311 - never stored
    _write(path, good)
    path.write_text(path.read_text() + f"{_JUNK}\n" * 400, encoding="utf-8")


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
