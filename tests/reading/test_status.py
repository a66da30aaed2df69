"""How a tool call ended."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.reading.status import error_type, says_nothing, tool_status


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ("Error: order not found", "failed"),
        ("Error executing tool", "failed"),
        ("ERROR 1064", "failed"),
        ("TimeoutError: db", "failed"),
        ("duckdb.CatalogException: no such table", "failed"),
        ("  Traceback (most recent call last):\n ...", "failed"),
        ("\nI encountered an error while trying to use the tool.", "failed"),
        ('{"error": "no such table"}', "failed"),
        ("Tool execution failed: Error executing tool 'find'", "failed"),
        ('{"code": "TOOL_EXECUTION_FAILED", "message": "order not found"}', "failed"),
        ('{"code": "FAILED"}', "unknown"),
        ("boom\n[Python interpreter: /p]\n[Command finished with exit code 1]", "failed"),
        ("a.py\n[The command completed with exit code 0.]\n[Current working directory: /w]", "ok"),
        ("[The command completed with exit code -1.]", "failed"),
        ("ls: x: No such file\nExit code: 2", "failed"),
        ("Exit code: 0\nWall time: 1 s\nOutput:\na.py", "ok"),
        ("Process exited with code 3", "failed"),
        ("The script ended with exit code 1 for them, and 0 for us.\nSo be it.", "unknown"),
        ("the postal code: 1\nHTTP status: 404", "unknown"),
        ("return status: 404", "unknown"),
        ("meta=None content=[TextContent(type='text', text='no')] isError=True", "failed"),
        ("CallToolResult(meta=None, content=[], structuredContent=None, isError=False)", "ok"),
        ("isError=True is what a client shows", "unknown"),
        ('{"success": false, "rows": []}', "failed"),
        ('{"exit_code": 1}', "failed"),
        ('{"error": null, "rows": []}', "ok"),
        ('{"ok": true}', "ok"),
        ('{"exit_code": 0, "stdout": ""}', "ok"),
        ('{"status": "cancelled", "order": 7}', "unknown"),
        ('{"rows": [1]}', "unknown"),
        ('[{"error": "no such table"}]', "failed"),
        ('{"exit_code": "1"}', "failed"),
        ('{"error": "none", "rows": []}', "ok"),
        ('{"error": 3}', "failed"),
        ('{"mean": 3.2, "error": 0.1}', "unknown"),
        ('{"success": true, "error": "x"}', "unknown"),
        ('[{"order": 7, "error": null}]', "unknown"),
        ("Error rate last week: 2%", "unknown"),
        ("NoError: fine", "unknown"),
        ("Errors are rare here", "unknown"),
        ("an Error: inside", "unknown"),
        ("42", "unknown"),
        ("{broken", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_text_speaks_only_when_it_is_clear(content: str | None, status: str) -> None:
    assert tool_status(content) == status


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"is_error": False}, "ok"),
        ({"isError": True}, "failed"),
        ({"error": {"type": "x"}}, "failed"),
        ({"status": "error"}, "failed"),
        ({}, "failed"),
    ],
)
def test_flags_outweigh_the_text(fields: dict[str, Any], status: str) -> None:
    assert tool_status("Error: said so", fields) == status


def test_the_errors_name() -> None:
    assert error_type("duckdb.CatalogException: no") == "CatalogException"
    assert error_type("42") is None


@pytest.mark.parametrize(
    "content",
    [
        None, " \n", "[]", "{}", "null", "NO_OUTPUT", "(no output)", "[Run finished without output]", "Done.",
        "The command ran and did not print any output or errors.", "Empty set (0.02 sec)", "OK, 0 rows affected",
        "0 rows in set", "No results for this query.", "No trains found for 'Ulm', 1997",
        "<returncode>0</returncode>\n<output>\n</output>",
        '{"stdout": "", "stderr": "", "exit_code": 0}', '{"success": true}', '[{"rows": []}]',
        "Process exited with code 0",
    ],
)  # fmt: skip
def test_what_says_no_more_than_that_a_call_ran(content: str | None) -> None:
    assert says_nothing(content)


@pytest.mark.parametrize(
    "content",
    [
        "0", "1", "False", "True", "command not found", "No such file or directory", "3 rows in set", "No errors found",
        '{"available": true}', '{"count": 0}', "Error: no results", "exit code 1", "None of them", "output",
        "No exact match found: see page 7", '{"order": "done", "id": 7}', "no output\n" * 99,
    ],
)  # fmt: skip
def test_what_a_result_still_shows(content: str) -> None:
    assert not says_nothing(content)
