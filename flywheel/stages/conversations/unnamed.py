"""Calls of conversations that the log does not name, and steps of attempts that it does not, as the attempts they are.

In: a partition's events, where each belongs. Out: the same, with every unnamed conversation as one for each attempt.
Steps that name their task alone are attempts in the order of their file: where their numbers begin again, another one
begins.

A log of bare calls names a conversation by its beginning, as each call repeats it; but six users who begin with "Hi",
or four samples of one prompt, begin alike. A call continues the attempt whose context, with its last answer, its input
begins with; one whose input only holds that last answer continues it too (a program cleared what came before), and so
does one that names the response before it, where the server keeps the rest; any other begins an attempt of its own.
Feedback goes with the call that it names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, groupby
from typing import Any, NamedTuple

import orjson
import polars as pl

from flywheel.records import ATTEMPT_DONE, ATTEMPT_STEP, EventKind
from flywheel.stages.conversations.duplicates import signature_of

UNNAMED = "chat-"  # how readers begin the name that they give a conversation, see `reading.conversation_of`
_LATER = (EventKind.FEEDBACK.value, EventKind.OUTCOME.value)
_ORDER = ("conversation_id", "ts", "source_file", "source_line", "seq", "event_id")


class _Row(NamedTuple):
    conversation_id: str
    event_id: str
    kind: str
    span_id: str | None
    tool_call_id: str | None
    target: str | None
    ids: list[str]
    payload: str
    source_file: str
    source_line: int


class _Call(NamedTuple):
    """One record of a log: what a call saw and what came of it."""

    history: list[Any]  # signatures of its messages
    answers: list[Any]
    names: set[str]  # of the call, as kind:id
    follows: set[str]  # names of the responses that it continues
    rows: list[_Row]


def part_unnamed(events: pl.DataFrame) -> pl.DataFrame:
    """Return events with the attempts of an unnamed conversation as conversations; the earliest keeps the name."""
    unnamed = events.filter(pl.col("conversation_id").str.starts_with(UNNAMED))
    records = pl.struct("source_file", "source_line").n_unique()
    several = unnamed.group_by("conversation_id").agg(records.alias("n")).filter(pl.col("n") > 1)
    if several.is_empty():
        return events
    chosen = unnamed.filter(pl.col("conversation_id").is_in(several["conversation_id"].implode()))
    rows = map(_Row._make, chosen.sort(_ORDER).select(_Row._fields).iter_rows())
    names: dict[str, str] = {}
    for _, own in groupby(rows, key=lambda row: row.conversation_id):
        names |= _names(list(own))
    if not names:
        return events
    new = pl.col("event_id").replace_strict(list(names), list(names.values()), default=None, return_dtype=pl.String)
    here = pl.col("conversation_id").str.starts_with(UNNAMED)
    return events.with_columns(conversation_id=pl.when(here).then(new).fill_null(pl.col("conversation_id")))


def part_restarted(events: pl.DataFrame) -> pl.DataFrame:
    """Return events with the attempts at a task as conversations, where a log only numbers the steps of each.

    Another one begins with the first number after a greater one, or after a step that was the last (`ATTEMPT_DONE`).
    Numbers of which none comes twice are of one attempt, in whatever order. What a file of results has about a task
    with several attempts is of none of them.
    """
    marked = events.filter(pl.col("payload").str.contains(f'"{ATTEMPT_STEP}":', literal=True))
    number = pl.col("payload").str.json_path_match(f"$.{ATTEMPT_STEP}").cast(pl.Int64, strict=False)
    done = pl.col("payload").str.contains(f'"{ATTEMPT_DONE}":true', literal=True)
    record = ["conversation_id", "source_file", "source_line"]
    steps = marked.with_columns(number=number, done=done).drop_nulls("number").unique(record)
    steps = steps.filter(pl.col("number").is_duplicated().any().over("conversation_id"))
    steps = steps.sort("conversation_id", "ts", "source_file", "source_line")
    who = pl.coalesce("policy", "model", pl.lit(""))
    by = ["conversation_id", "who"]
    first, before = pl.col("number").min(), pl.col("number").shift()
    again = (pl.col("number") == first) & ((before > first) | pl.col("done").shift())
    several = pl.col("who").n_unique().over("conversation_id") > 1
    steps = (
        steps.with_columns(who=who)
        .with_columns(attempt=again.over(by).fill_null(value=False).cast(pl.Int64).cum_sum().over(by))
        .with_columns(
            name=pl.concat_str(
                "conversation_id",
                pl.when(several).then("/" + pl.col("who")).otherwise(pl.lit("")),
                pl.when(pl.col("attempt") > 0).then("/" + pl.col("attempt").cast(pl.String)).otherwise(pl.lit("")),
            )
        )
    )
    if steps.is_empty():
        return events
    parted = steps.group_by("conversation_id").agg(parted=pl.col("name").n_unique() > 1)
    found = events.join(steps.select(*record, "name"), on=record, how="left", maintain_order="left")
    found = found.join(parted, on="conversation_id", how="left", maintain_order="left")
    is_of_none = pl.col("kind").is_in(_LATER) & pl.col("parted").fill_null(value=False)
    other = pl.when(is_of_none).then(pl.col("conversation_id") + "/?").otherwise("conversation_id")
    return found.with_columns(conversation_id=pl.coalesce("name", other)).drop("name", "parted")


def _names(rows: Sequence[_Row]) -> dict[str, str]:
    """Return the new conversation of each event that gets one."""
    calls = list(_calls([row for row in rows if row.kind not in _LATER]))
    if any(not call.history for call in calls):
        return {}
    attempts = _Attempts()
    places = [attempts.take(call) for call in calls]
    name = rows[0].conversation_id
    begun: dict[int, str] = {}
    named: dict[str, str] = {}
    for call, attempt in zip(calls, places, strict=True):
        begun.setdefault(attempt, f"{name}/{call.rows[0].event_id}" if attempt else name)
        named |= {row.event_id: begun[attempt] for row in call.rows}
    known = {aim: begun[at] for call, at in zip(calls, places, strict=True) for aim in call.names}
    beside = {(row.source_file, row.source_line): named[row.event_id] for call in calls for row in call.rows}
    for row in rows:
        if row.kind in _LATER:
            place = known.get(row.target or "") or beside.get((row.source_file, row.source_line))
            named[row.event_id] = place or name
    return {event: new for event, new in named.items() if new != name}


def _calls(rows: Iterable[_Row]) -> Iterator[_Call]:
    for _, record in groupby(rows, key=lambda row: (row.source_file, row.source_line)):
        own = list(record)
        history: list[Any] = []
        answers: list[Any] = []
        names: set[str] = set()
        follows: set[str] = set()
        for row in own:
            payload = orjson.loads(row.payload)
            history = history or [signature_of(m) for m in _seen(row, payload)]
            answers += _said(row, payload)
            names.update(row.ids, _named("response", payload.get("response_id")), _named("span", row.span_id))
            follows |= _named("response", payload.get("follows"))
            names |= _named("call", row.tool_call_id)
        yield _Call(history, answers, names, follows, own)


def _seen(row: _Row, payload: dict[str, Any]) -> list[dict[str, Any]]:
    messages = payload.get("messages" if row.kind == EventKind.REQUEST.value else "input")
    return [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []


def _said(row: _Row, payload: dict[str, Any]) -> Iterator[Any]:
    if row.kind == EventKind.MODEL_CALL.value and isinstance(payload.get("message"), dict):
        yield signature_of(payload["message"])
    elif row.kind == EventKind.TOOL_RESULT.value:
        yield signature_of({"role": "tool", "content": payload.get("content")})


def _named(kind: str, name: object) -> set[str]:
    return {f"{kind}:{name}"} if isinstance(name, str) and name else set()


class _Attempts:
    """The attempts of one conversation, numbered as they begin, and how far each is."""

    def __init__(self) -> None:
        self._ends: dict[int, list[int]] = defaultdict(list)  # from the hash of all that attempts have in context
        self._last: dict[Any, list[int]] = defaultdict(list)  # from attempts' last answer
        self._known: dict[tuple[str, Any], int] = {}  # from a call's name and answer
        self._named: dict[str, int] = {}  # from a call's names
        self._awaited: dict[str, int] = {}  # from the name of a response that a call continues
        self._count = 0

    def take(self, call: _Call) -> int:
        """Return the attempt that a call is part of."""
        contexts = list(accumulate(call.history, lambda before, message: hash((before, message)), initial=0))
        copies = [(name, tuple(call.answers)) for name in sorted(call.names)]
        attempt = next((self._known[copy] for copy in copies if copy in self._known), None)
        if attempt is None:
            attempt = self._chained(call)
            attempt = self._continued(contexts, call.history) if attempt is None else attempt
            context = contexts[-1]
            for answer in call.answers:
                context = hash((context, answer))
            self._ends[context].append(attempt)
            if call.answers:
                self._last[call.answers[-1]].append(attempt)
        self._known.update(dict.fromkeys(copies, attempt))
        self._named.update(dict.fromkeys(call.names, attempt))
        self._awaited.update(dict.fromkeys(call.follows, attempt))
        return attempt

    def _chained(self, call: _Call) -> int | None:
        """Return the attempt of a call's response before, whichever of the two came first; None without any."""
        places = (self._named, self._awaited)
        before = (known[name] for name in sorted(call.follows) for known in places if name in known)
        after = (self._awaited[name] for name in sorted(call.names) if name in self._awaited)
        return next(chain(before, after), None)

    def _continued(self, contexts: Sequence[int], history: Sequence[Any]) -> int:
        for context in reversed(contexts[1:]):
            if self._ends.get(context):
                return self._ends[context].pop()
        last = next((message for message in reversed(history) if message[0] == "assistant"), None)
        if self._last.get(last):
            return self._last[last].pop()
        self._count += 1
        return self._count - 1
