"""Secrets in columns: a table whose header names a password, written with commas, bars or tabs; `INSERT` statements."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flywheel.stages.ingest.redaction.patterns.kinds import GIVEN, Find
from flywheel.stages.ingest.redaction.patterns.names import PASSWORD, fits, kind_of_name

_NAMES = re.compile(
    r"passw|pwd|kennwort|\bpass\b|secret|token|api_?key|mots?_de_passe|contrase(?:ñ|n)a|senha|wachtwoord|has(?:ł|l)o\b|密码|パスワード"
)
_INSERT = re.compile(r"(?i)\binto\s{1,8}\S{1,128}\s{0,8}\((?P<columns>[^()]{1,2000})\)\s{0,8}values\s{0,8}")
_ROW = re.compile(r"\s{0,8},?\s{0,8}\((?P<row>(?:'(?:[^']|''){0,2000}'|[^()'])*)\)")
_CELL = re.compile(r"\s{0,8}N?(?:'(?P<quoted>(?:[^']|''){0,2000})'|(?P<bare>[^,']{0,200}))\s{0,8}(?:,|\Z)")
_BYTES = re.compile(r"\s*(?:0x|[xX])(?P<hex>[0-9A-Fa-f]{8,512})\s*\Z")
_RULE = re.compile(r"[\s|+:=─-╿-]*")
_MOST_ROWS = 1000
_SEPARATORS = tuple(re.compile(sign) for sign in (r"\|", "[│┃║]", r"\t", ";", ",", r"[ ]{2,}"))
_LONGEST_HEADER = 1000
_COLUMN = re.compile(r"[{\[\s\"'`*]{0,24}(?:[\w-]{1,24}[\"']\s?:\s?[\"'])?[\w#][\w .#/-]{0,38}[\s\"'`*]{0,4}")
_CODE = re.compile(r"[(){}=]|^\s*(?:def|for|if|return|import|from|class)\s")


def in_tables(text: str, small: str) -> Iterator[Find]:
    """Yield the cells of columns that hold secrets.

    Args:
        text: where to look.
        small: the same in small letters.
    """
    end = -1
    for name in _NAMES.finditer(small):
        if name.start() > end:
            start = small.rfind("\n", 0, name.start()) + 1
            end = small.find("\n", name.end())
            end = len(small) if end < 0 else end
            finds, end = _below(text, start, end)
            yield from finds
    if "into" in small:
        for statement in _INSERT.finditer(text):
            yield from _inserted(text, statement)


def _below(text: str, start: int, end: int) -> tuple[list[Find], int]:
    """Return the secrets below a header, and where the table ends.

    Before a header may be what a logger or a sentence puts there: then a cell must not read as a word.
    """
    line = text[start:end]
    if end - start > _LONGEST_HEADER or _CODE.search(line.partition(": ")[2] or line):
        return [], end
    for separator in _SEPARATORS:
        cells = [cell for _, cell in _split(line, separator)]
        kinds = {
            n: kind for n, cell in enumerate(cells) if (kind := _kind(cell if n else cell.rpartition(" ")[2] or cell))
        }
        filled = [cell for cell in cells if cell.strip()]
        if len(filled) < 2 or not kinds or not all(map(_COLUMN.fullmatch, filled[1:])):  # noqa: PLR2004
            continue
        loose = not _COLUMN.fullmatch(filled[0]) or separator is _SEPARATORS[-1]
        if not line.rstrip().endswith((",", ";")):
            return _cells(text, end + 1, separator, len(cells), kinds, loose=loose)
    return [], end


def _split(line: str, separator: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the cells of a line, each with its place."""
    at = 0
    for sign in separator.finditer(line):
        yield at, line[at : sign.start()]
        at = sign.end()
    yield at, line[at:]


def _kind(cell: str) -> str:
    name = cell.strip().strip("\"'`*").replace(" ", "_")
    return kind_of_name(name) if re.fullmatch(r"[\w-]{2,40}", name) else ""


def _cells(
    text: str, start: int, separator: re.Pattern[str], count: int, kinds: dict[int, str], *, loose: bool
) -> tuple[list[Find], int]:
    finds: list[Find] = []
    for _ in range(_MOST_ROWS):
        end = text.find("\n", start)
        line = text[start : end if end >= 0 else len(text)]
        cells = list(_split(line, separator))
        if (separator.pattern == "," and _CODE.search(line)) or (
            len(cells) not in (count, count + 1) and not _RULE.fullmatch(line)
        ):
            return finds, start - 1
        finds += _in_row(cells, start, count, kinds, loose=loose)
        if end < 0:
            return finds, len(text)
        start = end + 1
    return finds, start


def _in_row(
    cells: list[tuple[int, str]], start: int, count: int, kinds: dict[int, str], *, loose: bool
) -> Iterator[Find]:
    for n, (at, cell) in enumerate(cells):
        value = cell.strip().strip("\"'`")
        if (
            n in kinds
            and value
            and len(cells) >= count
            and not GIVEN.search(value)
            and fits(kinds[n], value, quoted=not loose, prose=loose)
        ):
            begin = start + at + cell.index(value)
            yield Find(value, begin, begin + len(value))


def _inserted(text: str, statement: re.Match[str]) -> Iterator[Find]:
    names = [name.strip().strip('`"[]') for name in statement["columns"].split(",")]
    end = statement.end()
    for _ in range(_MOST_ROWS):
        row = _ROW.match(text, end)
        if row is None:
            return
        end = row.end()
        at = row.start("row")
        for name in names:
            cell = _CELL.match(text, at, row.end("row"))
            if cell is None:
                break
            at = cell.end()
            kind = kind_of_name(name)
            if kind and cell["quoted"] and fits(PASSWORD if kind == PASSWORD else kind, cell["quoted"], quoted=True):
                yield Find(cell["quoted"], *cell.span("quoted"))
            elif kind and cell["bare"] and (written := _BYTES.match(cell["bare"])):
                start, end = written.span("hex")
                yield Find(written["hex"], cell.start("bare") + start, cell.start("bare") + end)
