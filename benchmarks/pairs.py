"""What pairs real logs give, and which filter refuses the rest.

`python benchmarks/pairs.py DATA [NAMES]... [--keep FOLDER]`: each source below DATA is ingested and built in a project
of its own; printed are episodes, tasks and, for every builder, its candidates, the refusals by reason and the pairs
kept. With --keep the projects stay in FOLDER and are not ingested again.

`python benchmarks/pairs.py DATA --tasks`: the sources' own task ids are hidden and tasks recovered from the requests:
pairwise precision and recall, of requests that are equal and of the clusters that the stage `tasks` makes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from pathlib import Path

import polars as pl
from flywheel import Project
from flywheel.config import EpisodesConfig
from flywheel.contracts import polars_schema
from flywheel.funnel import Funnel
from flywheel.records import Task

SOURCES = {
    "tau-bench": "tau-bench/gpt-4o-airline.json.gz",
    "tau2-bench": "tau2-bench",
    "wiki-search": "verifiers-wiki-search",
    "intercode": "intercode",
    "mint": "mint",
    "prime": "prime-environments",
    "mini-swe": "mini-swe-agent-deepseek",
    "star": "star",
}
ACROSS = "all builders"  # of filters that look across pairs


def built(name: str, data: Path, folder: Path, *, build: bool) -> Project:
    """Return a project with a source's events, and its other tables if asked."""
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    project = Project(folder)
    if new:
        project.ingest([data / SOURCES[name]])
    if build:
        project.build()
    return project


def by_builder(funnel: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the counts of the stage `pairs`, by builder and by the fate of its candidates."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for key, count in funnel.items():
        kind, _, rest = key.partition(": ")
        if kind == "note":
            what, _, builder = rest.partition(" of ")
            if builder:
                found[builder][what] = count
        elif kind == "dropped":
            builder, _, reason = rest.rpartition(": ")
            found[builder or ACROSS][reason] = count
    return found


def report(name: str, project: Project) -> None:
    """Print one source's table."""
    tables = project.store.table("episodes", "episodes").select("task_id").collect()
    snapshot = project.store.current("pairs")
    funnel = snapshot.funnel if snapshot else {}
    kept = f"{funnel['kept']:,} pairs of {funnel['considered']:,} candidates"
    print(f"\n{name}: {tables.height:,} episodes, {tables['task_id'].n_unique():,} tasks, {kept}")
    for builder, counts in sorted(by_builder(funnel).items(), key=lambda row: (row[0] == ACROSS, row[0])):
        refused = {k: n for k, n in counts.items() if k not in {"candidates", "kept"}}
        if counts.get("candidates") or refused:
            why = ", ".join(f"{reason} {n:,}" for reason, n in sorted(refused.items(), key=lambda row: -row[1]))
            print(f"  {builder:16} {counts.get('candidates', 0):6,} → {counts.get('kept', 0):5,}   {why}", flush=True)


def recovered(name: str, project: Project) -> None:
    """Print how well tasks are recovered when the log's own task ids are hidden, over pairs of episodes."""
    events = project.store.table("events", "ingest").collect()
    hidden = events.with_columns(task_key=pl.lit(None, dtype=pl.String))
    truth, exact, found = _tasks(events), _tasks(hidden), _tasks(hidden, cluster=True)
    print(f"  {name:12} {len(truth):6,} episodes, {len(set(truth.values())):5,} tasks", end="")
    for label, ids in (("equal requests", exact), ("clusters", found)):
        precision, recall = agreement(truth, ids)
        print(f"   {label} {len(set(ids.values())):5,}: precision {precision:.3f} recall {recall:.3f}", end="")
    print(flush=True)


def _tasks(events: pl.DataFrame, *, cluster: bool = False) -> dict[str, str]:
    """Return each episode's task."""
    from flywheel.pipeline.build.registry import TASK_COLUMNS
    from flywheel.stages.common.pieces import InMemory
    from flywheel.stages.conversations.episodes import build_episodes
    from flywheel.stages.tasks.build import build_tasks

    episodes, _ = build_episodes(events, EpisodesConfig(), Funnel())
    if cluster:
        none = pl.DataFrame(schema=polars_schema(Task))
        pieces = InMemory(episodes=episodes.select(TASK_COLUMNS), **{"previous tasks": none})
        build_tasks(pieces, EpisodesConfig(), Funnel())
        return dict(pieces.written["tasks"].select("episode_id", "task_id").iter_rows())
    return dict(episodes.select("episode_id", "task_id").iter_rows())


def agreement(truth: Mapping[str, str], found: Mapping[str, str]) -> tuple[float, float]:
    """Return pairwise precision and recall: of pairs of episodes put together, and of those to be put together."""
    both = _pairs_within(Counter((truth[e], found[e]) for e in truth))
    put, due = _pairs_within(Counter(found.values())), _pairs_within(Counter(truth.values()))
    return (both / put if put else 1.0), (both / due if due else 1.0)


def _pairs_within(sizes: Mapping[Hashable, int]) -> int:
    return sum(n * (n - 1) // 2 for n in sizes.values())


def main() -> None:
    """Build and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(SOURCES)}; all of them when left out")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--tasks", action="store_true", help="instead: how well tasks are recovered from requests")
    given = parser.parse_intermixed_args()
    os.environ.setdefault("FLYWHEEL_KEY", "benchmark")
    with tempfile.TemporaryDirectory() as scratch:
        for name in given.names or SOURCES:
            project = built(name, given.data.resolve(), (given.keep or Path(scratch)) / name, build=not given.tasks)
            (recovered if given.tasks else report)(name, project)


if __name__ == "__main__":
    main()
