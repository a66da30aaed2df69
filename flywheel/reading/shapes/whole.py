"""Whether a record of any program was read as a whole: its words and calls must be in its events.

In: a record whose shape was guessed, and the events made of it. Out: these events, or a refusal with the path of the
first words of a talk, or the first call, that none of them holds. Words are texts in fields named after what people,
agents and tools say and do; what is about a talk (settings, tools, verdicts, expected answers) is left out by its name,
and `flywheel ingest -v` lists what of it is not kept. Half a record is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event
from flywheel.reading.shapes.acts import calls_within, given_in
from flywheel.reading.shapes.notices import is_aside
from flywheel.reading.shapes.places import shown_path
from flywheel.reading.values import as_dict, as_list, embedded, words_of
from flywheel.records import EventKind

_TOKEN = re.compile(r"\w{3,}")
_MARK = re.compile(  # of a call, or of what it gave, within words
    r"</?[\w|]+(?:=[\w.:/-]+)?>|```\w*|\"\w+\"\s*:|\[Used tools:|\bTool:|, (?:Input|Result):"
    r"|^[ \t]*(?:action(?:[ _]?input)?|observation|(?:(?:tool|function|action|execution) )?(?:result|output))\s?\d*:",
    re.IGNORECASE | re.MULTILINE,
)
_BETWEEN = re.compile(r"</[\w|]+>\s*(?=<[\w|]+>)")  # of two calls, or results, in one text
_SHOWN = re.compile(r"[\s\[]*(?:\w{1,40}Block|\w{0,40}(?:ToolCall|FunctionCall)\w{0,40})\(\w+=")
_SAID = {
    "user", "human", "assistant", "agent", "ai", "bot", "customer", "message", "messages", "content", "text", "query",
    "question", "request", "prompt", "goal", "utterance", "response", "answer", "reply", "completion", "output",
    "input", "thought", "thoughts", "thinking", "reasoning", "observation", "observations", "action", "result",
    "results", "arguments", "args", "parameters", "params", "stdout", "stderr", "said", "value", "parts",
}  # fmt: skip
_ABOUT = {
    "tools", "functions", "schema", "config", "settings", "metadata", "meta", "expected", "reference", "gold", "ground",
    "golden", "oracle", "grade", "grader", "grading", "grades",
    "truth", "target", "label", "judge", "judgement", "evaluation", "eval", "evaluator", "criteria", "rubric", "metric",
    "metrics", "score", "scores", "feedback", "title", "description", "summary", "instructions", "system", "template",
    "options", "example", "examples", "demonstrations", "documents", "invocation", "display", "tree", "trys",
    "candidates", "rag", "retrieval", "retrieved", "rewritten", "chunks", "citations",
    "transformed", "sip", "transfers", "checks", "assertions", "exception", "traceback", "path",
    "suggestion", "suggestions", "snapshot", "preview", "slash",
}  # fmt: skip
_HAPPENED = ("event", "event_type", "eventType", "type", "kind", "action")  # what a program calls what happened
_FAULTS = ("error", "exception", "fatal")
_GIVEN = ("model_input_messages", "origin", "promptLogs")  # what is there once more: before a step, of a result
_TEXT_EDITS = ({"text", "range"}, {"newText", "range"})  # what an editor made of a call
_AGENTS = ("agent", "assistant", "bot", "ai")
_IN_TITLE = r"(?:[A-Z][\w-]{0,30}|of|the|and|for|to|&)"
_TITLE = re.compile(rf"{_IN_TITLE}(?: {_IN_TITLE}){{1,5}}")  # of an agent: `Ticket Query Specialist`
_SHORTEST = 20  # characters of what counts as words
_DEEPEST = 24
_KNOWN_TOKENS, _KNOWN_PAIRS = 0.8, 0.4  # of a text that is written otherwise in the events: a call within words, say


def whole(record: Mapping[str, Any], events: Iterable[Event]) -> list[Event]:
    """Return the events of a record.

    Raises:
        BadRecordError: the record has more of the talk than they do.
    """
    made = all_called(record, events)
    if path := _unread(record, made):
        raise BadRecordError("bad_record", f"{path} has words of the talk that would not be read with the rest")
    return made


def is_other_line(record: Any) -> bool:
    """Whether a record is a line of a program's log with nothing of a talk: it names what happened, without words."""
    fields = as_dict(record)
    names = any(isinstance(fields.get(name), str) for name in _HAPPENED)
    return names and _unread(fields, ()) is None and _uncalled(fields, ()) is None


def all_called(record: Mapping[str, Any], events: Iterable[Event]) -> list[Event]:
    """Return the events of a record.

    Raises:
        BadRecordError: the record has calls that they do not have, or an answer is an object as Python shows it.
    """
    made = list(events)
    if any(map(_is_shown, made)):
        raise BadRecordError("bad_record", "an answer is an object as Python shows it, with its calls as words")
    path = _uncalled(record, made) or (None if any(map(_has_call, made)) else _named_call(record, ()))
    if path:
        raise BadRecordError("bad_record", f"{path} has a call that would not be read with the rest")
    return made


def _has_call(event: Event) -> bool:
    """Whether an event is a call, or has one."""
    message = as_dict(as_dict(event.get("payload")).get("message"))
    return event.get("kind") == EventKind.TOOL_CALL or bool(message.get("tool_calls"))


def _named_call(value: Any, path: tuple[str, ...]) -> str | None:
    """Return the path of the first object within a list that calls itself a tool's call, whatever its form."""
    if len(path) > _DEEPEST:
        return None
    if isinstance(value, dict):
        kinds = (words_of(value[name]) for name in _HAPPENED if isinstance(value.get(name), str))
        if path and path[-1].isdecimal() and any(words == {"tool", "call"} for words in kinds):
            return shown_path(path)
        inner = ((str(name), held) for name, held in value.items() if not _is_about(name))
    else:
        inner = ((str(n), held) for n, held in enumerate(as_list(value)))
    return next((found for name, held in inner if (found := _named_call(held, (*path, name)))), None)


def _is_shown(event: Event) -> bool:
    """Whether an answer is an object of a library as Python shows it: `[ToolUseBlock(id='...', ...)]`."""
    said = as_dict(as_dict(event.get("payload")).get("message")).get("content")
    return isinstance(said, str) and _SHOWN.match(said) is not None


def _uncalled(record: Mapping[str, Any], events: Sequence[Event]) -> str | None:
    """Return the path of the first call in a record that its events do not have, neither as one nor in what one got."""
    within = list(calls_within(record, _is_about))
    known = _given_by_tool(events, {made["name"] for _, made in within}) if within else {}
    unknown = [(path, made) for path, made in within
               if made["name"] not in known or not given_in(made["arguments"]) <= known[made["name"]]]  # fmt: skip
    anywhere = set[str]().union(*(given for _, given in _called(events))) if unknown else set()
    inner = ((path, {made["name"], *given_in(made["arguments"])}) for path, made in unknown)
    return next((shown_path(path) for path, values in inner if not values <= anywhere), None)


def _given_by_tool(events: Sequence[Event], names: set[str]) -> dict[str, set[str]]:
    """Return all that calls in events gave each of some tools, whose names may end those of the events (`mcp__search`).

    In one pass over the calls: a name has few ends that are as long as one of the tools' names.
    """
    given: dict[str, set[str]] = {}
    lengths = sorted({len(name) for name in names})
    for called, values in _called(events):
        for end in {called[-length:] for length in lengths if length <= len(called)} & names:
            given.setdefault(end, {""}).update(values)
    return given


def _called(events: Sequence[Event]) -> Iterator[tuple[str, set[str]]]:
    """Yield the tool and the arguments' values of each call in events."""
    for event in events:
        payload = as_dict(event.get("payload"))
        several = (as_list(payload.get(name)) for name in ("input", "messages", "other_choices"))
        said = (payload.get("message"), *chain.from_iterable(several))
        calls = chain.from_iterable(_calls_of(as_dict(message)) for message in said)
        for call in (*map(as_dict, calls), {"name": event.get("tool_name"), **payload}):
            written = call.get("arguments_raw")  # where they did not parse
            yield str(call.get("name")), given_in(call.get("arguments")) | (given_in(written) if written else set())


def _calls_of(message: Mapping[str, Any]) -> list[Any]:
    """Return the calls of a message: in that of a speaker who is not the agent, or in words, they are text."""
    said = embedded(message.get("content"))
    within = [made for _, made in calls_within(said, _is_about)] if isinstance(said, dict) else []
    return as_list(message.get("tool_calls")) or as_list(said) or within


def _is_about(name: str) -> bool:
    """Whether a field is about a talk, or repeats what a model was given."""
    words = words_of(name)
    is_known = name in _GIVEN or words == {"user", "agent"} or words >= {"reasoning", "items"}
    return is_known or "encrypted" in words or not _ABOUT.isdisjoint(words)


def _unread(record: Mapping[str, Any], events: Sequence[Event]) -> str | None:
    """Return the path of the first words in a record that its events do not hold."""
    texts = {_plain(text) for event in events for text in _texts(event.get("payload"))}
    unread = list(_words(record, lambda text: _plain(text) in texts))
    said = [_TOKEN.findall(text) for text in texts] if unread else []
    tokens = {token for words in said for token in words}
    pairs = {pair for words in said for pair in pairwise(words)}
    parts = ((path, part) for path, text in unread for part in _BETWEEN.split(text))
    words = ((path, _TOKEN.findall(_MARK.sub(" ", part))) for path, part in parts)
    return next((shown_path(path) for path, tried in words if not _is_among(tried, tokens, pairs)), None)


def _is_among(said: Sequence[str], tokens: set[str], pairs: set[tuple[str, str]]) -> bool:
    """Whether nearly all of a text is in the events, in about its order."""
    following = list(pairwise(said))
    known = sum(token in tokens for token in said) >= _KNOWN_TOKENS * len(said)
    return known and sum(pair in pairs for pair in following) + 1 >= _KNOWN_PAIRS * len(following)


def _texts(value: Any) -> Iterator[str]:
    """Yield every text of an event's payload, and the names of its fields with them."""
    if isinstance(value, dict):
        for name, held in value.items():
            yield from _texts(held)
            yield name if isinstance(held, dict | list) else f"{name} {held}"
    elif isinstance(value, list):
        for held in value:
            yield from _texts(held)
    elif isinstance(value, str):
        yield value


def _words(
    value: Any, is_read: Callable[[str], bool], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts that may be words of a talk and are not read, with their paths."""
    if len(path) > _DEEPEST or is_aside(value) or (isinstance(value, str) and is_read(value)):
        return
    opened = embedded(value) if isinstance(value, str) else value
    if isinstance(opened, dict) and opened.keys() not in _TEXT_EDITS and not _is_fault(opened):
        gave = any(
            words_of(opened[kind]) >= {"tool", "result"} for kind in _HAPPENED if isinstance(opened.get(kind), str)
        )
        for name, held in opened.items():
            if gave and isinstance(held, dict | list):  # what a tool gave may be any data
                continue
            if not _is_about(name) and not _is_raw(name, opened) and not _is_why(name, opened):
                yield from _words(held, is_read, (*path, str(name)))
    elif isinstance(opened, list):
        for n, held in enumerate(opened):
            yield from _words(held, is_read, (*path, str(n)))
    elif isinstance(opened, str) and _is_long(opened):
        name = next((part for part in reversed(path) if not part.isdecimal()), "")
        if not _SAID.isdisjoint(words_of(name)) and not (name in _AGENTS and _TITLE.fullmatch(opened)):
            yield path, opened


def _is_fault(fields: Mapping[str, Any]) -> bool:
    """Whether an object is a program's line on a fault of its own, and not what a tool gave."""
    kinds = (str(fields.get(name)).lower() for name in (*_HAPPENED, "level"))
    return any(kind in _FAULTS for kind in kinds) and all("tool" not in words_of(str(name)) for name in fields)


def _is_why(name: str, fields: Mapping[str, Any]) -> bool:
    """Whether a field is why a message of the agent failed: `errorMessage` next to its role."""
    return words_of(name) == {"error", "message"} and fields.get("role") == "assistant"


def _is_raw(name: str, fields: Mapping[str, Any]) -> bool:
    """Whether a field is what another one was made of: `rawContent` next to `content`."""
    words = words_of(name)
    return "raw" in words and any(words - {"raw"} == words_of(other) for other in fields)


def _is_long(words: str) -> bool:
    return len(words) >= _SHORTEST and (any(map(str.isspace, words.strip())) or not words.isascii())


def _plain(words: str) -> str:
    return " ".join(words.split())
