"""From records to contracts: the Arrow schema that the store enforces and the JSON Schema that is published.

One source: the pydantic records. `arrow_schema(Episode)` is given to the Parquet sink, which refuses a wrong name,
type or null; `model_schema("episode", Episode, 1)` is written to `schemas/<name>/v<N>.json`.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast, get_args, get_origin

from flywheel.errors import ContractError
from flywheel.records import (
    TABLES,
    Certificate,
    Document,
    EvalCase,
    EvalReport,
    Feedback,
    GoldenRow,
    LogEvent,
    Message,
    Night,
    Plan,
    Promotion,
    RoundManifest,
    Row,
)

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pydantic import BaseModel

_MANY = 200  # lists, from which it is worth to flatten them
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

SCHEMA_BASE = "https://flywheel-rl.invalid/schemas"

SCHEMA_MODELS: dict[str, tuple[type[BaseModel], int]] = {
    "log_event": (LogEvent, LogEvent.version),
    "feedback": (Feedback, 1),
    "link": (TABLES["links"], TABLES["links"].version),
    "policy_name": (TABLES["policies"], TABLES["policies"].version),
    "episode": (TABLES["episodes"], TABLES["episodes"].version),
    "step": (TABLES["steps"], TABLES["steps"].version),
    "task": (TABLES["tasks"], TABLES["tasks"].version),
    "opinion": (TABLES["opinions"], TABLES["opinions"].version),
    "correction": (TABLES["corrections"], TABLES["corrections"].version),
    "crowd_member": (TABLES["crowds"], TABLES["crowds"].version),
    "reward": (TABLES["rewards"], TABLES["rewards"].version),
    "reliability": (TABLES["reliability"], TABLES["reliability"].version),
    "label": (TABLES["labels"], TABLES["labels"].version),
    "evidence": (TABLES["evidence"], TABLES["evidence"].version),
    "action_value": (TABLES["values"], TABLES["values"].version),
    "alternative": (TABLES["alternatives"], TABLES["alternatives"].version),
    "return": (TABLES["returns"], TABLES["returns"].version),
    "preference_pair": (TABLES["pairs"], TABLES["pairs"].version),
    "example": (TABLES["examples"], TABLES["examples"].version),
    "group": (TABLES["groups"], TABLES["groups"].version),
    "fixture": (TABLES["fixtures"], TABLES["fixtures"].version),
    "scenario": (TABLES["scenarios"], TABLES["scenarios"].version),
    "quarantine": (TABLES["quarantine"], TABLES["quarantine"].version),
    "message": (Message, 1),
    "eval_case": (EvalCase, EvalCase.version),
    "golden_row": (GoldenRow, GoldenRow.version),
    "plan": (Plan, Plan.version),
    "round_manifest": (RoundManifest, RoundManifest.version),
    "eval_report": (EvalReport, EvalReport.version),
    "promotion": (Promotion, Promotion.version),
    "certificate": (Certificate, Certificate.version),
    "night": (Night, Night.version),
}


def schema_name(row: type[Row | Document]) -> str:
    """Return the published name of a record's schema."""
    return next(name for name, (model, _) in SCHEMA_MODELS.items() if model is row)


def _unwrap(annotation: Any) -> tuple[Any, bool]:
    """Return the annotation without Annotated and None, and whether None was allowed."""
    if get_origin(annotation) is Annotated:
        return _unwrap(get_args(annotation)[0])
    if get_origin(annotation) in {Union, types.UnionType}:
        inner = [a for a in get_args(annotation) if a is not type(None)]
        return _unwrap(inner[0])[0], len(inner) < len(get_args(annotation))
    return annotation, False


def _arrow_type(annotation: Any) -> pa.DataType:
    import pyarrow as pa

    inner, _ = _unwrap(annotation)
    if get_origin(inner) is list:
        return pa.large_list(_arrow_type(get_args(inner)[0]))
    if get_origin(inner) is Literal or (isinstance(inner, type) and issubclass(inner, StrEnum)):
        return pa.large_string()
    simple = {str: pa.large_string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    if inner in simple:
        return simple[inner]
    if inner is datetime:
        return pa.timestamp("us", tz="UTC")
    raise ContractError(f"no Arrow type for {annotation!r}", hint="tables hold text, numbers, times and lists of them")


def arrow_schema(row: type[Row]) -> pa.Schema:
    """Return the Arrow schema of a table row: names, types, nullability and the schema's version as metadata."""
    import pyarrow as pa

    fields = [
        pa.field(name, _arrow_type(field.annotation), nullable=_unwrap(field.annotation)[1])
        for name, field in row.model_fields.items()
    ]
    metadata = {"flywheel.schema": f"{schema_name(row)}/v{row.version}"}
    return pa.schema(fields, metadata=metadata)


@cache
def polars_schema(row: type[Row]) -> pl.Schema:
    """Return the polars schema of a table row, in the record's field order; all callers get the same object."""
    import polars as pl

    def dtype(annotation: Any) -> pl.DataType:
        inner, _ = _unwrap(annotation)
        if get_origin(inner) is list:
            return pl.List(dtype(get_args(inner)[0]))
        simple: dict[Any, pl.DataType] = {bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64()}
        if inner is datetime:
            return pl.Datetime("us", "UTC")
        return simple.get(inner, pl.String())

    return pl.Schema({name: dtype(field.annotation) for name, field in row.model_fields.items()})


def frame_of(rows: Sequence[Mapping[str, Any]], row: type[Row]) -> pl.DataFrame:
    """Return rows as a frame of the record's columns; what a row lacks is null."""
    import polars as pl

    schema = polars_schema(row)
    return pl.DataFrame([series(name, [fields.get(name) for fields in rows], schema[name]) for name in schema])


def series(name: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    """Return a column of Python values.

    Times and lists go through numbers and flat columns, which polars takes in five times and fifteen times as fast.
    (Arrow would load pandas to make an array, half a second in every process.)
    """
    import polars as pl

    if isinstance(dtype, pl.Datetime):
        micros = [None if time is None else (time - _EPOCH) // _MICROSECOND for time in values]
        return pl.Series(name, micros, dtype=pl.Int64).cast(dtype)
    if isinstance(dtype, pl.List) and len(values) >= _MANY and None not in values:
        return _lists(name, values, dtype)
    return pl.Series(name, values, dtype=dtype)


def _lists(name: str, values: Sequence[Sequence[Any] | None], dtype: pl.List) -> pl.Series:
    import polars as pl

    lists = [items or () for items in values]
    inner = series(name, [item for items in lists for item in items], cast("pl.DataType", dtype.inner))
    rows = [row for row, items in enumerate(lists) for _ in items]
    flat = inner.to_frame().with_columns(pl.Series("", rows, dtype=pl.UInt32))
    every = pl.DataFrame({"": pl.int_range(len(lists), dtype=pl.UInt32, eager=True)})
    made = every.join(flat.group_by("", maintain_order=True).agg(name), on="", how="left", maintain_order="left")
    return made[name].fill_null(pl.lit([], dtype=dtype))


def conform(frame: pl.DataFrame | pl.LazyFrame, row: type[Row]) -> pl.LazyFrame:
    """Return the frame with exactly the record's columns, in order and sorted by the record's key.

    Raises:
        ContractError: a column is missing or one too many, or a type does not fit.
    """
    lazy = frame.lazy()
    have, want = lazy.collect_schema(), polars_schema(row)
    missing, extra = sorted(set(want) - set(have)), sorted(set(have) - set(want))
    if missing or extra:
        raise ContractError(
            f"table {row.table}: missing columns {missing}, unknown columns {extra}",
            hint=f"see schemas/{schema_name(row)}/v{row.version}.json",
        )
    wrong = {
        n: f"{have[n]} instead of {want[n]}" for n in want if have[n] != want[n] and have[n].base_type() is not _null()
    }
    if wrong:
        raise ContractError(
            f"table {row.table}: wrong column types {wrong}",
            hint=f"see schemas/{schema_name(row)}/v{row.version}.json",
        )
    return lazy.select([_column(name, want[name]) for name in want]).sort(list(row.key), nulls_last=False)


def _null() -> type[pl.DataType]:
    import polars as pl

    return pl.Null


def _column(name: str, dtype: pl.DataType) -> pl.Expr:
    import polars as pl

    return pl.col(name).cast(dtype)


def model_schema(name: str, model: type[BaseModel], version: int) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a model, with its published name and version as `$id`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{SCHEMA_BASE}/{name}/v{version}.json",
        **model.model_json_schema(mode="validation"),
    }
