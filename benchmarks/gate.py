"""How often the gate is fooled, how often it sees what is there, and how fast it is; every verdict is the gate's own.

`python benchmarks/gate.py [--histories 2000] [--only NAME]`: about ten minutes on one core; seeds are fixed.

power     60 nights, every candidate better by 5 points, or equal: when is the first promoted?
looks     60 nights of ten equal candidates at once: is any of them promoted?
harmful   60 nights, some candidates worse by 5 points: is one of those promoted?
patience  60 nights of several kinds of candidates: what production gains, by how long one may wait, and for how little
mixed     120 nights, half of the candidates better: how many are promoted, and which share of those is not better?
again     60 looks at guardrails and slices: how often is an equal candidate rejected, and when a harmful one?
held      a better candidate with guardrails and slices: how long do rules that only hold keep it, and a harmful one?
malformed a much better candidate, some of whose calls are malformed: what does that guardrail keep out, and cost?
odd       users alike, skewed differences: does the level hold?
recurring the same sixty tasks for ever: can a better candidate be promoted, and is an equal one?
small     a few held-out tasks, most of them looked at before: how often is the third candidate promoted?
forgotten candidates that lost a rare kind of case while they gained: promoted, rejected, or waiting for ever?
samples   several attempts a case: after how many nights is the first level reached?
covariate what the champion's history explains of the differences
canary    users who return every night: false promotions and rollbacks, and true ones
failing   the same users' errors: how often a canary seems to fail more often, and when one that does is seen
slice     a candidate that is better on the whole and worse in one slice, found or declared: is it ever promoted?
holds     a candidate that is better on the whole and unchanged in one slice: how often is it held for nothing?
alike     a candidate that is better everywhere alike: how often does a found slice hold it?
coverage  60 users with 10 rows each, intraclass correlation .3: does the 95 % interval cover?
speed     100,000 cases: slices, intervals, verdict
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from flywheel.extensions import GateInput
from flywheel.records import MetricRow, RuleResult, Verdict
from flywheel.stages.evaluate.attempt import Attempt
from flywheel.stages.evaluate.compare import compare
from flywheel.stages.evaluate.logs.score import serve
from flywheel.stages.gate import Decision, decide, slices, superiority
from flywheel.stages.gate.evidence import weigh
from flywheel.stats.betting import log_e
from flywheel.stats.clusters import cluster, mean_difference
from flywheel.stats.planning import candidate_level
from gate_again import again, covariate, held, malformed, recurring, samples, small
from gate_canary import canary, failing
from gate_rows import CFG, EMPTY, RULES, Rival, metric, outcomes
from gate_waiting import forgotten

if TYPE_CHECKING:
    from flywheel.config import GateConfig

ALPHA = 0.05


def judge(night: int, rows: list[MetricRow]) -> Decision:
    """Return the gate's decision on a night's rows, of a project's first candidate."""
    head = rows[0]
    values = np.repeat([1.0, -1.0, 0.0], [head.wins, head.losses, head.n - head.wins - head.losses])
    units = {str(i): (float(d), 1) for i, d in enumerate(values)}
    changes = {"round": night, "n_cases": head.n, "n_tasks": head.n, "metrics": rows}
    changes["evidence"] = weigh([units], candidate=1, level=candidate_level(1, 0, alpha=CFG.alpha))
    return decide(GateInput(EMPTY.model_copy(update=changes), None, ()), RULES, CFG)


# --- histories: a candidate stays until it is decided, and the next one comes the night after ------------------------

Draw = Callable[[np.random.Generator], tuple[float, float]]  # a candidate's discordance and true difference
NULL, BETTER = (0.15, 0.0), (0.15, 0.05)


class History(NamedTuple):
    """The outcome of a project's nights."""

    promoted: list[float]  # true differences of the promoted
    first: int | None  # night of the first promotion
    gain: float  # of what served, over what served first, mean of all nights


def history(
    rng: np.random.Generator, n: int, draw: Draw, *, nights: int = 60, looks: int = 1, cfg: GateConfig = CFG
) -> History:
    """Run a project's nights: `looks` candidates a night are evaluated, and whichever is decided is decided."""
    place, promoted, first, gain = 0, list[float](), None, 0.0
    rivals: list[tuple[Rival, tuple[float, float]]] = []
    outcomes_before: list[str] = []
    for night in range(1, nights + 1):
        gain += math.fsum(promoted) / nights
        while len(rivals) < looks:
            place += 1
            rivals.append((Rival(place, len(promoted), outcomes_before), draw(rng)))
        for entry in list(rivals):
            rival, (discordance, delta) = entry
            verdict = _decided(rival, rng, n, discordance, delta, cfg).verdict
            outcomes_before.append({Verdict.REJECT: "rejected", Verdict.PROMOTE: "promoted"}.get(verdict, "open"))
            if verdict == Verdict.REJECT or (verdict == Verdict.INCONCLUSIVE and rival.looks >= cfg.horizon):
                rivals.remove(entry)
            elif verdict == Verdict.PROMOTE:
                promoted.append(delta)
                first = first or night
                rivals.clear()  # the others were compared with the old champion
                break
    return History(promoted, first, gain)


def _decided(
    rival: Rival, rng: np.random.Generator, n: int, discordance: float, delta: float, cfg: GateConfig
) -> RuleResult:
    """Return what the rule makes of a candidate after another night."""
    evidence = rival.look(n, *outcomes(rng, n, discordance, delta))
    changes = {"metrics": [metric(rival.wins, rival.losses, rival.n)], "evidence": evidence}
    return superiority(GateInput(EMPTY.model_copy(update=changes), None, ()), cfg)


def power(histories: int) -> Iterator[str]:
    """Every candidate is better by 5 points; every one is equal."""
    for n in (40, 200):
        for name, world in (("+5 points", BETTER), ("equal", NULL)):
            rng, runs = np.random.default_rng(1), max(1, histories // 5)
            found = [history(rng, n, lambda _, w=world: w) for _ in range(runs)]  # type: ignore[misc]
            nights = sorted(h.first or 999 for h in found)
            any_ = sum(h.first is not None for h in found) / runs
            yield (
                f"60 nights, {n} fresh units a night, candidates {name}: P(any promotion) {any_:.3f}, median night "
                f"{nights[runs // 2]}, nine in ten by {nights[runs * 9 // 10]} ({runs:,} histories)"
            )


def looks(histories: int) -> Iterator[str]:
    """Ten equal candidates are looked at every night, and any that is decided moves the champion."""
    rng, runs = np.random.default_rng(2), max(1, histories // 20)
    fooled = sum(bool(history(rng, 200, lambda _: NULL, looks=10).promoted) for _ in range(runs))
    yield f"60 nights of ten equal candidates at once, 200 units: P(any promotion) {fooled / runs:.3f} ({runs:,} runs)"


def harmful(histories: int) -> Iterator[str]:
    """Three in a hundred candidates are worse by 5 points, the others equal or a little better."""
    rng, runs = np.random.default_rng(3), max(1, histories // 5)

    def draw(rng: np.random.Generator) -> tuple[float, float]:
        return 0.15, float(rng.choice([-0.05, 0.0, 0.02], p=[0.03, 0.5, 0.47]))

    never = sum(all(delta >= 0 for delta in history(rng, 60, draw).promoted) for _ in range(runs)) / runs
    yield f"60 nights of 60 units, 3 % of candidates worse by 5 points: none promoted in {never:.4f} ({runs:,} runs)"


def mixed(histories: int) -> Iterator[str]:
    """Half of the candidates are better by 5 points, half equal: how many of those that are promoted are better?"""
    rng, runs = np.random.default_rng(13), max(1, histories // 20)
    found = [history(rng, 60, lambda r: BETTER if r.random() < 0.5 else NULL, nights=120).promoted for _ in range(runs)]  # noqa: PLR2004
    false = np.mean([sum(delta <= 0 for delta in promoted) / max(1, len(promoted)) for promoted in found])
    better = np.mean([sum(delta > 0 for delta in promoted) for promoted in found])
    yield (
        f"120 nights of 60 units, half of the candidates better by 5 points, half equal: {better:.1f} better ones "
        f"promoted in a project, false discovery rate {false:.4f} ({runs:,} runs)"
    )


_KINDS: dict[str, tuple[list[tuple[float, float]], int]] = {  # discordance and difference, equally often; units a night
    "+5": ([(0.15, 0.05)], 60),
    "+5, 0": ([(0.15, 0.05), (0.15, 0.0)], 60),
    "+10, four times 0": ([(0.2, 0.1), *[(0.2, 0.0)] * 4], 60),
    "+10, nine times 0": ([(0.2, 0.1), *[(0.2, 0.0)] * 9], 42),
    "+10, -10": ([(0.2, 0.1), (0.2, -0.1)], 42),
    "+5, +5, -5, seven times 0": ([*[(0.15, 0.05)] * 2, (0.15, -0.05), *[(0.15, 0.0)] * 7], 60),
    "+3, 0": ([(0.1, 0.03), (0.1, 0.0)], 40),
    # A later round changes few answers: what the rounds of `nights.py --medium` did, and worlds around it.
    "+6, +3, 0, 0, -2, few changed": ([(0.1, 0.06), (0.06, 0.03), *[(0.04, 0.0)] * 2, (0.06, -0.02)], 204),
    "+6, nine times 0, few changed": ([(0.1, 0.06), *[(0.04, 0.0)] * 9], 204),
    "+10, four times 0, some changed": ([(0.15, 0.1), *[(0.08, 0.0)] * 4], 112),
    "+2, few changed": ([(0.05, 0.02)], 204),
    "+1, few changed": ([(0.04, 0.01)], 204),
}
_PATIENCE = ((30, 0.0), (14, 0.0), (30, 0.01), (30, 0.02), (30, 0.03))  # gate.horizon and gate.min_effect


def patience(histories: int) -> Iterator[str]:
    """While one candidate waits no other is trained: how long should it, and for how little?"""
    for name, (candidates, units) in _KINDS.items():
        for horizon, least in _PATIENCE:
            rng, runs = np.random.default_rng(7), max(1, histories // 13)
            cfg = CFG.model_copy(update={"horizon": horizon, "min_effect": least})

            def draw(
                rng: np.random.Generator, drawn: Sequence[tuple[float, float]] = candidates
            ) -> tuple[float, float]:
                return drawn[int(rng.integers(len(drawn)))]

            found = [history(rng, units, draw, cfg=cfg) for _ in range(runs)]
            gain = np.array([h.gain for h in found])
            worse = sum(delta <= 0 for h in found for delta in h.promoted)
            yield (
                f"60 nights of {units} units, candidates {name} points, horizon {horizon}, min_effect {least:g}: "
                f"production gains {gain.mean():.3f} (se {gain.std() / math.sqrt(runs):.3f}) on a mean night, "
                f"{np.mean([len(h.promoted) for h in found]):.2f} promoted, not better {worse / runs:.2f} ({runs} runs)"
            )


def odd(histories: int) -> Iterator[str]:
    """Worlds of mean zero in which tests that take cases as independent, or differences as symmetric, are fooled."""
    for users, each in ((60, 10), (10, 20)):
        rng, fooled = np.random.default_rng(4), {"users": 0, "cases": 0}
        for _ in range(histories):
            shifts = rng.normal(0, 0.2, users)
            chances = np.clip(np.stack([0.2 + shifts, 0.2 - shifts], axis=1), 0, 1)
            draws = rng.random((users, each, 1))
            wins, losses = draws[..., 0] < chances[:, :1], draws[..., 0] > 1 - chances[:, 1:]
            differences = wins.astype(float) - losses.astype(float)
            fooled["users"] += log_e(differences.mean(axis=1)) >= math.log(1 / ALPHA)
            fooled["cases"] += log_e(differences.ravel()) >= math.log(1 / ALPHA)
        for unit, count in fooled.items():
            share = count / histories
            yield f"{users} users alike by sd .2, {each} cases each, {unit} as units: type I {share:.3f} at .05"
    for tasks in (10, 20, 40, 80):
        rng, values = np.random.default_rng(5), np.array([1.0, -9.0]) / 10
        shares = [log_e(rng.choice(values, tasks, p=[0.9, 0.1])) >= math.log(1 / ALPHA) for _ in range(histories)]
        yield f"{tasks} tasks, nine in ten gain one case of ten, one loses nine: type I {np.mean(shares):.3f} at .05"


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
        words[judge(1, rows).verdict] += 1
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


def alike(histories: int) -> Iterator[str]:
    """A candidate that is better by 5 points everywhere, seen through 19 to 21 found slices of 200 cases."""
    for parts in ((4, 7, 10), (2, 3, 16), (20,)):
        rng, held, runs = np.random.default_rng(8), 0, max(1, histories // 2)
        for _ in range(runs):
            values = rng.choice([1, -1, 0], 200, p=[0.1, 0.05, 0.85])
            rows = [metric(int((values > 0).sum()), int((values < 0).sum()), 200)]
            for part in parts:
                labels = rng.permutation(200) % part
                for i in range(part):
                    chosen = values[labels == i]
                    name = f"{part}={i}"
                    rows.append(metric(int((chosen > 0).sum()), int((chosen < 0).sum()), len(chosen), name))
            held += not slices(GateInput(EMPTY.model_copy(update={"metrics": rows}), None, ()), CFG).passed
        share = held / runs
        yield f"+5 points everywhere, 200 cases, {sum(parts)} found slices: held by them {share:.3f} ({runs:,} runs)"


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
        decision = judge(1, found.metrics)
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
    "power": power, "looks": looks, "harmful": harmful, "patience": patience,
    "mixed": mixed, "again": again, "held": held,
    "malformed": malformed, "odd": odd,
    "recurring": recurring, "small": small, "samples": samples, "covariate": covariate,
    "canary": canary, "failing": failing, "forgotten": forgotten,
    "slice": regression, "holds": holds, "alike": alike, "coverage": coverage, "speed": speed,
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
