"""How often the gate is fooled, how often it sees what is there, and how fast it is; every verdict is the gate's own.

`python benchmarks/gate.py [--histories 2000] [--only NAME]`: about ten minutes on one core; seeds are fixed.

null      60 nights, every candidate equal to the champion: how often is any of them promoted?
mixed     120 nights, a fifth of the candidates better by 5 points, a fifth worse: power and false promotions, without
          slices and with eight alike
slice     a candidate that is better on the whole and worse in one slice, found or declared: is it ever promoted?
holds     a candidate that is better on the whole and unchanged in one slice: how often is it held for nothing?
coverage  60 users with 10 rows each, intraclass correlation .3: does the 95 % interval cover?
speed     100,000 cases: slices, intervals, verdict
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal

import numpy as np
from flywheel.config import GateConfig
from flywheel.extensions import GateInput, GateRule
from flywheel.records import EvalReport, MetricRow, Promotion, Verdict
from flywheel.stages.evaluate.attempt import Attempt
from flywheel.stages.evaluate.compare import compare
from flywheel.stages.evaluate.logs.score import serve
from flywheel.stages.gate import Decision, decide, no_deterioration, non_inferior, slices, superiority, validity
from flywheel.stats.clusters import cluster, mean_difference
from flywheel.stats.paired import mcnemar_better
from flywheel.stats.tango import tango_interval

RULES: dict[str, GateRule] = {
    "validity": validity,
    "superiority": superiority,
    "non_inferior": non_inferior,
    "slices": slices,
    "no_deterioration": no_deterioration,
}
CFG = GateConfig()
AT = datetime(2026, 1, 1, tzinfo=UTC)
ALPHA = 0.05
EMPTY = EvalReport(
    round=1, baseline="base", candidate_adapter_sha256="", baseline_adapter_sha256="", cases_sha256="", n_cases=0,
    n_tasks=0, leaked_tasks=0, metrics=[], coverage={},
)  # fmt: skip
ENTRY = Promotion(round=1, decision="held", by="benchmark", at=AT)


@lru_cache(maxsize=100_000)
def metric(
    wins: int, losses: int, n: int, slice_name: str = "all", standing: Literal["found", "declared"] = "found"
) -> MetricRow:
    """Return a row of paired outcomes."""
    low, high = tango_interval(wins, losses, n)
    return MetricRow(
        suite="s", metric="success", slice=slice_name, standing=standing, n=n, baseline=0.5,
        value=0.5 + (wins - losses) / n,
        delta=(wins - losses) / n, low=low, high=high, wins=wins, losses=losses, primary=True, n_tasks=n,
        p_better=mcnemar_better(wins, losses), p_worse=mcnemar_better(losses, wins),
    )  # fmt: skip


def judge(night: int, rows: list[MetricRow], history: list[Promotion]) -> Decision:
    """Return the gate's decision on a night's rows."""
    report = EMPTY.model_copy(update={"round": night, "n_cases": rows[0].n, "n_tasks": rows[0].n, "metrics": rows})
    return decide(GateInput(report, None, history), RULES, CFG)


def remembered(night: int, decision: Decision) -> Promotion:
    """Return the ledger's entry of a decision."""
    moved = decision.verdict == Verdict.PROMOTE
    word = "promoted" if moved else "held"
    return ENTRY.model_copy(
        update={"round": night, "decision": word, "verdict": decision.verdict, "rules": decision.rules}
    )


def outcomes(rng: np.random.Generator, n: int, discordance: float, delta: float) -> tuple[int, int]:
    """Return (wins, losses) of n paired cases."""
    wins, losses, _ = rng.multinomial(n, [(discordance + delta) / 2, (discordance - delta) / 2, 1 - discordance])
    return int(wins), int(losses)


def null(histories: int) -> Iterator[str]:
    """Every candidate is equal to the champion."""
    rng, fooled = np.random.default_rng(1), {"gate": 0, "naive": 0, "spending": 0}
    for _ in range(histories):
        history: list[Promotion] = []
        pvalues = []
        for night in range(1, 61):
            wins, losses = outcomes(rng, 400, 0.15, 0.0)
            decision = judge(night, [metric(wins, losses, 400)], history)
            history.append(remembered(night, decision))
            pvalues.append(mcnemar_better(wins, losses))
        fooled["gate"] += any(p.decision == "promoted" for p in history)
        fooled["naive"] += any(p <= ALPHA for p in pvalues)
        fooled["spending"] += any(p <= spending(k) for k, p in enumerate(pvalues, 1))
    for name, count in fooled.items():
        yield f"null, 60 nights of 400 cases: {name:9} P(any false promotion) = {count / histories:.3f}"


def spending(k: int) -> float:
    """Return the level of the k-th night when 5 % are spent for ever as 1/k^2."""
    return ALPHA * 6 / (math.pi * k) ** 2


def mixed(histories: int) -> Iterator[str]:
    """Some candidates are better, some worse."""
    for n, parts in ((600, 1), (1200, 1), (600, 8), (1200, 8)):
        rng = np.random.default_rng(2)
        found = {name: np.zeros(3) for name in ("gate", "naive", "spending")}  # seen, better, share of false ones
        for _ in range(max(1, histories // 10)):
            deltas = rng.choice([0.05, -0.05, 0.0], size=120, p=[0.2, 0.2, 0.6])
            promoted = {name: np.zeros(120, dtype=bool) for name in found}
            history: list[Promotion] = []
            for night, delta in enumerate(deltas, 1):
                rows = _night(rng, n, float(delta), parts)
                decision = judge(night, rows, history)
                history.append(remembered(night, decision))
                p = mcnemar_better(rows[0].wins, rows[0].losses)
                promoted["gate"][night - 1] = decision.verdict == Verdict.PROMOTE
                promoted["naive"][night - 1] = p <= ALPHA
                promoted["spending"][night - 1] = p <= spending(night)
            for name, moved in promoted.items():
                false = (moved & (deltas <= 0)).sum() / max(1, moved.sum())
                found[name] += [(moved & (deltas > 0)).sum(), (deltas > 0).sum(), false]
        for name, (seen, better, false) in found.items():
            share = false / max(1, histories // 10)
            of = f", {parts} found slices" if parts > 1 else ""
            yield f"mixed, 120 nights of {n:,} cases{of}: {name:9} power {seen / better:.3f}, FDR {share:.4f}"


def _night(rng: np.random.Generator, n: int, delta: float, parts: int) -> list[MetricRow]:
    """Return the rows of a night whose slices all change alike."""
    made = [outcomes(rng, n // parts, 0.15, delta) for _ in range(parts)]
    whole = metric(sum(w for w, _ in made), sum(losses for _, losses in made), n)
    if parts == 1:
        return [whole]
    return [whole, *(metric(w, losses, n // parts, f"intent={i}") for i, (w, losses) in enumerate(made))]


def _with_one_slice(histories: int, size: int, change: float, standing: Literal["found", "declared"]) -> str:
    """Return how often each verdict falls where one slice changes by so much and 720 other cases gain 15 points."""
    rng, words = np.random.default_rng(3), dict.fromkeys(Verdict, 0)
    for _ in range(histories):
        parts = [(size, outcomes(rng, size, max(0.3, 1.2 * abs(change)), change))]
        parts += [(180, outcomes(rng, 180, 0.25, 0.15)) for _ in range(4)]
        whole = [sum(p[1][side] for p in parts) for side in (0, 1)]
        rows = [metric(whole[0], whole[1], sum(p[0] for p in parts))]
        rows += [
            metric(w, losses, n, f"intent={i}", "found" if i else standing) for i, (n, (w, losses)) in enumerate(parts)
        ]
        words[judge(1, rows, []).verdict] += 1
    shares = ", ".join(f"{word.value} {count / histories:.4f}" for word, count in words.items() if count)
    return f"{standing:8} slice of {size:3} of {720 + size} cases, {change * 100:+.0f} points: {shares}"


def regression(histories: int) -> Iterator[str]:
    """One slice gets worse while the whole gets better."""
    for size, change in ((200, -0.2), (100, -0.2), (40, -0.3), (40, -0.2), (20, -0.4), (20, -0.2)):
        for standing in _STANDINGS:
            yield _with_one_slice(histories, size, change, standing)


def holds(histories: int) -> Iterator[str]:
    """One slice stays as it was, or gains a little, while the whole gets better."""
    for size in (40, 100, 200):
        for change in (0.0, 0.05, 0.15):
            for standing in _STANDINGS:
                yield _with_one_slice(histories, size, change, standing)


_STANDINGS: tuple[Literal["found", "declared"], ...] = ("found", "declared")


def coverage(histories: int) -> Iterator[str]:
    """Rows of one user are alike."""
    rng, runs, hit = np.random.default_rng(4), max(1, histories // 2), {"users": 0, "rows": 0}
    users, rows = [f"u{i // 10}" for i in range(600)], [f"r{i}" for i in range(600)]
    for run in range(runs):
        levels = rng.normal(0, math.sqrt(0.3), 60).repeat(10)
        differences = (levels + rng.normal(0, math.sqrt(0.7), 600)).tolist()
        for name, units in (("users", users), ("rows", rows)):
            low, high = mean_difference(cluster(differences, units), seed=run).interval
            hit[name] += low <= 0 <= high
    for name, count in hit.items():
        yield f"coverage, 60 users of 10 rows, ICC .3: {name} resampled whole {count / runs:.3f} (n {runs:,})"


def speed(_: int) -> Iterator[str]:
    """A hundred thousand cases: one attempt that succeeds or fails, and scores between, five cases a user."""
    for kind in ("binary, tasks resampled", "scores, users resampled"):
        old, new = (_log(side, rate, users="users" in kind) for side, rate in (("o", 0.5), ("n", 0.53)))
        started = time.process_time()
        served = serve(old, new)
        paired = time.process_time()
        found = compare(served.new, served.old, suite="served")
        decision = judge(1, found.metrics, [])
        ended = time.process_time()
        yield (
            f"speed, {len(old):,} cases ({kind}), {len(found.metrics)} rows: pairing and slices "
            f"{paired - started:.1f} s, intervals and verdict {ended - paired:.1f} s of CPU ({decision.verdict})"
        )


def _log(side: str, rate: float, *, users: bool, n: int = 100_000) -> list[Attempt]:
    """Write a policy's attempts at n tasks: sixteen requests, seven tools."""
    rng = np.random.default_rng(5 if side == "o" else 6)
    words = [f"{a} {b}" for a in ("cancel", "book", "change", "refund") for b in ("flight", "hotel", "parcel", "seat")]
    tools = [frozenset({f"tool_{i}"}) for i in range(7)]
    scores = rng.beta(4 * rate, 4 * (1 - rate), n) if users else (rng.random(n) < rate).astype(float)
    return [
        Attempt(
            f"{side}{i}", f"t{i}", f"please {words[i % 16]} number {i}", score, tools=tools[i % 7],
            user=f"u{i // 5}" if users else None,
        )
        for i, score in enumerate(scores.tolist())
    ]  # fmt: skip


PARTS: dict[str, Callable[[int], Iterator[str]]] = {
    "null": null, "mixed": mixed, "slice": regression, "holds": holds, "coverage": coverage, "speed": speed,
}  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=2_000)
    parser.add_argument("--only", choices=sorted(PARTS))
    chosen = parser.parse_args()
    for name, part in PARTS.items():
        if chosen.only in {None, name}:
            started = time.perf_counter()
            for line in part(chosen.histories):
                print(line, flush=True)
            print(f"  ({name}: {time.perf_counter() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
