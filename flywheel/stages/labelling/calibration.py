"""From score to probability, by the answers of an audit.

In: episodes, votes, and the posterior so far. Out: the row of the kind calibration, or a warning that there is none.
Only rows that were sampled with a known probability count: verdicts on hand-picked cases do not represent the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl

from flywheel.stages.labelling.posterior import NO_VOTE, Posterior, Vote, scope_in
from flywheel.stages.labelling.priors import SURE
from flywheel.stages.signals.rows import AUDIT
from flywheel.stats.calibration import brier, cross_fitted, expected_calibration_error, fold_of, isotonic

ENOUGH_ANSWERS = 30  # below, a curve would be noise
PSEUDO_ANSWERS = 20.0  # weight of the identity in answers


class Audited(NamedTuple):
    """An audited episode."""

    episode_id: str
    score: float  # by the signals alone
    answer: float  # in [0, 1]
    weight: float  # 1 / inclusion probability
    cluster: str  # the user, whose rows are dependent; else the episode
    silent: bool  # no signal voted


def audited(base: pl.DataFrame, votes: pl.DataFrame, posterior: Posterior) -> list[Audited]:
    """Return the audited episodes, by id.

    Args:
        base: episodes with their `scope` and `user`.
        votes: as by `votes.summed`.
        posterior: scores the signals.
    """
    answers = votes.filter((pl.col("family") == AUDIT) & pl.col("inclusion").is_not_null())
    facts = {row[0]: row[1:] for row in base.select("episode_id", "source", "scope", "user").iter_rows()}
    others = votes.filter(pl.col("family") != AUDIT).join(answers.select("episode_id"), on="episode_id", how="semi")
    votes_of: dict[str, list[Vote]] = {}
    for episode, *vote in others.select("episode_id", *Vote._fields).iter_rows():
        votes_of.setdefault(episode, []).append(Vote(*vote))
    rows = []
    for episode, score, inclusion in answers.sort("episode_id").select("episode_id", "score", "inclusion").iter_rows():
        source, scope, user = facts[episode]
        trusted = posterior.trusted(votes_of.get(episode, []), user)
        estimate = posterior.estimate(trusted, scope_in(source, scope))
        answer, weight = (score + 1) / 2, 1 / inclusion
        rows.append(Audited(episode, round(estimate.score, 6), answer, weight, user or episode, not estimate.signals))
    return rows


def calibration(base: pl.DataFrame, votes: pl.DataFrame, posterior: Posterior) -> Iterator[dict[str, Any]]:
    """Yield the calibration curve with its cross-fitted error, or a warning."""
    rows = audited(base, votes, posterior)
    if len(rows) < ENOUGH_ANSWERS:
        note = f"probabilities are uncalibrated: {len(rows)} of at least {ENOUGH_ANSWERS} audited episodes"
        yield {"kind": "warning", "name": "uncalibrated", "n": len(rows), "note": note}
        return
    identity = PSEUDO_ANSWERS / (PSEUDO_ANSWERS + len(rows))
    voting = [row for row in rows if not row.silent]
    curve = isotonic(*columns_of(voting)).shrunk_to_identity(identity)
    answers, weights = [row.answer for row in rows], [row.weight for row in rows]
    fitted = cross_fitted_answers(rows)
    yield {
        "kind": "calibration", "value": expected_calibration_error(fitted, answers, weights),
        "low": brier(fitted, answers, weights), "n": len(rows), "x": list(curve.scores), "y": list(curve.values),
    }  # fmt: skip
    if len(rows) > len(voting):
        yield {"kind": "calibration", "name": NO_VOTE, "value": silent_share(rows), "n": len(rows) - len(voting)}


def columns_of(rows: Sequence[Audited]) -> tuple[list[float], list[float], list[float]]:
    """Return scores, answers and weights."""
    return [row.score for row in rows], [row.answer for row in rows], [row.weight for row in rows]


def silent_share(rows: Sequence[Audited]) -> float:
    """Return P(success) of an episode without votes, shrunk to that of all by as many answers as the curve is.

    Such an episode has another place than a score of 0.5 on the curve: silent users
    may be content or not, and only an audit can show it.
    """

    def share(some: Sequence[Audited]) -> float:
        mass = math.fsum(row.weight for row in some)
        return math.fsum(row.weight * row.answer for row in some) / mass if mass else 0.5

    silent = [row for row in rows if row.silent]
    everyone = (len(rows) * share(rows) + PSEUDO_ANSWERS * 0.5) / (len(rows) + PSEUDO_ANSWERS)
    p = (len(silent) * share(silent) + PSEUDO_ANSWERS * everyone) / (len(silent) + PSEUDO_ANSWERS)
    return min(max(p, 1 - SURE), SURE)


def cross_fitted_answers(rows: Sequence[Audited]) -> list[float]:
    """Return each row's calibrated probability by a curve, or a share of the silent, fitted without its fold."""
    voting = [row for row in rows if not row.silent]
    curved = dict(zip(voting, cross_fitted(*columns_of(voting), [row.cluster for row in voting]), strict=True))
    fold = {row: fold_of(row.cluster) for row in rows}
    without = {number: silent_share([row for row in rows if fold[row] != number]) for number in {*fold.values()}}
    return [curved.get(row, without[fold[row]]) for row in rows]
