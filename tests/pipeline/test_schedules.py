"""flywheel schedule: files that cron and systemd take, also where the path is an awkward one."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from flywheel.errors import UsageError
from flywheel.pipeline.schedules import schedule
from tests.projects import FLYWHEEL


def made(scheduler: str, folder: Path, at: str = "02:05") -> str:
    return schedule(scheduler, folder=folder, command=Path(FLYWHEEL), at=at, pipeline="nightly")


@pytest.mark.parametrize("name", ["agent", "my agent", "50% off", "it's"])
def test_the_crontab_line_runs_the_command_in_the_folder(tmp_path: Path, name: str) -> None:
    """The line is run by a shell as cron does it, with the percent signs that cron takes as a line's end undone."""
    folder = tmp_path / name
    (folder / ".flywheel").mkdir(parents=True)
    (line,) = [line for line in made("cron", folder).splitlines() if not line.startswith("#")]
    minute, hour, *rest = line.split(" ", 5)
    done = subprocess.run(["/bin/sh", "-c", rest[-1].replace("\\%", "%")], cwd="/", check=False, timeout=60)

    assert (minute, hour, rest[:3]) == ("5", "2", ["*", "*", "*"])
    assert "%" not in line.replace("\\%", "")
    assert done.returncode != 0  # there are no logs
    assert "error:" in (folder / ".flywheel" / "nightly.log").read_text()


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


@pytest.mark.parametrize(("scheduler", "at"), [("at", "02:00"), ("cron", "25:00"), ("cron", "2am")])
def test_what_is_no_schedule_is_named(scheduler: str, at: str) -> None:
    with pytest.raises(UsageError):
        made(scheduler, Path("/srv"), at)
