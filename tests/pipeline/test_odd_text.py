"""Logs hold every character there is: what cuts a text elsewhere (U+2028, U+0085, a lone surrogate) goes through."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from flywheel.errors import TrainError
from flywheel.io import files
from flywheel.project import Project
from flywheel.records import content_id
from flywheel.registry.registry import DATASET
from hypothesis import given
from hypothesis import strategies as st
from tests.projects import train

ODD = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x00h\ud83di\r\nj\u202ek\ufeffl"
LETTERS = str.maketrans("0123456789", "ghijklmnop")  # digits do not tell tasks apart
CONFIG = """
[model]
base = "{model}"
dtype = "float32"

[episodes]
holdout_share = 0.3

[train]
method = "sft"
max_steps = 2
batch_size = 2
threads = 1

[eval]
suites = ["next_action"]
max_cases = 5
max_new_tokens = 2
"""


def talk(number: int) -> list[dict[str, Any]]:
    """One conversation of a user, odd in every text."""
    parameters = {"type": "object", "properties": {"at": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "look", "description": ODD, "parameters": parameters}}
    asked = {
        "messages": [{"role": "user", "content": f"{content_id(number).translate(LETTERS)} {ODD}"}],
        "tools": [tool],
    }
    call = {"id": f"c{number}", "name": "look", "arguments": {"at": f"{ODD}{number}"}}
    made: list[dict[str, Any]] = [
        {"kind": "request", "user": f"user{number % 6}", "payload": asked},
        {"kind": "model_call", "payload": {"message": {"role": "assistant", "content": ODD, "tool_calls": [call]}}},
        {"kind": "tool_result", "tool_name": "look", "tool_call_id": call["id"], "payload": {"content": f"there{ODD}"}},
        {"kind": "model_call", "payload": {"message": {"role": "assistant", "content": f"It is there.{ODD}{number}"}}},
        {"kind": "outcome", "payload": {"name": "check", "value": float(number % 4 > 0)}},
    ]
    return [{"conversation_id": f"talk-{number}", "seq": seq, **event} for seq, event in enumerate(made)]


@pytest.fixture
def project(tmp_path: Path, tiny_model: Path) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    text = CONFIG.format(model=tiny_model)
    (folder / "flywheel.toml").write_text(text, encoding="utf-8")
    log = folder / "log.jsonl"
    log.write_text("\n".join(json.dumps(line) for n in range(40) for line in talk(n)), encoding="utf-8")
    made = Project(folder)
    made.ingest([log])
    made.build()
    return made


@pytest.mark.e2e
def test_odd_text_goes_round_the_wheel(project: Project, tmp_path: Path) -> None:
    plan = project.plan(1)
    train(project)
    dataset = (project.registry.folder(1) / DATASET).read_text(encoding="utf-8")
    assert "\u2028" in dataset
    assert len(files.lines(dataset)) == plan.rows < len(dataset.splitlines())
    assert project.evaluate(1).report.metrics
    project.promote(1, force=True, reason=ODD)
    assert not project.registry.problems([1])
    assert project.plan(2).parent == 1
    project.export(tmp_path / "datasets")
    assert files.read_rows(tmp_path / "datasets" / "sft.jsonl")
    project.forget("user1")
    assert project.plan(2).rows


def test_names_of_files_may_be_no_text(tmp_path: Path) -> None:
    logs = tmp_path / os.fsdecode(b"caf\xe9")
    logs.mkdir()
    written = "".join(json.dumps(line) + "\n" for n in range(8) for line in talk(n)) + "{\n"
    log = logs / os.fsdecode(b"\xff.jsonl")
    log.write_text(written, encoding="utf-8")
    with tarfile.open(logs / "packed.tar", "w") as archive:
        archive.add(log, os.fsdecode(b"in/\xfe.jsonl"))
    project = Project(tmp_path)
    first = project.ingest([logs])
    assert (first.files, first.events, sum(first.quarantined.values())) == (2, 8 * len(talk(0)), 2)
    names = {row.source_file for row in project.quarantine().rows}
    assert names == {"caf\\xe9/\\xff.jsonl", "caf\\xe9/packed.tar!/in/\\xfe.jsonl"}
    assert project.ingest([logs]).unchanged == 2
    assert project.quarantine_retry().files == 2


@pytest.mark.e2e
def test_a_golden_row_may_have_odd_text(project: Project) -> None:
    (project.folder / "golden").mkdir()
    row = {"prompt": f"Delete everything.{ODD}", "completion": {"role": "assistant", "content": f"No.{ODD[:5]}"}}
    text = json.dumps(row, ensure_ascii=False).encode("utf-8", "replace")
    (project.folder / "golden" / "rules.jsonl").write_bytes(text + b"\n" + text.replace(b"No", b"Never"))
    assert project.plan(1).card.mix["golden"] == 2


def test_a_folders_name_may_end_like_an_archives(tmp_path: Path) -> None:
    log = tmp_path / "really!" / "log.jsonl"
    log.parent.mkdir()
    log.write_text("".join(json.dumps(line) + "\n" for n in range(8) for line in talk(n)) + "{\n", encoding="utf-8")
    project = Project(tmp_path)
    assert project.ingest([log.parent]).events == 8 * len(talk(0))
    assert {row.source_file for row in project.quarantine().rows} == {"really\\x21/log.jsonl"}
    assert project.quarantine_retry().files == 1
    assert project.ingest([log.parent]).unchanged == 1


def test_half_a_character_in_a_golden_row_is_named(project: Project) -> None:
    (project.folder / "golden").mkdir()
    row = {"prompt": "Hello.", "completion": {"role": "assistant", "content": "\ud83d"}}
    (project.folder / "golden" / "rules.jsonl").write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(TrainError, match=r"golden/rules.jsonl:1: unpaired surrogate"):
        project.plan(1)


@given(st.lists(st.text(st.characters(exclude_characters="\n"))))
def test_only_a_line_feed_ends_a_line(written: list[str]) -> None:
    assert files.lines("".join(f"{line}\n" for line in written)) == written
    assert files.lines("\n".join([*written, "end"])) == [*written, "end"]
