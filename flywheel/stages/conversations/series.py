"""Series of files in which a program writes a chat again as it grows: `round_0.json`, `round_1.json`, ...

In: events, those of such files with an id for the part of the series that they are (`part:SERIES:CONTENT`). Out: which
file's chat is a part of which other one's, and the events without what that one has too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from flywheel.records import PART, EventKind

SERIES = "series:"  # before its name, in a link
_SURE = 2  # answers that two files have in common word for word: one may be by chance, "Hello! How can I help?"


class Repeated(NamedTuple):
    """A conversation all of which another one holds."""

    source: str
    home: str
    series: str


class _Chat(NamedTuple):
    name: str
    parts: set[str]
    answers: int


def repeated_in_series(events: pl.DataFrame) -> Iterator[Repeated]:
    """Yield the chats that a later file of their series holds too, each with the last one that does.

    One answer in common may be chance; two, or a third file that goes on from the second, are none.

    Args:
        events: conversation_id, kind and ids.
    """
    told = events.select("conversation_id", "kind", name="ids").explode("name")
    parts = told.filter(pl.col("name").str.starts_with(PART))
    if parts.is_empty():
        return
    parts = parts.with_columns(series=pl.col("name").str.extract(rf"^(?s){PART}(.*):"))
    for (series,), own in sorted(parts.group_by("series"), key=lambda group: str(group[0])):
        chats = [_chat(name, rows) for (name,), rows in own.group_by("conversation_id")]
        yield from _repeated(str(series), sorted(chats, key=lambda chat: (len(chat.parts), chat.name)))


def _chat(name: object, rows: pl.DataFrame) -> _Chat:
    return _Chat(str(name), set(rows["name"]), rows.filter(kind=EventKind.MODEL_CALL.value).height)


def _repeated(series: str, chats: list[_Chat]) -> Iterator[Repeated]:
    holders: dict[str, list[int]] = defaultdict(list)  # in order of their length
    for place, chat in enumerate(chats):
        for part in chat.parts:
            holders[part].append(place)
    following = [_next(place, chats, holders) for place in range(len(chats))]
    last = list(range(len(chats)))
    for place in reversed(last):
        last[place] = last[later] if (later := following[place]) is not None else place
    for chat, later, end in zip(chats, following, last, strict=True):
        if later is not None and (chat.answers >= _SURE or following[later] is not None):
            yield Repeated(chat.name, chats[end].name, f"{SERIES}{series}")


def _next(place: int, chats: list[_Chat], holders: dict[str, list[int]]) -> int | None:
    """Return the shortest chat that holds all of one, and more."""
    own = chats[place].parts
    rarest = min((holders[part] for part in own), key=len)
    longer = (other for other in rarest if len(chats[other].parts) > len(own))
    return next((other for other in longer if own < chats[other].parts), None)


def without_repeated(events: pl.LazyFrame, links: pl.DataFrame) -> pl.LazyFrame:
    """Return recorded events without those of a file of a series that the last one has too."""
    repeated = links.filter(pl.col("via").str.starts_with(SERIES))["source"]
    if repeated.is_empty():
        return events
    is_part = pl.col("ids").list.eval(pl.element().str.starts_with(PART)).list.any()
    return events.filter(~(is_part & pl.col("conversation_id").is_in(repeated.implode())))
