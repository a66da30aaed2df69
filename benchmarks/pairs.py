"""What pairs real logs give, and which filter refuses the rest.

`python benchmarks/pairs.py DATA [NAMES]... [--keep FOLDER]`: each source below DATA is ingested and built in a project
of its own; printed are episodes, tasks and, for every builder, its candidates, the refusals by reason and the pairs
kept. With --keep the projects stay in FOLDER and are not ingested again.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from flywheel import Project

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


def built(name: str, data: Path, folder: Path) -> Project:
    """Return a project with a source's tables."""
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    project = Project(folder)
    if new:
        project.ingest([data / SOURCES[name]])
    project.build()
    return project


def by_builder(funnel: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the counts of the stage `pairs`, by builder and by what became of its candidates."""
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


def main() -> None:
    """Build and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(SOURCES)}; all of them when left out")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_intermixed_args()
    os.environ.setdefault("FLYWHEEL_KEY", "benchmark")
    with tempfile.TemporaryDirectory() as scratch:
        for name in given.names or SOURCES:
            report(name, built(name, given.data.resolve(), (given.keep or Path(scratch)) / name))


if __name__ == "__main__":
    main()
