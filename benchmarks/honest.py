"""Honest crowds: how often users who agree, or disagree, for honest reasons are taken for a crowd that steers.

`python benchmarks/honest.py [--logs 100]`: logs without an attack, whose users come and think as the world has it; how
many of them have a surge, a crowd (`flywheel.stages.signals.crowds`) or a report of what may be one, and what share of
the opinions is set aside. In the worlds called *alike* honest users do what a crowd does.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl
from flywheel.funnel import Funnel
from flywheel.stages.signals.crowds import find_crowds, surges

Floats = npt.NDArray[np.float64]
DAY_S = 86_400.0
SPOKEN = 0.67  # share of users who show what they think
NOISE = 0.06  # users misjudge
CAREFUL = 0.7  # share of the good action


@dataclass(frozen=True)
class World:
    """How many come when, to how many tasks, and what they make of what is done there."""

    talks: int = 2000
    tasks: int = 20
    days: int = 60
    accounts: int = 600
    popular: float = 0.7  # exponent: task n is asked 1 / n to this power as often as the first
    growth: float = 0.0  # log of the growth in a week
    fashion: float = 0.0  # variance of a task's daily rate, 0: every day is alike
    mondays: float = 1.0  # times as many come on one day of the week
    outage: float = 0.0  # day of two on which nothing works, as a share of the days; who waited comes back after it
    taste: float = 0.0  # share of accounts for whom the bad action is right, and the good one wrong
    changed: float = 0.0  # share of tasks at which the bad action becomes right on a day
    together: bool = False  # on the same day, that of the launch if there is one; otherwise each on a day of its own
    launch: float = 0.0  # new accounts of one day, as a share of the talks
    launch_day: float = 0.5  # as a share of the days
    launched: int = 0  # tasks that the launch is about; 0: all
    novices: float = 0.0  # share of the launch's accounts who like whatever is done


def log(world: World, seed: int) -> pl.DataFrame:
    """Return the attempts of a log."""
    draw = np.random.default_rng([seed, world.talks, world.tasks])
    shares = (1.0 + np.arange(world.tasks)) ** -world.popular
    task = draw.choice(world.tasks, world.talks, p=shares / shares.sum())
    at = _days(world, draw, task)
    often = 1 / (1 + np.arange(world.accounts) % 8)
    who = draw.choice(world.accounts, world.talks, p=often / often.sum())
    novice = np.zeros(world.talks, bool)
    if world.launch:
        n, day = int(world.launch * world.talks), np.floor(world.launch_day * world.days)
        among = shares[: world.launched or world.tasks]
        task = np.concatenate([task, draw.choice(len(among), n, p=among / among.sum())])
        at = np.concatenate([at, day + draw.random(n)])
        who = np.concatenate([who, world.accounts + draw.integers(0, max(n * 2 // 3, 1), n)])
        novice = np.concatenate([novice, draw.random(n) < world.novices])
    return _attempts(world, draw, task, at, who, novice)


def _days(world: World, draw: np.random.Generator, task: npt.NDArray[np.int64]) -> Floats:
    """Return when each talk begins, in days."""
    rate = np.exp(world.growth * np.arange(world.days) / 7) * np.where(np.arange(world.days) % 7, 1, world.mondays)
    if world.outage:
        rate[int(world.outage * world.days) + 2] *= 8
    at = np.empty(len(task))
    for one in range(world.tasks):
        mine = task == one
        of_task = rate * draw.gamma(1 / world.fashion, world.fashion, world.days) if world.fashion else rate
        at[mine] = draw.choice(world.days, mine.sum(), p=of_task / of_task.sum())
    return at + draw.random(len(task))


def _attempts(
    world: World,
    draw: np.random.Generator,
    task: npt.NDArray[np.int64],
    at: Floats,
    who: npt.NDArray[np.int64],
    novice: npt.NDArray[np.bool_],
) -> pl.DataFrame:
    n = len(task)
    good = draw.random(n) < CAREFUL
    other_taste = (draw.random(2 * world.accounts + 10 * world.talks) < world.taste)[who]
    on = draw.uniform(0, world.days, world.tasks)
    if world.together:
        on[:] = np.floor(world.launch_day * world.days)
    on[draw.random(world.tasks) >= world.changed] = np.inf
    works = np.where(good ^ other_taste, 0.95, 0.05)
    works = np.where(~good & (at >= on[task]), 0.95, works)
    down = (at >= np.floor(world.outage * world.days)) & (at < np.floor(world.outage * world.days) + 2)
    works = np.where(down & (world.outage > 0), 0.02, works)
    content = np.where(draw.random(n) < NOISE, draw.random(n) >= works, draw.random(n) < works) | novice
    opinion = np.where(content, 1, -1) * (draw.random(n) < SPOKEN)
    return pl.DataFrame({
        "task_id": [f"t{k}" for k in task], "policy": "p", "action": np.where(good, "search", "archive"),
        "episode_id": [f"e{k:07}" for k in range(n)], "user": [f"u{k}" for k in who], "at": at * DAY_S,
        "opinion": opinion.astype(np.int8), "known": 0,
    })  # fmt: skip


SMALL, LARGE = World(talks=500, days=14, accounts=120), World(talks=20_000, days=120, accounts=5_000, tasks=60)
FASHIONS = replace(LARGE, fashion=1.0)
MANY = World(talks=30_000, days=120, accounts=8_000, tasks=2_000, popular=0.3)
WORLDS: dict[str, World] = {
    "nothing happens": World(),
    "a small log": SMALL,
    "a large one": LARGE,
    "few tasks, asked by hundreds": World(tasks=3, popular=0),
    "two tastes": World(taste=0.3),
    "fashions: a task's days differ threefold": World(fashion=1.0),
    "fashions and two tastes": World(fashion=1.0, taste=0.3),
    "six times as many on Mondays, the tool changes at half of the tasks": World(mondays=6, changed=0.5),
    "an outage of two days, then eight times as many": World(outage=0.5),
    "the tool changes at half of the tasks, on days of their own": World(changed=0.5),
    "on one day at all tasks": World(changed=1, together=True),
    "the same, with fashions": World(changed=1, together=True, fashion=1.0),
    "the same, and the log grows by a tenth a week": World(changed=1, together=True, growth=0.1, days=180),
    "a launch": World(launch=0.5),
    "a launch at three tasks": World(launch=0.3, launched=3),
    "a launch on the last day": World(launch=0.5, launch_day=0.99),
    "a launch, small log": replace(SMALL, launch=1.0),
    "a launch, large log": replace(LARGE, launch=0.5),
    "a launch, half of the tasks change on other days": World(launch=0.5, changed=0.5, launch_day=0.7),
    "a launch, two tastes": World(launch=0.5, taste=0.3),
    "a launch with one in ten who like everything": World(launch=0.5, novices=0.1),
    "a large log with fashions": FASHIONS,
    "the same, half of the tasks change on days of their own": replace(FASHIONS, changed=0.5),
    "the same, and half of the users have another taste": replace(FASHIONS, changed=0.5, taste=0.5),
    "2,000 tasks": MANY,
    "2,000 tasks, a launch": replace(MANY, launch=0.5),
    "2,000 tasks with fashions, half of them change": replace(MANY, fashion=1.0, changed=0.5),
    "alike: a launch that mends the tool, ten days ago": World(launch=0.5, changed=1, together=True, launch_day=0.83),
    "alike: the same, yesterday": World(launch=0.5, changed=1, together=True, launch_day=0.97),
    "alike: an outage that ended yesterday, then eight times as many": World(outage=0.95),
    "alike: a launch with one in four who like everything": World(launch=0.5, novices=0.25),
    "alike: a launch with half who do": World(launch=0.5, novices=0.5),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=list(WORLDS))
    given = parser.parse_args()
    head = "| world | logs | with a surge | with a crowd | opinions set aside | with a report alone |"
    print(f"{head}\n|---|--:|--:|--:|--:|--:|")
    started = time.perf_counter()
    for name in given.only:
        print(_line(name, WORLDS[name], given.logs), flush=True)
    print(f"{time.perf_counter() - started:.0f} s")


def _line(name: str, world: World, logs: int) -> str:
    logs = max(logs * 2000 // max(world.talks, 2000), 10)
    surging = crowded = reported = aside = opinions = 0
    for seed in range(logs):
        attempts, funnel = log(world, seed), Funnel()
        crowds = find_crowds([surges(attempts)], funnel)
        members = {e for crowd in crowds if crowd.aside for surge in crowd.surges for e in surge.episodes}
        spoken = attempts.filter(pl.col("opinion") != 0)
        surging += funnel.notes.get("surges of accounts", 0) > 0
        crowded += bool(members)
        reported += any(not crowd.aside for crowd in crowds)
        aside += spoken.filter(pl.col("episode_id").is_in(list(members))).height
        opinions += spoken.height
    return f"| {name} | {logs} | {surging} | {crowded} | {aside / opinions:.2%} | {reported} |"


if __name__ == "__main__":
    main()
