"""Nights of a world: which tasks come, who asks, and what production would log. The truth goes to a file of its own."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from flywheel.io import files

from flywheel_worlds.dialects import DIALECTS, Logged, feedback_line
from flywheel_worlds.talk import Deed, Purpose, Server, Talk, Task, World, play, seed_of
from flywheel_worlds.users import USERS, character

START = datetime(2026, 11, 1, 8, tzinfo=UTC)
KEPT_APART: dict[Purpose, tuple[float, float]] = {"exam": (0, 0.05), "gate": (0.05, 0.1), "served": (0.1, 1)}
NO_FEEDBACK = frozenset({"openai", "anthropic"})  # formats without it: feedback comes in a file of its own


def share(text: str) -> float:
    """Return a number from 0 to 1 that depends on the text alone."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


def kept_apart(world: World, purpose: Purpose) -> list[Task]:
    """Return the tasks for a purpose, families taking turns until each is exhausted, by hash within a family.

    A twentieth of all tasks each is never served: for the gate's evaluator, and for an exam that no gate sees.
    A world may say of a task itself what it is for.
    """
    low, high = KEPT_APART[purpose]
    families: dict[str, list[Task]] = {}
    for task in world.tasks():
        by_hash = low <= share(f"kept apart: {task.text}") < high
        if task.purpose == purpose or (task.purpose is None and by_hash):
            families.setdefault(task.family, []).append(task)
    shuffled = [sorted(tasks, key=lambda task: share(task.text)) for tasks in families.values()]
    longest = max(map(len, shuffled), default=0)
    return [tasks[turn] for turn in range(longest) for tasks in shuffled if turn < len(tasks)]


def tasks_of(world: World, night: int, count: int, *, repeat: bool = False) -> list[Task]:
    """Return a night's tasks: new ones every night until all have come, or the same ones for ever.

    Args:
        world: whose tasks.
        night: from 1.
        count: tasks a night.
        repeat: whether the first night's come every night.
    """
    start = 0 if repeat else (night - 1) * count
    return list(islice(cycle(kept_apart(world, "served")), start, start + count))


class Night(NamedTuple):
    """What a night wrote: lines of the log, feedback that came hours later, and what was true of each talk."""

    log: list[dict[str, Any]]
    feedback: list[dict[str, Any]]
    truth: list[dict[str, Any]]

    def write(self, out: Path, truth: Path, name: str) -> None:
        """Write log and feedback to one folder, the truth to another."""
        for folder, file, rows in (
            (out, f"{name}.jsonl", self.log),
            (out, f"{name}-feedback.jsonl", self.feedback),
            (truth, f"{name}.jsonl", self.truth),
        ):
            folder.mkdir(parents=True, exist_ok=True)
            if rows:
                files.atomic_write(folder / file, "".join(json.dumps(row) + "\n" for row in rows))
            else:
                (folder / file).unlink(missing_ok=True)


class Order(NamedTuple):
    """What a night is made of."""

    night: int = 1
    tasks: int = 60
    attempts: int = 1
    log: str = "native"
    seed: int = 0
    repeat: bool = False


def serve(world: World, server: Server, order: Order) -> Night:
    """Let a policy serve one night."""
    asked = tasks_of(world, order.night, order.tasks, repeat=order.repeat)
    rows = [(task, attempt) for task in asked for attempt in range(order.attempts)]
    talks, users = [], []
    for number, (task, attempt) in enumerate(rows):
        seed = seed_of(world.name, order.seed, order.night, task.text, attempt)
        users.append(seed % USERS)
        talks.append(Talk(world, task, seed, character(seed % USERS), f"n{order.night:02d}{number:04d}"))
    play(talks, server, world.tools)
    night = Night([], [], [])
    for number, (talk, user) in enumerate(zip(talks, users, strict=True)):
        logged, late = _logged(world, server, order, talk, (number, user))
        night.log.extend(DIALECTS[order.log](logged))
        night.feedback.extend(late)
        night.truth.append(_truth(logged, talk, order, rows[number][1]))
    return night


def _logged(
    world: World, server: Server, order: Order, talk: Talk, who: tuple[int, int]
) -> tuple[Logged, list[dict[str, Any]]]:
    number, user = who
    logged = Logged(
        conversation_id=f"{world.name}-{order.seed}-n{order.night:02d}-{number:04d}",
        user=f"user{user:02d}@{world.name}.example", policy=server.name, model=server.model,
        started=START + timedelta(days=order.night, minutes=2 * number), tools=world.tools,
        messages=talk.messages, draws=talk.draws,
    )  # fmt: skip
    late: list[Deed] = []
    for deed in talk.session.deeds:
        if deed.late or order.log in NO_FEEDBACK:
            late.append(deed)
        else:
            logged.deeds.append((deed.name, deed.value))
    hours = random.Random(seed_of("late", logged.conversation_id)).randrange(1, 24)  # noqa: S311 - reproducible
    when = logged.started + timedelta(hours=hours)
    return logged, [feedback_line(logged, (deed.name, deed.value), when) for deed in late]


def _truth(logged: Logged, talk: Talk, order: Order, attempt: int) -> dict[str, Any]:
    verdict = talk.session.verdict()
    return {
        "conversation_id": logged.conversation_id, "night": order.night, "task": talk.task.text,
        "family": talk.task.family, "attempt": attempt, "user": logged.user, "policy": logged.policy,
        "success": verdict.success, "content": verdict.content, "harm": list(verdict.harm), "acts": talk.acts,
        "tokens": sum(len(draw.ids) for draw in talk.draws.values()),
    }  # fmt: skip


def summary(truth: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return shares of talks: succeeded, user content, with harm; and the number of talks and tokens."""
    talks = max(1, len(truth))
    return {
        "talks": len(truth),
        "success": round(sum(row["success"] for row in truth) / talks, 4),
        "content": round(sum(row["content"] for row in truth) / talks, 4),
        "harm": round(sum(bool(row["harm"]) for row in truth) / talks, 4),
        "tokens": sum(row["tokens"] for row in truth),
    }
