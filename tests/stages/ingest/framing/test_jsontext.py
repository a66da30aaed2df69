"""JSON as logs hold it: exact, tolerant, never fatal."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

import pytest
from flywheel.stages.ingest.framing.jsontext import MAX_DEPTH, BadJsonError, dumps, loads, storable
from hypothesis import given
from hypothesis import strategies as st

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("raw", "value", "tags"),
    [
        (b'{"a":1}', {"a": 1}, ()),
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}, ()),
        (b'{"a":NaN,"b":-Infinity}', {"a": None, "b": None}, ("non_finite_number",)),
        (b'{"a":1e999}', {"a": None}, ("non_finite_number",)),
        (b'{"a":"cut \\ud83d"}', {"a": "cut \ufffd"}, ("broken_text",)),
        (b'{"a":123456789012345678901234}', {"a": 123456789012345678901234}, ()),
        (b'{"a":18446744073709551617}', {"a": 18446744073709551617}, ()),
        (b'{"a":\t18446744073709551617}', {"a": 18446744073709551617}, ()),
        (b'{"a":[1,\n    -9223372036854775809]}', {"a": [1, -9223372036854775809]}, ()),
        (b'{"a":\r\n  18446744073709551617}', {"a": 18446744073709551617}, ()),
        (b'{"a":1,"a":2}', {"a": 2}, ()),
    ],
)
def test_what_a_table_cannot_hold_is_replaced_and_said(raw: bytes, value: object, tags: tuple[str, ...]) -> None:
    assert loads(raw) == (value, tags)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"a":', "bad_json"),
        (b"", "bad_json"),
        (b'{"a":"\xff"}', "bad_encoding"),
        (b"[" * 100_000, "bad_record"),
        (b"[" * 400 + b"]" * 400, "bad_record"),
        (b"9" * 5000, "bad_record"),
    ],
)
def test_what_is_no_json_has_a_reason_without_the_text(raw: bytes, reason: str) -> None:
    with pytest.raises(BadJsonError) as caught:
        dumps(loads(raw).value)
    assert caught.value.reason == reason
    assert raw[:8].decode("latin-1") not in caught.value.detail or not raw


@given(st.integers(-(2**80), 2**80), st.text(" \t\r\n"))
def test_integers_keep_their_digits_however_a_document_is_laid_out(value: int, space: str) -> None:
    assert loads(f"{space}{value}".encode()).value == value
    assert loads(f'{{"a":{space}[{space}{value}{space},{space}{value}]}}'.encode()).value == {"a": [value, value]}


@given(JSON)
def test_writing_and_reading_gives_the_value_back(value: object) -> None:
    assert loads(dumps(value).encode()).value == value


@given(JSON)
def test_equal_values_give_equal_text(value: object) -> None:
    assert dumps(json.loads(json.dumps(value))) == dumps(value)


def test_values_of_tables_become_json() -> None:
    row = {
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "naive": datetime.fromisoformat("2026-01-01"),
        "day": date(2026, 1, 2),
        "raw": b"x\xff",
    }
    assert storable(row).value == {
        "at": "2026-01-01T00:00:00+00:00",
        "naive": "2026-01-01T00:00:00+00:00",
        "day": "2026-01-02",
        "raw": "x\ufffd",
    }


def test_depth_is_bounded_for_values_too() -> None:
    value: object = 1
    for _ in range(MAX_DEPTH + 2):
        value = [value]
    with pytest.raises(BadJsonError, match="nested deeper"):
        storable(value)
