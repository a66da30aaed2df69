"""Metric rows in words: rates, differences in percentage points, n and interval, the same in every rule."""

from __future__ import annotations

from flywheel.records import FRESH, MetricRow

__all__ = ["amount", "counted", "label", "signed", "summary"]


def label(row: MetricRow) -> str:
    """Return a row's name: the metric, and its slice unless that is everything."""
    if row.slice == FRESH:
        return f"{row.metric} on fresh tasks"
    return row.metric if row.slice == "all" else f"{row.metric} where {row.slice}"


def counted(n: int, noun: str) -> str:
    """Return '1 case' or '1,200 cases'."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def amount(value: float, *, binary: bool) -> str:
    """Return a level or an unsigned difference: in per cent or points for rates, plainly for other scores."""
    return f"{value * 100:.1f}" if binary else f"{value:.3f}"


def signed(value: float, *, binary: bool) -> str:
    """Return a difference with its sign."""
    return f"{value * 100:+.1f}" if binary else f"{value:+.3f}"


def summary(row: MetricRow) -> str:
    """Return a row with everything needed to judge it: both values, n, tasks, wins and losses, difference, interval."""
    if row.n == 0 or row.baseline is None or row.value is None or row.delta is None:
        return f"{label(row)}: no paired case"
    percent, points = (" %", " pp") if row.binary else ("", "")
    of = f" of {counted(row.n_tasks, row.unit)}" if row.n_tasks else ""
    tally = f" (+{row.wins}/-{row.losses})" if row.binary else ""
    interval = ""
    if row.low is not None and row.high is not None:
        low, high = (signed(v, binary=row.binary) for v in (row.low, row.high))
        interval = f", 95 % interval [{low}, {high}]{points}"
    before, after = (amount(v, binary=row.binary) for v in (row.baseline, row.value))
    return (
        f"{label(row)} {before} -> {after}{percent} on {counted(row.n, 'case')}{of}{tally}, "
        f"{signed(row.delta, binary=row.binary)}{points}{interval}"
    )
