"""How many of a round's rows the start policy was not trained on yet, and how many it was.

In: rows in order of preference, and the ids that earlier rounds were trained on. Out: the rows of a round, each with
whether it is an older one. A round that only sees new rows forgets what old ones taught; one that sees all of them
again learns little from the new ones (experience replay, Rolnick et al. 2019, arXiv 1811.11682). What is rehearsed is
what the new rows show least: what a night does not ask for is the first to be forgotten (decision 0067).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from flywheel.config import TrainConfig
from flywheel.funnel import Funnel
from flywheel.records import content_id
from flywheel.stages.selection.rehearsal import rarest_first

OLDER = "_older"
ENOUGH = "trained on before"


@dataclass(frozen=True)
class Before:
    """What a round follows: the round it starts from (0: the base), and the ids of the rows behind that policy."""

    start: int = 0
    ids: Collection[str] = frozenset()


NOTHING_BEFORE = Before()


def sampling_order(table: pl.DataFrame, key: str, *salt: int | str) -> pl.Series:
    """Return keys to sort by, to sample rows without replacement; they depend on nothing but ids and salt.

    Every row is as likely as any other: a row's weight multiplies its loss, and must not decide on its place as well.
    """
    return pl.Series([chance(name, *salt) for name in table[key]], dtype=pl.Float64)


def chance(name: str, *salt: int | str) -> float:
    """Return a number in (0, 1) that depends on nothing but a name and a salt."""
    return (int(content_id(name, *salt)[:13], 16) + 0.5) / 16**13


def by_task(table: pl.DataFrame, key: str, order: pl.Series, *within: str) -> pl.DataFrame:
    """Sort rows by an order, largest first, but one of every task (and of each value within it) before a second."""
    table = table.with_columns(_order=order).sort("_order", key, descending=[True, False])
    turn = pl.int_range(pl.len()).over("task_id", *within)
    ordered = table.with_columns(_turn=turn).sort("_turn", "_order", key, descending=[False, True, False])
    return ordered.drop("_turn", "_order")


def new_first(table: pl.DataFrame, key: str, before: Before) -> pl.DataFrame:
    """Sort older rows behind the others, so that they take no new row's place; otherwise keep the order."""
    older = pl.Series([name in before.ids for name in table[key]], dtype=pl.Boolean)
    return table.with_columns(older.alias(OLDER)).sort(OLDER, maintain_order=True)


def take(
    table: pl.DataFrame, key: str, cfg: TrainConfig, before: Before, funnel: Funnel, fill: int = 0
) -> pl.DataFrame:
    """Return the rows of a round: the first new ones, and for each of them `train.older_rows` older ones (`new_first`).

    Older ones are of the kinds that the new ones show least, and each start gets another sample; of a round with few
    new ones there are more, up to `fill` rows in all. Where fewer than `train.min_rows` are new, the rows are taken in
    their order: such a round goes over older ones again, and a nightly job waits instead.
    """
    table = table.sort(OLDER, maintain_order=True)
    new, older = table.filter(~pl.col(OLDER)), table.filter(pl.col(OLDER))
    if older.is_empty() or new.height < cfg.min_rows:
        return funnel.drop(table, pl.int_range(pl.len()) >= cfg.max_rows, "over train.max_rows")
    room = min(older.height, math.ceil(cfg.max_rows * cfg.older_rows / (1 + cfg.older_rows)))
    new = funnel.drop(new, pl.int_range(pl.len()) >= max(1, cfg.max_rows - room), "over train.max_rows")
    wanted = max(math.ceil(cfg.older_rows * new.height), fill - new.height if cfg.older_rows else 0)
    wanted = min(wanted, cfg.max_rows - new.height)
    older = by_task(older, key, sampling_order(older, key, cfg.seed, before.start))
    older = rarest_first(older, new, wanted)
    return pl.concat([new, funnel.drop(older, pl.int_range(pl.len()) >= wanted, ENOUGH)])
