"""A plan's card counts what the rows are; a template that garbles a row stops the round before it costs anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flywheel.errors import TrainError
from flywheel.project import Project
from tests.projects import TINY_CONFIG, make_tiny_model
from transformers import AutoTokenizer

NO_SYSTEM = (
    "{% for m in messages %}{% if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, sample_logs: Path) -> Project:
    folder = tmp_path_factory.mktemp("card")
    model = make_tiny_model(folder / "model")
    (folder / "flywheel.toml").write_text(TINY_CONFIG.format(model=model))
    made = Project(folder)
    made.ingest([sample_logs])
    return made


def test_the_card_adds_up_with_the_dataset(project: Project) -> None:
    plan = project.plan()
    card = plan.card

    assert card.fitting + card.too_long == plan.rows
    assert sum(card.sources.values()) == sum(card.policies.values()) == plan.rows
    assert 0 < card.trained_tokens < card.tokens
    assert card.median_tokens <= card.longest_tokens <= card.tokens
    assert card.longer_wins is None
    assert "knows no tools" in card.rendering


def test_rows_that_do_not_fit_are_counted(project: Project) -> None:
    train = project.config.train.model_copy(update={"max_length": 150})
    short = Project(project.folder, config=project.config.model_copy(update={"train": train}))
    card = short.plan().card

    assert 0 < card.too_long < card.too_long + card.fitting
    assert card.max_length == 150


def test_the_card_of_pairs_says_how_often_the_longer_side_wins(project: Project) -> None:
    train = project.config.train.model_copy(update={"method": "dpo", "max_rows": 10_000})
    plan = Project(project.folder, config=project.config.model_copy(update={"train": train})).plan()

    assert plan.card.longer_wins is not None
    assert 0 <= plan.card.longer_wins <= 1
    assert sum(plan.card.builders.values()) == plan.rows
    assert len(plan.card.mean_trained) == 2


def test_a_template_that_drops_a_message_stops_plan_and_train(project: Project, tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = NO_SYSTEM
    tokenizer.save_pretrained(model)
    base = project.config.model.model_copy(update={"base": str(model)})
    garbling = Project(project.folder, config=project.config.model_copy(update={"model": base}))

    with pytest.raises(TrainError, match="garbles 12 of 12 rows") as refused:
        garbling.plan()
    assert "renders every role" in str(refused.value.hint)
    with pytest.raises(TrainError, match="garbles"):
        garbling.train()


def test_show_marks_what_is_trained(project: Project) -> None:
    pair = project.store.table("pairs", "pairs").collect()["pair_id"][0]
    shown = project.show(pair)

    assert [side.side for side in shown.preview] == ["chosen", "rejected"]
    for side in shown.preview:
        assert [part.trained for part in side.segments] == [False, True]
        (call, *_) = shown.record[side.side][0].get("tool_calls") or [{"name": shown.record[side.side][0]["content"]}]
        assert call["name"] in side.segments[-1].text
    json.dumps(shown.model_dump(mode="json"))
