"""The same event twice is one, whichever came first."""

from __future__ import annotations

import polars as pl
from flywheel.stages.ingest.dedup import Ids, dedup
from hypothesis import given
from hypothesis import strategies as st

IDS = [f"{n:032x}" for n in (1, 2, 2**64, 2**64 + 1, 2**127, 2**128 - 1)]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "event_id": st.sampled_from(IDS),
            "source_file": st.sampled_from(["x", "y"]),
            "source_line": st.integers(1, 3),
            "seq": st.integers(0, 2),
        }
    ),
    max_size=12,
)
SCHEMA = {"event_id": pl.String(), "source_file": pl.String(), "source_line": pl.Int64(), "seq": pl.Int64()}


@given(ROWS, st.lists(st.sampled_from(IDS[:3]), unique=True), st.randoms(use_true_random=False))
def test_order_does_not_matter_and_nothing_is_lost(
    rows: list[dict[str, object]], known: list[str], rng: object
) -> None:
    ids = Ids()
    ids.add(pl.Series("event_id", known, dtype=pl.String()))
    shuffled = list(rows)
    getattr(rng, "shuffle")(shuffled)  # noqa: B009 - hypothesis types it as Random only at run time
    one, other = (dedup(pl.DataFrame(r, schema=SCHEMA), ids) for r in (rows, shuffled))
    assert one.equals(other)
    assert one["event_id"].n_unique() == one.height
    assert set(one["event_id"]) == {r["event_id"] for r in rows} - set(known)


def test_the_smallest_place_stays() -> None:
    one = IDS[0]
    frame = pl.DataFrame([(one, "y", 1, 0), (one, "x", 2, 0), (one, "x", 2, 1)], schema=SCHEMA, orient="row")
    assert dedup(frame, Ids()).rows() == [(one, "x", 2, 0)]


HALVES = st.sampled_from(["0" * 16, "f" * 16, "8" * 16, "0123456789abcdef"])


@given(st.lists(st.sets(st.tuples(HALVES, HALVES).map("".join)), max_size=8), st.sets(st.tuples(HALVES, HALVES)))
def test_a_set_of_ids_knows_exactly_what_was_added(runs: list[set[str]], asked: set[tuple[str, str]]) -> None:
    ids, added = Ids(), set[str]()
    for run in runs:
        ids.add(pl.Series(sorted(run - added), dtype=pl.String()))
        added |= run
    names = ["".join(halves) for halves in asked]
    assert ids.known(pl.Series(names, dtype=pl.String())) == [name in added for name in names]
    assert len(ids) == len(added)
