"""Whether directions of actions hold on real logs: learned from half of the attempts, tested on the other half.

`python benchmarks/halves.py PROJECT... [--splits 20]`: projects that are built (`benchmarks/pairs.py DATA --keep`
makes some). Every two actions that were both taken in one exact state are compared. From one half of the attempts comes
the posterior of their difference; of the other half's attempts, one with either action, exactly one of which is right,
how often is it the one with the action that is expected to be better? The claim is the posterior's: with chances of
success q and r, q (1 - r) / (q (1 - r) + r (1 - q)), r being the mean of the state less half of the difference.

Printed are all comparisons that the other half can test, those that are believed with at least .8, .5 and .2, and the
curve by claim. Intervals: 95 %, 500 resamples of tasks.
"""

from __future__ import annotations

import argparse
import itertools
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from flywheel import Project
from flywheel.funnel import Funnel
from flywheel.stages.values.evidence import build_evidence, outcomes
from flywheel.stages.values.fit import build_values
from flywheel.stages.values.model import Values, against

if TYPE_CHECKING:
    from flywheel.stats.effects import Posterior

BELIEVED = (0.8, 0.5, 0.2)
EDGES = (0.5, 0.52, 0.55, 0.6, 0.7, 1.0)
SUCCESS = 0.5
RESAMPLES = 500


class Direction(NamedTuple):
    """What one half of the attempts shows of two actions of a state, and how often that held in the other half."""

    task: str
    believed: float  # P(this one is better)
    claimed: float  # of two attempts of which one is right
    held: float


def directions(project: Project, splits: int) -> list[Direction]:
    """Return all directions that can be tested, over several ways of halving the attempts."""
    from flywheel.pipeline.build.tables import read_table

    episodes, steps, labels = (
        read_table(project.context.store, name).collect() for name in ("episodes", "steps", "labels")
    )
    right = dict(labels.filter("known").select("episode_id", "p_success").iter_rows())
    cfg = project.config.rewards
    tested = list[Direction]()
    for split in range(splits):
        first = np.random.default_rng(split).random(episodes.height) < 0.5  # noqa: PLR2004 - half of them
        one, other = (episodes.filter(pl.Series(half)) for half in (first, ~first))
        values = Values.read(build_values(build_evidence(one, steps, labels, cfg), Funnel()))
        here, there = (outcomes(half, steps, labels, cfg)[1] for half in (one, other))
        tested += _tested(expected(here, values), there, right)
    return tested


def _tested(claims: Sequence[dict[str, Any]], there: pl.DataFrame, right: dict[str, float]) -> list[Direction]:
    """Return the directions that attempts of the other half can test."""
    seen: dict[tuple[str, str], list[bool]] = defaultdict(list)
    once = there.unique(["state_0", "action_0", "episode_id"], keep="first", maintain_order=True)
    for state, action, episode in once.select("state_0", "action_0", "episode_id").iter_rows():
        seen[state, action].append(right[episode] > SUCCESS)
    rows = []
    for claim in claims:
        better, worse = (seen.get((claim["state"], claim[side]), []) for side in ("better", "worse"))
        ahead, behind = better.count(True) * worse.count(False), better.count(False) * worse.count(True)
        if ahead + behind:
            rows.append(Direction(claim["task"], claim["believed"], claim["claimed"], ahead / (ahead + behind)))
    return rows


def expected(seen: pl.DataFrame, values: Values) -> list[dict[str, Any]]:
    """Return every two actions of a state of which one is expected to be better, with what is claimed of them."""
    both, found = _compared(seen, values)
    mean = ((both["total"] + both["total_b"]) / (both["n"] + both["n_b"])).to_numpy() if both.height else np.empty(0)
    rows = []
    for i, (task, state, a, b) in enumerate(both.select("task_id", "state_0", "action_0", "action_0_b").iter_rows()):
        if not found.mean[i]:
            continue
        lead = abs(found.mean[i])
        q, r = (float(np.clip((1 + mean[i] + sign * lead / 2) / 2, 0.02, 0.98)) for sign in (1, -1))
        better, worse = (a, b) if found.mean[i] > 0 else (b, a)
        claimed = q * (1 - r) / (q * (1 - r) + r * (1 - q))
        believed = float(max(found.above[i], found.below[i]))
        rows.append(
            {"task": task, "state": state, "better": better, "worse": worse, "believed": believed, "claimed": claimed}
        )
    return rows


def _compared(seen: pl.DataFrame, values: Values) -> tuple[pl.DataFrame, Posterior]:
    """Return every two actions that were taken in one exact state, and the posterior of their difference."""
    once = seen.unique(["state_0", "action_0", "episode_id"], keep="first", maintain_order=True)
    own = once.with_columns(n=pl.col("weight"), total=pl.col("weight") * pl.col("outcome"))
    keys = ["state_0", "action_0", "state_1", "action_1", "state_2", "action_2"]
    cells = own.group_by("task_id", *keys, maintain_order=True).agg(pl.col("n").sum(), pl.col("total").sum())
    both = cells.join(cells, on="state_0", suffix="_b").filter(pl.col("action_0") < pl.col("action_0_b"))
    both = both.sort("state_0", "action_0", "action_0_b")
    sides = {0: against(both.select("n", "total"), both.select(n="n_b", total="total_b"), both["n"] < 0)}
    swapped = both.select("state_0", *(pl.col(f"{name}_b").alias(name) for name in keys[1:]))
    beside = values.beside(both, own), values.beside(swapped, own)
    for level in (1, 2):
        same = both[f"action_{level}"] == both[f"action_{level}_b"]
        sides[level] = against(beside[0][level][0], beside[1][level][0], same)
    return both, values.model.posterior(values.model.combined(sides)[0])


def _resampled(rows: Sequence[Direction]) -> list[npt.NDArray[np.int64]]:
    """Return the places of rows in resamples of tasks."""
    of_task: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        of_task[row.task].append(place)
    tasks = [np.array(of_task[task]) for task in sorted(of_task)]
    rng = np.random.default_rng(0)
    return [np.concatenate([tasks[i] for i in rng.integers(len(tasks), size=len(tasks))]) for _ in range(RESAMPLES)]


def _line(rows: Sequence[Direction]) -> str:
    """Return what some directions claim and what of it holds."""
    if not rows:
        return "none"
    held = np.array([row.held for row in rows])
    low, high = np.quantile([held[places].mean() for places in _resampled(rows)], [0.025, 0.975])
    tasks = len({row.task for row in rows})
    claimed = float(np.mean([row.claimed for row in rows]))
    return f"{len(rows):6,} of {tasks:3} tasks, claimed {claimed:.3f}, held {held.mean():.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Print what holds of each project."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="+", type=Path)
    parser.add_argument("--splits", type=int, default=20)
    arguments = parser.parse_args()
    for folder in arguments.projects:
        rows = directions(Project(folder), arguments.splits)
        print(f"{folder.name}: all     {_line(rows)}", flush=True)
        for least in BELIEVED:
            print(f"  believed from {least:.2f}     {_line([row for row in rows if row.believed >= least])}")
        for low, high in itertools.pairwise(EDGES):
            print(f"  claimed {low:.2f} to {high:.2f}  {_line([row for row in rows if low <= row.claimed < high])}")


if __name__ == "__main__":
    main()
