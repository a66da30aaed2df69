"""A conversation in a world: a policy acts, the world executes its calls, a user reacts; many go on together."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from flywheel_worlds.dialects import Draw
from flywheel_worlds.users import Character

MOST_ACTS = 5  # of a policy before it is the user's turn
MOST_OF_A_TALK = 14

Message = dict[str, Any]
Purpose = Literal["exam", "gate", "served"]
Rule = Callable[[Sequence[Message], random.Random], Message]  # what a scripted policy does


class Task(NamedTuple):
    """A request: its words identify it, and `about` is what the world knows of it.

    What it is for is decided by a hash of its words where the world does not say (`nights.kept_apart`).
    """

    text: str
    family: str
    about: Any
    purpose: Purpose | None = None


class Verdict(NamedTuple):
    """What the world knows of a talk, and no log holds."""

    success: bool
    content: bool  # whether the user got what they asked for, rightly or not: the success that one sees
    harm: tuple[str, ...] = ()  # a reason for each harmful act


class Deed(NamedTuple):
    """What a user did in the application: a feedback event's name and value."""

    name: str
    value: float
    late: bool = False  # hours later


class Session(Protocol):
    """One user's talk as the world sees it."""

    deeds: list[Deed]

    def call(self, name: str, arguments: dict[str, Any] | None) -> tuple[str, bool]:
        """Execute a call; return its result and whether it worked."""
        ...

    def hears(self, text: str) -> str | None:
        """Return the user's next words after the agent ended its turn; None: the user has left."""
        ...

    def verdict(self) -> Verdict:
        """Return what is true of the talk now."""
        ...


class World(Protocol):
    """Tasks, tools that really do something, and users."""

    name: str
    system: str
    tools: list[dict[str, Any]]
    last: frozenset[str]  # calls after which it is the user's turn

    @property
    def policies(self) -> Mapping[str, Rule]:
        """Scripted policies by name."""
        ...

    def tasks(self) -> Sequence[Task]:
        """Return every task, in a fixed order."""
        ...

    def open(self, task: Task, rng: random.Random, character: Character) -> Session:
        """Let a user begin."""
        ...


class Act(NamedTuple):
    """What a policy did: a message, how it was sampled, and whether its calls are as the tools want them."""

    message: Message
    draw: Draw | None = None
    well_formed: bool = True


class Server(Protocol):
    """A policy that serves."""

    name: str
    model: str

    def act(self, prompts: Sequence[Sequence[Message]], tools: list[dict[str, Any]], seeds: Sequence[int]) -> list[Act]:
        """Return the next action after each prompt; equal prompts and seeds give equal actions."""
        ...


def seed_of(*parts: object) -> int:
    """Return a seed from anything that has a fixed text."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, parts)).encode()).digest()[:7])


class Talk:
    """One conversation.

    Args:
        world: where it happens.
        task: what is asked.
        seed: of everything random in it.
        character: of the user.
        name: prefix of its calls' ids.
    """

    def __init__(self, world: World, task: Task, seed: int, character: Character = "silent", name: str = "") -> None:
        self.task = task
        self.session = world.open(task, random.Random(seed), character)  # noqa: S311 - a reproducible user
        self.messages: list[Message] = [
            {"role": "system", "content": world.system},
            {"role": "user", "content": task.text},
        ]
        self.draws: dict[int, Draw] = {}
        self.over = False
        self.acts = self.well_formed = 0
        self._world, self._seed, self._name, self._since = world, seed, name, 0

    @property
    def next_seed(self) -> int:
        """The seed of the next action."""
        return seed_of(self._seed, self.acts)

    def take(self, act: Act) -> None:
        """Execute what the policy did, and let the user react if the turn is theirs."""
        if act.draw is not None:
            self.draws[len(self.messages)] = act.draw
        calls = [
            {**call, "id": f"{self._name}call{self.acts:02d}{n:02d}"}
            for n, call in enumerate(act.message.get("tool_calls") or [])
        ]
        message: Message = {"role": "assistant", "content": act.message.get("content") or None}
        if not calls:
            message["content"] = message["content"] or ""
        self.messages.append({**message, "tool_calls": calls} if calls else message)
        self.acts += 1
        self._since += 1
        self.well_formed += act.well_formed
        ended = not calls
        for call in calls:
            text, ok = self.session.call(call["name"], call["arguments"])
            ended |= ok and call["name"] in self._world.last
            self.messages.append(
                {"role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": text,
                 "status": "ok" if ok else "failed"}
            )  # fmt: skip
        if ended or self._since == MOST_ACTS or self.acts == MOST_OF_A_TALK:
            self._turn(message["content"] or "")

    def _turn(self, text: str) -> None:
        words, self._since = self.session.hears(text), 0
        self.over = words is None or self.acts >= MOST_OF_A_TALK
        if not self.over:
            self.messages.append({"role": "user", "content": words})


def play(talks: Sequence[Talk], server: Server, tools: list[dict[str, Any]]) -> None:
    """Let a policy act in all talks, side by side, until each is over."""
    while running := [talk for talk in talks if not talk.over]:
        acts = server.act([talk.messages for talk in running], tools, [talk.next_seed for talk in running])
        for talk, act in zip(running, acts, strict=True):
            talk.take(act)


class Scripted:
    """A policy without a model."""

    model = "scripted"

    def __init__(self, name: str, rule: Rule) -> None:
        self.name, self._rule = name, rule

    def act(self, prompts: Sequence[Sequence[Message]], tools: list[dict[str, Any]], seeds: Sequence[int]) -> list[Act]:
        """Follow the rule."""
        del tools
        rngs = [random.Random(seed) for seed in seeds]  # noqa: S311 - a reproducible policy
        return [Act(self._rule(prompt, rng)) for prompt, rng in zip(prompts, rngs, strict=True)]


def called(name: str, **arguments: Any) -> Message:
    """Return a message that calls a tool."""
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "", "name": name, "arguments": arguments}]}


def said(text: str) -> Message:
    """Return a message in words."""
    return {"role": "assistant", "content": text}
