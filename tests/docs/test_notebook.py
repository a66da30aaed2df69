"""The notebook of the documentation runs from top to bottom, and shows its results as tables."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.results.setup import ErrorAnswer, ErrorDetail

NOTEBOOK = Path(__file__).parents[2] / "docs" / "library.ipynb"


def shown(cell: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does, and return the value of its last expression."""
    *statements, last = ast.parse(cell).body
    exec(compile(ast.Module(statements, []), "cell", "exec"), names)  # noqa: S102 - our own page
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307 - our own page
    exec(compile(ast.Module([last], []), "cell", "exec"), names)  # noqa: S102 - our own page
    return None


@pytest.mark.e2e
def test_the_notebook_runs_from_top_to_bottom(projects: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(projects("built"))
    names: dict[str, Any] = {}
    page = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in page["cells"] if cell["cell_type"] == "code"]
    values = [shown(cell, names) for cell in cells]
    _, built, status, rows, plan, facts = values
    assert all(one._repr_html_().startswith("<table>") for one in (built, status, plan))
    assert "<td>sft</td>" in plan._repr_html_()
    assert ", kept " in status._repr_html_()
    assert " 0, " not in status._repr_html_()
    assert sum(row["episodes"] for row in rows) > 0
    assert facts == (plan.method, plan.rows, plan.card.longest_tokens)
    assert not [cell["outputs"] for cell in page["cells"] if cell.get("outputs")]


def test_what_a_notebook_shows_is_escaped_and_bounded() -> None:
    hostile = "<script>alert(1)</script>\"'" + "x" * 1000
    html = ErrorAnswer(error=ErrorDetail(message=hostile, hint="", exit_code=1))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;" in html
    assert len(html) < 1500
