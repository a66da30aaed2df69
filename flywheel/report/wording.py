"""Numbers and decisions in words: how the report writes a share, a difference, an interval and the verdict.

Shares are percentages with differences in percentage points (pp); other metrics are plain numbers. No rate stands
without its n, no difference without its interval. A missing number is a dash.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from flywheel.records import MetricRow, Promotion, Verdict
from flywheel.report.data import ReportData
from flywheel.report.text import short

__all__ = [
    "VerdictWords", "count", "difference", "interval", "level", "number", "primary_row", "signed", "verdict_words",
]  # fmt: skip

DASH, NBSP = "\u2013", "\u00a0"
_SMALL, _LARGE = 1e-3, 1e5


class VerdictWords(NamedTuple):
    """The verdict as a label, a sentence and a tone that picks its colour."""

    label: str
    sentence: str
    tone: Literal["good", "bad", "unsure", "plain"]


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def number(value: float | None) -> str:
    """Return a plain number with about four significant digits."""
    if value is None or not math.isfinite(value):
        return DASH
    if value == 0:
        return "0"
    if not _SMALL <= abs(value) < _LARGE:
        return f"{value:.2e}".replace("-", "\u2212")
    return f"{value:,.4g}".replace("-", "\u2212")


def count(value: float | None) -> str:
    """Return a count with thousands separators."""
    return DASH if value is None or not math.isfinite(value) else f"{value:,.0f}".replace("-", "\u2212")


def level(value: float | None, *, binary: bool = True) -> str:
    """Return a mean: a percentage for a metric of zeros and ones."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{100 * value:.1f}{NBSP}%" if binary else f"{value:.3f}".replace("-", "\u2212")


def signed(value: float | None, digits: int = 2) -> str:
    """Return a number that always shows its sign."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:+.{digits}f}".replace("-", "\u2212")


def difference(value: float | None, *, binary: bool = True) -> str:
    """Return a difference with its sign: percentage points for a metric of zeros and ones."""
    if not binary or not _known(value):
        return signed(value, 3)
    return f"{signed(100 * (value or 0.0), 1)}{NBSP}pp"


def interval(low: float | None, high: float | None, *, binary: bool = True) -> str:
    """Return an interval of a difference in brackets."""
    if not _known(low) or not _known(high):
        return DASH
    scale, digits = (100.0, 1) if binary else (1.0, 3)
    return f"[{signed(scale * (low or 0.0), digits)},{NBSP}{signed(scale * (high or 0.0), digits)}]"


def primary_row(data: ReportData) -> MetricRow | None:
    """Return the row on which superiority is judged, over all cases."""
    rows = [row for row in (data.report.metrics if data.report else []) if row.slice == "all"]
    return next((row for row in rows if row.primary), rows[0] if rows else None)


def _evidence(data: ReportData) -> str:
    row = primary_row(data)
    if row is None or row.delta is None:
        return "no paired case could be scored"
    return (
        f"{short(row.metric, 60)} went from {level(row.baseline, binary=row.binary)} "
        f"({short(data.baseline_name, 40)}) to "
        f"{level(row.value, binary=row.binary)}: {difference(row.delta, binary=row.binary)}, 95 % interval "
        f"{interval(row.low, row.high, binary=row.binary)}, n{NBSP}={NBSP}{count(row.n)}"
    )


_HELD: dict[Verdict | None, tuple[str, str, Literal["good", "bad", "unsure", "plain"]]] = {
    Verdict.PROMOTE: ("Held", "was held although every rule held", "unsure"),
    Verdict.REJECT: ("Rejected", "was rejected", "bad"),
    Verdict.INCONCLUSIVE: ("Inconclusive", "was held because the evidence is inconclusive", "unsure"),
    Verdict.BLOCKED: ("Blocked", "was blocked because it could not be judged", "bad"),
    None: ("Held", "was held", "unsure"),
}


def _moved(data: ReportData, promotion: Promotion) -> VerdictWords:
    reason = f": {promotion.reason}" if promotion.reason else ""
    if promotion.decision == "forgotten":
        return VerdictWords("Forgotten", f"Round {data.round} is champion no more{reason}.", "bad")
    if promotion.decision == "rolled_back":
        after = "the base model" if promotion.champion_after is None else f"round {promotion.champion_after}"
        return VerdictWords("Rolled back", f"The champion was rolled back to {after}{reason}.", "bad")
    return VerdictWords("Forced", f"Round {data.round} was promoted by force, without the gate{reason}.", "unsure")


def verdict_words(data: ReportData) -> VerdictWords:
    """Return the verdict in one sentence, with the primary metric's numbers."""
    name, promotion = f"Round {data.round}", data.promotion
    if promotion is not None and promotion.decision in {"forced", "rolled_back", "forgotten"}:
        return _moved(data, promotion)
    if promotion is not None and promotion.decision == "promoted":
        return VerdictWords("Promoted", f"{name} was promoted: {_evidence(data)}.", "good")
    if promotion is not None:
        label, what, tone = _HELD[promotion.verdict]
        return VerdictWords(label, f"{name} {what}: {_evidence(data)}.", tone)
    if data.report is not None:
        return VerdictWords("Evaluated", f"{name} awaits the gate: {_evidence(data)}.", "plain")
    if data.manifest.state == "failed":
        reason = data.manifest.error or "no reason was recorded"
        return VerdictWords("Failed", f"{name} failed: {reason}", "bad")
    return VerdictWords(data.manifest.state.capitalize(), f"{name} has not been evaluated.", "plain")
