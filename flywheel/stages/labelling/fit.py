"""Rates of every signal's votes, by an EM over patterns of votes, anchored on the priors.

In: episodes and their votes. Out: rows of the kinds vote, class and warning.

Most signals vote to one side only: who does not complain has said nothing yet. So each signal and sign is one voter
that speaks or stays silent, with its own rate of speaking after success and after failure; only the ratio of both
enters a probability, and silence never does. In the fit silence does count, else the rates could not be told from one
another. Such signals cannot say how many episodes succeed: without known outcomes the fit drifts (decision 0012), and
by default the priors stay.
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
PSEUDO_OUTCOMES = 2.0  # of each kind, behind the share of known successes
ENOUGH_TOGETHER = 10  # episodes on which two families spoke both, for three families
ENOUGH_IN_SCOPE = 200  # episodes from which a month or a policy is fitted by itself
_MOST_VOTERS = 60  # bits of a pattern
_DECIDING = (AUDIT, VERIFIER)


class Voter(NamedTuple):
    """One sign of one signal's vote."""

    signal: str
    family: str
    sign: int


@dataclass(frozen=True)
class _Table:
    """Distinct patterns: who spoke (n, J), how many episodes (n), their truth or NaN (n), their scope (n).

    Audited episodes count by what they stand for, see `_masses`.
    """

    spoke: npt.NDArray[np.bool_]
    counts: Floats
    gold: Floats
    scopes: list[str]

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which patterns have a known outcome."""
        return np.isfinite(self.gold)

    @property
    def told(self) -> tuple[float, float]:
        """Known successes and failures."""
        known = self.known
        good = float((self.counts[known] * self.gold[known]).sum())
        return good, float(self.counts[known].sum()) - good

    @property
    def taught(self) -> bool:
        """Whether enough outcomes of both kinds are known."""
        return sum(self.told) >= ENOUGH_GOLD and min(self.told) >= ENOUGH_OF_EACH

    def where(self, mask: npt.NDArray[np.bool_]) -> _Table:
        kept = [scope for scope, keep in zip(self.scopes, mask.tolist(), strict=True) if keep]
        return _Table(self.spoke[mask], self.counts[mask], self.gold[mask], kept)


def fitted(base: pl.DataFrame, votes: pl.DataFrame, cfg: RewardsConfig) -> Iterator[dict[str, Any]]:
    """Yield the rates of each vote and P(success), of the whole log and of each scope that is large enough."""
    voters = _voters(votes)
    table = _patterns(base, votes, voters)
    counts = (table.spoke * table.counts[:, None]).sum(axis=0)
    source, problem = _identified(table, voters, cfg.fit)
    if problem:
        yield {"kind": "warning", "name": "not fitted", "note": f"reliabilities are priors, not measured: {problem}"}
    if source == "prior":
        for voter, n in zip(voters, counts, strict=True):
            yield _vote(ALL, voter, prior_rates(voter.signal, voter.sign), round(n), "prior")
        return
    if source == "fitted":
        note = "reliabilities were fitted without known outcomes, which seldom goes well: audit some (flywheel audit)"
        yield {"kind": "warning", "name": "no gold", "note": note}
    ratios = [_ratio(prior_rates(v.signal, v.sign), v.sign) for v in voters]
    fit = _fit(table, voters, ratios, cfg.prior_strength)
    yield from _rows(ALL, voters, fit, table, source)
    found = [_ratio(Rates(float(a), float(b)), v.sign) for v, a, b in zip(voters, fit.tpr, fit.tnr, strict=True)]
    for scope in sorted({*table.scopes} - {ALL}):
        part = table.where(np.array([name == scope for name in table.scopes]))
        enough = ENOUGH_IN_SCOPE <= part.counts.sum() < table.counts.sum()
        if enough and (source == "fitted" or part.taught):
            yield from _rows(scope, voters, _fit(part, voters, found, cfg.prior_strength), part, source)


def _voters(votes: pl.DataFrame) -> list[Voter]:
    """Return who speaks, the most talkative if there are too many."""
    loud = votes.filter(~pl.col("family").is_in(_DECIDING) & (pl.col("score").abs() >= LEAST_VOTE))
    sign = pl.when(pl.col("score") > 0).then(1).otherwise(-1)
    by = loud.with_columns(sign=sign).group_by("signal", "family", "sign").agg(n=pl.len())
    most = by.sort("n", "signal", "family", "sign", descending=[True, False, False, False]).head(_MOST_VOTERS)
    return [Voter(*row) for row in most.sort("family", "signal", "sign").select(Voter._fields).iter_rows()]


def _patterns(base: pl.DataFrame, votes: pl.DataFrame, voters: Sequence[Voter]) -> _Table:
    """Return who spoke together, counted: a bit a voter, so that a million episodes are a few hundred rows."""
    sign = pl.when(pl.col("score") > 0).then(1).otherwise(-1).cast(pl.Int64)
    names = pl.DataFrame(
        [(*voter, 1 << bit) for bit, voter in enumerate(voters)],
        schema={"signal": pl.String, "family": pl.String, "sign": pl.Int64, "bit": pl.Int64},
        orient="row",
    )
    loud = votes.filter(pl.col("score").abs() >= LEAST_VOTE).with_columns(sign=sign)
    bits = loud.join(names, on=["signal", "family", "sign"]).group_by("episode_id").agg(pl.col("bit").sum())
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
    spoke = (codes[:, None] >> np.arange(len(voters), dtype=np.int64)[None, :]) & 1 == 1
    gold = grouped["gold"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    return _Table(spoke, grouped["n"].to_numpy(), gold, grouped["scope"].to_list())


def _masses(votes: pl.DataFrame) -> pl.DataFrame:
    """Return how many episodes each audited one stands for, all of them together for their own number.

    A sample that looks closely at rare patterns must not make them seem frequent. Multiples of 1/1024: such sums are
    exact, so the order of rows cannot matter.
    """
    drawn = votes.filter((pl.col("family") == AUDIT) & pl.col("inclusion").is_not_null()).sort("episode_id")
    weight = 1 / pl.col("inclusion")
    share = weight / weight.sum() * pl.len()
    return drawn.select("episode_id", mass=((share * 1024).round() / 1024).clip(1 / 1024))


def _gold(votes: pl.DataFrame) -> pl.DataFrame:
    """Return the episodes whose outcome is known: by a reviewer, else by a verifier; two digits are enough."""
    told = votes.filter(pl.col("family").is_in(_DECIDING)).group_by("episode_id", "family")
    mean = (pl.col("score") * pl.col("weight")).sum() / pl.col("weight").sum()
    scores = told.agg(score=mean).sort("episode_id", "family")  # "audit" stands before "verifier"
    return scores.unique("episode_id", keep="first", maintain_order=True).select(
        "episode_id", gold=((pl.col("score") + 1) / 2).round(2)
    )


def _identified(table: _Table, voters: Sequence[Voter], fit: str) -> tuple[str, str]:
    """Return what can be fitted ("prior": nothing), and why not."""
    if fit == "never":
        return "prior", "rewards.fit says so"
    if table.taught:
        return "fitted with gold", ""
    few = f"fewer than {ENOUGH_GOLD} outcomes are known, {ENOUGH_OF_EACH} of each kind"
    if fit == "gold":
        return "prior", few
    families = sorted({voter.family for voter in voters})
    said = np.array([table.spoke[:, [v.family == f for v in voters]].any(axis=1) for f in families], dtype=float)
    together = (said * table.counts) @ said.T >= ENOUGH_TOGETHER if families else np.zeros((0, 0), dtype=bool)
    triples = ((a, b, c) for a in range(len(families)) for b in range(a) for c in range(b))
    if any(together[a, b] and together[a, c] and together[b, c] for a, b, c in triples):
        return "fitted", ""
    return "prior", f"{few}, nor do three families of signals speak on {ENOUGH_TOGETHER} episodes together"


def _ratio(rates: Rates, sign: int) -> float:
    """Return P(speaks | success) / P(speaks | failure)."""
    return rates.tpr / (1 - rates.tnr) if sign > 0 else (1 - rates.tpr) / rates.tnr


def _fit(table: _Table, voters: Sequence[Voter], ratios: Sequence[float], strength: float) -> BinaryFit:
    """Fit one scope: a voter's anchor keeps the ratio it had before and speaks as often as it does here.

    With known outcomes they alone say how many succeed, and all other episodes together have no louder voice than they:
    by itself the model would explain whatever moves signals together, such as users who speak more than others. Without
    them half is assumed.
    """
    signs = np.array([voter.sign for voter in voters])
    votes = np.where(table.spoke, signs, -signs)
    good, bad = table.told
    rest = float(table.counts.sum()) - good - bad
    taught = table.taught
    counts = np.where(table.known | (not taught), 1.0, min(1.0, (good + bad) / max(rest, 1.0))) * table.counts
    total = table.counts.sum()
    often = ((table.spoke * table.counts[:, None]).sum(axis=0) + 0.5) / (total + 1)
    ratio = np.array(ratios)
    after_failure = np.minimum(2 * often / (1 + ratio), 0.98)
    after_success = np.minimum(ratio * after_failure, 0.98)
    tpr = np.where(signs > 0, after_success, 1 - after_success)
    tnr = np.where(signs > 0, 1 - after_failure, after_failure)
    # So many pseudo-episodes that each voter speaks `strength` times in them.
    weight = strength / (2 * often)
    return fit_binary(
        votes,
        counts,
        _shares(table.spoke, voters),
        gold=table.gold,
        anchors=(tpr, tnr),
        strength=weight,
        prior=(good + PSEUDO_OUTCOMES) / (good + bad + 2 * PSEUDO_OUTCOMES) if taught else 0.5,
    )


def _shares(spoke: npt.NDArray[np.bool_], voters: Sequence[Voter]) -> Floats:
    """Return the share of each voter, who speaks or is silent: those of a family that speak share its one vote.

    Where nobody of a family speaks, its silence is one vote too.
    """
    shares = np.zeros(spoke.shape)
    for family in dict.fromkeys(voter.family for voter in voters):
        members = [j for j, voter in enumerate(voters) if voter.family == family]
        loud = spoke[:, members]
        number = loud.sum(axis=1, keepdims=True)
        shares[:, members] = np.where(number > 0, loud / np.maximum(number, 1), 1 / len(members))
    return shares


def _rows(scope: str, voters: Sequence[Voter], fit: BinaryFit, table: _Table, source: str) -> Iterator[dict[str, Any]]:
    counts = (table.spoke * table.counts[:, None]).sum(axis=0)
    yield {"kind": "class", "scope": scope, "value": fit.prior, "n": round(table.counts.sum()), "source": source}
    for voter, n, tpr, tnr in zip(voters, counts, fit.tpr, fit.tnr, strict=True):
        yield _vote(scope, voter, Rates(float(tpr), float(tnr)), round(n), source)


def _vote(scope: str, voter: Voter, rates: Rates, n: int, source: str) -> dict[str, Any]:
    return {
        "kind": "vote", "scope": scope, "name": voter.signal, "family": voter.family, "sign": voter.sign,
        "tpr": rates.tpr, "tnr": rates.tnr, "n": n, "source": source,
    }  # fmt: skip
