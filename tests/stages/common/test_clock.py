"""A log's end is that of its parts, however its times are spread over them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
from flywheel.stages.common.clock import End, end_of, end_of_runs, runs_of
from hypothesis import given, settings
from hypothesis import strategies as st

GAP = timedelta(days=14)
START = datetime(2026, 1, 1, tzinfo=UTC)


def by_each_time(times: list[datetime]) -> End:
    """Return the end, looking at each time by itself."""
    ordered = sorted(times)
    for strays in range(min(max(1, len(ordered) // 100), len(ordered) - 1), 0, -1):
        if ordered[-strays] - ordered[-strays - 1] > GAP:
            return End(ordered[-strays - 1], strays)
    return End(ordered[-1]) if ordered else End(None)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 3)), max_size=40), st.integers(0, 250))
def test_parts_of_a_log_end_as_the_whole(days: list[tuple[int, int]], busy: int) -> None:
    days = [*days, *((n % 7, n % 4) for n in range(busy))]
    times = [START + timedelta(days=day) for day, _ in days]
    parts = [pl.Series([time for time, (_, part) in zip(times, days, strict=True) if part == n],
                       dtype=pl.Datetime("us", "UTC")) for n in range(4)]  # fmt: skip
    end = end_of_runs((run for part in parts for run in runs_of(part, GAP)), GAP)
    assert end == end_of(pl.concat(parts), GAP) == by_each_time(times)
