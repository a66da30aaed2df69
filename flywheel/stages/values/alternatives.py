"""Actions of other tasks of an intent as sides of pairs: for tasks that were attempted once.

In: the attempts of some tasks and the table `values`. Out: rows of the table `alternatives`, the action of each shared
state as the attempt has it that `values` names, with what was special about its request. `transplanted` puts such an
action into another attempt: requests of one intent are equal but for numbers, ids and names, so the first of these
becomes the first, and so on. What an attempt does after a tool's result depends on it, so an action moves only to where
tools had shown the same (`shown_before`), but for such numbers and names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from flywheel.contracts import polars_schema
from flywheel.records import Alternative, content_id
from flywheel.stages.tasks.minhash import masked_words, slots_of
from flywheel.stages.values.keys import requests

_LONGEST = 8_000  # characters of a message that is kept


def build_alternatives(episodes: pl.DataFrame, steps: pl.DataFrame, values: pl.DataFrame) -> pl.DataFrame:
    """Return the actions of states with several of them that attempts in `episodes` are the samples of."""
    cells = values.filter((pl.col("kind") == "cell") & (pl.col("level") == 1))
    several = cells.filter(pl.len().over("state") > 1)
    named = several.select("state", "action", episode_id="sample_episode", step="sample_step")
    calls = steps.filter(pl.col("action_key").is_not_null() & ~pl.col("malformed")).filter(
        pl.col("action").str.len_chars() <= _LONGEST
    )
    rows = named.join(
        calls.select("episode_id", "action", step="index"), on=["episode_id", "step"], how="inner", suffix="_made"
    ).rename({"action_made": "message"})
    rows = rows.join(
        shown_before(steps, rows["episode_id"]).rename({"index": "step"}), on=["episode_id", "step"], how="left"
    )
    facts = episodes.select("episode_id", "user").join(requests(steps), on="episode_id", how="left")
    rows = rows.join(facts, on="episode_id", how="left").with_columns(
        slots=pl.col("request").map_elements(slots_of, return_dtype=pl.List(pl.String))
    )
    rows = rows.with_columns(pl.col("slots").fill_null(pl.lit([], dtype=pl.List(pl.String))))
    return rows.select(pl.col(name).cast(kind) for name, kind in polars_schema(Alternative).items()).sort(
        "state", "action"
    )


def shown_before(steps: pl.DataFrame, episode_ids: pl.Series) -> pl.DataFrame:
    """Return {episode_id, index, shown} of the steps of some episodes: a hash of all that tools had shown before each.

    Numbers, ids and names are masked, as in requests of an intent.
    """
    asked = steps.filter(pl.col("episode_id").is_in(episode_ids.unique().implode())).sort("episode_id", "index")
    rows, hashes = asked.select("episode_id", "index", "observation"), list[str]()
    last, shown = "", ""
    for episode, _, observation in rows.iter_rows():
        shown = shown if episode == last else ""
        last = episode
        for message in json.loads(observation):
            if message["role"] == "tool":
                shown = content_id(shown, masked_words(str(message.get("content") or "")))
        hashes.append(shown)
    return rows.select("episode_id", "index").with_columns(shown=pl.Series(hashes, dtype=pl.String))


def transplanted(message: str, slots: Sequence[str], request: str | None) -> dict[str, Any] | None:
    """Return an alternative's message as an attempt at another request would have made it.

    Args:
        message: JSON of the assistant message.
        slots: what was special about its own request.
        request: the other one.

    Returns:
        The message, calls without ids; None where the requests do not match.
    """
    here = slots_of(request or "")
    if len(here) != len(slots):
        return None
    renamed: dict[str, str] = {}
    for theirs, ours in zip(slots, here, strict=True):
        if renamed.setdefault(theirs, ours) != ours:
            return None
    return _renamed(json.loads(message), renamed)  # type: ignore[no-any-return]


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: item if key in {"id", "name", "role"} and isinstance(item, str) else _renamed(item, names)
                for key, item in value.items()}  # fmt: skip
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, str) and names:
        pattern = "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name)))
        return re.sub(rf"(?<!\w)(?:{pattern})(?!\w)", lambda match: names[match[0]], value)
    if isinstance(value, int | float) and not isinstance(value, bool) and str(value) in names:
        other = names[str(value)]
        return type(value)(other) if re.fullmatch(r"-?\d+(?:\.\d+)?", other) and "." not in other else other
    return value
