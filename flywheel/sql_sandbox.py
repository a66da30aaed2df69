"""A DuckDB that reaches nothing but the given tables: no file, no network, no extension, one query, a bounded time.

In: tables by name and one SQL text from anywhere (a user, a model). Out: its rows. The engine is in memory and is
sealed before the text reaches it, so that no query can read anything but the tables or write anywhere.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

QUERIES = (["SELECT"], ["EXPLAIN"])
# What the engine runs as several statements of its own: a PIVOT over values that it has to look up. It has to begin as
# a query does, for `CREATE TABLE ... AS PIVOT ...` is of that type too.
_SEVERAL = ["MULTI"]
_READS = re.compile(r"(?:\s|\(|--[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*(?:PIVOT|SELECT|FROM|WITH)\b", re.IGNORECASE)
_SETTINGS = (
    "enable_external_access = false",
    "python_enable_replacements = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "TimeZone = 'UTC'",
)


@contextlib.contextmanager
def sealed(tables: Mapping[str, object], *settings: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give an engine that sees these tables and nothing else.

    Args:
        tables: name → Arrow table or dataset, or polars frame.
        settings: further `SET` clauses, `threads = 1` say; nothing can be set afterwards.
    """
    import duckdb

    with duckdb.connect(":memory:") as engine:
        for name, table in tables.items():
            engine.register(name, table)
        for setting in (*_SETTINGS, *settings, "lock_configuration = true"):
            engine.execute(f"SET {setting}")
        yield engine


def is_query(engine: duckdb.DuckDBPyConnection, sql: str) -> bool:
    """Return whether a text is exactly one query that changes nothing; one with an unpaired surrogate is not.

    Raises:
        duckdb.Error: the text is not SQL.
    """
    try:
        sql.encode()
    except UnicodeEncodeError:
        return False
    kinds = [statement.type.name for statement in engine.extract_statements(sql)]
    return kinds in QUERIES or (kinds == _SEVERAL and _READS.match(sql) is not None)


@contextlib.contextmanager
def limited(engine: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    """Interrupt what the engine does after so many seconds; it then raises duckdb.InterruptException."""
    timer = threading.Timer(seconds, engine.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # or it could interrupt an engine that is gone, which aborts the process
