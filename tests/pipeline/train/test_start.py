"""Where a round starts: from the champion, and every so many rounds from the base."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.errors import ConfigError, TrainError, UsageError
from flywheel.io import files
from flywheel.pipeline.promote.promotion import force
from flywheel.pipeline.train.plan import differing_keys, round_config
from flywheel.project import Project
from flywheel.registry.registry import ADAPTER_WEIGHTS
from tests.projects import TINY_CONFIG
from tests.reports import manifest

if TYPE_CHECKING:
    from flywheel.records import Plan


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, sample_logs: Path) -> Project:
    """Logs that are read and built, and three rounds of which the second is champion."""
    folder = tmp_path_factory.mktemp("start")
    (folder / "flywheel.toml").write_text(TINY_CONFIG.format(model=tiny_model), encoding="utf-8")
    made = Project(folder)
    part = {"type": "image_url", "image_url": {"url": "https://files.example.org/a.png"}}
    asked, answer = {"role": "user", "content": [part]}, {"role": "assistant", "content": "A lamp."}
    call = {"request": {"model": "m", "messages": [asked]}, "response": {"choices": [{"message": answer}]}}
    (folder / "pictures.jsonl").write_text(json.dumps(call) + "\n", encoding="utf-8")
    made.ingest([sample_logs, folder / "pictures.jsonl"])
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


def test_a_base_that_sees_has_a_reason_of_its_own_to_refuse_images(
    project: Project, tiny_model: Path, tmp_path: Path
) -> None:
    seeing = shutil.copytree(tiny_model, tmp_path / "seeing")
    config = json.loads((seeing / "config.json").read_text(encoding="utf-8"))
    (seeing / "config.json").write_text(json.dumps({**config, "vision_config": {}}), encoding="utf-8")
    model = project.config.model.model_copy(update={"base": str(seeing)})
    card = Project(project.folder, config=project.config.model_copy(update={"model": model})).plan().card
    assert card.unseen.startswith("1 step with images refused: the base model sees, but of a log's images")


def test_an_unfinished_round_goes_on_under_another_limit_alone(project: Project) -> None:
    with project.locked("test") as ctx:
        config = round_config(ctx)
    begun = {**config, "train": {**config["train"], "max_chosen_drop": 9.0, "grpo_min_ess": 0.9, "seed": 5}}
    unfinished = {"round": 4, "state": "failed", "adapter_sha256": "", "config": begun}
    project.registry.save(project.registry.manifest(2).model_copy(update=unfinished))

    with pytest.raises(UsageError) as refused:
        project.train(4)
    shutil.rmtree(project.registry.folder(4))
    assert refused.value.message == "round 4 was begun under another configuration: train.seed 5 → 0"


def test_a_round_that_does_not_fit_into_memory_is_refused_with_what_would(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(**train: Any) -> Plan:
        update = {"train": project.config.train.model_copy(update=train)}
        return Project(project.folder, config=project.config.model_copy(update=update)).plan()

    plan = planned()
    memory = plan.memory
    assert plan.card.unseen == "1 step with images refused: the base model reads text alone"
    assert memory is not None
    assert not memory.checkpointing
    assert 0 < memory.activations < memory.needed < memory.available
    assert planned(memory_gib=memory.needed / 2**30 * 1.2).memory.checkpointing  # type: ignore[union-attr]
    with pytest.raises(TrainError, match=r"needs about .* has 751\.6 MB") as raised:
        planned(memory_gib=0.7)
    assert "train.max_length below" in raised.value.hint
    with pytest.raises(TrainError) as raised:
        planned(memory_gib=0.2)
    assert all(text in raised.value.hint for text in ('model.quantise = "nf4"', "FSDP", "train.backend"))
    monkeypatch.setattr("flywheel.models.quantised.PACKAGES", {"nf4": "no_such_package"})
    model = project.config.model.model_copy(update={"quantise": "nf4"})
    with pytest.raises(ConfigError, match="needs no_such_package, which is not installed"):
        Project(project.folder, config=project.config.model_copy(update={"model": model})).plan()
