"""The scanner of JSON documents: every value once, whatever the buffer cuts."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from flywheel.stages.ingest.framing import documents
from flywheel.stages.ingest.framing.documents import document_pieces
from hypothesis import given
from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def values(text: str, limit: int = 1 << 20) -> list[Any]:
    return [json.loads(p.raw) for p in document_pieces(io.BytesIO(text.encode()), limit)]


@given(st.lists(JSON, max_size=6), st.integers(1, 12), st.sampled_from([None, 2]))
def test_an_array_gives_its_elements_whatever_the_buffer(items: list[Any], chunk: int, indent: int | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "_CHUNK", chunk)
        assert values(json.dumps(items, indent=indent, ensure_ascii=False)) == items


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=3), min_size=1, max_size=4), st.integers(1, 12))
def test_documents_in_a_row_are_records_each(items: list[Any], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "_CHUNK", chunk)
        assert values("\n".join(json.dumps(item, indent=1) for item in items)) == items


def test_an_element_that_is_too_long_is_skipped_and_measured() -> None:
    long = {"a": "x" * 3_000_000}
    pieces = list(document_pieces(io.BytesIO(json.dumps([1, long, {"b": 2}]).encode()), 1_000_000))
    assert [p.raw for p in pieces] == [b"1", b"", b'{"b": 2}']
    assert pieces[1].size == len(json.dumps(long))
    assert len(pieces[1].digest) == 64


def test_a_bad_element_does_not_cost_the_next() -> None:
    pieces = list(document_pieces(io.BytesIO(b'[{"a": }, {"b": 2}, oops, {"c": 3}]'), 1000))
    assert [p.raw for p in pieces] == [b'{"a": }', b'{"b": 2}', b"oops", b'{"c": 3}']


@pytest.mark.parametrize("text", ['[{"a": 1}, {"b": "cut', '[{"a": 1}', '[{"a": 1},', "["])
def test_an_array_that_ends_early_says_so(text: str) -> None:
    pieces = list(document_pieces(io.BytesIO(text.encode()), 1000))
    assert [p.truncated for p in pieces] == [False] * (len(pieces) - 1) + [True]


def test_stray_brackets_end() -> None:
    assert len(list(document_pieces(io.BytesIO(b"]]}}]"), 1000))) == 5
