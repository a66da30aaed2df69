"""Rates of every signal's votes, by an EM over patterns of votes, anchored on the priors.

In: patterns of votes, of all pieces of the log. Out: rows of the kinds vote, class and warning.

Most signals vote to one side only: a user who does not complain has not voted. So each signal and sign is one voter
that votes or stays silent, with its own rate of voting after success and after failure; only the ratio of both enters a
probability, and silence never does. In the fit silence does count, or the rates could not be identified. Such signals
cannot tell how many episodes succeeded: without known outcomes the fit drifts (decision 0012), and by default the
priors stay.

Rates have levels: the whole log, a source of it, and a month or policy of a source, each shrunk towards the one above.
Sources are fitted each by itself and pooled as log odds ratios: in one heap a signal would seem worth nothing as soon
as its sources differ in how many episodes succeed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from flywheel.config import RewardsConfig
from flywheel.stages.labelling.patterns import (
    ENOUGH_GOLD,
    ENOUGH_OF_EACH,
    Bools,
    Floats,
    Observed,
    Patterns,
    Voter,
    patterns_of,
    voters_of,
)
from flywheel.stages.labelling.posterior import ALL, scope_in
from flywheel.stages.labelling.priors import Rates, prior_rates
from flywheel.stages.labelling.verification import AUDITED, NOTHING, UNKNOWN, ClassPrior, class_prior
from flywheel.stats.label_model import fit_binary

PRIOR_VOTES = 10.0  # what a prior reliability is worth
ENOUGH_TOGETHER = 10  # episodes on which two families both voted, for three families
ENOUGH_IN_SCOPE = 200  # episodes from which a month or a policy gets a fit of its own
MOST_OF_A_SOURCE = 100.0  # votes by which one source counts in what all have in common


class _Fit(NamedTuple):
    """Rates by voter (J), and P(success)."""

    tpr: Floats
    tnr: Floats
    prior: ClassPrior
    n: float

    def ratios(self, voters: Sequence[Voter]) -> list[float]:
        """Return P(votes | success) / P(votes | failure) of each voter."""
        rates = zip(voters, self.tpr, self.tnr, strict=True)
        return [_ratio(Rates(float(a), float(b)), voter.sign) for voter, a, b in rates]


def fitted(pieces: Sequence[Observed], cfg: RewardsConfig) -> Iterator[dict[str, Any]]:
    """Yield the rates of each vote and P(success): of the whole log, its sources, and scopes that are large enough."""
    voters = voters_of(pieces)
    patterns = patterns_of(pieces, voters)
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
    names = sorted({*patterns.sources})
    several = len(names) > 1 and source != "fitted"
    whole = (_pooled if several else _alone)(patterns, voters)
    yield from _rows(ALL, voters, whole, patterns, source)
    yield from _chosen(whole.prior, "")
    for name in names if several else [ALL]:
        part = patterns.of(name) if several else patterns
        fit = _of_source(part, voters, whole) if several else whole
        if several:
            yield from _rows(name, voters, fit, part, source)
            yield from _chosen(fit.prior, name)
        for scope in sorted({*part.scopes} - {ALL}):
            inner = part.of(scope=scope)
            enough = ENOUGH_IN_SCOPE <= inner.counts.sum() < part.counts.sum()
            if enough and (source == "fitted" or inner.has_gold):
                own = _fit(inner, voters, fit.ratios(voters), fit.prior)
                yield from _rows(scope_in(name if several else "", scope), voters, own, inner, source)


def _alone(patterns: Patterns, voters: Sequence[Voter]) -> _Fit:
    """Fit the log of one source, from the priors."""
    return _fit(patterns, voters, _prior_ratios(voters))


def _prior_ratios(voters: Sequence[Voter]) -> list[float]:
    return [_ratio(prior_rates(v.signal, v.sign), v.sign) for v in voters]


def _pooled(patterns: Patterns, voters: Sequence[Voter]) -> _Fit:
    """Return what the sources of a log have in common: the mean log odds ratio of each voter, with the prior as one.

    Where no source has enough outcomes, and all have them together, as an audit's few are spread over them, those are
    fitted as of one log.
    """
    logs = PRIOR_VOTES * np.log(_prior_ratios(voters))
    weights = np.full(len(voters), PRIOR_VOTES)
    parts = [part for name in sorted({*patterns.sources}) if (part := patterns.of(name)).has_gold]
    if not parts:
        return _alone(patterns, voters)
    for part in parts:
        checked = np.minimum(part.checked_by_voter, MOST_OF_A_SOURCE)
        ratios = _fit(part, voters, _prior_ratios(voters)).ratios(voters)
        logs, weights = logs + checked * np.log(ratios), weights + checked
    tpr, tnr = _anchors(patterns, voters, list(np.exp(logs / weights)))
    return _Fit(tpr, tnr, class_prior(patterns, voters), float(patterns.counts.sum()))


def _of_source(patterns: Patterns, voters: Sequence[Voter], whole: _Fit) -> _Fit:
    """Fit one source of several, shrunk to what all have in common; where nothing is known of it, that is taken.

    An audit is a sample of the whole log, so it holds for every source; verdicts of another source do not.
    """
    ratios = whole.ratios(voters)
    if patterns.has_gold:
        return _fit(patterns, voters, ratios, whole.prior)
    tpr, tnr = _anchors(patterns, voters, ratios)
    prior = class_prior(patterns, voters, whole.prior)
    if prior.source != AUDITED and sum(patterns.outcomes) < ENOUGH_GOLD:
        prior = replace(prior, value=UNKNOWN, source=NOTHING)
    return _Fit(tpr, tnr, prior, float(patterns.counts.sum()))


def _chosen(prior: ClassPrior, name: str) -> Iterator[dict[str, Any]]:
    """Yield a warning where verified episodes are not a random sample."""
    if prior.note:
        note = f"{name}: {prior.note}" if name else prior.note
        yield {"kind": "warning", "scope": name or ALL, "name": "verified by choice", "note": note}


def _source(patterns: Patterns, voters: Sequence[Voter], fit: str) -> tuple[str, str]:
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


def _anchors(patterns: Patterns, voters: Sequence[Voter], ratios: Sequence[float]) -> tuple[Floats, Floats]:
    """Return rates of the given ratio, and of the frequency that each voter has in these patterns."""
    signs, ratio = np.array([voter.sign for voter in voters]), np.array(ratios)
    frequency = (patterns.votes_by_voter + 0.5) / (patterns.counts.sum() + 1)
    after_failure = np.minimum(np.minimum(2 * frequency / (1 + ratio), 0.98), 0.98 / np.maximum(ratio, 1.0))
    after_success = ratio * after_failure
    tpr = np.where(signs > 0, after_success, 1 - after_success)
    return tpr, np.where(signs > 0, 1 - after_failure, after_failure)


def _fit(
    patterns: Patterns,
    voters: Sequence[Voter],
    ratios: Sequence[float],
    above: ClassPrior | None = None,
) -> _Fit:
    """Fit one scope; a voter's anchor has the given ratio of rates and the frequency that the voter has here.

    Where outcomes are known they alone give P(success), and all other episodes together weigh no more than they do: by
    itself the model would explain whatever moves signals together, such as users who rate more than others. Otherwise
    P(success) is taken to be one half.
    """
    signs = np.array([voter.sign for voter in voters])
    votes = np.where(patterns.voted, signs, -signs)
    prior = class_prior(patterns, voters, above)
    counts = patterns.counts * prior.weights
    known = float(counts[patterns.known].sum())
    rest = float(counts.sum()) - known
    share = min(1.0, known / max(rest, 1.0)) if patterns.has_gold else 1.0
    frequency = (patterns.votes_by_voter + 0.5) / (patterns.counts.sum() + 1)
    fit = fit_binary(
        votes,
        np.where(patterns.known, 1.0, share) * counts,
        _shares(patterns.voted, voters),
        gold=patterns.gold,
        anchors=_anchors(patterns, voters, ratios),
        strength=PRIOR_VOTES / (2 * frequency),  # pseudo-episodes in which each voter votes so many times
        prior=prior.value if patterns.has_gold else UNKNOWN,
    )
    return _Fit(fit.tpr, fit.tnr, replace(prior, value=fit.prior), float(patterns.counts.sum()))


def _shares(voted: Bools, voters: Sequence[Voter]) -> Floats:
    """Return the share (n, J) of each voter: the voters of a family share its one vote, or its one silence."""
    shares = np.zeros(voted.shape)
    for family in dict.fromkeys(voter.family for voter in voters):
        members = [j for j, voter in enumerate(voters) if voter.family == family]
        votes = voted[:, members]
        number = votes.sum(axis=1, keepdims=True)
        shares[:, members] = np.where(number > 0, votes / np.maximum(number, 1), 1 / len(members))
    return shares


def _rows(scope: str, voters: Sequence[Voter], fit: _Fit, patterns: Patterns, source: str) -> Iterator[dict[str, Any]]:
    yield {
        "kind": "class", "scope": scope, "value": fit.prior.value, "low": fit.prior.bounds[0], "n": round(fit.n),
        "source": source, "note": fit.prior.source,
    }  # fmt: skip
    checked = patterns.checked_by_voter  # a vote that met no outcome taught nothing
    for voter, n, met, tpr, tnr in zip(voters, patterns.votes_by_voter, checked, fit.tpr, fit.tnr, strict=True):
        learned = source if met or source != "fitted with gold" else "prior"
        yield _vote(scope, voter, Rates(float(tpr), float(tnr)), round(n), learned)


def _vote(scope: str, voter: Voter, rates: Rates, n: int, source: str) -> dict[str, Any]:
    return {
        "kind": "vote", "scope": scope, "name": voter.signal, "family": voter.family, "sign": voter.sign,
        "tpr": rates.tpr, "tnr": rates.tnr, "n": n, "source": source,
    }  # fmt: skip
