"""Calls next to an agent's words, with or without what they gave, as messages of their own.

In: a message of the agent. Out: the message with the call among its calls; or, where each call in one of its lists has
what it gave, the calls, the results, and then the words that came of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.messages import flat_text
from flywheel.reading.shapes.acts import call_in, result_in
from flywheel.reading.shapes.spelling import role_of
from flywheel.reading.shapes.turns import result_of
from flywheel.reading.values import as_dict, as_list, first, present, text
from flywheel.records import content_id

Item = Mapping[str, Any]

ABOUT = ("timestamp", "creation_utc", "created_at", "modelId", "model")
_THOUGHTS = ("thinking", "thought", "reasoning_content")
_BESIDE = ("tool_call", "toolCall", "function_call", "functionCall", "call")  # a call next to the agent's words


def with_call(item: Item) -> Item:
    """Return a message of the agent with the call next to its words among its calls; another as it is."""
    if role_of(item) != "assistant" or item.get("tool_calls"):
        return item
    made = next((held for name in _BESIDE if isinstance(held := item.get(name), dict) and call_in(held)), None)
    return item if made is None else {**item, "tool_calls": [call_in(made)]}


def answered_calls(item: Item) -> Iterator[Item]:
    """Yield the calls in a list next to the agent's words, what they gave, and then the words that came of it."""
    if role_of(item) != "assistant":
        return
    if item.get("tool_calls"):
        yield from _with_results(item)
        return
    item = _with_services(item)
    name = next(
        (name for name, held in item.items() if isinstance(held, list) and held and all(map(_called, held))), ""
    )
    if not name or name in ("content", "parts"):
        return
    about = {name: item[name] for name in ABOUT if item.get(name) is not None}
    own = item.get("id") or item.get("index") or content_id(item)[:12]
    made = [(f"{own}/{n}", called) for n, called in enumerate(filter(None, map(_called, item[name])))]
    calls = [{**called["call"], "id": called["call"]["id"] or call_id} for call_id, called in made]
    yield {"role": "assistant", "content": None, "tool_calls": calls, **about}
    results = zip(calls, (called["result"] for _, called in made), strict=True)
    yield {"role": "tool", "content": [result_of({**gave, "tool_call_id": call["id"]}) for call, gave in results]}
    yield {key: held for key, held in item.items() if key != name}


def _with_services(item: Item) -> Item:
    """Return a turn with the calls of services that its frames show, and what they gave: Schema-Guided Dialogue's.

    What else is in the frames is how people labelled the words.
    """
    frames = [as_dict(frame) for frame in as_list(item.get("frames"))]
    called = [(frame, as_dict(frame["service_call"])) for frame in frames if as_dict(frame.get("service_call"))]
    made = [{"tool": call.get("method"), "arguments": call.get("parameters") or {},
             "result": frame.get("service_results")} for frame, call in called]  # fmt: skip
    return {**item, "frames": made} if made else item


def _with_results(item: Item) -> Iterator[Item]:
    """Yield the calls of a message that shows what each gave, the results, and then the words that came of them.

    A result that is a message of its own too takes the place of the one here.
    """
    made = [_called(call) for call in as_list(item["tool_calls"])]
    if None in made:
        return
    about = {name: item[name] for name in ABOUT if item.get(name) is not None}
    own = item.get("id") or item.get("index") or content_id(item)[:12]
    named = [(called["call"]["id"] or f"{own}/{n}", called) for n, called in enumerate(filter(None, made))]
    rest = {key: held for key, held in item.items() if key != "tool_calls"}
    is_said = bool(flat_text(rest.get("content")) or rest.get("reasoning"))
    why = {} if is_said else present(reasoning=text(first(rest, _THOUGHTS)))  # of the calls, where nothing came of them
    calls = [{**called["call"], "id": name} for name, called in named]
    yield {"role": "assistant", "content": None, "tool_calls": calls, **why, **about}
    for name, called in named:
        result = result_of({**called["result"], "tool_call_id": name})
        yield {"role": "tool", "tool_call_id": name, "of_state": True, "content": [result]}
    if is_said:
        yield rest


def _called(item: Any) -> Item | None:
    """Return the call in an object, or one object deeper, with what it gave; None where it shows nothing of it."""
    fields = as_dict(item)
    call = call_in(fields) or next((made for held in fields.values() if (made := call_in(as_dict(held)))), None)
    if call is None:
        return None
    if raised := fields.get("exception"):
        return {"call": call, "result": {"result": raised, "is_error": True}}
    result = result_in(fields)
    return None if result is None else {"call": call, "result": result}
