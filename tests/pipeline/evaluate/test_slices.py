"""The logged attempts at held-out tasks, which a round's slices are made of."""

from __future__ import annotations

from pathlib import Path

import pytest
from flywheel.config import SliceRule
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.evaluate.logged_attempts import held_out
from flywheel.project import Project
from flywheel.stages.evaluate.slices import case_slices


@pytest.mark.slow
def test_a_round_is_sliced_by_what_the_log_holds_of_its_held_out_tasks(tmp_path: Path, sample_logs: Path) -> None:
    project = Project(tmp_path)
    project.ingest([sample_logs])
    project.build()
    episodes = read_table(project.store, "episodes").collect()
    held = episodes.filter(episodes["split"] == "holdout")

    attempts = held_out(project.context, held).attempts
    assert {a.episode_id for a in attempts} == set(held["episode_id"].to_list())
    assert any(a.tools for a in attempts)
    assert {a.columns["policy"] for a in attempts} == set(held["policy"].to_list())

    cases = {a.task_id: [b for b in attempts if b.task_id == a.task_id] for a in attempts}
    tools = sorted({tool for a in attempts for tool in a.tools})
    found = case_slices(cases, [SliceRule(name="one", tool=tools[0]), SliceRule(name="none", where={"model": "?"})])
    assert {case for case, kinds in found.items() if "slice one" in kinds} == {
        a.task_id for a in attempts if tools[0] in a.tools
    }
    assert not any("slice none" in kinds for kinds in found.values())
