"""What is an audit worth: demonstrations with and without a person's answers, and how many of them are true.

`python benchmarks/audit.py [--answers 0 30 40 100] [--seeds 0 1 2] [--world counter]`: the script's days before the
first night of `nights.py --small`, in whose logs is what users do next and no outcome. A person who knows the truth
answers `flywheel audit`; then the episodes of the training split whose steps are demonstrations are counted.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

from flywheel import Project
from flywheel.io import files
from flywheel.pipeline.build.tables import read_table
from flywheel.records import Split

import nights


def demonstrated(folder: Path) -> list[dict[str, object]]:
    """Return the truth of each talk of the training split that teaches at least one step."""
    project = Project(folder)
    project.build()
    store = project.context.store
    taught = read_table(store, "examples").filter("label", split=Split.TRAIN.value).select("episode_id").unique()
    talks = taught.join(read_table(store, "episodes"), on="episode_id").select("conversation_id").collect()
    truth = {row["conversation_id"]: row for path in folder.glob("truth/*.jsonl") for row in files.read_rows(path)}
    return [truth[name] for name in talks["conversation_id"]]


def line(world: str, seed: int, answers: int, folder: Path) -> str:
    """Serve the script's days, audit, build; return a row of the table."""
    settings = nights.settings_of("small", world, audited=answers)
    arm = nights.Arm(world, "flywheel", seed, settings, folder)
    arm.begin(1)
    arm.serve_days(1)
    if answers:
        arm.audit()
    else:
        Project(folder).ingest([folder / "logs"])
    rows = demonstrated(folder)
    kinds = Counter(row["family"] for row in rows)
    true = sum(bool(row["success"]) for row in rows)
    return f"| {seed} | {answers} | {len(rows)} | {true} | {min(kinds.values())} | {len(kinds)} |"


def main() -> None:
    """Print a row for each seed and number of answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", choices=list(nights.WORLDS), default="counter")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--answers", nargs="*", type=int, default=[0, 30, 40, 100])
    given = parser.parse_args()
    print(
        "| seed | answers | talks that teach | of these true | of the rarest kind | kinds |\n|--:|--:|--:|--:|--:|--:|"
    )
    with tempfile.TemporaryDirectory() as work:
        for seed in given.seeds:
            for answers in given.answers:
                print(line(given.world, seed, answers, Path(work) / f"{seed}-{answers}"), flush=True)


if __name__ == "__main__":
    main()
