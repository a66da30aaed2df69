"""A round and an export leave out what evaluators say they judge by."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.errors import ExtensionError
from flywheel.project import Project

PLUGIN = """
def judge(policy, holdout, cfg):
    return []


def _texts(holdout, cfg):
    assert set(holdout.episodes["split"]) == {"holdout"}
    return TEXTS


judge.texts = _texts
"""


@pytest.fixture(scope="module")
def project(projects: Callable[[str], Path]) -> Project:
    return Project(projects("built"))


def judged_by(project: Project, name: str, texts: object, **train: Any) -> Project:
    (project.folder / f"{name}.py").write_text(PLUGIN.replace("TEXTS", repr(texts)), encoding="utf-8")
    config = project.config.model_copy(
        update={
            "eval": project.config.eval.model_copy(update={"suites": [f"{name}:judge"]}),
            "train": project.config.train.model_copy(update={"min_rows": 1, "max_rows": 10_000, **train}),
        }
    )
    return Project(project.folder, config=config)


def asked(row: dict[str, Any]) -> set[str]:
    return {message["content"] for message in row["prompt"] if message["role"] == "user"}


@pytest.mark.parametrize("method", ["sft", pytest.param("kto", marks=pytest.mark.e2e)])
def test_a_round_is_not_trained_on_what_an_evaluator_declares(project: Project, method: str, tmp_path: Path) -> None:
    project.export(tmp_path / "whole", forms=["unpaired"])
    rows = [json.loads(line) for line in (tmp_path / "whole" / "unpaired.jsonl").read_text().splitlines()]
    question = min(asked(rows[0]))

    plain = judged_by(project, "quiet", [], method=method).plan()
    made = judged_by(project, f"telling_{method}", [question], method=method).plan()
    gone = made.counts["dropped: 13 words of an evaluation's text"]
    assert made.counts["considered"] == plain.counts["considered"]
    assert 0 < plain.rows - gone <= made.rows <= plain.rows  # others take some of their places
    assert gone > 0

    judged_by(project, f"telling_{method}", [question]).export(tmp_path / "clear", forms=["unpaired"])
    left = [json.loads(line) for line in (tmp_path / "clear" / "unpaired.jsonl").read_text().splitlines()]
    assert {row["id"] for row in left} == {row["id"] for row in rows if question not in asked(row)}


def test_a_round_is_not_trained_on_what_the_projects_own_cases_ask(project: Project, tmp_path: Path) -> None:
    project.export(tmp_path / "whole", forms=["unpaired"])
    question = min(asked(json.loads((tmp_path / "whole" / "unpaired.jsonl").read_text().splitlines()[0])))
    plain = judged_by(project, "nothing", [], method="sft")
    checks = [{"check": "exact", "any_of": ["x"]}]
    (project.folder / "evals").mkdir()
    path = project.folder / "evals" / "mine.jsonl"
    path.write_text("".join(json.dumps({"prompt": p, "checks": checks}) + "\n" for p in (question, "yes, please")))
    suites = plain.config.eval.model_copy(update={"suites": ["mine"]})
    own = Project(project.folder, config=plain.config.model_copy(update={"eval": suites}))
    gone = own.plan().counts["dropped: 13 words of an evaluation's text"]

    assert 0 < gone < plain.plan().rows
    assert plain.plan().rows - gone <= own.plan().rows <= plain.plan().rows  # others take some of their places
    path.write_text(json.dumps({"prompt": "yes, please", "checks": checks}) + "\n")
    assert own.plan().rows == plain.plan().rows


def test_what_is_no_text_is_an_error_of_the_evaluator(project: Project) -> None:
    with pytest.raises(ExtensionError, match="its `texts` must return strings"):
        judged_by(project, "wrong", [1]).plan()
