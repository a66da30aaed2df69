"""The documentation's blocks, and what a test does with each.

A fenced block is run, checked or left alone by its language; comments before it say what differs:

    <!-- test: project logs -->        once, at the top: the scratch project of this page (see `PROJECTS`)
    <!-- test: skip WHY -->            not run, because ...; listed among the skipped tests
    <!-- test: e2e -->                 run by `make e2e` only, because it takes long
    <!-- test: exit 3 -->              this block ends with this code
    <!-- test: held -->                a gate that holds (exit 3) does not end it
    <!-- test: first COMMAND -->       run before it, unseen: puts the reader's own files in place
    <!-- test: file NAME -->           written to that file instead of being run

`sh` blocks, and blocks without a language that begin with a command, are run from top to bottom in one project a page;
of `console` blocks the lines after `$ `. `json`, `toml` and `python` must be what they say; `text` may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = ("round", "built", "logs", "empty")  # with a round and all; with tables; with logs/; with nothing
_COMMANDS = {
    ".venv/bin/pip", "bash", "cat", "cd", "cp", "crontab", "curl", "docker", "echo", "export", "flywheel", "git",
    "head", "jq", "ls", "make", "mkdir", "mlflow", "npm", "pip", "python", "python3", "rm", "sh", "systemctl", "tar",
    "vllm",
}  # fmt: skip
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- test: (\w+)(?: (.*?))? -->")
_BEFORE = re.compile(r"(?:<!--(?:(?!-->).)*-->\s*)+\Z", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block with the marks before it."""

    page: str
    line: int
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)
    first: tuple[str, ...] = ()

    @property
    def commands(self) -> str:
        """The shell commands of the block; '' where it has none."""
        if "file" in self.marks:
            return ""
        if self.language == "console" or (not self.language and self.text.startswith("$ ")):
            return "\n".join(line[2:] for line in self.text.splitlines() if line.startswith("$ "))
        word = self.text.split(maxsplit=1)[0] if self.text.strip() else ""
        return self.text if self.language in {"sh", "bash"} or (not self.language and word in _COMMANDS) else ""

    @property
    def code(self) -> int:
        """The exit code with which it ends."""
        return int(self.marks.get("exit", "0"))

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Doc:
    """One page."""

    name: str
    project: str
    blocks: list[Block]


def _blocks(name: str, text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        comments = _BEFORE.search(text[: found.start()])
        marks = _MARK.findall(comments[0]) if comments else []
        yield Block(
            page=name,
            line=text.count("\n", 0, found.start()) + 1,
            language=found[1],
            text=found[2],
            marks={kind: rest for kind, rest in marks if kind != "first"},
            first=tuple(rest for kind, rest in marks if kind == "first"),
        )


def pages() -> list[Doc]:
    """Return every page that is written by hand; pages that are generated show help, not commands."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
    files += [ROOT / "sample_logs" / "README.md"]
    found = []
    for file in files:
        name = file.relative_to(ROOT).as_posix()
        if name.startswith("docs/reference/"):
            continue
        text = file.read_text(encoding="utf-8")
        project = re.search(r"<!-- test: project (\w+) -->", text)
        found.append(Doc(name, project[1] if project else "round", list(_blocks(name, text))))
    return found
