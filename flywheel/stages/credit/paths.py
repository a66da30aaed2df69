"""Attempts as numbers: every step's action and results, at three grains, so that trees over all tasks are array work.

In: episodes and steps of a set of tasks, and each episode's return. Out: `Paths`. Codes only identify; their order
means nothing.

    grain  a state is                                                        an action is
    0      everything done and got so far, in order                          its canonical calls, or ASK or FINAL
    1      the multiset of completed (tool, ok), and what came back last     the same, with ids, dates, ... as slots
    2      how far (0, 1, 2-3, 4-7, ...), the last tool and how it ended     the names of its tools

Results enter by class, never by content: a hash of the text would hide the outcome in the state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from flywheel.stages.credit.cost_classes import observation_class, text_class
from flywheel.stages.values.keys import slotted, tools_of

if TYPE_CHECKING:
    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

_BY_USER = '"role":"user"'  # as canonical JSON writes it; inside a text the quotes would be escaped
_BY_SYSTEM = '"role":"system"'
_FAILED = ("failed",)


class Paths(NamedTuple):
    """E episodes with S steps in all, sorted by task, episode and step."""

    roots: tuple[Ints, ...]  # (E,) each: the task; and its tools and system prompt; and the policy
    values: Floats  # (E,) returns; NaN where unknown
    episode: Ints  # (S,) row of the step's episode
    depth: Ints  # (S,) place of the step in its path
    actions: tuple[Ints, Ints, Ints]  # (S,) by grain
    seen: Ints  # (S,) class of what came back
    states: tuple[Ints, Ints]  # (S,) for grains 1 and 2, within the task


def dense(*columns: Ints) -> Ints:
    """Return codes 0, 1, ... that are equal where all columns are."""
    codes = np.unique(columns[0], return_inverse=True)[1].astype(np.int64)
    for column in columns[1:]:
        inner = np.unique(column, return_inverse=True)[1]
        codes = np.unique(codes * (inner.max(initial=0) + 1) + inner, return_inverse=True)[1].astype(np.int64)
    return codes


def read_paths(episodes: pl.DataFrame, steps: pl.DataFrame, values: Sequence[float | None]) -> Paths:
    """Return the paths of the episodes.

    Args:
        episodes: sorted by task and episode.
        steps: of these episodes, sorted by task, episode and index.
        values: each episode's return, in their order; None where unknown.
    """
    where = episodes.select("episode_id", _row=pl.int_range(pl.len(), dtype=pl.Int64))
    rows = steps.join(where, on="episode_id", how="left", maintain_order="left")
    episode = rows["_row"].to_numpy()
    first = np.flatnonzero(np.diff(episode, prepend=-1))
    depth = np.arange(len(episode)) - np.repeat(first, np.diff(np.append(first, len(episode))))
    seen = _codes(pl.Series(_seen(episodes, steps), dtype=pl.String))
    return Paths(
        roots=_roots(episodes, rows, first),
        values=np.array([np.nan if value is None else value for value in values], dtype=np.float64),
        episode=episode,
        depth=depth,
        actions=_actions(steps),
        seen=seen,
        states=_states(steps, depth, seen),
    )


def _codes(column: pl.Series) -> Ints:
    """Return codes of texts."""
    return column.fill_null("").rank("dense").to_numpy().astype("int64")


def _roots(episodes: pl.DataFrame, rows: pl.DataFrame, first: Ints) -> tuple[Ints, ...]:
    """Return the codes of the episodes' trees, from coarse to fine."""
    openings = rows[first.tolist()].select("episode_id", _system=pl.col("observation").map_elements(_system, pl.String))
    keys = episodes.select("episode_id", "task_id", "policy", "tools").join(
        openings, on="episode_id", how="left", maintain_order="left"
    )
    task = _codes(keys["task_id"])
    around = dense(task, _codes(keys["tools"]), _codes(keys["_system"]))
    return task, around, dense(around, _codes(keys["policy"]))


def _system(observation: str) -> str:
    """Return the system messages of an observation."""
    if _BY_SYSTEM not in observation:
        return ""
    return "\n".join(str(m.get("content") or "") for m in orjson.loads(observation) if m["role"] == "system")


def _actions(steps: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
    """Return the codes of the actions at each grain."""
    texts = [None if key is not None else text_class(a) for key, a in steps.select("action_key", "action").iter_rows()]
    exact = steps["action_key"].fill_null(pl.Series(texts, dtype=pl.String))
    alike = slotted(exact)
    names = tools_of(steps)
    named = pl.select(pl.when(names != "").then(names).otherwise(exact)).to_series()
    broken = steps["malformed"].to_numpy().astype("int64")
    return _codes(exact), _codes(alike), dense(_codes(named), broken)


def _seen(episodes: pl.DataFrame, steps: pl.DataFrame) -> list[str]:
    """Return the class of what came back after each step: how each tool ended and what its result looks like."""
    goes_on = pl.col("episode_id") == pl.col("episode_id").shift(-1)
    rows = (
        steps.select("episode_id", "tool_names", "tool_status", "observation", "resets_context")
        .with_columns(
            after=pl.when(goes_on).then(pl.col("observation").shift(-1)),
            other=pl.when(goes_on).then(pl.col("resets_context").shift(-1)),
        )
        .join(episodes.select("episode_id", "tail"), on="episode_id", how="left", maintain_order="left")
        .select(
            "tool_names",
            "tool_status",
            pl.coalesce("after", "tail").fill_null("[]"),
            pl.col("other").fill_null(value=False),
        )
    )
    classes = []
    for names, status, after, other in rows.iter_rows():
        # A rewritten context does not show this step's results.
        back = observation_class(names, status, "[]" if other else after)
        classes.append(f"{back}\nuser" if _BY_USER in after else back)
    return classes


def _states(steps: pl.DataFrame, depth: Ints, seen: Ints) -> tuple[Ints, Ints]:
    """Return the codes of the states before each step at grains 1 and 2."""
    first = depth == 0
    last = np.where(first, 0, np.roll(seen, 1))
    ended = pl.concat_str("tool_names", "tool_status", separator=" ", ignore_nulls=True)
    calls = steps.select(pl.int_range(pl.len()).alias("row"), "tool_names", "tool_status").explode(
        "tool_names", "tool_status"
    )
    names = calls.select(name=ended)["name"]
    done = np.zeros(len(depth), dtype=np.uint64)
    np.add.at(done, calls["row"].to_numpy(), _hashes(names))
    total = np.cumsum(done, dtype=np.uint64)  # wraps around: sums of hashes still distinguish multisets
    before = total - done
    starts = np.maximum.accumulate(np.where(first, np.arange(len(depth)), 0)) if len(depth) else depth
    multiset = (before - before[starts]).view(np.int64)
    how = steps.select(
        pl.concat_str(
            pl.col("tool_names").list.last().fill_null(""),
            pl.any_horizontal(pl.col("tool_status").list.contains(status) for status in _FAILED).cast(pl.String),
            separator=" ",
        )
    ).to_series()
    bucket = np.floor(np.log2(depth + 1)).astype(np.int64)
    return dense(multiset, last), dense(bucket, np.where(first, 0, np.roll(_codes(how), 1)))


def _hashes(names: pl.Series) -> npt.NDArray[np.uint64]:
    """Return 64 bits for each text; 0 for none."""
    known = {}
    for name in names.unique().to_list():
        if name:
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
            known[name] = int.from_bytes(digest[:8], "big")
    return np.array([known.get(name, 0) for name in names], dtype=np.uint64)
