"""With --json each command prints one JSON document and nothing else, whether it works or not."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from flywheel.cli.app import app, main

# What a command's required words are in these tests; any other argument is `1`.
WORDS = {"scheduler": "cron", "sql": "SELECT 1 AS one", "name": "message", "folder": "out", "url": "http://127.0.0.1:9",
         "to": "out", "user": "bob", "file": "log.jsonl"}  # fmt: skip


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with its words: the table of commands itself, so that a new one is tested too."""
    group = group or typer.main.get_command(app)
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
            if not command.no_args_is_help:
                yield (*path, name), command
        else:
            yield (*path, name), command


def words_of(command: Any) -> list[str]:
    """Return a command's required arguments."""
    words = []
    for one in command.params:
        if one.required and one.param_type_name == "option":
            words += [one.opts[0]]
        if one.required:
            words.append(WORDS.get(one.name, "1"))
    return words


# The others go through `Output.result` too, which many tests read; all of them take two minutes.
QUICK = {("schedule",), ("schema",), ("status",)}
COMMANDS = [
    pytest.param(path, command, id=" ".join(path), marks=[] if path in QUICK else [pytest.mark.e2e])
    for path, command in commands()
]


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_a_command_prints_one_document(
    path: tuple[str, ...],
    command: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "log.jsonl").write_text("{}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["flywheel", "--json", *path, *words_of(command)])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert (isinstance(json.loads(printed.out), dict), printed.err) == (True, "")
    assert (ended.value.code == 0) != ("error" in json.loads(printed.out))
