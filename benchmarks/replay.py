"""How much of real logs the replay environment answers, and what its stage costs.

`python benchmarks/replay.py DATA [NAMES]... [--keep FOLDER]`: each source below DATA is ingested and built in a project
of its own; every attempt is then asked for what would have been answered had it not been in the log. Printed are the
share of calls that another attempt at the task answers, and the share of turns with calls that come to an end that
another attempt came to, without a miss before. With --keep the projects stay in FOLDER and are not ingested again.

`python benchmarks/replay.py --scale N [N]...`: seconds and peak memory of the stage over N made-up attempts.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
from flywheel import Project
from flywheel.config import ReplayConfig
from flywheel.contracts import polars_schema
from flywheel.funnel import Funnel
from flywheel.pipeline.build.tables import read_table
from flywheel.records import TABLES, canonical_json, content_id
from flywheel.stages.datasets.replay.build import build_fixtures
from flywheel.stages.datasets.replay.trajectories import Call, Tools, frame_of, walk

SOURCES = {
    "tau-bench": "tau-bench/gpt-4o-airline.json.gz",
    "tau2-bench": "tau2-bench",
    "wiki-search": "verifiers-wiki-search",
    "intercode": "intercode",
    "prime": "prime-environments",
}
ATTEMPTS_A_TASK = 10
MOST_STEPS = 1000  # of a turn


def coverage(name: str, data: Path, folder: Path) -> str:
    """Return a source's line of the table in docs/replay.md."""
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    project = Project(folder)
    if new:
        project.ingest([data / SOURCES[name]])
    project.build()
    store, cfg = project.store, project.config.replay
    tables = {t: read_table(store, t).collect() for t in ("episodes", "steps", "fixtures", "scenarios")}
    calls, turns = walk(tables["episodes"], tables["steps"], Tools(cfg))
    world = ["task_id", "split", "state", "tool", "arguments"]
    told = frame_of(Call, calls).join(tables["fixtures"].select(*world, "n_attempts"), on=world, how="left")
    told = told.with_columns(by_others=(pl.col("n_attempts") > 1).fill_null(value=False))
    missed = {(e, s) for e, s in told.filter(~pl.col("by_others")).select("episode_id", "step").iter_rows()}
    ends = known_ends(tables["scenarios"])
    acted = [turn for turn in turns if turn.n_calls and turn.end is not None]
    last = {turn.episode_id: 1 << 30 for turn in acted}
    known = 0
    for turn in sorted(acted, key=lambda t: (t.episode_id, -t.step)):
        hit = not any(
            (turn.episode_id, s) in missed for s in range(turn.step, min(last[turn.episode_id], turn.step + 999))
        )
        last[turn.episode_id] = turn.step
        known += hit and any(
            ends.get((turn.task_id, turn.split, turn.turn, turn.start, turn.end, answer), 0) > 1
            for answer in ("", turn.answer)
        )
    share, whole = told["by_others"].sum() / max(1, told.height), known / max(1, len(acted))
    numbers = (tables["episodes"].height, told.height, tables["fixtures"].height, tables["scenarios"].height)
    return f"| {name} | " + " | ".join(f"{n:,}" for n in numbers) + f" | {share:.1%} | {whole:.1%} |"


def known_ends(places: pl.DataFrame) -> dict[tuple[Any, ...], int]:
    """Return how many attempts came to each end of each place."""
    ends = places.explode("states_E", "answers_E", "rewards_E", "successes_E", "counts_E", "episodes_E")
    key = ("task_id", "split", "turn", "state", "states_E", "answers_E")
    found: dict[tuple[Any, ...], int] = {}
    for row in ends.select(*key, "counts_E").iter_rows():
        found[row[:-1]] = max(found.get(row[:-1], 0), row[-1])
    return found


def scale(n: int) -> str:
    """Return seconds and memory of the stage over n attempts of six calls and two turns, in sixteen partitions."""
    seconds = 0.0
    for part in range(16):
        frames = made_up(n // 16, part)
        started = time.monotonic()
        build_fixtures(*frames, ReplayConfig(), Funnel())
        seconds += time.monotonic() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return f"{n:>9,} attempts  {seconds:7.1f} s  {seconds / n * 1e6:6.0f} µs an attempt  peak {peak:.2f} GiB"


def made_up(n: int, part: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the frames of n attempts at n / 10 tasks."""
    chance = random.Random(part)  # noqa: S311 - data, not secrets
    rows: dict[str, list[dict[str, Any]]] = {"episodes": [], "steps": [], "returns": []}
    for i in range(n):
        task, name = content_id("task", part, i // ATTEMPTS_A_TASK), content_id("attempt", part, i)
        steps = list(_steps(name, task, chance))
        rows["steps"] += steps
        rows["episodes"].append(
            {"episode_id": name, "conversation_id": name, "task_id": task, "task_rule": "task_key", "policy": "p",
             "stop_reason": "answered", "split": "train", "n_steps": len(steps), "n_tool_calls": 6,
             "n_tool_errors": 0, "tail": "[]", "tags": [], "source_format": "made up"}
        )  # fmt: skip
        p = 0.9 if chance.random() < 0.5 else 0.1  # noqa: PLR2004 - a coin
        rows["returns"].append(
            {"episode_id": name, "task_id": task, "p_success": p, "value": 2 * p - 1, "weight": 0.8, "known": True}
        )
    tables = [pl.DataFrame(rows[t], schema=polars_schema(TABLES[t])) for t in ("episodes", "steps", "returns")]
    return tables[0], tables[1], tables[2]


def _steps(name: str, task: str, chance: random.Random) -> Iterator[dict[str, Any]]:
    seen: list[dict[str, Any]] = [{"role": "system", "content": "Help."}, {"role": "user", "content": "Please " * 20}]
    for index in range(8):
        tool = None if index in {3, 7} else "update_order" if index in {2, 6} else "get_order"
        action: dict[str, Any] = {"role": "assistant", "content": "Here you are. " * 10}
        if tool:
            call = {"id": f"c{index}", "name": tool, "arguments": {"id": chance.randrange(3)}}
            action = {"role": "assistant", "tool_calls": [call]}
        yield {
            "episode_id": name, "task_id": task, "index": index, "observation": canonical_json(seen),
            "resets_context": False, "action": canonical_json(action), "state_key": task, "tool_names": [tool] if tool
            else [], "tool_status": ["ok"] if tool else [], "malformed": False, "event_id": name,
            "result_event_ids": [name],
        }  # fmt: skip
        answer = {"role": "tool", "tool_call_id": f"c{index}", "name": tool, "content": '{"order":1}' * 20}
        seen = [answer] if tool else [{"role": "user", "content": "And now?"}]


def main() -> None:
    """Print the table, or the figures of scale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--scale", type=int, nargs="+")
    given = parser.parse_args()
    for n in given.scale or []:
        print(scale(n), flush=True)
    if given.data is None:
        return
    os.environ.setdefault("FLYWHEEL_KEY", "benchmark")
    print("| log | attempts | calls | fixtures | scenarios | answered | turns |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for name in given.names or SOURCES:
            print(coverage(name, given.data, (given.keep or Path(scratch)) / name), flush=True)


if __name__ == "__main__":
    main()
