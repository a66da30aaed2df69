"""What a round unlearns of what the round before taught: most of it on new rows alone, little with a few older ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flywheel.config import Config
from flywheel.extensions import TrainSpec
from flywheel.io import files
from flywheel.models.policy import PolicySet
from flywheel.records import canonical_json
from flywheel.stages.train import sft
from tests.projects import make_tiny_model

WORDS = ["lamp", "table", "book", "coat", "piano", "kettle", "mirror", "letter"]


def rows(question: str, answer: str) -> list[dict[str, Any]]:
    return [
        {
            "prompt": [{"role": "user", "content": f"{question} the {word}?"}],
            "completion": [{"role": "assistant", "content": answer}],
            "tools": None, "weight": 1.0, "id": f"{question} {word}", "task_id": word,
        }
        for word in WORDS
    ]  # fmt: skip


OLD = rows("Where is", "It stands by the window.")
NEW = rows("Who made", "Nobody remembers that name now.")


def trained(folder: Path, model: Path, data: list[dict[str, Any]], start: Path | None) -> Path:
    settings = {"max_steps": 50, "checkpoint_every": 50, "batch_size": 8, "threads": 1, "sft_learning_rate": 0.01}
    settings |= {"max_kl": 100.0}  # a small model goes far in fifty steps
    config = Config.model_validate({"model": {"base": str(model), "dtype": "float32"}, "train": settings})
    (folder / "work").mkdir(parents=True)
    files.atomic_write(folder / "train.jsonl", "".join(canonical_json(row) + "\n" for row in data))
    out = folder / "adapter"
    sft.train(TrainSpec(1, "sft", folder / "train.jsonl", out, folder / "work", str(model), start, "none", config, 0))
    return out


def nats(model: Path, adapter: Path, data: list[dict[str, Any]]) -> float:
    """Mean negative log-probability of a token of the answers."""
    config = Config.model_validate({"model": {"base": str(model), "dtype": "float32"}})
    policy = PolicySet(config.model, config.eval).policy(adapter, "x")
    found = policy.log_prob([r["prompt"] for r in data], [None] * len(data), [r["completion"][0] for r in data])
    return -sum(total for total, _ in found) / sum(n for _, n in found)


@pytest.mark.e2e
def test_a_few_older_rows_keep_what_was_learnt(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model", hidden=64, sharpness=20)
    first = trained(tmp_path / "first", model, OLD, None)
    assert nats(model, first, OLD) < 0.1

    alone = trained(tmp_path / "alone", model, NEW, first)
    mixed = trained(tmp_path / "mixed", model, [*NEW, *OLD[:3]], first)
    assert max(nats(model, adapter, NEW) for adapter in (alone, mixed)) < 1, "both learn what is new"
    lost, kept = (nats(model, adapter, OLD[3:]) for adapter in (alone, mixed))
    assert kept < lost / 4, "of the first round's rows, those that the second one did not see"
