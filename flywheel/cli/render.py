"""Text for a terminal: aligned columns, funnels, evaluations and gate rules.

Colour only marks ✓ and ✗ on a terminal, and honours NO_COLOR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flywheel import present
from flywheel.cli.session import coloured

if TYPE_CHECKING:
    from flywheel.records import CaseGap, EvalReport, MetricRow, MonitorRow, OffPolicyEstimate, RuleResult
    from flywheel.results.rounds import CoverageGap


_WIDEST = 200  # characters of a cell that is not the last: a name from a log may be of any length


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Return rows as aligned lines, two spaces between columns; the columns in `right` are right-aligned.

    A row is one line: a line break in a name would begin another, of the log's own words.
    """
    table = [[present.one_line(cell, _WIDEST if n < len(row) - 1 else 0) for n, cell in enumerate(row)] for row in rows]
    width = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [cell.rjust(width[i]) if i in right else cell.ljust(width[i]) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return lines


def funnel_lines(funnel: Mapping[str, int]) -> list[str]:
    """Return a funnel as indented lines."""
    return [f"  {count:>9,}  {name}" for name, count in funnel.items() if count or not name.startswith("note")]


def metric_lines(report: EvalReport, *, old: str = "", new: str = "", verbose: bool = False) -> list[str]:
    """Return an evaluation as a table: each metric with n, both values, difference and interval."""
    baseline = old or present.round_name(report.baseline)
    references = list(dict.fromkeys(r.rival for r in report.rivals))
    rows = [["metric", "n", baseline, new or f"round {report.round}", "delta", "95 % interval", *references]]
    for m in (m for m in report.metrics if verbose or m.slice == "all"):
        name = m.metric if m.slice == "all" else f"  {m.slice}"
        rows.append(
            [name + (" *" if m.primary and m.slice == "all" else ""), str(m.n),
             *(present.level(value, binary=m.binary) for value in (m.baseline, m.value)),
             present.difference(m.delta, binary=m.binary), present.interval(m.low, m.high, binary=m.binary, unit=True),
             *(_reference(report, m, reference) for reference in references)]
        )  # fmt: skip
    notes = ["* primary: the gate tests superiority on it"]
    if references:
        notes.append("baselines are for reference only; (n) = cases scored, if fewer")
    served = [f"served  {line}" for line in present.served_by(report.served)] if report.served else []
    notes += served
    details = [*notes, *measure_lines(report, baseline, new)] if verbose else served
    return [*columns(rows, right=(1, 2, 3, 4)), *details, *_failed_lines(report, verbose=verbose)]


def _reference(report: EvalReport, row: MetricRow, name: str) -> str:
    key = (name, row.suite, row.metric)
    scored = next((r for r in report.rivals if (r.rival, r.suite, r.metric) == key), None)
    if scored is None or scored.value is None or row.slice != "all":
        return ""
    return present.level(scored.value, binary=row.binary) + ("" if scored.n == row.n else f" ({scored.n})")


def measure_lines(report: EvalReport, old: str, new: str) -> list[str]:
    """Return measures other than scores: means of both sides and their ratio, and seconds a case."""
    rows = [["measured", "n", old, new or f"round {report.round}", "ratio", "95 % interval"]]
    for m in report.measures:
        values = (present.number(value) for value in (m.baseline, m.value, m.ratio))
        rows.append([f"{m.measure} of {m.suite}, {m.unit}", str(m.n), *values, present.plain_interval(m.low, m.high)])
    sides = ["base" if report.baseline == "base" else f"round {report.baseline}", f"round {report.round}"]
    for suite in dict.fromkeys(
        name.partition(": a case of ")[0] for name in report.timings_s if ": a case of " in name
    ):
        seconds = [report.timings_s.get(f"{suite}: a case of {side}") for side in sides]
        rows.append([f"seconds of {suite}, a case", "", *map(present.number, seconds), "-", "-"])
    return columns(rows, right=(1, 2, 3, 4)) if len(rows) > 1 else []


def _failed_lines(report: EvalReport, *, verbose: bool) -> list[str]:
    """Return how many of its own cases a round failed, by suite, and their names."""
    return [
        f"failed  {suite}: {present.some(cases, len(cases) if verbose else present.NAMED)}"
        for suite, cases in sorted(report.failed.items())
    ]


def gap_lines(gaps: Sequence[CaseGap | CoverageGap], *, verbose: bool) -> list[str]:
    """Return how many cases the new policy lacks; when verbose, each gap with the first of its cases."""
    if verbose:
        return [
            f"gap   the new policy lacks {gap.lacking:,} of {gap.of:,} cases"
            f"{'' if gap.slice == 'all' else f' where {gap.slice}'}: {', '.join(gap.names)}"
            f"{', ...' if gap.lacking > len(gap.names) else ''}"
            for gap in gaps
        ]
    total = [f"{gap.lacking:,} of {gap.of:,} cases" for gap in gaps if gap.slice == "all"]
    slices = len(gaps) - len(total)
    parts = [*total, *([f"more than half of the cases in {present.count(slices, 'slice')}"] if slices else [])]
    return [f"gap   the new policy lacks {', and '.join(parts)} (-v names them)"] if parts else []


def off_policy_lines(
    estimates: Sequence[OffPolicyEstimate], names: Mapping[str, str] | None = None, *, verbose: bool = True
) -> list[str]:
    """Return off-policy estimates; those refused for the same reasons share a line, or are only counted.

    Args:
        estimates: of one policy or several.
        names: display names of the targets, where there are several.
        verbose: say why estimates are refused.
    """
    from flywheel.records import refused_alike

    rows = []
    for e in estimates:
        if e.value is None or e.low is None or e.high is None:
            continue
        facts = f"n {e.n:,}, ESS {e.certificate['ess']:,.0f}, mean weight {e.certificate['mean_weight']:.2f}"
        label = f"off-policy {e.name}{_whose([e.target], names)}"
        rows.append(
            [label, f"{e.value:.3f}", present.plain_interval(e.low, e.high, 3), e.state, "; ".join([facts, *e.reasons])]
        )
    refused = sum(e.value is None for e in estimates)
    if refused and not verbose:
        return [*columns(rows), f"off-policy {present.count(refused, 'estimate')} REFUSED (-v shows why)"]
    lines = [
        f"off-policy {', '.join(of)}{_whose(targets, names)} REFUSED: {why}"
        for of, targets, why in refused_alike(estimates)
    ]
    return [*columns(rows), *lines]


def estimate_lines(report: EvalReport) -> list[str]:
    """Return the off-policy estimates of a round and its baseline."""
    baseline = present.round_name(report.baseline)
    return off_policy_lines(report.off_policy, {"candidate": f"round {report.round}", "baseline": baseline})


def _whose(targets: Sequence[str], names: Mapping[str, str] | None) -> str:
    return f" of {', '.join(names[target] for target in targets)}" if names else ""


def mark(*, passed: bool) -> str:
    """Return a tick or a cross, coloured where the terminal has colour."""
    return coloured("✓", "green") if passed else coloured("✗", "red")


def rule_lines(rules: Sequence[RuleResult], *, verbose: bool = False) -> list[str]:
    """Return each gate rule with its mark and its numbers in a sentence; when verbose, what the sentence counts."""
    width = max((len(r.rule) for r in rules), default=0)
    lines = []
    for r in rules:
        more = f" (-v names {len(r.details):,})" if r.details and not verbose else ""
        shown = "-" if present.showed_nothing(r) else mark(passed=r.passed)  # no tick where nothing was shown
        lines.append(f"{shown} {r.rule.ljust(width)}  {r.message}{more}")
        lines += [f"  {' ' * width}  {detail}" for detail in r.details if verbose]
    return lines


def monitor_lines(rows: Sequence[MonitorRow], *, verbose: bool) -> list[str]:
    """Return the number of monitors by level, and those that are not green; green ones when verbose.

    Monitors with the same message share a line.
    """
    counts = {level: sum(row.level == level for row in rows) for level in ("red", "amber", "green", "unknown")}
    monitors: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if verbose or row.level != "green":
            monitors.setdefault((row.level, row.sentence), []).append(row.monitor)
    head = "monitors  " + ", ".join(f"{n} {level}" for level, n in counts.items() if n)
    listed = sorted(monitors.items(), key=lambda item: list(counts).index(item[0][0]))
    return [head, *(f"  {level:<7}  {', '.join(names)}: {sentence}" for (level, sentence), names in listed)]
