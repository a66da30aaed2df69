"""Schedules that run the nightly job: a crontab line, a systemd service with its timer, or an Airflow DAG.

In: where the project and the command are, and when. Out: the file's text. A gate that holds is a normal night.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from flywheel.errors import ExitCode, UsageError
from flywheel.io import files
from flywheel.pipeline.nightly.pipelines import find_recipe

_WHOLE = re.MULTILINE | re.DOTALL
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\Z")

_CRON = """\
# flywheel: every night at {hour:02d}:{minute:02d}. Exit {held} is a gate that held: a normal night.
# The log is .flywheel/nightly.log; cron mails its end only after a night that failed or found the project locked.
# Add it with: flywheel schedule cron | (crontab -l 2>/dev/null; cat -) | crontab -
{minute} {hour} * * * cd {folder} && mkdir -p .flywheel && {command} run {pipeline} >> {log} 2>&1 \
|| [ $? = {held} ] || {{ tail -n 20 {log}; false; }}
"""

_SYSTEMD = """\
# Save as ~/.config/systemd/user/flywheel.service and flywheel.timer (cut at the second line of dashes), then:
#   systemctl --user daemon-reload && systemctl --user enable --now flywheel.timer

# --- flywheel.service ---
[Unit]
Description=flywheel: {pipeline} of {name}

[Service]
Type=oneshot
WorkingDirectory={folder}
ExecStart="{command}" run {pipeline}
# A gate that held and a night without news are normal nights.
SuccessExitStatus={held} {nothing}
Nice=10

# --- flywheel.timer ---
[Unit]
Description=flywheel every night

[Timer]
OnCalendar=*-*-* {hour:02d}:{minute:02d}:00
# A machine that slept at that time catches up.
Persistent=true

[Install]
WantedBy=timers.target
"""

_TEMPLATES = {"cron": _CRON, "systemd": _SYSTEMD}
SCHEDULERS = (*_TEMPLATES, "airflow")


def schedule(scheduler: str, *, folder: Path, command: Path, at: str, pipeline: str) -> str:
    """Return the schedule's text.

    Raises:
        UsageError: an unknown scheduler, or not a time of day.
        ConfigError: no pipeline has that name.
    """
    when = _TIME.match(at)
    find_recipe(folder, pipeline)
    if scheduler not in SCHEDULERS:
        raise UsageError(f"unknown scheduler `{scheduler}`", hint=f"schedulers: {', '.join(SCHEDULERS)}")
    if when is None:
        raise UsageError(f"`{at}` is not a time of day", hint="write it as HH:MM, for example 02:30")
    if scheduler == "airflow":
        return _dag(folder, command, f"{int(when[2])} {int(when[1])} * * *", pipeline)
    quoted = _for_systemd if scheduler == "systemd" else _for_cron
    return _TEMPLATES[scheduler].format(
        hour=int(when[1]),
        minute=int(when[2]),
        folder=quoted(folder),
        command=quoted(command),
        log=quoted(folder / ".flywheel" / "nightly.log"),
        name=folder.name.replace("%", "%%"),
        pipeline=pipeline,
        held=int(ExitCode.HELD),
        nothing=int(ExitCode.NOTHING),
    )


def _for_cron(path: Path) -> str:
    """Quote a path for the shell; cron takes a bare % as the line's end."""
    return shlex.quote(str(path)).replace("%", "\\%")


def _for_systemd(path: Path) -> str:
    """Escape a path for a unit file, where % begins a specifier."""
    return str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _dag(folder: Path, command: Path, at: str, pipeline: str) -> str:
    """Return the shipped DAG with this project's values in place of its examples."""
    text = (files.shipped("pipelines") / "airflow" / "flywheel_nightly.py").read_text(encoding="utf-8")
    values = {"PROJECT": str(folder), "COMMAND": str(command), "PIPELINE": pipeline, "SCHEDULE": at}
    for name, value in values.items():
        text = _assigned(text, name, _literal(value))
    return _assigned(
        text,
        "STAGES",
        "".join(["(\n", *(f"    {_literal(stage)},\n" for stage in find_recipe(folder, pipeline).stages), ")"]),
    )


def _assigned(text: str, name: str, value: str) -> str:
    """Replace what a name of the module is assigned: a line, or lines up to a closing parenthesis."""
    return re.sub(rf"^{name} = (?:\(\n.*?^\)|.*?)$", lambda _: f"{name} = {value}", text, count=1, flags=_WHOLE)


def _literal(value: str) -> str:
    return repr(value) if '"' in value or "\\" in value or not value.isprintable() else f'"{value}"'
