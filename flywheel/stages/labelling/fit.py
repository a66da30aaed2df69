"""Rates of every signal's votes, by an EM over patterns of votes, anchored on the priors.

In: episodes and their votes. Out: rows of the kinds vote, class and warning.

Most signals vote to one side only: a user who does not complain has not voted. So each signal and sign is one voter
that votes or stays silent, with its own rate of voting after success and after failure; only the ratio of both enters a
probability, and silence never does. In the fit silence does count, or the rates could not be identified. Such signals
cannot tell how many episodes succeed: without known outcomes the fit drifts (decision 0012), and by default the priors
stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from flywheel.stages.labelling.posterior import ALL
from flywheel.stages.labelling.priors import Rates, prior_rates
from flywheel.stages.labelling.votes import LEAST_VOTE
from flywheel.stages.signals.rows import AUDIT, VERIFIER
from flywheel.stats.label_model import BinaryFit, fit_binary

if TYPE_CHECKING:
    from flywheel.config import RewardsConfig

    Floats = npt.NDArray[np.float64]

ENOUGH_GOLD = 30  # known outcomes, ten of each kind at least
ENOUGH_OF_EACH = 10
PSEUDO_OUTCOMES = 2.0  # of each kind, added to the known successes and failures
ENOUGH_TOGETHER = 10  # episodes on which two families both voted, for three families
ENOUGH_IN_SCOPE = 200  # episodes from which a month or a policy gets a fit of its own
_MOST_VOTERS = 60  # bits of a pattern
_DECIDING = (AUDIT, VERIFIER)


class Voter(NamedTuple):
    """One sign of one signal's vote."""

    signal: str
    family: str
    sign: int


@dataclass(frozen=True)
class _Patterns:
    """Distinct patterns: who voted (n, J), how many episodes (n), their outcome or NaN (n), their scope (n).

    Audited episodes count by the number of episodes they represent, see `_masses`.
    """

    voted: npt.NDArray[np.bool_]
    counts: Floats
    gold: Floats
    scopes: list[str]

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which patterns have a known outcome."""
        return np.isfinite(self.gold)

    @property
    def outcomes(self) -> tuple[float, float]:
        """Known successes and failures."""
        known = self.known
        good = float((self.counts[known] * self.gold[known]).sum())
        return good, float(self.counts[known].sum()) - good

    @property
    def has_gold(self) -> bool:
        """Whether enough outcomes of both kinds are known."""
        return sum(self.outcomes) >= ENOUGH_GOLD and min(self.outcomes) >= ENOUGH_OF_EACH

    @property
    def votes_by_voter(self) -> Floats:
        """How many episodes each voter voted on (J)."""
        return np.asarray((self.voted * self.counts[:, None]).sum(axis=0), dtype=np.float64)

    def of_scope(self, name: str) -> _Patterns:
        mask = np.array([scope == name for scope in self.scopes])
        return _Patterns(self.voted[mask], self.counts[mask], self.gold[mask], [s for s in self.scopes if s == name])


def fitted(base: pl.DataFrame, votes: pl.DataFrame, cfg: RewardsConfig) -> Iterator[dict[str, Any]]:
    """Yield the rates of each vote and P(success), of the whole log and of each scope that is large enough."""
    voters = _voters(votes)
    patterns = _patterns(base, votes, voters)
    source, problem = _source(patterns, voters, cfg.fit)
    if problem:
        yield {"kind": "warning", "name": "not fitted", "note": f"reliabilities are priors, not measured: {problem}"}
    if source == "prior":
        for voter, n in zip(voters, patterns.votes_by_voter, strict=True):
            yield _vote(ALL, voter, prior_rates(voter.signal, voter.sign), round(n), "prior")
        return
    if source == "fitted":
        note = "reliabilities were fitted without known outcomes, which seldom goes well: audit some (flywheel audit)"
        yield {"kind": "warning", "name": "no gold", "note": note}
    ratios = [_ratio(prior_rates(v.signal, v.sign), v.sign) for v in voters]
    fit = _fit(patterns, voters, ratios, cfg.prior_strength)
    yield from _rows(ALL, voters, fit, patterns, source)
    ratios = [_ratio(Rates(float(a), float(b)), v.sign) for v, a, b in zip(voters, fit.tpr, fit.tnr, strict=True)]
    for scope in sorted({*patterns.scopes} - {ALL}):
        part = patterns.of_scope(scope)
        enough = ENOUGH_IN_SCOPE <= part.counts.sum() < patterns.counts.sum()
        if enough and (source == "fitted" or part.has_gold):
            yield from _rows(scope, voters, _fit(part, voters, ratios, cfg.prior_strength), part, source)


def _voters(votes: pl.DataFrame) -> list[Voter]:
    """Return the voters, those with most votes if there are too many."""
    clear = votes.filter(~pl.col("family").is_in(_DECIDING) & (pl.col("score").abs() >= LEAST_VOTE))
    sign = pl.when(pl.col("score") > 0).then(1).otherwise(-1)
    by = clear.with_columns(sign=sign).group_by("signal", "family", "sign").agg(n=pl.len())
    most = by.sort("n", "signal", "family", "sign", descending=[True, False, False, False]).head(_MOST_VOTERS)
    return [Voter(*row) for row in most.sort("family", "signal", "sign").select(Voter._fields).iter_rows()]


def _patterns(base: pl.DataFrame, votes: pl.DataFrame, voters: Sequence[Voter]) -> _Patterns:
    """Return the patterns of votes with their counts: a bit a voter, so a million episodes are a few hundred rows."""
    sign = pl.when(pl.col("score") > 0).then(1).otherwise(-1).cast(pl.Int64)
    names = pl.DataFrame(
        [(*voter, 1 << bit) for bit, voter in enumerate(voters)],
        schema={"signal": pl.String, "family": pl.String, "sign": pl.Int64, "bit": pl.Int64},
        orient="row",
    )
    clear = votes.filter(pl.col("score").abs() >= LEAST_VOTE).with_columns(sign=sign)
    bits = clear.join(names, on=["signal", "family", "sign"]).group_by("episode_id").agg(pl.col("bit").sum())
    grouped = (
        base.select("episode_id", "scope")
        .join(bits, on="episode_id", how="left")
        .join(_gold(votes), on="episode_id", how="left")
        .join(_masses(votes), on="episode_id", how="left")
        .with_columns(pl.col("bit").fill_null(0), pl.col("mass").fill_null(1.0))
        .group_by("scope", "bit", "gold")
        .agg(n=pl.col("mass").sum())
        .sort("scope", "bit", "gold", nulls_last=False)
    )
    codes = grouped["bit"].to_numpy()
    voted = (codes[:, None] >> np.arange(len(voters), dtype=np.int64)[None, :]) & 1 == 1
    gold = grouped["gold"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    return _Patterns(voted, grouped["n"].to_numpy(), gold, grouped["scope"].to_list())


def _masses(votes: pl.DataFrame) -> pl.DataFrame:
    """Return how many episodes each audited one represents; the sum is the number of audited episodes.

    A sample with many rare patterns must not make them seem frequent. Multiples of 1/1024: such sums are exact, so the
    order of rows cannot matter.
    """
    sampled = votes.filter((pl.col("family") == AUDIT) & pl.col("inclusion").is_not_null()).sort("episode_id")
    weight = 1 / pl.col("inclusion")
    share = weight / weight.sum() * pl.len()
    return sampled.select("episode_id", mass=((share * 1024).round() / 1024).clip(1 / 1024))


def _gold(votes: pl.DataFrame) -> pl.DataFrame:
    """Return the episodes whose outcome is known: by a reviewer, else by a verifier; rounded to two digits."""
    known = votes.filter(pl.col("family").is_in(_DECIDING)).group_by("episode_id", "family")
    mean = (pl.col("score") * pl.col("weight")).sum() / pl.col("weight").sum()
    scores = known.agg(score=mean).sort("episode_id", "family")  # "audit" sorts before "verifier"
    return scores.unique("episode_id", keep="first", maintain_order=True).select(
        "episode_id", gold=((pl.col("score") + 1) / 2).round(2)
    )


def _source(patterns: _Patterns, voters: Sequence[Voter], fit: str) -> tuple[str, str]:
    """Return the source of the rates ("prior" where nothing can be fitted), and why nothing can be."""
    if fit == "never":
        return "prior", "rewards.fit is never"
    if patterns.has_gold:
        return "fitted with gold", ""
    few = f"fewer than {ENOUGH_GOLD} outcomes are known, {ENOUGH_OF_EACH} of each kind"
    if fit == "gold":
        return "prior", few
    families = sorted({voter.family for voter in voters})
    voted = np.array([patterns.voted[:, [v.family == f for v in voters]].any(axis=1) for f in families], dtype=float)
    together = (voted * patterns.counts) @ voted.T >= ENOUGH_TOGETHER if families else np.zeros((0, 0), dtype=bool)
    triples = ((a, b, c) for a in range(len(families)) for b in range(a) for c in range(b))
    if any(together[a, b] and together[a, c] and together[b, c] for a, b, c in triples):
        return "fitted", ""
    return "prior", f"{few}, nor do three families of signals speak on {ENOUGH_TOGETHER} episodes together"


def _ratio(rates: Rates, sign: int) -> float:
    """Return P(votes | success) / P(votes | failure)."""
    return rates.tpr / (1 - rates.tnr) if sign > 0 else (1 - rates.tpr) / rates.tnr


def _fit(patterns: _Patterns, voters: Sequence[Voter], ratios: Sequence[float], strength: float) -> BinaryFit:
    """Fit one scope; a voter's anchor has the given ratio of rates and the frequency that the voter has here.

    Where outcomes are known they alone give P(success), and all other episodes together weigh no more than they do: by
    itself the model would explain whatever moves signals together, such as users who rate more than others. Otherwise
    P(success) is taken to be one half.
    """
    signs = np.array([voter.sign for voter in voters])
    votes = np.where(patterns.voted, signs, -signs)
    good, bad = patterns.outcomes
    rest = float(patterns.counts.sum()) - good - bad
    has_gold = patterns.has_gold
    share = min(1.0, (good + bad) / max(rest, 1.0))
    counts = np.where(patterns.known | (not has_gold), 1.0, share) * patterns.counts
    frequency = (patterns.votes_by_voter + 0.5) / (patterns.counts.sum() + 1)
    ratio = np.array(ratios)
    after_failure = np.minimum(2 * frequency / (1 + ratio), 0.98)
    after_success = np.minimum(ratio * after_failure, 0.98)
    tpr = np.where(signs > 0, after_success, 1 - after_success)
    tnr = np.where(signs > 0, 1 - after_failure, after_failure)
    return fit_binary(
        votes,
        counts,
        _shares(patterns.voted, voters),
        gold=patterns.gold,
        anchors=(tpr, tnr),
        strength=strength / (2 * frequency),  # pseudo-episodes in which each voter votes `strength` times
        prior=(good + PSEUDO_OUTCOMES) / (good + bad + 2 * PSEUDO_OUTCOMES) if has_gold else 0.5,
    )


def _shares(voted: npt.NDArray[np.bool_], voters: Sequence[Voter]) -> Floats:
    """Return the share (n, J) of each voter: the voters of a family share its one vote, or its one silence."""
    shares = np.zeros(voted.shape)
    for family in dict.fromkeys(voter.family for voter in voters):
        members = [j for j, voter in enumerate(voters) if voter.family == family]
        votes = voted[:, members]
        number = votes.sum(axis=1, keepdims=True)
        shares[:, members] = np.where(number > 0, votes / np.maximum(number, 1), 1 / len(members))
    return shares


def _rows(
    scope: str, voters: Sequence[Voter], fit: BinaryFit, patterns: _Patterns, source: str
) -> Iterator[dict[str, Any]]:
    yield {"kind": "class", "scope": scope, "value": fit.prior, "n": round(patterns.counts.sum()), "source": source}
    for voter, n, tpr, tnr in zip(voters, patterns.votes_by_voter, fit.tpr, fit.tnr, strict=True):
        yield _vote(scope, voter, Rates(float(tpr), float(tnr)), round(n), source)


def _vote(scope: str, voter: Voter, rates: Rates, n: int, source: str) -> dict[str, Any]:
    return {
        "kind": "vote", "scope": scope, "name": voter.signal, "family": voter.family, "sign": voter.sign,
        "tpr": rates.tpr, "tnr": rates.tnr, "n": n, "source": source,
    }  # fmt: skip
