"""Superiority: is the candidate better on the primary metric, at the level that the ledger grants tonight?"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

from flywheel.present import count, least, metric_evidence, p_value
from flywheel.records import FRESH, MetricRow, RuleResult, Verdict
from flywheel.stages.gate.ledger import RULE, Level, level_of, look_of
from flywheel.stats.paired import mcnemar_better, mcnemar_mid_p
from flywheel.stats.planning import cases_for_superiority, least_difference, superiority_power

if TYPE_CHECKING:
    from flywheel.config import GateConfig
    from flywheel.extensions import GateInput

__all__ = ["superiority"]

POWER = 0.8
_NORMAL = NormalDist()
_INTERVAL_WIDTH = 2 * _NORMAL.inv_cdf(0.975)  # of a 95 % interval, in standard errors


def superiority(given: GateInput, cfg: GateConfig) -> RuleResult:
    """Pass if the one-sided p-value of the primary metric is at most the ledger's level.

    Binary metrics: the exact sign-flip test over tasks, which is McNemar's where each task has one case. Others: the
    clustered bootstrap's. Without it passing, the message says how many cases would be needed if what was observed is
    true, and how small a difference these cases could show.

    A task is spent once: where earlier decisions have used some of the tasks, only the others are tested, because the
    champion was chosen on the used ones and the ledger's promise holds for fresh data only.
    """
    primary = {r.slice: r for r in given.report.metrics if r.primary}
    row = primary.get(FRESH, primary.get("all"))
    if row is None or row.n == 0:
        return _nothing(given, primary.get("all"), cfg)
    p = _p_value(row)
    if row.n < cfg.min_cases or p is None:
        why = "" if row.n < cfg.min_cases else " with a p-value"
        message = f"{metric_evidence(row)}: at least {count(cfg.min_cases, 'paired case')}{why} must be there to judge."
        return _held(message, {"n": float(row.n), "needed_n": float(max(cfg.min_cases, row.n))})
    numbers = _facts(row, p)
    level = level_of(look_of(given.report.round, given.report.baseline, numbers), given.history, cfg)
    numbers |= {"alpha_t": level.alpha, "test": float(level.place)} | _planning(row, level.alpha)
    if p <= level.alpha and _ahead(row):
        message = (
            f"{metric_evidence(row)}: p {p_value(p)} is within alpha_t {p_value(level.alpha)} of test {level.place}."
        )
        return RuleResult(rule=RULE, passed=True, verdict=Verdict.PROMOTE, message=message, numbers=numbers)
    if "needed_n" in numbers:  # an approximation; these cases were not enough, so more are needed
        numbers["needed_n"] = max(numbers["needed_n"], row.n + 1.0)
    return _held(_why_held(row, p, level, numbers), numbers)


def _nothing(given: GateInput, whole: MetricRow | None, cfg: GateConfig) -> RuleResult:
    if whole is None or whole.n == 0:
        return _held("There is no paired case on the primary metric, so nothing can be concluded.", {"n": 0.0})
    tasks = count(given.report.spent, "task")
    message = (
        f"{metric_evidence(whole)}: earlier decisions have spent all {tasks}, so none is left to test on; at least "
        f"{count(cfg.min_cases, 'case')} of new held-out tasks are needed."
    )
    return _held(message, {"n": 0.0, "spent": float(given.report.spent), "needed_n": float(cfg.min_cases)})


def _held(message: str, numbers: dict[str, float]) -> RuleResult:
    return RuleResult(rule=RULE, passed=False, verdict=Verdict.INCONCLUSIVE, message=message, numbers=numbers)


def _p_value(row: MetricRow) -> float | None:
    if row.p_better is None and row.binary:
        return mcnemar_better(row.wins, row.losses)
    return row.p_better


def _ahead(row: MetricRow) -> bool:
    return row.wins > row.losses if row.binary else row.delta is not None and row.delta > 0


def _facts(row: MetricRow, p: float) -> dict[str, float]:
    facts = {
        "n": float(row.n),
        "n_tasks": float(row.n_tasks),
        "wins": float(row.wins),
        "losses": float(row.losses),
        "design_effect": row.design_effect,
        "p": p,
        "delta": row.delta if row.delta is not None else 0.0,
    }
    facts |= {name: value for name, value in (("low", row.low), ("high", row.high)) if value is not None}
    if row.binary:
        facts |= {"mid_p": mcnemar_mid_p(row.wins, row.losses), "discordance": (row.wins + row.losses) / row.n}
    return facts


def _planning(row: MetricRow, alpha: float) -> dict[str, float]:
    """Return needed_n, mde and power, as far as they can be told from what was observed."""
    if not row.binary:
        return _planning_real(row, alpha)
    discordance, delta = (row.wins + row.losses) / row.n, (row.wins - row.losses) / row.n
    independent = row.n / row.design_effect
    found: dict[str, float] = {}
    least = least_difference(independent, discordance, alpha=alpha, power=POWER)
    if least is not None:
        found["mde"] = least
    if delta > 0:
        # an exact test cannot reject with fewer discordant cases than this, whatever the normal approximation says
        wins_alone = math.ceil(-math.log2(alpha)) / discordance
        needed = max(cases_for_superiority(discordance, delta, alpha=alpha, power=POWER), wins_alone)
        found["needed_n"] = float(math.ceil(needed * row.design_effect))
        found["power"] = superiority_power(independent, discordance, delta, alpha=alpha)
    return found


def _planning_real(row: MetricRow, alpha: float) -> dict[str, float]:
    if row.low is None or row.high is None or row.delta is None or row.high <= row.low:
        return {}
    error = (row.high - row.low) / _INTERVAL_WIDTH
    z_alpha, z_beta = -_NORMAL.inv_cdf(alpha), _NORMAL.inv_cdf(POWER)
    found = {"mde": (z_alpha + z_beta) * error}
    if row.delta > 0:
        found["needed_n"] = float(math.ceil(row.n * ((z_alpha + z_beta) * error / row.delta) ** 2))
        found["power"] = _NORMAL.cdf(row.delta / error - z_alpha)
    return found


def _why_held(row: MetricRow, p: float, level: Level, numbers: dict[str, float]) -> str:
    says = f"{metric_evidence(row)}: p {p_value(p)} is above alpha_t {p_value(level.alpha)} of test {level.place}"
    if "needed_n" in numbers:
        says += (
            f"; if that is the true difference, about {count(numbers['needed_n'], 'case')} are needed for power {POWER}"
        )
        says += f", and these had power {numbers['power']:.2f}"
    elif row.binary and row.wins + row.losses == 0:
        says += "; no case told the two apart"
    else:
        says += "; the candidate is not ahead, so no number of cases can be named"
    if "mde" in numbers:
        return f"{says}; {count(row.n, 'case')} show {least(numbers['mde'], binary=row.binary)} or more."
    return f"{says}; {count(row.n, 'case')} could show no difference at this level."
