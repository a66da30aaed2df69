"""Users' edits of an output, joined to the step that wrote it.

In: episodes, steps and events of a set of conversations. Out: the table `corrections`, one row per corrected step; of
several edits the last one counts.
"""

from __future__ import annotations

from typing import Any

import orjson
import polars as pl

from flywheel.contracts import polars_schema
from flywheel.records import Correction
from flywheel.stages.signals.evidence import Targets


def build_corrections(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Return the corrections. An edit that names no step refers to the last text that the agent wrote."""
    edits = events.filter(
        (pl.col("kind") == "feedback") & pl.col("payload").str.contains('"name":"edit"', literal=True)
    ).unique(["conversation_id", "event_id"])
    if edits.is_empty():
        return pl.DataFrame(schema=polars_schema(Correction))
    homes = episodes.select("episode_id", "task_id", "conversation_id")
    rows = edits.join(homes, on="conversation_id").sort("episode_id", "ts", "seq", "event_id", nulls_last=False)
    targets, last = Targets(steps, events), _last_texts(steps)
    corrections: dict[tuple[str, int], dict[str, Any]] = {}
    columns = ("episode_id", "task_id", "event_id", "user", "payload")
    for episode, task, event, user, payload in rows.select(columns).iter_rows():
        text = _text(orjson.loads(payload))
        step = targets.step((episode, task), orjson.loads(payload))
        step = last.get(episode) if step is None else step
        if text is not None and step is not None:
            row = {"episode_id": episode, "task_id": task, "step": step, "text": text, "user": user, "event_id": event}
            corrections[episode, step] = row
    return pl.DataFrame(list(corrections.values()), schema=polars_schema(Correction)).sort("episode_id", "step")


def _text(payload: Any) -> str | None:
    text = payload.get("text") if isinstance(payload, dict) and payload.get("name") == "edit" else None
    return text if isinstance(text, str) and text.strip() else None


def _last_texts(steps: pl.DataFrame) -> dict[str, int]:
    """Return the last step of each episode that wrote to the user instead of calling a tool."""
    texts = steps.filter(pl.col("action_key").is_null()).group_by("episode_id").agg(pl.col("index").max())
    return dict(texts.select("episode_id", "index").iter_rows())
