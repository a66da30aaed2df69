"""The worker runs the trainer that the configuration names; else the method's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flywheel.config import Config
from flywheel.errors import TrainError
from flywheel.extensions import TrainSpec
from flywheel.project import Project
from flywheel.registry.registry import ADAPTER_WEIGHTS
from flywheel.stages.train.process.spec import launch, read_spec, write_spec
from tests.projects import train, write_config

TRAINER = """
from flywheel.extensions import TrainResult

def train(spec):
    rows = spec.data.read_text(encoding="utf-8").splitlines()
    spec.out_dir.mkdir(parents=True)
    (spec.out_dir / "adapter_model.safetensors").write_text(f"{spec.method} on {len(rows)} rows")
    return TrainResult(steps=1, tokens=2, checks={"of_the_plugin": 3.0})
"""


def test_a_round_is_trained_by_the_trainer_that_the_configuration_names(
    tmp_path: Path, tiny_model: Path, sample_logs: Path
) -> None:
    write_config(tmp_path, tiny_model)
    config = (tmp_path / "flywheel.toml").read_text(encoding="utf-8")
    (tmp_path / "flywheel.toml").write_text(config.replace("[train]", '[train]\ntrainer = "my_trainer:train"'))
    (tmp_path / "my_trainer.py").write_text(TRAINER, encoding="utf-8")
    project = Project(tmp_path)
    project.ingest([sample_logs])

    manifest = train(project)

    assert (project.registry.folder(1) / "adapter" / ADAPTER_WEIGHTS).read_text() == "sft on 12 rows"
    assert manifest.checks == {"of_the_plugin": 3.0}
    assert manifest.config["train"]["trainer"] == "my_trainer:train"


def _spec(folder: Path, trainer: str) -> TrainSpec:
    config = Config.model_validate({"train": {"trainer": trainer}}).placed_in(folder)
    return TrainSpec(
        round=1,
        method="sft",
        data=folder / "train.jsonl",
        out_dir=folder / "adapter",
        work_dir=folder / "work",
        base_model="",
        start_adapter=None,
        reference="none",
        config=config,
        seed=0,
        project_dir=folder,
    )


def test_a_trainer_that_is_not_installed_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="no trainers extension named `nope`") as raised:
        launch(_spec(tmp_path, "nope"))
    assert "module:function" in raised.value.hint


def test_a_spec_crosses_the_border_unchanged(tmp_path: Path) -> None:
    spec = _spec(tmp_path, "my_trainer:train")
    write_spec(spec, tmp_path / "spec.json")
    assert read_spec(tmp_path / "spec.json") == spec
    assert json.loads((tmp_path / "spec.json").read_text())["project_dir"] == str(tmp_path)
