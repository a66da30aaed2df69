"""What is measured against its limits: forgetting against fixed ones, cost against the champion's.

`gate.limits` holds for the candidate's mean as it stands: it is taken on a fixed text, where there is no chance to
allow for. `gate.growth` is a share of the champion's mean, and exceeded when the whole interval of the ratio is above;
it holds between rounds only, because a base model that cannot do the work says what it likes at any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flywheel.config import GateConfig
    from flywheel.records import EvalReport, MeasureRow

__all__ = ["grown", "limited", "over"]


def limited(report: EvalReport, cfg: GateConfig) -> list[MeasureRow]:
    """Return the measures that have a limit here and were taken."""
    growing = cfg.growth if report.baseline != "base" else {}
    return [row for row in report.measures if row.n and (row.measure in cfg.limits or row.measure in growing)]


def over(rows: Sequence[MeasureRow], cfg: GateConfig) -> list[str]:
    """Return a phrase for each measure above its fixed limit, with its numbers."""
    return [phrase for row in rows if (phrase := _over(row, cfg))]


def grown(rows: Sequence[MeasureRow], cfg: GateConfig) -> list[str]:
    """Return a phrase for each measure that is surely more than the champion's by its share, with its numbers."""
    return [phrase for row in rows if (phrase := _grown(row, cfg))]


def _over(row: MeasureRow, cfg: GateConfig) -> str:
    limit = cfg.limits.get(row.measure)
    if limit is None or row.value is None or row.value <= limit:
        return ""
    return f"{row.measure} {row.value:.3g} {row.unit} on {row.n:,} cases, above gate.limits {limit:.3g}"


def _grown(row: MeasureRow, cfg: GateConfig) -> str:
    share = cfg.growth.get(row.measure)
    if share is None or row.low is None or row.ratio is None or row.high is None or row.low <= 1 + share:
        return ""
    return (
        f"{row.measure} of {row.suite} {row.baseline:.1f} -> {row.value:.1f} on {row.n:,} cases, {row.ratio:.2f} times "
        f"[{row.low:.2f}, {row.high:.2f}], above gate.growth {share:.2f}"
    )
