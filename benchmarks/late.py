"""How well delays of late evidence are learned from logs that end soon after it.

`python benchmarks/late.py`: nights of known truth, each line 400 of them: talks begin two minutes apart, .12 of the
users react at once, .06 after 1 to 23 hours, and the log is read when its last event is known. Printed: the share of
the last night's talks that are not mature, in how many logs that is above .3, and the share of talks that the curve
expects to get evidence at all, its mean and standard deviation; the truth is .18.
"""

from __future__ import annotations

import random
import statistics
from datetime import UTC, datetime, timedelta

import polars as pl
from flywheel.config import RewardsConfig
from flywheel.stages.labelling.delays import arrivals, delays
from flywheel.stats.delays import Delays, maturity

START, AT_ONCE, LATE, LOGS = datetime(2026, 11, 1, tzinfo=UTC), 0.12, 0.06, 400
MANY = 0.3  # of a night


def log(talks: int, nights: int, seed: int) -> list[tuple[datetime, datetime | None]]:
    """Return when each talk ended, and when its evidence came."""
    rng, rows = random.Random(seed), []  # noqa: S311 - reproducible
    for night in range(nights):
        for talk in range(talks):
            ended, roll = START + timedelta(days=night, minutes=2 * talk), rng.random()
            hours = rng.randrange(1, 24) if roll >= AT_ONCE else 0
            rows.append((ended, ended + timedelta(hours=hours) if roll < AT_ONCE + LATE else None))
    return rows


def learned(rows: list[tuple[datetime, datetime | None]], talks: int) -> tuple[float, float] | None:
    """Return the share of the last night that is not mature, and the curve's plateau; None: nothing is waited for."""
    names = [f"{number:05d}" for number in range(len(rows))]
    base = pl.DataFrame({"episode_id": names, "ended": [ended for ended, _ in rows]})
    votes = pl.DataFrame({"episode_id": names, "arrived": [arrived for _, arrived in rows]}).drop_nulls()
    votes = votes.with_columns(signal=pl.lit("complaint"), family=pl.lit("sentiment_neg"))
    now = max(max(ended, arrived or ended) for ended, arrived in rows).timestamp()
    found = next(iter(delays([arrivals(base, votes)], now)), None)
    if found is None:
        return None
    curve = Delays(tuple(found["x"]), tuple(found["y"]))
    silent = [now - ended.timestamp() for ended, arrived in rows[-talks:] if arrived is None]
    young = sum(maturity(curve, age, found["value"]) < RewardsConfig().min_maturity for age in silent)
    return young / talks, curve.shares[-1]


def main() -> None:
    """Print a line a size of log."""
    print("| nights | talks a night | not mature | logs with more than .3 | expected, mean | sd |")
    print("|" + "--:|" * 6)
    for nights in (1, 2, 4):
        for talks in (48, 134, 300):
            found = [one for seed in range(LOGS) if (one := learned(log(talks, nights, seed), talks)) is not None]
            young, plateaus = [one[0] for one in found], [one[1] for one in found]
            many = sum(share > MANY for share in young) / len(young)
            shown = (statistics.fmean(young), many, statistics.fmean(plateaus), statistics.stdev(plateaus))
            print(f"| {nights} | {talks} | " + " | ".join(f"{x:.3f}" for x in shown) + " |", flush=True)


if __name__ == "__main__":
    main()
