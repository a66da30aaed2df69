"""The recipes in pipelines/: from their sample logs to a plan, and what their pairs teach."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flywheel.project import Project

ROOT = Path(__file__).parents[1]
RECIPES = ("coding_agent", "deep_research", "editor")


def made(recipe: str, model: Path, folder: Path) -> Project:
    """Copy a recipe, with a tiny model in the place of the embedded one, and read its logs."""
    shutil.copytree(ROOT / "pipelines" / recipe, folder)
    config = folder / "flywheel.toml"
    config.write_text(config.read_text().replace('base = "embedded"', f'base = "{model}"'))
    project = Project(folder)
    answer = project.ingest()
    assert not answer.quarantined
    return project


@pytest.mark.parametrize(
    ("recipe", "method", "rows"),
    [
        pytest.param("coding_agent", "dpo", 40, marks=pytest.mark.e2e),
        pytest.param("deep_research", "grpo", 20, marks=pytest.mark.e2e),
        ("editor", "dpo", 20),
    ],
)
def test_a_recipe_goes_from_its_logs_to_a_plan(
    recipe: str, method: str, rows: int, tiny_model: Path, tmp_path: Path
) -> None:
    project = made(recipe, tiny_model, tmp_path / recipe)
    plan = project.plan()
    assert plan.method == method
    assert plan.rows >= rows
    if recipe == "deep_research":
        assert project.plan(method="sft").rows >= rows
    wrong = [pair for pair in pairs_of(project, tmp_path / "out") if not TEACHES[recipe](pair)]
    assert not wrong, wrong[:1]


def pairs_of(project: Project, out: Path) -> list[dict[str, Any]]:
    project.export(out, forms=["preference"])
    return [json.loads(line) for line in (out / "preference.jsonl").read_text().splitlines()]


def said(message: dict[str, Any]) -> str:
    calls = [f"{c['function']['name']} {json.dumps(c['function']['arguments'])}" for c in message.get("tool_calls", ())]
    return " ".join([*calls, message["content"]])


TEACHES = {  # the worlds' truth
    "coding_agent": lambda pair: said(pair["chosen"][0]).startswith("read_file"),
    "deep_research": lambda pair: (
        "opened" in said(pair["chosen"][0])
        or "open_page" in said(pair["chosen"][0])
        or "I will call" in said(pair["rejected"][0])
    ),
    "editor": lambda pair: "list" in said(pair["chosen"][0]),
}


def test_the_logs_of_recipes_are_those_that_their_script_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "pipelines" / "generate.py"), str(tmp_path)], check=True)
    for recipe in RECIPES:
        for path in (tmp_path / recipe / "logs").iterdir():
            assert path.read_bytes() == (ROOT / "pipelines" / recipe / "logs" / path.name).read_bytes()


@pytest.mark.e2e
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_trains(recipe: str, tiny_model: Path, tmp_path: Path) -> None:
    project = made(recipe, tiny_model, tmp_path / recipe)
    methods = ["sft", None] if recipe == "deep_research" else [None]
    for number, method in enumerate(methods, 1):
        project.train(method=method, force=True, reason="a test")
        assert (tmp_path / recipe / "rounds" / f"{number:04}" / "adapter" / "adapter_model.safetensors").is_file()
