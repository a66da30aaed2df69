"""Joining tool calls with their results: by call id, and by order where the log has no ids.

In: calls as the actions are met, results as messages or events are met. Out: each call's status and the events that
prove it. An explicit ok or failed beats unknown, and a result event (a span, a tool log) beats a message in a history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from flywheel.records import ToolStatus

_LOOKED_AT = 64  # calls that are alike
_EXPLICIT = {ToolStatus.OK.value, ToolStatus.FAILED.value}


@dataclass(slots=True)
class OpenCall:
    """One call of an action, and how it ended."""

    call_id: str
    name: str
    key: str
    malformed: bool
    status: str = ToolStatus.UNKNOWN.value
    by_event: bool = False
    answered: bool = False
    has_span: bool = False  # one that does not name it
    answer: dict[str, Any] | None = None  # the message of its first result
    in_history: bool = False  # whether a later input has its result
    events: list[str] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        """Whether a span or a tool's log showed that it failed."""
        return self.by_event and self.status == ToolStatus.FAILED.value

    @property
    def unparsed(self) -> bool:
        """Whether its arguments did not parse, for us and for the program that ran it: one that succeeded did."""
        return self.malformed and self.status != ToolStatus.OK.value


@dataclass(frozen=True, slots=True)
class Result:
    """A tool's answer at one place of the log."""

    call_id: str
    name: str
    status: str
    event_id: str
    is_event: bool
    message: dict[str, Any]
    span: str | None = None
    is_named: bool = True  # whether the log names the call; else the span does not, which may be around one that does


class Results:
    """The calls of one conversation, matched with results as they come."""

    def __init__(self) -> None:
        self.by_order = 0  # results that were matched without an id
        self._by_id: dict[str, OpenCall] = {}
        self._open: list[OpenCall] = []  # not answered yet, oldest first
        self._latest: Sequence[OpenCall] = ()
        self._early: dict[str, Result] = {}  # came before its call: two clocks in one log
        self._alike: dict[str, deque[OpenCall]] = {}  # all calls by key, oldest first
        self._by_span: dict[str, OpenCall] = {}  # of spans that do not name the call which they record
        self._unclaimed: dict[str, int] = {}  # calls without a span so far, by key and by name

    @property
    def orphans(self) -> int:
        """Results that no call ever claimed."""
        return len(self._early)

    def call(self, calls: Sequence[OpenCall], *, is_span: bool = False, goes_on: bool = False) -> list[Result]:
        """Take in an action's calls; return results for them that had come too early.

        Args:
            calls: of the action.
            is_span: whether the action is known by its span alone, so that no other span is of this call.
            goes_on: whether nothing was seen since the action before: results come after the calls of both.
        """
        self._open = [c for c in self._open if not c.answered]
        self._open += calls
        waiting = [call for call in self._latest if not call.answered] if goes_on else []
        self._latest = [*waiting, *calls]
        early = []
        for call in calls:
            self._alike.setdefault(call.key, deque()).append(call)
            for key in () if is_span else (call.key, call.name):
                self._unclaimed[key] = self._unclaimed.get(key, 0) + 1
            if not call.call_id:
                continue
            self._by_id[call.call_id] = call
            if call.call_id in self._early:
                result = self._early.pop(call.call_id)
                _settle(call, result)
                early.append(result)
        return early

    def result(self, result: Result) -> bool:
        """Match a result; return whether it is the first answer to its call."""
        call = self._find(result)
        if call is None:
            if result.is_event:
                self._early[result.call_id or f"?{len(self._early)}"] = result
            return False
        first = not call.answered
        _settle(call, result)
        if first:
            call.answer = result.message
        elif result.is_event and call.answer is not None and not call.answer.get("content"):
            call.answer["content"] = result.message.get("content")
        return first

    def claim(self, call_id: str, name: str, key: str, *, span: str | None = None) -> bool:
        """Whether an action made this call, which a span records.

        By id; else as a call with this key without a span so far, of which the span's id is another name; else, where
        the span has no id, as any such call of this tool: a span may show arguments with their defaults filled in.
        """
        if call_id and call_id in self._by_id:
            return True
        for known in (key,) if call_id else (key, name):
            if self._unclaimed.get(known, 0) > 0:
                for taken in {known, name}:
                    self._unclaimed[taken] = max(self._unclaimed.get(taken, 0) - 1, 0)
                made = self._oldest(known)
                if call_id and made is not None:
                    self._by_id[call_id] = made
                elif span and made is not None:
                    self._by_span[span], made.has_span = made, True
                return True
        return False

    def named(self, call: OpenCall, call_id: str) -> None:
        """Take in the id of a call, which its own record lacks."""
        call.call_id = call_id
        self._by_id[call_id] = call

    def _oldest(self, key: str) -> OpenCall | None:
        """Return the oldest call with a key and without a span so far, of those a few back one without an answer."""
        alike = self._alike.get(key, deque())
        while alike and alike[0].has_span:
            alike.popleft()
        near = [call for call in islice(alike, _LOOKED_AT) if not call.has_span]
        return next((call for call in near if not call.answered), near[0] if near else None)

    def claimed_by(self, span: str | None) -> str:
        """Return the id of the call that a span records, by what it was called with, or ''."""
        call = self._by_span.get(span or "")
        return call.call_id if call else ""

    def name_of(self, call_id: str) -> str:
        """Return the tool of a call id, or ''."""
        call = self._by_id.get(call_id)
        return call.name if call else ""

    def _find(self, result: Result) -> OpenCall | None:
        call = self._by_id.get(result.call_id) if result.call_id else None
        if call is None and not result.call_id:
            call = self._by_span.get(result.span or "")
        if call is None:
            call = self._next_open(result)
            self.by_order += call is not None
        return call

    def _next_open(self, result: Result) -> OpenCall | None:
        """Return the open call that a result without a usable id answers: of the latest action, else of its name."""

        def fits(call: OpenCall) -> bool:
            is_open = not (call.answered if result.is_event else call.in_history)  # a span may show no more than an end
            return is_open and not (call.call_id and result.call_id)

        latest = [call for call in self._latest if fits(call)]
        named = [call for call in latest if call.name == result.name]
        if named or (latest and not result.name):
            return (named or latest)[0]
        older: Iterable[OpenCall] = (c for c in self._open if fits(c) and result.name in {"", c.name})
        return next(iter(older), latest[0] if latest else None)


def _settle(call: OpenCall, result: Result) -> None:
    if (result.is_event or not call.answered) and result.event_id not in call.events:
        call.events.append(result.event_id)
    call.answered = True
    call.in_history = call.in_history or not result.is_event
    if result.status not in _EXPLICIT or (call.has_failed and not result.is_named):
        return
    if result.is_event or not call.by_event:
        call.status = result.status
        call.by_event = call.by_event or result.is_event
