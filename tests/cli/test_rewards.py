"""rewards, audit and explain as a user sees them; log text can do nothing to the terminal that shows it."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import polars as pl
import pytest
from flywheel import Project
from flywheel.cli.rewards import excerpt
from flywheel.pipeline.admin.schemas import schema_document
from tests.cli.test_wheel import masked
from tests.projects import FLYWHEEL

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


@pytest.fixture(scope="module")
def project(projects: Callable[[str], Path]) -> Path:
    return projects("built")


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [FLYWHEEL, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=project, stdin=subprocess.DEVNULL)


def an_episode(project: Path) -> str:
    """Return the id of the episode on which most signals vote."""
    returns = Project(project).store.table("returns", "returns").filter(pl.col("step").is_null()).collect()
    return str(returns.sort("n_support", "episode_id", descending=[True, False])["episode_id"][0])


def printed(done: subprocess.CompletedProcess[str], project: Path) -> str:
    return masked(f"exit {done.returncode}\n{done.stdout}--- stderr\n{done.stderr}", project)


@pytest.mark.parametrize("name", ["rewards", "explain", "audit", "audit without a terminal", "answers", "no answers"])
def test_what_a_user_sees(name: str, project: Path, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    folder = tmp_path / "p"
    shutil.copytree(project, folder)
    steps = {
        "rewards": ("rewards",),
        "explain": ("explain", an_episode(folder)),
        "audit": ("audit", "--n", "40", "--out", "q.jsonl"),
        "audit without a terminal": ("audit",),
        "answers": ("audit", "--answers", "q.jsonl"),
        "no answers": ("audit", "--answers", "q.jsonl"),
    }
    if name == "answers":
        run(folder, "audit", "--n", "40", "--out", "q.jsonl")
        lines = [json.loads(line) for line in (folder / "q.jsonl").read_text().splitlines()]
        lines = [row | {"success": n % 3 > 0} for n, row in enumerate(lines)]
        (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    assert printed(run(folder, *steps[name]), folder) == snapshot


@pytest.mark.parametrize(("schema", "arguments"), [("cli/rewards", ("rewards",)), ("cli/explain", ("explain", ""))])
def test_json_answers_fit_their_schemas(schema: str, arguments: tuple[str, ...], project: Path) -> None:
    filled = [argument or an_episode(project) for argument in arguments]
    answer = json.loads(run(project, *filled, "--json").stdout)
    jsonschema.validate(answer, schema_document(schema))


def test_questions_and_the_audits_answer_fit_their_schemas(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    shutil.copytree(project, folder)
    answer = json.loads(run(folder, "audit", "--n", "3", "--out", "q.jsonl", "--json").stdout)
    jsonschema.validate(answer, schema_document("cli/audit"))
    for line in (folder / "q.jsonl").read_text().splitlines():
        jsonschema.validate(json.loads(line), schema_document("cli/audit_question"))


def asked(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """Return an audit of five episodes, and the terminal on which it asks."""
    ours, theirs = pty.openpty()
    asking = subprocess.Popen(
        [FLYWHEEL, "audit", "--n", "5"], cwd=folder, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True
    )
    os.close(theirs)
    return asking, ours


def test_on_a_terminal_it_asks(project: Path, tmp_path: Path) -> None:
    asking, ours = asked(Path(shutil.copytree(project, tmp_path / "p")))
    for letter in ("x", "y", "n", "s", "q"):  # a key that means nothing is asked again
        _until(ours, b"[q]uit")
        os.write(ours, f"{letter}\n".encode())
    out, _ = asking.communicate(timeout=60)
    os.close(ours)
    assert "5 of" in out
    assert "2 answered" in out
    assert "recorded 2 answers" in out


def test_ctrl_c_at_a_question_keeps_the_answers(project: Path, tmp_path: Path) -> None:
    asking, ours = asked(Path(shutil.copytree(project, tmp_path / "p")))
    _until(ours, b"[q]uit")
    os.write(ours, b"y\n")
    _until(ours, b"[q]uit")
    asking.send_signal(signal.SIGINT)  # a key is not waited for
    out, _ = asking.communicate(timeout=60)
    os.close(ours)
    assert asking.returncode == 130
    assert "recorded 1 answer" in out


def _until(terminal: int, words: bytes) -> None:
    seen, deadline = b"", time.monotonic() + 60
    while words not in seen:
        assert time.monotonic() < deadline, seen[-500:]
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 4096)


def test_log_text_cannot_drive_the_terminal() -> None:
    assert excerpt("a\x1b[2Jb\x07\u202ec\x9b") == "a\ufffd[2Jb\ufffd\ufffdc\ufffd"
    assert excerpt("one\ntwo").splitlines()[1].strip() == "two"
    assert excerpt("x" * 1000).endswith("(300 more)")
