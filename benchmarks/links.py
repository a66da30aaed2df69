"""What joining late feedback costs: processor's seconds and memory of the stage `links` by conversations.

`python benchmarks/links.py [SIZE ...]`: conversations of five model calls and their results, and thumbs that came later
in another file for 30 % of them, each by the id of a call. Memory is the rise of this process's peak.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import polars as pl
from flywheel.funnel import Funnel
from flywheel.pipeline.build.registry import LINK_COLUMNS
from flywheel.stages.conversations.link import build_links

SIZES = (15_000, 60_000, 240_000)
EVENTS, LATE = 10, 3  # of a conversation; of ten conversations


def world(size: int) -> pl.DataFrame:
    """Return the columns that the stage reads, of all events."""
    number = pl.int_range(size * EVENTS, eager=True)
    talk, place = (number // EVENTS).cast(pl.String), number % EVENTS
    call = "call_" + talk + "_" + (place // 2).cast(pl.String)
    logged = pl.DataFrame({"event_id": "e" + number.cast(pl.String), "conversation_id": "talk-" + talk}).with_columns(
        kind=pl.when(place % 2 == 0).then(pl.lit("model_call")).otherwise(pl.lit("tool_result")),
        tool_call_id=pl.when(place % 2 == 1).then(call),
        ids=pl.concat_list("call:" + call),
        target=pl.lit(None, pl.String),
    )
    judged = pl.int_range(size, eager=True).filter(pl.int_range(size, eager=True) % 10 < LATE).cast(pl.String)
    thumbs = pl.DataFrame({"event_id": "late" + judged, "conversation_id": "late-" + judged}).with_columns(
        kind=pl.lit("feedback"),
        tool_call_id=pl.lit(None, pl.String),
        ids=pl.lit([], pl.List(pl.String)),
        target="call:call_" + judged + "_0",
    )
    events = pl.concat([logged, thumbs])
    constant = {"source_file": "made", "source_format": "native", "policy": "v1", "model": "m"}
    rest = [pl.lit(constant.get(name), pl.String).alias(name) for name in LINK_COLUMNS if name not in events.columns]
    return events.with_columns(rest).select(LINK_COLUMNS)


def measure(size: int) -> None:
    """Print what one size takes."""
    events = world(size)
    peak, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    links = build_links(events, Funnel())
    spent = time.process_time() - began
    rise = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / size
    joined = links.filter(pl.col("state") == "joined").height
    print(
        f"{size:,} conversations, {joined:,} thumbs joined: {spent:.1f} s, {spent / size * 1e6:.0f} µs and {rise:.1f} "
        "kB a conversation",
        flush=True,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure(int(sys.argv[2]))
    else:
        for asked in map(int, sys.argv[1:] or SIZES):
            subprocess.run([sys.executable, __file__, "--one", str(asked)], check=True)
