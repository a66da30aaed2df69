"""Rounds on a tiny random Llama: repeatable, resumable, the reference checked, only the action in the loss."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from flywheel.config import Config, EvalConfig
from flywheel.errors import ConfigError, TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io import files
from flywheel.models.footprint import PASS_TOKENS
from flywheel.models.policy import PolicySet
from flywheel.records import canonical_json
from flywheel.registry.registry import ADAPTER_WEIGHTS
from flywheel.stages.train import dpo, trl_common
from flywheel.stages.train import sft as sft_rounds
from flywheel.stages.train.process.checkpoints import trim_metrics
from flywheel.stages.train.process.distributed import WORKER
from flywheel.stages.train.process.spec import launch, read_spec, write_spec
from tests.commands import FLYWHEEL, flywheel

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "run_sql",
            "parameters": {"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]},
        },
    }
]


def call(sql: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "call00000", "name": "run_sql", "arguments": {"sql": sql}}]}


def rows(method: str, n: int = 12) -> list[dict[str, Any]]:
    made = []
    for i in range(n):
        row: dict[str, Any] = {
            "prompt": [{"role": "user", "content": f"How many orders in month {i}?"}],
            "tools": TOOLS,
            "task_id": f"t{i}",
            "weight": 1.0,
        }
        if method == "sft":
            row["completion"] = [call(f"SELECT count(*) FROM orders WHERE month = {i}")]
        else:
            row["chosen"] = [call(f"SELECT count(*) FROM orders WHERE month = {i}")]
            row["rejected"] = [call(f"SELECT * FROM order WHERE m = {i}")]
        made.append(row)
    return made


def spec(
    folder: Path,
    model: Path,
    method: Literal["sft", "dpo"] = "sft",
    *,
    start: Path | None = None,
    reference: Literal["parent", "base", "none"] = "none",
    **train: Any,
) -> TrainSpec:
    config = Config.model_validate(
        {
            "model": {"base": str(model), "dtype": "float32"},
            "train": {"max_steps": 6, "checkpoint_every": 2, "batch_size": 2, "threads": 1, **train},
        }
    )
    files.atomic_write(folder / "train.jsonl", "".join(canonical_json(r) + "\n" for r in rows(method)))
    return TrainSpec(
        round=1,
        method=method,
        data=folder / "train.jsonl",
        out_dir=folder / "adapter",
        work_dir=folder / "work",
        base_model=str(model),
        start_adapter=start,
        reference=reference,
        config=config,
        seed=0,
    )


def adapter_hash(made: TrainSpec) -> str:
    return files.hash_file(made.out_dir / ADAPTER_WEIGHTS)


def train_here(made: TrainSpec) -> tuple[TrainResult, list[dict[str, Any]]]:
    """Train inside this process, which spares the seconds that a worker needs to start."""
    made.work_dir.mkdir(parents=True)
    result = (sft_rounds if made.method == "sft" else dpo).train(made)
    return result, [json.loads(line) for line in (made.work_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def sft(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> tuple[TrainSpec, TrainResult, list[dict[str, Any]]]:
    """A round of the worker's process, which is forked from one that has torch."""
    made, seen = spec(tmp_path_factory.mktemp("sft"), tiny_model), list[dict[str, Any]]()
    return made, launch(made, seen.append), seen


def test_a_spec_survives_the_border(tmp_path: Path, tiny_model: Path) -> None:
    made = spec(tmp_path, tiny_model, start=tmp_path / "a")
    write_spec(made, tmp_path / "spec.json")

    assert read_spec(tmp_path / "spec.json") == made


def test_a_round_leaves_an_adapter_and_its_measurements(
    sft: tuple[TrainSpec, TrainResult, list[dict[str, Any]]], tiny_model: Path
) -> None:
    made, result, seen = sft

    assert sorted(p.name for p in made.out_dir.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    config = json.loads((made.out_dir / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tiny_model)
    assert config["lora_alpha"] > 0
    assert result.steps == 6
    assert result.versions["trl"]
    assert [m["step"] for m in seen if "loss" in m] == [1, 2, 3, 4, 5, 6]
    assert seen[-1]["of"] == 6
    assert all(m["tokens_per_s"] > 0 for m in seen)


def test_the_same_round_twice_has_the_same_adapter(
    sft: tuple[TrainSpec, TrainResult, list[dict[str, Any]]], tmp_path: Path, tiny_model: Path
) -> None:
    """Byte for byte, in another process and in a folder of another name."""
    again = spec(tmp_path, tiny_model)
    train_here(again)

    assert adapter_hash(again) == adapter_hash(sft[0])


def test_a_finished_round_is_not_trained_again(sft: tuple[TrainSpec, TrainResult, list[dict[str, Any]]]) -> None:
    before = (sft[0].out_dir / ADAPTER_WEIGHTS).stat().st_mtime_ns

    assert launch(sft[0]) == sft[1]
    assert (sft[0].out_dir / ADAPTER_WEIGHTS).stat().st_mtime_ns == before


def _killed_at_step(made: TrainSpec, step: int) -> None:
    """Run the round in a process and kill -9 it when metrics.jsonl shows the step."""
    made.work_dir.mkdir(parents=True, exist_ok=True)
    path = made.work_dir / "spec.json"
    write_spec(made, path)
    trim_metrics(made)
    process = subprocess.Popen([FLYWHEEL, "-m", WORKER, str(path), "0"])
    metrics, deadline = made.work_dir / "metrics.jsonl", time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.exists() and f'"step": {step}' in metrics.read_text():
            break
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("ended", ["steps", pytest.param("kl", marks=pytest.mark.e2e)])
def test_killed_twice_and_resumed_equals_uninterrupted(
    sft: tuple[TrainSpec, TrainResult, list[dict[str, Any]]], tmp_path: Path, tiny_model: Path, ended: str
) -> None:
    """Also where it ends at its distance from the parent, after a last checkpoint within it."""
    (_, fifth), (_, sixth) = sft[1].kl[4:]
    limit = 1e9 if ended == "steps" else (fifth + sixth) / 2
    whole = spec(tmp_path / "whole", tiny_model, max_kl=limit)
    uninterrupted = sft[1] if ended == "steps" else train_here(whole)[0]
    made = spec(tmp_path / "killed", tiny_model, max_kl=limit)
    for step in (3, 5):
        _killed_at_step(made, step)
        assert not made.out_dir.exists()
    trim_metrics(made)
    result = sft_rounds.train(made)

    assert (result.steps, result.stopped) == ((6, "steps") if ended == "steps" else (5, "kl"))
    assert [list(point) for point in result.kl] == [list(point) for point in uninterrupted.kl]
    assert adapter_hash(made) == adapter_hash(sft[0] if ended == "steps" else whole)
    metrics = [json.loads(line) for line in (made.work_dir / "metrics.jsonl").read_text().splitlines()]
    assert [m["step"] for m in metrics if "loss" in m] == [1, 2, 3, 4, 5, 6]


def test_dpo_starts_at_log_2_and_raises_the_margin(
    sft: tuple[TrainSpec, TrainResult, list[dict[str, Any]]], tmp_path: Path, tiny_model: Path
) -> None:
    made = spec(tmp_path, tiny_model, "dpo", start=sft[0].out_dir, reference="parent", dpo_learning_rate=1e-2)
    result, seen = train_here(made)

    assert result.checks["dpo_loss_step0"] == pytest.approx(0.693147, abs=1e-3)
    margins = [m["rewards/margins"] for m in seen if "rewards/margins" in m]
    assert margins[0] == pytest.approx(0, abs=1e-6)
    assert margins[-1] > 0
    assert sorted(p.name for p in made.out_dir.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]


def test_the_base_as_reference_is_the_base(tmp_path: Path, tiny_model: Path) -> None:
    start = spec(tmp_path / "start", tiny_model, max_steps=3, sft_learning_rate=5e-2)
    train_here(start)
    made = spec(tmp_path / "next", tiny_model, "dpo", max_steps=1, start=start.out_dir, reference="base")
    result, _ = train_here(made)

    assert result.checks["reference_gap"] == pytest.approx(0, abs=1e-3)
    assert result.checks["dpo_margin_step0"] > 1e-3


def test_rows_that_are_too_long_are_refused_and_counted(tmp_path: Path, tiny_model: Path) -> None:
    made = spec(tmp_path, tiny_model, max_length=16)
    with pytest.raises(TrainError, match=r"12 of 12 rows are longer than train\.max_length = 16 tokens"):
        train_here(made)


@pytest.mark.parametrize("method", [pytest.param("sft", marks=pytest.mark.e2e), "dpo"])
def test_the_first_loss_is_that_of_the_actions_alone(
    method: Literal["sft", "dpo"], tmp_path: Path, tiny_model: Path
) -> None:
    """Known answers from another path: NLL a token (SFT), log 2 + weight * NLL a token of the chosen action (DPO)."""
    made = spec(
        tmp_path, tiny_model, method, reference="none" if method == "sft" else "parent", batch_size=12, max_steps=1
    )
    _, seen = train_here(made)

    data, side = rows(method), "completion" if method == "sft" else "chosen"
    scores = (
        PolicySet(made.config.model, EvalConfig())
        .policy(None, "base")
        .log_prob([r["prompt"] for r in data], [r["tools"] for r in data], [r[side][0] for r in data])
    )
    by_token = -sum(score for score, _ in scores) / sum(n for _, n in scores)
    nll = by_token if method == "sft" else -math.fsum(score / n for score, n in scores) / len(scores)
    expected = nll if method == "sft" else math.log(2) + made.config.train.dpo_sft_weight * nll
    assert seen[0]["loss"] == pytest.approx(expected, rel=1e-5)


def test_a_step_trains_as_many_rows_whether_they_continue_one_another_or_not(tmp_path: Path, tiny_model: Path) -> None:
    """Six conversations of four steps are six sequences: one a step, not four."""
    made = spec(tmp_path, tiny_model, max_steps=-1, sft_epochs=1, batch_size=4)
    talks = []
    for i in range(6):
        said: list[dict[str, Any]] = [{"role": "user", "content": f"How many orders in month {i}?"}]
        for step in range(4):
            action = {"role": "assistant", "content": f"Step {step}: {i + step}."}
            talks.append({"prompt": said, "completion": [action], "tools": None, "task_id": f"t{i}", "weight": 1.0})
            said = [*said, action, {"role": "user", "content": "And then?"}]
    files.atomic_write(made.data, "".join(canonical_json(row) + "\n" for row in talks))
    result, seen = train_here(made)

    assert result.checks["sequences"] == 6
    assert max(row["step"] for row in seen) == 6


@pytest.mark.parametrize(
    ("processes", "step", "sequences", "expected"),
    [
        ("1", (4, 1), 24, 4),
        ("1", (4, 1), 12, 2),
        ("1", (4, 1), 1, 1),
        ("2", (4, 1), 6, 2),
        ("2", (1, 4), 24, 1),
        ("2", (3, 1), 24, 3),
    ],
)
def test_sequences_of_a_pass_are_what_the_processes_can_share(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    processes: str,
    step: tuple[int, int],
    sequences: int,
    expected: int,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", processes)
    made = spec(tmp_path, tmp_path, batch_size=step[0], accumulation=step[1])
    assert sft_rounds._by_sequences(made, 24, sequences).config.train.batch_size == expected


@pytest.mark.e2e
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_each_pair_has_its_own_weight_of_the_nll_term(weight: float, tmp_path: Path, tiny_model: Path) -> None:
    made = spec(tmp_path, tiny_model, "dpo", reference="parent", batch_size=12, max_steps=1)
    files.atomic_write(made.data, "".join(canonical_json({**row, "nll_weight": weight}) + "\n" for row in rows("dpo")))
    _, seen = train_here(made)
    assert seen[0]["nll"] > 1
    assert seen[0]["loss"] == pytest.approx(math.log(2) + weight * seen[0]["nll"], rel=1e-5)


def test_a_demonstration_beside_pairs_has_the_nll_term_alone(tmp_path: Path, tiny_model: Path) -> None:
    made = spec(tmp_path, tiny_model, "dpo", reference="parent", batch_size=24, max_steps=1)
    both = [{**row, "nll_weight": 0.0} for row in rows("dpo")] + [{**row, "nll_weight": 0.5} for row in rows("sft")]
    files.atomic_write(made.data, "".join(canonical_json(row) + "\n" for row in both))
    result, seen = train_here(made)
    assert result.checks["dpo_loss_step0"] == pytest.approx(math.log(2), abs=1e-5)
    # demonstrations are what pairs choose, so the mean NLL over both is that of demonstrations
    assert seen[0]["loss"] == pytest.approx(math.log(2) / 2 + 0.5 * seen[0]["nll"] / 2, rel=1e-4)


def test_a_loss_of_trls_own_leaves_demonstrations_out(tmp_path: Path, tiny_model: Path) -> None:
    made = spec(tmp_path, tiny_model, "dpo", reference="parent", max_steps=1, trl={"loss_type": "hinge"})
    files.atomic_write(made.data, "".join(canonical_json(row) + "\n" for row in [*rows("sft", 2), *rows("dpo")]))
    assert train_here(made)[0].checks["demonstrations_left_out"] == 2


def test_a_round_of_pairs_needs_a_pair(tmp_path: Path, tiny_model: Path) -> None:
    """Without one there is nothing to check the reference on."""
    made = spec(tmp_path, tiny_model, "dpo", reference="parent", max_steps=1)
    files.atomic_write(made.data, "".join(canonical_json(row) + "\n" for row in rows("sft")))
    with pytest.raises(TrainError, match="no pair fits"):
        train_here(made)


@pytest.mark.parametrize(
    ("named", "dtype"),
    [
        pytest.param("base", "float32", marks=pytest.mark.e2e),
        ("parent", "bfloat16"),
        pytest.param("base", "bfloat16", marks=pytest.mark.e2e),
        pytest.param("parent", "float32", marks=pytest.mark.e2e),
    ],
)
def test_another_reference_than_the_named_one_is_refused(
    dtype: str, named: Literal["base", "parent"], tmp_path: Path, tiny_model: Path
) -> None:
    """Numbers of another policy under its name, a thousandth of a nat a token away: a cache that somebody changed."""
    start = spec(tmp_path / "start", tiny_model, max_steps=2, sft_learning_rate=5e-2)
    train_here(start)
    made = spec(tmp_path, tiny_model, "dpo", start=start.out_dir, reference=named, max_steps=1)
    config = made.config.model_copy(update={"model": made.config.model.model_copy(update={"dtype": dtype})})
    made = dataclasses.replace(made, config=config, cache_dir=tmp_path / "c")
    checks = train_here(made)[0].checks
    assert checks["reference_gap"] == pytest.approx(0, abs=1e-4)
    if named == "parent":
        assert checks["dpo_loss_step0"] == pytest.approx(math.log(2), abs=1e-5)
    kept = list((tmp_path / "c").rglob("*.json"))
    for path in kept:
        scores = json.loads(path.read_text())
        path.write_text(json.dumps({k: [[x - 1e-3 for x in row] for row in unit] for k, unit in scores.items()}))
    shutil.rmtree(made.work_dir)

    assert kept
    with pytest.raises(TrainError, match=f"the reference policy is not the {named}"):
        train_here(made)


def test_the_reference_is_computed_once_and_found_again(tmp_path: Path, tiny_model: Path) -> None:
    found = []
    for name in ("first", "second"):
        made = dataclasses.replace(
            spec(tmp_path / name, tiny_model, "dpo", reference="base", max_steps=2), cache_dir=tmp_path / "cache"
        )
        result, seen = train_here(made)
        found.append(
            (adapter_hash(made), [m["loss"] for m in seen if "loss" in m], result.checks["reference_computed"])
        )

    assert found[0][:2] == found[1][:2]
    assert (found[0][2], found[1][2]) == (24, 0)
    assert "SELECT" not in "".join(p.read_text() for p in (tmp_path / "cache").rglob("*.json"))


@pytest.mark.e2e
def test_passes_of_one_step_change_no_gradient(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch cut for memory, with recomputed activations, ends where the whole batch ends."""
    from safetensors.torch import load_file

    found = []
    for name, limit in (("whole", 8192), ("cut", 200)):
        monkeypatch.setitem(PASS_TOKENS, "cpu", limit)
        checkpointing = "off" if name == "whole" else "on"
        made = spec(tmp_path / name, tiny_model, batch_size=4, max_steps=3, gradient_checkpointing=checkpointing)
        checks = train_here(made)[0].checks
        assert (checks["pass_rows"], checks["recomputed"]) == ((4, 0) if name == "whole" else (1, 1))
        found.append(load_file(made.out_dir / ADAPTER_WEIGHTS))
    assert all(torch.allclose(found[0][k], found[1][k], atol=1e-6) for k in found[0])


@pytest.mark.parametrize(
    ("batch", "row", "expected"), [(4, 100, (4, 2)), (4, 3000, (2, 4)), (4, 9000, (1, 8)), (6, 2000, (3, 4))]
)
def test_a_batch_beyond_the_budget_is_cut_into_equal_passes(batch: int, row: int, expected: tuple[int, int]) -> None:
    train = Config().train.model_copy(update={"batch_size": batch, "accumulation": 2})

    assert trl_common._passes(train, row, 8192) == expected


def test_a_killed_trainer_says_so(tmp_path: Path, tiny_model: Path) -> None:
    made = spec(tmp_path, tiny_model)
    killer = threading.Thread(target=_kill_worker, args=(made.work_dir,))
    killer.start()
    with pytest.raises(TrainError, match="was killed, most likely for want of memory"):
        launch(made)
    killer.join()


def _kill_worker(work_dir: Path) -> None:
    """Kill the process whose command line names this work folder."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                command = entry.read_bytes().split(b"\0")
                if (
                    b"flywheel.stages.train.process.worker" in command
                    and str(work_dir / "spec.json").encode() in command
                ):
                    os.kill(int(entry.parent.name), signal.SIGKILL)
                    return
        time.sleep(0.01)


def test_a_key_that_would_break_a_promise_is_refused(tmp_path: Path, tiny_model: Path) -> None:
    from trl import SFTConfig

    made = spec(tmp_path, tiny_model, trl={"max_length": 64})
    with pytest.raises(ConfigError, match=r"`train\.trl\.max_length` cannot be set") as caught:
        trl_common.trl_arguments(SFTConfig, made, 10)
    assert "`train.max_length`" in caught.value.hint


def test_layers_can_be_chosen_by_a_regular_expression(tmp_path: Path, tiny_model: Path) -> None:
    made = spec(tmp_path, tiny_model, max_steps=1, lora={"target_modules": r".*\.(q|v)_proj"})
    train_here(made)

    assert json.loads((made.out_dir / "adapter_config.json").read_text())["target_modules"] == r".*\.(q|v)_proj"


def test_an_unknown_trl_key_is_refused_with_the_nearest(projects: Callable[[str], Path]) -> None:
    """The trainer's process finds it; the command says it."""
    project = projects("built")
    with (project / "flywheel.toml").open("a") as config:
        config.write("[train.trl]\nweight_decai = 0.1\n")
    done = flywheel(project, "train", check=False)

    assert done.returncode == 1
    assert "unknown key `train.trl.weight_decai`" in done.stderr
    assert "weight_decay" in done.stderr
