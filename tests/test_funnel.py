"""Counts add up or it is a bug."""

from __future__ import annotations

import polars as pl
import pytest
from flywheel.errors import ContractError
from flywheel.funnel import Funnel
from hypothesis import given
from hypothesis import strategies as st


def test_rows_leave_only_with_a_reason() -> None:
    funnel = Funnel()
    frame = pl.DataFrame({"x": [1, 2, 3, None]})
    funnel.considered = frame.height
    kept = funnel.drop(frame, pl.col("x") > 1, "too large")
    funnel.kept = kept.height

    assert kept["x"].to_list() == [1, None]
    funnel.check("test")
    assert funnel.as_dict() == {"considered": 4, "kept": 2, "dropped: too large": 2}


def test_a_funnel_that_does_not_add_up_is_a_bug() -> None:
    funnel = Funnel()
    funnel.considered = 3

    with pytest.raises(ContractError, match="considered 3, accounted for 0"):
        funnel.check("test")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=5))
def test_merging_adds_every_count(counts: list[tuple[int, int, int]]) -> None:
    total = Funnel()
    for kept, dropped, noted in counts:
        total.merge({"considered": kept + dropped, "kept": kept, "dropped: a: b": dropped, "note: n": noted})

    total.check("test")
    assert total.kept == sum(k for k, _, _ in counts)
    assert total.dropped["a: b"] == sum(d for _, d, _ in counts)
    assert total.notes["n"] == sum(n for _, _, n in counts)
