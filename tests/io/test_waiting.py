"""How threads wait: awake on a machine that is free, asleep on a busy one, as the user says where the user says it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flywheel.io import waiting

SET = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}


def _settings(monkeypatch: pytest.MonkeyPatch, load: Path, **already: str) -> dict[str, str]:
    """Return what is set for torch's threads on a machine whose kernel says so of its load."""
    for name in SET:
        monkeypatch.delenv(name, raising=False)
    for name, value in already.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(waiting, "_LOAD", load)
    waiting.wait_by_load()
    return {name: os.environ[name] for name in SET & os.environ.keys()}


def _of(tmp_path: Path, running: int) -> Path:
    path = tmp_path / "loadavg"
    path.write_text(f"0.10 0.20 0.30 {running}/94 4711\n", encoding="ascii")
    return path


@pytest.mark.skipif((os.cpu_count() or 1) < 2 or len(os.sched_getaffinity(0)) < 2, reason="one core: one thread")
def test_threads_stay_awake_where_all_cores_are_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _settings(monkeypatch, _of(tmp_path, 1))

    assert found == {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "5000"}


def test_threads_sleep_where_others_use_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _settings(monkeypatch, _of(tmp_path, 1 + (os.cpu_count() or 1))) == waiting.ASLEEP
    assert _settings(monkeypatch, tmp_path / "none") == waiting.ASLEEP  # not Linux


@pytest.mark.parametrize("already", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}])
def test_what_the_user_has_set_stays(already: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _settings(monkeypatch, _of(tmp_path, 1), **already) == already


def test_it_is_decided_before_torch_is_loaded() -> None:
    """Libgomp reads its settings once: what it prints when it is loaded is what threads do."""
    code = "import flywheel.models, torch; torch.ones(100_000).sum()"
    environment = {name: value for name, value in os.environ.items() if name not in SET}
    environment["OMP_DISPLAY_ENV"] = "VERBOSE"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr
