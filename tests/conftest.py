"""Fixtures that every room's tests may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from tests.projects import make_tiny_model

ROOT = Path(__file__).resolve().parents[1]

settings.register_profile("patient", deadline=None)  # a busy machine is no failure
settings.load_profile("patient")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def sample_logs() -> Path:
    """The repository's own logs."""
    return ROOT / "sample_logs"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real agent logs beside the checkout; the test is skipped where they are absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real logs are not beside this checkout (../shared/data)")
    return folder


@pytest.fixture(scope="session")
def tau_airline(shared_data: Path) -> Path:
    """200 gpt-4o attempts at 50 airline tasks."""
    path = shared_data / "tau-bench" / "gpt-4o-airline.json.gz"
    if not path.is_file():
        pytest.skip("../shared/data/tau-bench/gpt-4o-airline.json.gz is absent")
    return path


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer random Llama with the embedded model's tokenizer."""
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")
