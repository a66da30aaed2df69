"""Attempts in an environment, side by side: a policy acts, what it runs in answers, until each attempt is over.

In: a policy, and turns of the replay environment or of a world. Out: the conversations, with what came of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flywheel.config import Config
from flywheel.extensions import Policy, Turn
from flywheel.models.policy import TextPolicy
from flywheel.models.scoring import Draw
from flywheel.stages.evaluate.window import Ask, Messages, Tools, fits

TEMPERATURE = 1.0  # of sampled attempts: the policy's own distribution


class Played:
    """One attempt and the conversation so far.

    Args:
        turn: answers its actions.
        prompt: the messages before its first action.
        tools: what is at hand.
        given: actions that it begins with, whatever the policy would do.
    """

    def __init__(self, turn: Turn, prompt: Messages, tools: Tools, given: Sequence[Mapping[str, Any]] = ()) -> None:
        self.turn, self.tools = turn, tools
        self.given = list(given)
        self.messages: Messages = list(prompt)
        self.actions: list[int] = []  # positions of what the policy did
        self.tokens = 0

    @property
    def ask(self) -> Ask:
        """What the policy reads next."""
        return Ask(self.messages, self.tools)

    def act(self, message: Mapping[str, Any]) -> None:
        """Take an action."""
        self.actions.append(len(self.messages))
        self.messages += self.turn.take(message)


def play(policy: Policy, attempts: Sequence[Played], most_tokens: int, most_actions: int) -> None:
    """Let a policy act in all attempts until each is over; one that grows too long is stopped as over budget."""
    for attempt in attempts:
        while attempt.given and not attempt.turn.over and len(attempt.actions) < most_actions:
            attempt.act(attempt.given.pop(0))
    while acting := [attempt for attempt in attempts if not attempt.turn.over]:
        able = fits(policy, [attempt.ask for attempt in acting], most_tokens)
        asked = []
        for attempt, fit in zip(acting, able, strict=True):
            if fit and len(attempt.actions) < most_actions:
                asked.append(attempt)
            else:
                attempt.turn.stop("over budget")
        prompts, tools = [a.messages for a in asked], [a.tools for a in asked]
        for attempt, answer in zip(asked, policy.generate(prompts, tools, max_new_tokens=most_tokens), strict=True):
            attempt.act(answer.message)
            attempt.tokens += answer.tokens


class Place(NamedTuple):
    """Where attempts begin: a prompt, its tools, and what opens a turn for a seed (None: the task is not known).

    `guides` are the actions with which the first attempts begin, one after the other.
    """

    prompt: Messages
    tools: Tools
    open: Callable[[int], Turn | None]
    guides: Sequence[Messages] = ()


class Tried(NamedTuple):
    """One attempt: what followed the prompt, and the chance that it succeeded (None: not known).

    `actions` are the positions in `messages` of what the policy did.
    """

    messages: Messages
    actions: list[int]
    success: float | None
    number: int  # of the attempt at its place


def sample(
    policy: TextPolicy, config: Config, places: Sequence[Place], numbers: range, temperature: float = TEMPERATURE
) -> list[list[Tried]]:
    """Return attempts of a policy at each place, sampled; equal seeds, numbers, places and weights give equal ones.

    Args:
        policy: makes them.
        config: the evaluation, replay and training sections.
        places: where to begin.
        numbers: of the attempts at each, below `train.attempts`; at a place that is not known there are none.
        temperature: of the draws.
    """
    tried: list[list[Tried]] = [[] for _ in places]
    for at, number in enumerate(numbers):
        seed = config.train.seed * config.train.attempts + number
        turns = [place.open(seed) for place in places]
        played = {
            i: Played(turn, place.prompt, place.tools, place.guides[at] if at < len(place.guides) else ())
            for i, (turn, place) in enumerate(zip(turns, places, strict=True))
            if turn is not None
        }
        drawing = policy.drawing(Draw(temperature, seed, numbers.stop - 1 - number))
        play(drawing, list(played.values()), config.eval.max_new_tokens, config.replay.max_calls + 1)
        for i, one in played.items():
            start = len(places[i].prompt)
            tried[i].append(Tried(one.messages[start:], [act - start for act in one.actions], one.turn.success, number))
    return tried
