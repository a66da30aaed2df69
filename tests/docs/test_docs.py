"""Every command block of the documentation is executed, from top to bottom, in a project of its page's own."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import Config
from tests.docs.pages import PROJECTS, ROOT, Block, Doc, pages
from tests.projects import FLYWHEEL, Projects

PAGES = {page.name: page for page in pages()}
BLOCKS = [block for page in PAGES.values() for block in page.blocks]
RUN = [n for n, page in PAGES.items() if any(b.commands and not {"skip", "e2e"} & b.marks.keys() for b in page.blocks)]
SLOW = {"docs/looking.md", "docs/operating.md"}  # of which each command is a test of its own elsewhere
LONG = [n for n, page in PAGES.items() if any("e2e" in block.marks for block in page.blocks)]
MARKS = {"skip", "e2e", "exit", "held", "file", "project"}
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HELD = 'flywheel() { command flywheel "$@" || { local code=$?; [ $code -eq 3 ] || return $code; }; }\n'


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory, session_projects: Projects) -> dict[str, Path]:
    """The projects that pages begin with, made once: each goes a step further than the one before."""
    empty = tmp_path_factory.mktemp("empty")
    made = {"logs": "logs", "built": "built", "round": "promoted"}
    return {"empty": empty} | {name: session_projects.made(kind) for name, kind in made.items()}


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment in which packages go into the page's own folder, and nothing asks the network."""
    forked, bin_folder, site = Path(FLYWHEEL).parent, Path(sys.executable).parent, folder.parent / "site"
    return {
        **os.environ,
        "PATH": f"{forked}:{bin_folder}:{os.environ['PATH']}",
        "ROOT": str(ROOT),
        "PIP_TARGET": str(site),
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it the other way round: the build tools are those installed here
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PYTHONPATH": ":".join(
            filter(None, [str(site), str(ROOT / "examples" / "warehouse"), os.environ.get("PYTHONPATH")])
        ),
    }


def _shell(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],  # noqa: S607 - bash is where the machine has it
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def _walk(page: Doc, start: Path, scratch: Path, *, long: bool) -> None:
    """Go through a page as a reader would, and stop at the first block that does not do what it says."""
    folder = scratch / "my-agent"
    shutil.copytree(start, folder, symlinks=True)
    for block in page.blocks:
        if "skip" in block.marks or ("e2e" in block.marks and not long):
            continue
        if "file" in block.marks:
            target = folder / block.marks["file"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        if block.commands:
            done = _shell("\n".join([*block.first, HELD if "held" in block.marks else "", block.commands]), folder)
            assert done.returncode == block.code, f"{block} → {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.e2e] if n in SLOW else []) for n in RUN])
def test_every_command_block_works(name: str, stages: dict[str, Path], tmp_path: Path) -> None:
    _walk(PAGES[name], stages[PAGES[name].project], tmp_path, long=False)


@pytest.mark.e2e
@pytest.mark.parametrize("name", LONG)
def test_the_long_command_blocks_work_too(name: str, stages: dict[str, Path], tmp_path: Path) -> None:
    _walk(PAGES[name], stages[PAGES[name].project], tmp_path, long=True)


@pytest.mark.parametrize("block", [b for b in BLOCKS if "skip" in b.marks], ids=str)
def test_what_is_not_run_says_why(block: Block) -> None:
    assert len(block.marks["skip"].split()) >= 3, f"{block}: say why it cannot run here"
    pytest.skip(block.marks["skip"])


@pytest.mark.parametrize("block", [b for b in BLOCKS if not b.commands and b.language != "text"], ids=str)
def test_what_is_not_a_command_is_what_it_says(block: Block) -> None:
    if block.language == "json":
        assert (
            all(json.loads(line) for line in block.text.splitlines())
            if _is_lines(block.text)
            else json.loads(block.text)
        )
    elif block.language == "python":
        ast.parse(block.text)
    elif block.language == "toml":
        _check_toml(tomllib.loads(block.text))
    else:
        assert block.language in {"", "markdown", "html", "yaml", "ini"}, f"{block}: unknown language"


def _is_lines(text: str) -> bool:
    return text.count("\n{") > 0 and text.startswith("{") and text.splitlines()[0].endswith("}")


def _check_toml(found: dict[str, Any]) -> None:
    """Check what is flywheel.toml's against its model; other files have other tables."""
    if found and set(found) <= set(Config.model_fields):
        Config.model_validate(found)


def test_marks_are_known_and_projects_exist() -> None:
    assert {mark for block in BLOCKS for mark in block.marks} <= MARKS
    assert {page.project for page in PAGES.values()} <= set(PROJECTS)
    assert all((block.language or block.commands or not block.marks) for block in BLOCKS)


def test_a_block_that_fails_is_found(tmp_path: Path) -> None:
    good = Block("page.md", 1, "sh", "true\n")
    bad = Block("page.md", 5, "sh", "true\nfalse\ntrue\n")
    (tmp_path / "start").mkdir()

    _walk(Doc("page.md", "empty", [good]), tmp_path / "start", tmp_path / "one", long=False)
    with pytest.raises(AssertionError, match=re.escape("page.md:5 → 1")):
        _walk(Doc("page.md", "empty", [good, bad]), tmp_path / "start", tmp_path / "two", long=False)


def test_links_between_pages_lead_somewhere() -> None:
    links = [
        (page.name, target)
        for page in PAGES.values()
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (ROOT / page.name).read_text(encoding="utf-8"))
    ]
    broken = [link for link in links if "://" not in link[1] and not ((ROOT / link[0]).parent / link[1]).exists()]
    assert broken == []


def test_lines_of_pages_fit_in_120_columns() -> None:
    names = [name for name in PAGES if not name.startswith("docs/decisions/")]
    lines = [
        f"{name}: {line}"
        for name in names
        for line in _FENCED.sub("", (ROOT / name).read_text(encoding="utf-8")).splitlines()
        if len(line) > 120 and not line.startswith(("|", "<!--"))
    ]
    assert lines == []
