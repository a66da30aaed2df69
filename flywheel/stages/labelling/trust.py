"""Trust in each account's deeds: thumbs, praise, complaints, adoption, undoing, rephrasing, whatever users do.

In: episodes and votes. Out: rows of the kind user, for accounts whose deeds count less than others'. There are two
reasons: known outcomes contradict them more often than the same deeds of other accounts, or they do the same after
nearly every episode, and so show nothing of any. How many rows of one user are trained on is decided when a round's
rows are selected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl

from flywheel.stages.signals.cohorts import DEEDS
from flywheel.stages.signals.rows import AUDIT, VERIFIER

AGREE, DISAGREE = 8.0, 2.0  # Beta prior: users are trusted until their deeds prove wrong
LEAST_TRUST = 0.2
ENOUGH_CHECKED = 5  # deeds of an account on episodes with a known outcome
ENOUGH_EPISODES = 10  # of an account, from which its habits are looked at
PSEUDO_EPISODES = 5.0  # by which the habits of all count
# P(success) and P(failure) at the most: who adopts no more than that may have adopted successes only.
MOST_LIKED, MOST_DISLIKED = 0.8, 0.5
FULL_LOG_ODDS = math.log(3.4)  # of a deed that is worth something


class Deeds(NamedTuple):
    """What the accounts of a piece did, as counts."""

    episodes: pl.DataFrame  # user, n
    did: pl.DataFrame  # user, family, sign, k: on how many of them
    checked: pl.DataFrame  # user, signal, sign, right, total: where an outcome is known


def deeds_of(base: pl.DataFrame, votes: pl.DataFrame) -> Deeds:
    """Return what accounts did after their episodes, and how often known outcomes agree."""
    users = base.filter(pl.col("user").is_not_null()).select("episode_id", "user")
    deeds = votes.filter(pl.col("family").is_in(list(DEEDS)) & (pl.col("score") != 0)).join(users, on="episode_id")
    deeds = deeds.with_columns(sign=pl.when(pl.col("score") > 0).then(1).otherwise(-1))
    deciding = pl.col("family").is_in([AUDIT, VERIFIER])
    truth = votes.filter(deciding).sort("episode_id", "family").unique("episode_id", keep="first", maintain_order=True)
    known = deeds.join(truth.select("episode_id", truth="score"), on="episode_id").filter(pl.col("truth") != 0)
    right = (pl.col("sign") > 0) == (pl.col("truth") > 0)
    did = deeds.select("episode_id", "user", "family", "sign").unique()
    return Deeds(
        users.group_by("user").agg(n=pl.len()),
        did.group_by("user", "family", "sign").agg(k=pl.len()),
        known.group_by("user", "signal", "sign").agg(right=right.sum(), total=pl.len()),
    )


def user_trust(pieces: Sequence[Deeds]) -> Iterator[dict[str, Any]]:
    """Yield the trust in each account that was checked against outcomes or does the same always; others have 1."""
    episodes, did, checks = (pl.concat(frames) for frames in zip(*pieces, strict=True))
    checked, habits = _by_outcomes(checks), _by_habit(did, episodes)
    for user in sorted({*checked, *habits}):
        by_outcomes, n = checked.get(user, (1.0, 0))
        by_habit, seen = habits.get(user, (1.0, 0))
        trust = max(min(by_outcomes, by_habit), LEAST_TRUST)
        note = "does the same after nearly every episode" if by_habit < by_outcomes else ""
        habit = max(by_habit, LEAST_TRUST)
        yield {"kind": "user", "name": user, "value": trust, "low": habit, "n": max(n, seen), "note": note}


def _by_outcomes(checks: pl.DataFrame) -> dict[str, tuple[float, int]]:
    """Return how often known outcomes agree with an account's deeds, relative to the same deeds of all others."""
    own = checks.group_by("user", "signal", "sign").agg(pl.col("right", "total").sum())
    everyone = ("right", "total")
    others = [(pl.col(name).sum().over("signal", "sign") - pl.col(name)).alias(f"_{name}") for name in everyone]
    expected = (pl.col("_right") + AGREE) / (pl.col("_total") + AGREE + DISAGREE) * pl.col("total")
    by_user = (
        own.with_columns(others)
        .with_columns(expected=expected)
        .sort("user", "signal", "sign")
        .group_by("user")
        .agg(pl.col("right", "expected", "total").sum())
    )
    return {
        user: (min((AGREE + right) / (AGREE + expected), 1.0), total)
        for user, right, expected, total in by_user.iter_rows()
        if total >= ENOUGH_CHECKED
    }


def _by_habit(did: pl.DataFrame, episodes: pl.DataFrame) -> dict[str, tuple[float, int]]:
    """Return what the deeds of accounts that do the same after nearly every episode can be worth at the most.

    With a share s of successes, a deed that follows a share r > s of all episodes follows at least (r - s) / (1 - s) of
    the failures, so its odds ratio is (1 - s) / (r - s) at the most: 1 for a user who adopts everything.
    """
    whole = int(episodes["n"].sum())
    several = episodes.group_by("user").agg(pl.col("n").sum()).filter(pl.col("n") >= ENOUGH_EPISODES)
    counts = did.group_by("user", "family", "sign").agg(pl.col("k").sum())
    usual = counts.group_by("family", "sign").agg(usual=pl.col("k").sum() / max(whole, 1))
    rates = counts.join(several, on="user").join(usual, on=["family", "sign"])
    worth: dict[str, tuple[float, int]] = {}
    for user, sign, k, n, often in rates.select("user", "sign", "k", "n", "usual").iter_rows():
        rate = (k + PSEUDO_EPISODES * often) / (n + PSEUDO_EPISODES)
        share = MOST_LIKED if sign > 0 else MOST_DISLIKED
        if rate > share:
            trust = min(math.log((1 - share) / (rate - share)) / FULL_LOG_ODDS, 1.0)
            if trust < worth.get(user, (1.0, 0))[0]:
                worth[user] = trust, n
    return worth
