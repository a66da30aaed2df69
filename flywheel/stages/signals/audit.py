"""What reviewers answered in an audit: whether an episode did what was asked, and how likely it was to be drawn.

In: episodes and events. Out: rows of `Reward` of the family `audit`, which decides above every other one. Only what
`flywheel audit` itself wrote counts, known by its folder: feedback of that name in an application's log could be
anybody's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import polars as pl

from flywheel.records import EventKind
from flywheel.stages.signals.rows import AUDIT, rewards_frame

if TYPE_CHECKING:
    from flywheel.config import RewardsConfig

AUDITS = "audits"  # folder of the answers, in the project


def audit(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """Reviewers' answers: the mean of each reviewer's latest one, from -1 (failed) to 1 (succeeded)."""
    del steps, cfg
    given = events.filter(
        (pl.col("kind") == EventKind.FEEDBACK.value) & pl.col("source_file").str.starts_with(f"{AUDITS}/")
    )
    told = given.unique(["conversation_id", "event_id"]).join(
        episodes.select("conversation_id", "episode_id", "task_id"), on="conversation_id"
    )
    found: dict[tuple[str, str], dict[str, tuple[str, Any, dict[str, Any]]]] = {}
    columns = ("episode_id", "task_id", "event_id", "ts", "payload")
    for episode, task, event, ts, payload in told.sort("ts", "event_id").select(columns).iter_rows():
        said = orjson.loads(payload)
        if said.get("name") == AUDIT and isinstance(said.get("value"), int | float):
            found.setdefault((episode, task), {})[str(said.get("reviewer"))] = event, ts, said
    return rewards_frame([_row(*key, list(answers.values())) for key, answers in sorted(found.items())])


def _row(episode_id: str, task_id: str, answers: list[tuple[str, Any, dict[str, Any]]]) -> dict[str, Any]:
    votes = [2 * min(max(float(said["value"]), 0.0), 1.0) - 1 for _, _, said in answers]
    drawn = [float(p) for _, _, said in answers if isinstance(p := said.get("inclusion"), int | float) and 0 < p <= 1]
    return {
        "episode_id": episode_id,
        "task_id": task_id,
        "step": None,
        "signal": AUDIT,
        "family": AUDIT,
        "kind": "outcome",
        "score": sum(votes) / len(votes),
        "weight": 1.0,
        "evidence": sorted(event for event, _, _ in answers),
        "arrived": max((ts for _, ts, _ in answers if ts is not None), default=None),
        "signal_version": 1,
        "inclusion": max(drawn, default=None),
    }
