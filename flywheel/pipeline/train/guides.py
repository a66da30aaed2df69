"""Demonstrations of the log that begin attempts at other tasks of their kind, where the champion's own ones failed.

In: requests at which attempts failed, and training episodes that likely succeeded, of whatever policy. Out: for each
request the actions with which an attempt may begin, and the episode that they are from (decision 0151).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import polars as pl

from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.records import Split, canonical_json
from flywheel.stages.selection.guides import carried_over
from flywheel.stages.selection.kinds import MOST_EPISODES, MOST_KINDS, kinds_of
from flywheel.stages.selection.mix import chance
from flywheel.stages.selection.rows import GOOD_ENOUGH_TO_COPY

_OF_A_KIND = 64  # demonstrations that are looked at

Row = dict[str, Any]


class Guide(NamedTuple):
    """How an attempt begins: actions of an episode, carried over to its request."""

    episode_id: str
    actions: list[Row]


class Wanted(NamedTuple):
    """A request at which attempts failed: where it is attempted, its task, its words, and the tools at hand."""

    place: str
    task_id: str
    request: str
    tools: frozenset[str] | None = None  # names; None where they are not known


def guides(ctx: Context, wanted: Sequence[Wanted], most: int) -> dict[str, list[Guide]]:
    """Return the guides of each place that has any, those of the likeliest successes first.

    Args:
        ctx: the project.
        wanted: requests that need one.
        most: guides of a place.
    """
    logged = _logged(ctx) if wanted and most else []
    kinds = kinds_of([*(one.request for one in wanted), *(row["request"] for row in logged)])
    of_kind: dict[int, list[Row]] = {kind: [] for kind in kinds[: len(wanted)] if kind != MOST_KINDS}
    for kind, row in zip(kinds[len(wanted) :], logged, strict=True):
        of_kind.get(kind, []).append(row)
    of_kind = {kind: _best(rows) for kind, rows in of_kind.items()}
    actions = _actions(ctx, {row["episode_id"] for rows in of_kind.values() for row in rows})
    guided: dict[str, list[Guide]] = {}
    for one, kind in zip(wanted, kinds, strict=False):
        for row in of_kind.get(kind, ()):
            begun = carried_over(actions.get(row["episode_id"], ()), row["request"], one.request)
            known = guided.get(one.place, [])
            fits = row["task_id"] != one.task_id and begun and _has_tools(one, begun)
            if fits and len(known) < most and _new(begun, known):
                guided[one.place] = [*known, Guide(row["episode_id"], begun)]
    return guided


def _has_tools(one: Wanted, begun: Sequence[Row]) -> bool:
    return one.tools is None or {call["name"] for action in begun for call in action["tool_calls"]} <= one.tools


def _new(begun: Sequence[Row], known: Sequence[Guide]) -> bool:
    return canonical_json(list(begun)) not in {canonical_json(guide.actions) for guide in known}


def _logged(ctx: Context) -> list[Row]:
    """Return the training episodes with a request and a known P(success), in an order of chance."""
    train = (pl.col("split") == Split.TRAIN.value) & pl.col("request").is_not_null()
    episodes = read_table(ctx.store, "episodes").filter(train).select("episode_id", "task_id", "request", "policy")
    sound = pl.col("step").is_null() & pl.col("known") & ~pl.col("provisional") & (pl.col("weight") > 0)
    whole = read_table(ctx.store, "returns").filter(sound).select("episode_id", "p_success")
    rows = list(episodes.join(whole, on="episode_id").collect().iter_rows(named=True))
    rows.sort(key=lambda row: (chance(row["episode_id"], ctx.config.train.seed, 0, "guides"), row["episode_id"]))
    return rows[:MOST_EPISODES]


def _best(rows: Sequence[Row]) -> list[Row]:
    """Return the likely successes among episodes of a kind: first those of the policy that does best at it.

    What a single user did next is uncertain, and a policy that fails at a kind is praised now and then.
    """
    chances: dict[str | None, list[float]] = {}
    for row in rows:
        chances.setdefault(row["policy"], []).append(row["p_success"])
    likely = [row for row in rows if row["p_success"] >= GOOD_ENOUGH_TO_COPY]
    return sorted(likely, key=lambda row: (-fmean(chances[row["policy"]]), -row["p_success"]))[:_OF_A_KIND]


def _actions(ctx: Context, episodes: set[str]) -> dict[str, list[Row]]:
    """Return what each episode did at its first request, but for the action that ended it and for failed calls."""
    if not episodes:
        return {}
    steps = read_table(ctx.store, "steps").filter(pl.col("episode_id").is_in(sorted(episodes)))
    columns = ["episode_id", "index", "observation", "action"]
    table = steps.select(columns).sort("episode_id", "index").collect()
    return {str(name): list(_calls(part)) for (name,), part in table.group_by("episode_id", maintain_order=True)}


def _calls(steps: pl.DataFrame) -> Iterator[Row]:
    seen = [json.loads(text) for text in steps["observation"]]
    asked = (n for n, messages in enumerate(seen) if n and any(m["role"] == "user" for m in messages))
    for n, text in enumerate(steps["action"][: next(asked, len(seen)) - 1]):
        calls = json.loads(text).get("tool_calls") or []
        failed = any(message.get("status") == "failed" for message in seen[n + 1])
        if calls and not failed and all(isinstance(call.get("arguments"), dict) for call in calls):
            made = [
                {"id": f"given{n}-{k}", "name": call["name"], "arguments": call["arguments"]}
                for k, call in enumerate(calls)
            ]
            yield {"role": "assistant", "tool_calls": made}
