"""The rule `superiority`: is the candidate better on the primary metric, at the level that the ledger grants this test?

The ledger is the history of decisions. LORD++ (Ramdas et al. 2017) gives each test a level such that in the long run at
most a share alpha of the promotions is false. A test is a decision that could have promoted: a superiority test with a
p-value, not blocked; forced moves and rollbacks are not tests. Only a promotion earns wealth back; counting a test that
passed but was held for another reason as not rejected is the conservative reading.

The same evaluation decided on again is the same test: it keeps its place and its level. It is recognised by round,
champion and statistic, so that a repeated command spends nothing, while the same round on more cases is a new look and
pays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from flywheel.errors import ConfigError
from flywheel.present import count, least, metric_evidence, p_value
from flywheel.records import FRESH, MetricRow, RuleResult, Verdict
from flywheel.stats.online import lord_level
from flywheel.stats.paired import mcnemar_better, mcnemar_mid_p
from flywheel.stats.planning import cases_for_superiority, least_difference, superiority_power

if TYPE_CHECKING:
    from flywheel.config import GateConfig
    from flywheel.extensions import GateInput
    from flywheel.records import Promotion

RULE = "superiority"
POWER = 0.8
_NORMAL = NormalDist()
_INTERVAL_WIDTH = 2 * _NORMAL.inv_cdf(0.975)  # of a 95% interval, in standard errors


def superiority(inputs: GateInput, cfg: GateConfig) -> RuleResult:
    """Pass if the one-sided p-value of the primary metric is at most the ledger's level.

    Binary metrics: the exact sign-flip test over tasks, which is McNemar's where each task has one case. Others: the
    clustered bootstrap's. If it does not pass, the message gives the cases needed if the observed difference is true,
    and the smallest difference that these cases could show.

    A task is spent once: where earlier decisions have used some of the tasks, only the others are tested, because the
    champion was chosen on the used ones and the ledger's promise holds for fresh data only.
    """
    primary = {r.slice: r for r in inputs.report.metrics if r.primary}
    row = primary.get(FRESH, primary.get("all"))
    if row is None or row.n == 0:
        return _untestable(inputs, primary.get("all"), cfg)
    p = mcnemar_better(row.wins, row.losses) if row.p_better is None and row.binary else row.p_better
    if row.n < cfg.min_cases or p is None:
        needed = f"{count(cfg.min_cases, 'paired case')}{'' if row.n < cfg.min_cases else ' with a p-value'}"
        numbers = {"n": float(row.n), "needed_n": float(max(cfg.min_cases, row.n))}
        return _held(f"{metric_evidence(row)}: a test needs at least {needed}.", numbers)
    numbers = _facts(row, p)
    level = level_of(look_of(inputs.report.round, inputs.report.baseline, numbers), inputs.history, cfg)
    numbers |= {"alpha_t": level.alpha, "test": float(level.place)} | _planning(row, level.alpha)
    against = f"alpha_t {p_value(level.alpha)} (test {level.place})"
    ahead = row.wins > row.losses if row.binary else row.delta is not None and row.delta > 0
    if p <= level.alpha and ahead:
        message = f"{metric_evidence(row)}: p {p_value(p)} <= {against}."
        return RuleResult(rule=RULE, passed=True, verdict=Verdict.PROMOTE, message=message, numbers=numbers)
    if "needed_n" in numbers:  # an approximation; these cases were not enough, so more are needed
        numbers["needed_n"] = max(numbers["needed_n"], row.n + 1.0)
    return _held(f"{metric_evidence(row)}: p {p_value(p)} > {against}; {_missing(row, numbers)}.", numbers)


def _untestable(inputs: GateInput, total: MetricRow | None, cfg: GateConfig) -> RuleResult:
    if total is None or total.n == 0:
        return _held("There are no paired cases on the primary metric, so there is nothing to test.", {"n": 0.0})
    message = (
        f"{metric_evidence(total)}: earlier decisions have spent all {count(inputs.report.spent, 'task')}; a test "
        f"needs at least {count(cfg.min_cases, 'case')} of new held-out tasks."
    )
    return _held(message, {"n": 0.0, "spent": float(inputs.report.spent), "needed_n": float(cfg.min_cases)})


def _held(message: str, numbers: dict[str, float]) -> RuleResult:
    return RuleResult(rule=RULE, passed=False, verdict=Verdict.INCONCLUSIVE, message=message, numbers=numbers)


def _missing(row: MetricRow, numbers: Mapping[str, float]) -> str:
    """Return what would be needed: the cases for this difference, the difference for these cases."""
    if "needed_n" in numbers:
        needed = f"about {count(numbers['needed_n'], 'case')} needed for power {POWER} if that difference is true"
        needed += f" (power here {numbers['power']:.2f})"
    elif row.binary and row.wins + row.losses == 0:
        needed = "no discordant cases"
    else:
        needed = "the candidate is not ahead, so no number of cases can be given"
    if "mde" in numbers:
        smallest = least(numbers["mde"], binary=row.binary)
        return f"{needed}; smallest difference that {count(row.n, 'case')} can show: {smallest}"
    return f"{needed}; {count(row.n, 'case')} cannot show any difference at this level"


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
    """Return needed_n, mde (minimum detectable effect) and power, as far as the observed cases allow."""
    if not row.binary:
        return _planning_real(row, alpha)
    discordance, delta = (row.wins + row.losses) / row.n, (row.wins - row.losses) / row.n
    independent = row.n / row.design_effect
    smallest = least_difference(independent, discordance, alpha=alpha, power=POWER)
    plan = {} if smallest is None else {"mde": smallest}
    if delta > 0:
        # an exact test cannot reject with fewer discordant cases than this, whatever the normal approximation gives
        wins_alone = math.ceil(-math.log2(alpha)) / discordance
        needed = max(cases_for_superiority(discordance, delta, alpha=alpha, power=POWER), wins_alone)
        plan["needed_n"] = float(math.ceil(needed * row.design_effect))
        plan["power"] = superiority_power(independent, discordance, delta, alpha=alpha)
    return plan


def _planning_real(row: MetricRow, alpha: float) -> dict[str, float]:
    if row.low is None or row.high is None or row.delta is None or row.high <= row.low:
        return {}
    error = (row.high - row.low) / _INTERVAL_WIDTH
    z_alpha, z_beta = -_NORMAL.inv_cdf(alpha), _NORMAL.inv_cdf(POWER)
    plan = {"mde": (z_alpha + z_beta) * error}
    if row.delta > 0:
        plan["needed_n"] = float(math.ceil(row.n * ((z_alpha + z_beta) * error / row.delta) ** 2))
        plan["power"] = _NORMAL.cdf(row.delta / error - z_alpha)
    return plan


# --- the ledger ------------------------------------------------------------------------------------------------------


class Look(NamedTuple):
    """One look at one candidate: what makes a test the same test."""

    round: int
    baseline: str
    n: float
    wins: float
    losses: float
    delta: float
    p: float


def look_of(number: int, baseline: str, numbers: Mapping[str, float]) -> Look:
    """Return the look behind a superiority rule's numbers."""
    n, wins, losses, delta, p = (numbers.get(name, 0.0) for name in ("n", "wins", "losses", "delta", "p"))
    return Look(number, baseline, n, wins, losses, delta, p)


class Level(NamedTuple):
    """The place of a test in the ledger and the level that it may be rejected at."""

    place: int
    alpha: float


def level_of(look: Look, history: Sequence[Promotion], cfg: GateConfig) -> Level:
    """Return the level at which this test may reject.

    Raises:
        ConfigError: the initial wealth exceeds alpha.
    """
    if cfg.initial_wealth > cfg.alpha:
        raise ConfigError(
            f"gate.initial_wealth {cfg.initial_wealth} exceeds gate.alpha {cfg.alpha}",
            hint="lower gate.initial_wealth; half of gate.alpha is usual",
        )
    places: dict[Look, int] = {}
    promoted: list[int] = []
    for earlier, rejected in _tests(history):
        if earlier == look:
            break
        place = places.setdefault(earlier, len(places) + 1)
        if rejected:
            promoted.append(place)
    place = len(places) + 1
    return Level(place, lord_level(place, sorted(set(promoted)), alpha=cfg.alpha, initial_wealth=cfg.initial_wealth))


def _tests(history: Sequence[Promotion]) -> Iterator[tuple[Look, bool]]:
    """Yield (test, whether it promoted) for every decision that was one, oldest first."""
    for entry in history:
        numbers = next((r.numbers for r in entry.rules if r.rule == RULE), {})
        if entry.decision in {"promoted", "held"} and entry.verdict != Verdict.BLOCKED and "p" in numbers:
            baseline = "base" if entry.champion_before is None else str(entry.champion_before)
            yield look_of(entry.round, baseline, numbers), entry.decision == "promoted"
