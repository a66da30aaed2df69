"""The rule `non_inferior`: wherever there are enough cases to show it, nothing else may be worse by the margin."""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

from flywheel import present
from flywheel.config import GateConfig
from flywheel.extensions import GateInput
from flywheel.present import count, metric_evidence, metric_name
from flywheel.records import FRESH, EvalReport, MetricRow, RuleResult, Verdict
from flywheel.stats.clusters import task_quantile
from flywheel.stats.planning import cases_for_non_inferiority
from flywheel.stats.tango import non_inferiority_z

ALPHA = 0.05
BETA = 0.2
_NORMAL = NormalDist()
_INTERVAL_WIDTH = 2 * _NORMAL.inv_cdf(0.975)


def non_inferior(inputs: GateInput, cfg: GateConfig) -> RuleResult:
    """Pass if every guardrail with the cases to show it is shown not to be worse by the margin.

    Guardrails are all rows but the primary metric's own: the other metrics, and the slices. Tango's score test at 5%,
    uncorrected because all must pass; the power to pass is corrected instead. A guardrail with too few cases could not
    pass even if nothing were wrong: it is named, and checked by `no_deterioration` only. What `gate.strict` names must
    be shown, however many cases that takes; what of it was not measured is not shown.
    """
    rows = [row for row in guarded_rows(inputs.report) if not is_head(row)]
    guards = [guardrail_of(row, cfg.margin, len(rows)) for row in rows]
    shown = [g for g in guards if g.shown]
    asked = [g for g in guards if g.powered or (g.row.metric in cfg.strict and g.row.slice == "all")]
    failed = [g for g in asked if not g.shown]
    unpowered = [g for g in guards if g not in asked and not g.shown]
    measured = {row.metric for row in inputs.report.metrics if row.slice == "all"}
    lacking = sorted({*cfg.strict} - measured)
    numbers = {
        "guardrails": float(len(guards)),
        "shown": float(len(shown)),
        "failed": float(len(failed)),
        "unpowered": float(len(unpowered)),
        "margin": cfg.margin,
    }
    for guard in guards:
        numbers |= {f"z: {metric_name(guard.row)}": guard.z, f"needed_n: {metric_name(guard.row)}": float(guard.needed)}
    parts = [
        f"{len(shown)} of {count(len(guards), 'guardrail')} shown non-inferior (margin {present.margin(cfg.margin)})"
    ]
    parts += [f"not shown: {present.some([metric_evidence(g.row) for g in failed], between='; ')}"] if failed else []
    parts += [f"{len(unpowered)} with too few cases, checked for deterioration only"] if unpowered else []
    none = "There are no guardrails besides the primary metric (n 0)."
    words = f"{'; '.join(parts)}." if guards else none
    if lacking:
        words = f"not measured, though gate.strict asks for it: {present.some(lacking)}; {words}"
    return RuleResult(
        rule="non_inferior",
        passed=not (failed or lacking),
        verdict=Verdict.INCONCLUSIVE if failed or lacking else Verdict.PROMOTE,
        message=words,
        numbers=numbers,
        details=[
            *(f"not shown: {metric_evidence(g.row)}" for g in failed[present.NAMED :]),
            *(f"{metric_name(g.row)}: n {count(g.row.n)} of {count(g.needed)} needed" for g in failed if not g.powered),
            *(
                f"{metric_name(g.row)}: n {count(g.row.n)} of {count(g.needed)} needed, "
                f"{present.interval(g.row.low, g.row.high, binary=g.row.binary, unit=True)}"
                for g in unpowered
            ),
        ],
    )


class Guardrail(NamedTuple):
    """A row with its statistic against the margin, and the cases that would give the power to pass."""

    row: MetricRow
    z: float
    critical: float
    needed: int

    @property
    def shown(self) -> bool:
        """Whether it is shown not to be worse by the margin."""
        return self.z > self.critical

    @property
    def powered(self) -> bool:
        """Whether an equal candidate would pass four times in five or more."""
        return self.row.n >= self.needed


def guardrail_of(row: MetricRow, margin: float, guardrails: int) -> Guardrail:
    """Return the test of "worse by the margin" on a row with cases; the power is shared among the guardrails."""
    clustered = 0 < row.n_tasks < row.n
    critical = task_quantile(row.n_tasks, 1 - ALPHA) if clustered else _NORMAL.inv_cdf(1 - ALPHA)
    alike = row.delta == 0 and row.low == row.high  # every case alike: as zeros and ones, of which none differs
    if row.binary or alike:
        effect = row.design_effect
        z = non_inferiority_z(row.wins / effect, row.losses / effect, row.n / effect, margin)
        # at the margin's edge at least that share of cases differs, however few differed here
        discordance = max(margin, (row.wins + row.losses) / row.n)
        needed = cases_for_non_inferiority(discordance, margin, guardrails=guardrails, alpha=ALPHA, beta=BETA) * effect
        return Guardrail(row, z, critical, round(needed))
    if row.low is None or row.high is None or row.high <= row.low:
        return Guardrail(row, 0.0, critical, row.n + 1)  # without any spread there is no test
    error = (row.high - row.low) / _INTERVAL_WIDTH
    z_power = _NORMAL.inv_cdf(1 - ALPHA) + _NORMAL.inv_cdf(1 - BETA / guardrails)
    z = ((row.delta or 0.0) + margin) / error
    return Guardrail(row, z, critical, round(row.n * (z_power * error / margin) ** 2))


def guarded_rows(report: EvalReport) -> list[MetricRow]:
    """Return the rows with cases that may hold a promotion: all but those of unguarded slices and of fresh tasks."""
    return [r for r in report.metrics if r.n > 0 and r.slice != FRESH and r.standing != "unguarded"]


def is_head(row: MetricRow) -> bool:
    """Return whether a row is the primary metric on all cases."""
    return row.primary and row.slice == "all"
