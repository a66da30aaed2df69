"""How much better one action is than another in a state: evidence of three levels, and the posterior that follows.

In: sums of the outcomes of both sides, level by level, and what `fit` has learned from the whole log. Out: the
posterior of their difference. Each level counts attempts that the level below it does not, so nothing is counted twice:

    d_0 = d + noise                     attempts with the same history
    d_1 = d + other tasks + noise       attempts at other tasks of the intent, in the same position
    d_2 = slope (d + ...) + noise       attempts at other intents, by the name of the action

`noise` has the variance of single outcomes around the mean of both sides together: what their difference varies by
where there is none, so that a few decisions that matter do not make chance look smaller in all others, and a task that
always ends alike does not make it look smaller in one that may end either way. It holds whatever the attempts' other
decisions, the user and chance do. How far other tasks and intents tell of this one is learned where
both are known: tasks of an intent differ by a share of what there is, so that where nothing differs they are alike. The
three are weighed by their precision; the prior is `stats.effects`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from flywheel.stages.common.memo import cached_by_identity
from flywheel.stages.values.keys import LEVELS, action_column, state_column
from flywheel.stats.effects import Differences, Posterior, Prior, posterior

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

WIDEST = 1.0  # mean square of outcomes that are -1 or 1
CAUTION = 4.0  # attempts with that variance that are added: one failure of one attempt shows little
UNLIKE = 0.1  # before anything is known: variance between tasks of an intent, as a share of that between actions
_NOTHING = 1e-9  # attempts; below it there are none, only the rounding of differences of sums
_INSIDE = 0  # next to levels 1 and 2: level 1 as it counts at level 2


class Sides(NamedTuple):
    """Sums over attempts of N differences at one level: of the action, and of what it is compared with."""

    n: Floats
    total: Floats
    other_n: Floats
    other_total: Floats


class Model(NamedTuple):
    """What was learned from the whole log."""

    widest: float = WIDEST  # mean square of all outcomes, the largest variance that a state's can have
    spread: float = 0.1  # mean square of true differences
    between: float = UNLIKE * 0.1  # variance of an action's lead between tasks of an intent
    slope: float = 0.0  # of level 2: 0 where the name of an action is not known to tell anything
    scatter: float = 0.0  # variance of level 2 around its line
    prior: Prior = Prior()  # of differences

    def observed(self, sides: Sides) -> Differences:
        """Return the differences at one level, as they are there."""
        seen = (sides.n > _NOTHING) & (sides.other_n > _NOTHING)
        n, other = np.where(seen, sides.n, 1.0), np.where(seen, sides.other_n, 1.0)
        x = np.where(seen, sides.total / n - sides.other_total / other, 0.0)
        # Both sides together vary around their mean; of a difference d that is d^2 n m / (n + m).
        around = self.widest * (n + other) - (sides.total + sides.other_total) ** 2 / (n + other)
        free = n + other - 1 + CAUTION
        noise = (np.maximum(around, 0) + self.widest * CAUTION) / free * (1 / n + 1 / other)
        return Differences(x, np.where(seen, noise, np.inf), np.zeros_like(x), 1 / free)

    def translated(self, seen: Differences, level: int) -> Differences:
        """Return the differences of a level as ones of level 0."""
        if level == 0:
            return seen
        apart = np.full_like(seen.x, self.between / self.spread)
        if level == 1:
            return seen._replace(apart=apart)
        if self.slope <= 0:
            return Differences(np.zeros_like(seen.x), np.full_like(seen.variance, np.inf), apart, seen.explained)
        return Differences(seen.x / self.slope, (seen.variance + self.scatter) / self.slope**2, apart, seen.explained)

    def precision(self, seen: Differences) -> Floats:
        """Return how much differences show of a true one of the usual size, (N,)."""
        return np.asarray(1 / (seen.variance + seen.apart * self.spread), dtype=np.float64)

    def combined(self, levels: Mapping[int, Sides]) -> tuple[Differences, Ints]:
        """Return all levels' evidence as one difference, and the level with most of it; -1 where there is none."""
        parts = [self.translated(self.observed(sides), level) for level, sides in sorted(levels.items())]
        precision = np.stack([self.precision(part) for part in parts])
        total = precision.sum(axis=0)
        share = precision / np.where(total > 0, total, 1.0)
        noise = [np.where(np.isfinite(part.variance), part.variance, 0.0) for part in parts]
        # Levels 1 and 2 are of the same other tasks: what these have in common does not average out.
        elsewhere = share[[level > 0 for level in sorted(levels)]].sum(axis=0)
        difference = Differences(
            (share * np.stack([part.x for part in parts])).sum(axis=0),
            np.where(total > 0, (share**2 * np.stack(noise)).sum(axis=0), np.inf),
            elsewhere**2 * self.between / self.spread,
            (share**2 * np.stack([part.explained for part in parts])).sum(axis=0),
        )
        best = np.array(sorted(levels), dtype=np.int64)[precision.argmax(axis=0)]
        return difference, np.where(total > 0, best, -1)

    def posterior(self, seen: Differences) -> Posterior:
        """Return the posterior of differences of level 0."""
        return posterior(seen, self.prior)


class Values(NamedTuple):
    """The table `values`, as the stages that use it read it."""

    model: Model
    cells: Mapping[int, pl.DataFrame]  # by level 1 and 2, see `cells_of`
    often: Mapping[int, pl.DataFrame]  # by level: {state, action, voter, count} of users with several attempts

    @classmethod
    @cached_by_identity  # partitions that are made together have one table
    def read(cls, table: pl.DataFrame) -> Self:
        """Return the table's content."""
        learned = table.filter(pl.col("kind").is_in(["noise", "relation", "prior"]))
        rows = {(kind, level): list(x) for kind, level, x in learned.select("kind", "level", "x").iter_rows()}
        shares = next((y for kind, y in learned.select("kind", "y").iter_rows() if kind == "prior"), None)
        model = Model()
        if shares is not None:
            weights = np.array(rows["prior", 0])
            one, two = rows["relation", 1], rows["relation", 2]
            prior = Prior(weights, np.array(shares).reshape(len(weights), -1))
            model = Model(rows["noise", 0][0], one[2], one[1], two[0], two[1], prior)
        cells = table.filter(pl.col("kind") == "cell")
        often = table.filter(pl.col("kind") == "voter").select("level", "state", "action", "voter", "count")
        return cls(
            model,
            {level: cells_of(cells, level) for level in LEVELS[1:]},
            {level: often.filter(pl.col("level") == level).drop("level") for level in LEVELS[1:]},
        )

    def policies(self, rows: pl.DataFrame, level: int) -> pl.Series:
        """Return who made all attempts of each row's state and action at a level; null where several policies did."""
        keys = [state_column(level), action_column(level)]
        made = self.cells[level].select(pl.col("state").alias(keys[0]), pl.col("action").alias(keys[1]), "policy")
        return rows.select(keys).join(made, on=keys, how="left", maintain_order="left")["policy"]

    def beside(self, rows: pl.DataFrame, own: pl.DataFrame) -> dict[int, tuple[pl.DataFrame, pl.DataFrame]]:
        """Return for each row what levels 1 and 2 show besides its own state, as (of its action, of its state).

        Args:
            rows: with state_0 and the states and actions of levels 1 and 2.
            own: the attempts at the rows' exact states, with the same columns, voter, weight and outcome; they are part
                of levels 1 and 2, where a user with several attempts has one vote, and are left out of them.
        """
        for level in LEVELS[1:]:
            own = as_counted(own, self.often[level], level, "weight", pl.col("weight") * pl.col("outcome"))
        return beside(rows, own, self.cells)


def as_counted(
    attempts: pl.DataFrame, often: pl.DataFrame, level: int, weight: str, total: pl.Expr, above: str = ""
) -> pl.DataFrame:
    """Return sums of attempts with what they are of a level's cells: n_LEVEL and total_LEVEL.

    Args:
        attempts: sums by user, with the level's state and action, or those columns under the prefix `above`.
        often: {state, action, voter, count} of the level.
        level: 1 or 2.
        weight: the column with their weight.
        total: their weight times outcome.
        above: `parent_` where the columns are those of the level below.
    """
    keys = [f"{above}state", f"{above}action"] if above else [state_column(level), action_column(level)]
    named = often.select("voter", pl.col("state").alias(keys[0]), pl.col("action").alias(keys[1]), _count="count")
    joined = attempts.join(named, on=[*keys, "voter"], how="left", maintain_order="left")
    count = pl.col("_count").fill_null(1)
    return joined.with_columns(
        (pl.col(weight) / count).alias(f"n_{level}"), (total / count).alias(f"total_{level}")
    ).drop("_count")


def cells_of(cells: pl.DataFrame, level: int) -> pl.DataFrame:
    """Return {state, action, n, total, voters, parent_*, sample_*, n_above, total_above} of the cells of a level."""
    return cells.filter(pl.col("level") == level).select(
        "state", "action", "parent_state", "parent_action", "policy", "sample_episode", "sample_step",
        n="weight", total="total", voters="count", n_above=pl.col("x").list.get(0, null_on_oob=True),
        total_above=pl.col("x").list.get(1, null_on_oob=True),
    )  # fmt: skip


def beside(
    rows: pl.DataFrame, own: pl.DataFrame, cells: Mapping[int, pl.DataFrame]
) -> dict[int, tuple[pl.DataFrame, pl.DataFrame]]:
    """Return what `Values.beside` does, from cells.

    Args:
        rows: as there.
        own: sums of their exact states: state_0, action_1 and action_2, with n_1, total_1, n_2 and total_2.
        cells: by level, as `cells_of` returns them.
    """
    result = {}
    summed = _summed(cells)
    for level in (1, 2):
        keys = [state_column(level), action_column(level)]
        of_action, of_state = summed[level]
        whole = _joined(rows, of_action, keys), _joined(rows, of_state, keys[:1])
        counted = own.select("state_0", keys[1], n=f"n_{level}", total=f"total_{level}")
        there = ["state_0", keys[1]]
        below = _joined(rows, _sums(counted, *there), there), _joined(rows, _sums(counted, "state_0"), there[:1])
        if level == LEVELS[-1]:
            near = ["state_1", "action_2"]
            of_action, of_state = summed[_INSIDE]
            above = _joined(rows, of_action, near), _joined(rows, of_state, near[:1])
            # A state that no one else met is not among the cells: then its own attempts are all there is.
            below = _larger(above[0], below[0]), _larger(above[1], below[1])
        result[level] = _less(whole[0], below[0]), _less(whole[1], below[1])
    return result


@cached_by_identity  # each partition that is made with others, and each of its slices and sides, asks for the same
def _summed(cells: Mapping[int, pl.DataFrame]) -> dict[int, tuple[pl.DataFrame, pl.DataFrame]]:
    """Return the sums of each level's actions and states, and of those of level 1 as they count at level 2."""
    named = {
        level: cells[level].rename({"state": state_column(level), "action": action_column(level)}) for level in (1, 2)
    }
    named[_INSIDE] = cells[1].select(state_1="state", action_2="parent_action", n="n_above", total="total_above")
    keys = {1: ("state_1", "action_1"), 2: ("state_2", "action_2"), _INSIDE: ("state_1", "action_2")}
    return {level: (_sums(named[level], *by), _sums(named[level], by[0])) for level, by in keys.items()}


def _sums(frame: pl.DataFrame, *by: str) -> pl.DataFrame:
    return frame.group_by(*by, maintain_order=True).agg(pl.col("n").sum(), pl.col("total").sum())


def _joined(rows: pl.DataFrame, sums: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    joined = rows.select(by).join(sums, on=by, how="left", maintain_order="left")
    return joined.select(pl.col("n").fill_null(0.0), pl.col("total").fill_null(0.0))


def _less(whole: pl.DataFrame, part: pl.DataFrame) -> pl.DataFrame:
    n = whole["n"] - part["n"]
    rest = n > _NOTHING
    return pl.select(
        n=pl.when(rest).then(n).otherwise(0.0),
        total=pl.when(rest).then(whole["total"] - part["total"]).otherwise(0.0),
    )


def _larger(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    first = one["n"] >= other["n"]
    return pl.select(
        n=pl.when(first).then(one["n"]).otherwise(other["n"]),
        total=pl.when(first).then(one["total"]).otherwise(other["total"]),
    )


def against_rest(of_action: pl.DataFrame, of_state: pl.DataFrame) -> Sides:
    """Return the sums of an action and of everything else that was done in its state."""
    rest = _less(of_state, of_action)
    return Sides(*(frame[name].to_numpy() for frame in (of_action, rest) for name in ("n", "total")))


def against(of_action: pl.DataFrame, of_other: pl.DataFrame, same: pl.Series) -> Sides:
    """Return the sums of two actions; where both are the `same` at this level, nothing."""
    columns = [
        np.where(same.to_numpy(), 0.0, frame[name].to_numpy())
        for frame in (of_action, of_other)
        for name in ("n", "total")
    ]
    return Sides(*columns)
