"""The page on systems is made of the last results, and has a row for every system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from flywheel.pipeline.serve.targets.table import TARGETS
from tests.interop import environments
from tests.interop.table import JSON, PAGE, page

if TYPE_CHECKING:
    import pytest


def test_the_page_is_that_of_the_recorded_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(json.loads(JSON.read_text(encoding="utf-8")))


def test_every_system_has_a_row() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in TARGETS if name != "jsonl")


def test_an_environment_that_is_not_built_runs_no_other_systems_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    uv.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(environments, "HOME", tmp_path / "home")
    assert environments.main(["tianshou"]) == 1
    assert capfd.readouterr().out == "make: building .interop/tianshou\n"
