"""Slices: a promotion must not hide that some part of the traffic lost by it.

A slice with few cases can neither prove harm nor prove that there is none, so it is asked by what is known of it:

declared   the user said that it matters. It must be *shown* not to have lost `gate.slice_margin`; a slice without the
           cases for that holds the promotion, with the cases it needs. A regression of twice the margin gets through in
           a fraction of a per cent of runs, whatever the size of the slice.
found      nobody asked for it, and there may be dozens. One with at least `gate.found_share` of the cases holds if it
           looks more like one that lost `gate.found_margin` than like one that lost nothing (its difference is nearer
           to that loss), and chance alone would not easily do so (p <= 1/4). Smaller ones are watched by
           `no_deterioration` like all others.
unguarded  declared, and declared not to matter: shown, never judged.

What both kinds miss and how often they hold an honest candidate is measured by `benchmarks/gate.py --only slice`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flywheel.present import margin, metric_evidence, metric_name
from flywheel.records import FRESH, MetricRow, RuleResult, Verdict
from flywheel.stages.gate.guardrails import Guard, guard_of, p_worse

if TYPE_CHECKING:
    from flywheel.config import GateConfig
    from flywheel.extensions import GateInput

__all__ = ["slices"]

EASILY = 0.25  # a loss that chance makes more often than this says nothing


def slices(given: GateInput, cfg: GateConfig) -> RuleResult:
    """Hold if a declared slice is not shown to have kept what it had, or a large found one looks as if it had not."""
    head = next((r for r in given.report.metrics if r.primary and r.slice == "all"), None)
    rows = [r for r in given.report.metrics if r.primary and r.slice not in {"all", FRESH}]
    declared = [r for r in rows if r.standing == "declared"]
    empty = [r for r in declared if r.n == 0]
    guards = [guard_of(r, cfg.slice_margin, 1) for r in declared if r.n > 0]
    open_ones = [g for g in guards if not g.shown]
    large = [r for r in rows if r.standing == "found" and head is not None and r.n >= max(1, cfg.found_share * head.n)]
    lost = [r for r in large if _looks_lost(r, cfg.found_margin)]
    numbers = {"declared": float(len(declared)), "found": float(len(large)), "lost": float(len(lost))}
    numbers |= {"shown": float(len(guards) - len(open_ones)), "not_shown": float(len(open_ones) + len(empty))}
    for guard in guards:
        numbers |= {f"z: {metric_name(guard.row)}": guard.z, f"needed_n: {metric_name(guard.row)}": float(guard.needed)}
    held = bool(open_ones or empty or lost)
    return RuleResult(
        rule="slices",
        passed=not held,
        verdict=Verdict.INCONCLUSIVE if held else Verdict.PROMOTE,
        message=_message(declared, large, _parts(empty, open_ones, lost, cfg)),
        numbers=numbers,
    )


def _looks_lost(row: MetricRow, loss: float) -> bool:
    p = p_worse(row)
    return row.delta is not None and row.delta <= -loss / 2 and p is not None and p <= EASILY


def _parts(empty: list[MetricRow], open_ones: list[Guard], lost: list[MetricRow], cfg: GateConfig) -> list[str]:
    edge, loss = margin(cfg.slice_margin), margin(cfg.found_margin)
    parts = [f"the declared {_name(row)} has no case" for row in empty]
    parts += [
        f"the declared {_name(g.row)} is not shown to have lost less than {edge}: {metric_evidence(g.row)}; "
        f"about {max(g.needed, g.row.n + 1):,} cases of it are needed"
        for g in open_ones
    ]
    return parts + [f"{metric_evidence(row)} looks more like a loss of {loss} than like none" for row in lost]


def _name(row: MetricRow) -> str:
    return row.slice.removesuffix("=yes")


def _message(declared: list[MetricRow], large: list[MetricRow], parts: list[str]) -> str:
    if not parts and not declared and not large:
        return "No slice is declared, and none that was found is large enough to be judged."
    if not parts:
        shown = f"{len(declared):,} declared and shown to have kept what they had"
        return f"Of the slices, {shown}; {len(large):,} found and large enough to be judged, and none looks lost."
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."
