"""The reference pages are what the code says; every command has help and stands in the docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer.main
from flywheel.cli.app import app
from flywheel.cli.generate import REFERENCE

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_page_is_current(name: str, root: Path) -> None:
    assert (root / "docs" / "reference" / name).read_text() == REFERENCE[name](), "run `make schemas`"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_help(name: str) -> None:
    assert COMMANDS[name].help
    for parameter in COMMANDS[name].params:
        assert getattr(parameter, "help", "argument") is not None, parameter.name
