"""Candidates that lost some kind of case while they gained in all: a part of benchmarks/gate.py.

A night's 200 cases are of 17 kinds, with a slice each and forty smaller ones within them. The cases of every third kind
are used up after forty, as held-out tasks of a rare kind are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from flywheel.extensions import GateInput
from flywheel.records import MetricRow, Promotion, Verdict
from flywheel.stages.gate import decide
from gate_rows import CFG, EMPTY, MANIFEST, RULES, Rival, metric

_KINDS, _SMALLER, _CASES, _USED_UP, _LEAST, _NIGHTS = 17, 40, 200, 40, 5, 10
_AT = datetime(2026, 11, 1, tzinfo=UTC)


class _Candidate(NamedTuple):
    """Shares of the cases that it wins and loses; the kind that it forgets is one of those with few cases, if any."""

    wins: float
    losses: float
    forgets: float = 0.0  # share of that kind's cases that it loses


_CANDIDATES = {
    "gains 6 points everywhere": _Candidate(0.105, 0.045),
    "gains 8 points, much else changes": _Candidate(0.16, 0.08),
    "gains nothing": _Candidate(0.05, 0.05),
    "gains 9 points, forgot a rare kind (-40)": _Candidate(0.12, 0.03, 0.45),
    "gains 9 points, lost some of a rare kind (-20)": _Candidate(0.12, 0.03, 0.25),
}


def forgotten(histories: int) -> Iterator[str]:
    """Ten nights of looks at one candidate, all rules: promoted, rejected, or waiting still?"""
    for name, candidate in _CANDIDATES.items():
        rng, runs = np.random.default_rng(21), max(1, histories // 10)
        ends = [_decided(rng, candidate) for _ in range(runs)]
        shares = ", ".join(
            f"{word} {np.mean([verdict == one for verdict, _ in ends]):.3f}"
            for word, one in (
                ("promoted", Verdict.PROMOTE),
                ("rejected", Verdict.REJECT),
                ("waiting", Verdict.INCONCLUSIVE),
            )
        )
        looks = np.array([look for _, look in ends])
        yield (
            f"{_NIGHTS} looks, {name}: {shares}; looks {looks.mean():.2f} "
            f"(se {looks.std() / math.sqrt(runs):.2f}, {runs:,} runs)"
        )


def _decided(rng: np.random.Generator, candidate: _Candidate) -> tuple[Verdict, int]:
    """Return how a candidate ended, and at which look."""
    forgot = 3 * int(rng.integers(_KINDS // 3)) if candidate.forgets else -1
    within, share = rng.integers(_KINDS, size=_SMALLER), rng.uniform(0.02, 0.12, _SMALLER)
    rival, sums, history = Rival(), np.zeros((_KINDS + _SMALLER, 3), dtype=int), list[Promotion]()
    for night in range(1, _NIGHTS + 1):
        kind = rng.integers(_KINDS, size=_CASES)
        kind = kind[(kind % 3 > 0) | (sums[kind, 2] < _USED_UP)]
        draw, lost = rng.random(len(kind)), kind == forgot
        wins = draw < np.where(lost, 0.05, candidate.wins)
        losses = draw > 1 - np.where(lost, candidate.forgets, candidate.losses)
        cuts = [kind == one for one in range(_KINDS)]
        cuts += [(kind == one) & (rng.random(len(kind)) < part) for one, part in zip(within, share, strict=True)]
        sums += np.array([[wins[cut].sum(), losses[cut].sum(), cut.sum()] for cut in cuts])
        evidence = rival.look(len(kind), int(wins.sum()), int(losses.sum()))
        changes = {"round": 1, "metrics": [metric(rival.wins, rival.losses, rival.n), *_rows(sums)]}
        report = EMPTY.model_copy(update=changes | {"evidence": evidence, "n_cases": rival.n, "n_tasks": rival.n})
        rules = {name: rule for name, rule in RULES.items() if name != "validity"}  # there are no files
        decision = decide(GateInput(report, MANIFEST, tuple(history)), rules, CFG)
        if decision.verdict in {Verdict.PROMOTE, Verdict.REJECT}:
            return decision.verdict, night
        history.append(
            Promotion(round=1, decision="held", verdict=decision.verdict, rules=decision.rules, by="run", at=_AT)
        )
    return Verdict.INCONCLUSIVE, _NIGHTS


def _rows(sums: np.ndarray) -> list[MetricRow]:
    names = [f"kind={n}" for n in range(_KINDS)] + [f"intent={n}" for n in range(_SMALLER)]
    return [
        metric(int(wins), int(losses), int(n), name)
        for name, (wins, losses, n) in zip(names, sums, strict=True)
        if n >= _LEAST
    ]
