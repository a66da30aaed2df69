"""What the whole log shows about actions: the sums of all partitions, and what is learned from them.

In: the table `evidence`. Out: the table `values`: cells of levels 1 and 2, how large outcomes are, how far levels tell
of one another, and how true differences between actions are spread. Everything is learned from
differences between an action and what else was done in its state.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import polars as pl

from flywheel.contracts import conform, polars_schema
from flywheel.funnel import Funnel
from flywheel.records import ActionValue
from flywheel.stages.values.evidence import one_policy
from flywheel.stages.values.keys import LEVELS
from flywheel.stages.values.model import (
    UNLIKE,
    WIDEST,
    Floats,
    Ints,
    Model,
    Sides,
    against_rest,
    as_counted,
    beside,
    cells_of,
)
from flywheel.stats.effects import Differences, fit_prior

_COMPARED = 2  # attempts that met a state, below which there is no other to learn from it
_ENOUGH = 30  # differences, in as many as a third of it coarse states, from which levels are compared
_SURE = 3  # standard errors by which a level has to predict another
_STATES = 20_000  # exact states, and as many of level 1, that the model is fitted on
_AT_ONCE = 1_000_000  # sums of levels 0 and 1 that are added up together
_LEAST_BETWEEN = 0.02  # of the variance between actions: tasks of an intent are never quite alike
_VAGUE = 0.5  # standard deviation of what is assumed of it before
_ROOM = 0.05  # variance added before differences are weighed: a precise one must not decide alone


_CELL = ("level", "state", "action")
_ROW = [*_CELL, "voter", "task_id"]
_COUNTED = ("n_1", "total_1", "n_2", "total_2")  # of levels 0 and 1: what the same attempts are of the cells above
_FIRST = [pl.col(name).first() for name in ("parent_state", "parent_action", "sample_episode", "sample_step")]


class _Observed(NamedTuple):
    """Differences between an action and the rest of its state, at the levels that have any."""

    sides: dict[int, Sides]
    weight: Floats  # k actions of a state have k - 1 differences of their own, with two of them the same one twice
    states: pl.DataFrame  # state_0, state_1 and state_2 of each


def build_values(evidence: pl.DataFrame, funnel: Funnel, at_once: int = _AT_ONCE) -> pl.DataFrame:
    """Return the table `values`; the funnel counts sums of levels 1 and 2.

    Args:
        evidence: the rows of all partitions.
        funnel: counts.
        at_once: sums that are added up together, which bounds memory and changes no row.
    """
    single = evidence.filter(pl.col("level") == LEVELS[-1]).sort(_ROW, nulls_last=False)
    cells, often = _added_up(evidence, single, at_once)
    shared = cells.filter(pl.col("level") > 0)
    funnel.considered += shared.height
    lonely = pl.col("count").sum().over("level", "state") < _COMPARED
    shared = funnel.drop(shared, lonely, "no other attempt met the state")
    funnel.kept += shared.height
    # Rows as they came, for a user's mean would make outcomes look alike.
    squares, attempts = (float(single[name].to_numpy().sum()) for name in ("squares", "weight"))
    widest = (squares + WIDEST) / (attempts + 1)
    model = Model(widest=widest)
    by_level = {level: cells_of(shared, level) for level in (1, 2)}
    exact, coarse = _exact(cells, by_level), _coarse(by_level)
    model, told = _related(model, exact, coarse)
    model, fitted = _with_prior(model, exact, coarse)
    funnel.note("differences that the prior was fitted on", fitted)
    funnel.note("actions in shared states", shared.filter(pl.col("level") == 1).height)
    often = often.join(shared, on=_CELL, how="semi", maintain_order="left")
    return conform(_table(shared, often, model, told, fitted), ActionValue).collect()


def _added_up(evidence: pl.DataFrame, highest: pl.DataFrame, at_once: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return sums by cell, and those of users who met a cell of level 1 or 2 several times; both sorted.

    Exact states lie in states of level 1, so sums are added up for some of these at a time, and of the exact ones only
    those are kept that the model may be fitted on.

    Args:
        evidence: of all levels.
        highest: that of level 2, sorted.
        at_once: rows of levels 0 and 1 that are added up together.
    """
    users = _by_user(highest)
    wide = users.with_columns(pl.lit(None, pl.Float64).alias(name) for name in _COUNTED)
    cells, often = [_merged(wide)], [_several(wide)]
    number = max(math.ceil((evidence.height - highest.height) / at_once), 1)
    near = pl.when(pl.col("level") == 0).then("parent_state").otherwise("state")
    homes = evidence.select(pl.when(pl.col("level") < LEVELS[-1]).then(near.hash() % number)).to_series()
    for place in range(number):
        voters = _as_above(_by_user(evidence.filter(homes == place).sort(_ROW, nulls_last=False)), users)
        merged = _merged(voters)
        cells += [_chosen(merged.filter(pl.col("level") == 0)), merged.filter(pl.col("level") > 0)]
        often.append(_several(voters))
    return pl.concat(cells).sort(_CELL), pl.concat(often).sort(*_CELL, "voter")


def _by_user(evidence: pl.DataFrame) -> pl.DataFrame:
    """Return sorted sums of all partitions by cell and user."""
    sums = [pl.col(name).sum() for name in ("count", "weight", "total")]
    return evidence.group_by(*_CELL, "voter", maintain_order=True).agg(*sums, *_FIRST, policy=one_policy())


def _several(users: pl.DataFrame) -> pl.DataFrame:
    """Return the users who met a cell of level 1 or 2 several times."""
    return users.filter(pl.col("voter").is_not_null() & (pl.col("count") > 1) & (pl.col("level") > 0))


def _as_above(users: pl.DataFrame, highest: pl.DataFrame) -> pl.DataFrame:
    """Return sums by cell and user of levels 0 and 1, with what the same attempts are of the cells above."""
    levels = {level: users.filter(pl.col("level") == level) for level in LEVELS[:-1]}
    often = {1: _several(levels[1]), 2: _several(highest)}
    total = pl.col("total")
    above = levels[1].select("state", "action", "parent_state", "parent_action").unique(["state", "action"])
    above = above.rename({"state": "parent_state", "action": "parent_action", "parent_state": "state_2",
                          "parent_action": "action_2"})  # fmt: skip
    exact = as_counted(levels[0], often[1], 1, "weight", total, above="parent_")
    exact = exact.join(above, on=["parent_state", "parent_action"], how="left", maintain_order="left")
    exact = as_counted(exact, often[2], 2, "weight", total).drop("state_2", "action_2")
    near = as_counted(levels[1], often[2], 2, "weight", total, above="parent_")
    return pl.concat([exact, near], how="diagonal")


def _merged(voters: pl.DataFrame) -> pl.DataFrame:
    """Return sums by level, state and action; a user of several counts once, by the mean."""
    numbers = [pl.col(name).sum() for name in ("count", "weight", "total", *_COUNTED)]
    named = pl.col("voter").is_not_null()
    mean = pl.col("total") / pl.col("weight")
    voters = voters.with_columns(_weight=pl.col("weight") / pl.col("count"), _mean=mean).with_columns(
        count=pl.when(named).then(1).otherwise("count"),
        weight=pl.when(named).then("_weight").otherwise("weight"),
        total=pl.when(named).then(pl.col("_weight") * pl.col("_mean")).otherwise("total"),
    )
    cells = voters.group_by(*_CELL, maintain_order=True).agg(*numbers, *_FIRST, policy=one_policy())
    return cells.with_columns(x=pl.when(pl.col("level") == 1).then(pl.concat_list("n_2", "total_2")))


def _exact(cells: pl.DataFrame, by_level: dict[int, pl.DataFrame]) -> _Observed:
    """Return the differences within exact states."""
    rows = _chosen(cells.filter(pl.col("level") == 0)).rename(
        {"state": "state_0", "action": "action_0", "parent_state": "state_1", "parent_action": "action_1"}
    )
    parents = by_level[1].select(state_1="state", action_1="action", state_2="parent_state", action_2="parent_action")
    rows = rows.join(parents, on=["state_1", "action_1"], how="left", maintain_order="left").rename({"weight": "n"})
    others = beside(rows, rows, by_level)
    whole = pl.col("n").sum().over("state_0"), pl.col("total").sum().over("state_0")
    own = against_rest(rows.select("n", "total"), rows.select(n=whole[0], total=whole[1]))
    sides = {0: own} | {level: against_rest(*pair) for level, pair in others.items()}
    return _Observed(sides, _alone(rows, "state_0"), rows.select("state_0", "state_1", "state_2"))


def _coarse(by_level: dict[int, pl.DataFrame]) -> _Observed:
    """Return the differences within states of level 1."""
    rows = _chosen(by_level[1].rename({"n": "weight"})).rename({"weight": "n"})
    rows = rows.with_columns(state_0="state").rename(
        {"state": "state_1", "action": "action_1", "parent_state": "state_2", "parent_action": "action_2"}
    )
    whole = pl.col("n").sum().over("state_1"), pl.col("total").sum().over("state_1")
    own = against_rest(rows.select("n", "total"), rows.select(n=whole[0], total=whole[1]))
    others = beside(rows, rows.with_columns(n_1="n", total_1="total", n_2="n_above", total_2="total_above"), by_level)
    states = rows.select("state_0", "state_1", "state_2")
    return _Observed({1: own, 2: against_rest(*others[2])}, _alone(rows, "state_1"), states)


def _chosen(cells: pl.DataFrame) -> pl.DataFrame:
    """Return the cells of states in which several actions were taken; of very many, those with the least hashes."""
    several = cells.filter(pl.len().over("state") > 1).sort("state", "action")
    return several.filter(pl.col("state").rank("dense") <= _STATES)


def _alone(rows: pl.DataFrame, state: str) -> Floats:
    return rows.select(1 - 1 / pl.len().over(state)).to_series().to_numpy().astype(np.float64)


def _related(model: Model, exact: _Observed, coarse: _Observed) -> tuple[Model, tuple[int, int]]:
    """Return the model with how level 2 is related to level 1, and level 1 to level 0, and on how many differences."""
    one, two = (model.observed(coarse.sides[level]) for level in (1, 2))
    both = np.isfinite(one.variance) & np.isfinite(two.variance)
    inside = coarse.states["state_2"].rank("dense").to_numpy()[both].astype(np.int64)
    if both.sum() >= _ENOUGH and len(np.unique(inside)) >= _ENOUGH / 3:
        slope, scatter = _line(_only(one, both), _only(two, both), coarse.weight[both], inside)
        model = model._replace(slope=slope, scatter=scatter)
    fine, near = model.observed(exact.sides[0]), model.observed(exact.sides[1])
    met = np.isfinite(fine.variance) & np.isfinite(near.variance)
    seen = np.isfinite(one.variance)
    spread = _spread(_only(one, seen), coarse.weight[seen]) if seen.any() else 0.0
    spread = max(spread, 1e-4)
    between = _between(_only(fine, met), _only(near, met), exact.weight[met], spread)
    return model._replace(spread=spread, between=between), (int(met.sum()), int(both.sum()))


def _only(difference: Differences, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Differences:
    return Differences(*(values[rows] for values in difference))


def _spread(difference: Differences, weight: Floats) -> float:
    """Return the mean square of true differences."""
    trust = weight / (difference.variance + _ROOM) ** 2
    return float((trust * (difference.x**2 - difference.variance)).sum() / trust.sum())


def _line(fine: Differences, coarse: Differences, weight: Floats, inside: Ints) -> tuple[float, float]:
    """Return (slope, scatter) of coarse = slope * fine + rest, from moments of true differences.

    The slope is 0, and the level shows nothing, unless both are sure to go together. What is `inside` one coarse state
    shares its attempts, and so its chance: a state is one observation.
    """
    trust = weight / (fine.variance + coarse.variance + _ROOM) ** 2
    products = fine.x * coarse.x
    together = float((trust * products).sum() / trust.sum())
    error = float(np.sqrt((np.bincount(inside, trust * (products - together)) ** 2).sum()) / trust.sum())
    own, other = max(_spread(fine, weight), 1e-4), max(_spread(coarse, weight), 1e-4)
    if together <= _SURE * error:
        return 0.0, 0.0
    slope = min(together / own, 1.0)  # other intents cannot show more of a difference than there is
    return slope, max(other - slope**2 * own, _LEAST_BETWEEN * other)


def _between(fine: Differences, coarse: Differences, weight: Floats, spread: float) -> float:
    """Return the variance of an action's lead between the tasks of an intent, near what is assumed without evidence."""
    noise = fine.variance + coarse.variance
    trust = weight / noise**2
    before, sureness = UNLIKE * spread, 1 / (_VAGUE * spread) ** 2
    excess = (trust * ((fine.x - coarse.x) ** 2 - noise)).sum()
    after = (excess / 2 + before * sureness) / (trust.sum() / 2 + sureness)
    return float(max(after, _LEAST_BETWEEN * spread))


def _with_prior(model: Model, exact: _Observed, coarse: _Observed) -> tuple[Model, int]:
    """Return the model with how true differences are spread, and on how many it was fitted.

    What many states share, because they are in one state of the next level, counts once: each has its part of it. A
    state of level 1 is one more observation where no exact state in it has any.
    """
    fine, _ = model.combined(exact.sides)
    inside = ~coarse.states["state_1"].is_in(exact.states["state_1"].implode()).to_numpy()
    near, _ = model.combined(coarse.sides)
    weights = _own_share(model, exact), _own_share(model, coarse)
    every = Differences(*(np.concatenate([one, other[inside]]) for one, other in zip(fine, near, strict=True)))
    weight = np.concatenate([weights[0], weights[1][inside]])
    known = np.isfinite(every.variance)
    prior = fit_prior(_only(every, known), weight[known])
    return model._replace(prior=prior), int(known.sum())


def _own_share(model: Model, observed: _Observed) -> Floats:
    """Return how many observations each difference is: its precision, with a share of what its siblings share."""
    parts = np.zeros((2, len(observed.weight)))
    for level, sides in observed.sides.items():
        precision = model.precision(model.translated(model.observed(sides), level))
        siblings = observed.states.select(pl.col("state_0").n_unique().over(f"state_{level}"))
        parts += np.stack([precision / siblings.to_series().to_numpy(), precision])
    return np.asarray(observed.weight * parts[0] / np.where(parts[1] > 0, parts[1], 1.0), dtype=np.float64)


def _table(cells: pl.DataFrame, often: pl.DataFrame, model: Model, told: tuple[int, int], fitted: int) -> pl.DataFrame:
    blank = {"state": "", "action": "", "weight": 0.0, "total": 0.0}
    facts = [
        {"kind": "noise", "level": 0, "count": 0, "x": [model.widest], "y": []},
        {"kind": "relation", "level": 1, "count": told[0], "x": [1.0, model.between, model.spread], "y": []},
        {"kind": "relation", "level": 2, "count": told[1], "x": [model.slope, model.scatter], "y": []},
        {
            "kind": "prior",
            "level": 0,
            "count": fitted,
            "x": model.prior.weights.tolist(),
            "y": model.prior.shares.ravel().tolist(),
        },
    ]
    schema = polars_schema(ActionValue)
    learned = pl.DataFrame([{**dict.fromkeys(schema), **blank, **fact} for fact in facts], schema=schema)
    empty = pl.lit([], dtype=pl.List(pl.Float64))
    none = pl.lit(None, dtype=pl.String)
    tables = [
        cells.with_columns(kind=pl.lit("cell"), voter=none, x=pl.col("x").fill_null(empty), y=empty),
        often.with_columns(kind=pl.lit("voter"), x=empty, y=empty),
    ]
    rows = [table.select(pl.col(name).cast(kind) for name, kind in schema.items()) for table in tables]
    return pl.concat([*rows, learned])
