"""`flywheel query`: read-only SQL over the current tables, run by DuckDB.

In: one SQL text. Out: its rows as an Arrow table. The engine is sealed (`flywheel.sql_sandbox`): a query can read only
the tables, and write nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from flywheel.contracts import arrow_schema
from flywheel.errors import UsageError
from flywheel.pipeline.build.registry import stage_of
from flywheel.pipeline.build.tables import RECORDED, read_table
from flywheel.pipeline.context import Context
from flywheel.records import TABLES
from flywheel.sql_sandbox import is_query, limited, sealed

if TYPE_CHECKING:
    import duckdb

_HINT = f"only these tables can be read: {', '.join(sorted(TABLES))}; `DESCRIBE episodes` lists columns"
_SMALLER = "add a condition or a LIMIT; `--seconds` and `--memory` set other limits"
_LOOK_S = 0.1  # how often Ctrl-C is looked for
# Errors whose messages quote only the query and names; the others may quote a value of a log.
_SAFE = ("ParserException", "BinderException", "CatalogException", "PermissionException")


def query(ctx: Context, sql: str, *, seconds: float, gigabytes: float) -> pa.Table:
    """Return the rows of a query over the current tables (events, episodes, steps, rewards, pairs, ...).

    Args:
        ctx: the project.
        sql: one query.
        seconds: after which it is stopped.
        gigabytes: of memory that it may use, its rows included.

    Raises:
        UsageError: the text is not a query that DuckDB can answer within the limits.
    """
    import duckdb

    tables = {
        table: _dataset(ctx, table) if table in sql.lower() else arrow_schema(TABLES[table]).empty_table()
        for table in TABLES
    }
    memory = f"{round(1000 * gigabytes)}MB"
    with sealed(tables, f"memory_limit = '{memory}'", "max_temp_directory_size = '0B'") as engine:
        try:
            if not is_query(engine, sql):
                raise UsageError("expected exactly one query, and no other statement", hint=_HINT)
            with limited(engine, seconds):
                rows = _interruptible(engine, sql, gigabytes)
        except duckdb.InterruptException:
            raise UsageError(f"the query took longer than {seconds:g} s and was stopped", hint=_SMALLER) from None
        except duckdb.OutOfMemoryException:
            raise UsageError(f"the query needs more than {gigabytes:g} GB of memory", hint=_SMALLER) from None
        except duckdb.Error as error:
            kind = type(error).__name__
            message = str(error).splitlines()[0] if kind in _SAFE else f"{kind}: a value has the wrong type or range"
            raise UsageError(message, hint=_HINT) from None
    if not isinstance(rows, pa.Table):  # pragma: no cover - a query always gives a table
        raise TypeError
    return rows.rename_columns(_distinct(rows.column_names))


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names of which none comes twice: the second `episode_id` is `episode_id_1`, as in DuckDB's files."""
    distinct: list[str] = []
    for name in names:
        again = (f"{name}_{n}" for n in count(1))
        distinct.append(name if name not in distinct else next(other for other in again if other not in distinct))
    return distinct


def _rows(engine: duckdb.DuckDBPyConnection, sql: str, gigabytes: float) -> pa.Table:
    """Run a query, batch by batch.

    Raises:
        UsageError: the rows are more than the limit of memory.
    """
    reader = pa.RecordBatchReader.from_stream(engine.sql(sql))
    batches, size = list[pa.RecordBatch](), 0
    for batch in reader:
        size += batch.nbytes
        if size > gigabytes * 1e9:
            raise UsageError(f"the query's rows are more than {gigabytes:g} GB", hint=_SMALLER)
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def _interruptible(engine: duckdb.DuckDBPyConnection, sql: str, gigabytes: float) -> pa.Table:
    """Run a query in a thread of its own, so that Ctrl-C reaches this one and stops the engine."""
    answer: list[pa.Table | BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            answer.append(_rows(engine, sql, gigabytes))
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            answer.append(error)
        finally:
            ended.set()

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    try:
        while not ended.wait(_LOOK_S):
            pass
    except BaseException:
        while not ended.is_set():  # also where Ctrl-C is typed twice
            with contextlib.suppress(KeyboardInterrupt):
                engine.interrupt()
                ended.wait(_LOOK_S)
        worker.join()
        raise
    worker.join()  # the engine is closed next, and must not be in use
    if isinstance(answer[0], BaseException):
        raise answer[0]
    return answer[0]


def _dataset(ctx: Context, table: str) -> object:
    """Return a table as Arrow: its parts, which DuckDB reads as far as needed, or its rows with their tasks."""
    if table in RECORDED:
        return read_table(ctx.store, table).collect().to_arrow()

    snapshot = ctx.store.current(stage_of(table))
    paths = ctx.store.paths(snapshot.parts if snapshot else (), table)
    schema = arrow_schema(TABLES[table])
    if not paths:
        return schema.empty_table()
    return ds.dataset([str(path) for path in paths], format="parquet", schema=schema)
