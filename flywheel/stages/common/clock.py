"""When a log ends: by its own times, never by the clock of this machine, which would change tables from day to day.

In: the times of events or episodes. Out: the newest one that is not alone. When something happened is a field that
somebody wrote, so one line dated 2099 would make every window empty and every label old. Times that are few, and lie
behind a gap in which nothing happened, are strays: they move no window.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import polars as pl

STRAYS = 0.01  # of all times, and at least one: so many may be strays
YEAR = timedelta(days=365)  # a log in which nothing happens for so long has ended


class End(NamedTuple):
    """The time with which a log ends; None where nothing has a time. `strays` times lie behind it."""

    at: datetime | None
    strays: int = 0


def end_of(times: pl.Series, gap: timedelta = YEAR) -> End:
    """Return when a log ends.

    Args:
        times: of everything; nulls count for nothing.
        gap: in which nothing happened before a stray.
    """
    ordered = times.drop_nulls().sort()
    most = min(max(1, int(STRAYS * len(ordered))), len(ordered) - 1)
    for strays in range(most, 0, -1):
        stray, before = ordered[-strays], ordered[-strays - 1]
        if stray - before > gap:
            return End(before, strays)
    newest = ordered.max()
    return End(newest if isinstance(newest, datetime) else None)
