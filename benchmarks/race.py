"""Does a race of the methods choose well, and what does it cost.

`python benchmarks/race.py --simulate` draws rounds of known worth: four methods gain so much over their parent, a race
by successive halving sees them on a few cases, and what it chooses is compared with the first method (the rule without
a race), the best one, and other ways to choose. One line a world and number of cases.

`python benchmarks/race.py --work DIR [--serve TASKS]` holds one race in the shop: a script serves the first night, a
round of SFT starts cold from it and is made champion, the champion serves so many tasks of another night, and the
methods race from there. It prints the race and its seconds. A killed run goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flywheel import Project
from flywheel.io import files
from flywheel.pipeline.train.plan import make_plan
from flywheel.pipeline.train.run import after_race
from scipy.special import ndtri

METHODS, ALIKE, WORLDS_DRAWN = 4, 0.7, 1500  # methods of a race; how far two policies share what is hard for them
WORTH = 0.02  # a gain that it would be a pity to miss
PARTLY = 0.8  # of its gain that a method shows on the first rung, with less to train on
WORLDS = ((0.3, 0.1, 0.05), (0.6, 0.1, 0.03), (0.8, 0.06, 0.0), (0.6, 0.05, 0.0), (0.6, 0.1, -0.05))
CASES = (6, 12, 20, 40, 60)
CONFIG = """name = "race"
[train]
method = "{method}"
race = 0.3
race_tokens = 1500
cold_start_below = 0
max_rows = 56
max_tokens = 4600
batch_size = 2
probe_prompts = 8
sft_learning_rate = 2e-3
[train.lora]
target_modules = ["q_proj", "k_proj", "v_proj", "o_proj"]
[eval]
suites = ["shop"]
baselines = []
max_cases = {cases}
max_new_tokens = 96
batch_size = 40
"""


# --- rounds of known worth --------------------------------------------------------------------------------------------


def solved(chances: Any, hard: Any, draw: np.random.Generator) -> Any:
    """Return which cases policies solve, (worlds, policies, cases): a case that is hard is hard for all of them."""
    noise = draw.standard_normal((*chances.shape, hard.shape[-1]))
    level = math.sqrt(ALIKE) * hard + math.sqrt(1 - ALIKE) * noise
    return level < ndtri(np.clip(chances, 1e-6, 1 - 1e-6))[..., None]


def simulated(parent: float, spread: float, mean: float, cases: int) -> dict[str, float]:
    """Return the mean true gain of what each way to choose trains, and how often the race's rule errs."""
    draw = np.random.default_rng(0)
    gains = np.clip(parent + mean + spread * draw.standard_normal((WORLDS_DRAWN, METHODS)), 0.01, 0.99) - parent
    hard = draw.standard_normal((WORLDS_DRAWN, 1, cases))
    before = solved(np.full((WORLDS_DRAWN, 1), parent), hard, draw).mean(-1)[:, 0]
    simpler = 1e-6 * np.arange(METHODS)  # wins ties
    first = solved(parent + PARTLY * gains, hard, draw).mean(-1) - simpler
    last = solved(parent + gains, hard, draw)
    means, worlds = last.mean(-1) - simpler, np.arange(WORLDS_DRAWN)
    one, other = np.argsort(-first, 1)[:, :2].T
    best = np.where(means[worlds, one] >= means[worlds, other], one, other)
    second = np.where(best == one, other, one)
    apart = last[worlds, best].astype(float) - last[worlds, second]
    alike = (second < best) & (apart.mean(-1) <= apart.std(-1) / math.sqrt(cases))
    gain = gains[worlds, best]
    ahead = np.round(means[worlds, best] + simpler[best] - before, 6)
    shares = {
        "no race": gains[:, 0],
        "best method": np.maximum(gains.max(1), 0),
        "race, best mean": gain,
        "race, simplest within a standard error": gains[worlds, np.where(alike, second, best)],
        "race, none below the parent": np.where(ahead >= 0, gain, 0),
        "race, none but above the parent": np.where(ahead > 0, gain, 0),
        "better round not trained": (ahead < 0)[gain > WORTH],
        "worse round trained": (ahead >= 0)[gain < 0],
    }
    return {name: round(float(np.mean(values)), 3) for name, values in shares.items()}


# --- a race in the shop -----------------------------------------------------------------------------------------------


def typed(*command: str | Path) -> str:
    """Run a command; return what it prints."""
    environment = {**os.environ, "FLYWHEEL_KEY": "race", "FLYWHEEL_TRUST": "1"}
    done = subprocess.run([*map(str, command)], check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def once(work: Path, name: str, *command: str | Path) -> None:
    """Run a command unless it is done."""
    if not (work / f"{name}.done").exists():
        started = time.monotonic()
        typed(*command)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
        (work / f"{name}.done").touch()


def serve(folder: Path, policy: str, night: int, tasks: int, attempts: int) -> list[str | Path]:
    """Return the command by which a policy serves a night."""
    return [sys.executable, "-m", "flywheel_warehouse.serve", "--policy", policy, "--project", folder, "--night",
            str(night), "--tasks", str(tasks), "--attempts", str(attempts), "--temperature", "1", "--out",
            folder / "logs", "--truth", folder / "truth"]  # fmt: skip


def hold(work: Path, tasks: int, cases: int) -> dict[str, Any]:
    """Hold one race; return the manifest's record of it, with seconds."""
    folder, flywheel = work / "project", Path(sys.executable).with_name("flywheel")
    folder.mkdir(parents=True, exist_ok=True)
    files.atomic_write(folder / "flywheel.toml", CONFIG.format(method="sft", cases=cases))
    once(work, "the script serves", *serve(folder, "agent-v2", 1, 60, 3))
    once(work, "first logs", flywheel, "-C", folder, "ingest", folder / "logs")
    once(work, "cold start", flywheel, "-C", folder, "train", "--round", "1")
    once(work, "champion", flywheel, "-C", folder, "promote", "1", "--force", "--yes", "--reason", "benchmark")
    if tasks:
        once(work, "the champion serves", *serve(folder, "champion", 3, tasks, 3))
        once(work, "second logs", flywheel, "-C", folder, "ingest", folder / "logs")
    files.atomic_write(folder / "flywheel.toml", CONFIG.format(method="auto", cases=cases))
    print(typed(flywheel, "-C", folder, "plan"), flush=True)
    ctx = replace(Project(folder).context, say=print)
    raced = after_race(ctx, make_plan(ctx, 2))
    return {"seconds": round(raced.race_seconds), "race": raced.plan.model_dump(mode="json")["race"]}


def main() -> None:
    """Simulate, or hold a race."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulate", action="store_true", help="rounds of known worth")
    parser.add_argument("--work", type=Path, help="folder of a race in the shop")
    parser.add_argument("--serve", type=int, default=0, help="tasks that the champion serves before the race")
    parser.add_argument("--cases", type=int, default=16, help="most cases that a suite scores")
    given = parser.parse_args()
    if given.simulate:
        for world in WORLDS:
            for cases in CASES:
                print(json.dumps({"parent": world[0], "spread": world[1], "mean": world[2], "cases": cases,
                                  **simulated(*world, cases)}), flush=True)  # fmt: skip
    if given.work:
        given.work.mkdir(parents=True, exist_ok=True)
        print(json.dumps(hold(given.work, given.serve, given.cases)))


if __name__ == "__main__":
    main()
