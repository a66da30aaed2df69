"""What training steps of one conversation as one sequence saves, compared with a row for every step.

`python benchmarks/shared_sequences.py`: the demonstrations of sample_logs/ under the embedded model; tokens, and the
time of one forward and backward pass over the same rows, both ways in one run.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SAMPLE_LOGS = Path(__file__).resolve().parents[1] / "sample_logs"
ROWS = 96
BATCH = 4
NO_LOSS = -100


def demonstration_rows(folder: Path) -> list[dict[str, list[int]]]:
    """Return the tokenised rows of a first round on the sample logs."""
    from flywheel.config import Config, load_config
    from flywheel.funnel import Funnel
    from flywheel.models.chat import ChatFormat
    from flywheel.models.load import load_tokenizer
    from flywheel.project import Project
    from flywheel.stages.selection.rows import select_demonstrations
    from flywheel.stages.train.rows import tokenise

    (folder / "flywheel.toml").write_text(f"[train]\nmax_rows = {ROWS}\n", encoding="utf-8")
    config: Config = load_config(folder / "flywheel.toml")
    project = Project(folder)
    project.ingest([SAMPLE_LOGS])
    project.build()
    examples = project.store.table("examples", "examples").collect()
    rows = select_demonstrations(examples, config.train, Funnel())
    return tokenise(rows, ChatFormat(load_tokenizer(config.model)), ("completion",), config.train).rows


def seconds(model: Any, rows: Sequence[dict[str, list[int]]]) -> float:
    """Return the time of a forward and a backward pass over all rows, padded in batches as the trainer pads them."""
    import torch

    started = time.perf_counter()
    for i in range(0, len(rows), BATCH):
        batch = rows[i : i + BATCH]
        width = max(len(row["input_ids"]) for row in batch)
        ids = torch.tensor([row["input_ids"] + [0] * (width - len(row["input_ids"])) for row in batch])
        labels = torch.tensor([row["labels"] + [NO_LOSS] * (width - len(row["labels"])) for row in batch])
        model(input_ids=ids, labels=labels).loss.backward()
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    from flywheel.config import ModelConfig
    from flywheel.models.load import load_base
    from flywheel.stages.train.rows import demonstrations
    from peft import LoraConfig, get_peft_model

    with tempfile.TemporaryDirectory() as folder:
        rows = demonstration_rows(Path(folder))
    apart = [
        {
            "input_ids": r["prompt_ids"] + r["completion_ids"],
            "labels": [NO_LOSS] * len(r["prompt_ids"]) + r["completion_ids"],
        }
        for r in rows
    ]
    shared = demonstrations(rows)
    base = load_base(ModelConfig(dtype="bfloat16"))
    model = get_peft_model(base, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")).train()
    seconds(model, apart[:BATCH])  # kernels are chosen on first use
    found: dict[str, dict[str, float]] = {}
    for name, sequences in (("a row a step", apart), ("shared", shared)):
        tokens = sum(len(s["input_ids"]) for s in sequences)
        trained = sum(label != NO_LOSS for s in sequences for label in s["labels"])
        found[name] = {"sequences": len(sequences), "tokens": tokens, "trained_tokens": trained}
        found[name]["seconds"] = round(seconds(model, sequences), 1)
    print(json.dumps(found, indent=1))
    ratio = {key: round(found["a row a step"][key] / found["shared"][key], 2) for key in ("tokens", "seconds")}
    print("ratio", json.dumps(ratio))


if __name__ == "__main__":
    main()
