"""Rows of each kind of request equally often: of a round's new rows, and of the older ones that it rehearses.

In: rows in order of preference. Out: the same in an order that begins with one of every kind. What was learned before
is kept by older rows of the kinds that the new ones show least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import polars as pl

from flywheel.stages.selection.kinds import MOST_KINDS, kinds_of
from flywheel.stages.values.keys import request_of

FEWEST_LOOKED_AT, LOOKED_AT = 1000, 10  # rows: so many at least, and so many for each that is wanted


def each_kind(rows: pl.DataFrame, wanted: int) -> pl.DataFrame:
    """Return rows, one of every task before a second, and among these of each kind of request equally often.

    Within a kind their order stays, and all of it where requests are of more kinds than are kept apart.

    Args:
        rows: with their tasks and prompts, in order of preference.
        wanted: how many of them will be taken.
    """
    looked_at = rows.head(max(FEWEST_LOOKED_AT, LOOKED_AT * wanted))
    kinds = kinds_of(map(request_of, looked_at["prompt"]))
    if MOST_KINDS in kinds:
        return rows
    turns = _turns(kinds, Counter())
    of_task = looked_at.select(pl.int_range(pl.len()).over("task_id")).to_series().to_list()
    return _first(rows, list(zip(of_task, turns, strict=True)))


def rarest_first(older: pl.DataFrame, new: pl.DataFrame, wanted: int) -> pl.DataFrame:
    """Return older rows, in an order in which the first ones make the kinds of a round's requests equally frequent.

    Within a kind their order stays.

    Args:
        older: rows with their prompts, in order of preference.
        new: that are trained in any case.
        wanted: how many of the older rows will be taken.
    """
    if "prompt" not in older.columns:
        return older
    looked_at = older.head(max(FEWEST_LOOKED_AT, LOOKED_AT * wanted))
    kinds = kinds_of(map(request_of, [*new["prompt"], *looked_at["prompt"]]))
    return _first(older, _turns(kinds[new.height :], Counter(kinds[: new.height])))


def _turns(kinds: Sequence[int], there: Counter[int]) -> list[int]:
    """Return how many are there of each row's kind before it; `there` counts on."""
    turns = []
    for kind in kinds:
        turns.append(there[kind])
        there[kind] += 1
    return turns


def _first(rows: pl.DataFrame, turns: Sequence[Any]) -> pl.DataFrame:
    """Return rows by their turns; those behind the ones that have any stay where they are."""
    order = sorted(range(len(turns)), key=lambda place: turns[place])
    return pl.concat([rows[order], rows.slice(len(turns))])
