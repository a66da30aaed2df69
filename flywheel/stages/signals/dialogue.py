"""User turns, each with the event that is its evidence.

In: episodes, steps and events. Out: each episode's user turns in order. A turn's evidence is the request event that
brought it, or, in logs that only repeat the history, the model call that first saw it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson
import polars as pl

from flywheel.stages.common.memo import cached_by_identity
from flywheel.stages.signals.lexicon import fold
from flywheel.stages.signals.rows import Evidence

EpisodeKey = tuple[str, str]  # episode id, task id

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


def _turns(rows: list[_Observation], requests: dict[str, deque[Evidence]], times: dict[str, Any]) -> list[Turn]:
    turns: list[Turn] = []
    seen: set[str] = set()
    for row in rows:
        acted = row.step > 0
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
