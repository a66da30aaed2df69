"""How far each user's opinions are trusted.

In: episodes and votes. Out: rows of the kind user, for users whose ratings a verifier or a reviewer checked. How many
rows of one user are trained on is decided when a round's rows are selected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from flywheel.stages.signals.rows import AUDIT, VERIFIER

AGREE, DISAGREE = 8.0, 2.0  # Beta prior: users are trusted until they are caught
LEAST_TRUST = 0.2


def users(base: pl.DataFrame, votes: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield each checked user's trust, relative to a user of whom nothing is known.

    Trust is the shrunk agreement of a user's ratings with known outcomes.
    """
    known = base.filter(pl.col("user").is_not_null())
    for user, right, total in _checked(known, votes).sort("user").select("user", "right", "total").iter_rows():
        trust = max((AGREE + right) / (AGREE + DISAGREE + total), LEAST_TRUST)
        yield {"kind": "user", "name": user, "value": min(trust * (AGREE + DISAGREE) / AGREE, 1.0), "n": total}


def _checked(known: pl.DataFrame, votes: pl.DataFrame) -> pl.DataFrame:
    """Return how many of each user's ratings a known outcome agrees with, and of how many."""
    deciding = pl.col("family").is_in([AUDIT, VERIFIER])
    truth = votes.filter(deciding).sort("episode_id", "family").unique("episode_id", keep="first", maintain_order=True)
    ratings = votes.filter((pl.col("signal") == "thumbs") & (pl.col("score") != 0))
    both = (
        ratings.join(truth.select("episode_id", truth="score"), on="episode_id")
        .join(known.select("episode_id", "user"), on="episode_id")
        .filter(pl.col("truth") != 0)
    )
    agrees = (pl.col("score") > 0) == (pl.col("truth") > 0)
    return both.group_by("user").agg(right=agrees.sum(), total=pl.len())
