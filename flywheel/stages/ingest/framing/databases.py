"""SQLite databases in which programs keep their sessions: each table as JSON lines, a row each.

In: a file. Out: its tables in order of their names, each as a stream that is written while it is read; nothing is
copied. The database is opened for reading only. Empty tables, caches by their name, virtual tables and those in which
these keep their data are left out; views are never run. A null is a field that the row does not have, JSON in a text is
opened as in other tables, and so is MessagePack that the row calls so; of other bytes that cannot be text only the
number is kept. Of LangGraph's `checkpoints` each thread is a row, and its `writes`, which hold the same messages, are
left out, as are opencode's `event`s of its messages and parts. What Phoenix and n8n keep of a record in several tables
is put together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from flywheel.io.bucket_path import BucketPath
from flywheel.reading.values import embedded, words_of
from flywheel.stages.ingest.framing.checkpoints import COLUMNS, folded
from flywheel.stages.ingest.framing.joined_tables import joined_tables
from flywheel.stages.ingest.framing.packed import FAULTS as DAMAGED
from flywheel.stages.ingest.framing.packed import KIND, unpacked
from flywheel.stages.ingest.framing.tables import WORDS

MAGIC = b"SQLite format 3\x00"
FAULTS = (sqlite3.Error,)
_IN_MEMORY = 1 << 30  # bytes of a database in a bucket
_LONGEST = 1 << 27  # bytes of one value: a generated column may make any
_TABLES = (
    "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1"
)
_MODES, _NO_LOG = slice(18, 20), b"\x01\x01"  # of writing and reading, in the header
_VIRTUAL = "create virtual table"
_UNSAFE = "unsafe use of"
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA}
_COMPUTING = {"json_extract", "json_array_length", "json_type", "json_valid", "->", "->>", "lower", "upper", "length",
              "coalesce", "ifnull", "nullif", "substr", "trim", "replace", "abs", "round", "like"}  # fmt: skip
_IN_2024 = "'' AS checkpoint_ns, thread_ts AS checkpoint_id, parent_ts AS parent_checkpoint_id"  # until LangGraph 0.1
_WRITES = {*COLUMNS, "channel"}  # of LangGraph's `writes`, whose messages are in its `checkpoints` too
_CHANGES = {"aggregate_id", "seq", "type", "data"}  # of opencode's `event`: what messages and parts became
_PARTS = {"message_id", "session_id", "data"}


class Table(NamedTuple):
    """A table's name, and its rows as bytes to be read."""

    name: str
    rows: Rows


def tables(path: Path, max_ratio: int) -> Iterator[Table]:
    """Yield the tables of a database; each must be read before the next is asked for.

    Raises:
        sqlite3.Error: it is damaged, or another program is writing it.
    """
    most = max_ratio * max(path.stat().st_size, 1_000)
    with closing(_opened(path)) as database:
        made = [(str(name), str(sql or "")) for name, sql in database.execute(_TABLES).fetchall()]
        virtual = [name for name, sql in made if sql.lower().startswith(_VIRTUAL)]
        columns = {name: _columns(database, name) for name, _ in made}
        has_states, has_parts = any(map(_are_states, columns.values())), columns.get("part", set()) >= _PARTS
        joined = list(joined_tables(columns))
        for one in joined:
            yield Table(one.name, Rows(map(one.shown, _rows(database, one.query)), most))
        read = {name for one in joined for name in one.needs}
        for name, own in columns.items():
            inner = name in virtual or name in read or any(name.startswith(f"{one}_") for one in virtual)
            is_told_again = (has_states and own >= _WRITES) or (has_parts and name == "event" and own >= _CHANGES)
            is_log = not inner and "cache" not in words_of(name) and not is_told_again
            if is_log and database.execute(_from(name, "1")).fetchone():
                yield Table(name, Rows(_records(database, name), most))


def _opened(path: Path) -> sqlite3.Connection:
    """Open a database without writing to it, nor next to it unless a log of changes that it needs is there.

    One in a bucket is held in memory.
    """
    if isinstance(path, BucketPath):
        return _in_memory(path)
    log = path.with_name(f"{path.name}-wal")
    still = "" if log.exists() and log.stat().st_size else "&immutable=1"
    return _guarded(sqlite3.connect(f"file:{quote(str(path))}?mode=ro{still}", uri=True))


def _in_memory(path: Path) -> sqlite3.Connection:
    if path.stat().st_size > _IN_MEMORY:
        raise sqlite3.DataError("a database in a bucket is held in memory, and this one is too large")
    with path.open("rb") as handle:
        content = bytearray(handle.read())
    content[_MODES] = _NO_LOG  # its log of changes, if it had one, is not here
    database = sqlite3.connect(":memory:")
    database.deserialize(bytes(content))
    return _guarded(database)


def _guarded(database: sqlite3.Connection) -> sqlite3.Connection:
    """Return a database that nothing in it can make do more than give its rows."""
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    database.text_factory = lambda held: held.decode("utf-8", "replace")
    for setting in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON"):
        database.execute(f"PRAGMA {setting}")
    try:
        database.execute(_TABLES)
    except sqlite3.DatabaseError as error:
        if _UNSAFE not in str(error):
            raise
        database.set_authorizer(_harmless)  # an index of JSON's values, Phoenix's say: it is not used
        database.execute("PRAGMA trusted_schema = ON")
    return database


def _harmless(action: int, _first: str | None, second: str | None, *_: str | None) -> int:
    """Allow to read, and the functions that an index may have; none of them does anything but compute."""
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_OK if str(second).lower() in _COMPUTING else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


class Rows:
    """The rows of a table as JSON lines, for `Stream`.

    Raises:
        ValueError: on reading, where they take more bytes than the file may expand to.
    """

    def __init__(self, rows: Iterator[Mapping[str, Any]], most: int) -> None:
        self._lines = map(_line, rows)
        self._rest, self._left = b"", most

    def read(self, size: int) -> bytes:
        """Return at most so many bytes; none at the end."""
        if not self._rest:
            self._rest = next(self._lines, b"")
            self._left -= len(self._rest)
            if self._left < 0:
                raise ValueError("too large")
        given, self._rest = self._rest[:size], self._rest[size:]
        return given


def _records(database: sqlite3.Connection, name: str) -> Iterator[Mapping[str, Any]]:
    columns = _columns(database, name)
    if _are_states(columns):
        as_now = "*" if columns >= {*COLUMNS} else f"*, {_IN_2024}"
        return folded(_rows(database, f"{_from(name, as_now)} ORDER BY {', '.join(COLUMNS)}"))
    return _rows(database, _from(name, "*"))


def _line(row: Mapping[str, Any]) -> bytes:
    """Return a row as a line of JSON, without the values that are nested deeper than its writer goes."""
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        plain = {
            name: held if isinstance(held, str | int | float) else "<nested too deep>" for name, held in row.items()
        }
        return orjson.dumps(plain, option=orjson.OPT_APPEND_NEWLINE)


def _are_states(columns: set[str]) -> bool:
    return columns >= {*COLUMNS, "checkpoint"} or columns >= {"thread_id", "thread_ts", "parent_ts", "checkpoint"}


def _rows(database: sqlite3.Connection, query: str) -> Iterator[dict[str, Any]]:
    found = database.execute(query)
    columns = [column[0] for column in found.description]
    for row in found:
        fields = {name: held for name, held in zip(columns, row, strict=True) if held is not None}
        packed = fields.get("type") == KIND
        yield {name: _value(name, held, packed=packed) for name, held in fields.items()}


def _from(table: str, columns: str) -> str:
    return f"SELECT {columns} FROM {_quoted(table)}"  # noqa: S608 - a name, quoted


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {str(column[1]) for column in database.execute(f"PRAGMA table_info({_quoted(table)})")}


def _quoted(table: str) -> str:
    return '"' + table.replace('"', '""') + '"'


def _value(name: str, held: Any, *, packed: bool) -> Any:
    if isinstance(held, bytes):
        if packed:
            with suppress(*DAMAGED):
                return unpacked(held)
        try:
            held = held.decode()
        except UnicodeDecodeError:
            return f"<{len(held)} bytes>"
    opened = embedded(held) if isinstance(held, str) and name not in WORDS else held
    return opened if isinstance(opened, Mapping | list) else held
