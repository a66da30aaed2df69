"""Series of files in which a program writes a chat again as it grows: `round_0.json`, `round_1.json`, ...

Only names that mean so are such: `attempt_1` and `chat_1` may begin as another one does, and end before it. Or a
stream is kept under several names, all with the id of its thread.

In: events, those of such files with an id for the part of the series that they are (`part:SERIES:CONTENT`). Out: which
file's chat is a part of which other one's, and the events without what that one has too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePosixPath
from typing import NamedTuple

import polars as pl

from flywheel.reading.values import words_of
from flywheel.records import PART, THREAD, EventKind

_LATE = (EventKind.FEEDBACK.value, EventKind.OUTCOME.value)  # which the last file may not have
SERIES = "series:"  # before its name, in a link
_GROWS = {
    "round",
    "step",
    "turn",
    "snapshot",
    "checkpoint",
    "state",
    "history",
    "messages",
    "dump",
    "update",
    "request",
}
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
    is_thread = series.startswith(THREAD)
    for place, chat in enumerate(chats):
        whole = list(islice(_wholes(place, chats, holders, equal=is_thread), _SURE))
        if whole and (is_thread or _grows(chat, is_continued=len(whole) == _SURE)):
            yield Repeated(chat.name, chats[whole[0]].name, f"{SERIES}{series}")


def _grows(chat: _Chat, *, is_continued: bool) -> bool:
    """Whether a chat that another one begins with is the same at an earlier time: by its file's name, and no chance."""
    stem = PurePosixPath(chat.name).parent.name  # of `FOLDERS/STEM/chat`
    return not _GROWS.isdisjoint(words_of(stem)) and (chat.answers >= _SURE or is_continued)


def _wholes(place: int, chats: list[_Chat], holders: dict[str, list[int]], *, equal: bool) -> Iterator[int]:
    """Yield the chats that hold all of one and more, or `equal` ones, one of each length, the longest first."""
    own, seen = chats[place].parts, 0
    for other in reversed(min((holders[part] for part in own), key=len)):
        length = len(chats[other].parts)
        if other <= place or (length == len(own) and not equal):
            return
        if length != seen and own <= chats[other].parts:
            seen = length
            yield other


def without_repeated(events: pl.LazyFrame, links: pl.DataFrame) -> pl.LazyFrame:
    """Return recorded events without those of a file of a series that the last one has too."""
    repeated = links.filter(pl.col("via").str.starts_with(SERIES))["source"]
    if repeated.is_empty():
        return events
    is_part = pl.col("ids").list.eval(pl.element().str.starts_with(PART)).list.any() & ~pl.col("kind").is_in(_LATE)
    return events.filter(~(is_part & pl.col("conversation_id").is_in(repeated.implode())))
