"""Half-written checkpoints are removed; metrics of steps that will be taken again go with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flywheel.config import Config
from flywheel.extensions import TrainSpec
from flywheel.stages.train.process.checkpoints import checkpoints, mark_whole, newest, trim_metrics


@pytest.fixture
def made(tmp_path: Path) -> TrainSpec:
    return TrainSpec(1, "sft", tmp_path / "d", tmp_path / "a", tmp_path / "work", "b", None, "none", Config(), 0)


def checkpoint(made: TrainSpec, step: int, *, whole: bool) -> Path:
    path = checkpoints(made) / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "trainer_state.json").write_text("{}")
    if whole:
        mark_whole(path)
    return path


def test_the_newest_whole_checkpoint_counts_by_its_number(made: TrainSpec) -> None:
    assert newest(made) is None
    checkpoint(made, 9, whole=True)
    ten = checkpoint(made, 10, whole=True)
    torn = checkpoint(made, 11, whole=False)

    assert newest(made) == ten
    assert not torn.exists()


def test_metrics_end_with_the_newest_whole_checkpoint(made: TrainSpec) -> None:
    checkpoint(made, 2, whole=True)
    rows = [{"step": n, "loss": 1.0} for n in (1, 2, 3)]
    path = made.work_dir / "metrics.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows) + '{"step": 4, "lo')
    trim_metrics(made)

    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]


def test_without_a_checkpoint_metrics_begin_anew(made: TrainSpec) -> None:
    made.work_dir.mkdir()
    path = made.work_dir / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    trim_metrics(made)

    assert path.read_text() == ""
