"""From episodes to pairs and groups at 10^4, 10^5 and 10^6 episodes: seconds by stage, peak memory, ratio to linear.

`python benchmarks/build.py [SIZE ...] [--partitions N]`: a store with episodes of five steps, their feedback and
outcomes is made, and `pipeline.build` runs every stage after them as `flywheel build` does, reading and writing its
tables. The floor is what polars alone takes to read the same steps and outcomes and to group them by task and action.

Seconds of processors are those of all processes together, so that a machine that others use does not count; seconds of
the clock only mean something on a quiet one. Memory is the largest sum over all processes, of each its share of what
several hold (proportional set size). The world is fixed by a seed: tasks with 20 attempts, three tools, failures,
thumbs, exports, verdicts; the label model is fitted on all (`rewards.fit = "always"`).

`python benchmarks/build.py [SIZE ...] --logs`: from log lines instead (tests/scale/world.py), ingest and the stages up
to `episodes` with them: half of the tasks unnamed, thumbs of three episodes in ten in a file of their own, by the id of
a call, for `links` to join.

`python benchmarks/build.py SIZE --partitions N --reads`: how often each stage by task reads its tables instead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticUndefined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    import polars as pl
    from flywheel.results.data import StageAnswer
    from flywheel.store import Part, Store

SIZES = (10_000, 100_000, 1_000_000)
ATTEMPTS = 20  # at each task
STEPS = 5
FAILS = 0.15  # of calls
CHUNK = 50_000  # episodes made at once
START = datetime(2026, 10, 1, tzinfo=UTC)
SEED = 0


# --- the world ------------------------------------------------------------------------------------------------------


def frames(first: int, n: int) -> dict[str, pl.DataFrame]:
    """Return the episodes from `first` on, their steps, and the events that signals read."""
    import numpy as np
    import polars as pl
    from flywheel.records import content_id

    draw = np.random.default_rng([SEED, first])
    number = range(first, first + n)
    names = pl.Series("conversation_id", [f"made-{i}" for i in number])
    ids = pl.Series("episode_id", [content_id(name) for name in names])
    task_of = {i: content_id("task", i) for i in range(first // ATTEMPTS, (first + n) // ATTEMPTS + 1)}
    tasks = pl.Series("task_id", [task_of[i // ATTEMPTS] for i in number])
    steps, failed = _steps(draw, ids, tasks)
    success = draw.random(n) > 0.3 + 0.2 * failed  # each failed call costs a fifth
    episodes = pl.DataFrame([ids, names, tasks]).with_columns(
        user=pl.Series([f"user-{i % 997}" for i in number]),
        output_tokens=pl.Series(draw.integers(50, 500, n)),
        n_tool_errors=pl.Series(failed),
        task_rule=pl.lit("task_key"), policy=pl.lit("v1"), stop_reason=pl.lit("answered"), split=pl.lit("train"),
        n_steps=pl.lit(STEPS, pl.Int64), n_tool_calls=pl.lit(STEPS - 1, pl.Int64), started=pl.lit(START),
        ended=pl.lit(START), tail=pl.lit("[]"), tags=pl.lit([], pl.List(pl.String)), source_format=pl.lit("made"),
        tool_signature=pl.lit("made"),
    )  # fmt: skip
    return {"episodes": episodes, "steps": steps, "events": _events(draw, names, success)}


def _steps(draw: np.random.Generator, ids: pl.Series, tasks: pl.Series) -> tuple[pl.DataFrame, Any]:
    import polars as pl
    from flywheel.stages.common.canonical import first_state, next_state

    n = len(ids)
    tool, value = draw.integers(0, 3, (n, STEPS)), draw.integers(0, 4, (n, STEPS))
    bad = draw.random((n, STEPS)) < FAILS
    rows: list[Any] = []
    for e, (episode, task) in enumerate(zip(ids, tasks, strict=True)):
        back, state = '[{"content":"Do it, please.","role":"user"}]', first_state(task)
        for t in range(STEPS):
            last = t == STEPS - 1
            name, status = f"tool_{tool[e, t]}", "failed" if bad[e, t] else "ok"
            call = f'{{"q":{value[e, t]}}}'
            action = (
                '{"content":"Here you are.","role":"assistant"}'
                if last
                else f'{{"role":"assistant","tool_calls":[{{"arguments":{call},"id":"c{t}","name":"{name}"}}]}}'
            )
            key = None if last else f"{name} {call}"
            called = ([], []) if last else ([name], [status])
            rows.append(
                (episode, task, t, back, False, action, state, key, *called, False, f"{episode[:24]}{t:08}", [])
            )
            state = next_state(state, [key] if key else [])
            content = "TimeoutError: no answer" if bad[e, t] else f'{{\\"rows\\":[{value[e, t]}],\\"total\\":1}}'
            back = (
                f'[{{"content":"{content}","name":"{name}","role":"tool","status":"{status}","tool_call_id":"c{t}"}}]'
            )
    names = ["episode_id", "task_id", "index", "observation", "resets_context", "action", "state_key", "action_key",
             "tool_names", "tool_status", "malformed", "event_id", "result_event_ids"]  # fmt: skip
    return pl.DataFrame(rows, schema=names, orient="row"), bad[:, : STEPS - 1].sum(axis=1)


def _events(draw: np.random.Generator, names: pl.Series, success: Any) -> pl.DataFrame:
    import polars as pl

    thumbs, exports, verdicts = (draw.random(len(names)) < share for share in (0.3, 0.3, 0.2))
    rows = []
    for e, name in enumerate(names):
        good = bool(success[e])
        if thumbs[e]:
            rows.append((name, "feedback", f'{{"annotator":"human","name":"thumbs","value":{float(good)}}}'))
        if exports[e] and good:
            rows.append((name, "feedback", '{"annotator":"human","name":"export","value":1.0}'))
        if verdicts[e]:
            rows.append((name, "outcome", f'{{"name":"check","scale":[0,1],"value":{float(good)}}}'))
    frame = pl.DataFrame(rows, schema=["conversation_id", "kind", "payload"], orient="row")
    return frame.with_columns(
        event_id=pl.concat_str("conversation_id", pl.int_range(pl.len()).cast(pl.String)), ts=pl.lit(START),
        seq=pl.int_range(pl.len(), dtype=pl.Int64) + 100, ids=pl.lit([], pl.List(pl.String)),
        source_format=pl.lit("made"), source_file=pl.lit("made"), source_line=pl.lit(1, pl.Int64),
    )  # fmt: skip


def fill(store: Store, size: int) -> None:
    """Write the world into a store, as ingest and the stages up to `episodes` would leave it."""
    import polars as pl

    store.create()
    parts: dict[str, list[Part]] = {"episodes": [], "steps": [], "events": []}
    for first in range(0, size, CHUNK):
        made = frames(first, min(CHUNK, size - first))
        home = pl.Series([store.partition(name) for name in made["episodes"]["conversation_id"]])
        where = made["episodes"].select("episode_id", "conversation_id", _home=home)
        for table, frame in made.items():
            key = "conversation_id" if table == "events" else "episode_id"
            rows = frame.join(where.select(key, "_home"), on=key, maintain_order="left")
            for number in range(store.partitions):
                part = store.write(table, _fitting(table, rows.filter(pl.col("_home") == number)), partition=number)
                parts[table] += [part] if part else []
    store.commit("ingest", fingerprint={}, parts=parts["events"], funnel={})
    store.commit("links", fingerprint={}, parts=[], funnel={})
    store.commit("episodes", fingerprint={}, parts=[*parts["episodes"], *parts["steps"]], funnel={})


def _fitting(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with all columns of its record; those it lacks have their default, or are null."""
    import polars as pl
    from flywheel.contracts import polars_schema
    from flywheel.records import TABLES

    fields = TABLES[table].model_fields
    columns = []
    for name, dtype in polars_schema(TABLES[table]).items():
        default = fields[name].get_default(call_default_factory=True)
        absent = [] if isinstance(dtype, pl.List) else None if default is PydanticUndefined else default
        column = pl.col(name).cast(dtype) if name in frame.columns else pl.lit(absent, dtype=dtype).alias(name)
        columns.append(column)
    return frame.select(columns)


# --- measuring ------------------------------------------------------------------------------------------------------


REST = 30  # times what a sample took, before the next: adding up a gigabyte's pages takes the kernel 20 ms


class Watch:
    """Samples the memory and the processors' time of this process and of those that it started.

    At most ten times a second, and no more often than its own time is a thirtieth of all.
    """

    def __init__(self) -> None:
        self.peak = self.recent = 0  # bytes: the most so far, and since `recent` was last set to 0
        self._gone, self._seen = 0.0, dict[int, float]()
        self._lock = threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            began = time.thread_time()
            self.seconds()
            time.sleep(max(0.1, REST * (time.thread_time() - began)))

    def seconds(self) -> float:
        """Return the processors' seconds so far; those of a process that ended count up to its last sample."""
        with self._lock:
            alive = {pid: _cpu(pid) for pid in (os.getpid(), *children())}
            self._gone += sum(s for pid, s in self._seen.items() if pid not in alive)
            self._seen = alive
            held = sum(map(memory, alive))
            self.peak, self.recent = max(self.peak, held), max(self.recent, held)
            return self._gone + sum(alive.values())


def children() -> list[int]:
    """Return the processes that this one started."""
    found = []
    for thread in Path("/proc/self/task").iterdir():
        try:
            found += [int(pid) for pid in (thread / "children").read_text().split()]
        except OSError:
            continue
    return found


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """Return the bytes that a process holds, its share of what several hold (proportional set size)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def measure(size: int, workers: int, partitions: int) -> dict[str, Any]:
    """Build everything after the episodes; return seconds by stage, rows of the tables, and peak memory in GB."""
    from flywheel.config import Config
    from flywheel.pipeline.build.run import build, select_stages
    from flywheel.store import Store

    config = Config.model_validate({"rewards": {"fit": "always"}, "build": {"workers": workers}})
    with tempfile.TemporaryDirectory() as folder:
        made = [sys.executable, __file__, "--fill", folder, str(size), "--partitions", str(partitions)]
        subprocess.run(made, check=True)
        store, spent = Store(Path(folder)), Spent()
        build(store, config, Path(folder), stages=select_stages("tasks+"), on_stage=spent.note)
        return {"size": size, **spent.whole(), "floor": spent.of(lambda: floor(store))}


def measure_logs(size: int, workers: int, partitions: int) -> dict[str, Any]:
    """Read the logs of so many episodes and build everything; return what `measure` does, and the logs' megabytes."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from flywheel import Project
    from flywheel.config import Config
    from tests.scale.world import write_logs

    settings = {
        "rewards": {"fit": "always"},
        "build": {"workers": workers, "partitions": partitions},
        "ingest": {"workers": workers},
    }
    os.environ["FLYWHEEL_KEY"] = "benchmark"
    with tempfile.TemporaryDirectory() as folder:
        logs, home = Path(folder) / "logs", Path(folder) / "project"
        write_logs(logs, size)
        home.mkdir()
        project, spent = Project(home, config=Config.model_validate(settings)), Spent()
        answer = project.ingest([logs])
        spent.add("ingest", {"events": answer.events})
        project.build(on_stage=spent.note)
        megabytes = sum(file.stat().st_size for file in logs.iterdir()) / 1e6
        return {"size": size, **spent.whole(), "floor": spent.of(lambda: floor(project.store)), "mb": megabytes}


class Spent:
    """What each stage took: seconds of processors and rows, and of all together seconds of the clock and memory."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._seconds: dict[str, float] = {}
        self._peaks: dict[str, float] = {}
        self._rows: dict[str, int] = {}
        self._last, self._began = self._watch.seconds(), time.monotonic()

    def note(self, status: StageAnswer) -> None:
        """Add a stage that was built now."""
        self.add(status.stage, status.rows)

    def add(self, name: str, rows: dict[str, int]) -> None:
        """Add what was done since the last."""
        now = self._watch.seconds()
        self._seconds[name], self._last = now - self._last, now
        self._peaks[name], self._watch.recent = self._watch.recent / 1e9, 0
        self._rows.update(rows)

    def whole(self) -> dict[str, Any]:
        """Return it all."""
        clock = time.monotonic() - self._began
        most = self._watch.peak / 1e9
        return {"spent": self._seconds, "peaks": self._peaks, "rows": self._rows, "clock": clock, "peak": most}

    def of(self, work: Callable[[], object]) -> float:
        """Return the seconds of processors that some work takes."""
        started = self._watch.seconds()
        work()
        return self._watch.seconds() - started


def reads(size: int, partitions: int) -> None:
    """Print how many times each stage by task reads the tables that it needs, in one process, partition by partition.

    However few the rows are: a small store shows what a large one does, up to `TOGETHER` rows.
    """
    from flywheel.config import Config
    from flywheel.pipeline.build import workers
    from flywheel.pipeline.build.registry import STAGES, stage_of
    from flywheel.pipeline.build.run import build, select_stages
    from flywheel.store import Store

    read, paths = 0, Store.paths

    def counting(store: Store, parts: Iterable[Part], table: str) -> list[Path]:
        nonlocal read
        files = paths(store, parts, table)
        read += sum(file.stat().st_size for file in files)
        return files

    def note(status: StageAnswer) -> None:
        nonlocal read
        stage = next(stage for stage in STAGES if stage.name == status.stage)
        snapshots = [(table, store.current(stage_of(table))) for table in stage.needs]
        once = sum(p.size_bytes for t, snapshot in snapshots if snapshot for p in snapshot.parts if p.table == t)
        if stage.by == "task":
            print(f"  {stage.name}: {read / 1e6:.1f} MB of {once / 1e6:.1f} MB, {read / once:.1f} times")
        read = 0

    Store.paths, workers.SLICE = counting, 0  # type: ignore[assignment, attr-defined, method-assign]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), partitions)
        fill(store, size)
        read = 0
        print(f"{size:,} episodes in {partitions} partitions, read by")
        config = Config.model_validate({"rewards": {"fit": "always"}, "build": {"workers": 1}})
        build(store, config, Path(folder), stages=select_stages("tasks+"), on_stage=note)


def floor(store: Store) -> int:
    """Group the steps and outcomes by task and action with polars alone; return the number of groups."""
    import polars as pl

    told = store.table("events", "ingest").filter(pl.col("kind") == "outcome")
    value = told.select("conversation_id", value=pl.col("payload").str.extract(r'"value":([0-9.]+)').cast(pl.Float64))
    whole = store.table("episodes", "episodes").join(value, on="conversation_id", how="left")
    grouped = (
        store.table("steps", "episodes")
        .join(whole.select("episode_id", "value"), on="episode_id", how="left")
        .group_by("task_id", "state_key", "action_key")
        .agg(pl.len(), pl.col("value").mean())
    )
    return grouped.collect().height


def main() -> None:
    """Measure each size in its own process and print a line for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--logs", action="store_true", help="from log lines instead of stored episodes")
    parser.add_argument("--reads", action="store_true", help="print how often each stage reads its tables instead")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--fill", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.fill:
        from flywheel.store import Store

        fill(Store(Path(asked.fill[0]), asked.partitions), int(asked.fill[1]))
    elif asked.one:
        print(json.dumps((measure_logs if asked.logs else measure)(asked.one, asked.workers, asked.partitions)))
    elif asked.reads:
        for size in asked.sizes:
            reads(size, asked.partitions)
    else:
        more = ["--workers", str(asked.workers), "--partitions", str(asked.partitions)]
        compare(asked.sizes, more + ["--logs"] * asked.logs)


def compare(sizes: list[int], more: list[str]) -> None:
    """Print what each size takes, next to the floor and to what the first size predicts."""
    base = 0.0
    for size in sizes:
        command = [sys.executable, __file__, "--one", str(size), *more]
        row = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        total = sum(row["spent"].values())
        base = base or total / size
        print(
            f"{size:,} episodes: {total:.1f} s of processors, {row['clock']:.1f} s of the clock, {row['peak']:.2f} GB; "
            f"{total / size * 1e6:.0f} µs an episode, {total / size / base:.2f} times linear; "
            f"floor {row['floor']:.2f} s" + (f"; {row['mb']:.0f} MB of logs" if "mb" in row else "")
        )
        print("  seconds: " + ", ".join(f"{name} {s:.1f}" for name, s in row["spent"].items()))
        print("  GB: " + ", ".join(f"{name} {gigabytes:.1f}" for name, gigabytes in row["peaks"].items()))
        print("  rows: " + ", ".join(f"{name} {n:,}" for name, n in row["rows"].items()))


if __name__ == "__main__":
    main()
