"""Attempts that a user went back on: conversations that are trees, as attempts that begin alike.

In: a partition's events, where each belongs. Out: the same, with every conversation that was rewound as its last
path and, under a name of its own, each attempt that was given up, from the beginning and with the fork as feedback.

A reader that knows which message an event follows puts `threaded` into its payload; `span_id` is then the message and
`parent_id` the one before. One that only knows the number of an event in its attempt gives that (`position`). Results
of parallel calls fork a tree too, but are not attempts: an attempt that was given up holds a reply that the path does
not. Where a chain is broken nothing is split.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import NamedTuple, TypeVar

import orjson
import polars as pl

from flywheel.records import EventKind

_FORK = '"forked_from":"'
_BEGINS = '"begins_here":true'
_BURST = timedelta(seconds=0.5)  # between lines that a program writes at once; a model's reply takes longer
_PLACED = '"position":'
_MARK = '"threaded":true'
_BY_USER = '"role":"user"'  # as canonical JSON writes it
_COPIED = '{"copied":true,'  # before the other fields of a payload, which is marked and so not empty
Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)
_REWIND = '{"annotator":"human","name":"rewind","target":"session"}'


def follow_threads(events: pl.DataFrame) -> pl.DataFrame:
    """Return events with attempts that were given up as conversations of their own; most logs have none.

    An event before the fork is in every attempt that it belongs to, under the same `event_id`; in those that were given
    up it is `copied`, so that its tokens count once.
    """
    events = _mark_forks(_placed(events))
    marked = events.filter(pl.col("payload").str.contains(_MARK, literal=True))
    if marked.is_empty():
        return events
    forked = _forked(marked)
    frames = [events.filter(~pl.col("conversation_id").is_in(forked))]
    for name in forked:
        own = events.filter(pl.col("conversation_id") == name).sort("ts", "seq", "event_id", nulls_last=False)
        frames += _apart(own, _Tree(own))
    return pl.concat(frames)


def _placed(events: pl.DataFrame) -> pl.DataFrame:
    """Return events that have a position as messages of a tree: each follows the newest one with a smaller number."""
    number = pl.col("payload").str.json_path_match("$.position").cast(pl.Int64, strict=False)
    marked = events.filter(pl.col("payload").str.contains(_PLACED, literal=True)).with_columns(_number=number)
    parents: dict[str, str | None] = {}
    rows = marked.drop_nulls(["_number", "span_id"]).sort("conversation_id", "ts", "seq", "event_id")
    conversation, path = "", list[tuple[int, str]]()
    for own, name, span, at in rows.select("event_id", "conversation_id", "span_id", "_number").iter_rows():
        conversation, path = (name, path) if name == conversation else (name, [])
        while path and path[-1][0] >= at and path[-1][1] != span:
            path.pop()
        if not path or path[-1][1] != span:
            path.append((at, span))
        parents[own] = path[-2][1] if len(path) > 1 else None
    if not parents:
        return events
    found = pl.DataFrame(list(parents.items()), schema={"event_id": pl.String, "_parent": pl.String}, orient="row")
    joined = events.join(found.with_columns(_here=True), on="event_id", how="left", maintain_order="left")
    here = pl.col("_here").fill_null(value=False)
    threaded = pl.col("payload").str.replace("{", '{"threaded":true,', literal=True)
    return joined.with_columns(
        parent_id=pl.when(here).then("_parent").otherwise("parent_id"),
        payload=pl.when(here).then(threaded).otherwise("payload"),
    ).drop("_parent", "_here")


def _mark_forks(events: pl.DataFrame) -> pl.DataFrame:
    """Return events with the beginning of every fork that repeats the session it was forked from as `copied`.

    A payload names that session (`forked_from`), or is the first that is the fork's own (`begins_here`). What is
    repeated is before that, or is older than the fork, or was written with the last line that names a session: up to
    the first pause.
    """
    marked = events.filter(pl.col("payload").str.contains(_BEGINS, literal=True))
    begun = marked.filter(pl.col("payload").str.json_path_match("$.begins_here") == "true").group_by("conversation_id")
    begins = dict(begun.agg(pl.col("seq").min()).iter_rows())
    if begins:
        first = pl.col("conversation_id").replace_strict(begins, default=0, return_dtype=pl.Int64)
        events = mark_copies(events, pl.col("seq") < first)
    named = events.filter(pl.col("payload").str.contains(_FORK, literal=True))
    pairs = named.select("conversation_id", pl.col("payload").str.json_path_match("$.forked_from")).unique().iter_rows()
    forks = sorted({name for name, session in pairs if not name.startswith(f"{session}/")})
    copies: list[str] = []
    for name in forks:
        own = events.filter(pl.col("conversation_id") == name).sort("seq", "ts")
        copies += _repeated(own)
    if not copies:
        return events
    return mark_copies(events, pl.col("event_id").is_in(copies))


def _repeated(own: pl.DataFrame) -> list[str]:
    """Return the events with which a fork repeats its session.

    A copied line may name a session too, and may be written seconds after the fork's own first line.
    """
    times, session = own["ts"].to_list(), own["conversation_id"][0]
    others = own["payload"].str.json_path_match("$.forked_from").to_list()
    copied = max(n for n, other in enumerate(others) if other and not session.startswith(f"{other}/"))
    begin, last = times[0], times[copied]
    for n, ts in enumerate(times):
        if ts is None or begin is None or last is None:
            return own["event_id"].to_list()[:n]
        if n > copied and ts >= begin and ts - max(begin, last) > _BURST:
            return own["event_id"].to_list()[:n]
        last = ts if n > copied else last
    return own["event_id"].to_list()


def mark_copies(events: Frame, where: pl.Expr) -> Frame:
    """Return events with those that another conversation holds too as `copied`: their tokens count there."""
    is_new = where & ~pl.col("payload").str.starts_with(_COPIED)
    copied = pl.col("payload").str.replace("{", _COPIED, literal=True)
    return events.with_columns(payload=pl.when(is_new).then(copied).otherwise("payload"))


def _forked(marked: pl.DataFrame) -> list[str]:
    """Return the conversations in which several messages follow one."""
    links = marked.select("conversation_id", "span_id", "parent_id").drop_nulls().unique()
    forked = links.group_by("conversation_id", "parent_id").len().filter(pl.col("len") > 1)["conversation_id"]
    return sorted(forked.unique())


class _Attempt(NamedTuple):
    """An attempt that was given up: all its messages, those that are its own, and the message that came instead."""

    messages: set[str]
    own: set[str]
    instead: str


def _apart(events: pl.DataFrame, tree: _Tree) -> Iterator[pl.DataFrame]:
    """Yield the events of the last path, then those of each attempt that was given up, with what took its place."""
    span = pl.col("span_id")
    own = tree.dropped.union(*(attempt.own for attempt in tree.attempts.values()))
    yield events.filter(span.is_null() | ~span.is_in(sorted(own)))
    for leaf, attempt in sorted(tree.attempts.items()):
        path = events.filter(span.is_in(sorted(attempt.messages))).with_columns(
            payload=pl.when(~span.is_in(sorted(attempt.own)))
            .then(pl.col("payload").str.replace("{", _COPIED, literal=True))
            .otherwise("payload")
        )
        fork = events.filter(span == attempt.instead).head(1)
        back = fork.with_columns(kind=pl.lit(EventKind.FEEDBACK.value), payload=pl.lit(_REWIND))
        name = f"{events['conversation_id'][0]}/{leaf}"
        yield pl.concat([path, back]).with_columns(conversation_id=pl.lit(name))


class _Tree:
    """One conversation's messages as a tree.

    Attributes:
        attempts: those that were given up, by their last message.
        dropped: what users wrote and took back before any reply.
    """

    def __init__(self, events: pl.DataFrame) -> None:
        self.attempts: dict[str, _Attempt] = {}
        self.dropped: set[str] = set()
        self._order: dict[str, int] = {}
        self._parents: dict[str, str | None] = {}
        self._children: dict[str, list[str]] = defaultdict(list)
        self._replies: dict[str, set[str]] = defaultdict(set)
        self._thoughts: set[str] = set()  # replies without words and calls, which make no attempt
        self._by_user: set[str] = set()
        for at, row in enumerate(events.select("span_id", "parent_id", "kind", "payload").iter_rows()):
            if row[0] is not None and _MARK in row[3]:
                self._take(at, *row)
        for message, parent in self._parents.items():
            if parent in self._order:
                self._children[parent].append(message)
        waiting = [(message, set[str](), "") for message, parent in self._parents.items() if parent not in self._order]
        while waiting:
            waiting += self._walk(*waiting.pop())

    def _take(self, at: int, message: str, parent: str | None, kind: str, payload: str) -> None:
        self._order[message] = at
        self._parents.setdefault(message, parent)
        if kind == EventKind.MODEL_CALL.value:
            told = orjson.loads(payload)
            if any((told.get("message") or {}).get(name) for name in ("content", "tool_calls")):
                self._replies[message].add(str(told.get("response_id") or message))
            else:
                self._thoughts.add(message)
        elif kind == EventKind.REQUEST.value and _BY_USER in payload:
            self._by_user.add(message)

    def _walk(self, root: str, before: set[str], instead: str) -> Iterator[tuple[str, set[str], str]]:
        """Follow the last path below a message; yield each fork with the messages before it and its replacement."""
        path = self._path(root)
        kept, forks = set(path), list[tuple[str, str]]()
        for message, following in itertools.pairwise(path):
            for other in self._children[message]:
                below = self._below(other) if other != following else set()
                if self._replies_in(below) - self._replies_in(path):
                    forks.append((other, following))
                elif below & self._by_user:
                    self.dropped |= below - self._thoughts  # whose tokens count
                else:
                    kept |= below
        if instead:
            self.attempts[max(kept, key=self._order.__getitem__)] = _Attempt(before | kept, kept, instead)
        for other, following in forks:
            yield other, before | (kept - self._below(following)), following

    def _below(self, message: str) -> set[str]:
        below, waiting = {message}, [message]
        while waiting:
            following = [one for one in self._children[waiting.pop()] if one not in below]
            below.update(following)
            waiting += following
        return below

    def _path(self, root: str) -> list[str]:
        """Return the messages from one to the last that follows it."""
        path = [max(self._below(root), key=self._order.__getitem__)]
        while path[-1] != root:
            path.append(str(self._parents[path[-1]]))
        return path[::-1]

    def _replies_in(self, messages: Iterable[str]) -> set[str]:
        return {reply for message in messages for reply in self._replies.get(message, ())}
