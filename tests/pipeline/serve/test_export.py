"""flywheel export: files that `datasets` opens unchanged, that TRL takes, and that the same tables make again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.errors import UsageError
from flywheel.project import Project


@pytest.fixture(scope="module")
def project(projects: Callable[[str], Path]) -> Project:
    return Project(projects("built"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_form_is_written_with_its_hash_and_the_counts_add_up(project: Project, tmp_path: Path) -> None:
    answer = project.export(tmp_path / "out")

    assert [one.form for one in answer.files] == ["preference", "unpaired", "sft", "groups"]
    for one in answer.files:
        assert one.rows == len(lines(tmp_path / "out" / one.path)) > 0
        dropped = sum(count for name, count in one.counts.items() if name.startswith("dropped"))
        assert one.counts["considered"] == one.counts["kept"] + dropped
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["split"] == "train"


def test_the_same_tables_give_the_same_bytes(project: Project, tmp_path: Path) -> None:
    for name in ("a", "b"):
        project.export(tmp_path / name)
    project.export(tmp_path / "a")

    assert {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "b").iterdir()
    }


def test_datasets_opens_every_form_and_adds_nothing_to_a_call(project: Project, tmp_path: Path) -> None:
    """Arrow gives every object the fields of every other; the arguments of a call must stay what they were."""
    from datasets import load_dataset

    answer = project.export(tmp_path / "out")
    for one in answer.files:
        loaded = load_dataset(str(tmp_path / "out"), one.form, split="train", cache_dir=str(tmp_path / "cache"))
        written = lines(tmp_path / "out" / one.path)
        assert [calls(row) for row in loaded] == [calls(row) for row in written]
        assert [row["tools"] for row in loaded] == [row["tools"] for row in written]
        assert any(calls(row) for row in written)


def calls(value: Any) -> list[dict[str, Any]]:
    """Return the arguments of all calls in a row, in order."""
    if isinstance(value, dict):
        if "arguments" in value:
            return [value["arguments"]]
        return [call for item in value.values() for call in calls(item)]
    return [call for item in value for call in calls(item)] if isinstance(value, list) else []


def test_trl_tokenises_what_was_exported(project: Project, tmp_path: Path) -> None:
    """TRL's own preparation takes the rows as they are."""
    from flywheel.config import ModelConfig
    from flywheel.models.load import load_tokenizer
    from trl.data_utils import apply_chat_template, is_conversational

    project.export(tmp_path / "out", forms=["preference"])
    row = lines(tmp_path / "out" / "preference.jsonl")[0]
    tokenizer = load_tokenizer(ModelConfig())
    tokenizer.chat_template = (
        "{{ tools | tojson }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )

    assert is_conversational(row)
    texts = apply_chat_template(
        {k: row[k] for k in ("prompt", "chosen", "rejected")}, tokenizer, json.loads(row["tools"])
    )
    assert texts["chosen"] != texts["rejected"]
    for call in calls(row["chosen"]):
        assert json.dumps(call) in texts["chosen"]


def test_only_the_asked_split_is_written(project: Project, tmp_path: Path) -> None:
    tasks = {
        split: {row["task_id"] for row in lines(_exported(project, tmp_path / split, split))}
        for split in ("train", "holdout")
    }

    assert tasks["train"]
    assert tasks["holdout"]
    assert not tasks["train"] & tasks["holdout"]


def _exported(project: Project, folder: Path, split: str) -> Path:
    project.export(folder, forms=["unpaired"], split=split)
    return folder / "unpaired.jsonl"


def test_a_folder_of_the_users_own_is_never_replaced(project: Project, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")

    with pytest.raises(UsageError, match="was not written by `flywheel export`"):
        project.export(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "x"


@pytest.mark.parametrize(("forms", "split"), [(["dpo"], "train"), ([], "test")])
def test_an_unknown_form_or_split_is_named(project: Project, tmp_path: Path, forms: list[str], split: str) -> None:
    with pytest.raises(UsageError, match="unknown"):
        project.export(tmp_path / "out", forms=forms, split=split)
