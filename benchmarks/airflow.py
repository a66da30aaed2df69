"""`make airflow`: the shipped DAG in a real Airflow 3, on sample_logs/ with a tiny model, and what each way did.

1. `airflow dags test` on a fresh project: every stage is a task; the gate holds, its task is skipped, the run succeeds.
2. The same again: nothing is new, `train` and what follows are skipped.
3. `airflow standalone` with the real scheduler on another fresh project; the process at work is killed (SIGKILL) and
   the task's next attempt goes on.

Usage: python benchmarks/airflow.py FOLDER_OF_AIRFLOW'S_ENVIRONMENT [dags|standalone]
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.projects import FLYWHEEL, make_tiny_model, write_config

ROOT = Path(__file__).resolve().parents[1]
DAG = "flywheel_nightly"
PATIENCE_S = 1800


class Airflow:
    """An Airflow of its own: SQLite, no examples, one DAG.

    Args:
        binary: the `airflow` command.
        home: its folder; created again.
    """

    def __init__(self, binary: Path, home: Path) -> None:
        self.binary, self.home = binary, home
        shutil.rmtree(home, ignore_errors=True)
        (home / "dags").mkdir(parents=True)
        self.environment = {
            **os.environ,
            "PATH": f"{binary.parent}:{os.environ['PATH']}",
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__API__PORT": "18793",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": "http://localhost:18793/execution/",
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "FLYWHEEL_KEY": "airflow",
            "FLYWHEEL_RETRY_S": "5",
        }
        self.run("db", "migrate")

    def run(self, *arguments: str) -> str:
        """Run one command to its end and return what it printed."""
        done = subprocess.run(
            [str(self.binary), *arguments], env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(f"airflow {' '.join(arguments)} → {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stdout

    def install(self, project: Path) -> None:
        """Put the project's DAG where Airflow looks, as `flywheel schedule airflow` prints it."""
        text = subprocess.run(
            [FLYWHEEL, "-C", str(project), "schedule", "airflow"], check=True, capture_output=True, text=True
        )
        (self.home / "dags" / f"{DAG}.py").write_text(text.stdout, encoding="utf-8")

    def states(self) -> tuple[str, dict[str, tuple[str, int]]]:
        """Return the newest run's state, and of each task its state and number of attempts."""
        with sqlite3.connect(f"file:{self.home}/airflow.db?mode=ro", uri=True, timeout=30) as db:
            run = db.execute(
                "SELECT run_id, state FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1", (DAG,)
            ).fetchone()
            rows = db.execute(
                "SELECT task_id, state, try_number FROM task_instance WHERE run_id = ?", (run[0],)
            ) if run else []  # fmt: skip
            return (run[1] if run else "none"), {task: (state or "none", tries) for task, state, tries in rows}


def make_project(folder: Path, model: Path) -> Path:
    """Make a fresh project with the sample logs in it and a hook that keeps what it is sent."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "logs").mkdir(parents=True)
    for log in sorted((ROOT / "sample_logs").iterdir()):
        if log.name.endswith((".jsonl", ".jsonl.gz")):
            shutil.copy(log, folder / "logs")
    write_config(folder, model)
    with (folder / "flywheel.toml").open("a", encoding="utf-8") as file:
        file.write(
            '\n[notify]\ncommand = "tee -a sent.jsonl"\non = ["promoted", "held", "waiting", "failed", "done"]\n'
        )
    return folder


def told(project: Path) -> list[str]:
    """Return the outcomes that the hook was sent."""
    path = project / "sent.jsonl"
    return [json.loads(line)["outcome"] for line in path.read_text().splitlines()] if path.exists() else []


def expect(what: str, got: object, wanted: object) -> None:
    """Print a finding, or end where it is not the wanted one."""
    if got != wanted:
        sys.exit(f"airflow: {what}: {got!r}, not {wanted!r}")
    print(f"  {what}: {got}", flush=True)


def summary(tasks: Mapping[str, tuple[str, int]]) -> dict[str, list[str]]:
    """Return the tasks by their state."""
    found: dict[str, list[str]] = {}
    for task, (state, _) in tasks.items():
        found.setdefault(state, []).append(task)
    return {state: sorted(names) for state, names in sorted(found.items())}


def dags_test(airflow: Airflow, project: Path) -> None:
    """Run the DAG twice by `airflow dags test`: a night with news, one without."""
    airflow.install(project)
    for night, skipped, outcome in (
        ("a night with news", ["gate"], "held"),
        ("a night without", ["eval", "gate", "report", "train"], "waiting"),
    ):
        started = time.monotonic()
        airflow.run("dags", "test", DAG)
        state, tasks = airflow.states()
        print(f"airflow dags test, {night}: {time.monotonic() - started:.0f} s, {len(tasks)} tasks")
        expect("run", state, "success")
        expect("skipped", summary(tasks).get("skipped"), skipped)
        expect("told", told(project)[-1:], [outcome])


def standalone(airflow: Airflow, project: Path) -> None:
    """Run the DAG under the real scheduler and kill the trainer once."""
    airflow.install(project)
    log = (airflow.home / "standalone.log").open("w")
    server = subprocess.Popen(
        [str(airflow.binary), "standalone"], env=airflow.environment, stdout=log, stderr=log, start_new_session=True
    )
    started = time.monotonic()
    try:
        _wait(lambda: DAG in _dags(airflow), "the DAG is known to Airflow")
        airflow.run("dags", "unpause", DAG)  # the scheduler makes up for the last night
        _wait(lambda: any(project.glob("rounds/0001/work/checkpoints/checkpoint-*")), "the trainer is at work")
        killed = _kill_train(project)
        print(f"airflow standalone: process {killed} of the task `train` killed by SIGKILL")
        _wait(lambda: airflow.states()[0] in {"success", "failed"}, "the run is over")
        state, tasks = airflow.states()
        print(f"airflow standalone, real scheduler: {time.monotonic() - started:.0f} s, {len(tasks)} tasks")
        expect("run", state, "success")
        expect("skipped", summary(tasks).get("skipped"), ["gate"])
        expect("attempts of train", tasks["train"][1], 2)
        expect("told", told(project), ["held"])
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def _dags(airflow: Airflow) -> str:
    with sqlite3.connect(f"file:{airflow.home}/airflow.db?mode=ro", uri=True, timeout=30) as db:
        return " ".join(row[0] for row in db.execute("SELECT dag_id FROM dag"))


def _wait(done: object, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if callable(done) and done():
            return
        time.sleep(0.5)
    sys.exit(f"airflow: waited in vain until {what}")


def _kill_train(project: Path) -> int:
    """Kill the process that holds the project's lock, as a machine out of memory would."""
    holder = json.loads((project / ".flywheel" / "lock.json").read_text())
    os.kill(int(holder["pid"]), signal.SIGKILL)
    return int(holder["pid"])


def main() -> None:
    """Run what is asked for, else both ways."""
    environment, asked = Path(sys.argv[1]).resolve(), sys.argv[2:]
    work = environment / "flywheel"
    model = work / "model"
    if not model.is_dir():
        make_tiny_model(model)
    for name, way in (("dags", dags_test), ("standalone", standalone)):
        if name in (asked or [name]):
            airflow = Airflow(environment / "bin" / "airflow", work / f"home-{name}")
            way(airflow, make_project(work / name, model))


if __name__ == "__main__":
    main()
