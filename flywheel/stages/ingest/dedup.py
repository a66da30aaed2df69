"""The same event told twice is one event: in two exports, in overlapping files, in a file that is read again.

In: events with their content ids, and the ids that are known. Out: the events that are new, each once. Of several the
one with the smallest place in the sources stays, so that the order in which files are read changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Deduplicated", "dedup"]


class Deduplicated(NamedTuple):
    """New events, and how many were dropped."""

    frame: pl.DataFrame
    n_duplicates: int


def dedup(frame: pl.DataFrame, known_ids: pl.Series) -> Deduplicated:
    """Return the events that are not known, each once; sorted by their place in the sources."""
    import polars as pl

    order = ["source_file", "source_line", "seq", "event_id"]
    known = pl.DataFrame({"event_id": known_ids}, schema={"event_id": pl.String()})
    fresh = (
        frame.sort(order).unique("event_id", keep="first", maintain_order=True).join(known, on="event_id", how="anti")
    ).sort(order)
    return Deduplicated(fresh, frame.height - fresh.height)
