"""Ingest and build on a real Ray cluster give the process pool's bytes, also where a node dies; run by `make scale`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from flywheel.store import Store
from tests.scale.ray_cluster import RayCluster
from tests.scale.world import write_logs

pytestmark = pytest.mark.scale
EPISODES = int(os.environ.get("EPISODES", "3000"))
KEY = {"FLYWHEEL_KEY": "test-key", "FLYWHEEL_TRUST": "1"}
MINE = """
import sibling

def verbose(episodes, steps, events, cfg):
    return sibling.rows(episodes)
"""
SIBLING = """
import polars as pl

def rows(episodes):
    return episodes.filter(pl.col("n_steps") > 4).select("episode_id", "task_id").with_columns(
        step=pl.lit(None, pl.Int64), signal=pl.lit("verbose"), family=pl.lit("effort"), kind=pl.lit("implicit"),
        score=pl.lit(-1.0), weight=pl.lit(0.5), evidence=pl.lit([], pl.List(pl.String)),
        arrived=pl.lit(None, pl.Datetime("us", "UTC")), signal_version=pl.lit(1, pl.Int64),
        inclusion=pl.lit(None, pl.Float64),
    )
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster() as running:
        yield running


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that two processes have built."""
    folder = tmp_path_factory.mktemp("pool") / "agent"
    write_logs(folder / "logs", EPISODES)
    (folder / "mine.py").write_text(MINE, encoding="utf-8")
    (folder / "sibling.py").write_text(SIBLING, encoding="utf-8")
    (folder / "json.py").write_text("raise RuntimeError('a module of the project replaced an installed one')\n")
    configure(folder, "workers = 2")
    for command in ("ingest", "build"):
        run(folder, {**os.environ, **KEY}, command)
    return folder


def configure(folder: Path, build: str) -> None:
    signals = '["outcome", "tool_error", "recovery", "loop", "thumbs", "agreement", "effort", "mine:verbose"]'
    text = f"[ingest]\nworkers = 2\n[build]\n{build}\n[rewards]\nsignals = {signals}\n"
    (folder / "flywheel.toml").write_text(text, encoding="utf-8")


def again(reference: Path, folder: Path, build: str) -> Path:
    """The same logs and modules in a new project."""
    shutil.copytree(reference, folder, ignore=shutil.ignore_patterns(".flywheel", "rounds", "__pycache__"))
    configure(folder, build)
    return folder


def run(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-P", "-m", "flywheel", "-C", str(folder), *arguments]
    done = subprocess.run(call, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done


def documents(folder: Path) -> dict[str, str]:
    """Every part and every snapshot document, by its hash."""
    store = folder / ".flywheel"
    files = [path for room in ("tables", "snapshots") for path in (store / room).rglob("*") if path.is_file()]
    return {str(path.relative_to(store)): sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


@pytest.mark.parametrize("through", ["auto", "host", "client"])
def test_a_cluster_gives_the_bytes_of_the_process_pool(
    through: str, cluster: RayCluster, reference: Path, tmp_path: Path
) -> None:
    address = {"auto": "auto", "host": cluster.address, "client": f"ray://127.0.0.1:{cluster.client_port}"}[through]
    folder = again(reference, tmp_path / "agent", f'engine = "ray"\naddress = "{address}"')
    environment = {**cluster.environment, **KEY}
    assert json.loads(run(folder, environment, "ingest", "--json").stdout)["events"] > 0
    built = json.loads(run(folder, environment, "build", "--json").stdout)["stages"]
    assert {stage["state"] for stage in built} == {"built"}
    assert documents(folder) == documents(reference)
    assert len(documents(folder)) > 50


@pytest.mark.parametrize(("stage", "before"), [("ingest", ""), ("episodes", "links"), ("pairs", "examples")])
def test_a_node_that_is_killed_changes_no_byte(
    stage: str, before: str, cluster: RayCluster, reference: Path, tmp_path: Path
) -> None:
    folder = again(reference, tmp_path / "agent", 'engine = "ray"')
    environment = {**cluster.environment, **KEY}
    if before:
        run(folder, environment, "ingest")
    store, killed = Store(folder / ".flywheel"), list[str]()

    def kill() -> None:
        while before and not store.numbers(before):
            time.sleep(0.01)
        cluster.kill_busy_node()
        killed.append(stage)

    killer = threading.Thread(target=kill)
    killer.start()
    run(folder, environment, "build" if before else "ingest", "--json")
    killer.join()
    assert killed == [stage]
    cluster.add_node()
    if not before:
        run(folder, environment, "build")
    assert documents(folder) == documents(reference)
    assert not list(folder.rglob("*.partial"))


def test_what_is_missing_is_an_error_with_a_hint(cluster: RayCluster, reference: Path, tmp_path: Path) -> None:
    folder = again(reference, tmp_path / "agent", 'engine = "ray"\naddress = "127.0.0.1:1"')
    call = [sys.executable, "-P", "-m", "flywheel", "-C", str(folder), "ingest", "--json"]
    environment = {**cluster.environment, **KEY}
    done = subprocess.run(call, capture_output=True, text=True, env=environment, check=False)
    answer = json.loads(done.stdout)["error"]
    assert done.returncode == 1
    assert answer["message"] == "no Ray cluster at `127.0.0.1:1`: Connection refused"
    assert "ray start" in answer["hint"]
    configure(folder, 'engine = "ray"')
    strange = {**environment, "RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}
    done = subprocess.run(call, capture_output=True, text=True, env=strange, check=False)
    assert "AuthenticationError" in json.loads(done.stdout)["error"]["message"]
    assert Store(folder / ".flywheel").current("ingest") is None


def test_an_error_of_a_task_is_told_without_its_text(cluster: RayCluster, reference: Path, tmp_path: Path) -> None:
    folder = again(reference, tmp_path / "agent", 'engine = "ray"')
    environment = {**cluster.environment, **KEY}
    run(folder, environment, "ingest")
    (folder / "sibling.py").write_text("def rows(episodes):\n    raise ValueError('private words')\n", encoding="utf-8")
    call = [sys.executable, "-P", "-m", "flywheel", "-C", str(folder), "build", "--json"]
    done = subprocess.run(call, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert "private words" not in done.stdout + done.stderr
    assert "ValueError" in json.loads(done.stdout)["error"]["message"]
