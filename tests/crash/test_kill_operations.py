"""kill -9 at every place where `forget`, `gc`, `promote` or `rollback` changes the disk, then the same command again.

`make test` kills at one place in two of `forget`, which has the most, and at each of the others.

The project has small logs and four rounds made by hand: what counts is the order in which files appear and go.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from flywheel.io import hash_chain
from flywheel.project import Project
from flywheel.store import FORGETTING
from tests.commands import flywheel, killed_everywhere
from tests.pipeline.privacy.test_find import ANN, BOB, EVE, acted, make_round, project_of, said
from tests.projects import champion_is_valid, digest

_NUMBER = re.compile(r"/\d+\.json$")
FORGET = ("forget", "--user", "ann", "--yes")
GC = ("gc", "--keep-snapshots", "1", "--keep-rounds", "1", "--keep-cache", "0", "--yes")
PROMOTE = ("promote", "4", "--force", "--yes", "--reason", "rehearsal")
ROLLBACK = ("rollback", "--to", "3", "--yes", "--reason", "rehearsal over")


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four rounds: 2 was trained on Ann's rows and 3 descends from it; 1, 2 and 3 were champion in turn."""
    folder = tmp_path_factory.mktemp("rounds") / "p"
    project = project_of(folder, said("hers", "ann"), acted("hers"), said("his", "bob"), acted("his"))
    for number, users, parent in ((1, [BOB], None), (2, [ANN, BOB], 1), (3, [BOB], 2), (4, [EVE], None)):
        make_round(project, number, users, parent)
    for number in (1, 2, 3):
        project.promote(number, force=True, reason="rehearsal")
    (project.registry.folder(3) / "work").mkdir()
    (project.registry.folder(3) / "work" / "checkpoint").write_text("a checkpoint")
    project.store.cache("scores", "old", [1])
    return folder


@pytest.fixture(scope="module")
def forgotten(rounds: Path) -> Path:
    """The same project after Ann was forgotten."""
    return _after(rounds, FORGET)


def _after(before: Path, command: tuple[str, ...]) -> Path:
    project = before.with_name(command[0])
    if not project.exists():
        shutil.copytree(before, project, symlinks=True)
        flywheel(project, *command)
    return project


def _killed(before: Path, command: tuple[str, ...], project: Path, *, refused: int = 0, one_in: int = 1) -> int:
    """Kill the command at each of its places on a copy of a project, which must stay whole; return the kills."""
    shutil.copytree(before, project, symlinks=True)
    kills = killed_everywhere(
        project, *command, removals=True, before=command is FORGET, refused=refused, one_in=one_in
    )
    assert champion_is_valid(project)
    assert list(project.rglob("*.partial")) == []
    assert hash_chain.breaks(project / "rounds" / "promotions.jsonl", head=None) == []
    return kills


def _certificates(project: Path) -> list[dict[str, Any]]:
    return [c.model_dump(mode="json", exclude={"at"}) for c in Project(project).registry.certificates()]


def _files(project: Path) -> set[str]:
    """Return the files of a project but locks, without the numbers of snapshots: a resumed command may commit again."""
    paths = [path for path in project.rglob("*") if not path.name.startswith("lock")]
    return {_NUMBER.sub("/N.json", str(path.relative_to(project))) for path in paths}


@pytest.mark.parametrize("one_in", [8, pytest.param(1, marks=pytest.mark.e2e)])
def test_killed_while_forgetting(rounds: Path, forgotten: Path, tmp_path: Path, one_in: int) -> None:
    """Any command goes on with what was intended, and the last one finds it done or does it."""
    assert _killed(rounds, FORGET, tmp_path / "p", one_in=one_in) > 24 / one_in

    assert digest(tmp_path / "p") == digest(forgotten)
    assert _certificates(tmp_path / "p") == _certificates(forgotten)
    assert _files(tmp_path / "p") == _files(forgotten)
    assert not (tmp_path / "p" / ".flywheel" / FORGETTING).exists()


def test_killed_at_every_place_while_removing_files(forgotten: Path, tmp_path: Path) -> None:
    reference = _after(forgotten, GC)

    assert _killed(forgotten, GC, tmp_path / "p") > 5

    assert digest(tmp_path / "p") == digest(reference)
    assert _files(tmp_path / "p") == _files(reference) < _files(forgotten)
    assert Project(tmp_path / "p").store.orphans() == []


def test_killed_at_every_place_while_promoting(rounds: Path, tmp_path: Path) -> None:
    promoted = digest(_after(rounds, PROMOTE))

    assert _killed(rounds, PROMOTE, tmp_path / "p") > 3

    assert digest(tmp_path / "p") == promoted


def test_killed_at_every_place_while_rolling_back(rounds: Path, tmp_path: Path) -> None:
    """Typed again, it is refused where the champion has already moved; there is one decision."""
    rolled_back = digest(_after(_after(rounds, PROMOTE), ROLLBACK))

    assert _killed(rounds.with_name("promote"), ROLLBACK, tmp_path / "p", refused=1) > 3

    assert digest(tmp_path / "p") == rolled_back
