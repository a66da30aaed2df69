"""When a log ends: by its own times, never by the clock of this machine, which would change tables from day to day.

In: the times of events or episodes. Out: the newest one that is not alone. When something happened is a field that
somebody wrote, so one line dated 2099 would make every window empty and every label old. Times that are few, and lie
behind a gap in which nothing happened, are strays: they move no window.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

STRAYS = 0.01  # of all times, and at least one: so many may be strays
YEAR = timedelta(days=365)  # a log in which nothing happens for so long has ended


class End(NamedTuple):
    """The time with which a log ends; None where nothing has a time. `strays` times lie behind it."""

    at: datetime | None
    strays: int = 0


class Run(NamedTuple):
    """Times of which each lies within a gap of the next."""

    first: datetime
    last: datetime
    number: int


def runs_of(times: pl.Series, gap: timedelta = YEAR) -> list[Run]:
    """Return the runs of some times; nulls count for nothing."""
    ordered = times.drop_nulls().sort()
    begins = [0, *(ordered.diff() > gap).arg_true()] if len(ordered) else []
    ends = [*begins[1:], len(ordered)]
    return [Run(ordered[begin], ordered[end - 1], end - begin) for begin, end in zip(begins, ends, strict=False)]


def end_of_runs(runs: Iterable[Run], gap: timedelta = YEAR) -> End:
    """Return when a log ends by the runs of its parts, which may overlap.

    Args:
        runs: with that same gap.
        gap: in which nothing happened before a stray.
    """
    joined: list[Run] = []
    for run in sorted(runs):
        if joined and run.first - joined[-1].last <= gap:
            joined[-1] = Run(joined[-1].first, max(joined[-1].last, run.last), joined[-1].number + run.number)
        else:
            joined.append(run)
    total = sum(run.number for run in joined)
    most = min(max(1, int(STRAYS * total)), total - 1)
    end, strays = End(joined[-1].last if joined else None), 0
    while len(joined) > 1 and (strays := strays + joined.pop().number) <= most:
        end = End(joined[-1].last, strays)
    return end


def end_of(times: pl.Series, gap: timedelta = YEAR) -> End:
    """Return when a log ends.

    Args:
        times: of everything; nulls count for nothing.
        gap: in which nothing happened before a stray.
    """
    return end_of_runs(runs_of(times, gap), gap)
