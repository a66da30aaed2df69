"""Trust in each user's ratings.

In: episodes and votes. Out: rows of the kind user, for users with ratings on episodes whose outcome is known. How many
rows of one user are trained on is decided when a round's rows are selected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from flywheel.stages.signals.rows import AUDIT, VERIFIER

AGREE, DISAGREE = 8.0, 2.0  # Beta prior: users are trusted until their ratings prove wrong
LEAST_TRUST = 0.2


def user_trust(base: pl.DataFrame, votes: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield each user's trust: the shrunk agreement of their ratings with known outcomes, 1 for an unchecked user."""
    users = base.filter(pl.col("user").is_not_null()).select("episode_id", "user")
    deciding = pl.col("family").is_in([AUDIT, VERIFIER])
    truth = votes.filter(deciding).sort("episode_id", "family").unique("episode_id", keep="first", maintain_order=True)
    ratings = votes.filter((pl.col("signal") == "thumbs") & (pl.col("score") != 0))
    checked = (
        ratings.join(truth.select("episode_id", truth="score"), on="episode_id")
        .join(users, on="episode_id")
        .filter(pl.col("truth") != 0)
    )
    agrees = (pl.col("score") > 0) == (pl.col("truth") > 0)
    counts = checked.group_by("user").agg(right=agrees.sum(), total=pl.len()).sort("user")
    for user, right, total in counts.iter_rows():
        trust = max((AGREE + right) / (AGREE + DISAGREE + total), LEAST_TRUST)
        yield {"kind": "user", "name": user, "value": min(trust * (AGREE + DISAGREE) / AGREE, 1.0), "n": total}
