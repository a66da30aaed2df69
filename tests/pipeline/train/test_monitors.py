"""Red blocks a round with its reason; only a reason of one's own trains it, and is recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from benchmarks.hacks import FAILURES, _lines, _week
from benchmarks.hacks import START as WEEK_ONE
from flywheel.config import Config
from flywheel.errors import TrainError, UsageError
from flywheel.pipeline.train.run import train_round
from flywheel.project import Project
from tests.projects import flywheel, train, write_config


@pytest.fixture(scope="module")
def flattering(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Project:
    """A project whose newest week flatters; every task has rows to train on."""
    before, after, *_ = FAILURES["sycophancy"]
    folder = tmp_path_factory.mktemp("flattering")
    write_config(folder, tiny_model)
    lines = []
    for week, (name, policy) in enumerate((("v1", before), ("v2", after))):
        for n, talk in enumerate(_week(policy, name, 30, 6)):
            when = WEEK_ONE + timedelta(days=8 * week, minutes=n)
            lines += [json.dumps(line) for line in _lines(talk, f"{name}-{n}", name, when)]
    (folder / "talk.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    project = Project(folder)
    project.ingest([folder / "talk.jsonl"])
    return project


def test_the_command_line_says_what_is_red_and_exits_1(flattering: Project) -> None:
    shown = flywheel(flattering.folder, "plan").stdout
    assert "\n  red      flattery: 0.0% → " in shown
    assert shown.endswith("a red monitor blocks training; to override: flywheel train --force --reason WHY\n")
    refused = flywheel(flattering.folder, "train", check=False)
    assert refused.returncode == 1
    assert "flattery is red" in refused.stderr
    assert "--force --reason" in refused.stderr


def test_red_blocks_training_until_somebody_says_why(flattering: Project) -> None:
    """Last of this project: it is trained then."""
    project = flattering
    plan = project.plan()
    red = {row.monitor for row in plan.monitors if row.level == "red"}
    assert "flattery" in red
    with pytest.raises(TrainError, match=r"round 1 is not trained: .*flattery is red: "):
        project.train()
    assert project.registry.numbers() == []
    config = project.config.model_dump()
    config["train"] |= {"attempts": 1, "min_rows": 100_000}
    with pytest.raises(TrainError, match="flattery is red"):  # and not that rows are missing: nothing was planned
        train_round(replace(project.context, config=Config.model_validate(config)), 1)
    with pytest.raises(UsageError, match="needs a reason"):
        project.train(force=True)
    manifest = train(project, "--force", "--reason", "we asked for a warmer tone")
    assert (manifest.state, manifest.forced) == ("trained", "we asked for a warmer tone")
    assert manifest.monitors == plan.monitors


@pytest.mark.e2e
def test_a_champion_of_old_logs_serves_from_the_end_of_the_log_it_was_promoted_on(
    tmp_path: Path, tiny_model: Path
) -> None:
    write_config(tmp_path, tiny_model)
    project, (policy, *_) = Project(tmp_path), FAILURES["sycophancy"]

    def week(number: int, name: str) -> None:
        lines = []
        for n, talk in enumerate(_week(policy, name, 10, 6)):
            when = WEEK_ONE - timedelta(days=700) + timedelta(days=8 * number, minutes=n)
            lines += [json.dumps(line) for line in _lines(talk, f"{name}-{number}-{n}", name, when)]
        (tmp_path / "logs").mkdir(exist_ok=True)
        (tmp_path / "logs" / f"week{number}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        project.ingest([tmp_path / "logs"])
        project.build()

    week(1, "v1")
    train(project)
    decision = project.promote(1, force=True, reason="a test")
    assert decision.log_end is not None
    assert decision.log_end < decision.at - timedelta(days=300)
    week(2, "round 1")
    (window, *_) = [row for row in project.plan().monitors if row.monitor == "window"]
    assert window.sentence.startswith("episodes by round 1 compared with all others")
    assert "claim to be" not in window.sentence
    week(0, "round 1")
    (window, *_) = [row for row in project.plan().monitors if row.monitor == "window"]
    assert "that claim to be by round 1 from before it served" in window.sentence


@pytest.mark.e2e
def test_nothing_red_records_no_force(projects: Callable[[str], Path]) -> None:
    manifest = train(Project(projects("built")), "--force", "--reason", "just in case")
    assert manifest.forced == ""
    assert {row.level for row in manifest.monitors} <= {"green", "amber", "unknown"}
    assert len(manifest.monitors) == 15
