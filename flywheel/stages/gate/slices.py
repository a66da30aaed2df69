"""The rule `slices`: a promotion must not hide that some part of the traffic lost by it.

A slice with few cases can neither prove harm nor rule it out, so what is asked of it depends on what is known of it:

declared   the user named it. It must be *shown* not to have lost `gate.slice_margin`; a slice without the cases for
           that holds the promotion, with the cases it needs. A regression of twice the margin gets through in a
           fraction of a percent of runs, whatever the size of the slice.
found      no one named it, and there may be dozens. One with at least `gate.found_share` of the cases holds if it
           lost, and its cases are far likelier where it lost `gate.found_margin` than where it changed like the other
           cases. How far depends on how many slices were looked through: with m of them by a factor of m²/5. Smaller
           ones are checked by `no_deterioration` like all others.
unguarded  declared as one that does not matter: shown, never part of the decision.

What both kinds miss, and how often they hold an honest candidate, is measured by `benchmarks/gate.py --only slice`.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from flywheel.config import GateConfig
from flywheel.extensions import GateInput
from flywheel.present import NAMED, count, margin, metric_evidence, metric_name, some
from flywheel.records import FRESH, MetricRow, RuleResult, Verdict
from flywheel.stages.gate.non_inferior import guardrail_of, is_head

_INTERVAL_WIDTH = 2 * NormalDist().inv_cdf(0.975)  # of a 95% interval, in standard errors


def slices(inputs: GateInput, cfg: GateConfig) -> RuleResult:
    """Hold if a declared slice is not shown to have kept what it had, or a large found one looks as if it lost."""
    head = next((r for r in inputs.report.metrics if is_head(r)), None)
    rows = [r for r in inputs.report.metrics if r.primary and r.slice not in {"all", FRESH}]
    declared = [r for r in rows if r.standing == "declared"]
    guards = [guardrail_of(r, cfg.slice_margin, 1) for r in declared if r.n > 0]
    not_shown = [g for g in guards if not g.shown]
    large = [r for r in rows if r.standing == "found" and head is not None and r.n >= max(1, cfg.found_share * head.n)]
    fallen = [r for r in large if r.delta is not None and r.delta <= -cfg.found_margin / 2]
    least = math.log(max(1.0, len(large) ** 2 / 5))
    lost = [r for r in fallen if head is not None and log_ratio(r, head, cfg.found_margin) >= least]
    parts = [f"{_name(r.slice)} has no cases" for r in declared if r.n == 0]
    numbers = {
        "declared": float(len(declared)),
        "found": float(len(large)),
        "lost": float(len(lost)),
        "shown": float(len(guards) - len(not_shown)),
        "not_shown": float(len(not_shown) + len(parts)),
    }
    for guard in guards:
        numbers |= {f"z: {metric_name(guard.row)}": guard.z, f"needed_n: {metric_name(guard.row)}": float(guard.needed)}
    parts += [
        f"{_name(g.row.slice)}: a loss of {margin(cfg.slice_margin)} cannot be ruled out ({metric_evidence(g.row)}); "
        f"about {count(max(g.needed, g.row.n + 1), 'case')} needed"
        for g in not_shown
    ]
    parts += [
        f"in a found slice, {metric_evidence(r)}: looks more like a loss of {margin(cfg.found_margin)} than none"
        for r in lost
    ]
    text = some(parts, between="; ")
    if not parts and not declared and not large:
        text = "no slice is declared, and none of those found is large enough (0 checked)"
    elif not parts:
        text = f"{count(len(guards), 'declared slice')} shown non-inferior; of {len(large):,} found, none looks lost"
    return RuleResult(
        rule="slices",
        passed=not parts,
        verdict=Verdict.INCONCLUSIVE if parts else Verdict.PROMOTE,
        message=f"{text[0].upper()}{text[1:]}.",
        numbers=numbers,
        details=parts[NAMED:],
    )


def log_ratio(row: MetricRow, head: MetricRow, margin: float) -> float:
    """Return log P(the slice's cases if it lost the margin) - log P(if it changed like all other cases).

    Zeros and ones: the multinomial of wins, losses and ties; a slice that lost wins half as often as the others. Other
    scores: the normal approximation by the row's interval.
    """
    if not row.binary:
        if row.low is None or row.high is None or row.high <= row.low or row.delta is None or head.delta is None:
            return -math.inf  # without any spread there is no test
        error = (row.high - row.low) / _INTERVAL_WIDTH
        return ((row.delta - head.delta) ** 2 - (row.delta + margin) ** 2) / (2 * error**2)
    others = head.n - row.n + 1.0
    wins, losses = (head.wins - row.wins + 0.5) / others, (head.losses - row.losses + 0.5) / others
    ties = max(1 - wins - losses, 1e-9)
    fewer, more = wins / 2, min(wins / 2 + margin, 1 - wins / 2 - 1e-9)
    ratio = row.wins * math.log(0.5) + row.losses * math.log(more / losses)
    return (ratio + (row.n - row.wins - row.losses) * math.log(max(1 - fewer - more, 1e-9) / ties)) / row.design_effect


def _name(slice_: str) -> str:
    return slice_.removesuffix("=yes")
