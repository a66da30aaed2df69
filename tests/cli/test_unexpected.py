"""Errors that nobody raised on purpose name their place, and never what they say: it may quote a log."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from flywheel.cli.app import unexpected
from flywheel.records import content_id

if TYPE_CHECKING:
    import pytest


def caught(act: Callable[..., Any], *args: Any) -> Exception:
    try:
        act(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("nothing was raised")


def test_a_defect_is_told_by_its_places_and_not_by_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    found = unexpected(caught(int, "words of a log"))
    assert found.message.startswith("ValueError at test_unexpected.py:")
    assert f"{__file__}:" in found.message
    assert "words of a log" not in found.message + found.hint
    inside = unexpected(caught(content_id, object()))
    assert "flywheel/records" in inside.message
    assert capsys.readouterr().err == ""


def test_a_table_that_cannot_be_read_may_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 words of a log PAR1")
    found = unexpected(caught(pl.read_parquet, tmp_path / "t.parquet"))
    assert "a damaged table, or a bug" in found.message
    assert "words" not in found.message
    assert "flywheel doctor" in found.hint


def test_the_whole_is_shown_to_those_who_ask(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLYWHEEL_TRACEBACK", "1")
    unexpected(caught(int, "words"))
    assert "words" in capsys.readouterr().err


def test_the_operating_systems_refusals_name_the_file(tmp_path: Path) -> None:
    found = unexpected(caught((tmp_path / "none").read_text))
    assert found.message == f"`{tmp_path / 'none'}`: No such file or directory"
    assert unexpected(OSError(errno.EIO, "")).message == "Input/output error"
    assert unexpected(MemoryError()).message == "out of memory"


def test_a_link_to_itself_is_told(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    error = caught((tmp_path / "loop").resolve, True)
    assert "link to itself" in unexpected(error).message or "symbolic links" in unexpected(error).message
