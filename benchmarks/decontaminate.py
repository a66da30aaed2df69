"""How many demonstrations share words with held-out answers, and how many are left out because of it.

`python benchmarks/decontaminate.py PROJECT...`: of each built project the rows of training, those that share 13 words
in a row with a held-out answer, and those that do so beyond what many tasks share. Then what should be found: the
held-out answers of 13 words and more themselves, as rows of tasks of their own.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import polars as pl
from flywheel import Project
from flywheel.stages.selection.decontaminate import EvaluationTexts, crossing


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="+", type=Path)
    for folder in parser.parse_args().projects:
        examples = (
            Project(folder).store.table("examples", "examples").select("task_id", "split", "completion").collect()
        )
        held = examples.filter(pl.col("split") == "holdout")["completion"]
        texts = EvaluationTexts.of([json.loads(text) for text in held], [])
        train = examples.filter(pl.col("split") == "train").select("task_id", "completion").iter_rows()
        rows: list[dict[str, Any]] = [
            {"prompt": [], "task_id": task, "completion": json.loads(text)} for task, text in train
        ]
        share = sum(bool(texts.meet(row["completion"], [])) for row in rows)
        left_out = sum(crosses for (crosses,) in crossing(rows.copy, texts))
        copies = [{"prompt": [], "task_id": f"copy {n}", "completion": json.loads(text)} for n, text in enumerate(held)]
        copies = [row for row in copies if texts.meet(row["completion"], [])]
        found = sum(crosses for (crosses,) in crossing(copies.copy, texts, rows.copy))
        print(
            f"{folder.name:12} {len(rows):6,} rows, {share:6,} share 13 words, {left_out:6,} are left out; "
            f"{found:,} of {len(copies):,} copies are"
        )


if __name__ == "__main__":
    main()
