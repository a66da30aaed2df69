"""One call of a model's API, as events: the same for every API, whose own words a `Dialect` knows.

In: a pair and its dialect. Out: a model call with its full input; or, where the API keeps the history itself
(`previous_response_id`, `conversation`), what was new as a request and the call without input; or, where no answer
came, what was asked. An answer without its request is a call without input: who else knows its id may know the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flywheel.reading.events import Event, Source, conversation_of, own_names, request, source_of, tool_result
from flywheel.reading.feedback import is_scored, judgements
from flywheel.reading.messages import Message
from flywheel.reading.pairs import Pair, common_payload
from flywheel.reading.shapes.spoken import is_past
from flywheel.reading.values import as_dict, embedded, first, ident, number, picked, present, text
from flywheel.records import EventKind, content_id

_ROLLOUT = "responses_create_params"  # what NeMo Gym asks its model with: no user writes there
LINE = 1000  # events that one line of a log gives at most: their seq is the line's and their place in it
_COSTS = ("input_tokens", "output_tokens", "cost_usd")  # paid for a call without an answer, too
_TRACE = ("trace_id", "traceId")
_MODELS = ("model_name", "modelName", "model_id", "modelId", "model_used")  # of home-made logs
_REQUEST = ("request_id", "requestId", "x_request_id", "litellm_call_id", "_request_id")


class Dialect(NamedTuple):
    """What one API calls things."""

    fields: tuple[str, ...]  # an object with one of them is a request
    history: Callable[[Mapping[str, Any]], list[Message]]
    completed: Callable[[Mapping[str, Any]], Mapping[str, Any]]  # a whole response from what was logged; {} if none is
    answer: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[list[Message], dict[str, Any]]]
    tools: Callable[[Mapping[str, Any], Mapping[str, Any]], list[dict[str, Any]] | None]
    kept: tuple[str, ...] = ()  # a request with one of them has only what is new: the API keeps the rest


def call_events(pair: Pair, dialect: Dialect, line: int) -> Iterator[Event]:
    """Yield the events of one call.

    A program's own row of what was asked and answered, with how it ended, is an attempt: others at the same words are
    others, as in the rollouts of a group.

    Args:
        pair: request and response; either may be empty.
        dialect: what they are written in.
        line: the record's line, which orders calls that do not repeat their history.
    """
    response = dialect.completed(pair.response)
    history = dialect.history(pair.request) if pair.request else []
    turns, answer = dialect.answer(pair.request, response)
    kept = _kept(dialect, pair.request, response)
    source = source_of_pair(pair, history, response, kept)
    extra = {"tools": tools} if (tools := dialect.tools(pair.request, response)) else {}
    payload = present(answer) | common_payload(pair, response)
    payload |= {"response_id": own} if (own := ident(response.get("id"))) else {}
    asked = extra if turns else extra | picked(payload, _COSTS) | {"tags": _failure(payload)}
    if history and not kept:
        if turns:
            yield from turn_events(turns, {"input": history, **extra}, payload, source, len(history))
        else:
            yield request(history, source, len(history), asked)
    else:
        source |= {"span_id": own}
        before = pair.request.get("previous_response_id") or response.get("previous_response_id")
        follows = present(follows=ident(before))
        yield from _instructions(pair.request, source)
        if history:
            yield request(history, source, line * LINE, asked | follows)
        yield from turn_events(turns, {} if history else extra, payload | follows, source, line * LINE + 1)
    is_run = source["user"] is None and str(source["conversation_id"]) == attempt_name(pair)
    is_run = is_run and (_is_row(pair, response) or _ROLLOUT in pair.envelope)
    yield from judgements(pair.envelope, source, own, of_run=is_run)


def _failure(payload: Mapping[str, Any]) -> list[str]:
    """Return the tags of a call without an answer; one that was still running when it was logged did not fail."""
    tags = list(payload.get("tags", ()))
    return tags if "unfinished" in tags else [*tags, "call_failed"]


def turn_events(
    turns: Sequence[Message], opening: Mapping[str, Any], payload: Mapping[str, Any], source: Source, seq: int
) -> Iterator[Event]:
    """Yield the turns of one answer: one, or several where the API's own tools were called in between.

    Args:
        turns: assistant messages, tool results and messages of the environment of a rollout between them, in order.
        opening: payload of the first action: what it saw.
        payload: payload of the last action: that of the response.
        source: columns of the events.
        seq: position of the first turn.
    """
    actions = [n for n, turn in enumerate(turns) if turn["role"] == "assistant"]
    for n, turn in enumerate(turns):
        is_whole = actions[-1:] == [n]
        place = source if is_whole or not source.get("span_id") else {**source, "span_id": f"{source['span_id']}#{n}"}
        if turn["role"] != "assistant":
            yield tool_result(turn, place, seq + n) if turn["role"] == "tool" else request([turn], place, seq + n, {})
            continue
        own = dict(opening) if n == actions[0] else {}
        own |= payload if is_whole else _piece_of(payload, n)
        yield {**place, "kind": EventKind.MODEL_CALL, "seq": seq + n, "payload": {"message": turn, **own}}


def _piece_of(payload: Mapping[str, Any], position: int) -> dict[str, Any]:
    """An action before the last one has an id of its own: it is not a second copy of the response."""
    response_id = payload.get("response_id")
    return {"response_id": f"{response_id}#{position}"} if response_id else {}


def source_of_pair(pair: Pair, history: list[Message], response: Mapping[str, Any], named: str | None = None) -> Source:
    """Return the columns of a call.

    Args:
        pair: request and response, whose metadata and envelope may have the columns.
        history: the input, by whose beginning a conversation is named that has no name.
        response: the whole response.
        named: a conversation that outranks a trace; a session outranks it.
    """
    asked = pair.request
    held = [(place, name) for place in (asked, pair.envelope, response) for name in ("metadata", "attributes")]
    metadata = [as_dict(embedded(place.get(name))) for place, name in held]
    places = [place for place in (*metadata, pair.envelope, asked, response) if place]
    source = source_of(*places)
    prompt = as_dict(pair.envelope.get("prompt"))  # of a store of prompts
    source["model"] = text(response.get("model")) or source["model"] or text(prompt.get("model"))
    source["model"] = source["model"] or text(first(pair.envelope, _MODELS))
    trace, own = _find(places, _TRACE), ident(response.get("id"))
    conversation = source["conversation_id"]
    conversation = (named or conversation) if conversation == trace else conversation
    is_row = conversation is None and _is_row(pair, response)
    if conversation is None and history:
        is_attempt = is_row and (is_scored(pair.envelope) or _is_alone(pair, source))
        is_attempt = is_attempt or number(pair.envelope.get("reward")) is not None  # a rollout, one of a group perhaps
        conversation = attempt_name(pair) if is_attempt else conversation_of(history, source["user"])
    source["conversation_id"] = conversation or (response_name(own) if own else f"chat-{content_id(response)}")
    source["ids"] = names(source["conversation_id"], response=own, request=_find(places, _REQUEST), trace=trace)
    source["ids"] += own_names(pair.envelope) if is_row else []
    return source


def _is_row(pair: Pair, response: Mapping[str, Any]) -> bool:
    """Whether a program wrote what was answered, not an API whose request a user may have written."""
    return not {"said", "raw"}.isdisjoint({*pair.response, *response})


def _is_alone(pair: Pair, source: Source) -> bool:
    """Whether a row is of one question in words, at its own time or under its own id: equal words are asked again."""
    lists = any(isinstance(held, list) for held in pair.request.values())  # of messages, which may go on in a next row
    lists = lists or any(map(is_past, pair.envelope))
    return not lists and (source["ts"] is not None or ident(pair.envelope.get("id")) is not None)


def attempt_name(pair: Pair) -> str:
    """Return the name of an attempt that is one record, and names no other."""
    return "chat-" + content_id("attempt", pair.envelope)


def names(conversation: str, **known: str | None) -> list[str]:
    """Return the other names of a call, as kind:id, without the conversation's own."""
    pairs = ((f"{kind}:{name}", name) for kind, name in known.items() if name)
    return [whole for whole, name in pairs if conversation not in (whole, name)]


def response_name(response_id: str) -> str:
    """Return the name of the conversation that a response belongs to, from its id alone."""
    return f"response:{response_id}"


def _find(places: Sequence[Mapping[str, Any]], keys: tuple[str, ...]) -> str | None:
    for place in places:
        value = first(place, keys)
        if value is not None:
            return ident(value)
    return None


def _kept(dialect: Dialect, *places: Mapping[str, Any]) -> str | None:
    """Return the conversation that the API itself keeps: by its name, or by the response before."""
    for value in (place[name] for name in dialect.kept for place in places if place.get(name)):
        name = ident(as_dict(value).get("id") if isinstance(value, dict) else value)
        if name:
            before = any(place.get("previous_response_id") == value for place in places)
            return response_name(name) if before else name
    return None


def _instructions(asked: Mapping[str, Any], source: Source) -> Iterator[Event]:
    """Yield the system prompt of a named conversation: every call repeats it in the same words, as the same event."""
    content = text(asked.get("instructions"))
    if content and not str(source["conversation_id"]).startswith("response:"):
        items: list[Message] = [{"role": "system", "content": content}]
        yield {**request(items, source, 0, {}), "ts": None, "span_id": None, "ids": []}
