"""Shapes of adapters: each trains on shared beginnings, loads back for evaluation, and merges to the same logits."""

from __future__ import annotations

from pathlib import Path

import pytest
from flywheel.config import EvalConfig
from flywheel.io.files import read_json
from flywheel.models.merge import merge
from flywheel.models.policy import PolicySet
from flywheel.stages.train import dpo
from tests.stages.train.test_round import rows, spec


@pytest.mark.e2e
def test_a_dora_adapter_of_stable_rank_trains_on_trees_is_scored_and_merges(tmp_path: Path, tiny_model: Path) -> None:
    lora = {"r": 4, "rslora": True, "dora": True, "target_modules": ["q_proj", "down_proj"]}
    made = spec(
        tmp_path, tiny_model, "dpo", reference="parent", max_steps=2, lora=lora, max_kl=50, dpo_learning_rate=0.05
    )
    made.work_dir.mkdir(parents=True)
    result = dpo.train(made)

    assert result.checks["shared_prefix"] == 1
    adapter = read_json(made.out_dir / "adapter_config.json")
    assert (adapter["use_dora"], adapter["use_rslora"], adapter["target_modules"]) == (
        True,
        True,
        ["down_proj", "q_proj"],
    )
    policies, row = PolicySet(made.config.model, EvalConfig()), rows("dpo")[0]
    asked = [row["prompt"]], [row["tools"]], [row["chosen"][0]]
    base, adapted = (
        policies.policy(folder, name).log_prob(*asked)[0][0]
        for folder, name in ((None, "base"), (made.out_dir, "round"))
    )
    assert abs(adapted - base) > 0.1
    (tmp_path / "merged").mkdir()
    assert merge(made.config.model, made.out_dir, tmp_path / "merged") < 1e-4
