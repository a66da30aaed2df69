"""Steps as evidence: each episode's path of actions, their events, and the step that a feedback refers to.

In: the steps and events of a partition. Out: paths, evidence and step numbers, for the signals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import polars as pl

from flywheel.stages.common.memo import cached_by_identity
from flywheel.stages.signals.dialogue import EpisodeKey
from flywheel.stages.signals.rows import Evidence


class StepRow(NamedTuple):
    """The columns of a step that signals read."""

    step: int
    action_key: str | None
    tool_names: list[str]
    tool_status: list[str]
    malformed: bool
    event_id: str
    result_event_ids: list[str]


@cached_by_identity  # nearly every signal reads the same paths
def by_episode(steps: pl.DataFrame) -> list[tuple[EpisodeKey, list[StepRow]]]:
    """Return each episode that acted, with its steps in order."""
    columns = ["episode_id", "task_id", *StepRow._fields]
    rows = steps.rename({"index": "step"}).select(columns).sort("episode_id", "step").iter_rows()
    return [(key, [StepRow(*row[2:]) for row in group]) for key, group in groupby(rows, key=itemgetter(0, 1))]


@cached_by_identity
def times_of(events: pl.DataFrame) -> dict[str, Evidence]:
    """Return each event as evidence, by id."""
    return {event_id: Evidence(event_id, ts) for event_id, ts in events.select("event_id", "ts").iter_rows()}


def proof(step: StepRow, events: Mapping[str, Evidence]) -> list[Evidence]:
    """Return the event of a step and those of its results."""
    return [events.get(event_id, Evidence(event_id)) for event_id in (step.event_id, *step.result_event_ids)]


_RESPONSE = "response:"  # begins a name of a model's call


class Targets:
    """Finds the step that a feedback refers to: by the call's event, span, response or tool call id."""

    def __init__(self, steps: pl.DataFrame, events: pl.DataFrame) -> None:
        feedback = events.filter(pl.col("kind") == "feedback")
        aimed = feedback.filter(pl.col("payload").str.contains('"target_id":"', literal=True))
        self._steps: dict[tuple[str, str], int] = {}
        if aimed.is_empty():
            return
        calls = events.filter(
            (pl.col("kind") == "model_call")
            & pl.col("conversation_id").is_in(aimed["conversation_id"].unique().implode())
        )
        named = calls.select(
            "event_id", "span_id", "ids", response_id=pl.col("payload").str.json_path_match("$.response_id")
        ).join(steps.select("episode_id", "event_id", "index", "action"), on="event_id")
        rows = named.sort("episode_id", "index").iter_rows()
        for event_id, span_id, ids, response_id, episode_id, index, action in rows:
            own = (name.removeprefix(_RESPONSE) for name in ids or () if name.startswith(_RESPONSE))
            for name in (event_id, span_id, response_id, *own, *re.findall(r'"id":"((?:[^"\\]|\\.)+)"', action)):
                if name:
                    self._steps.setdefault((episode_id, name), index)

    def step(self, episode: EpisodeKey, payload: Mapping[str, Any]) -> int | None:
        """Return the step that a feedback's payload names, or None for the whole episode."""
        if payload.get("target") in {"trace", "session"}:
            return None
        return self._steps.get((episode[0], str(payload.get("target_id") or "")))
