"""What `forget` and `gc` print, ask and return."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.pipeline.privacy.test_find import ANN, BOB, acted, make_round, project_of, said
from tests.projects import flywheel


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose champion learnt from Ann."""
    project = project_of(tmp_path, said("hers", "ann"), acted("hers"), said("his", "bob"), acted("his"))
    make_round(project, 1, [ANN, BOB])
    project.promote(1, force=True, reason="rehearsal")
    return tmp_path


def test_what_forget_and_gc_say(folder: Path) -> None:
    asked = flywheel(folder, "forget", "--user", "ann", check=False)
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "--yes" in asked.stderr

    dry = flywheel(folder, "forget", "--user", "ann", "--dry-run").stdout.splitlines()
    assert dry[0] == f"{ANN}: would be removed"
    assert "conversations  1" in dry
    assert dry[-4:] == [
        "round 1 is tainted: trained on 1 of the user's rows",
        "champion: round 1 → the base model",
        "not reached: the logs, backups, and what export, view --bundle and audit --out wrote",
        "dry run: nothing was changed",
    ]

    done = flywheel(folder, "forget", "--user", "ann", "--yes").stdout.splitlines()
    assert done[0] == f"{ANN}: removed"
    assert done[-2:] == ["certificate appended to rounds/forgotten.jsonl", "next  flywheel train --round 2"]

    again = flywheel(folder, "forget", "--user", ANN, "--yes").stdout
    assert re.fullmatch(rf"{ANN} was already forgotten at .* UTC; there is no data left\n", again)

    cleaned = flywheel(folder, "gc").stdout.splitlines()
    assert cleaned == [
        "tainted adapters  1  9 B  trained on data of forgotten users",
        "9 B removed",
    ]
    assert flywheel(folder, "gc").stdout == "nothing to remove\n"
    answer = json.loads(flywheel(folder, "--json", "gc", "--dry-run").stdout)
    assert answer == {"dry_run": True, "rows": [], "count": 0, "size_bytes": 0}

    unknown = flywheel(folder, "forget", "--user", "nobody", "--yes", check=False)
    assert unknown.returncode == 1
    assert "the store has no data of this user" in unknown.stderr
