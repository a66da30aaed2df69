"""Shipped recipes load and are in order; a project's own file wins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from flywheel.errors import ConfigError, ExitCode, UsageError
from flywheel.io.files import shipped
from flywheel.pipeline.nightly.pipelines import find_recipe, recipe_names
from flywheel.pipeline.nightly.run import stages_between
from flywheel.project import Project


@pytest.mark.parametrize("name", [p.stem for p in shipped("pipelines").glob("*.toml")])
def test_every_shipped_recipe_fits(name: str, tmp_path: Path) -> None:
    assert find_recipe(tmp_path, name).name == name


def test_nightly_is_the_shipped_one_until_the_project_has_its_own(tmp_path: Path) -> None:
    assert find_recipe(tmp_path, "nightly").name == "dpo_nightly"
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "nightly.toml").write_text('name = "mine"\nstages = ["ingest", "links", "episodes"]\n')
    assert find_recipe(tmp_path, "nightly").stages == ["ingest", "links", "episodes"]
    assert recipe_names(tmp_path) == ["dpo_nightly", "nightly"]


def test_a_recipe_out_of_order_or_unknown_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "bad.toml").write_text('name = "bad"\nstages = ["pairs"]\n')
    with pytest.raises(ConfigError, match=r"bad\.toml.*needs tasks"):
        find_recipe(tmp_path, "bad")
    with pytest.raises(ConfigError, match="no pipeline named `weekly`"):
        find_recipe(tmp_path, "weekly")


def test_from_and_until() -> None:
    names = ["ingest", "links", "episodes", "opinions", "rewards"]
    assert stages_between(names, None, None) == names
    assert stages_between(names, "episodes", "episodes") == ["episodes"]
    with pytest.raises(UsageError, match="no stage `gate`"):
        stages_between(names, "gate", None)
    with pytest.raises(UsageError, match="`episodes` comes after `links`"):
        stages_between(names, "episodes", "links")


def test_a_night_waits_for_the_challenger_alone(projects: Callable[[str], Path]) -> None:
    """Not for an exploratory look at it by other suites; there is always news for one without a look."""
    project = Project(projects("evaluated"))
    ledger = project.registry.candidates
    (challenger,) = ledger.candidates()

    def outcome() -> str:
        return project.run(since="train", until="train").stages[0].outcome

    other = {"candidate": 2, "protocol_sha256": "other suites", "previous_sha256": ""}
    ledger.append(challenger.registered.model_copy(update=other))  # never looked at: all is news to it
    assert outcome().startswith("waiting: ")  # for rows, for the next round

    look = ledger.look(challenger, {}, {"t": (0.0, 1)}, "scores of a smaller holdout", holdout_sha256="smaller")
    decision = project.registry.promotions()[-1]
    project.registry.decide(decision.model_copy(update={"ledger_sha256": look}))
    assert outcome() == "round 1 is the challenger and not decided yet: tonight adds to its evidence"


def test_a_part_of_a_run_that_finds_nothing_new_has_done_nothing(tmp_path: Path, sample_logs: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.jsonl").write_bytes((sample_logs / "native.jsonl").read_bytes())
    project = Project(tmp_path)
    codes = [project.run("nightly", until="episodes").exit_code for _ in range(2)]
    assert codes == [ExitCode.DONE, ExitCode.NOTHING]
