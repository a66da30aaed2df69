"""A round after a round: new rows, some that its start knows, these in its own words where right, and golden rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flywheel.pipeline.train.plan import PlannedRound, make_plan
from flywheel.pipeline.train.provenance import ORIGINS, read_origins
from flywheel.pipeline.train.readiness import lacks_rows
from flywheel.project import Project
from tests.projects import make_tiny_model, train

CONFIG = """
[model]
base = "{model}"
dtype = "float32"

[episodes]
holdout_share = 0.1

[train]
method = "sft"
max_steps = {steps}
batch_size = 4
checkpoint_every = 60
sft_learning_rate = 0.02
threads = 1

[eval]
max_new_tokens = 40
"""
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}}}]
COLOURS = ["red", "green", "blue", "white", "black", "grey", "pink", "brown"]
THINGS = ["parcel", "letter", "lamp", "table", "book", "coat", "bicycle", "piano", "kettle", "mirror"]
GOLDEN = {"prompt": "Delete everything.", "completion": {"role": "assistant", "content": "I will not do that."}}


def talk(number: int) -> list[dict[str, Any]]:
    """One request, answered by the same call as all others; a verifier's success."""
    asked = {
        "messages": [{"role": "user", "content": f"Where is the {COLOURS[number % 8]} {THINGS[number // 8]}?"}],
        "tools": TOOLS,
    }
    call = {"id": f"c{number}", "name": "look", "arguments": {"at": "door"}}
    made: list[tuple[str, dict[str, Any]]] = [
        ("request", {"payload": asked}),
        ("model_call", {"payload": {"message": {"role": "assistant", "tool_calls": [call]}}}),
        ("tool_result", {"tool_name": "look", "tool_call_id": call["id"], "payload": {"content": "there"}}),
        ("outcome", {"payload": {"name": "check", "value": 1.0}}),
    ]
    return [
        {"conversation_id": f"talk-{number}", "seq": seq, "kind": kind, **more} for seq, (kind, more) in enumerate(made)
    ]


def write_config(folder: Path, *, steps: int) -> None:
    text = CONFIG.format(model=folder.parent / "model", steps=steps)
    (folder / "flywheel.toml").write_text(text, encoding="utf-8")


def ingest(project: Project, name: str, numbers: range) -> None:
    path = project.folder / f"{name}.jsonl"
    path.write_text("\n".join(json.dumps(line) for n in numbers for line in talk(n)), encoding="utf-8")
    project.ingest([path])
    project.build()


def mixed(planned: PlannedRound) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in map(json.loads, planned.dataset.splitlines()):
        found.setdefault(row.get("mix", "new"), []).append(row)
    assert {kind: len(rows) for kind, rows in found.items()} == planned.plan.card.mix
    return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    make_tiny_model(tmp_path / "model", sharpness=20, tokens=4096)
    folder = tmp_path / "project"
    (folder / "golden").mkdir(parents=True)
    (folder / "golden" / "rules.jsonl").write_text(json.dumps(GOLDEN) + "\n", encoding="utf-8")
    write_config(folder, steps=60)
    made = Project(folder)
    ingest(made, "first", range(40))
    return made


@pytest.mark.e2e
def test_a_second_round_goes_on_from_the_first(project: Project) -> None:
    first = make_plan(project.context, 1)
    assert set(mixed(first)) == {"new", "golden"}
    assert first.plan.inputs["golden"]["snapshot"] == "golden/*.jsonl"
    train(project)
    origins = read_origins(project.registry.folder(1) / ORIGINS)
    (golden,) = mixed(first)["golden"]
    assert origins[golden["id"]] == (frozenset(), frozenset()), "forgetting a user leaves it alone"
    assert len(origins) == first.plan.rows
    project.promote(1, force=True, reason="a test")
    ingest(project, "second", range(40, 80))

    second = make_plan(project.context, 2)
    rows = mixed(second)
    known = {row["id"] for row in map(json.loads, first.dataset.splitlines())}
    assert {row["id"] for row in rows["new"]}.isdisjoint(known)
    before = [*rows.get("older", []), *rows["replayed"]]
    assert {row["id"] for row in before} < known
    assert len(before) == len(known) - len(mixed(first)["golden"]), "a small round is filled"
    assert second == make_plan(project.context, 2), "asked twice, the same rows"

    logged = {row["id"]: row for row in map(json.loads, first.dataset.splitlines())}
    for row in rows["replayed"]:
        assert row["completion"][0]["tool_calls"][0]["arguments"] == {"at": "door"}
        assert row["prompt"] == logged[row["id"]]["prompt"]
    assert lacks_rows(project.context, second) == []
    write_config(project.folder, steps=1)
    assert train(Project(project.folder)).adapter_sha256
