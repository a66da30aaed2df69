"""Sessions of one file, and the times of what has none: what is known of events before they are put together.

In: a partition's events, as they were read. Out: the same, each session that a line of its file opens as a
conversation, and each piece of a message with a time.
"""

from __future__ import annotations

import polars as pl

from flywheel.records import OPENS


def part_reopened(events: pl.DataFrame) -> pl.DataFrame:
    """Return events with the sessions of a file as conversations, where lines of it open several, one after another.

    What comes before the second session's opening keeps the name; a session that is opened again goes on.
    """
    opening = events.filter(pl.col("payload").str.contains(f'"{OPENS}":', literal=True))
    if opening.is_empty():
        return events
    opening = opening.with_columns(opened=pl.col("payload").str.json_path_match(f"$.{OPENS}")).drop_nulls("opened")
    opening = opening.filter(pl.col("opened").n_unique().over("conversation_id") > 1)
    if opening.is_empty():
        return events
    by = ["conversation_id", "source_file"]
    opening = opening.sort("source_line").unique([*by, "source_line"], keep="first", maintain_order=True)
    first = pl.col("opened").sort_by("source_line").first().over(by)
    opening = opening.select(*by, "source_line", new=pl.when(pl.col("opened") != first).then("opened"))
    places = events.with_row_index("_place").sort("source_line")
    placed = places.join_asof(opening, on="source_line", by=by, check_sortedness=False).sort("_place")
    name = pl.concat_str("conversation_id", pl.lit("/"), "new")
    return placed.with_columns(conversation_id=pl.coalesce(name, "conversation_id")).drop("_place", "new")


def date_pieces(events: pl.DataFrame) -> pl.DataFrame:
    """Return events in which a piece of a message that has no time has that of its message."""
    of = pl.col("payload").str.json_path_match("$.of_message")
    has = pl.col("payload").str.contains('"of_message":', literal=True) & pl.col("ts").is_null()
    if not events.select(has.any()).item():
        return events
    own = events.filter(pl.col("ts").is_not_null()).explode("ids").filter(pl.col("ids").str.starts_with("message:"))
    own = own.select("conversation_id", _message=pl.col("ids").str.strip_prefix("message:"), _ts="ts")
    own = own.unique(["conversation_id", "_message"], keep="first", maintain_order=True)
    named = events.with_columns(_message=pl.when(has).then(of))
    dated = named.join(own, on=["conversation_id", "_message"], how="left", maintain_order="left")
    return dated.with_columns(ts=pl.coalesce("ts", "_ts")).drop("_message", "_ts")
