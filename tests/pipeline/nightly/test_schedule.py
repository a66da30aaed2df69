"""flywheel schedule: files that cron, systemd and Airflow take, also where the path is an awkward one."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer.main
from flywheel.cli.app import app
from flywheel.errors import UsageError
from flywheel.pipeline.nightly.pipelines import find_recipe
from flywheel.pipeline.nightly.schedule import schedule
from tests.projects import FLYWHEEL


def made(scheduler: str, folder: Path, at: str = "02:05") -> str:
    return schedule(scheduler, folder=folder, command=Path(FLYWHEEL), at=at, pipeline="nightly")


@pytest.mark.parametrize("name", [pytest.param("agent", marks=pytest.mark.e2e), "it's 50% off, my agent"])
def test_the_crontab_line_runs_the_command_in_the_folder(tmp_path: Path, name: str) -> None:
    r"""The line is run by a shell as cron does it: next to no environment, and `\%` undone, since % ends a line."""
    folder = tmp_path / name
    folder.mkdir()
    (line,) = [line for line in made("cron", folder).splitlines() if not line.startswith("#")]
    minute, hour, *rest = line.split(" ", 5)
    done = subprocess.run(
        ["/bin/sh", "-c", rest[-1].replace("\\%", "%")], cwd="/", check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SHELL": "/bin/sh"}, capture_output=True, text=True,
    )  # fmt: skip

    assert (minute, hour, rest[:3]) == ("5", "2", ["*", "*", "*"])
    assert "%" not in line.replace("\\%", "")
    assert done.returncode != 0  # there are no logs
    assert "error:" in (folder / ".flywheel" / "nightly.log").read_text()
    assert "error:" in done.stdout, "cron mails what the line prints: a night that failed is not silent"


def _crond() -> str | None:
    """Return a busybox with a cron in it; the only one that takes its tables from any folder."""
    busybox = os.environ.get("BUSYBOX") or shutil.which("busybox")
    if busybox is None:
        return None
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=False).stdout.split()
    return busybox if "crond" in applets else None


@pytest.mark.e2e
def test_a_real_cron_runs_the_line(tmp_path: Path) -> None:
    busybox = _crond()
    if busybox is None or os.geteuid() != 0:
        pytest.skip("no cron that a test may run: busybox's, as root (apt install busybox-static)")
    folder, tables = tmp_path / "my agent", tmp_path / "tables"
    folder.mkdir()
    tables.mkdir()
    soon = datetime.now().astimezone() + timedelta(seconds=70)
    (tables / "root").write_text(made("cron", folder, soon.strftime("%H:%M")))
    cron = subprocess.Popen([busybox, "crond", "-f", "-c", str(tables), "-L", str(tmp_path / "log")])
    try:
        log, deadline = folder / ".flywheel" / "nightly.log", time.monotonic() + 300
        while time.monotonic() < deadline and not (log.exists() and "hint:" in log.read_text()):
            time.sleep(0.5)
    finally:
        cron.terminate()
        cron.wait()
    assert "does not exist" in log.read_text()  # the logs: it got as far as reading


@pytest.mark.parametrize("name", ["agent", "my agent", "50% off"])
def test_systemd_takes_the_units(tmp_path: Path, name: str) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    folder = tmp_path / name
    folder.mkdir()
    _, service, timer = made("systemd", folder).split("# --- ")
    for unit in (service, timer):
        head, text = unit.split("\n", 1)
        (tmp_path / head.removesuffix(" ---")).write_text(text)
    done = subprocess.run(
        [analyze, "verify", str(tmp_path / "flywheel.service"), str(tmp_path / "flywheel.timer")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert "flywheel" not in done.stderr, done.stderr
    assert done.returncode == 0
    assert "SuccessExitStatus=3 99" in service
    assert "02:05:00" in timer


def test_an_awkward_path_is_one_word_of_the_crontab() -> None:
    line = made("cron", Path("/srv/my agent")).splitlines()[-1]
    assert "/srv/my agent" in shlex.split(line)


def assigned(text: str) -> dict[str, Any]:
    """Return the constants that a module assigns."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.Tuple):
            (target,) = node.targets
            found[ast.unparse(target).strip("()")] = ast.literal_eval(node.value)
    return found


@pytest.mark.parametrize("name", ["agent", "my agent", 'a "quoted" one', "back\\slash", "it's"])
def test_the_dag_has_the_projects_values_and_nothing_else_changed(name: str, tmp_path: Path, root: Path) -> None:
    text = made("airflow", tmp_path / name)
    values, shipped = assigned(text), (root / "pipelines" / "airflow" / "flywheel_nightly.py").read_text()

    assert {k: values[k] for k in ("PROJECT", "COMMAND", "PIPELINE", "SCHEDULE")} == {
        "PROJECT": str(tmp_path / name), "COMMAND": FLYWHEEL, "PIPELINE": "nightly", "SCHEDULE": "5 2 * * *",
    }  # fmt: skip
    changed = [a for a, b in zip(text.splitlines(), shipped.splitlines(), strict=True) if a != b]
    assert [line.split(" = ")[0] for line in changed] == ["PROJECT", "COMMAND", "SCHEDULE"]


def test_the_dag_has_a_task_for_every_stage_and_types_what_the_command_line_knows(tmp_path: Path, root: Path) -> None:
    shipped = (root / "pipelines" / "airflow" / "flywheel_nightly.py").read_text()
    assert list(assigned(shipped)["STAGES"]) == find_recipe(tmp_path, "nightly").stages
    command: Any = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", shipped.partition("bash_command=")[2].partition("\n")[0])) <= known
    assert assigned(shipped)["HELD, NOTHING"] == (3, 99)


def test_another_pipeline_is_another_dag(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "tables.toml").write_text('name = "tables"\nstages = ["ingest", "links", "notify"]\n')
    text = schedule("airflow", folder=tmp_path, command=Path(FLYWHEEL), at="2:05", pipeline="tables")
    assert (assigned(text)["PIPELINE"], assigned(text)["STAGES"]) == ("tables", ("ingest", "links", "notify"))


@pytest.mark.parametrize(("scheduler", "at"), [("at", "02:00"), ("cron", "25:00"), ("cron", "2am")])
def test_what_is_no_schedule_is_named(scheduler: str, at: str) -> None:
    with pytest.raises(UsageError):
        made(scheduler, Path("/srv"), at)
