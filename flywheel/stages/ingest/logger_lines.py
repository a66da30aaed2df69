"""Lines of a structured logger that tell what an agent did by the text of their event, as typed records.

In: objects as pino, bunyan, winston, zap, slog, structlog, python-json-logger, loguru, tracing and Serilog write them,
with a level, and an event in `msg`, `message` or `event`: "tool_call", "Tool call finished", "user.message.received".
Out: the same under a type that readers of messages know, its words, call and result in fields that they know, without
what the logger reports of itself. The words of the event decide: a line of which none names a tool, a user, the agent,
its run or a rating is another line of the program. So are lines of model calls: their answer is in the agent's line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flywheel.reading.events import source_of
from flywheel.reading.values import as_dict, present, words_of

EVENTS = ("event", "msg", "message", "event_name", "@mt", "@m")  # fields that tell what happened
_LEVELS = {"level", "levelname", "level_name", "lvl", "severity", "log.level", "log_level", "loglevel", "@l"}
_NESTED = ("extra", "fields", "context", "contextMap", "mdc", "properties", "Properties", "props", "meta")
_HELD = ("data", "payload", "details", "attributes", "attrs", "info")  # the same, or what a tool gave
_LOGGERS = {  # what a logger reports of itself and its process
    *_LEVELS, "level_no", "levelno", "pid", "hostname", "host", "name", "logger", "logger_name", "v", "thread",
    "thread_name", "threadname", "module", "filename", "file", "lineno", "line", "funcname", "func_name", "pathname",
    "process", "processname", "process_name", "target", "span", "spans", "caller", "stacktrace", "service",
    "env", "environment", "version", "elapsed", "exception", "@i", "@x", "@sp", "@tr",
}  # fmt: skip
_TIMES = ("timestamp", "time", "ts", "asctime", "@timestamp", "@t", "datetime", "instant")
_LONGEST = 60  # characters of an event's name; what is longer is a text
_MOST_WORDS = 6
_NAME = re.compile(r"[\w.:/ -]+")

_TOOL = {"tool", "function", "mcp"}
_GAVE = {"result", "results", "returned", "response", "output", "completed", "complete", "finished", "succeeded",
         "success", "failed", "failure", "error", "errored", "done", "executed", "end", "ended"}  # fmt: skip
_CALLS = {"call", "calls", "calling", "called", "use", "using", "used", "invocation", "invoke", "invoking", "invoked",
          "start", "started", "starting", "begin", "execution", "execute", "executing", "request", "requested", "run",
          "running"}  # fmt: skip
_USER = {"user", "human", "customer", "caller", "visitor"}
_AGENT = {"assistant", "agent", "bot", "ai", "chatbot"}
_ASKS = {"message", "query", "input", "question", "prompt", "request", "utterance", "turn"}
_SAYS = {"message", "response", "reply", "answer", "output", "turn", "responded", "replied", "answered"}
_FAILED = {"failed", "failure", "error", "errored"}
_RUN = {"run", "agent", "session", "chain", "request", "conversation", "turn", "task", "chat", "workflow",
        "interaction", "query", "question"}  # fmt: skip
_BEGAN = {"start", "started", "begin", "began", "received", "incoming"}
_ENDED = {"end", "ended", "finish", "finished", "complete", "completed", "done", "sent", "succeeded", "failed"}
_RATES = {"feedback", "rating", "rated", "thumbs", "vote", "voted"}
_OF_A_MODEL = {"llm", "model", "completion", "generation", "openai", "anthropic", "ollama", "vllm"}

_ASKED = ("content", "text", "userinput", "usermessage", "messagetext", "body", "input", "query", "question", "prompt",
          "utterance", "request", "message")  # fmt: skip
_SAID = ("content", "text", "response", "answer", "output", "reply", "assistantmessage", "agentresponse",
         "assistantresponse", "botresponse", "finalanswer", "finaloutput", "messagetext", "body", "result",
         "message")  # fmt: skip
_TOOLS = ("toolname", "tool", "functionname", "function")
_GIVEN = ("arguments", "args", "toolinput", "toolargs", "toolarguments", "input", "inputs", "parameters", "params",
          "kwargs")  # fmt: skip
_IDS = ("toolcallid", "callid", "tooluseid", "invocationid", "id")
_SHOWN = ("tooloutput", "toolresult", "toolresponse", "result", "output", "response", "content", "returnvalue",
          "return")  # fmt: skip
_WELL = ("success", "ok", "succeeded", "successful", "issuccess")
_RUNS = ("runid", "requestid", "traceid", "correlationid", "executionid", "taskid")
_PARTS = (*_TOOLS, *_GIVEN, *_IDS[:-1], *_SHOWN[:3], "content", "text", "usermessage", "userinput", "sessionid",
          "conversationid")  # fmt: skip
_ERRORS = ("error", "err", "errormessage", "exception", "exc")


class Events(NamedTuple):
    """How lines of a logger tell their events: in which field, and whether runs show what users and the agent say.

    Where lines of their own do, what a run began with and ended with is the same again.
    """

    field: str
    runs_ask: bool
    runs_say: bool


def events_of(items: Sequence[Any]) -> Events | None:
    """Return how lines of a logger tell their events; None where they are others."""
    lines = [flat for item in items if (flat := _flat(as_dict(item)))]
    levels = sum(not _LEVELS.isdisjoint(map(str.lower, line)) for line in lines)
    if not lines or levels * 2 < len(items):
        return None
    count, place = max((sum(_is_name(line.get(field)) for line in lines), -n) for n, field in enumerate(EVENTS))
    if count * 2 < len(items):
        return None
    field = EVENTS[-place]
    kinds = {_speaker(set(words_of(line[field].partition(": ")[0]))) for line in lines if _is_name(line.get(field))}
    return Events(field, ("user", False) not in kinds, ("assistant", False) not in kinds)


def as_typed(item: Any, events: Events) -> dict[str, Any] | None:
    """Return a line as a typed record; None for what is another line of the program."""
    line = _flat(as_dict(item))
    named = line.pop(events.field, None)
    if not _is_name(named) or "role" in line:
        return None
    named, _, of_what = named.partition(": ")
    words, kept = set(words_of(named)), _of_the_agent(line)
    if words & _OF_A_MODEL:
        return None
    if words & _RATES:
        return {**kept, "type": "feedback"}
    if words & _TOOL:
        return _of_a_tool({**kept, "tool": of_what} if of_what and _first(kept, _TOOLS) is None else kept, words)
    return _spoken(kept, words, events)


def _spoken(kept: dict[str, Any], words: set[str], events: Events) -> dict[str, Any] | None:
    """Return a line as a message; None where it has no words."""
    speaker, is_run = _speaker(words)
    if speaker is None or (is_run and not (events.runs_ask if speaker == "user" else events.runs_say)):
        return None
    place = _first(kept, _ASKED if speaker == "user" else _SAID, str)
    return None if place is None else {"type": f"{speaker}_message", "content": kept.pop(place), **kept}


def _speaker(words: set[str]) -> tuple[str | None, bool]:
    """Return who speaks in an event, and whether it is one of a run: its request or its answer."""
    if words & (_TOOL | _RATES | _OF_A_MODEL):
        return None, False
    for speaker, who, how in (("user", _USER, _ASKS), ("assistant", _AGENT, _SAYS)):
        if words & who and words & how:
            return speaker, False
    return ("user" if words & _BEGAN else "assistant" if words & _ENDED else None) if words & _RUN else None, True


def _of_a_tool(kept: dict[str, Any], words: set[str]) -> dict[str, Any] | None:
    """Return a line as a call or as a result; None where it is neither, as one about the tools that there are."""
    has_result = bool(words & _GAVE)
    tool = _first(kept, _TOOLS, str, dict)
    own = _first(kept, _IDS, str, int)
    if not (has_result or words & _CALLS) or (tool is None and own is None):
        return None
    held = kept.pop(tool) if tool is not None else None
    inner = as_dict(held)
    made = present(
        tool_name=inner.get("name") if inner else held, id=kept.pop(own) if own is not None else inner.get("id")
    )
    place = _first(kept, _GIVEN, dict, str, list)
    given = kept.pop(place) if place is not None else _inner(inner, _GIVEN)
    if not has_result:
        return {**kept, "type": "tool_call", **made, "args": {} if given is None else given}
    places = {name: place for name, some in (("output", _SHOWN), ("error", _ERRORS)) if (place := _first(kept, some))}
    shown = {name: kept.pop(place) for name, place in places.items()}
    well = _first(kept, _WELL, bool)
    ended = {"ok": kept.pop(well)} if well is not None else {"ok": False} if words & _FAILED else {}
    return {**kept, "type": "tool_result", **made, **present(args=given), **shown, **ended}


def _flat(line: Mapping[str, Any], levels: int = 3) -> dict[str, Any]:
    """Return a line's fields with those that a logger keeps in an object of their own."""
    flat = dict(as_dict(line.get("record")) or line)  # of loguru, next to its text
    for name in (*_NESTED, *_HELD) if levels else ():
        held = flat.get(name)
        if isinstance(held, dict) and (name in _NESTED or _first(held, _PARTS) is not None):
            del flat[name]
            flat = {**_flat(held, levels - 1), **flat}
    return flat


def _of_the_agent(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line's fields without the logger's, its time under one name."""
    time = next((line[name] for name in _TIMES if line.get(name) is not None), None)
    time = as_dict(time).get("timestamp", time) if isinstance(time, dict) else time  # loguru's
    kept = present(ts=time) | {
        name: held
        for name, held in line.items()
        if name.lower() not in _LOGGERS and name not in _TIMES and name != "type" and held is not None
    }
    run = _first(kept, _RUNS, str, int) if source_of(kept)["conversation_id"] is None else None
    return {"session_id": str(kept.pop(run)), **kept} if run is not None else kept


def _is_name(value: Any) -> bool:
    """Whether a text is the name of an event, and no sentence."""
    if not isinstance(value, str) or len(value) > _LONGEST or _NAME.fullmatch(value) is None:
        return False
    return 0 < len(value.split()) <= _MOST_WORDS


def _first(line: Mapping[str, Any], names: Iterable[str], *kinds: type) -> str | None:
    """Return the first field that a line has under one of some names, in whatever spelling."""
    spelt = {re.sub(r"[^a-z]", "", name.lower()): name for name in reversed(list(line))}
    places = (spelt[name] for name in names if name in spelt)
    return next((place for place in places if line[place] not in (None, "") and _is_of(line[place], kinds)), None)


def _is_of(value: Any, kinds: tuple[type, ...]) -> bool:
    return not kinds or (isinstance(value, kinds) and isinstance(value, bool) is (bool in kinds))


def _inner(held: Mapping[str, Any], names: Iterable[str]) -> Any:
    place = _first(held, names)
    return held[place] if place is not None else None
