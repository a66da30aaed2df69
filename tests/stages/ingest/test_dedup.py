"""The same event twice is one, whichever came first."""

from __future__ import annotations

import polars as pl
from flywheel.stages.ingest.dedup import dedup
from hypothesis import given
from hypothesis import strategies as st

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "event_id": st.sampled_from("abcdef"),
            "source_file": st.sampled_from(["x", "y"]),
            "source_line": st.integers(1, 3),
            "seq": st.integers(0, 2),
        }
    ),
    max_size=12,
)
SCHEMA = {"event_id": pl.String(), "source_file": pl.String(), "source_line": pl.Int64(), "seq": pl.Int64()}


@given(ROWS, st.lists(st.sampled_from("abc"), unique=True), st.randoms(use_true_random=False))
def test_order_does_not_matter_and_nothing_is_lost(
    rows: list[dict[str, object]], known: list[str], rng: object
) -> None:
    ids = pl.Series("event_id", known, dtype=pl.String())
    shuffled = list(rows)
    getattr(rng, "shuffle")(shuffled)  # noqa: B009 - hypothesis types it as Random only at run time
    one, other = (dedup(pl.DataFrame(r, schema=SCHEMA), ids) for r in (rows, shuffled))
    assert one.frame.equals(other.frame)
    assert one.frame["event_id"].n_unique() == one.frame.height
    assert set(one.frame["event_id"]) == {r["event_id"] for r in rows} - set(known)
    assert one.n_duplicates == len(rows) - one.frame.height


def test_the_smallest_place_stays() -> None:
    rows = [("a", "y", 1, 0), ("a", "x", 2, 0), ("a", "x", 2, 1)]
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    kept = dedup(frame, pl.Series("event_id", [], dtype=pl.String())).frame
    assert kept.rows() == [("a", "x", 2, 0)]
