"""How far each user's opinions are trusted, and how much of a busy user's rows counts.

In: episodes and votes. Out: rows of the kind user, for users of whom there is something to say: their ratings were
checked by a verifier or a reviewer, or they have more episodes than the median user.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flywheel.stages._priors import AUDIT, VERIFIER

if TYPE_CHECKING:
    import polars as pl

__all__ = ["LEAST_TRUST", "users"]

AGREE, DISAGREE = 8.0, 2.0  # Beta prior: users are trusted until they are caught
LEAST_TRUST = 0.2


def users(base: pl.DataFrame, votes: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield each notable user's trust, relative to a user of whom nothing is known, and the share of their rows.

    Trust is the shrunk agreement of a user's ratings with known outcomes. The share is sqrt(median / n): all rows of
    a user together then count as the root of their number, and nobody counts less for being the only user.
    """
    import polars as pl

    known = base.filter(pl.col("user").is_not_null())
    if known.is_empty():
        return
    numbers = known.group_by("user").agg(n=pl.len())
    median = float(numbers["n"].cast(pl.Float64).quantile(0.5, interpolation="lower") or 1.0)
    checked = _checked(known, votes)
    table = numbers.join(checked, on="user", how="left").sort("user")
    for user, n, right, total in table.select("user", "n", "right", "total").iter_rows():
        if n > median or total:
            trust = max((AGREE + (right or 0)) / (AGREE + DISAGREE + (total or 0)), LEAST_TRUST)
            relative = min(trust * (AGREE + DISAGREE) / AGREE, 1.0)
            share = min(1.0, math.sqrt(median / n))
            yield {"kind": "user", "name": user, "value": relative, "low": share, "n": n}


def _checked(known: pl.DataFrame, votes: pl.DataFrame) -> pl.DataFrame:
    """Return how many of each user's ratings a known outcome agrees with, and of how many."""
    import polars as pl

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
