"""Scalars as logs write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from flywheel.reading.usage import token_counts, token_ids
from flywheel.reading.values import (
    count,
    embedded,
    first,
    hex_id,
    ident,
    later,
    literal,
    number,
    python_arguments,
    version,
    when,
    without_nulls,
)
from hypothesis import given
from hypothesis import strategies as st

AT = datetime(2026, 10, 1, 9, 0, 0, 123456, tzinfo=UTC)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=1)


@pytest.mark.parametrize(
    "value",
    [
        "2026-10-01T09:00:00.123456Z",
        "2026-10-01T09:00:00.123456789Z",
        "2026-10-01T11:00:00.123456+02:00",
        "2026-10-01 09:00:00.123456",
        1790845200.123456,
        "1790845200.123456",
        1790845200123456,
        1790845200123456789,
        "1790845200123456789",
        AT,
        AT.astimezone(timezone(timedelta(hours=5))),
        AT.replace(tzinfo=None),
    ],
)
def test_one_moment_in_every_spelling(value: Any) -> None:
    assert when(value) == AT
    assert str(when(value)).endswith("+00:00")


def test_milliseconds_have_thirteen_digits() -> None:
    assert when(1790845200123) == AT.replace(microsecond=123000)
    assert when("1790845200") == AT.replace(microsecond=0)


@pytest.mark.parametrize(
    "value",
    [
        "2026-10-01 09:00:00 UTC",
        "Thu, 01 Oct 2026 09:00:00 GMT",
        "1 Oct 2026 11:00:00 +0200",
        {"$date": "2026-10-01T09:00:00Z"},
        {"$date": {"$numberLong": "1790845200000"}},
        {"$date": 1790845200000},
    ],
)
def test_a_moment_as_databases_and_mails_write_it(value: Any) -> None:
    assert when(value) == AT.replace(microsecond=0)


def test_a_date_of_eight_digits() -> None:
    assert when("20261001") == AT.replace(hour=0, microsecond=0)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        0,
        "0",
        True,
        "yesterday",
        {},
        [],
        12.4,
        3.7,
        "2024",
        2024,
        99_999_999,
        "Thu, 99 Oct 2026 09:00",
        {"$date": {}},
        float("nan"),
        float("inf"),
        10**40,
        "9" * 30,
    ],
)
def test_a_time_is_never_invented(value: Any) -> None:
    assert when(value) is None


@given(SCALARS)
def test_no_value_is_an_error(value: Any) -> None:
    for read in (when, number, count, ident, hex_id, embedded):
        read(value)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("1.5", 1.5),
        (True, 1.0),
        ("NaN", None),
        ("x", None),
        (10**400, None),
        (None, None),
        ("4111111111111111", None),
        ("-12.25", -12.25),
    ],
)
def test_numbers_are_finite(value: Any, found: float | None) -> None:
    assert number(value) == found


@pytest.mark.parametrize("value", ["2.1.0", "v1.1", "0.3.1+git", "2026.10.1", "1.0.0-beta.2"])
def test_a_version_is_one(value: str) -> None:
    assert version(value) == value


@pytest.mark.parametrize("value", ["6011-1635-3307-9976", "sk_live_1", "1.1.1.1.1", "1.0 joe", "", None, 2])
def test_no_version_is_made_of_anything_else(value: Any) -> None:
    assert version(value) is None


def test_counts_are_whole_and_not_negative() -> None:
    assert [count(v) for v in ("10", 4.9, -1, None, 2**70)] == [10, 4, None, None, None]


@pytest.mark.parametrize(
    ("value", "found"),
    [(" a ", "a"), (7, "7"), (0, "0"), ("0000", None), ("", None), (None, None), (True, None), ({}, None)],
)
def test_ids_are_texts(value: Any, found: str | None) -> None:
    assert ident(value) == found


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("7DBAEBA682933BD2484F9FD16655BDE5", "7dbaeba682933bd2484f9fd16655bde5"),
        ("fbrrpoKTO9JIT5/RZlW95Q==", "7dbaeba682933bd2484f9fd16655bde5"),
        ("FOqSrQNMLtA=", "14ea92ad034c2ed0"),
        ("tr-7dbaeba682933bd2484f9fd16655bde5", "7dbaeba682933bd2484f9fd16655bde5"),
        ("7dbaeba6-8293-3bd2-484f-9fd16655bde5", "7dbaeba682933bd2484f9fd16655bde5"),
        ("0000000000000000", None),
        ("run-7", "run-7"),
    ],
)
def test_span_ids_are_hex_however_they_are_written(value: str, found: str | None) -> None:
    assert hex_id(value) == found


def test_json_in_text_is_unwrapped_at_most_twice() -> None:
    assert embedded('{"a":1}') == {"a": 1}
    assert embedded('"{\\"a\\":1}"') == {"a": 1}
    assert embedded("{'a': 1}") == "{'a': 1}"
    assert embedded('"just quoted"') == '"just quoted"'
    assert embedded("12") == "12"


def test_the_first_that_says_something() -> None:
    assert first({"a": None, "b": "", "c": 0, "d": 1}, ("a", "b", "c", "d")) == 0


def test_token_ids_are_whole_numbers_and_nothing_else() -> None:
    assert token_ids([1, 2]) == [1, 2]
    others: list[Any] = [[], None, "12", [1, "2"], [True], [1.5], {"0": 1}]
    assert [token_ids(other) for other in others] == [None] * len(others)


def test_tokens_of_reasoning_that_are_counted_apart() -> None:
    assert token_counts({"promptTokenCount": 10, "thoughtsTokenCount": 30})["output_tokens"] == 30
    assert token_counts({"candidatesTokenCount": 2, "thoughtsTokenCount": 30})["output_tokens"] == 32
    assert token_counts({}) == {"input_tokens": None, "output_tokens": None}


def test_nulls_go_at_every_depth() -> None:
    assert without_nulls({"a": None, "b": [{"c": None, "d": 0}, None]}) == {"b": [{"d": 0}, None]}
    assert without_nulls(None) is None


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), TREES, max_size=3))
def test_an_object_as_python_writes_it_is_read_back(value: dict[str, Any]) -> None:
    try:
        repr(value).encode()
    except UnicodeEncodeError:
        return
    assert literal(repr(value)) == value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("{'a': true, \"b\": null}", {"a": True, "b": None}),
        (" {'path': 'C:\\dir'} ", {"path": "C:\\dir"}),
        ("{}", {}),
    ],
)
def test_spellings_of_literals(written: str, value: Any) -> None:
    assert literal(written) == value


@pytest.mark.parametrize(
    "written",
    [
        "", "order 7", "[7]", "{7}", "{'a'}", "{7: 1}", "{'a': 1, 'a': 2}", "{'a': b}", "{'a': f()}",
        "{'a': b'x'}", "{'a': 1j}", "{'a': 1e999}", "{'a': f'{1}'}", "{'a': [x for x in y]}", "{**{'a': 1}}", "{'a': 1",
        "{'a': " + "[" * 60 + "]" * 60 + "}", "{'a': " + "(" * 10_000 + ")" * 10_000 + "}", "{'a': -True}",
        "{'a': '" + "x" * 100_000 + "'}", "{'a': " + "9" * 5_000 + "}", "{'a': 1} + {}", "{'a': 1}\x00}",
    ],
)  # fmt: skip
def test_nothing_but_literals_is_read(written: str) -> None:
    assert literal(written) is None


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("search(query='x', n=3)", {"query": "x", "n": 3}),
        ("f()", {}),
        (r"grep(pattern='\d+')", {"pattern": r"\d+"}),
        ("search('x')", None),
        ("search(query=open('x'))", None),
        ("search(n=1, n=2)", None),
        ("search(**{'n': 1})", None),
        ("search(" * 300 + ")" * 300, None),
        ("search", None),
    ],
)
def test_arguments_by_name_are_read_and_nothing_is_called_or_told(
    written: str, given: Any, recwarn: pytest.WarningsRecorder
) -> None:
    assert python_arguments(written) == given
    assert not recwarn.list, "a warning would print a piece of the log"


def test_a_time_that_no_calendar_has_is_none() -> None:
    noon = datetime(2026, 10, 1, 12, tzinfo=UTC)
    assert later(noon, -1.5) == datetime(2026, 10, 1, 11, 59, 58, 500_000, tzinfo=UTC)
    assert [later(noon, seconds) for seconds in (1e300, 1e12, -1e12)] == [None] * 3
