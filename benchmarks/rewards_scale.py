"""Signals, label model, combination and credit at 10^4, 10^5 and 10^6 episodes: seconds, peak memory, ratio to linear.

`python benchmarks/rewards_scale.py [SIZE ...]`: episodes of five steps are made as stage frames, partition by partition
as the pipeline reads them, so that only the stages are timed; what one stage hands to another is kept on disk between
them, as in the store. The label model is fitted on all (`rewards.fit = "always"`). Each size runs in a process of its
own, for its own peak memory. Seconds are the process's own (all its threads), so that a busy machine does not count.
The world is fixed by a seed: tasks with 20 attempts, three tools, failures, thumbs, exports, verdicts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    from flywheel.config import RewardsConfig

SIZES = (10_000, 100_000, 1_000_000)
ATTEMPTS = 20  # at each task
STEPS = 5
FAILS = 0.15  # of calls
PARTITIONS = 16  # as the store has them
LEAST_PARTITION = 2_500  # episodes; a small log's partitions are as small as they are
START = datetime(2026, 10, 1, tzinfo=UTC)
SEED = 0


def frames(first: int, n: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the episodes from `first` on, their steps, and the events that signals read."""
    import numpy as np
    import polars as pl
    from flywheel.contracts import polars_schema
    from flywheel.records import Episode, LogEvent, Step

    draw = np.random.default_rng([SEED, first])
    number = np.arange(first, first + n)
    ids = pl.Series([f"{i:032x}" for i in number])
    tasks = pl.Series([f"{i // ATTEMPTS:032x}" for i in number])
    steps = _steps(draw, ids, tasks, n)
    likes = draw.random(n)
    failed = steps.group_by("episode_id", maintain_order=True).agg(
        bad=pl.col("tool_status").list.contains("failed").sum()
    )["bad"]
    success = likes > 0.3 + 0.2 * failed.to_numpy()  # each failed call costs a fifth
    episodes = pl.DataFrame(
        {
            "episode_id": ids,
            "conversation_id": ids,
            "task_id": tasks,
            "user": [f"user-{i % 997}" for i in number],
            "output_tokens": draw.integers(50, 500, n),
            "n_tool_errors": failed.cast(pl.Int64),
        }
    ).with_columns(
        task_rule=pl.lit("task_key"), policy=pl.lit("v1"), stop_reason=pl.lit("answered"), split=pl.lit("train"),
        n_steps=pl.lit(STEPS, pl.Int64), n_tool_calls=pl.lit(STEPS - 1, pl.Int64), started=pl.lit(START),
        ended=pl.lit(START), tail=pl.lit("[]"), tags=pl.lit([], pl.List(pl.String)), source_format=pl.lit("made"),
    )  # fmt: skip
    events = _events(draw, ids, success, n)
    return (
        _fit(episodes, polars_schema(Episode)),
        _fit(steps, polars_schema(Step)),
        _fit(events, polars_schema(LogEvent)),
    )


def _fit(frame: pl.DataFrame, schema: Any) -> pl.DataFrame:
    """Return the frame with all columns of its record, null where it lacks them."""
    import polars as pl

    have = [pl.col(c).cast(t) if c in frame.columns else pl.lit(None, dtype=t).alias(c) for c, t in schema.items()]
    return frame.select(have)


def _steps(draw: Any, ids: pl.Series, tasks: pl.Series, n: int) -> pl.DataFrame:
    import polars as pl

    tool, value = draw.integers(0, 3, (n, STEPS)), draw.integers(0, 4, (n, STEPS))
    bad = draw.random((n, STEPS)) < FAILS
    rows: list[Any] = []
    for e, (episode, task) in enumerate(zip(ids, tasks, strict=True)):
        back = '[{"content":"Do it, please.","role":"user"}]'
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
            rows.append((episode, task, t, back, False, action, f"s{t}", key, *called, False, f"{episode}{t}", []))
            content = "TimeoutError: no answer" if bad[e, t] else f'{{\\"rows\\":[{value[e, t]}],\\"total\\":1}}'
            back = (
                f'[{{"content":"{content}","name":"{name}","role":"tool","status":"{status}","tool_call_id":"c{t}"}}]'
            )
    names = ["episode_id", "task_id", "index", "observation", "resets_context", "action", "state_key", "action_key",
             "tool_names", "tool_status", "malformed", "event_id", "result_event_ids"]  # fmt: skip
    return pl.DataFrame(rows, schema=names, orient="row")


def _events(draw: Any, ids: pl.Series, success: Any, n: int) -> pl.DataFrame:
    import polars as pl

    thumbs, exports, verdicts = (draw.random(n) < share for share in (0.3, 0.3, 0.2))
    rows = []
    for e, episode in enumerate(ids):
        good = bool(success[e])
        if thumbs[e]:
            rows.append((episode, "feedback", f'{{"annotator":"human","name":"thumbs","value":{float(good)}}}'))
        if exports[e] and good:
            rows.append((episode, "feedback", '{"annotator":"human","name":"export","value":1.0}'))
        if verdicts[e]:
            rows.append((episode, "outcome", f'{{"name":"check","scale":[0,1],"value":{float(good)}}}'))
    frame = pl.DataFrame(rows, schema=["conversation_id", "kind", "payload"], orient="row")
    return frame.with_columns(
        event_id=pl.concat_str("conversation_id", pl.int_range(pl.len()).cast(pl.String)), ts=pl.lit(START),
        seq=pl.int_range(pl.len(), dtype=pl.Int64) + 100, ids=pl.lit([], pl.List(pl.String)),
        source_format=pl.lit("made"), source_file=pl.lit("made"), source_line=pl.lit(1, pl.Int64),
    )  # fmt: skip


def measure(size: int) -> dict[str, float]:
    """Run the stages over all partitions; return seconds by part, steps and the process's peak memory in GB."""
    from flywheel.config import RewardsConfig

    cfg = RewardsConfig(fit="always")
    seconds = dict.fromkeys(("signals", "reliability", "returns", "credit"), 0.0)
    with tempfile.TemporaryDirectory() as folder:
        parts = _signals(size, Path(folder), cfg, seconds)
        believed = _learned(parts, cfg, seconds)
        steps_done, credited = _returned(parts, believed, cfg, seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"episodes": size, "steps": steps_done, "credited": credited, **seconds, "peak_gb": peak}


def _signals(size: int, folder: Path, cfg: RewardsConfig, seconds: dict[str, float]) -> list[Path]:
    """Write each partition's episodes, steps and rewards into a folder of its own."""
    from flywheel.extensions import load_extension
    from flywheel.funnel import Funnel
    from flywheel.stages.rewards import build_rewards, compare_attempts, looks_at_tasks

    signals = {name: load_extension("rewards", name) for name in cfg.signals}
    alone = {name: signal for name, signal in signals.items() if not looks_at_tasks(signal)}
    beside = {name: signal for name, signal in signals.items() if looks_at_tasks(signal)}
    each = max(LEAST_PARTITION, -(-size // PARTITIONS // ATTEMPTS) * ATTEMPTS)
    parts = []
    for first in range(0, size, each):
        episodes, steps, events = frames(first, min(each, size - first))
        began = time.process_time()
        opinions = build_rewards(episodes, steps, events, cfg, alone, Funnel())
        rewards = compare_attempts(episodes, steps, opinions, cfg, beside, Funnel())
        seconds["signals"] += time.process_time() - began
        parts.append(folder / str(first))
        parts[-1].mkdir()
        for name, frame in (("episodes", episodes), ("steps", steps), ("rewards", rewards)):
            frame.write_parquet(parts[-1] / f"{name}.parquet")
    return parts


def _learned(parts: list[Path], cfg: RewardsConfig, seconds: dict[str, float]) -> pl.DataFrame:
    import polars as pl
    from flywheel.funnel import Funnel
    from flywheel.stages.reliability import EPISODE_COLUMNS, REWARD_COLUMNS, build_reliability

    began = time.process_time()
    episodes = pl.concat([pl.read_parquet(p / "episodes.parquet", columns=list(EPISODE_COLUMNS)) for p in parts])
    rewards = pl.concat([pl.read_parquet(p / "rewards.parquet", columns=list(REWARD_COLUMNS)) for p in parts])
    found = build_reliability(episodes, rewards, cfg, None, Funnel())
    seconds["reliability"] = time.process_time() - began
    return found


def _returned(
    parts: list[Path], believed: pl.DataFrame, cfg: RewardsConfig, seconds: dict[str, float]
) -> tuple[int, int]:
    """Return how many steps there are, and how many got credit."""
    import polars as pl
    from flywheel.funnel import Funnel
    from flywheel.stages.returns import build_returns
    from flywheel.stages.returns.steps import step_credit

    steps_done = credited = 0
    for part in parts:
        episodes, steps, rewards = (
            pl.read_parquet(part / f"{name}.parquet") for name in ("episodes", "steps", "rewards")
        )
        began = time.process_time()
        returns = build_returns(episodes, steps, rewards, cfg, Funnel(), reliability=believed)
        seconds["returns"] += time.process_time() - began
        values = dict(returns.filter(returns["step"].is_null()).select("episode_id", "value").iter_rows())
        started = time.process_time()
        step_credit(episodes, steps, rewards, values, cfg, Funnel())
        seconds["credit"] += time.process_time() - started
        steps_done += steps.height
        credited += returns.filter(returns["weight"] > 0).height
    return steps_done, credited


def main() -> None:
    """Measure each size in its own process and print a line for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one)))
        return
    print("episodes   steps      signals s  label model s  returns s  of it credit s  µs/episode  to linear  peak GB")
    base = 0.0
    for size in asked.sizes:
        out = subprocess.run([sys.executable, __file__, "--one", str(size)], capture_output=True, text=True, check=True)
        row = json.loads(out.stdout)
        each = (row["signals"] + row["reliability"] + row["returns"]) / size * 1e6
        base = base or each
        print(
            f"{size:<11,}{row['steps']:<11,}{row['signals']:<11.1f}{row['reliability']:<15.1f}{row['returns']:<11.1f}"
            f"{row['credit']:<16.1f}"
            f"{each:<12.0f}{each / base:<11.2f}{row['peak_gb']:.2f}"
        )


if __name__ == "__main__":
    main()
