"""The held-out tables, and what a round must not be trained on: held-out answers, and the texts of evaluators.

In: the tables and the configured suites. Out: `Holdout` and `EvaluationTexts`. An evaluator declares its texts by an
attribute `texts`, a function of the holdout and the section [eval] (see `extensions.Evaluator`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from flywheel.errors import ExtensionError
from flywheel.extensions import Holdout
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.suites import chosen_suites
from flywheel.records import Split
from flywheel.stages.selection.decontaminate import EvaluationTexts

_ANSWERS = (("examples", "completion"), ("pairs", "chosen"))


def read_holdout(ctx: Context) -> Holdout:
    """Return the held-out part of the tables; without a held-out task, no rows."""
    frames = {t: read_table(ctx.store, t) for t in ("episodes", "steps", "returns", "pairs")}
    episodes = frames["episodes"].filter(pl.col("split") == Split.HOLDOUT).sort("episode_id").collect()
    ids = episodes.lazy().select("episode_id")
    held = {
        name: frames[name].join(ids, on="episode_id", how="semi").sort(key).collect()
        for name, key in (("steps", ["episode_id", "index"]), ("returns", ["episode_id", "step"]))
    }
    held["pairs"] = frames["pairs"].filter(pl.col("split") == Split.HOLDOUT).sort("pair_id").collect()
    turns = {
        name: read_table(ctx.store, name).filter(pl.col("split") == Split.HOLDOUT).sort(key).collect()
        for name, key in (("scenarios", "scenario_id"), ("fixtures", "fixture_id"))
    }
    return Holdout(
        episodes, held["steps"], held["returns"], held["pairs"], ctx.project,
        scenarios=turns["scenarios"], fixtures=turns["fixtures"], replay=ctx.config.replay,
    )  # fmt: skip


def evaluation_texts(ctx: Context) -> EvaluationTexts:
    """Return what evaluations of this project rest on.

    Raises:
        ExtensionError: an evaluator declares something other than texts.
    """
    return EvaluationTexts.of(_answers(ctx), _declared(ctx))


def _answers(ctx: Context) -> Iterator[Sequence[dict[str, Any]]]:
    for table, column in _ANSWERS:
        held = read_table(ctx.store, table).filter(pl.col("split") == Split.HOLDOUT.value)
        yield from map(json.loads, held.select(column).unique().collect()[column].to_list())


def _declared(ctx: Context) -> list[str]:
    suites = chosen_suites(ctx, None)
    declaring = {s.name: s.evaluator.texts for s in suites if hasattr(s.evaluator, "texts")}
    if not declaring:
        return []
    holdout, declared = read_holdout(ctx), list[str]()
    for name, texts in declaring.items():
        own = list(texts(holdout, ctx.config.eval))
        if not all(isinstance(text, str) for text in own):
            raise ExtensionError(
                f"evaluator `{name}`: its `texts` must return strings", hint="questions, answers, or both"
            )
        declared += own
    return declared
