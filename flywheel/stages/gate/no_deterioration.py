"""The rule `no_deterioration`: nothing is significantly worse anywhere, and nothing measured is beyond its limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flywheel.config import GateConfig
from flywheel.extensions import GateInput
from flywheel.present import NAMED, count, metric_evidence, metric_name, p_value, plain_interval, some
from flywheel.records import EvalReport, MeasureRow, MetricRow, RuleResult, Verdict
from flywheel.stages.gate.non_inferior import ALPHA, guarded_rows, is_head
from flywheel.stages.gate.superiority import FUTILE_FROM, RULE, has_evidence
from flywheel.stats.multiple import holm
from flywheel.stats.paired import mcnemar_better

_PATIENCE = 3  # looks at which a candidate with its evidence has waited for its guardrails alone


def no_deterioration(inputs: GateInput, cfg: GateConfig) -> RuleResult:
    """Reject if any row is significantly worse or a measure beyond its limit; hold if a guardrail looks worse.

    Significantly: one-sided tests, Holm-corrected over all rows at 5%, half of which is the primary metric's however
    many slices there are. A round is looked at again and again, so the 5% are spent over its looks: half by the first,
    the rest in parts of 1 / (t (t - 1)) by look t; all looks together reject an equal candidate in at most 5% of runs.
    Looks worse: a guardrail's own test at 5%, uncorrected. That is not proof, but a slice with
    too few cases to prove anything is exactly where harm hides; it is named, and more of its cases are asked for.
    Their cases may be used up, and while one candidate waits no other is trained. So one that has its evidence and
    waits for its guardrails alone is given up, which proves nothing and promotes none: from the second look on if a
    row is significant by that look alone, and when any looks worse after three looks of such waiting.
    """
    tested = [(row, p) for row in guarded_rows(inputs.report) if (p := p_worse(row)) is not None]
    rows = [row for row, _ in tested]
    look = _look(inputs)
    by_look = holm([p for _, p in tested], _weights(rows))
    adjusted = [min(1.0, q / _look_share(look)) for q in by_look]
    worse = [(row, q) for row, q in zip(rows, adjusted, strict=True) if q <= ALPHA]
    suspect = [(r, p) for (r, p), q in zip(tested, adjusted, strict=True) if p <= ALPHA < q and not is_head(r)]
    is_sure = look >= FUTILE_FROM and any(q <= ALPHA for q in by_look)
    is_given_up = has_evidence(inputs.report.evidence) and (is_sure or _waited(inputs) >= _PATIENCE)
    measures = limited_measures(inputs.report, cfg)
    beyond, grown = list(_beyond(measures, cfg)), list(_grown(measures, cfg))
    verdict = Verdict.INCONCLUSIVE if suspect or grown else Verdict.PROMOTE
    if worse or beyond or (suspect and is_given_up):
        verdict = Verdict.REJECT
    numbers = {"tests": float(len(tested)), "worse": float(len(worse)), "suspect": float(len(suspect)), "alpha": ALPHA}
    numbers |= {f"p: {metric_name(row)}": p for row, p in zip(rows, adjusted, strict=True)}
    numbers |= {"beyond": float(len(beyond)), "grown": float(len(grown)), "limited": float(len(measures))}
    unknown = sorted(cfg.limits.keys() - GateConfig().limits.keys() - {row.measure for row in inputs.report.measures})
    parts = [*_tests_in_words(worse, suspect, adjusted, f"given up after {count(look, 'look')}" if is_given_up else "")]
    parts += [f"Beyond the limit: {'; '.join(beyond)}."] if beyond else []
    parts += [f"More expensive than the champion, which a person may accept: {'; '.join(grown)}."] if grown else []
    if measures and not beyond and not grown:
        parts.append(f"{count(len(measures), 'measure')} within the limits.")
    parts += [f"Not measured, though gate.limits has it: {some(unknown)}."] if unknown else []
    return RuleResult(
        rule="no_deterioration",
        passed=verdict == Verdict.PROMOTE,
        verdict=verdict,
        message=" ".join(parts),
        numbers=numbers,
        details=[
            *(f"significantly worse: {metric_evidence(row)}, adjusted p {p_value(p)}" for row, p in worse[NAMED:]),
            *(f"looks worse: {metric_evidence(row)}, p {p_value(p)}" for row, p in suspect[NAMED:]),
        ],
    )


def _look(inputs: GateInput) -> int:
    """Return the number of a look at a candidate; logs are compared once, which is 0.

    Decisions count too: a primary suite of fixed cases has units at the first look alone, the guardrails at each.
    """
    if inputs.manifest is None:
        return 0
    number = inputs.manifest.round
    decided = sum(p.round == number and p.verdict not in {None, Verdict.BLOCKED} for p in inputs.history)
    looks = inputs.report.evidence.looks if inputs.report.evidence is not None else 0
    return max(looks, decided + 1)


def _waited(inputs: GateInput) -> int:
    """Return at how many looks the candidate had its evidence, and a guardrail that looked worse."""
    number = inputs.manifest.round if inputs.manifest is not None else None
    passed = ({r.rule: r.passed for r in p.rules} for p in inputs.history if p.round == number)
    return sum(rules.get(RULE, False) and not rules.get("no_deterioration", True) for rules in passed)


def _look_share(look: int) -> float:
    """Return a look's share of the error."""
    return {0: 1.0, 1: 0.5}.get(look) or 0.5 / (look * (look - 1))


def _tests_in_words(
    worse: Sequence[tuple[MetricRow, float]],
    suspect: Sequence[tuple[MetricRow, float]],
    adjusted: Sequence[float],
    given_up: str,
) -> Iterator[str]:
    tests = count(len(adjusted), "test")
    if worse:
        named = some([f"{metric_evidence(row)}, adjusted p {p_value(p)}" for row, p in worse], between="; ")
        yield f"Significantly worse in {len(worse)} of {tests}: {named}."
    if suspect:
        named = some([f"{metric_evidence(row)}, p {p_value(p)}" for row, p in suspect], between="; ")
        ending = given_up or "collect more cases"
        yield f"Looks worse, but is not significant after correction for {tests}: {named}; {ending}."
    if not worse and not suspect:
        least = f", smallest adjusted p {p_value(min(adjusted))}" if adjusted else ""
        yield f"No metric is significantly worse ({tests}, Holm-corrected, alpha {ALPHA}{least})."


def p_worse(row: MetricRow) -> float | None:
    """Return the one-sided p-value of "no worse"; McNemar's where the row has none and is binary."""
    if row.p_worse is None and row.binary:
        return mcnemar_better(row.losses, row.wins)
    return row.p_worse


def _weights(rows: Sequence[MetricRow]) -> list[float]:
    """Return each test's share of the error: half for the primary metric itself, the rest for all guardrails alike."""
    heads = sum(is_head(row) for row in rows)
    others = len(rows) - heads
    if not heads or not others:
        return [1.0] * len(rows)
    return [0.5 / heads if is_head(row) else 0.5 / others for row in rows]


# --- measures: drift against fixed limits, cost against the champion's ------------------------------------------------


def limited_measures(report: EvalReport, cfg: GateConfig) -> list[MeasureRow]:
    """Return the measures that have a limit here and were taken; growth is between rounds only.

    A base model that cannot do the work writes at any length, so its cost is not a yardstick.
    """
    growing = cfg.growth if report.baseline != "base" else {}
    return [row for row in report.measures if row.n and (row.measure in cfg.limits or row.measure in growing)]


def _beyond(rows: Sequence[MeasureRow], cfg: GateConfig) -> Iterator[str]:
    """Yield each measure above its fixed limit; the mean as it is, since it is taken on a fixed text."""
    for row in rows:
        limit = cfg.limits.get(row.measure)
        if limit is not None and row.value is not None and row.value > limit:
            yield f"{row.measure} {row.value:.3g} {row.unit} on {count(row.n, 'case')}, above gate.limits {limit:.3g}"


def _grown(rows: Sequence[MeasureRow], cfg: GateConfig) -> Iterator[str]:
    """Yield each measure that exceeds the champion's by its share with the whole interval of the ratio."""
    for row in rows:
        share = cfg.growth.get(row.measure)
        if share is not None and row.ratio is not None and row.low is not None and row.low > 1 + share:
            yield (
                f"{row.measure} of {row.suite} {row.baseline:.1f} -> {row.value:.1f} on {count(row.n, 'case')}, "
                f"{row.ratio:.2f} times {plain_interval(row.low, row.high)}, above gate.growth {share:.2f}"
            )
