"""Rivals beside candidate and champion: the base model, and the base with a few successes shown to it.

They stand in the table and have no part in the decision: a round that only does what three examples would do is worth
knowing about, and no reason to hold it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flywheel.errors import TemplateError
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.scorer import PolicyScorer, Side
from flywheel.pipeline.evaluate.suites import Suite
from flywheel.records import RivalRow

if TYPE_CHECKING:
    from flywheel.extensions import CaseScore

__all__ = ["rival_rows"]

Scores = Mapping[str, Sequence["CaseScore"]]


def rival_rows(
    ctx: Context, scorer: PolicyScorer, suites: Sequence[Suite], candidate: Scores, baseline: int | None
) -> list[RivalRow]:
    """Return a row for each rival and metric, on the cases that candidate and rival have."""
    rows: list[RivalRow] = []
    for side in _sides(ctx, baseline):
        for suite in suites:
            if suite.rivals:
                rows += _compared(side.name, suite.name, candidate[suite.name], _scores(ctx, scorer, side, suite))
    return rows


def _sides(ctx: Context, baseline: int | None) -> list[Side]:
    """Return the rivals that are asked for; the base is none where it is the baseline itself."""
    cfg, found = ctx.config.eval, []
    if "base" in cfg.rivals and baseline is not None:
        found.append(Side(None))
    if "few_shot" in cfg.rivals and cfg.few_shot:
        from flywheel.stages.evaluate.few_shot import demonstrations

        shown = demonstrations(read_table(ctx.store, "examples").collect(), cfg.few_shot, cfg.seed)
        found += [Side(None, tuple(shown))] if shown else []
    return found


def _scores(ctx: Context, scorer: PolicyScorer, side: Side, suite: Suite) -> list[CaseScore]:
    try:
        return scorer.rival(side, suite, ctx.config.eval.rival_cases)
    except TemplateError as error:  # it may refuse the examples, and no rival fails an evaluation
        ctx.say(f"{side.name} was not scored on {suite.name}: {error.message}")
        return []


def _compared(rival: str, suite: str, candidate: Sequence[CaseScore], scores: Sequence[CaseScore]) -> list[RivalRow]:
    ours, theirs = _by_metric(candidate), _by_metric(scores)
    rows = []
    for metric in sorted(theirs):
        cases = sorted(ours.get(metric, {}).keys() & theirs[metric].keys())
        means = (
            [math.fsum(side[metric][c] for c in cases) / len(cases) for side in (theirs, ours)] if cases else [None] * 2
        )
        rows.append(RivalRow(rival=rival, suite=suite, metric=metric, n=len(cases), value=means[0], candidate=means[1]))
    return rows


def _by_metric(scores: Sequence[CaseScore]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for score in scores:
        if not score.unit and math.isfinite(score.score):
            found.setdefault(score.metric, {})[score.case_id] = score.score
    return found
