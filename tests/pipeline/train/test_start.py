"""Where a round starts: from the champion, and every so many rounds from the base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flywheel.io import files
from flywheel.pipeline.promote.promotion import force
from flywheel.pipeline.train.plan import differing_keys
from flywheel.project import Project
from flywheel.registry.registry import ADAPTER_WEIGHTS
from tests.projects import TINY_CONFIG
from tests.reports import manifest


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, sample_logs: Path) -> Project:
    """Logs that are read and built, and three rounds of which the second is champion."""
    folder = tmp_path_factory.mktemp("start")
    (folder / "flywheel.toml").write_text(TINY_CONFIG.format(model=tiny_model), encoding="utf-8")
    made = Project(folder)
    made.ingest([sample_logs])
    for number in (1, 2, 3):
        weights = made.registry.folder(number) / "adapter" / ADAPTER_WEIGHTS
        weights.parent.mkdir(parents=True)
        weights.write_text(f"weights {number}")
        made.registry.save(manifest(number, adapter_sha256=files.hash_file(weights)))
    with made.locked("test") as ctx:
        force(ctx, 2, reason="a test", by="test")
    return made


@pytest.mark.parametrize(
    ("train", "parent", "reason"),
    [
        ({"rebase_every": 5}, 2, "round 2 is champion"),
        ({"rebase_every": 3}, None, "every 3 rounds one starts afresh from the base"),
        ({"rebase_every": 1}, None, "every 1 rounds one starts afresh from the base"),
        ({"rebase_every": 5, "start": "base"}, None, "train.start is base"),
    ],
)
def test_a_round_starts_from_the_champion_or_afresh(
    project: Project, train: dict[str, Any], parent: int | None, reason: str
) -> None:
    config = project.config.model_copy(update={"train": project.config.train.model_copy(update=train)})
    plan = Project(project.folder, config=config).plan()

    assert (plan.round, plan.parent, plan.start_reason) == (4, parent, reason)


def test_an_adapter_of_another_shape_is_not_gone_on_with(project: Project) -> None:
    """A champion's adapter keeps its own rank and scale, whatever the configuration asks for by now."""
    champion, lora = (
        project.registry.manifest(2),
        {"r": 16, "alpha": 32, "dropout": 0.1, "target_modules": "all-linear"},
    )
    project.registry.save(champion.model_copy(update={"config": {"train": {"lora": lora}}}))
    train = project.config.train.model_copy(update={"rebase_every": 5})
    starts = {}
    for dora in (False, True):
        shape = train.lora.model_copy(update={"dora": dora})
        config = project.config.model_copy(update={"train": train.model_copy(update={"lora": shape})})
        plan = Project(project.folder, config=config).plan()
        starts[dora] = plan.parent, plan.start_reason
        assert ("dora" in plan.config["train"]["lora"]) == dora
    assert starts[False] == (2, "round 2 is champion")
    assert starts[True][0] is None
    assert starts[True][1].startswith("train.lora.dora is not what round 2 was trained with")


def test_a_removed_key_at_its_fixed_value_is_no_change() -> None:
    now = {"model": {}, "train": {"seed": 0}}
    kept, changed = ({"model": {}, "train": {"seed": 0, "grpo_shift": shift}} for shift in (0.1, 0.2))
    assert differing_keys(kept, now) == []
    assert differing_keys(changed, now) == ["train.grpo_shift 0.2 → None"]
