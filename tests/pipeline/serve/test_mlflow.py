"""Rounds in a real MLflow with a SQLite store: runs, versions, aliases, and that its failures never fail a round."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import Config, MlflowConfig
from flywheel.io import files
from flywheel.pipeline.serve.mlflow import log_to_mlflow
from flywheel.project import Project
from flywheel.records import Certificate, TaintedRound
from flywheel.registry.registry import ADAPTER_WEIGHTS
from tests.reports import manifest, report, row

pytestmark = pytest.mark.filterwarnings("ignore")  # of mlflow's own libraries, which differ from version to version
with_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None or importlib.util.find_spec("alembic") is None,
    reason="mlflow is not installed (pip install 'flywheel-rl[mlflow]')",
)


def make(folder: Path, uri: str = "sqlite:///mlflow.db", say: Any = lambda _: None) -> Project:
    """Make a project with two trained rounds, the first one evaluated."""
    folder.mkdir()
    made = Project(folder, config=Config(mlflow=MlflowConfig(tracking_uri=uri)), say=say)
    for number in (1, 2):
        trained(made, number)
    made.registry.save_report(report(row(30, 1, 100), number=1))
    return made


def trained(project: Project, number: int) -> None:
    weights = project.registry.folder(number) / "adapter" / ADAPTER_WEIGHTS
    weights.parent.mkdir(parents=True)
    weights.write_text(f"weights {number}")
    lines = [{"step": step, "loss": 1.0 / step} for step in (1, 2, 3)]
    (weights.parents[1] / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = [{"path": "data/train.jsonl", "sha256": f"{number}" * 64, "size_bytes": 1}]
    project.registry.save(manifest(number, adapter_sha256=files.hash_file(weights), dataset=data))


def client(project: Project) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{project.folder / 'mlflow.db'}")


def rounds(project: Project, name: str = "shop") -> dict[str, str]:
    """Return alias → round as MLflow says."""
    found = client(project)
    aliases = found.get_registered_model(name).aliases
    return {alias: found.get_model_version(name, version).tags["flywheel.round"] for alias, version in aliases.items()}


@with_mlflow
def test_a_round_is_a_run_and_a_version_and_aliases_move(tmp_path: Path) -> None:
    project = make(tmp_path / "shop")

    project.promote(1, force=True, reason="first")
    assert rounds(project) == {"champion": "1"}
    project.promote(2, force=True, reason="second")
    assert rounds(project) == {"champion": "2"}
    project.registry.point(challenger=1)
    assert log_to_mlflow(project.context)
    assert rounds(project) == {"champion": "2", "challenger": "1"}
    project.rollback("base", reason="bad")
    assert rounds(project) == {"challenger": "1"}

    found = client(project)
    experiment = found.get_experiment_by_name("shop")
    runs = {run.info.run_name: run for run in found.search_runs([experiment.experiment_id])}
    assert sorted(runs) == ["shop-round-1", "shop-round-2"]
    first = runs["shop-round-1"]
    assert [m.value for m in found.get_metric_history(first.info.run_id, "train.loss")] == [1.0, 0.5, 1 / 3]
    assert any(name.endswith(".delta") for name in first.data.metrics)
    assert first.data.params["method"] == project.registry.manifest(1).method
    assert len(found.search_model_versions("name='shop'")) == 2
    local = found.download_artifacts(first.info.run_id, "adapter")
    assert (Path(local) / ADAPTER_WEIGHTS).read_text() == "weights 1"
    assert (project.folder / "mlflow.db").exists()


@with_mlflow
def test_the_same_twice_changes_nothing(tmp_path: Path) -> None:
    project = make(tmp_path / "shop")
    log_to_mlflow(project.context)

    def state() -> list[Any]:
        found = client(project)
        experiment = found.get_experiment_by_name("shop").experiment_id
        runs = [(r.info.run_id, sorted(r.data.tags.items())) for r in found.search_runs([experiment])]
        history = [m.value for run_id, _ in runs for m in found.get_metric_history(run_id, "train.loss")]
        return [runs, history, [v.version for v in found.search_model_versions("name='shop'")]]

    before = state()
    assert log_to_mlflow(project.context)
    assert state() == before


@with_mlflow
def test_what_learnt_from_a_forgotten_user_is_withdrawn(tmp_path: Path) -> None:
    project = make(tmp_path / "shop")
    log_to_mlflow(project.context)
    tainted = [TaintedRound(round=1, adapter_sha256="x", rows=3, why="trained on 3 of the user's rows")]
    project.registry.certify(
        Certificate(
            user_sha256="u", at=project.context.clock(), by="forget", removed={}, before={}, after={}, tainted=tainted,
            champion_before=None, champion_after=None, rebase_round=3, holdout_share=0, voided=[],
        )
    )  # fmt: skip

    assert log_to_mlflow(project.context)

    found = client(project)
    assert [v.tags["flywheel.round"] for v in found.search_model_versions("name='shop'")] == ["2"]
    copies = [p.read_text() for p in (project.folder / "mlruns").rglob(ADAPTER_WEIGHTS)]
    assert copies == ["weights 2"]
    assert log_to_mlflow(project.context)


@with_mlflow
def test_an_mlflow_that_is_away_fails_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    project = make(tmp_path / "shop", "http://127.0.0.1:9", said.append)

    decided = project.promote(1, force=True, reason="first")

    assert (decided.decision, project.registry.champion) == ("forced", 1)
    assert [line for line in said if "MLflow failed" in line]


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is not None, reason="mlflow is installed")
def test_without_mlflow_it_is_said_and_nothing_fails(tmp_path: Path) -> None:
    said: list[str] = []
    project = make(tmp_path / "shop", say=said.append)

    assert project.promote(1, force=True, reason="first").decision == "forced"
    assert said == ["MLflow skipped: mlflow is not installed (pip install 'flywheel-rl[mlflow]')"]


def test_without_the_section_nothing_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    project = make(tmp_path / "shop", "", said.append)

    project.promote(1, force=True, reason="first")

    assert not log_to_mlflow(project.context)
    assert said == []
