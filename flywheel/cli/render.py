"""Turning answers into text: aligned columns on stdout, sentences on stderr, one JSON document with --json.

Everything is readable without colour; colour only marks ✓ and ✗ on a terminal and honours NO_COLOR.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel

    from flywheel.records import EvalReport, MetricRow, MonitorRow, OffPolicyEstimate, RuleResult

__all__ = [
    "Output",
    "coloured",
    "columns",
    "estimate_lines",
    "funnel_lines",
    "harmless",
    "mark",
    "measure_lines",
    "metric_lines",
    "monitor_lines",
    "off_policy_lines",
    "rule_lines",
    "size",
]


MOST_NAMES = 20
# Controls of terminals and of text direction, except a line's end, a tab, and our own colours.
_CONTROL = re.compile(r"(?!\x1b\[(?:0|31|32)m)[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Output:
    """Where and how a command's words go."""

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    progress: bool = True

    def result(self, lines: Sequence[str], document: BaseModel) -> None:
        """Print a command's result to stdout: text, or with --json one document."""
        if self.as_json:
            sys.stdout.write(json.dumps(document.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n")
        elif not self.quiet:
            sys.stdout.write("".join(f"{harmless(line)}\n" for line in lines))

    def say(self, line: str) -> None:
        """Print a sentence on what is going on to stderr."""
        if not self.quiet and not self.as_json:
            sys.stderr.write(f"{harmless(line)}\n")
            sys.stderr.flush()

    @property
    def live(self) -> bool:
        """Whether a progress bar may be drawn: on a terminal only."""
        return self.progress and not self.quiet and not self.as_json and sys.stderr.isatty()


def harmless(text: str) -> str:
    """Return a text in which nothing of a log can steer a terminal: control characters are written out."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def coloured() -> bool:
    """Whether stdout is a terminal that wants colour."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Return rows as aligned lines, two spaces between columns; the columns in `right` are right-aligned."""
    width = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    lines = []
    for row in rows:
        cells = [cell.rjust(width[i]) if i in right else cell.ljust(width[i]) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return lines


def size(n: int) -> str:
    """Return a number of bytes for people."""
    value, units = float(n), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:  # noqa: PLR2004 - SI prefixes
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"


def funnel_lines(funnel: Mapping[str, int]) -> list[str]:
    """Return a funnel as indented lines."""
    told = {name: count for name, count in funnel.items() if count or not name.startswith("note")}
    return [f"  {count:>9,}  {name}" for name, count in told.items()]


def _number(value: float | None, *, binary: bool) -> str:
    if value is None:
        return "-"
    return f"{value:.1%}" if binary else f"{value:.3f}"


def _difference(row: MetricRow, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 100:+.1f} pp" if row.binary else f"{value:+.3f}"


def metric_lines(report: EvalReport, *, old: str = "", new: str = "") -> list[str]:
    """Return the evaluation's table: each metric with n, both values, difference and interval."""
    baseline = "base" if report.baseline == "base" else f"round {report.baseline}"
    baselines = list(dict.fromkeys(r.rival for r in report.rivals))
    rows = [["metric", "n", old or baseline, new or f"round {report.round}", "delta", "95 % interval", *baselines]]
    for m in report.metrics:
        name = m.metric if m.slice == "all" else f"  {m.slice}"
        span = "-" if m.low is None else f"[{_difference(m, m.low)}, {_difference(m, m.high)}]"
        rows.append(
            [name + (" *" if m.primary and m.slice == "all" else ""), str(m.n), _number(m.baseline, binary=m.binary),
             _number(m.value, binary=m.binary), _difference(m, m.delta), span,
             *(_baseline(report, m, name) for name in baselines)]
        )  # fmt: skip
    notes = ["* primary: the gate judges superiority on it"]
    if baselines:
        notes.append("baselines are for reference only; (n) = cases scored, if fewer")
    return [*columns(rows, right=(1, 2, 3, 4)), *notes, *measure_lines(report, old or baseline, new)]


def _baseline(report: EvalReport, row: MetricRow, name: str) -> str:
    wanted = (name, row.suite, row.metric)
    found = next((r for r in report.rivals if (r.rival, r.suite, r.metric) == wanted), None)
    if found is None or found.value is None or row.slice != "all":
        return ""
    return _number(found.value, binary=row.binary) + ("" if found.n == row.n else f" ({found.n})")


def measure_lines(report: EvalReport, old: str, new: str) -> list[str]:
    """Return what was measured beside scores: means of both sides and their ratio, and seconds a case."""
    rows = [["measured", "n", old, new or f"round {report.round}", "ratio", "95 % interval"]]
    for m in report.measures:
        span = "-" if m.low is None or m.high is None else f"[{m.low:.2f}, {m.high:.2f}]"
        values = ("-" if value is None else f"{value:.4g}" for value in (m.baseline, m.value, m.ratio))
        rows.append([f"{m.measure} of {m.suite}, {m.unit}", str(m.n), *values, span])
    sides = ["base" if report.baseline == "base" else f"round {report.baseline}", f"round {report.round}"]
    for suite in dict.fromkeys(
        name.partition(": a case of ")[0] for name in report.timings_s if ": a case of " in name
    ):
        took = [report.timings_s.get(f"{suite}: a case of {side}") for side in sides]
        rows.append([f"seconds of {suite}, a case", "", *("-" if t is None else f"{t:.3g}" for t in took), "-", "-"])
    lines = columns(rows, right=(1, 2, 3, 4)) if len(rows) > 1 else []
    return lines + [f"failed  {suite}: {_some(cases)}" for suite, cases in sorted(report.failed.items())]


def off_policy_lines(estimates: Sequence[OffPolicyEstimate], names: Mapping[str, str] | None = None) -> list[str]:
    """Return the estimates, those that are refused for the same reasons in one line.

    Args:
        estimates: of one policy or several.
        names: what a target is called, where there are several.
    """
    from flywheel.records import refused_alike

    rows = []
    for e in estimates:
        if e.value is None or e.low is None or e.high is None:
            continue
        spread = f"[{e.low:.3f}, {e.high:.3f}]"
        facts = f"n {e.n:,}, ESS {e.certificate['ess']:,.0f}, mean weight {e.certificate['mean_weight']:.2f}"
        label = f"off-policy {e.name}{_whose([e.target], names)}"
        rows.append([label, f"{e.value:.3f}", spread, e.state, "; ".join([facts, *e.reasons])])
    lines = [
        f"off-policy {', '.join(of)}{_whose(targets, names)} REFUSED: {why}"
        for of, targets, why in refused_alike(estimates)
    ]
    return [*columns(rows), *lines]


def estimate_lines(report: EvalReport) -> list[str]:
    """Return a round's off-policy estimates beside the baseline's."""
    baseline = "base" if report.baseline == "base" else f"round {report.baseline}"
    return off_policy_lines(report.off_policy, {"candidate": f"round {report.round}", "baseline": baseline})


def _whose(targets: Sequence[str], names: Mapping[str, str] | None) -> str:
    return f" of {', '.join(names[target] for target in targets)}" if names else ""


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES:,} more"


def mark(*, passed: bool) -> str:
    """Return a tick or a cross, coloured where the terminal has colour."""
    mark = "✓" if passed else "✗"
    return f"\x1b[{32 if passed else 31}m{mark}\x1b[0m" if coloured() else mark


def rule_lines(rules: Sequence[RuleResult]) -> list[str]:
    """Return each gate rule with its mark and its numbers in a sentence."""
    width = max((len(r.rule) for r in rules), default=0)
    return [f"{mark(passed=r.passed)} {r.rule.ljust(width)}  {r.message}" for r in rules]


def monitor_lines(rows: Sequence[MonitorRow], *, verbose: bool) -> list[str]:
    """Return the monitors: how many are of each level, and those that are not green; green ones when verbose.

    What several monitors cannot tell for the same reason is one line.
    """
    counts = {level: sum(row.level == level for row in rows) for level in ("red", "amber", "green", "unknown")}
    told: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if verbose or row.level != "green":
            told.setdefault((row.level, row.sentence), []).append(row.monitor)
    head = "monitors  " + ", ".join(f"{n} {level}" for level, n in counts.items() if n)
    listed = sorted(told.items(), key=lambda item: list(counts).index(item[0][0]))
    return [head, *(f"  {level:<7}  {', '.join(names)}: {sentence}" for (level, sentence), names in listed)]


def plain(value: Any) -> str:
    """Return a JSON value as indented text."""
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=False)
