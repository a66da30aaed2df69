"""`flywheel query`: read-only SQL over the current tables, run by DuckDB.

In: one SQL text. Out: its rows as an Arrow table. The engine is sealed (`flywheel.sql_sandbox`): a query can read only
the tables, and write nothing.
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

_HINT = f"only these tables can be read: {', '.join(sorted(TABLES))}; `DESCRIBE episodes` lists columns"
# Errors whose messages quote only the query and names; the others may quote a value of a log.
_SAFE = ("ParserException", "BinderException", "CatalogException", "PermissionException")


def query(ctx: Context, sql: str) -> pa.Table:
    """Return the rows of a query over the current tables (events, episodes, steps, rewards, pairs, ...).

    Raises:
        UsageError: the text is not a query that DuckDB can answer.
    """
    import duckdb

    tables = {
        table: _dataset(ctx, table) if table in sql.lower() else arrow_schema(TABLES[table]).empty_table()
        for table in TABLES
    }
    with sealed(tables) as engine:
        try:
            if not is_query(engine, sql):
                raise UsageError("expected exactly one query, and no other statement", hint=_HINT)
            rows = engine.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            kind = type(error).__name__
            message = str(error).splitlines()[0] if kind in _SAFE else f"{kind}: a value has the wrong type or range"
            raise UsageError(message, hint=_HINT) from None
    if not isinstance(rows, pa.Table):  # pragma: no cover - a query always gives a table
        raise TypeError
    return rows


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
