"""Schemas are generated from the records, committed, and do not drift."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import Any, cast, get_args

import jsonschema
import polars as pl
import pytest
from flywheel.contracts import arrow_schema, conform, frame_of, polars_schema, series
from flywheel.pipeline.admin.schemas import all_schemas, schema_document
from flywheel.records import TABLES, Row, canonical_json, content_id
from flywheel.stages.common.canonical import as_canonical
from flywheel.store import Store
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("name", sorted(all_schemas()))
def test_the_committed_schema_is_the_generated_one(name: str, root: Path) -> None:
    _, version = all_schemas()[name]
    path = root / "schemas" / name / f"v{version}.json"

    assert path.is_file(), "run `make schemas`"
    assert json.loads(path.read_text()) == schema_document(name), "run `make schemas`"
    jsonschema.Draft202012Validator.check_schema(schema_document(name))


def test_no_schema_is_left_over(root: Path) -> None:
    known = {f"{name}/v{version}.json" for name, (_, version) in all_schemas().items()}
    assert {p.relative_to(root / "schemas").as_posix() for p in (root / "schemas").rglob("*.json")} == known


@pytest.mark.parametrize("row", TABLES.values(), ids=list(TABLES))
def test_arrow_and_polars_agree_on_every_table(row: type[Row]) -> None:
    empty = pl.DataFrame(schema=polars_schema(row))

    assert arrow_schema(row).names == list(polars_schema(row))
    assert conform(empty, row).collect().schema == polars_schema(row)
    assert set(row.key) <= set(row.model_fields)


def _lists(dtype: pl.DataType, text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Values of a list's type, of any depth."""
    if isinstance(dtype, pl.List):
        return st.lists(_lists(cast(pl.DataType, dtype.inner), text), max_size=3)
    numbers: dict[Any, st.SearchStrategy[Any]] = {pl.Float64: st.floats(-1, 1), pl.Int64: st.integers(0, 2**40)}
    return numbers.get(dtype, text)


def _values(dtype: pl.DataType, *, nullable: bool) -> st.SearchStrategy[Any]:
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    times = st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)).map(lambda d: d.replace(tzinfo=UTC))  # noqa: DTZ001
    by_type: dict[Any, st.SearchStrategy[Any]] = {
        pl.String: text,
        pl.Int64: st.integers(0, 2**40),
        pl.Float64: st.floats(0, 1),
        pl.Boolean: st.booleans(),
        pl.Datetime: times,
        pl.List: _lists(dtype, text),
    }
    found = by_type[dtype.base_type()]
    return st.none() | found if nullable else found


@given(data=st.data(), table=st.sampled_from(sorted(TABLES)))
def test_record_to_parquet_to_record(data: st.DataObject, table: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    row = TABLES[table]
    nullable = {n: NoneType in get_args(f.annotation) for n, f in row.model_fields.items()}
    values = {n: data.draw(_values(t, nullable=nullable[n]), label=n) for n, t in polars_schema(row).items()}
    frame = pl.DataFrame([values], schema=polars_schema(row))
    assert frame_of([values, values], row).equals(pl.concat([frame, frame]))
    store = Store(tmp_path_factory.mktemp("store"))

    part = store.write(table, frame, partition=0)
    assert part is not None
    assert store.read([part], table).collect().equals(frame)


def test_columns_are_what_polars_makes_of_the_same_values() -> None:
    nested, text = pl.List(pl.List(pl.Float64)), pl.List(pl.String)
    values: dict[str, list[Any]] = {
        "nested": [[[1, 0.5], []], [], [[2]]],
        "text": [[], ["a", None], ["b"]],
        "empty": [[], [], []],
    }
    for name, dtype in (("nested", nested), ("text", text), ("empty", text)):
        for times in (1, 100):  # few are not worth another way
            made = series(name, values[name] * times, dtype)
            expected = pl.Series(name, values[name] * times, dtype=dtype)
            assert made.equals(expected, check_dtypes=True, check_names=True)
    assert series("nested", [[]] * 300, nested).dtype == nested
    with pytest.raises(TypeError):
        series("n", ["no number"], pl.Int64())


def test_equal_content_has_equal_ids() -> None:
    assert content_id({"a": 1, "b": [2]}) == content_id({"b": [2], "a": 1})
    assert content_id("a", "b") != content_id("ab")
    assert len(content_id("\ud800")) == 32
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json(float("nan"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
        | st.text() | st.sampled_from([1e16, 1e-7, -0.0, 2**64, "\ud800", "\x7f\u2028"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    )
)  # fmt: skip
def test_canonical_json_is_what_the_standard_library_writes(value: Any) -> None:
    written = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    assert canonical_json(value) == written
    assert content_id(value) == hashlib.sha256(f"[{written}]".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    assert as_canonical(json.dumps(value), lambda same: same) == written
    assert as_canonical(json.dumps([value]), lambda same: same[0]) == written
    assert as_canonical(canonical_json([value]), lambda same: same[0]) == written
