"""SQL over the store, read-only: DuckDB gets the tables as they stand, and nothing else.

In: one SQL text. Out: its rows as an Arrow table. The engine is sealed (`flywheel.sql_sandbox`): no query can read
beside the store or write anywhere.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset as ds

from flywheel.contracts import arrow_schema
from flywheel.errors import UsageError
from flywheel.pipeline.build.registry import stage_of
from flywheel.pipeline.build.tables import RECORDED, read_table
from flywheel.pipeline.context import Context
from flywheel.records import TABLES
from flywheel.sql_sandbox import is_query, sealed

__all__ = ["query"]

# Errors of these kinds speak of the text and of names; others may quote a value of a log.
_HINT = f"only these tables can be read: {', '.join(sorted(TABLES))}; `DESCRIBE episodes` lists columns"
_TELLING = ("ParserException", "BinderException", "CatalogException", "PermissionException")


def query(ctx: Context, sql: str) -> pa.Table:
    """Return the rows of a query over the current tables (events, episodes, steps, rewards, pairs, ...).

    Raises:
        UsageError: the text is no query that this engine can answer.
    """
    import duckdb

    tables = {
        table: _dataset(ctx, table) if table in sql.lower() else arrow_schema(TABLES[table]).empty_table()
        for table in TABLES
    }
    with sealed(tables) as engine:
        try:
            if not is_query(engine, sql):
                raise UsageError("only one query at a time, and nothing but a query", hint=_HINT)
            rows = engine.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            kind = type(error).__name__
            told = str(error).splitlines()[0] if kind in _TELLING else f"{kind}: a value does not fit"
            raise UsageError(told, hint=_HINT) from None
    if not isinstance(rows, pa.Table):  # pragma: no cover - a query always gives a table
        raise TypeError
    return rows


def _dataset(ctx: Context, table: str) -> object:
    """Return a table as Arrow: its parts, read as far as a query needs them, or its rows under their tasks."""
    if table in RECORDED:
        return read_table(ctx.store, table).collect().to_arrow()

    snapshot = ctx.store.current(stage_of(table))
    paths = ctx.store.paths(snapshot.parts if snapshot else (), table)
    schema = arrow_schema(TABLES[table])
    if not paths:
        return schema.empty_table()
    return ds.dataset([str(path) for path in paths], format="parquet", schema=schema)
