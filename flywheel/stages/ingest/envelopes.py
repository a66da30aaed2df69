"""Envelopes: what ships, stores and queues logs wraps around each record, opened before its reader is chosen.

In: the records of a file that no reader knows. Out: the records inside, where some reader knows them: a line of a
container's log (`{"log": "{...}"}`), a log event of a cloud, a document of a search engine, a message of a queue, with
numbers and dates as MongoDB and DynamoDB tag them. Envelopes are found by the places that transports use and by what is
in them, up to five deep; the conversation that the outermost object names is the record's. An object with words of its
own next to the place is none: half a record is worse than none. A line of a program's log that its reader does not know
is passed over and counted, but one with the fields of the records that it knows is a malformed one of them, and
refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flywheel.extensions import Reader, Sample
from flywheel.reading.events import source_of
from flywheel.reading.values import number, when
from flywheel.stages.ingest.detect import READER_FAULTS, THRESHOLD, Detection, detect
from flywheel.stages.ingest.framing.framed import OTHER_LINES, Bad, Framed, Passed, Record, parsed, refused
from flywheel.stages.ingest.framing.frames import rows_of
from flywheel.stages.ingest.framing.jsontext import BadJsonError, loads
from flywheel.stages.ingest.framing.tables import is_header
from flywheel.stages.ingest.logger_lines import Events, as_typed, events_of
from flywheel.stages.ingest.model_lines import are_model_lines, joined_lines
from flywheel.stages.ingest.sources import UNKNOWN

_HELD = (
    "log", "message", "msg", "MESSAGE", "Message", "@message", "line", "_raw", "raw", "text", "textPayload",
    "jsonPayload", "value", "payload", "Body", "body", "detail", "data", "_source", "_airbyte_data", "after", "Item",
    "doc", "document", "event", "record", "result", "attributes", "hits", "json", "fields", "new", "NewImage",
    "dynamodb", "MessageBody", "messageBody", "properties", "testRunData",
)  # fmt: skip
_LISTS = (
    "events", "logEvents", "Records", "records", "hits", "Messages", "messages", "entries", "results", "rows", "items",
    "Items", "data", "values", "value", "streams", "result", "logs", "docs", "documents", "conversations",
    "spans", "content", "testCases",
)  # fmt: skip
_PAGES = {"page", "total"}  # next to a page's content
_WORDS = ("input", "output", "inputs", "outputs", "request", "response", "prompt", "completion", "question", "answer",
          "query", "choices", "content", "messages")  # fmt: skip
_EVENTS = ("event", "event_type", "eventType")
_TOLD = ("input", "question", "answer", "final_answer", "user_input", "user_message")
_TALKS = ("session_id", "sessionId", "conversation_id", "conversationId", "chat_id", "chatId")
_TIMES = ("timestamp", "@timestamp", "ts", "time", "created_at", "createdAt")
_LINES = ("log", "message", "msg", "MESSAGE", "@message", "line", "_raw", "raw", "textPayload")
_TRANSPORTS = ("log", "MESSAGE", "@message", "_raw", "textPayload", "jsonPayload", "_source", "_airbyte_data")
_SURE, _UNSURE, _MORE = 0.9, 0.6, 0.01
_EACH, _TABLE = "*", "#"
_DEEPEST = 5
_MOST_SINGLY = 200
_OF_A_SHAPE = 5
_MOST_BYTES = 64_000_000
_BESIDE = ("run_result",)  # reads files next to logs: single lines of a log that look like it are none
_MALFORMED = "a record among a program's lines that has the fields of its others but is not one of"
_TAGS: Mapping[str, Callable[[Any], Any]] = {
    "$oid": str,
    "$numberInt": int,
    "$numberLong": int,
    "$numberDouble": number,
    "$numberDecimal": number,
    "$date": lambda value: at.isoformat() if (at := when({"$date": value})) is not None else value,
    "$uuid": str,
}
_DYNAMO: Mapping[str, Callable[[Any], Any]] = {
    "S": str,
    "N": lambda value: number(value) if set(".eE") & set(value) else int(value),
    "BOOL": bool,
    "NULL": lambda _: None,
    "SS": list,
    "M": lambda value: {name: _untagged(held, _DYNAMO) for name, held in value.items()},
    "L": lambda value: [_untagged(held, _DYNAMO) for held in value],
}
_TAG_MARKS = (b'"$number', b'"$oid"')


class Envelope(NamedTuple):
    """Where a file's records are: names that lead there, `*` for each element of a list, `#` for each row of a table.

    `sifts`: other records than the reader's are between them; `tags`: how their numbers and dates are tagged, if so;
    `marks`: the fields by which a record that the reader does not know is a malformed one of its own; `events`: how
    lines of a structured logger tell their events, where the records are such lines.
    """

    path: tuple[str, ...] = ()
    sifts: bool = False
    tags: str = ""
    marks: frozenset[str] = frozenset()
    events: Events | None = None
    joins: bool = False

    @property
    def has_many(self) -> bool:
        """Whether one envelope may hold several records."""
        return _holds_many(self.path)


class Recognised(NamedTuple):
    """The reader of a file, and the envelope that its records are in."""

    detection: Detection
    envelope: Envelope | None = None


def recognised(
    name: str, head: Sequence[Record | Bad], readers: Mapping[str, Reader], *, chosen: str = "auto"
) -> Recognised:
    """Return who reads a file, by its first records.

    Args:
        name: the file's name.
        head: its first records, or refusals.
        readers: candidates by name.
        chosen: a reader's name when the user decided.
    """
    records = [record for record in head if isinstance(record, Record)]
    tags = _tags(records)
    plain = [_untagged(record.value, _DIALECTS[tags]) for record in records] if tags else []
    direct = detect(Sample(name, plain or [record.fields for record in records]), readers, chosen=chosen)
    known = direct.format != UNKNOWN
    if chosen == "auto" and (calls := _of_model_lines(name, records, readers)) is not None:
        return calls
    columns = next((record.names for record in records if record.names), ())
    if not known and not is_header(columns):  # a first row of values, perhaps about people
        reason = f"no reader knows its records: a table of {len(columns)} columns, none of a name that a log has"
        direct = Detection(UNKNOWN, direct.confidence, reason)
    if known and chosen != "auto" and _fits(readers.get(chosen), plain or [r.value for r in records]):
        known = chosen not in readers
    is_table = len(records) == 1 and bool(rows_of(records[0].value))  # whose columns have the names of a row's fields
    unsure = direct.confidence < _SURE or is_table
    among = readers if chosen == "auto" or chosen not in readers else {chosen: readers[chosen]}
    if known and direct.format in readers and unsure and (chosen == "auto" or is_table):
        values = [record.value for record in records]
        inner = _inside(name, values, among)
        if inner is not None and _outranks(inner, direct) and _is_in_most(inner, values):
            return inner
    if known or not records:
        return Recognised(direct, Envelope(tags=tags) if tags and direct.format in readers else None)
    return _inside(name, [record.value for record in records], among) or Recognised(direct)


def _of_model_lines(name: str, records: Sequence[Record], readers: Mapping[str, Reader]) -> Recognised | None:
    """Return the reader of calls whose requests and responses are lines of their own, if the records are such lines."""
    if not are_model_lines([record.value for record in records]):
        return None
    calls = [call.value for call in joined_lines(records) if isinstance(call, Record)]
    detection = _detected(name, calls, readers)
    return None if detection is None else Recognised(detection, Envelope(joins=True))


def _outranks(inner: Recognised, direct: Detection) -> bool:
    """Whether what is inside is meant, where a reader that looks deep knows the whole: it would leave parts out."""
    envelope = inner.envelope or Envelope()
    path, sifts = envelope.path, envelope.sifts
    if envelope.events is not None:  # lines of a logger, of which the whole's reader knows the calls alone, say
        return inner.detection.confidence > direct.confidence
    if sifts:
        return False
    if path == (_TABLE,):
        return inner.detection.confidence >= direct.confidence
    if _holds_many(path):  # a page, whose rows a reader of any program's takes apart itself
        return direct.confidence <= _UNSURE and inner.detection.confidence >= _SURE
    least = direct.confidence if path[0] in _TRANSPORTS else direct.confidence + _MORE
    return inner.detection.confidence >= least


def _is_in_most(inner: Recognised, values: Sequence[Any]) -> bool:
    """Whether most records have something at an envelope's place: else those that the whole's reader knows are lost."""
    path = (inner.envelope or Envelope()).path
    return sum(any(isinstance(item, dict) for item in _at(value, path)) for value in values) * 2 >= len(values)


def _fits(reader: Reader | None, values: list[Any]) -> bool:
    """Whether a reader that the user chose does not know the records as they are."""
    return reader is not None and bool(values) and _confidence(reader, values) == 0


def _inside(name: str, values: list[Any], readers: Mapping[str, Reader]) -> Recognised | None:
    """Return the reader of what is in the values, with the envelope: the surest, then the nearest."""
    places = Counter(path for value in values for path in _paths(value, (), _DEEPEST))
    found = list(_of_a_logger(name, values, (), readers))
    for path in sorted(places, key=lambda path: (len(path), path)):
        streams = _Streams()
        items = (streams.of(value).joined(item) for value in values for item in _at(value, path))
        inner = [item for item in items if isinstance(item, dict)]
        tags = "dynamo" if "Item" in path or "NewImage" in path else _tagged(inner)
        inner = [_untagged(item, _DIALECTS[tags]) for item in inner] if tags else inner
        found += _of_a_logger(name, inner, path, readers)
        sure = _detected(name, inner, readers)
        others = sure is None
        if others and inner:
            single = [item for item in _each_shape(inner) if _detected(name, [item], readers) is not None]
            sure, others = _detected(name, single or _alike(inner), readers), bool(single)
        if sure is None or ((others or _is_line(path)) and sure.format in _BESIDE):
            continue
        sifts = others or (_is_line(path) and _knows_each(readers[sure.format], inner))
        marks = _marks(readers[sure.format], inner) if sifts else frozenset()
        found.append(Recognised(sure, Envelope(path, sifts=sifts, tags=tags, marks=marks)))
    return max(found, key=lambda one: one.detection.confidence, default=None)


def _of_a_logger(
    name: str, items: list[Any], path: tuple[str, ...], readers: Mapping[str, Reader]
) -> Iterator[Recognised]:
    """Yield the reader of what lines of a structured logger tell, if they are such lines."""
    if (events := events_of(items)) is not None:
        typed = [line for item in items if (line := as_typed(item, events)) is not None]
        if typed and (detection := _detected(name, typed, readers)) is not None:
            yield Recognised(detection, Envelope(path, events=events))


def _is_line(path: tuple[str, ...]) -> bool:
    """Whether what is at a place is a line of a program's log, which may log other things, too."""
    return path[-1] in _LINES or path[-2:] == ("values", _EACH)


def _knows_each(reader: Reader, items: list[dict[str, Any]]) -> bool:
    """Whether a reader knows its records one by one, so that those it does not know are none of its own."""
    return all(_confidence(reader, [item]) >= THRESHOLD for item in _each_shape(items))


def _marks(reader: Reader, items: list[dict[str, Any]]) -> frozenset[str]:
    """Return the fields that all records of a reader have, without those of the other lines that hold no words."""
    known: list[set[str]] = []
    others: list[set[str]] = []
    for item in _each_shape(items):
        (known if _confidence(reader, [item]) >= THRESHOLD else others).append(set(item))
    counts = Counter(name for names in others for name in names)
    ordinary = {name for name, count in counts.items() if count * 2 >= len(others)}
    return frozenset(set.intersection(*known) - (ordinary - {*_WORDS})) if known else frozenset()


def _is_malformed(item: Mapping[str, Any], marks: frozenset[str]) -> bool:
    """Whether an object that a reader does not know has most of the fields of those it knows, and one for words.

    Or it is a message: a part of the talk, whoever wrote it.
    """
    if any(_are_turns([held]) for held in (item, item.get("message"))):
        return True
    shared = marks & item.keys()
    return len(shared) * 2 > len(marks) and (marks.isdisjoint(_WORDS) or not shared.isdisjoint(_WORDS))


def _is_told(outer: Any, value: Mapping[str, Any]) -> bool:
    """Whether an event of a program's log has what somebody asked or what was answered, in words."""
    is_event = isinstance(outer, dict) and outer is not value and any(isinstance(outer.get(n), str) for n in _EVENTS)
    return is_event and any(isinstance(held := value.get(name), str) and len(held.split()) > 1 for name in _TOLD)


def _each_shape(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return some items of each set of fields: a program's other lines may be many."""
    seen: Counter[tuple[str, ...]] = Counter()
    kept: list[dict[str, Any]] = []
    for item in items:
        shape = tuple(sorted(item))
        seen[shape] += 1
        if seen[shape] <= _OF_A_SHAPE and len(kept) < _MOST_SINGLY:
            kept.append(item)
    return kept


def _alike(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items that have a field in common with the most."""
    commonest = Counter(tuple(sorted(item)) for item in items).most_common(1)[0][0]
    return [item for item in items if not item.keys().isdisjoint(commonest)]


def _detected(name: str, values: list[Any], readers: Mapping[str, Reader]) -> Detection | None:
    detection = detect(Sample(name, values), readers)
    return detection if detection.format in readers else None


def _paths(value: Any, path: tuple[str, ...], levels: int) -> Iterator[tuple[str, ...]]:
    """Yield the places in an object where transports put a record."""
    if not isinstance(value, dict) or not levels:
        return
    if rows_of(value):
        yield (*path, _TABLE)
    for name in value.keys() & {*_HELD, *_LISTS}:
        if _speaks(value, beside=name):
            continue
        held = _object(value[name])
        if isinstance(held, str) and held.lstrip().startswith("{") and name in _HELD:  # a piece of a record
            yield (*path, name)
        elif isinstance(held, dict) and name in _HELD:
            yield (*path, name)
            yield from _paths(held, (*path, name), levels - 1)
        elif name == "content" and not value.keys() >= _PAGES:
            continue
        elif isinstance(held, list) and name in _LISTS and not _are_turns(held):
            yield (*path, name, _EACH)
            for item in held[:_MOST_SINGLY]:
                yield from _paths(_element(item), (*path, name, _EACH), levels - 1)


def _are_turns(items: list[Any]) -> bool:
    """Whether a list is a chat, or what a model was asked: its answer is elsewhere, and nothing transports them."""
    return bool(items) and all(isinstance(item, dict) and {"role", "content"} <= item.keys() for item in items)


def _speaks(place: Mapping[str, Any], *, beside: str) -> bool:
    """Whether an object has words of its own next to a place: it is a record, not what is around one."""
    others = [value for name in _WORDS if name != beside and (value := place.get(name))]
    return any(isinstance(value, str | list) or (isinstance(value, dict) and len(value) > 1) for value in others)


def _at(value: Any, path: tuple[str, ...]) -> list[Any]:
    """Return what is at a place: objects, and texts that are none."""
    items = [value]
    for name in path:
        if name == _EACH:
            items = [_element(inner) for item in items if isinstance(item, list) for inner in item]
        elif name == _TABLE:
            items = [row for item in items for row in rows_of(item)]
        else:
            items = [_object(item[name]) for item in items if isinstance(item, dict) and name in item]
    talks = {name: value[name] for name in _TALKS if value.get(name)} if isinstance(value, dict) else {}
    items = [{**talks, **item} if isinstance(item, dict) else item for item in items] if talks else items
    times = {name: value[name] for name in _TIMES if value.get(name)} if isinstance(value, dict) else {}
    if not times or _holds_many(path):
        return items
    return [{**times, **item} if isinstance(item, dict) and source_of(item)["ts"] is None else item for item in items]


def _holds_many(path: tuple[str, ...]) -> bool:
    return _EACH in path or _TABLE in path


def _element(item: Any) -> Any:
    """Return an element of a list as an object: pairs of field and value, a time and a line, a text with JSON."""
    if isinstance(item, list) and item and all(isinstance(pair, dict) and "field" in pair for pair in item):
        return {pair["field"]: pair.get("value") for pair in item}
    if isinstance(item, list) and len(item) >= 2 and isinstance(item[1], str):  # noqa: PLR2004 - Loki's time and line
        return _object(item[1])
    return _object(item)


def _object(held: Any) -> Any:
    """Return the JSON object in a text, anything else as it is."""
    if not isinstance(held, str) or not held.lstrip().startswith("{"):
        return held
    try:
        return loads(held.strip().encode("utf-8", "surrogatepass")).value
    except BadJsonError:
        return held


def _tags(records: Sequence[Record]) -> str:
    marked = any(mark in record.raw for record in records for mark in _TAG_MARKS if record.raw is not None)
    return "mongo" if marked else ""


def _tagged(values: list[Any]) -> str:
    return "mongo" if any(isinstance(value, dict) and _is_tag(value.get("_id"), _TAGS) for value in values) else ""


_DIALECTS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {"mongo": _TAGS, "dynamo": _DYNAMO}


def _is_tag(value: Any, tags: Mapping[str, Any]) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in tags


def _untagged(value: Any, tags: Mapping[str, Callable[[Any], Any]]) -> Any:
    """Return a value in which tagged numbers, dates and ids are what they say."""
    if isinstance(value, list):
        return [_untagged(item, tags) for item in value]
    if not isinstance(value, dict):
        return value
    if _is_tag(value, tags):
        ((name, held),) = value.items()
        try:
            return tags[name](held)
        except (ValueError, TypeError, AttributeError):
            return value
    return {name: _untagged(item, tags) for name, item in value.items()}


class _Pieces:
    """Puts records together that were cut into pieces, as container logs cut long lines."""

    def __init__(self) -> None:
        self.begun = ""

    def joined(self, item: Any) -> Any:
        """Return the object that a text is or completes, None for a piece that goes on, another value as it is."""
        if not isinstance(item, str) or not (item.lstrip().startswith("{") or self.begun):
            return item
        joined = self.begun + item
        held = _object(joined)
        goes_on = not isinstance(held, dict) and not item.endswith("\n") and len(joined) < _MOST_BYTES
        self.begun = joined if goes_on else ""
        return None if goes_on else held


class _Streams:
    """The pieces by stream: a container writes two of them at once."""

    def __init__(self) -> None:
        self._by_name: defaultdict[str, _Pieces] = defaultdict(_Pieces)

    def of(self, value: Any) -> _Pieces:
        """Return the pieces of the stream that an envelope is of."""
        name = value.get("stream") if isinstance(value, dict) else None
        return self._by_name[name if isinstance(name, str) else ""]

    def unfinished(self) -> list[str]:
        """Return what waits for its end."""
        return [pieces.begun for pieces in self._by_name.values() if pieces.begun]


class Opener:
    """Opens the envelopes of one file, in order."""

    def __init__(self, envelope: Envelope, reader: Reader) -> None:
        self._envelope, self._reader = envelope, reader
        self._count = 0
        self._streams = _Streams()

    def opened(self, records: Iterable[Framed]) -> Iterator[Record | Bad | Passed]:
        """Yield the records inside."""
        if self._envelope.joins:
            yield from joined_lines(records)
            return
        for record in parsed(records):
            if isinstance(record, Record):
                yield from self._inner(record)
            else:
                yield record
        for rest in self._streams.unfinished():
            yield refused(self._count + 1, "truncated", "the last record is not finished", rest.encode())

    def _inner(self, record: Record) -> Iterator[Record | Bad | Passed]:
        items = _at(record.value, self._envelope.path)
        pieces = self._streams.of(record.value)
        for item in items or [None]:
            self._count += 1
            line, count = (self._count, self._count) if self._envelope.has_many else (record.line, record.number)
            whole = pieces.joined(item)
            if whole is not None or not pieces.begun:
                yield self._read(record, whole, line, count)

    def _read(self, record: Record, item: Any, line: int, count: int) -> Record | Bad | Passed:
        if isinstance(item, str) and item.lstrip().startswith("{"):
            return refused(
                line, "bad_json", "a record in an envelope that is not JSON", item.encode("utf-8", "replace")
            )
        if not isinstance(item, dict):
            return Passed(line, OTHER_LINES)
        value = _untagged(item, _DIALECTS[self._envelope.tags]) if self._envelope.tags else item
        if self._envelope.events is not None:
            typed = as_typed(value, self._envelope.events)
            return Passed(line, OTHER_LINES) if typed is None else Record(line, typed, None, record.tags, count)
        if self._envelope.sifts and _confidence(self._reader, [value]) < THRESHOLD:
            if not _is_malformed(value, self._envelope.marks) and not _is_told(record.value, value):
                return Passed(line, OTHER_LINES)
            return record.bad("bad_record", f"{_MALFORMED} {self._reader.name}")._replace(line=line)
        return Record(line, value, None, record.tags, count)


def _confidence(reader: Reader, values: list[Any]) -> float:
    try:
        return reader.sniff(Sample("", values))
    except READER_FAULTS:
        return 0.0


def carries_text(record: Record | Bad) -> bool:
    """Whether a record may be a line of a program's log in an envelope."""
    value = record.value if isinstance(record, Record) else None
    return isinstance(value, dict) and any(isinstance(value.get(name), str) for name in _HELD)


def first_of(records: Iterable[Framed], most: int) -> list[Record | Bad]:
    """Take that many records or some more, parsed."""
    taken: list[Record | Bad] = []
    for record in records:
        taken += [one for one in parsed([record]) if not isinstance(one, Passed)]
        if len(taken) >= most:
            break
    return taken
