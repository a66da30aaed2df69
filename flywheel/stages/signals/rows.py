"""The rows that a signal writes, and the feedback and outcome events that signals read.

In: a signal's votes, costs or severities, one at a time. Out: a frame with the columns of `Reward`, one row per
episode, step and signal: several of one signal about one step become one row with all the evidence.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

import orjson
import polars as pl

from flywheel.contracts import frame_of, polars_schema
from flywheel.reading.feedback import plain_name
from flywheel.records import Reward
from flywheel.stages.common.memo import cached_by_identity

VERIFIER = "verifier"  # families that decide alone: a recorded result, overruled by a reviewer's answer
AUDIT = "audit"
REJECTIONS = ("complaint", "correction", "rephrase", "retry")  # signals of the words with which a user rejects a turn
ANSWERED, ANSWERED_FAMILY = "answered_", "answered"  # a rejection after which the agent acted again
CLAIMS: Literal["claims"] = "claims"  # outcomes of sources that may not state any
# Columns of events, where `[trust]` was applied: an outcome that is only a claim, an answer in an audit.
CLAIMED, REVIEWED = "claimed", "reviewed"

_NOBODY = frozenset({"llm", "code"})  # annotators

Kind = Literal["outcome", "implicit", "cost", "risk"]


def rewards_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return rows as a frame with the columns of `Reward`."""
    return frame_of(rows, Reward) if rows else pl.DataFrame(schema=polars_schema(Reward))


@dataclass(slots=True)
class _Row:
    scores: list[float] = field(default_factory=list)
    family: str = ""
    evidence: list[str] = field(default_factory=list)
    arrived: datetime | None = None
    weight: float | None = None


class SignalRows:
    """Collects one signal's rows; scores of the same episode and step are averaged and share their evidence."""

    def __init__(
        self, signal: str, family: str, kind: Kind = "implicit", *, version: int = 1, weight: float = 1.0
    ) -> None:
        self._same = {"signal": signal, "kind": kind, "weight": weight, "signal_version": version}
        self._family = family
        self._rows: dict[tuple[str, str, int | None], _Row] = {}

    def add(
        self,
        episode: tuple[str, str],
        score: float,
        evidence: Iterable[Evidence],
        *,
        step: int | None = None,
        family: str = "",
        weight: float | None = None,
    ) -> None:
        """Add a score.

        Args:
            episode: its id and its task's id.
            score: the vote in [-1, 1], the severity, or the raw cost.
            evidence: event ids with the time they arrived.
            step: the step it is about; None for the whole episode.
            family: overrides the signal's family (a thumb up is another matter than a thumb down).
            weight: overrides the signal's weight.
        """
        row = self._rows.setdefault((*episode, step), _Row(family=family or self._family))
        row.scores.append(score)
        row.weight = weight if weight is not None else row.weight
        for event in evidence:
            if event.event_id and event.event_id not in row.evidence:
                row.evidence.append(event.event_id)
            if event.ts is not None and (row.arrived is None or event.ts > row.arrived):
                row.arrived = event.ts

    def frame(self) -> pl.DataFrame:
        """Return the rows as a frame of rewards."""
        return rewards_frame(
            [
                self._same
                | {
                    "episode_id": episode_id,
                    "task_id": task_id,
                    "step": step,
                    "family": row.family,
                    "score": sum(row.scores) / len(row.scores),
                    "evidence": sorted(row.evidence),
                    "arrived": row.arrived,
                }
                | ({} if row.weight is None else {"weight": row.weight})
                for (episode_id, task_id, step), row in self._rows.items()
            ]
        )

    def of(self, scored: pl.DataFrame) -> pl.DataFrame:
        """Return {episode_id, task_id, family, score} of whole episodes as a frame of rewards without evidence."""
        same = {**self._same, "step": None, "arrived": None, "inclusion": None}
        rows = scored.with_columns(pl.lit(value).alias(name) for name, value in same.items())
        rows = rows.with_columns(evidence=pl.lit([], dtype=pl.List(pl.String)))
        return rows.select(pl.col(name).cast(dtype) for name, dtype in polars_schema(Reward).items())


class ReactionRows:
    """Collects the rows of a signal of a user's words that reject an answer.

    After most of them the agent acts again, and what it did then may be what the user wanted: those are votes of
    another signal, with a reliability of its own.
    """

    def __init__(self, signal: str, family: str, *, version: int) -> None:
        self._last = SignalRows(signal, family, version=version)
        self._answered = SignalRows(ANSWERED + signal, ANSWERED_FAMILY, version=version)

    def add(
        self,
        episode: tuple[str, str],
        score: float,
        evidence: Iterable[Evidence],
        *,
        step: int | None = None,
        answered: bool = False,
    ) -> None:
        """Add a score, as `SignalRows.add`; `answered`: whether the agent acted again."""
        (self._answered if answered else self._last).add(episode, score, evidence, step=step)

    def frame(self) -> pl.DataFrame:
        """Return the rows of both signals as a frame of rewards."""
        return pl.concat([self._last.frame(), self._answered.frame()])


class Evidence(NamedTuple):
    """A piece of evidence: an event, when it came, what it carries, and its place among those of its time."""

    event_id: str
    ts: datetime | None = None
    payload: Mapping[str, Any] = {}
    seq: int = 0


@cached_by_identity
def events_by_episode(
    episodes: pl.DataFrame, events: pl.DataFrame, kind: Literal["feedback", "outcome", "claims"]
) -> dict[tuple[str, str], list[Evidence]]:
    """Return each episode (id, task) that has feedback or outcome events with these, oldest first."""
    by_episode: dict[tuple[str, str], list[Evidence]] = defaultdict(list)
    rows = (
        _of_kind(events, kind)
        .unique(["conversation_id", "event_id"])
        .join(episodes.select("conversation_id", "episode_id", "task_id"), on="conversation_id")
        .sort("episode_id", "ts", "seq", "event_id", nulls_last=False)
        .select("episode_id", "task_id", "event_id", "ts", "payload", "seq")
    )
    for episode_id, task_id, event_id, ts, payload, seq in rows.iter_rows():
        value = orjson.loads(payload)
        if isinstance(value, dict):
            by_episode[episode_id, task_id].append(Evidence(event_id, ts, value, seq or 0))
    return dict(by_episode)


def _of_kind(events: pl.DataFrame, kind: str) -> pl.DataFrame:
    claimed = pl.col(CLAIMED) if CLAIMED in events.columns else pl.lit(value=False)
    if kind == CLAIMS:
        return events.filter((pl.col("kind") == "outcome") & claimed)
    return events.filter((pl.col("kind") == kind) & ~claimed)


def human_feedback(
    episodes: pl.DataFrame, events: pl.DataFrame, wanted: Callable[[str], bool]
) -> Iterator[tuple[tuple[str, str], list[tuple[str, Evidence]]]]:
    """Yield each episode's feedback of the wanted names that people gave, oldest first; not that of models and code."""
    for episode, feedback in _by_people(episodes, events):
        some = [(name, event) for name, event in feedback if wanted(name)]
        if some:
            yield episode, some


@cached_by_identity  # a dozen signals ask for some of it each
def _by_people(
    episodes: pl.DataFrame, events: pl.DataFrame
) -> list[tuple[tuple[str, str], list[tuple[str, Evidence]]]]:
    """Return each episode's feedback that people gave, under its plain names."""
    return [
        (
            episode,
            [(plain_name(e.payload.get("name")), e) for e in feedback if e.payload.get("annotator") not in _NOBODY],
        )
        for episode, feedback in sorted(events_by_episode(episodes, events, "feedback").items())
    ]


def scaled(payload: Mapping[str, Any], *, ends: Sequence[float] = ()) -> float | None:
    """Return the value of a feedback or outcome as a vote in [-1, 1], or None without a value.

    Args:
        payload: with `value` and perhaps `scale`, the worst and the best value that it can have.
        ends: the worst and the best value, where configured; the best may be the lower one (errors: 1 is worst, 0
        best).
    """
    value, scale = payload.get("value"), payload.get("scale")
    worst, best = ends or (scale if isinstance(scale, list) and len(scale) == 2 else (0.0, 1.0))  # noqa: PLR2004
    if not all(isinstance(x, int | float) and math.isfinite(x) for x in (value, worst, best)) or worst == best:
        return None
    if not ends and worst > best:
        return None
    return float(min(max(2 * (float(value or 0) - worst) / (best - worst) - 1, -1.0), 1.0))
