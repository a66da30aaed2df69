"""Several processes: the step of one shared by two, the same loss and nearly the same adapter; clear refusals."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from flywheel.config import TrainConfig
from flywheel.errors import ConfigError, TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io.files import hash_file
from flywheel.registry.registry import ADAPTER_WEIGHTS
from flywheel.stages.train.process.distributed import command, keeps_layers
from flywheel.stages.train.process.spec import launch, tracker_environment
from flywheel.stages.train.trl_common import _passes
from safetensors.torch import load_file
from tests.stages.train import test_grpo as logged
from tests.stages.train.test_round import spec

TWO_CPUS = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_CPU
num_machines: 1
num_processes: 2
use_cpu: true
"""


Run = tuple[list[dict[str, Any]], dict[str, torch.Tensor], TrainResult]


def run(made: TrainSpec) -> Run:
    """Train in processes of their own; return the steps' metrics, the adapter and the result."""
    seen: list[dict[str, Any]] = []
    result = launch(made, seen.append)
    return [row for row in seen if "loss" in row], load_file(made.out_dir / ADAPTER_WEIGHTS), result


def made_for(folder: Path, model: Path, method: str, config: str, **train: Any) -> TrainSpec:
    settings = {"max_steps": 3, "batch_size": 4, "accelerate": config, **train}
    if method == "sft":
        return spec(folder, model, "sft", **settings)
    if method == "dpo":
        return spec(folder, model, "dpo", reference="base", **settings)
    rows = logged.GROUPS if method == "grpo" else logged.actions(8)
    return logged.spec(folder, model, rows, method, **settings)


@pytest.mark.e2e
@pytest.mark.parametrize("kind", ["MULTI_CPU", "FSDP"])
@pytest.mark.parametrize("method", ["sft", "dpo", "kto", "grpo"])
def test_two_processes_train_what_one_trains(tmp_path: Path, tiny_model: Path, method: str, kind: str) -> None:
    (tmp_path / "two.yaml").write_text(TWO_CPUS.replace("MULTI_CPU", kind), encoding="utf-8")
    steps, adapter, _ = run(made_for(tmp_path / "one", tiny_model, method, ""))
    shared, other, result = run(made_for(tmp_path / "two", tiny_model, method, str(tmp_path / "two.yaml")))

    assert [row["step"] for row in shared] == [1, 2, 3], "one process writes"
    held = result.checks["weights_held"]
    assert held < 1.0 if kind == "FSDP" else held == 1.0
    for one, two in zip(steps, shared, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
        assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3)
    moved = max(float(w.abs().max()) for k, w in adapter.items() if "lora_B" in k)
    assert moved > 0
    for name, weights in adapter.items():
        assert torch.allclose(weights, other[name], atol=moved / 50), name


@pytest.mark.e2e
@pytest.mark.parametrize("kind", ["MULTI_CPU", "FSDP"])
def test_two_processes_go_on_from_their_checkpoint(tmp_path: Path, tiny_model: Path, kind: str) -> None:
    (tmp_path / "two.yaml").write_text(TWO_CPUS.replace("MULTI_CPU", kind), encoding="utf-8")
    settings = {"max_steps": 6, "checkpoint_every": 2, "trl": {"gradient_checkpointing": True}}
    config = str(tmp_path / "two.yaml")
    with pytest.raises(TrainError, match="the limit is 1e-09"):
        launch(made_for(tmp_path / "far", tiny_model, "dpo", config, max_kl=1e-9, **settings))
    made = made_for(tmp_path / "cut", tiny_model, "dpo", config, **settings)
    _, whole, first = run(made)
    (made.work_dir / "result.json").unlink()  # as if it had been killed after its second checkpoint
    shutil.rmtree(made.out_dir)
    shutil.rmtree(made.work_dir / "checkpoints" / "checkpoint-6")
    steps, resumed, again = run(made)

    assert again.kl == first.kl
    assert steps[-1]["step"] == 6
    assert all(torch.equal(weights, resumed[name]) for name, weights in whole.items())


@pytest.mark.e2e
def test_one_process_under_accelerate_is_one_process(tmp_path: Path, tiny_model: Path) -> None:
    (tmp_path / "one.yaml").write_text("distributed_type: 'NO'\nnum_processes: 1\nuse_cpu: true\n", encoding="utf-8")
    hashes = []
    for name, config in (("plain", ""), ("launched", str(tmp_path / "one.yaml"))):
        made = spec(tmp_path / name, tiny_model, max_steps=2, accelerate=config)
        launch(made)
        hashes.append(hash_file(made.out_dir / ADAPTER_WEIGHTS))
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a configuration of accelerate's"),
        ("a: [", "cannot be read"),
        ("distributed_type: DEEPSPEED\nnum_processes: 2", "DEEPSPEED is not supported"),
        ("distributed_type: MULTI_GPU\nnum_processes: many", "num_processes"),
        (
            "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_offload_params: true",
            "fsdp_offload_params is not supported",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "accelerate.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=told) as raised:
        command(tmp_path / "spec.json", str(file), "dpo")
    assert raised.value.hint


def test_a_configuration_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        command(tmp_path / "spec.json", str(tmp_path / "none.yaml"), "sft")


@pytest.mark.parametrize("method", ["sft", "dpo", "kto", "grpo"])
def test_fsdp_goes_through_accelerate_where_there_are_devices(
    tmp_path: Path, method: Literal["sft", "dpo", "kto", "grpo"]
) -> None:
    file = tmp_path / "fsdp.yaml"
    file.write_text("distributed_type: FSDP\nnum_processes: 2\n", encoding="utf-8")
    assert "accelerate.commands.launch" in command(tmp_path / "spec.json", str(file), method)
    file.write_text("distributed_type: FSDP\nnum_processes: 2\nuse_cpu: true\n", encoding="utf-8")
    assert "torch.distributed.run" in command(tmp_path / "spec.json", str(file), method)


@pytest.mark.parametrize(
    ("text", "keeps"),
    [("true", False), ("false", True), ("FULL_SHARD", False), ("SHARD_GRAD_OP", True)],
)
def test_whether_layers_stay_whole_is_read_in_both_ways_of_accelerate(text: str, *, keeps: bool) -> None:
    assert keeps_layers({"fsdp_config": {"fsdp_reshard_after_forward": text}}) is keeps
    assert not keeps_layers({})


@pytest.mark.parametrize(
    ("batch", "accumulation", "processes", "expected"),
    [(4, 1, 1, (4, 1)), (4, 1, 2, (2, 1)), (4, 1, 4, (1, 1)), (2, 3, 2, (1, 3)), (4, 2, 2, (4, 1))],
)
def test_a_step_trains_the_same_rows_in_any_number_of_processes(
    batch: int, accumulation: int, processes: int, expected: tuple[int, int]
) -> None:
    rows, passes = _passes(TrainConfig(batch_size=batch, accumulation=accumulation), 10, 1000, processes)
    assert (rows, passes) == expected
    assert rows * passes * processes == batch * accumulation


def test_rows_that_cannot_be_shared_out_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be shared by 3 processes"):
        _passes(TrainConfig(batch_size=4), 10, 1000, 3)


def test_a_tracker_that_is_not_installed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])  # nothing can be found
    with pytest.raises(ConfigError, match="wandb is not installed") as raised:
        tracker_environment(["wandb"], tmp_path, {})
    assert raised.value.hint == "pip install wandb"


def test_trackers_stay_in_the_round_and_offline_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    own = tracker_environment([], tmp_path, {})
    assert own["WANDB_DISABLED"] == "true"
    assert own["WANDB_MODE"] == "offline"
    assert all(str(tmp_path) in own[k] for k in ("TENSORBOARD_LOGGING_DIR", "WANDB_DIR", "MLFLOW_TRACKING_URI"))
    named = tracker_environment([], tmp_path, {"MLFLOW_TRACKING_URI": "http://tracking.example"})
    assert named["MLFLOW_TRACKING_URI"] == "http://tracking.example"


def test_trackers_beside_one_another_get_the_metrics_and_no_rows(tmp_path: Path, tiny_model: Path) -> None:
    kept = {"tensorboard": "events.out.tfevents.*", "wandb": "*.wandb", "mlflow": "mlflow.db"}
    installed: list[Any] = [name for name in kept if find_spec(name)]
    if not installed:
        pytest.skip("neither TensorBoard nor W&B nor MLflow is installed")
    launch(spec(tmp_path, tiny_model, max_steps=2, report_to=installed))
    for name in installed:
        (file,) = (tmp_path / "tracking").rglob(kept[name])
        assert b"loss" in file.read_bytes()
    everything = b"".join(file.read_bytes() for file in (tmp_path / "tracking").rglob("*") if file.is_file())
    assert not any(words in everything for words in (b"SELECT count", b"orders in month", b"How many"))
