"""One command, one name, one group: the command line, `Project`, the results and the reference page agree."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import flywheel.project
import pytest
import typer.main
from flywheel import Project, results
from flywheel.cli.app import GROUPS, app, commands_of
from flywheel.records import Document

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
RENAMED = {"eval": "evaluate", "config": "settings"}
NAMES = [group.__name__.rpartition(".")[2] for group in GROUPS]


def methods() -> dict[str, list[str]]:
    """Return the methods of `Project` by the group whose heading they are under."""
    groups: dict[str, list[str]] = {}
    group = ""
    for line in inspect.getsource(Project).splitlines():
        if heading := re.match(r"    # --- (\w+) -", line):
            group = heading[1]
        elif group and (method := re.match(r"    def (\w+)\(", line)):
            groups.setdefault(group, []).append(method[1])
    return groups


def names(group: ModuleType) -> list[str]:
    """Return what a group's methods must be called."""
    found = []
    for name in commands_of(group):
        inner = getattr(COMMANDS[name], "commands", None)
        found += [f"{name}_{sub}" for sub in inner] if inner else [RENAMED.get(name, name)]
    return found


@pytest.mark.parametrize("group", GROUPS, ids=NAMES)
def test_a_command_has_a_method_of_its_name_in_its_group(group: ModuleType) -> None:
    own = methods()[group.__name__.rpartition(".")[2]]
    commands = names(group)
    extra = [name for name in own if name not in commands]

    assert [name for name in own if name in commands] == commands
    assert all(name.startswith(tuple(f"{command}_" for command in commands)) for name in extra), extra


def test_all_sides_have_the_same_groups_in_the_same_order(root: Path) -> None:
    page = (root / "docs" / "reference" / "cli.md").read_text()
    chapters = re.findall(r"^## (\w+)$", page, re.MULTILINE)

    assert list(methods()) == NAMES
    assert [name.lower() for name in chapters] == NAMES
    assert sorted(results.__all__) == sorted(NAMES)
    assert list(COMMANDS) == [name for group in GROUPS for name in commands_of(group)]


@pytest.mark.parametrize("name", [n for n in Document.published if n.startswith("cli/") and n != "cli/error"])
def test_a_result_is_in_the_group_of_its_command(name: str) -> None:
    command = name.removeprefix("cli/").partition("_")[0]
    (group,) = (g.__name__ for g in GROUPS if command in commands_of(g))

    assert Document.published[name].__module__ == group.replace(".cli.", ".results.")


def test_heavy_imports_are_inside_methods() -> None:
    assert not {"polars", "torch", "pyarrow"} & set(vars(flywheel.project))
