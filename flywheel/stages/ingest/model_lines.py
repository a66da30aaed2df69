"""Calls of a model whose request and response a program logs on lines of their own, without an id that joins them.

In: the records of a file, in order: `{"event": "llm_start", "prompts": [...]}` and `{"event": "llm_end", "response":
...}`, `{"direction": "request", "payload": {"messages": [...]}}` and its response, as callbacks and hosts log them.
Out: a record a call, at the line of its response. A response is that of the last request of its session (or of its
id, where lines have one); a request that none answers is passed over and counted. So are lines of tools, whose results
the next request has again. LangChain's prompts are taken apart at their roles.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from flywheel.reading.events import source_of
from flywheel.reading.messages import ROLES
from flywheel.reading.shapes.acts import call_in
from flywheel.reading.shapes.turns import RESULT_KINDS
from flywheel.reading.values import (
    as_dict,
    as_list,
    embedded,
    first,
    ident,
    picked,
    present,
    python_value,
    text,
    words_of,
)
from flywheel.stages.ingest.framing.framed import OTHER_LINES, Bad, Framed, Passed, Record, parsed

_KINDS = ("event", "type", "kind", "direction", "event_type", "eventType", "phase", "action", "event_name")
_MODEL = {"llm", "model", "chatmodel", "completion", "generation", "openai", "anthropic", "ollama", "gemini", "claude"}
_ASKS = {"request", "start", "started", "begin", "prompt", "input", "sent", "call"}
_ANSWERS = {"response", "end", "ended", "finish", "finished", "complete", "completed", "output", "received", "result"}
_TOOL = {"tool", "function"}
_BODIES = ("payload", "data", "body", "request", "response", "params")
_ASKED = ("messages", "prompts", "prompt", "contents")
_ANSWERED = (
    "response", "content", "message", "choices", "output", "completion", "text", "generations", "tool_calls", "answer",
)  # fmt: skip
_SETTINGS = ("model", "model_name", "temperature", "top_p", "max_tokens", "tools", "system")
_IDS = ("request_id", "requestId", "call_id", "callId", "run_id", "runId", "correlation_id", "span_id", "generation_id")
_SOURCE = ("usage", "latency_ms", "latency_s", "duration_ms", "session_id", "conversation_id", "thread_id", "user_id")
_LONGEST_KIND = 60
_WAITING = 4096  # requests, each of another session, that wait at most
_TURN = re.compile(r"^(System|Human|AI|Tool|Function): ", re.MULTILINE)  # how LangChain's `get_buffer_string` has roles
_OF_TURN = {"Human": "user", "AI": "assistant", "System": "system", "Tool": "tool", "Function": "tool"}
UNANSWERED = "requests to a model without a response"
OF_TOOLS = "lines of tools, whose results the next request to the model has"


def are_model_lines(values: Sequence[Any]) -> bool:
    """Whether records are the lines of such a program: a request is answered, and no other line has words.

    Where tools have lines too, a request has what one gave.
    """
    kinds = [_kind(value) for value in values]
    spoken = [kind for kind in kinds if kind in ("asks", "answers")]
    if None in kinds or "asks" not in spoken[:1] or ("asks", "answers") not in pairwise(spoken):
        return False
    asked = (value for value, kind in zip(values, kinds, strict=True) if kind == "asks")
    return "tool" not in kinds or any(_has_result(_messages(_body(value))) for value in asked)


def _has_result(messages: Sequence[Any]) -> bool:
    """Whether what a model was asked has what a tool gave: a message of the tool, or a part of one."""
    given = [as_dict(message) for message in messages]
    parts = (as_dict(part) for message in given for part in as_list(message.get("content")))
    return any(ROLES.get(str(message.get("role"))) == "tool" for message in given) or any(
        part.get("type") in RESULT_KINDS for part in parts
    )


def joined_lines(records: Iterable[Framed]) -> Iterator[Record | Bad | Passed]:
    """Yield the calls of a file's lines."""
    waiting: dict[str, Record] = {}
    for record in parsed(records):
        if not isinstance(record, Record):
            yield record
            continue
        kind, key = _kind(record.value), _key(record.value)
        if kind == "asks":
            if key in waiting or len(waiting) >= _WAITING:
                yield Passed(waiting.pop(key if key in waiting else next(iter(waiting))).line, UNANSWERED)
            waiting[key] = record
        elif kind == "answers" and key in waiting:
            yield record._replace(value=_call(waiting.pop(key).value, record.value), raw=None)
        elif kind == "answers":
            yield record.bad("bad_record", "a model's response without its request")
        elif kind is None:
            yield record.bad("bad_record", "a line with words of its own among those of a model's calls")
        else:
            yield Passed(record.line, OF_TOOLS if kind == "tool" else OTHER_LINES)
    yield from (Passed(record.line, UNANSWERED) for record in waiting.values())


def _kind(value: Any) -> str | None:
    """Return what a line is: 'asks', 'answers', 'tool', 'other'; None for one that has words of its own."""
    fields = as_dict(value)
    named = (fields[name] for name in _KINDS if isinstance(fields.get(name), str))
    words = set[str]().union(*(words_of(name) for name in named if len(name) <= _LONGEST_KIND))
    body = _body(fields)
    is_models = bool(words & _MODEL) or str(fields.get("source")).lower() in _MODEL
    if words & _TOOL and words & (_ASKS | _ANSWERS):
        return "tool"
    if is_models and words & _ANSWERS and first(body, _ANSWERED) is not None and first(body, _ASKED) is None:
        return "answers"
    if is_models and words & _ASKS and _messages(body):
        return "asks"
    return "other" if is_models or not _speaks(fields) else None


def _speaks(fields: Mapping[str, Any]) -> bool:
    """Whether a line has words of a talk, whoever wrote them."""
    body = _body(fields)
    return first(body, (*_ASKED, *_ANSWERED, "input", "query", "question", "role")) is not None


def _body(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((held for name in _BODIES if (held := as_dict(embedded(fields.get(name))))), fields)


def _key(value: Any) -> str:
    """Return by what a line is joined: an id of the call or the run, else the session, else the file."""
    fields = as_dict(value)
    return ident(first(fields, _IDS)) or source_of(fields)["conversation_id"] or ""


def _call(asked: Mapping[str, Any], answered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a call."""
    request = {**picked(asked, _SETTINGS), **picked(_body(asked), _SETTINGS), "messages": _messages(_body(asked))}
    about = {**picked(asked, _SOURCE), **picked(answered, _SOURCE)}
    times = {name: held for name, held in asked.items() if name in ("timestamp", "ts", "time", "created_at")}
    return {**about, **times, "request": request, "response": _response(_body(answered))}


def _response(body: Mapping[str, Any]) -> Any:
    """Return what an API answered as it is; words, and calls next to them, as a message of the agent."""
    if not {"choices", "candidates"}.isdisjoint(body) or isinstance(body.get("content"), list):
        return body
    held = first(body, ("response", "message", "output", "completion", "content", "text", "answer", "generations"))
    if isinstance(held, dict):
        return held if not isinstance(held.get("content"), str) else {**picked(body, ("usage",)), **held}
    made = [call for listed in as_list(body.get("tool_calls")) if (call := _made(as_dict(listed)))]
    return {"role": "assistant", "content": text(held), **present(tool_calls=made or None), **picked(body, ("usage",))}


def _made(listed: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a call in the form of Chat Completions."""
    if "function" in listed:
        return dict(listed)
    call = call_in(listed)
    named = None if call is None else {"name": call["name"], "arguments": call["arguments"]}
    return None if call is None else {"id": call["id"], "type": "function", "function": named}


def _messages(body: Mapping[str, Any]) -> list[Any]:
    """Return what a model was asked, as messages; [] where a line does not have it."""
    if isinstance(listed := embedded(body.get("messages")), list):
        return listed[0] if len(listed) == 1 and isinstance(listed[0], list) else listed
    prompts = body.get("prompts")
    prompt = prompts[0] if isinstance(prompts, list) and len(prompts) == 1 else first(body, ("prompts", "prompt"))
    return _turns(prompt) if isinstance(prompt, str) and prompt.strip() else []


def _turns(prompt: str) -> list[dict[str, Any]]:
    """Return the messages of a prompt that LangChain made of them; one of the user for any other prompt."""
    marks = list(_TURN.finditer(prompt))
    if not marks or marks[0].start() > 0 or {mark[1] for mark in marks}.isdisjoint({"Human"}):
        return [{"role": "user", "content": prompt}]
    ends = [mark.start() for mark in marks[1:]] + [len(prompt)]
    unanswered: deque[str] = deque()
    parts = ((_OF_TURN[mark[1]], prompt[mark.end() : end].strip("\n")) for mark, end in zip(marks, ends, strict=True))
    return [_turn(role, words, unanswered) for role, words in parts]


def _turn(role: str, words: str, unanswered: deque[str]) -> dict[str, Any]:
    """Return a message: calls of the agent are written as Python's list, and results come in the order of the calls."""
    if role == "tool":
        return {"role": "tool", "content": words, **present(tool_call_id=unanswered.popleft() if unanswered else None)}
    opens = words.find("[{'name': ")
    listed = python_value(words[opens:]) if role == "assistant" and opens >= 0 else None
    made = [call for item in as_list(listed) if (call := _made(as_dict(item)))]
    if not made:
        return {"role": role, "content": words}
    unanswered.extend(call["id"] for call in made if call["id"])
    return {"role": role, "content": words[:opens].strip() or None, "tool_calls": made}
