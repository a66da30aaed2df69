"""From one conversation's events, in order, to its actions, each with what the agent saw before it and got back.

In: (kind, event, payload) in time order. Out: actions with observations and results, and the tail after the last one.
Logs record a conversation in two ways, also mixed: a model call with `input` repeats the whole history, so only what
the input adds to the context before it is an observation; without `input` the events between two calls are the
observation. An input that does not continue the context (a compacted history, a sub-agent, a regenerated answer)
replaces it.

No call is lost without a word: every call of the events is one of an action, or is counted by the reason why not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from flywheel.reading.values import embedded
from flywheel.records import ToolStatus
from flywheel.stages.common.canonical import call_key
from flywheel.stages.common.sampling import served
from flywheel.stages.conversations.bare import name_bare_arguments
from flywheel.stages.conversations.continuation import continuation, retold, side_by_side
from flywheel.stages.conversations.duplicates import calls_of, merge_duplicates, nameless_calls, same_message
from flywheel.stages.conversations.fragments import Event, join_fragments
from flywheel.stages.conversations.results import OpenCall, Result, Results
from flywheel.stages.conversations.snapshots import without_repeats

Messages = list[dict[str, Any]]
Usage = dict[str, float]

_PAID = ("model_call", "request")  # of a call that failed only the request is known, and what it cost
_CALLING = ("tool_calls", "tool_call", "tool-calls", "tool_use", "function_call")  # why an answer ended
_USAGE = ("input_tokens", "output_tokens", "cost_usd", "latency_s")
UNSTEPPED = "calls_without_step"  # the tag of a log that has calls or results, but nothing that the agent did

# Why a call of an event is not one of an action.
PIECES, AGAIN = "pieces of one call", "logged more than once"
IN_MESSAGE, NAMELESS, JUDGED = "spans of calls in messages", "without a tool's name", "made by a judge"


@dataclass(slots=True)
class Action:
    """One assistant message, with what was new to the agent before it."""

    observation: Messages
    resets_context: bool
    message: dict[str, Any]
    event_id: str
    calls: list[OpenCall]
    served: str | None = None  # how its tokens were sampled, see `common.sampling`
    lacks_calls: bool = False  # whether it has calls that its own record lacks


@dataclass(slots=True)
class Transcript:
    """A conversation put in order."""

    actions: list[Action] = field(default_factory=list)
    tail: Messages = field(default_factory=list)
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)  # by name, latest schema, first seen first
    usage: Usage = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)
    repeated_calls: int = 0  # duplicate model calls
    orphan_results: int = 0
    logged_calls: int = 0  # tool calls of the events: in answers, and as spans
    uncounted: Counter[str] = field(default_factory=Counter)  # those of them that are in no action, by reason
    shown_calls: int = 0  # of actions whose own records lack them: a later input has them
    seen_calls: int = 0  # calls and results in the messages that the agent was given

    @property
    def made_calls(self) -> int:
        """Tool calls of the actions: `logged_calls` without those `uncounted`, and `shown_calls`."""
        return sum(len(action.calls) for action in self.actions)


def read_transcript(events: Sequence[Event]) -> Transcript:
    """Return the transcript of one conversation whose events are in order."""
    walker = _Walker()
    out, own = walker.out, _of_the_agent(events)
    whole = name_bare_arguments(join_fragments(own))
    unique, out.repeated_calls = merge_duplicates(without_repeats(whole))
    logged = [_calls_in(stage) for stage in (events, own, whole, unique)]
    out.logged_calls = logged[0]
    lost = [before - after for before, after in pairwise(logged)]
    out.uncounted.update(dict(zip((JUDGED, PIECES, AGAIN), lost, strict=True)))
    for event in unique:
        walker.take(event)
    return walker.finish()


def _of_the_agent(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events without those in a judge's span: their records were read one by one, each without the other."""
    above = {event.span_id: event.parent_id for event in events if event.span_id}
    judges = {event.span_id for event in events if event.payload.get("judge") is True}
    if not judges:
        return events
    return [event for event in events if judges.isdisjoint(_line(event.span_id, event.parent_id, above))]


def _line(span: str | None, parent: str | None, above: Mapping[str, str | None]) -> set[str | None]:
    """Return the spans that an event is in."""
    line = {span}
    while parent is not None and parent not in line:
        line.add(parent)
        parent = above.get(parent)
    return line


def _calls_in(events: Iterable[Event]) -> int:
    """Return how many tool calls events have: in the agent's messages, and as spans."""
    return sum(event.kind == "tool_call" or sum(_begins(call, event) for call in _made(event)) for event in events)


def _made(event: Event) -> list[dict[str, Any]]:
    message = event.payload.get("message") if event.kind == "model_call" else None
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _begins(call: Mapping[str, Any], event: Event) -> bool:
    """Whether it is a call, or the first piece of one: only that has a name or an id."""
    return bool(call.get("name") or call.get("id")) or event.payload.get("fragment") != "delta"


def _messages(value: Any) -> Messages:
    logged = value if isinstance(value, list) else []
    return [_named(message) for message in logged if isinstance(message, dict) and message.get("role")]


def _named(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without the calls whose tool the log does not name."""
    if not nameless_calls(message):
        return message
    calls = calls_of(message)
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return rest | ({"tool_calls": calls} if calls else {})


def _tool_name(schema: Any) -> str:
    if not isinstance(schema, dict):
        return ""
    inner = schema.get("function")
    return str((inner if isinstance(inner, dict) else schema).get("name") or "")


class _Walker:
    """Keeps the context that the agent has seen, and what came in since its last action."""

    def __init__(self) -> None:
        self.out = Transcript()
        self.results = Results()
        self.context: Messages = []
        self.pending: Messages = []
        self._resets = False  # whether what is pending replaces the context
        self._unrepeated: set[int] = set()  # identities of messages of the context that inputs leave out
        self._so_far: Usage = {}  # of running totals, what was not paid for in another conversation
        self._last: Usage = {}  # the newest running total, also a copied one, from which a fork may have gone on
        self._tools: Any = None
        self._unanswered: Messages = []  # what the last failed call was asked
        self._hollow = False  # whether the log has nothing of the latest act, or nothing of the calls it ended in
        self._spans: dict[str, str] = {}  # the call that each span is which is an action
        self._take: dict[str, Callable[[Event], None]] = {
            "request": self._request,
            "model_call": self._model_call,
            "tool_call": self._tool_call,
            "tool_result": self._tool_result,
        }

    def take(self, event: Event) -> None:
        handler = self._take.get(event.kind)
        if handler is not None:
            handler(event)
            self._note_tools(event.payload.get("tools"))
            self._note_usage(event)
            tags = event.payload.get("tags")
            if isinstance(tags, list):
                self.out.tags.update(tag for tag in tags if isinstance(tag, str))

    def finish(self) -> Transcript:
        self.out.tail = self.pending
        for name, amount in self._so_far.items():
            self.out.usage[name] = max(amount, self.out.usage.get(name, 0))
        self.out.orphan_results = self.results.orphans
        flags = {
            "paired_by_order": self.results.by_order,
            "orphan_result": self.results.orphans,
            "malformed_call": any(c.unparsed for a in self.out.actions for c in a.calls),
            "context_reset": any(a.resets_context for a in self.out.actions),
            UNSTEPPED: not self.out.actions and "call_failed" not in self.out.tags and self._has_calls() > 0,
        }
        self.out.tags |= {name for name, on in flags.items() if on}
        return self.out

    def _has_calls(self) -> int:
        return self.out.logged_calls or self.out.seen_calls or self.results.orphans

    def _note_usage(self, event: Event) -> None:
        """Add a call's tokens, cost and time; a running total, which some logs repeat instead, is one.

        A copy of an event that another conversation holds too was paid for once, there.
        """
        copied = event.payload.get("copied") is True
        for name in _USAGE if event.kind in _PAID and not copied else ():
            amount = event.payload.get(name)
            if isinstance(amount, int | float):
                self.out.usage[name] = self.out.usage.get(name, 0) + amount
        logged = event.payload.get("usage_so_far")
        self._note_total(logged if isinstance(logged, dict) else {}, copied=copied)

    def _note_total(self, logged: Mapping[str, Any], *, copied: bool) -> None:
        """Add what a running total has grown by; where all of it is less than before, the program began again."""
        total = {name: amount for name in _USAGE if isinstance(amount := logged.get(name), int | float)}
        again = bool(total) and all(amount < self._last.get(name, 0) for name, amount in total.items())
        for name, amount in total.items():
            before = 0 if again else self._last.get(name, 0)
            if not copied:
                self._so_far[name] = self._so_far.get(name, 0) + max(amount - before, 0)
            self._last[name] = amount if again else max(amount, before)

    def _note_tools(self, tools: Any) -> None:
        if isinstance(tools, list) and tools and tools != self._tools:
            self._tools = tools
            self.out.tools.update((name, schema) for schema in tools if (name := _tool_name(schema)))

    def _request(self, event: Event) -> None:
        messages = _messages(event.payload.get("messages"))
        self.out.seen_calls += sum(len(calls_of(m)) + (m["role"] == "tool") for m in messages)
        is_retry = bool(messages) and len(messages) == len(self._unanswered)
        is_retry = is_retry and all(map(same_message, self._unanswered, messages))
        self._unanswered = messages if "call_failed" in (event.payload.get("tags") or ()) else []
        if is_retry:
            return
        replaces = bool(event.payload.get("replaces_context"))
        if replaces:
            self.pending, self._resets = [], bool(self.out.actions)
        n_seen = len(self.context) + len(self.pending)
        repeats = 1 < n_seen <= len(messages) and not replaces
        fresh = continuation(self.context + self.pending, messages) if repeats else None
        if fresh is None and self.out.actions and any(m["role"] == "assistant" for m in messages):
            self.pending, self._resets, fresh = [], True, messages
        told = fresh if fresh is not None else messages
        self._hollow = self._hollow and not told
        self._observe_results(told, event.event_id)
        self.pending += told if self._resets else self._once_instructed(told)

    def _once_instructed(self, messages: Messages) -> Messages:
        """Return messages without the system prompts that the agent has already: some logs repeat them at each turn."""
        prompts = [m.get("content") for m in (*self.context, *self.pending) if m["role"] == "system"]
        return [m for m in messages if m["role"] != "system" or m.get("content") not in prompts]

    def _model_call(self, event: Event) -> None:
        message = event.payload.get("message")
        history = _messages(event.payload["input"]) if isinstance(event.payload.get("input"), list) else None
        if not isinstance(message, dict):
            return
        if history is not None:
            self.pending, self._resets = self._observed(history)
            self._observe_results(self.pending, event.event_id)
        if lost := nameless_calls(message):
            self.out.uncounted[NAMELESS] += lost
            self.out.tags.add("content_missing")
        self._act(event.event_id, _named({"role": "assistant", **message}))
        is_missing = "content_missing" in (event.payload.get("tags") or ()) and not message.get("content")
        ended_in_calls = event.payload.get("finish_reason") in _CALLING
        self._hollow = (is_missing or ended_in_calls) and not message.get("tool_calls")
        self.out.actions[-1].served = served(event.payload)

    def _observed(self, history: Messages) -> tuple[Messages, bool]:
        """Return what an input adds to the context, and whether it replaces the context.

        Some inputs hold nothing but the results of the last calls: a server keeps what was before. Others leave results
        out: those that spans logged are what the agent saw all the same.
        """
        if self._unrepeated or any(m["role"] == "tool" for m in self.pending):
            history = [message for message in history if not _is_blank_result(message)]
        fresh = continuation(self.context, history)
        if fresh is None and self._unrepeated:
            repeated = [m for m in self.context if id(m) not in self._unrepeated]
            fresh = continuation(repeated, history)
            fresh = fresh if fresh is not None else self._retold(repeated, history)
        if fresh is None:
            fresh = continuation(self.context, side_by_side(history, self.context))
        if fresh is None:
            fresh = self._retold(self.context, history)
        if fresh is None and self._are_answers(history):
            fresh = history
        if fresh is None:
            return history, True
        left_out = (
            [] if any(m["role"] == "user" for m in fresh) else [m for m in self.pending if _is_left_out(m, fresh)]
        )
        self._unrepeated |= {id(message) for message in left_out}
        return left_out + fresh, False

    def _retold(self, context: Messages, history: Messages) -> Messages | None:
        """Return what a history adds that writes acts in other words; acts get what it has of them, and they lack."""
        found = retold(context, history)
        for message, whole in found.completed if found is not None else ():
            act = next((act for act in reversed(self.out.actions) if act.message is message), None)
            if act is None:
                continue
            known = [call_key(call) for call in calls_of(message)]
            missing = [call for call in calls_of(whole) if call_key(call) not in known]
            if whole.get("content") and not message.get("content"):
                act.message["content"] = whole["content"]
            self.out.shown_calls += len(missing)
            for call in missing:
                self._add_call(act, call)
            self._put_in_order(act, calls_of(whole))
        return found.fresh if found is not None else None

    def _put_in_order(self, act: Action, calls: Sequence[dict[str, Any]]) -> None:
        """Give an act's calls the order and the ids that a later input has: those of spans come as they were begun."""
        left, ordered = list(act.calls), []
        for call in calls if act.lacks_calls else ():
            made = next((one for one in left if one.key == call_key(call)), None)
            if made is None:
                return
            left.remove(made)
            ordered.append((made, str(call.get("id") or "")))
        if left or not ordered or all(made is own for (made, _), own in zip(ordered, act.calls, strict=True)):
            return
        for made, name in ordered:
            if name and not made.call_id:
                self.results.named(made, name)
        act.calls = [made for made, _ in ordered]
        act.message["tool_calls"] = [*calls]

    def _are_answers(self, history: Messages) -> bool:
        """Whether messages only answer the calls of the last action."""
        made = {call.call_id for call in self.out.actions[-1].calls if call.call_id} if self.out.actions else set()
        return bool(history) and all(m["role"] == "tool" and m.get("tool_call_id") in made for m in history)

    def _act(self, event_id: str, message: dict[str, Any], *, is_span: bool = False) -> None:
        calls = [
            OpenCall(str(c.get("id") or ""), c["name"], call_key(c), c.get("arguments") is None)
            for c in calls_of(message)
        ]
        self.out.actions.append(Action(self.pending, self._resets, message, event_id, calls))
        goes_on = not (self.pending or self._resets)
        if self._resets:
            self.context.clear()
            self._unrepeated.clear()
        self.context += [*self.pending, message]
        self._resets = False
        self.pending = [early.message for early in self.results.call(calls, is_span=is_span, goes_on=goes_on)]

    def _tool_call(self, event: Event) -> None:
        """A call logged only as a span is an action of its own; most are part of an earlier message."""
        name = event.tool_name or str(event.payload.get("name") or "")
        arguments, raw = event.payload.get("arguments"), event.payload.get("arguments_raw")
        call: dict[str, Any] = {"id": event.tool_call_id or "", "name": name, "arguments": arguments}
        if isinstance(raw, str) and arguments is None:
            call["arguments_raw"] = raw
        known = arguments is not None or "arguments_raw" in call
        if not known:
            call["arguments"] = {}
        if not name:
            self.out.uncounted[NAMELESS] += 1
        elif self._is_within_itself(event, call) or self.results.claim(
            call["id"], name, call_key(call) if known else name, span=event.span_id
        ):
            self.out.uncounted[IN_MESSAGE] += 1
        elif self._hollow:  # the latest act made what was run after it
            self._add_call(self.out.actions[-1], call)
        else:
            self.out.tags.add("call_without_message")
            message = {"role": "assistant", "tool_calls": [call], **_attached(event)}
            self._act(event.event_id, message, is_span=True)
            if event.span_id:
                self._spans[event.span_id] = call_key(call)

    def _add_call(self, act: Action, call: dict[str, Any]) -> None:
        """Give an act a call that its own record lacks."""
        act.message["tool_calls"] = [*act.message.get("tool_calls", ()), call]
        act.lacks_calls = True
        opened = OpenCall(
            str(call.get("id") or ""), call["name"], call_key(call), malformed=call.get("arguments") is None
        )
        act.calls.append(opened)
        self.pending += [early.message for early in self.results.call([opened], is_span=True, goes_on=True)]

    def _is_within_itself(self, event: Event, call: dict[str, Any]) -> bool:
        """Whether a span is inside one of the same call: two programs may log one; a retry is next to it."""
        return self._spans.get(event.parent_id or "") == call_key(call)

    def _tool_result(self, event: Event) -> None:
        call_id = event.tool_call_id or self.results.claimed_by(event.span_id)
        status = str(event.payload.get("status") or ToolStatus.UNKNOWN.value)
        name = event.tool_name or self.results.name_of(call_id)
        content = event.payload.get("content")
        message: dict[str, Any] = {"role": "tool", "content": content if isinstance(content, str) else ""}
        extra = {"tool_call_id": call_id, "name": name, "status": status}
        message |= {key: value for key, value in extra.items() if value} | _attached(event)
        result = Result(
            call_id,
            name,
            status,
            event.event_id,
            is_event=True,
            message=message,
            span=event.span_id,
            is_named=bool(event.tool_call_id),
        )
        if self.results.result(result):
            self.pending.append(message)

    def _observe_results(self, messages: Messages, event_id: str) -> None:
        """Match the tool messages of a history; without an id only those after the latest action can be matched."""
        last_action = max((n for n, m in enumerate(messages) if m["role"] == "assistant"), default=-1)
        for position, message in enumerate(messages):
            if message["role"] != "tool":
                continue
            call_id = str(message.get("tool_call_id") or "")
            known = self.results.name_of(call_id)
            if known and not message.get("name"):
                message["name"] = known
            if known or position > last_action:
                status = str(message.get("status") or ToolStatus.UNKNOWN.value)
                name = str(message.get("name") or "")
                self.results.result(Result(call_id, name, status, event_id, is_event=False, message=message))


def _attached(event: Event) -> dict[str, Any]:
    """Return what an event names of images and files, as a field of its message."""
    attachments = event.payload.get("attachments")
    return {"attachments": attachments} if attachments else {}


def _is_blank_result(message: dict[str, Any]) -> bool:
    """Whether a history shows no more than that tools gave something: AutoGen's, as OpenInference writes it."""
    return message["role"] == "tool" and not (message.get("content") or message.get("tool_call_id"))


def _is_left_out(message: dict[str, Any], history: Messages) -> bool:
    """Whether a message is a tool's result that a history does not hold, neither as one nor as anyone's text."""
    if message["role"] != "tool":
        return False
    results = [m for m in history if m["role"] == "tool"]
    if any(not m.get("tool_call_id") or m["tool_call_id"] == message.get("tool_call_id") for m in results):
        return False
    content = str(message.get("content") or "").strip()
    value = embedded(content)
    return not any(content in (told := str(m.get("content") or "")) or value == embedded(told) for m in history)
