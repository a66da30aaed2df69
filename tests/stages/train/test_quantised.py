"""Rounds beside a base of four or eight bits: the same rounded weights train, are the reference, and are scored."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from flywheel.config import EvalConfig
from flywheel.models.load import base_identity
from flywheel.models.merge import merge
from flywheel.models.policy import PolicySet
from flywheel.models.quantised import PACKAGES
from flywheel.stages.train import dpo, sft
from tests.stages.train.test_round import rows, spec

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_a_round_beside_a_quantised_base_goes_on_is_scored_and_merges(
    kind: str, tmp_path: Path, tiny_model: Path
) -> None:
    pytest.importorskip(PACKAGES[kind])
    from safetensors.torch import load_file

    first = spec(tmp_path / "first", tiny_model, max_steps=2, max_kl=50, sft_learning_rate=0.05)
    config = first.config.model_copy(update={"model": first.config.model.model_copy(update={"quantise": kind})})
    object.__setattr__(first, "config", config)
    first.work_dir.mkdir(parents=True)
    sft.train(first)
    second = spec(tmp_path / "second", tiny_model, "dpo", start=first.out_dir, reference="parent", max_steps=2)
    object.__setattr__(second, "config", second.config.model_copy(update={"model": config.model}))
    second.work_dir.mkdir(parents=True)
    checks = dpo.train(second).checks

    assert checks["dpo_loss_step0"] == pytest.approx(math.log(2), abs=1e-5)
    assert checks["shared_prefix"] == 1
    assert checks["reference_gap"] == pytest.approx(0, abs=1e-5)
    assert {str(weight.dtype) for weight in load_file(second.out_dir / "adapter_model.safetensors").values()} == {
        "torch.float32"
    }
    row, plain = rows("dpo")[0], config.model.model_copy(update={"quantise": "none"})
    asked = [row["prompt"]], [row["tools"]], [row["chosen"][0]]
    rounded, whole = (
        PolicySet(model, EvalConfig()).policy(second.out_dir, "round").log_prob(*asked)[0][0]
        for model in (config.model, plain)
    )
    assert rounded != pytest.approx(whole, abs=1e-4)
    assert base_identity(config.model).sha256 != base_identity(plain).sha256
    (tmp_path / "merged").mkdir()
    assert merge(config.model, second.out_dir, tmp_path / "merged") < 5e-3
