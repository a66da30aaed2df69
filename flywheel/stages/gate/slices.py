"""The rule `slices`: a promotion must not hide that some part of the traffic lost by it.

A slice with few cases can neither prove harm nor rule it out, so what is asked of it depends on what is known of it:

declared   the user named it. It must be *shown* not to have lost `gate.slice_margin`; a slice without the cases for
           that holds the promotion, with the cases it needs. A regression of twice the margin gets through in a
           fraction of a percent of runs, whatever the size of the slice.
found      no one named it, and there may be dozens. One with at least `gate.found_share` of the cases holds if it
           looks more like one that lost `gate.found_margin` than like one that lost nothing (its difference is nearer
           to that loss), and chance alone would not easily do so (p <= 1/4). Smaller ones are checked by
           `no_deterioration` like all others.
unguarded  declared as one that does not matter: shown, never part of the decision.

What both kinds miss, and how often they hold an honest candidate, is measured by `benchmarks/gate.py --only slice`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flywheel.present import NAMED, count, margin, metric_evidence, metric_name, some
from flywheel.records import FRESH, RuleResult, Verdict
from flywheel.stages.gate.no_deterioration import p_worse
from flywheel.stages.gate.non_inferior import guardrail_of, is_head

if TYPE_CHECKING:
    from flywheel.config import GateConfig
    from flywheel.extensions import GateInput

EASILY = 0.25  # a loss that chance makes more often than this is not a sign of anything


def slices(inputs: GateInput, cfg: GateConfig) -> RuleResult:
    """Hold if a declared slice is not shown to have kept what it had, or a large found one looks as if it lost."""
    head = next((r for r in inputs.report.metrics if is_head(r)), None)
    rows = [r for r in inputs.report.metrics if r.primary and r.slice not in {"all", FRESH}]
    declared = [r for r in rows if r.standing == "declared"]
    guards = [guardrail_of(r, cfg.slice_margin, 1) for r in declared if r.n > 0]
    not_shown = [g for g in guards if not g.shown]
    large = [r for r in rows if r.standing == "found" and head is not None and r.n >= max(1, cfg.found_share * head.n)]
    fallen = [r for r in large if r.delta is not None and r.delta <= -cfg.found_margin / 2]
    lost = [r for r in fallen if (p := p_worse(r)) is not None and p <= EASILY]
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
    parts += [f"{metric_evidence(r)}: looks more like a loss of {margin(cfg.found_margin)} than none" for r in lost]
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


def _name(slice_: str) -> str:
    return slice_.removesuffix("=yes")
