"""What happened, whatever logs it: two conversations of a help desk, and what a reader has to find of them.

`TALKS` has two requests in its first conversation; `TASKS` asks the same at once; in `SERIAL` an action makes one call.
In each there are calls side by side (not in `SERIAL`), a call that fails, and answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

Files = dict[str, Any]  # name: a document, or `Lines`
BEGAN = datetime(2026, 10, 1, 9, 0, tzinfo=UTC)
MODEL = "acme-large-2"
SYSTEM = "You help the customers of a shop."


class Lines(list[Any]):
    """Records of a file of lines."""


class Call(NamedTuple):
    """A call with its result."""

    id: str
    name: str
    args: dict[str, Any]
    result: str
    failed: bool = False

    @property
    def text(self) -> str:
        """Arguments as JSON."""
        return json.dumps(self.args)


class Act(NamedTuple):
    """What the agent did at once: words, calls, and the tokens that it took."""

    text: str | None
    calls: tuple[Call, ...] = ()
    read: int = 0
    wrote: int = 0


@dataclass(frozen=True)
class Talk:
    """A conversation: requests (texts) and acts in order."""

    id: str
    task: str
    turns: tuple[str | Act, ...]
    solved: bool

    @property
    def acts(self) -> list[Act]:
        """What the agent did."""
        return [turn for turn in self.turns if isinstance(turn, Act)]

    @property
    def asked(self) -> str:
        """The first request."""
        return next(turn for turn in self.turns if isinstance(turn, str))

    @property
    def answer(self) -> str:
        """The last words."""
        return self.acts[-1].text or ""


@dataclass(frozen=True, order=True)
class Told:
    """What is counted of a conversation; None and () where the log does not say."""

    asked: str = ""
    answered: str = ""
    steps: int = 0
    calls: tuple[str, ...] = ()
    results: int = 0
    failed: int = 0
    task: str = ""
    outcomes: tuple[float, ...] = ()
    tokens: tuple[int, int] = (0, 0)
    model: str = ""


class Export(NamedTuple):
    """An export: its files, and what is in them by hand; without `told` it holds no conversation."""

    files: Files
    told: Sequence[Told]


EXPORTS: dict[tuple[int, str], Callable[[], Export]] = {}


def export(number: int, name: str) -> Callable[[Callable[[], Export]], Callable[[], Export]]:
    """Register a function that makes an export, in a set, under the name of the system."""

    def register(make: Callable[[], Export]) -> Callable[[], Export]:
        EXPORTS[number, name] = make
        return make

    return register


ORDER = Call("call_a1", "get_order", {"id": 7}, '{"state": "shipped"}')
TIER = Call("call_a2", "get_tier", {"id": 3}, '{"tier": "gold"}')
CANCEL = Call("call_a3", "cancel_order", {"id": 7, "why": "late"}, "Error: order 7 has shipped", failed=True)
REFUND = Call("call_b1", "refund", {"id": 9, "amount": 12.5}, '{"refunded": 12.5}')
ASKS = ("Where is my order 7 please?", "Then cancel it.", "Refund my order 9, it came broken.")

TALKS = (
    Talk("talk-a", "task-a", (
        ASKS[0], Act("I look it up.", (ORDER, TIER), 110, 21), Act("It is on its way.", (), 150, 12),
        ASKS[1], Act(None, (CANCEL,), 180, 17), Act("It cannot be cancelled: it has shipped.", (), 210, 14)), False),
    Talk("talk-b", "task-b", (
        ASKS[2], Act(None, (REFUND,), 105, 18), Act("You get 12.50 back.", (), 140, 11)), True),
)  # fmt: skip
TASKS = (
    replace(TALKS[0], turns=(
        "Cancel my order 7 if it is late.", Act("I look it up.", (ORDER, TIER), 110, 21),
        Act(None, (CANCEL,), 180, 17), Act("It cannot be cancelled: it has shipped.", (), 210, 14))),
    TALKS[1],
)  # fmt: skip
SERIAL = (
    replace(TALKS[0], turns=(
        "Cancel my order 7 if it is late.", Act("I look it up.", (ORDER,), 110, 21), Act("And the tier.", (TIER,), 130, 9),
        Act("Now I cancel it.", (CANCEL,), 180, 17), Act("It cannot be cancelled: it has shipped.", (), 210, 14))),
    replace(TALKS[1], turns=(
        ASKS[2], Act("I refund it.", (REFUND,), 105, 18), Act("You get 12.50 back.", (), 140, 11))),
)  # fmt: skip


def quiet(talks: Sequence[Talk]) -> tuple[Talk, ...]:
    """Return talks in which actions that make calls have no words."""
    return tuple(
        replace(t, turns=tuple(a._replace(text=None) if isinstance(a, Act) and a.calls else a for a in t.turns))
        for t in talks
    )


@dataclass(frozen=True)
class Says:
    """What a format shows next to words and calls; the rest of a `Told` is the same in all."""

    tokens: bool = False
    task: bool = False
    outcomes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    model: bool = False


def told(talks: Sequence[Talk], fmt: Says = Says(), **changed: Any) -> list[Told]:
    """Return what is in an export of talks.

    Args:
        talks: what was written.
        fmt: what the format gives of them.
        changed: fields of `Told` that the format changes in all of them.
    """
    return [
        replace(
            Told(
                asked=talk.asked,
                answered=talk.answer,
                steps=len(talk.acts),
                calls=tuple(f"{call.name}{json.dumps(call.args, sort_keys=True)}" for call in calls_of(talk)),
                results=len(calls_of(talk)),
                failed=sum(call.failed for call in calls_of(talk)),
                task=talk.task if fmt.task else "",
                outcomes=tuple(fmt.outcomes.get(talk.id, ())),
                tokens=(sum(a.read for a in talk.acts), sum(a.wrote for a in talk.acts)) if fmt.tokens else (0, 0),
                model=MODEL if fmt.model else "",
            ),
            **changed,
        )
        for talk in talks
    ]


def calls_of(talk: Talk) -> list[Call]:
    """Return all calls of a talk."""
    return [call for act in talk.acts for call in act.calls]


def solved(talks: Sequence[Talk] = TALKS, times: int = 1) -> dict[str, tuple[float, ...]]:
    """Return 1 or 0 for each talk, by its id."""
    return {talk.id: (float(talk.solved),) * times for talk in talks}


def answered(talks: Sequence[Talk]) -> list[tuple[str, str]]:
    """Return each request with the words that answer it in the end."""
    pairs: dict[str, str] = {}
    asked = ""
    for talk in talks:
        for turn in talk.turns:
            asked = turn if isinstance(turn, str) else asked
            if isinstance(turn, Act) and turn.text and not turn.calls:
                pairs[asked] = turn.text
    return list(pairs.items())


def at(minute: float) -> str:
    """Return a time of the conversations, in ISO form."""
    return (BEGAN + timedelta(minutes=minute)).isoformat().replace("+00:00", "Z")


def unix(minute: float) -> int:
    """Return a time of the conversations in seconds."""
    return int((BEGAN + timedelta(minutes=minute)).timestamp())


def paced(talk: Talk) -> Iterator[tuple[int, str | Act]]:
    """Yield the turns of a talk with a minute each; those of the second talk are an hour later."""
    start = 0 if talk.id.endswith("a") else 60
    yield from enumerate(talk.turns, start)


def openai(talk: Talk, *, system: str | None = None) -> list[dict[str, Any]]:
    """Return a talk as messages of Chat Completions."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for turn in talk.turns:
        if isinstance(turn, str):
            messages.append({"role": "user", "content": turn})
            continue
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.text}} for c in turn.calls
        ]
        messages.append({"role": "assistant", "content": turn.text, **({"tool_calls": calls} if calls else {})})
        messages += [{"role": "tool", "tool_call_id": c.id, "content": c.result} for c in turn.calls]
    return messages
