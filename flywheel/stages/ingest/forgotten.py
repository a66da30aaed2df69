"""Users who were forgotten stay forgotten: their logs are refused when they are read again.

In: events as ingest makes them, and hashes of pseudonyms, conversations and names that were forgotten. Out: which of
the events are refused. Only hashes are kept, so that the list of forgotten users has no names in it; a conversation
in which a forgotten user speaks is learnt on the way, so that its other events are refused too, whatever file they come
from.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from flywheel.records import EventKind, content_id

LATE = (EventKind.FEEDBACK.value, EventKind.OUTCOME.value)
_BARE = ("trace", "session")  # kinds whose plain id is also a conversation's


def user_mark(pseudonym: str) -> str:
    """Return what is kept of a forgotten user."""
    return content_id("forgotten user", pseudonym)


def name_mark(name: str) -> str:
    """Return what is kept of a forgotten conversation id, or of a kind:id that means one."""
    return content_id("forgotten name", name)


class Forgotten:
    """Who and what was forgotten.

    Args:
        marks: hashes as made by `user_mark` and `name_mark`.
    """

    def __init__(self, marks: Iterable[str] = ()) -> None:
        self.marks = set(marks)
        self._users: dict[str, bool] = {}
        self.learnt: set[str] = set()  # conversation ids found in this run, whose earlier events must go as well

    def refused(self, events: pl.DataFrame) -> pl.Series:
        """Return for each event whether it is refused, and learn the conversations in which a forgotten user speaks."""
        if not self.marks or events.is_empty():
            return pl.Series([False] * events.height, dtype=pl.Boolean)
        self._learn(events)
        users = [user for user in events["user"].drop_nulls().unique() if self._is_user(user)]
        conversations = [c for c in events["conversation_id"].unique() if name_mark(c) in self.marks]
        late = pl.col("kind").is_in(LATE)
        targets = [t for t in events.filter(late)["target"].drop_nulls().unique() if self._is_target(t)]
        gone = (
            pl.col("user").is_in(users)
            | pl.col("conversation_id").is_in(conversations)
            | (late & pl.col("target").is_in(targets))
        )
        return events.select(gone.fill_null(value=False)).to_series()

    def _learn(self, events: pl.DataFrame) -> None:
        spoken = events.filter(~pl.col("kind").is_in(LATE) & pl.col("user").is_not_null())
        for conversation, user in spoken.select("conversation_id", "user").unique().iter_rows():
            if self._is_user(user) and name_mark(conversation) not in self.marks:
                self.marks.add(name_mark(conversation))
                self.learnt.add(conversation)

    def _is_user(self, user: str) -> bool:
        if user not in self._users:
            self._users[user] = user_mark(user) in self.marks
        return self._users[user]

    def _is_target(self, target: str) -> bool:
        kind, _, plain = target.partition(":")
        names = (target, plain) if kind in _BARE else (target,)
        return any(name_mark(name) in self.marks for name in names)
