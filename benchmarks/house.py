"""The size of the house: files, lines and functions of a package; `python benchmarks/house.py [FOLDER ...]`.

A function's length is that of its code: from `def` to its last line, without its docstring. Lines are counted as in
`wc -l`. Two checkouts side by side show what a change has made of the code.
"""

from __future__ import annotations

import ast
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONG_FILE, LONGEST_FILE, SHORT_FILE = 300, 500, 40


def function_lengths(tree: ast.Module) -> list[int]:
    """Return the length of each function of a module, in lines."""
    lengths = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1
            docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
            lengths.append((node.end_lineno or node.lineno) - node.lineno + 1 - docstring)
    return lengths


def imports_inside_functions(tree: ast.Module, names: frozenset[str]) -> int:
    """Return how many imports of the named packages are made inside functions."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {node for function in functions for node in ast.walk(function) if isinstance(node, ast.Import)}
    return sum(alias.name.split(".")[0] in names for node in inside for alias in node.names)


def measure(folder: Path) -> dict[str, str]:
    """Return the figures of all Python files below a folder, in words and numbers."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    files = sorted(source.count("\n") for source in sources.values())
    functions = sorted(length for tree in trees.values() for length in function_lengths(tree))
    lazy = frozenset({"polars", "pyarrow", "numpy"})
    faces = [source for path, source in sources.items() if path.name != "__init__.py"]
    return {
        "files": f"{len(files)}",
        "lines": f"{sum(files):,}",
        "lines a file: median, largest": f"{statistics.median(files):.0f}, {files[-1]}",
        f"files over {LONG_FILE} / {LONGEST_FILE} lines": (
            f"{sum(n > LONG_FILE for n in files)} / {sum(n > LONGEST_FILE for n in files)}"
        ),
        f"files under {SHORT_FILE} lines": f"{sum(n < SHORT_FILE for n in files)}",
        "functions": f"{len(functions):,}",
        "function: median, p95, p99, longest": ", ".join(
            f"{functions[min(len(functions) - 1, int(len(functions) * q))]}" for q in (0.5, 0.95, 0.99, 1)
        ),
        "polars, pyarrow, numpy imported in functions": str(
            sum(imports_inside_functions(t, lazy) for t in trees.values())
        ),
        "modules with __all__, package faces aside": str(sum("\n__all__ = " in source for source in faces)),
    }


def main() -> None:
    """Print a column a folder."""
    folders = [Path(argument) for argument in sys.argv[1:]] or [ROOT / "flywheel"]
    columns = [measure(folder) for folder in folders]
    for name in columns[0]:
        print(f"{name:46}" + "".join(f"{column[name]:>18}" for column in columns))


if __name__ == "__main__":
    main()
