"""Guardrails: nothing else may have got worse.

Two rules. `non_inferior` asks for proof that each guardrail is not worse by the margin, wherever there are enough cases
to give it; `no_deterioration` looks for proof, and for signs, that something is worse, everywhere.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from flywheel.present import count, interval, metric_evidence, metric_name, p_value
from flywheel.present import margin as margin_words
from flywheel.records import FRESH, MetricRow, RuleResult, Verdict
from flywheel.stages.gate.limits import grown, limited, over
from flywheel.stats.clusters import task_quantile
from flywheel.stats.multiple import holm
from flywheel.stats.paired import mcnemar_better
from flywheel.stats.planning import cases_for_non_inferiority
from flywheel.stats.tango import non_inferiority_z

if TYPE_CHECKING:
    from flywheel.config import GateConfig
    from flywheel.extensions import GateInput
    from flywheel.records import EvalReport

__all__ = ["Guard", "guard_of", "is_head", "judged", "no_deterioration", "non_inferior", "p_worse"]

ALPHA = 0.05
BETA = 0.2
_NORMAL = NormalDist()
_INTERVAL_WIDTH = 2 * _NORMAL.inv_cdf(0.975)


class Guard(NamedTuple):
    """One guardrail: its statistic against the margin, and the cases that would give the power to pass."""

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
        """Whether an equal candidate would have been shown four times in five or more."""
        return self.row.n >= self.needed


def _critical(row: MetricRow) -> float:
    clustered = 0 < row.n_tasks < row.n
    return task_quantile(row.n_tasks, 1 - ALPHA) if clustered else _NORMAL.inv_cdf(1 - ALPHA)


def guard_of(row: MetricRow, margin: float, guardrails: int) -> Guard:
    """Return the test of "worse by the margin" on a row with cases; the power is shared among the guardrails."""
    if not row.binary:
        return _real_guard(row, margin, guardrails)
    effect = row.design_effect
    z = non_inferiority_z(row.wins / effect, row.losses / effect, row.n / effect, margin)
    # at the margin's edge at least that share of cases differs, however few differed here
    discordance = max(margin, (row.wins + row.losses) / row.n)
    needed = cases_for_non_inferiority(discordance, margin, guardrails=guardrails, alpha=ALPHA, beta=BETA) * effect
    return Guard(row, z, _critical(row), round(needed))


def _real_guard(row: MetricRow, margin: float, guardrails: int) -> Guard:
    delta, low, high = row.delta or 0.0, row.low, row.high
    if low is None or high is None or high <= low:
        return Guard(row, 0.0, _critical(row), row.n + 1)  # no spread was seen, so nothing can be said about it
    error = (high - low) / _INTERVAL_WIDTH
    z_power = _NORMAL.inv_cdf(1 - ALPHA) + _NORMAL.inv_cdf(1 - BETA / guardrails)
    return Guard(row, (delta + margin) / error, _critical(row), round(row.n * (z_power * error / margin) ** 2))


def non_inferior(given: GateInput, cfg: GateConfig) -> RuleResult:
    """Pass if every guardrail that has the cases to show it is shown not to be worse by the margin.

    Guardrails are all rows but the primary metric's own: the other metrics, and the slices. Tango's score test at 5 %,
    uncorrected because all must pass; the power to pass is corrected instead. A guardrail with too few cases could not
    pass if nothing were wrong: it is named, and watched by `no_deterioration` only.
    """
    rows = [r for r in judged(given.report) if not is_head(r)]
    guards = [guard_of(row, cfg.margin, len(rows)) for row in rows]
    shown = [g for g in guards if g.shown]
    failed = [g for g in guards if g.powered and not g.shown]
    unpowered = [g for g in guards if not g.powered and not g.shown]
    numbers = {
        "guardrails": float(len(guards)),
        "shown": float(len(shown)),
        "failed": float(len(failed)),
        "unpowered": float(len(unpowered)),
        "margin": cfg.margin,
    }
    for guard in guards:
        numbers |= {f"z: {metric_name(guard.row)}": guard.z, f"needed_n: {metric_name(guard.row)}": float(guard.needed)}
    message = _guard_message(shown, failed, unpowered, cfg.margin)
    verdict = Verdict.INCONCLUSIVE if failed else Verdict.PROMOTE
    return RuleResult(rule="non_inferior", passed=not failed, verdict=verdict, message=message, numbers=numbers)


def _guard_message(shown: list[Guard], failed: list[Guard], unpowered: list[Guard], margin: float) -> str:
    if not (shown or failed or unpowered):
        return "There is no guardrail beside the primary metric (n 0)."
    edge = margin_words(margin)
    parts = [
        f"of {count(len(shown) + len(failed) + len(unpowered), 'guardrail')}, {len(shown)} shown not worse by {edge}"
    ]
    parts += [f"not shown: {metric_evidence(g.row)}" for g in failed]
    if unpowered:
        names = "; ".join(
            f"{metric_name(g.row)} (n {g.row.n:,} of {g.needed:,} needed{_span(g.row)})" for g in unpowered
        )
        parts.append(f"{len(unpowered)} with too few cases to show it, watched for deterioration only: {names}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _span(row: MetricRow) -> str:
    if row.low is None or row.high is None:
        return ""
    return f", {interval(row.low, row.high, binary=row.binary, unit=True)}"


def p_worse(row: MetricRow) -> float | None:
    """Return the one-sided p-value of "no worse"; McNemar's where the row brings none and is binary."""
    if row.p_worse is None and row.binary:
        return mcnemar_better(row.losses, row.wins)
    return row.p_worse


def _weights(rows: list[MetricRow]) -> list[float]:
    """Return each test's share of the error: half for the primary metric itself, the rest for all guardrails alike."""
    heads = sum(r.primary and r.slice == "all" for r in rows)
    others = len(rows) - heads
    if not heads or not others:
        return [1.0] * len(rows)
    return [0.5 / heads if r.primary and r.slice == "all" else 0.5 / others for r in rows]


def no_deterioration(given: GateInput, cfg: GateConfig) -> RuleResult:
    """Reject if any row, the primary one included, is surely worse, or a measure beyond its limit; hold on a suspicion.

    Surely: one-sided tests, Holm over all rows at 5 %, half of which is the primary metric's however many slices there
    are. Looks worse: a guardrail's own test at 5 %, uncorrected. That is no proof, but a slice with too few cases to
    prove anything is exactly where harm hides; it is named, and more of its cases are asked for.
    """
    tested = [(row, p) for row in judged(given.report) if (p := p_worse(row)) is not None]
    rows = [row for row, _ in tested]
    adjusted = holm([p for _, p in tested], _weights(rows))
    worse = [(row, q) for row, q in zip(rows, adjusted, strict=True) if q <= ALPHA]
    suspect = [(r, p) for (r, p), q in zip(tested, adjusted, strict=True) if p <= ALPHA < q and not is_head(r)]
    numbers = {"tests": float(len(tested)), "worse": float(len(worse)), "suspect": float(len(suspect)), "alpha": ALPHA}
    numbers |= {f"p: {metric_name(row)}": p for row, p in zip(rows, adjusted, strict=True)}
    measures = limited(given.report, cfg)
    beyond, dearer = over(measures, cfg), grown(measures, cfg)
    numbers |= {"beyond": float(len(beyond)), "grown": float(len(dearer)), "limited": float(len(measures))}
    verdict = Verdict.REJECT if worse or beyond else Verdict.INCONCLUSIVE if suspect or dearer else Verdict.PROMOTE
    message = " ".join([_worse_message(worse, suspect, adjusted), *_limits_message(len(measures), beyond, dearer)])
    passed = verdict == Verdict.PROMOTE
    return RuleResult(rule="no_deterioration", passed=passed, verdict=verdict, message=message, numbers=numbers)


def _limits_message(measures: int, beyond: list[str], dearer: list[str]) -> list[str]:
    parts = [f"Beyond the limit: {'; '.join(beyond)}."] if beyond else []
    parts += [f"Dearer than the champion, which a person may allow: {'; '.join(dearer)}."] if dearer else []
    return parts or ([f"{count(measures, 'measure')} within the limits."] if measures else [])


def judged(report: EvalReport) -> list[MetricRow]:
    """Return the rows with cases that may hold a promotion: all but those of unguarded slices and of fresh tasks."""
    return [r for r in report.metrics if r.n > 0 and r.slice != FRESH and r.standing != "unguarded"]


def is_head(row: MetricRow) -> bool:
    """Return whether a row is the primary metric on all cases."""
    return row.primary and row.slice == "all"


def _worse_message(
    worse: list[tuple[MetricRow, float]], suspect: list[tuple[MetricRow, float]], adjusted: list[float]
) -> str:
    tests = count(len(adjusted), "row")
    parts = []
    if worse:
        named = "; ".join(f"{metric_evidence(row)}, adjusted p {p_value(p)}" for row, p in worse)
        parts.append(f"The candidate is surely worse in {len(worse)} of {tests}: {named}.")
    if suspect:
        named = "; ".join(f"{metric_evidence(row)}, p {p_value(p)}" for row, p in suspect)
        parts.append(f"It looks worse, without proof among {tests}, in {named}: more cases of it are needed.")
    if parts:
        return " ".join(parts)
    least = f", least adjusted p {p_value(min(adjusted))}" if adjusted else ""
    return f"Nothing is surely worse among {tests} (Holm at {ALPHA}{least})."
