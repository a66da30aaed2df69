"""Every file and module that docs, docstrings and comments name exists, and no file is longer than it may be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from flywheel.extensions import GROUPS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("benchmarks", "docs", "examples", "flywheel", "pipelines", "sample_logs", "schemas", "tests")
ROOMS = tuple(room.name for room in (ROOT / "flywheel").iterdir() if room.is_dir() and (room / "__init__.py").exists())
PATH = re.compile(rf"(?<![\w/.:-])(?:{'|'.join((*FOLDERS, *ROOMS))})/[\w./*-]*\w/?")
NAME = re.compile(r"(?<![\w/.@-])flywheel(?:\.[A-Za-z_]\w*)+")
PROSE = re.compile(r'(?s:""".*?""")|#.*')  # docstrings and comments; tokenize takes fifty times as long
ELSEWHERE = {  # files of a project and of systemd, entry-point groups, and an attribute of spans
    "flywheel.toml",
    "flywheel.json",
    "flywheel.key",
    "flywheel.service",
    "flywheel.timer",
    "flywheel.policy",
    "flywheel.embeddings",
    "pipelines/nightly.toml",
    *(f"flywheel.{group}" for group in GROUPS),
}
PAGES = [*(ROOT / page for page in ("README.md", "AGENTS.md", "CHANGELOG.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted((ROOT / "flywheel").rglob("*.py"))


def _module(name: str) -> Path | None:
    """Return the file of a module, or None."""
    path = ROOT.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _resolves(name: str) -> bool:
    """Whether a dotted name is a module, or a top-level name of one, or a member of such a name."""
    if name in ELSEWHERE or _module(name):
        return True
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        if module := _module(".".join(parts[:cut])):
            return bool(re.search(rf"\b{parts[cut]}\b", module.read_text(encoding="utf-8")))
    return False


def _exists(path: str) -> bool:
    """Whether a path, or a pattern with `*`, is a file or folder here or in `flywheel/`."""
    return any(next(top.glob(path.rstrip("/")), None) for top in (ROOT, ROOT / "flywheel"))


def broken(text: str) -> list[str]:
    """Return the paths and modules in a text that do not exist."""
    paths = [path for path in PATH.findall(text) if path not in ELSEWHERE and not _exists(path)]
    return paths + [name for name in NAME.findall(text) if not _resolves(name)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_in_docs_exist(page: Path) -> None:
    assert broken(page.read_text(encoding="utf-8")) == []


def test_paths_in_docstrings_and_comments_exist() -> None:
    prose = {module: "\n".join(PROSE.findall(module.read_text(encoding="utf-8"))) for module in MODULES}
    assert [f"{module.relative_to(ROOT)}: {path}" for module in MODULES for path in broken(prose[module])] == []


def test_a_path_that_does_not_exist_is_found() -> None:
    text = "See `flywheel/nowhere.py`, stages/train/nowhere.py, flywheel.nowhere and flywheel.errors.Nowhere; not a/b."

    assert broken(text) == [
        "flywheel/nowhere.py",
        "stages/train/nowhere.py",
        "flywheel.nowhere",
        "flywheel.errors.Nowhere",
    ]
    assert broken("`flywheel.errors.FlywheelError`, flywheel/errors.py, tests/docs/*.py, flywheel.toml") == []


def test_a_file_has_500_lines_at_most() -> None:
    whole = {"flywheel/project.py"}  # `Project` is one class in one file: each command with what it takes and raises
    lengths = {path.relative_to(ROOT).as_posix(): path.read_bytes().count(b"\n") for path in MODULES}
    assert [name for name, lines in lengths.items() if lines > 500 and name not in whole] == []
