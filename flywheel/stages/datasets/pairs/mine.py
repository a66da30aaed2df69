"""From candidate pairs to pairs worth training on: builders propose, every filter drops with a counted reason.

In: episodes, steps and returns of complete tasks, and builders. Out: rows of the pairs table. What a pair's numbers
refuse goes first, all at once; only what is left gets its texts and is looked at one by one (`filters`); then
duplicates and caps, which look across pairs (`limits`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from flywheel.config import PairsConfig
from flywheel.contracts import polars_schema
from flywheel.extensions import PairBuilder
from flywheel.funnel import Funnel
from flywheel.records import PreferencePair
from flywheel.stages.datasets.context import NEEDS_IMAGE, UNFIT, contexts, needing_images, unfit
from flywheel.stages.datasets.pairs.believed import BACKED, POOLED, Shown, believed
from flywheel.stages.datasets.pairs.facts import Facts
from flywheel.stages.datasets.pairs.filters import by_numbers, first_reason
from flywheel.stages.datasets.pairs.limits import limit
from flywheel.stages.datasets.pairs.pooled import pooled
from flywheel.stages.datasets.pairs.sides import steps_of, written

# Columns that a builder may leave out; without a prompt, the texts are those of the steps that it names.
_OPTIONAL = {"p_chosen", "users", "pair_id", "prompt", "chosen", "rejected", "tools"}


def build_pairs(  # noqa: PLR0913, PLR0917 - the tables, and what the whole log shows
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    returns: pl.DataFrame,
    cfg: PairsConfig,
    builders: Mapping[str, PairBuilder],
    funnel: Funnel,
    shown: Shown | None = None,
) -> pl.DataFrame:
    """Run the builders in order of preference and return the pairs that pass every filter, sorted by id.

    A reason is counted as "builder: reason", so that the funnel shows the outcome of each builder's candidates. What a
    builder claims of two logged actions of different attempts is replaced by what the whole log shows (`shown`).
    """
    schema = pl.Schema(polars_schema(PreferencePair))
    immature = pl.col("provisional").fill_null(value=False)
    returns = returns.with_columns(known=pl.col("known") & ~immature)  # immature outcomes are not known yet
    frames = []
    for rank, (name, build) in enumerate(builders.items()):
        proposed = _proposed(build(episodes, steps, returns, cfg), schema)
        frames.append(proposed.with_columns(_rank=pl.lit(rank), _builder=pl.lit(name)))
        funnel.note(f"candidates of {name}", proposed.height)
    if not frames:
        return pl.DataFrame(schema=schema)
    candidates = pl.concat(frames).with_columns(pl.lit(0, dtype=pl.Int64).alias(BACKED))
    if shown is not None:
        candidates = believed(candidates.drop(BACKED), episodes, steps, returns, shown)
        candidates = pl.concat([candidates, _pooled(episodes, steps, returns, cfg, shown, candidates, funnel)])
    funnel.considered += candidates.height
    bad = unfit(episodes)
    complete = funnel.drop(
        candidates, pl.col("chosen_episode").is_in(bad) | pl.col("rejected_episode").is_in(bad), UNFIT
    )
    complete = _without(complete, needing_images(steps), funnel)
    worthwhile = _refused(complete, by_numbers(returns, cfg), funnel)
    facts = Facts(episodes, steps, returns, cfg, contexts(steps, steps_of(worthwhile)))
    pairs = limit(_filter(written(worthwhile, episodes, steps, facts.contexts), facts, funnel), cfg, funnel)
    funnel.kept += pairs.height
    for name in (*builders, *((POOLED,) if shown is not None else ())):
        funnel.note(f"kept of {name}", pairs.filter(pl.col("_builder") == name).height)
    return pairs.select(list(schema)).sort("pair_id")


def _pooled(  # noqa: PLR0913, PLR0917 - the tables, and what is already compared
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    returns: pl.DataFrame,
    cfg: PairsConfig,
    shown: Shown,
    candidates: pl.DataFrame,
    funnel: Funnel,
) -> pl.DataFrame:
    """Return what other tasks of an intent add, after all that was seen at the task itself."""
    found = pooled(episodes, steps, returns, shown, cfg.min_p_better)
    funnel.note(f"candidates of {POOLED}", found.height)
    return found.with_columns(_rank=pl.lit(candidates["_rank"].max()) + 1, _builder=pl.lit(POOLED)).select(
        pl.col(name).cast(kind) for name, kind in candidates.schema.items()
    )


def _without(pairs: pl.DataFrame, shown: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Drop the pairs of which either side needs an image."""
    if shown.is_empty():
        return pairs
    needy = set(shown.iter_rows())
    sides = pairs.select("chosen_episode", "chosen_step", "rejected_episode", "rejected_step").iter_rows()
    marks = [(chosen, at) in needy or (rejected, there) in needy for chosen, at, rejected, there in sides]
    marked = pairs.with_columns(_shown=pl.Series(marks, dtype=pl.Boolean))
    return funnel.drop(marked, pl.col("_shown"), NEEDS_IMAGE).drop("_shown")


def _proposed(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return a builder's candidates with every column of the table; one made before a column was has nulls there."""
    missing = [pl.lit(None, dtype=schema[name]).alias(name) for name in sorted(_OPTIONAL - set(frame.columns))]
    proposed = frame.with_columns(missing).select(list(schema)).cast(schema)
    return proposed.with_columns(pl.col("users").fill_null(pl.lit([], dtype=schema["users"])))


def _refused(pairs: pl.DataFrame, reasons: Sequence[tuple[str, pl.Expr]], funnel: Funnel) -> pl.DataFrame:
    """Drop what any of the reasons holds for, counted under the first one and the builder."""
    first = pl.coalesce(pl.when(where.fill_null(value=False)).then(pl.lit(name)) for name, where in reasons)
    return _dropped(pairs.with_columns(_reason=first), funnel)


def _filter(pairs: pl.DataFrame, facts: Facts, funnel: Funnel) -> pl.DataFrame:
    reasons = [first_reason(pair, facts) for pair in pairs.iter_rows(named=True)]
    return _dropped(pairs.with_columns(pl.Series("_reason", reasons, dtype=pl.String)), funnel)


def _dropped(pairs: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Drop what has a reason, all at once: the texts of the others are copied once and not for each reason."""
    refused = pairs.filter(pl.col("_reason").is_not_null()).group_by("_builder", "_reason").len()
    for name, reason, count in refused.iter_rows():
        funnel.dropped[f"{name}: {reason}"] += count
    return pairs.filter(pl.col("_reason").is_null()).drop("_reason")
