"""What the stage `values` costs on a large log: seconds of processors, and memory.

`python benchmarks/values.py [EPISODES]...`: episodes of five steps with one of two actions each, twenty attempts a
task, three a user; the sums that partitions make of them are simulated, and the stage itself adds them up and fits.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from flywheel.contracts import polars_schema
from flywheel.funnel import Funnel
from flywheel.records import Evidence
from flywheel.stages.values.fit import build_values

STEPS, ATTEMPTS, PER_USER, SUCCESSES = 5, 20, 3, 0.6


def evidence(episodes: int) -> pl.DataFrame:
    """Return the rows of the table `evidence` of that many episodes."""
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, 2, (episodes, STEPS))
    about = pl.DataFrame(
        {
            "task_id": np.arange(episodes) // ATTEMPTS,
            "voter": rng.integers(0, max(episodes // PER_USER, 1), episodes),
            "outcome": np.where(rng.random(episodes) < SUCCESSES, 0.94, -0.94),
        }
    )
    return pl.concat([_summed(about, chosen, step, level) for step in range(STEPS) for level in (0, 1, 2)])


def _summed(about: pl.DataFrame, chosen: npt.NDArray[Any], step: int, level: int) -> pl.DataFrame:
    """Return the sums of one step at one level: a state is the history, the place in the task, or the place."""
    history = chosen[:, :step] @ (2 ** np.arange(step))
    rows = about.with_columns(history=pl.Series(history), action=pl.Series(chosen[:, step]).cast(pl.String))
    names = (
        pl.format("{} {} {}", "task_id", pl.lit(step), "history"),
        pl.format("{} {}", "task_id", pl.lit(step)),
        pl.lit(str(step)),
    )
    rows = rows.with_columns(state=names[level], parent=names[min(level + 1, 2)])
    if level == 0:
        rows = rows.filter(pl.len().over("state") > 1)
    above = pl.lit(None) if level == 2 else pl.col("parent")  # noqa: PLR2004 - the coarsest
    sums = rows.group_by("state", "action", "task_id", "voter").agg(
        count=pl.len(),
        weight=pl.len(),
        total=pl.col("outcome").sum(),
        squares=(pl.col("outcome") ** 2).sum(),
        parent=pl.col("parent").first(),
    )
    sums = sums.with_columns(
        level=pl.lit(level),
        parent_state=above,
        parent_action=pl.when(pl.lit(level < 2)).then("action"),  # noqa: PLR2004 - the coarsest
        policy=pl.lit("agent"),
        sample_episode=pl.lit(""),
        sample_step=pl.lit(step),
    )
    return sums.select(pl.col(name).cast(kind) for name, kind in polars_schema(Evidence).items())


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("episodes", nargs="*", type=int, default=[10_000, 100_000])
    for episodes in parser.parse_args().episodes:
        rows = evidence(episodes)
        began = time.process_time()
        values = build_values(rows, Funnel())
        took, peak = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{episodes:,} episodes, {rows.height:,} sums: {values.height:,} rows, {took:.1f} s, {peak:.1f} GB")


if __name__ == "__main__":
    main()
