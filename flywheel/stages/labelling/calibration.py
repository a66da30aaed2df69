"""From score to probability, by the answers of an audit.

In: episodes, votes, and the posterior so far. Out: the row of the kind calibration, or a warning that there is none.
Only rows that were sampled with a known probability count: verdicts on hand-picked cases do not represent the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from flywheel.stages.labelling.posterior import Posterior, Vote
from flywheel.stages.signals.rows import AUDIT
from flywheel.stats.calibration import brier, cross_fitted, expected_calibration_error, isotonic

ENOUGH_ANSWERS = 30  # below, a curve would be noise
PSEUDO_ANSWERS = 20.0  # weight of the identity in answers


class Audited(NamedTuple):
    """An audited episode."""

    episode_id: str
    score: float  # by the signals alone
    answer: float  # in [0, 1]
    weight: float  # 1 / inclusion probability
    cluster: str  # the user, whose rows are dependent; else the episode


def audited(base: pl.DataFrame, votes: pl.DataFrame, posterior: Posterior) -> list[Audited]:
    """Return the audited episodes, by id.

    Args:
        base: episodes with their `scope` and `user`.
        votes: as by `votes.summed`.
        posterior: scores the signals.
    """
    answers = votes.filter((pl.col("family") == AUDIT) & pl.col("inclusion").is_not_null())
    facts = {row[0]: row[1:] for row in base.select("episode_id", "scope", "user").iter_rows()}
    others = votes.filter(pl.col("family") != AUDIT).join(answers.select("episode_id"), on="episode_id", how="semi")
    votes_of: dict[str, list[Vote]] = {}
    for episode, *vote in others.select("episode_id", *Vote._fields).iter_rows():
        votes_of.setdefault(episode, []).append(Vote(*vote))
    rows = []
    for episode, score, inclusion in answers.sort("episode_id").select("episode_id", "score", "inclusion").iter_rows():
        scope, user = facts[episode]
        raw = posterior.score(votes_of.get(episode, []), scope)
        rows.append(Audited(episode, round(raw, 6), (score + 1) / 2, 1 / inclusion, user or episode))
    return rows


def calibration(base: pl.DataFrame, votes: pl.DataFrame, posterior: Posterior) -> Iterator[dict[str, Any]]:
    """Yield the calibration curve with its cross-fitted error, or a warning."""
    rows = audited(base, votes, posterior)
    if len(rows) < ENOUGH_ANSWERS:
        note = f"probabilities are uncalibrated: {len(rows)} of at least {ENOUGH_ANSWERS} audited episodes"
        yield {"kind": "warning", "name": "uncalibrated", "n": len(rows), "note": note}
        return
    scores, answers, weights = [r.score for r in rows], [r.answer for r in rows], [r.weight for r in rows]
    fitted = cross_fitted(scores, answers, weights, [row.cluster for row in rows])
    identity = PSEUDO_ANSWERS / (PSEUDO_ANSWERS + len(rows))
    curve = isotonic(scores, answers, weights).shrunk_to_identity(identity)
    yield {
        "kind": "calibration", "value": expected_calibration_error(fitted, answers, weights),
        "low": brier(fitted, answers, weights), "n": len(rows), "x": list(curve.scores), "y": list(curve.values),
    }  # fmt: skip
