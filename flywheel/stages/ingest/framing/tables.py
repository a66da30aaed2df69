"""Tables written as text: CSV and TSV, whose cells may hold JSON and span lines.

In: a stream of bytes. Out: a record a row, under the names of the header, numbered by the row's first line. Cells that
are JSON, or lists and objects as Python writes them, are opened. An empty cell leaves its field out: a table of rows of
several kinds has the columns of all. A row that does not fit the header is refused, and the next one follows.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from flywheel.reading.values import python_value, when, words_of
from flywheel.stages.ingest.framing.framed import Bad, Record, refused
from flywheel.stages.ingest.framing.jsontext import BadJsonError, loads, storable

_BOM = b"\xef\xbb\xbf"
_OF_COLUMNS = {
    "id", "uuid", "key", "name", "type", "kind", "role", "status", "state", "source", "user", "agent", "customer",
    "author", "message", "text", "content", "question", "answer", "query", "prompt", "response", "reply", "input",
    "output", "result", "session", "conversation", "chat", "thread", "time", "timestamp", "date", "day", "at",
    "created", "updated", "score", "rating", "label", "category", "title", "description", "comment", "feedback",
    "model", "tool", "action", "step", "task", "reward", "success", "error", "count", "number", "tokens", "cost",
    "url", "email", "phone", "address", "chatbot", "flag", "username", "history",
}  # fmt: skip
_HUMP = re.compile(r"[a-z][A-Z]")  # of a name that is one word to a program
_OF_AN_ID = re.compile(r"(?<=[a-z])(ID|Id)\Z")
_NAME = re.compile(r"[\w$@#][\w .()/:@#%$+-]{0,79}\Z")
_NUMBER = re.compile(r"(?:0|-?[1-9]\d{0,18}|-?\d{1,15}\.\d{1,15})\Z", re.ASCII)
_ID = re.compile(r"(?:^|[._ ])(?:id|ID|Id)\Z|[a-z]I[dD]\Z")  # digits there are a name, not an amount
_DELIMITERS = ",\t;"
_PROBED = 16_384
_OPENS = ("[", "{")
_QUOTED = tuple(f'"{bracket}' for bracket in _OPENS)
_SHEET = 32_767  # characters of a cell: spreadsheets cut what is longer
_LONGEST_LITERAL = 1_000_000
_CELL = (1 << 31) - 1  # the row is what has a limit
WORDS = {
    "content", "text", "value", "input", "output", "answer", "response", "completion", "prompt", "question", "query",
    "message", "comment", "result", "arguments", "statusMessage", "status_message", "exception", "error",
}  # fmt: skip
_NOTHING = dict.fromkeys(("", "null", "NULL", "None", "NaN", "nan", "\\N"))
_CONSTANTS = {
    **dict.fromkeys(("true", "True", "TRUE"), True), **dict.fromkeys(("false", "False", "FALSE"), False), **_NOTHING,
}  # fmt: skip


def is_header(names: Sequence[str]) -> bool:
    """Whether a table's first row is likely one of names: two of its cells have a word that columns are named by."""
    return sum(not words_of(name).isdisjoint(_OF_COLUMNS) for name in names) >= min(2, len(names))


def delimiter_of(head: bytes) -> str:
    """Return what separates the cells of a table by how it begins; '' for any other text."""
    first, _, rest = head.removeprefix(_BOM).lstrip()[:_PROBED].decode("utf-8", "replace").partition("\n")
    for delimiter in _DELIMITERS:
        try:
            names = next(csv.reader([first.rstrip("\r")], delimiter=delimiter, strict=True), [])
        except csv.Error:
            continue
        goes_on = delimiter in rest if len(names) > 1 else rest.startswith(_QUOTED)
        if goes_on and names and all(map(_NAME.match, names[1:])) and (_NAME.match(names[0]) or not names[0]):
            return delimiter
    return ""


class _Lines:
    """The lines of a table, with those of the row that is being read."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self._stream, self._limit = stream, limit
        self.row: list[bytes] = []
        self.size = 0
        self.too_long = False

    def begin(self) -> None:
        """Forget the last row."""
        self.row, self.size = [], 0

    def __iter__(self) -> Iterator[str]:
        while line := self._stream.readline(self._limit + 1):
            self.row.append(line)
            self.size += len(line)
            if self.size > self._limit:
                self.too_long = True
                return
            yield line.removeprefix(_BOM).decode("utf-8", "surrogateescape")


def table_rows(stream: BinaryIO, delimiter: str, limit: int) -> Iterator[Record | Bad]:
    """Yield the rows of a table.

    Args:
        stream: its text, from the beginning.
        delimiter: what separates its cells.
        limit: length in bytes above which a row is not kept; a quote that nothing closes makes one row of all the rest.
    """
    csv.field_size_limit(_CELL)
    lines, names, number = _Lines(stream, limit), [""], 0
    rows = csv.reader(iter(lines), delimiter=delimiter, strict=True)
    while True:
        lines.begin()
        line = rows.line_num + 1
        try:
            cells = next(rows, None)
        except csv.Error:
            cells = [""] * (len(names) + 1)
        if lines.too_long:
            detail = f"a row of more than {limit:,} bytes, or a quote that nothing closes; the rest is not read"
            yield refused(line, "truncated", detail, b"".join(lines.row))
            return
        if cells is None:
            return
        if not any(names):
            names = _in_small(cells)
        elif cells:
            number += 1
            yield _record(line, number, names, cells, b"".join(lines.row))


def _in_small(names: list[str]) -> list[str]:
    """Return the names of a header all of which begin with a capital (`Step`, `Tool Name`) as programs write them."""
    small = [_OF_AN_ID.sub(r"_\1", name.strip()).lower().replace(" ", "_") for name in names]
    plain = [name for name in names if name and not _OF_AN_ID.search(name)]
    is_titled = (
        len(plain) > 1 and all(name[:1].isupper() for name in names if name) and not any(map(_HUMP.search, plain))
    )
    return small if is_titled and len(set(small)) == len(names) else [name.strip() for name in names]


def _record(line: int, number: int, names: Sequence[str], cells: Sequence[str], raw: bytes) -> Record | Bad:
    if len(cells) != len(names):
        return refused(line, "bad_record", f"a row of other cells than the {len(names)} columns", raw)
    row = dict(zip(names, cells, strict=True))
    if len(row) < len(names) and any(name and row[name] != cell for name, cell in zip(names, cells, strict=True)):
        return refused(line, "bad_record", "two columns of one name whose cells differ; rename one", raw)
    row = _with_time(row)
    try:
        raw.decode()
        value, tags = storable(
            {name: held for name, cell in row.items() if name and (held := _value(name, cell)) is not None}
        )
    except UnicodeDecodeError:
        return refused(line, "bad_encoding", "a row that is not UTF-8", raw)
    except BadJsonError as error:
        return refused(line, error.reason, error.detail, raw)
    return Record(line, value, None, tags, number, names=names)


def _with_time(row: dict[str, str]) -> dict[str, str]:
    """Return a row with one time where it has a day and a time of day in columns of their own."""
    day, time = row.get("date", ""), row.get("time", "")
    whole = f"{day} {time}"
    return {**row, "timestamp": whole} if day and time and "timestamp" not in row and when(whole) else row


def _value(name: str, cell: str) -> Any:
    """Return what a cell holds; None for nothing.

    Raises:
        BadJsonError: a spreadsheet cut it.
    """
    if cell.lstrip().startswith(_OPENS):
        return _opened(cell)
    if name.rpartition(".")[2] in WORDS:
        return cell or None
    if _ID.search(name):
        return _NOTHING.get(cell, cell)
    if _NUMBER.match(cell) and str(amount := float(cell) if "." in cell else int(cell)) == cell:
        return amount
    return _CONSTANTS.get(cell, cell)


def _opened(cell: str) -> Mapping[str, Any] | list[Any] | str:
    try:
        value = loads(cell.encode("utf-8", "surrogateescape")).value
    except BadJsonError:
        value = python_value(cell.strip(), objects=True, most=_LONGEST_LITERAL)
    if isinstance(value, dict | list):
        return value
    if len(cell) == _SHEET:
        raise BadJsonError("bad_record", f"a cell that a spreadsheet cut at {_SHEET:,} characters")
    return cell
