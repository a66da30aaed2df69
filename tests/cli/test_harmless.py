"""No log steers a terminal: control characters and marks of text direction are written out."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from flywheel.cli.session import harmless
from tests.projects import flywheel


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nand \u00e9\u4f60", "plain\ttext\nand \u00e9\u4f60"),
        ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
        ("\x1b[2Jgone", "\\u001b[2Jgone"),
        ("\x1b[32mgreen\x1b[0m", "\\u001b[32mgreen\\u001b[0m"),
        ("a\rb\x08", "a\\u000db\\u0008"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b31m", "\\u009b31m"),
    ],
)
def test_what_steers_is_written_out(text: str, shown: str) -> None:
    assert harmless(text) == shown


HOSTILE = "x\x1b[31mred\x9b31m \u202e"
_SQL = f"""SELECT '{HOSTILE}' AS "{HOSTILE}", ['{HOSTILE}'] AS list, NULL AS none"""


def test_no_format_of_a_query_lets_log_text_steer(tmp_path: Path) -> None:
    for arguments in (["--format", form] for form in ("table", "csv", "json")):
        shown = flywheel(tmp_path, "query", _SQL, *arguments).stdout
        assert harmless(shown) == shown
        assert "\\u001b[31mred" in shown
    assert json.loads(flywheel(tmp_path, "query", _SQL, "--format", "json").stdout)[HOSTILE] == HOSTILE
    assert json.loads(flywheel(tmp_path, "--json", "query", _SQL).stdout)["rows"] == [[HOSTILE, [HOSTILE], None]]


def test_a_spreadsheet_executes_nothing_of_a_log(tmp_path: Path) -> None:
    sql = """SELECT unnest(['=cmd()', ' @SUM(A1)', '-1', 'plain', NULL]) AS "=text", -1 AS n"""
    guarded = list(csv.reader(flywheel(tmp_path, "query", sql, "--spreadsheet").stdout.splitlines()))
    assert guarded == [
        ["'=text", "n"],
        ["'=cmd()", "-1"],
        ["' @SUM(A1)", "-1"],
        ["'-1", "-1"],
        ["plain", "-1"],
        ["", "-1"],
    ]
    exact = list(csv.reader(flywheel(tmp_path, "query", sql, "--format", "csv").stdout.splitlines()))
    assert [row[0] for row in exact] == ["=text", "=cmd()", " @SUM(A1)", "-1", "plain", ""]
    for others in (("--format", "json"), ("--format", "parquet"), ("--json",)):
        refused = flywheel(tmp_path, "query", sql, "--spreadsheet", *others, check=False)
        assert (refused.returncode, "=cmd" in refused.stdout) == (2, False)
    asked = flywheel(tmp_path, "--json", "query", sql, "--spreadsheet", "--format", "csv")  # as the hint says
    assert asked.stdout.startswith("'=text")
