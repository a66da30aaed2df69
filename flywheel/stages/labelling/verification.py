"""P(success) of an episode before its votes, where outcomes are known of chosen episodes only.

In: patterns of votes with what is known of them. Out: the class prior with its source, and the weights by which known
outcomes represent all episodes. A reviewer's random sample decides where there is one. Verdicts represent all episodes
as they are only if every pattern is verified alike. Where patterns differ, either the outcome of the episodes explains
how often each signal votes (`label_shift`), or patterns are weighted by their size (`post_stratified`); where most
episodes have a pattern without any verdict, P(success) stays unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flywheel.stages.labelling.patterns import ENOUGH_GOLD, Bools, Floats, Patterns, Voter
from flywheel.stats.missing import worst_case_bounds
from flywheel.stats.verification import Shift, label_shift, post_stratified, same_share_p

Ints = npt.NDArray[np.int64]

UNKNOWN = 0.5
PSEUDO_OUTCOMES = 2.0  # of each kind, added to the known successes and failures
PSEUDO_ANSWERS = 10.0  # by which an audit of the whole log counts in a part of it
ENOUGH_IN_CELL = 5  # verdicts from which a pattern is a cell of its own
DIFFERS = 1e-3  # p-value below which patterns are not verified alike, or rates do not explain the log
ENOUGH_SEEN = 0.5  # share of episodes in patterns that somebody verified
MOST_WEIGHT = 20.0  # of one known outcome, in episodes
NEARLY_ALL = 0.95  # verified share from which nothing is left to infer

AUDITED, ALIKE, BY_OUTCOME, BY_PATTERN, NOTHING = "audit", "verdicts", "by outcome", "by pattern", "unknown"


@dataclass(frozen=True)
class ClassPrior:
    """P(success) before any vote, and how it was found; `weights` (n): how many episodes a known outcome represents."""

    value: float
    source: str
    weights: Floats
    p_alike: float = 1.0
    estimates: tuple[tuple[str, float], ...] = ()
    bounds: tuple[float, float] = (0.0, 1.0)

    @property
    def note(self) -> str:
        """A sentence for the reader of `flywheel rewards`; '' where verdicts can be taken as they are."""
        if (self.source in {AUDITED, ALIKE} and self.p_alike >= DIFFERS) or (
            self.source == NOTHING and not self.estimates
        ):
            return ""
        shares = ", ".join(f"{value:.2f} {name}" for name, value in self.estimates)
        low, high = self.bounds
        taken = {
            AUDITED: "the audit decides",
            BY_OUTCOME: "the outcome explains whom somebody verified",
            BY_PATTERN: "weighted by signal pattern",
            NOTHING: "most patterns were never verified, so P(success) is taken as unknown: audit some",
        }[self.source]
        return (
            f"verified episodes are not a random sample: P(verified) differs by signal pattern; success {shares}; "
            f"{taken}; whatever decided whom to verify, it lies between {low:.2f} and {high:.2f}"
        )


class _Cells(NamedTuple):
    """Verdicts by cell (k), and the cell of each pattern (n)."""

    cell: Ints
    good: Floats
    seen: Floats
    total: Floats


def class_prior(patterns: Patterns, voters: Sequence[Voter], above: ClassPrior | None = None) -> ClassPrior:
    """Return P(success) of an episode of these patterns before its votes.

    An audit is a sample of the whole log, so the few answers that lie in a part of it are shrunk to those `above`.
    """
    audited = _audited(patterns, above)
    verdicts = patterns.known & ~patterns.drawn
    even = np.ones(len(patterns.counts))
    verified = float(patterns.counts[verdicts].sum())
    if verified == 0:
        return ClassPrior(*((UNKNOWN, NOTHING) if audited is None else (audited, AUDITED)), even)
    good = float((patterns.counts[verdicts] * patterns.gold[verdicts]).sum())
    share = verified / float(patterns.counts[~patterns.drawn].sum())
    plain = ClassPrior(_share(good, verified - good), ALIKE, even, bounds=worst_case_bounds(share, good / verified))
    cells = _cells(patterns, verdicts, voters)
    alike = 1.0 if share >= NEARLY_ALL else same_share_p(cells.seen, cells.total)
    found = plain if alike >= DIFFERS else _by_choice(patterns, cells, verdicts, plain)
    if audited is not None:
        found = replace(found, value=audited, source=AUDITED)
    least = PSEUDO_OUTCOMES / (verified + 2 * PSEUDO_OUTCOMES)
    return replace(found, value=min(max(found.value, least), 1 - least), p_alike=alike)


def _audited(patterns: Patterns, above: ClassPrior | None) -> float | None:
    """Return the share of successes by an audit; None where too few episodes were audited."""
    good, bad = patterns.where(patterns.drawn & patterns.known).outcomes
    if good + bad >= ENOUGH_GOLD:
        return _share(good, bad)
    if above is not None and above.source == AUDITED:
        return (good + PSEUDO_ANSWERS * above.value) / (good + bad + PSEUDO_ANSWERS)
    return None


def _by_choice(patterns: Patterns, cells: _Cells, verdicts: Bools, plain: ClassPrior) -> ClassPrior:
    """Return the class prior where patterns were verified differently."""
    shift = _shift(patterns.where(~patterns.drawn))
    stratified, covered = post_stratified(cells.good, cells.seen, cells.total)
    estimates = (("as verified", plain.value), (BY_OUTCOME, shift.share), (BY_PATTERN, stratified))
    if shift.p_value >= DIFFERS:
        return replace(plain, value=shift.share, source=BY_OUTCOME, estimates=estimates)
    weights = _weights(verdicts, cells)
    value, source = (stratified, BY_PATTERN) if covered >= ENOUGH_SEEN else (UNKNOWN, NOTHING)
    return replace(plain, value=value, source=source, estimates=estimates, weights=weights)


def _share(good: float, bad: float) -> float:
    return (good + PSEUDO_OUTCOMES) / (good + bad + 2 * PSEUDO_OUTCOMES)


def _cells(patterns: Patterns, verdicts: Bools, voters: Sequence[Voter]) -> _Cells:
    """Return the verdicts by pattern; patterns with few of them are joined by which side most voters take."""
    kinds, cell = np.unique(patterns.voted, axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    often = np.bincount(cell, patterns.counts * verdicts, len(kinds)) >= ENOUGH_IN_CELL
    side = np.sign(kinds @ np.array([voter.sign for voter in voters], dtype=np.int64)).astype(np.int64)
    places = np.where(often, np.arange(len(kinds)), len(kinds) + 1 + side)
    _, cell = np.unique(places[cell], return_inverse=True)
    rest = patterns.counts * ~patterns.drawn
    gold = np.where(verdicts, patterns.gold, 0.0)

    def summed(values: Floats) -> Floats:
        return np.bincount(cell, values).astype(np.float64)

    return _Cells(cell, summed(rest * verdicts * gold), summed(rest * verdicts), summed(rest))


def _shift(patterns: Patterns) -> Shift:
    """Return the share of successes by how often each voter votes after known successes, known failures, and at all."""
    known, counts = patterns.known, patterns.counts
    gold = np.where(known, patterns.gold, 0.0)
    good, bad = counts * known * gold, counts * known * (1 - gold)
    after_success, after_failure, overall = (w @ patterns.voted / max(float(w.sum()), 1.0) for w in (good, bad, counts))
    n = (float(good.sum()), float(bad.sum()), float(counts.sum()))
    return label_shift(after_success, after_failure, overall, n)


def _weights(verdicts: Bools, cells: _Cells) -> Floats:
    """Return how many episodes a known outcome of each pattern represents, on the scale of the known outcomes."""
    stands_for = cells.total / np.maximum(cells.seen, 1.0)
    scale = float(cells.seen.sum()) / max(float((stands_for * cells.seen).sum()), 1.0)
    weights = np.minimum(stands_for * scale, MOST_WEIGHT)
    return np.where(verdicts, weights[cells.cell], 1.0)
