"""Worker processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from flywheel.io.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterator

THREADS = "POLARS_MAX_THREADS"


@pytest.fixture
def _unset(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(THREADS, raising=False)
    yield
    assert THREADS not in os.environ


@pytest.mark.usefixtures("_unset")
def test_workers_share_the_cores_for_polars() -> None:
    with Processes(2, os.getpid) as pool:
        assert pool.submit(os.getenv, THREADS).result() == str(max(1, (os.cpu_count() or 1) // 2))


def test_what_the_user_sets_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(THREADS, "7")
    with Processes(2, os.getpid) as pool:
        assert pool.submit(os.getenv, THREADS).result() == "7"
    assert os.environ[THREADS] == "7"
