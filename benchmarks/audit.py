"""What is an audit worth: demonstrations with and without a person's answers, and how many of them are true.

`python benchmarks/audit.py [--answers 0 30 40 100] [--seeds 0 1 2] [--world counter]`: the script's days before the
first night of `nights.py --small`, in whose logs is what users do next and no outcome. A person who knows the truth
answers `flywheel audit`; then the episodes of the training split whose steps are demonstrations are counted, and the
queries among these steps, of which those are right that give the answer when executed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from flywheel import Project
from flywheel.io import files
from flywheel.pipeline.build.tables import read_table
from flywheel.records import Split
from flywheel_warehouse.shop import Shop, answer_of, same_answer, shop_questions

import nights


class Taught(NamedTuple):
    """The truth of each talk that teaches at least one step, and whether each query that is taught is right."""

    talks: list[dict[str, object]]
    queries: list[bool]


def demonstrated(folder: Path) -> Taught:
    """Return what the training split teaches."""
    project = Project(folder)
    project.build()
    store = project.context.store
    taught = read_table(store, "examples").filter("label", split=Split.TRAIN.value)
    rows = taught.join(read_table(store, "episodes").select("episode_id", "conversation_id"), on="episode_id").collect()
    truth = {row["conversation_id"]: row for path in folder.glob("truth/*.jsonl") for row in files.read_rows(path)}
    shop, questions = Shop(), shop_questions()
    queries = []
    for name, completion in rows.select("conversation_id", "completion").iter_rows():
        for call in json.loads(completion)[0].get("tool_calls") or []:
            if call["name"] == "run_sql":
                result, ran = shop.call("run_sql", call["arguments"])
                true = shop.truth(questions[str(truth[name]["task"])])
                queries.append(ran and same_answer(answer_of(result), true))
    return Taught([truth[name] for name in rows["conversation_id"].unique(maintain_order=True)], queries)


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
    taught = demonstrated(folder)
    kinds = Counter(talk["family"] for talk in taught.talks)
    true = sum(bool(talk["success"]) for talk in taught.talks)
    counts = (seed, answers, len(taught.talks), true, min(kinds.values()), len(kinds))
    return f"| {' | '.join(map(str, (*counts, len(taught.queries), sum(taught.queries))))} |"


def main() -> None:
    """Print a row for each seed and number of answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", choices=list(nights.WORLDS), default="counter")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--answers", nargs="*", type=int, default=[0, 30, 40, 100])
    given = parser.parse_args()
    named = "seed | answers | talks that teach | of these true | of the rarest kind | kinds | queries | of these right"
    print(f"| {named} |\n|{'--:|' * 8}")
    with tempfile.TemporaryDirectory() as work:
        for seed in given.seeds:
            for answers in given.answers:
                print(line(given.world, seed, answers, Path(work) / f"{seed}-{answers}"), flush=True)


if __name__ == "__main__":
    main()
