"""The rule `superiority`: is the candidate better on the primary metric, by all that was ever seen of it?

A candidate stays until it is decided. Each look adds its new units to one e-process (`stages.gate.evidence`):

    PROMOTE       E reached 1 / level at some look
    REJECT        E of "worse" reached 1 / HARM_ALPHA, or it is futile: one standard error above its mean the gain is
                  below `gate.min_effect`, or the level is out of reach within `gate.horizon` looks
    INCONCLUSIVE  neither: the candidate stays, and the next look adds to what is known

The level is the candidate's share of `gate.alpha` (e-LOND). Looking again costs nothing; another candidate does.
"""

from __future__ import annotations

import math

from flywheel.config import GateConfig
from flywheel.extensions import GateInput
from flywheel.present import count, e_value, metric_evidence, p_value
from flywheel.records import GateEvidence, MetricRow, RuleResult, Verdict
from flywheel.stats.planning import cases_needed, expired

RULE = "superiority"
HARM_ALPHA = 0.05  # chance that a candidate which is not worse is ever rejected as worse
_BEST = "even one standard error above its mean"
FUTILE_FROM = 2  # looks before which no candidate is given up; while one waits, no other is trained


def superiority(inputs: GateInput, cfg: GateConfig) -> RuleResult:
    """Pass if the evidence of all looks has reached the candidate's level, and it is still ahead.

    If it does not pass, the numbers hold the units and looks still needed at the observed difference (`needed_n`,
    `nights`), where the candidate is ahead.
    """
    row = next((r for r in inputs.report.metrics if r.primary and r.slice == "all"), None)
    evidence = inputs.report.evidence
    if row is None or row.n == 0 or evidence is None:
        return _held("There are no paired cases on the primary metric, so there is nothing to test.", {"n": 0.0})
    numbers = _numbers(row, evidence)
    if evidence.units < cfg.min_cases:
        message = f"{metric_evidence(row)}: a decision needs at least {count(cfg.min_cases, row.unit)}."
        return _held(message, numbers | {"needed_n": float(cfg.min_cases)})
    needed = e_value(math.log(1 / evidence.level))
    level = f"candidate {evidence.candidate}, level {p_value(evidence.level)}"
    shown = f"{metric_evidence(row)}: {e_value(evidence.log_e_best)} to 1 against chance"
    if has_evidence(evidence):
        message = f"{shown}, {needed} to 1 is enough ({level}), {_looks(evidence)}."
        return RuleResult(rule=RULE, passed=True, verdict=Verdict.PROMOTE, message=message, numbers=numbers)
    if evidence.log_e_worse >= math.log(1 / HARM_ALPHA):
        worse = f"{e_value(evidence.log_e_worse)} to 1 that it is worse, {count(1 / HARM_ALPHA)} to 1 is enough"
        return _rejected(f"{metric_evidence(row)}: {worse}, {_looks(evidence)}.", numbers)
    if why := _futile(evidence, cfg):
        message = f"{shown} after {_looks(evidence)}, {needed} to 1 is needed ({level}); {why}."
        return _rejected(message, numbers)
    message = f"{shown}, {needed} to 1 is needed ({level}), {_looks(evidence)}; {_missing(evidence)}."
    return _held(message, numbers | _planning(evidence))


def has_evidence(evidence: GateEvidence | None) -> bool:
    """Return whether all looks together are enough, and the candidate is still ahead."""
    return evidence is not None and evidence.log_e_best >= math.log(1 / evidence.level) and evidence.mean > 0


def _held(message: str, numbers: dict[str, float]) -> RuleResult:
    return RuleResult(rule=RULE, passed=False, verdict=Verdict.INCONCLUSIVE, message=message, numbers=numbers)


def _rejected(message: str, numbers: dict[str, float]) -> RuleResult:
    return RuleResult(rule=RULE, passed=False, verdict=Verdict.REJECT, message=message, numbers=numbers)


def _numbers(row: MetricRow, evidence: GateEvidence) -> dict[str, float]:
    numbers = {
        "n": float(row.n),
        "units": float(evidence.units),
        "fresh": float(evidence.fresh),
        "returning": float(evidence.returning),
        "looks": float(evidence.looks),
        "wins": float(row.wins),
        "losses": float(row.losses),
        "delta": row.delta if row.delta is not None else 0.0,
        "mean": evidence.mean,
        "always_low": evidence.low,
        "always_high": evidence.high,
        "log_e": evidence.log_e_best,
        "log_e_worse": evidence.log_e_worse,
        "candidate": float(evidence.candidate),
        "level": evidence.level,
        "discordance": evidence.discordance,
    }
    return numbers | {name: value for name, value in (("low", row.low), ("high", row.high)) if value is not None}


def _looks(evidence: GateEvidence) -> str:
    """Return the looks and what they rest on, in words."""
    looks = count(evidence.looks, "look")
    known = evidence.units - evidence.fresh
    if not known:
        return looks
    return f"{looks}, {count(evidence.fresh)} fresh and {count(known)} units that were looked at before"


def _error(evidence: GateEvidence) -> float:
    """Return the standard error of the mean."""
    variance = max(evidence.discordance - evidence.mean**2, evidence.discordance / max(evidence.units, 1))
    return math.sqrt(variance / evidence.units)


def _units_needed(evidence: GateEvidence, difference: float) -> float:
    """Return the units that this difference needs in all; infinite where it is not positive."""
    return cases_needed(max(evidence.discordance, difference), difference, level=evidence.level)


def _looks_needed(evidence: GateEvidence, difference: float) -> float:
    """Return the further looks until then, at the pace of the last ones."""
    missing = max(_units_needed(evidence, difference) - evidence.units, 1.0)
    return missing / evidence.recent if evidence.recent > 0 else math.inf


def _futile(evidence: GateEvidence, cfg: GateConfig) -> str:
    """Return why waiting for a candidate is not worth it; '' where it is.

    While one waits no other is trained, and another may gain more. What it may gain is taken as one standard error
    above its mean (`benchmarks/gate.py --only patience`).
    """
    if evidence.recent == 0:
        return "it has had no new units for too long" if expired(evidence.looks, evidence.recent) else ""
    if evidence.looks < FUTILE_FROM:
        return ""
    best = evidence.mean + _error(evidence)
    if _looks_needed(evidence, best) > cfg.horizon:
        looks = count(cfg.horizon, "look")
        return f"out of reach: {_BEST} it needs more than gate.horizon {looks}"
    if best < cfg.min_effect:
        return f"too small to wait for: {_BEST} it gains less than gate.min_effect {cfg.min_effect:g}"
    return ""


def _planning(evidence: GateEvidence) -> dict[str, float]:
    needed = _units_needed(evidence, evidence.mean)
    if not math.isfinite(needed):
        return {}
    plan = {"needed_n": float(math.ceil(max(needed, evidence.units + 1)))}
    nights = _looks_needed(evidence, evidence.mean)
    return plan | ({"nights": float(math.ceil(nights))} if math.isfinite(nights) else {})


def _missing(evidence: GateEvidence) -> str:
    plan = _planning(evidence)
    if "needed_n" not in plan:
        return "it is not ahead, so no number of units can be given"
    units = f"about {count(plan['needed_n'], 'unit')} needed if this difference is true"
    return f"{units} ({count(plan['nights'], 'more look')} at this pace)" if "nights" in plan else units
