"""The spans of one record, each once, and how they relate: parents, roles, conversations.

A record holds spans of many traces in no useful order, children before parents, some twice. A framework's span around
its SDK's span is the same call: the two become one event. A span that names no conversation takes its nearest
ancestor's, else the one that its trace's spans agree on, else the trace's own id; `ids` join events of other records.

In: spans and log records. Out: `Spans`, which knows the columns of each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from flywheel.reading.events import Event, Source
from flywheel.reading.shapes import schemas
from flywheel.reading.spans import PREPARING
from flywheel.reading.values import first, ident, present
from flywheel.records import EventKind, content_id
from flywheel.stages.ingest.readers.tracers._otel.aliases import aliases
from flywheel.stages.ingest.readers.tracers._otel.otlp import OTEL, LogRecord, Span, model_of

_WITH_CONTENT = ("gen_ai.completion", "gen_ai.output.messages", "llm.output_messages")
DIALECTS = ("gen_ai.", "llm.", "openinference.", "ai.", "lk.", "gcp.vertex.agent.", "traceloop.", "langfuse.",
            "haystack.")  # fmt: skip
_MAX_DEPTH = 200
_MCP = "mcp.method.name"
_OPERATION = "gen_ai.operation.name"
_OFFERED = "gen_ai.tool.definitions"

Key = tuple[str | None, str | None]


def event(source: Source, kind: EventKind, ts: datetime | None, payload: dict[str, Any], **columns: Any) -> Event:
    """Return an event with the columns that a span's events share."""
    return {**source, "kind": kind, "ts": ts, "payload": payload, **columns}


class Spans:
    """The spans of one record, each once, with their relations."""

    def __init__(self, spans: Iterable[Span], logs: Sequence[LogRecord] = ()) -> None:
        self.spans = _unique(spans)
        self._by_id = {(s.trace_id, s.span_id): s for s in self.spans if s.span_id}
        self._named = _conversations([*self.spans, *logs])
        self._children: dict[Key, list[Span]] = defaultdict(list)
        self._roles = {id(span): _role(span) for span in self.spans}
        self._judges = {name for name, role in self._roles.items() if role == "judge"}
        self._circular: set[int] = set()
        self._circular = {id(span) for span in self.spans if self._under_itself(span)}
        for span in self.spans:
            if span.parent_id and id(span) not in self._circular:
                self._children[span.trace_id, span.parent_id].append(span)

    def _under_itself(self, span: Span) -> bool:
        above = self.parent(span)
        for _ in range(_MAX_DEPTH - 1):
            if above is None or above is span:
                break
            above = self.parent(above)
        return above is span

    def parent(self, item: Span | LogRecord) -> Span | None:
        """Return the span above; of a log record, the span in which it was written."""
        above = item.parent_id if isinstance(item, Span) else item.span_id
        above = None if id(item) in self._circular else above
        return self._by_id.get((item.trace_id, above)) if above else None

    def children(self, span: Span) -> list[Span]:
        """Return the spans right under one."""
        return self._children.get((span.trace_id, span.span_id), []) if span.span_id else []

    def is_alone(self, span: Span) -> bool:
        """Whether all of a span's trace is under it: where no more than a client is traced, each call is a trace."""
        return span.parent_id is None and self._tops[span.trace_id] == {id(span)}

    @cached_property
    def _tops(self) -> Mapping[str | None, set[int]]:
        """The outermost spans of each trace, as far as the record has them."""
        tops: dict[str | None, set[int]] = defaultdict(set)
        for span in self.spans:
            *_, top = self.upwards(span)
            tops[span.trace_id].add(id(top))
        return tops

    def upwards(self, item: Span | LogRecord) -> Iterator[Span | LogRecord]:
        """Yield a span or log record and the spans above it, the nearest first."""
        current: Span | LogRecord | None = item
        for _ in range(_MAX_DEPTH):
            if current is None:
                return
            yield current
            current = self.parent(current)

    def role(self, span: Span) -> str:
        """Return 'model', 'tool', 'judge' or '' for what a span is; what happens under a judge is not the agent's."""
        role = self._roles[id(span)]
        judged = self._judges and role in {"model", "tool"}
        return "" if judged and any(id(above) in self._judges for above in self.upwards(span)) else role

    def source(self, item: Span | LogRecord, seq: int) -> Source:
        """Return the columns that a span's or log record's events share."""
        line = list(self.upwards(item))
        shared = len(self._named.get(item.trace_id or "", ())) > 1  # one trace of several conversations joins none
        ids = [("trace", None if shared else item.trace_id), ("span", item.span_id)]
        return {
            "conversation_id": self._conversation(line),
            "user": _inherited(line, "user"),
            "policy": _inherited(line, "policy"),
            "task_key": _inherited(line, "task"),
            "model": model_of(item.attributes),
            "span_id": item.span_id,
            "parent_id": item.parent_id if isinstance(item, Span) else None,
            "seq": seq,
            "ids": [f"{kind}:{found}" for kind, found in ids if found],
        }

    def _conversation(self, line: Sequence[Span | LogRecord]) -> str:
        """Return the conversation of the first of a line of spans, each under the next."""
        item = line[0]
        agreed = self._named.get(item.trace_id or "", set())
        named = _nearest(line, "conversation") or (next(iter(agreed)) if len(agreed) == 1 else None)
        return named or OTEL.name_of(item.resource, "conversation") or item.trace_id or _orphan(line[-1])

    def mappings(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield empty requests: of a trace's talk without events, of agents (aims of feedback), of evaluators."""
        for seq, span in enumerate(self.spans):
            if id(span) in self._judges:
                judge = {"messages": [], "judge": True}
                yield event(self.source(span, seq), EventKind.REQUEST, span.started, judge)
        known = {(e["conversation_id"], name) for e in events for name in e.get("ids", ())}
        for seq, span in enumerate(self.spans):
            named = OTEL.name_of(span.attributes, "conversation")
            alone = named is not None and span.trace_id is not None and self._named.get(span.trace_id) == {named}
            new = alone and (named, f"trace:{span.trace_id}") not in known
            if new or self.is_agent(span):
                known.add((named or "", f"trace:{span.trace_id}"))
                offered = present(tools=schemas(span.attributes.get(_OFFERED)))  # which Strands' calls leave out
                yield event(self.source(span, seq), EventKind.REQUEST, span.started, {"messages": [], **offered})

    def is_agent(self, span: Span) -> bool:
        """Whether a span is a whole run, which opinions are often about; of others only where a trace begins."""
        role = self._roles[id(span)]
        if role or span.trace_id is None or span.parent_id is not None:
            return role == "agent"
        return any(name.startswith(DIALECTS) for name in span.attributes)


def _nearest(line: Sequence[Span | LogRecord], meaning: str) -> str | None:
    """Return the name that the nearest span in a line has."""
    return next((name for above in line if (name := OTEL.name_of(above.attributes, meaning))), None)


def _inherited(line: Sequence[Span | LogRecord], meaning: str) -> str | None:
    return _nearest(line, meaning) or OTEL.name_of(line[0].resource, meaning)


def _unique(spans: Iterable[Span]) -> list[Span]:
    """Return each span once: of one that was exported twice, the copy with more attributes.

    Spans that share an id and began at different times are not the same.
    """
    kept: dict[Any, Span] = {}
    for number, span in enumerate(spans):
        key = (span.trace_id, span.span_id, span.started) if span.span_id else number
        before = kept.get(key)
        if before is None or (len(span.attributes), span.ended is not None) > (
            len(before.attributes),
            before.ended is not None,
        ):
            kept[key] = span
    return list(kept.values())


def _conversations(items: Iterable[Span | LogRecord]) -> dict[str, set[str]]:
    """Return the conversations that the record names for each trace."""
    named: dict[str, set[str]] = defaultdict(set)
    for item in items:
        conversation = OTEL.name_of(item.attributes, "conversation")
        if conversation and item.trace_id:
            named[item.trace_id].add(conversation)
    return dict(named)


def _orphan(item: Span | LogRecord) -> str:
    response = ident(first(item.attributes, aliases().names.response_id))
    return f"response:{response}" if response else f"span:{item.span_id or content_id(item.name, item.attributes)}"


def _role(span: Span) -> str:
    method = span.attributes.get(_MCP)
    if method is not None or span.name.endswith(PREPARING):  # a server's side of a call duplicates its client's
        return "tool" if method == "tools/call" and not span.server else ""
    table = aliases()
    value = first(span.attributes, table.names.operation)
    role = table.roles.get(value.lower()) if isinstance(value, str) else None
    if role is not None or (isinstance(value, str) and value != span.attributes.get(_OPERATION)):
        return role or ""
    named = next((role for role, beginnings in table.prefixes.items() if span.name.startswith(beginnings)), "")
    if isinstance(value, str):  # a word of its program's own: a call of a model only where it also wrote tokens
        return named if named != "model" or OTEL.usage(span.attributes)["output_tokens"] else ""
    if named and any(name.startswith(DIALECTS) for name in span.attributes):
        return named
    if span.attributes.keys().isdisjoint(table.names.transcript):
        return "model" if any(isinstance(span.attributes.get(name), list) for name in _WITH_CONTENT) else ""
    return "agent"
