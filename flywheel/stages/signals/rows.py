"""The rows that a signal writes, and the little that all signals need to find their evidence.

In: what a signal found, one opinion at a time. Out: a frame with the columns of `Reward`, one row per episode, step and
signal: several findings of one signal about one thing become one row with all the evidence.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import orjson
import polars as pl

from flywheel.contracts import polars_schema
from flywheel.records import Reward
from flywheel.stages.common.memo import cached_by_identity

VERIFIER = "verifier"  # families that decide alone: a recorded result, and above it a reviewer's answer
AUDIT = "audit"

Kind = Literal["outcome", "implicit", "cost", "risk"]


def rewards_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return rows as a frame with the columns of `Reward`."""
    schema = polars_schema(Reward)
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in schema}, schema=schema)


@dataclass(slots=True)
class _Opinion:
    scores: list[float] = field(default_factory=list)
    family: str = ""
    evidence: list[str] = field(default_factory=list)
    arrived: datetime | None = None


class Opinions:
    """Collects one signal's opinions; opinions about the same thing are averaged and share their evidence."""

    def __init__(
        self, signal: str, family: str, kind: Kind = "implicit", *, version: int = 1, weight: float = 1.0
    ) -> None:
        self._same = {"signal": signal, "kind": kind, "weight": weight, "signal_version": version}
        self._family = family
        self._found: dict[tuple[str, str, int | None], _Opinion] = {}

    def add(
        self, episode: tuple[str, str], score: float, said: Iterable[Said], *, step: int | None = None, family: str = ""
    ) -> None:
        """Add an opinion.

        Args:
            episode: its id and its task's id.
            score: the vote in [-1, 1], the severity, or the raw cost.
            said: the evidence: event ids with the time they arrived.
            step: the step judged; None for the whole episode.
            family: overrides the signal's family (a thumb up is another matter than a thumb down).
        """
        opinion = self._found.setdefault((*episode, step), _Opinion(family=family or self._family))
        opinion.scores.append(score)
        for one in said:
            if one.event_id and one.event_id not in opinion.evidence:
                opinion.evidence.append(one.event_id)
            if one.ts is not None and (opinion.arrived is None or one.ts > opinion.arrived):
                opinion.arrived = one.ts

    def frame(self) -> pl.DataFrame:
        """Return the opinions as a frame of rewards."""
        return rewards_frame(
            [
                self._same
                | {
                    "episode_id": episode_id,
                    "task_id": task_id,
                    "step": step,
                    "family": o.family,
                    "score": sum(o.scores) / len(o.scores),
                    "evidence": sorted(o.evidence),
                    "arrived": o.arrived,
                }
                for (episode_id, task_id, step), o in self._found.items()
            ]
        )


class Said(NamedTuple):
    """A piece of evidence: an event, when it came, and what it carries."""

    event_id: str
    ts: datetime | None = None
    payload: Mapping[str, Any] = {}


@cached_by_identity
def judgements(
    episodes: pl.DataFrame, events: pl.DataFrame, kind: Literal["feedback", "outcome"]
) -> dict[tuple[str, str], list[Said]]:
    """Return each judged episode (id, task) with its feedback or outcome events, oldest first."""
    found: dict[tuple[str, str], list[Said]] = defaultdict(list)
    rows = (
        events.filter(pl.col("kind") == kind)
        .unique(["conversation_id", "event_id"])
        .join(episodes.select("conversation_id", "episode_id", "task_id"), on="conversation_id")
        .sort("episode_id", "ts", "seq", "event_id", nulls_last=False)
        .select("episode_id", "task_id", "event_id", "ts", "payload")
    )
    for episode_id, task_id, event_id, ts, payload in rows.iter_rows():
        value = orjson.loads(payload)
        if isinstance(value, dict):
            found[episode_id, task_id].append(Said(event_id, ts, value))
    return dict(found)


@lru_cache(maxsize=4096)  # every signal reads the same few names
def plain_name(name: object) -> str:
    """Return a feedback's name in one spelling: `thumbsUp`, `Thumbs-Up` and `thumbs up` are `thumbs_up`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name or ""))
    return re.sub(r"[\W_]+", "_", spaced).strip("_").lower()


def people_said(
    episodes: pl.DataFrame, events: pl.DataFrame, wanted: Callable[[str], bool]
) -> Iterator[tuple[tuple[str, str], list[tuple[str, Said]]]]:
    """Yield each episode's feedback of the wanted names that people gave, oldest first; not that of judges and code."""
    for episode, said in sorted(judgements(episodes, events, "feedback").items()):
        named = [(plain_name(one.payload.get("name")), one) for one in said]
        found = [(n, one) for n, one in named if wanted(n) and one.payload.get("annotator") not in {"llm", "code"}]
        if found:
            yield episode, found


def scaled(payload: Mapping[str, Any], *, ends: Sequence[float] = ()) -> float | None:
    """Return a judgement's value as a vote in [-1, 1], or None without a value.

    Args:
        payload: with `value` and perhaps `scale`, the worst and the best value that it can have.
        ends: the worst and the best value, where the user told them; they may fall (errors: 1 is worst, 0 best).
    """
    value, scale = payload.get("value"), payload.get("scale")
    worst, best = ends or (scale if isinstance(scale, list) and len(scale) == 2 else (0.0, 1.0))  # noqa: PLR2004
    if not all(isinstance(x, int | float) and math.isfinite(x) for x in (value, worst, best)) or worst == best:
        return None
    if not ends and worst > best:
        return None
    return float(min(max(2 * (float(value or 0) - worst) / (best - worst) - 1, -1.0), 1.0))
