"""What is known of another system's first step and adapter before and after it trains; one small round, no process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flywheel.config import Config
from flywheel.errors import TrainError
from flywheel.extensions import TrainSpec
from flywheel.stages.train.backends.job import Item, Job, environment
from flywheel.stages.train.backends.numbers import first_step, measure
from flywheel.stages.train.backends.own import Own
from flywheel.stages.train.backends.swift import Swift
from flywheel.stages.train.trl_common import with_adapter
from tests.mined import mined


@pytest.fixture(scope="module")
def trained(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A DPO round from a champion against the base: three rows, in steps of two batches of two."""
    folder = tmp_path_factory.mktemp("round")
    own: dict[str, Any] = {"command": ["train.sh", "llama"], "arguments": {"alpha": "llama"}}
    swift = {"python": "python", "arguments": {"external_plugins": ["plugin.py"]}}
    settings = {
        "train": {"backend": "mine", "backends": {"mine": own, "swift": swift}, "batch_size": 2, "accumulation": 2},
        "model": {"base": str(tiny_model), "dtype": "float32"},
    }
    for name in ("train.sh", "llama", "plugin.py"):
        (folder / name).touch()
    start = folder / "start"
    spec = TrainSpec(
        round=2, method="dpo", data=folder / "rows", out_dir=folder / "adapter", work_dir=folder / "work",
        base_model=str(tiny_model), start_adapter=start, reference="base", config=Config.model_validate(settings),
        seed=1, project_dir=folder,
    )  # fmt: skip
    (spec.work_dir / "backend").mkdir(parents=True)
    champion = with_adapter(replace(spec, start_adapter=None))
    _move(champion, 0.02)
    champion.save_pretrained(start)
    _move(champion, 3e-4)
    champion.save_pretrained(folder / "moved")
    rows = mined(tiny_model).tokens
    good, bad = rows["preference"]
    longer = rows["groups"][1].model_copy(update={"side": "rejected"})
    return Job(spec, [Item((good, bad), None), Item((bad, good), None), Item((good, longer), None)], tiny_model)


def _move(model: Any, size: float) -> None:
    random = torch.Generator().manual_seed(7)
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            weights.data += size * torch.randn(weights.shape, generator=random)


def changed(job: Job, **train: Any) -> Job:
    settings = job.spec.config.model_dump()
    settings["train"] |= train
    return replace(job, spec=replace(job.spec, config=Config.model_validate(settings)))


def test_an_incomplete_batch_counts_by_row_or_by_batch_as_the_system_counts_it(trained: Job) -> None:
    """Transformers' trainers give the third row's batch the weight of the other two together."""
    by_row = first_step(trained)
    alone = [first_step(changed(replace(trained, items=[item]))) for item in trained.items]
    first, second, third = (one["loss"] for one in alone)
    swift = changed(trained, backend="swift")

    assert by_row["loss"] == pytest.approx((first + second + third) / 3, abs=1e-6)
    assert by_row["logps/chosen"] == pytest.approx(sum(one["logps/chosen"] for one in alone) / 3, abs=1e-4)
    assert first_step(swift)["loss"] == pytest.approx((first + second) / 4 + third / 2, abs=1e-6)
    assert abs(first_step(swift)["loss"] - by_row["loss"]) > 1e-4


def test_an_adapter_that_went_too_far_is_taken_under_a_higher_limit_without_training(trained: Job) -> None:
    """And a very small step is one: rounded to six places it would be none."""
    adapter = trained.spec.out_dir.parent / "moved"
    kl, _ = measure(changed(trained, max_kl=1.0), adapter)
    assert 0 < kl < 5e-7

    low, high = changed(trained, max_kl=kl * 0.9), changed(trained, max_kl=kl * 1.1)
    with pytest.raises(TrainError, match="the limit is"):
        measure(low, adapter)
    left = trained.folder / "adapter" / "adapter_config.json"
    metrics = Own().metrics(trained)
    metrics.write_text('{"step": 1, "of": 1, "loss": 1}\n')
    for job, kept in ((high, True), (low, False)):
        left.parent.mkdir(exist_ok=True)
        left.touch()
        Own().begin(job)
        assert (Own().finished(job) is not None) is kept
        assert bool(metrics.read_text()) is kept


def test_a_command_gets_the_users_files_and_the_plans_words_as_they_are(
    trained: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the project's may have the name of a model's family, or of a number."""
    folder = trained.spec.project_dir
    assert folder is not None
    monkeypatch.chdir(folder)
    command, _ = Own().begin(trained)
    assert command[:2] == [str(folder / "train.sh"), str(folder / "llama")]
    assert json.loads((trained.folder / "job.json").read_text())["settings"]["alpha"] == "llama"

    words, settings = Swift().begin(changed(trained, backend="swift"))
    assert words[words.index("--model_type") + 1] == "llama"
    assert words[words.index("--external_plugins") + 1] == str(folder / "plugin.py")
    assert settings["external_plugins"] == ["plugin.py"]


def test_another_trainer_gets_no_key_of_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        "rewards": {"judge": {"key_env": "JUDGE_KEY"}},
        "eval": {"server": {"key_env": "SERVER_KEY"}},
        "notify": {"token_env": "HOOK_TOKEN"},
    }
    for name in ("JUDGE_KEY", "SERVER_KEY", "HOOK_TOKEN", "FLYWHEEL_KEY", "FLYWHEEL_SIGNING_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "secret")
    variables = environment(Config.model_validate(keys))
    assert [name for name, value in variables.items() if value == "secret"] == ["HF_TOKEN"]  # of its own hub
