"""User turns, each with the event that is its evidence.

In: episodes, steps and events. Out: each episode's user turns in order. A turn's evidence is the request event that
brought it, or, in logs that only repeat the history, the model call that first saw it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import orjson
import polars as pl

from flywheel.stages.common.memo import cached_by_identity
from flywheel.stages.signals.lexicon import fold
from flywheel.stages.signals.rows import Evidence

EpisodeKey = tuple[str, str]  # episode id, task id

_FORM = 100  # characters that two calls of a program share
_PAGE, _LINES = 500, 5  # characters and lines of what only a program asks
BY_USER = '"role":"user"'  # as canonical JSON writes it; inside a text the quotes would be escaped


class Turn(NamedTuple):
    """One user message."""

    before_step: int  # the step that saw it first; the number of steps for what the agent never answered
    text: str  # folded, see `lexicon.fold`
    evidence: Evidence
    reaction: bool  # whether the agent had acted before
    answered: bool  # whether it acted again after it

    @property
    def after_step(self) -> int | None:
        """The step that it answers: the last one before it; None where the log holds none."""
        return self.before_step - 1 if self.before_step else None


@cached_by_identity  # every signal of a partition asks for the same turns
def user_turns(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame) -> dict[EpisodeKey, list[Turn]]:
    """Return the user turns of each episode that has any, in order."""
    requests = _requests(episodes, events)
    times = dict(events.filter(events["kind"] == "model_call").select("event_id", "ts").iter_rows())
    by_episode: dict[EpisodeKey, list[Turn]] = {}
    for key, rows in _observations(episodes, steps).items():
        turns = _turns(rows, requests.get(key[0], {}), times)
        if turns:
            by_episode[key] = turns
    return by_episode


class _Observation(NamedTuple):
    step: int
    messages: str
    resets: bool
    event_id: str
    answered: bool


def _observations(episodes: pl.DataFrame, steps: pl.DataFrame) -> dict[EpisodeKey, list[_Observation]]:
    """Return the observations with user messages of each episode's steps, and then its tail."""
    of_steps = steps.select("episode_id", "task_id", "index", "observation", "resets_context", "event_id")
    of_steps = of_steps.with_columns(answered=pl.lit(value=True))
    tail = episodes.select(
        "episode_id",
        "task_id",
        index="n_steps",
        observation="tail",
        resets_context=pl.lit(False),
        event_id=pl.lit(""),
        answered=pl.lit(value=False),
    )
    rows: dict[EpisodeKey, list[_Observation]] = defaultdict(list)
    by_user = pl.concat([of_steps, tail]).filter(pl.col("observation").str.contains(BY_USER, literal=True))
    for row in by_user.sort("episode_id", "index").iter_rows():
        rows[row[0], row[1]].append(_Observation(*row[2:]))
    return rows


def _requests(episodes: pl.DataFrame, events: pl.DataFrame) -> dict[str, dict[str, deque[Evidence]]]:
    """Return, for each episode, the request events by the user texts in them, oldest first."""
    rows = (
        events.filter((pl.col("kind") == "request") & pl.col("payload").str.contains(BY_USER, literal=True))
        .unique(["conversation_id", "event_id"])
        .join(episodes.select("conversation_id", "episode_id"), on="conversation_id")
        .sort("episode_id", "ts", "seq", "event_id", nulls_last=False)
        .select("episode_id", "event_id", "ts", "payload")
    )
    requests: dict[str, dict[str, deque[Evidence]]] = defaultdict(lambda: defaultdict(deque))
    for episode_id, event_id, ts, payload in rows.iter_rows():
        for text in _user_texts(orjson.loads(payload).get("messages") or []):
            requests[episode_id][text].append(Evidence(event_id, ts))
    return requests


def _user_texts(messages: Iterable[dict[str, Any]]) -> list[str]:
    contents = (m.get("content") for m in messages if m.get("role") == "user")
    return [content for content in contents if isinstance(content, str) and content.strip()]


def _forms(rows: list[_Observation]) -> set[int]:
    """Return the steps whose context a program made by filling a form: no user answers the act before there.

    Such a context replaces the one before and has no answer in it, and what is asked is a page long, or is asked in
    the words of another one, with lines between what they share: people who repeat themselves do not write so.
    """
    alone: dict[int, str] = {}
    for n, row in enumerate(rows):
        messages = orjson.loads(row.messages)
        is_new = row.resets or n == 0
        if (
            is_new
            and (asked := _user_texts(messages))
            and all(message.get("role") != "assistant" for message in messages)
        ):
            alone[row.step] = asked[-1]
    pages = {step for step, text in alone.items() if len(text) >= _PAGE and text.count("\n") >= _LINES}
    return pages | {
        step
        for (before, first), (step, text) in pairwise(alone.items())
        for step in (before, step)
        if _have_form(first, text)
    }


def _have_form(one: str, other: str) -> bool:
    """Whether two texts begin and end alike, with a line or more in what they share."""
    begin = _common(one, other)
    end = _common(one[begin:][::-1], other[begin:][::-1])
    return begin + end >= _FORM and "\n" in one[:begin] + one[len(one) - end :]


def _common(one: str, other: str) -> int:
    """Return how many characters two texts begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _turns(rows: list[_Observation], requests: dict[str, deque[Evidence]], times: dict[str, Any]) -> list[Turn]:
    turns: list[Turn] = []
    seen: set[str] = set()
    forms = _forms(rows)
    for row in rows:
        acted = row.step > 0 and row.step not in forms
        for message in orjson.loads(row.messages):
            acted = acted or message.get("role") == "assistant"
            for text in _user_texts([message]):
                if row.resets and text in seen:  # a rewritten history repeats earlier turns
                    continue
                seen.add(text)
                events = requests.get(text)
                evidence = events.popleft() if events else Evidence(row.event_id, times.get(row.event_id))
                turns.append(Turn(row.step, fold(text), evidence, acted, row.answered))
    return turns
