"""OpenAI Chat Completions and text completions: pairs, also streamed, bare responses and chunks, and transcripts.

A pair gives one model call with its full input. A transcript ({"messages": [...]}, as in fine-tuning files) gives
requests, model calls and tool results; a preference file gives both answers, one of which was preferred. A response
without its request is a call of the conversation that is named by its id; a chunk is a piece of such a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flywheel.reading.events import Event, acted, attempt_of, own_names, source_of
from flywheel.reading.feedback import judgements, opinions_in
from flywheel.reading.messages import ROLES, Message, messages, name_results, tool_schemas, with_instructions
from flywheel.reading.outcomes import results
from flywheel.reading.pairs import Pair, ends_answered, pair_of
from flywheel.reading.reader import reader
from flywheel.reading.shapes.acts import are_made
from flywheel.reading.shapes.facts import facts_of
from flywheel.reading.shapes.heard import people_in
from flywheel.reading.shapes.turns import has_untyped_parts
from flywheel.reading.shapes.whole import all_called, whole
from flywheel.reading.shapes.written import with_written_calls
from flywheel.reading.streams import is_chunk
from flywheel.reading.values import as_dict, as_list, embedded, ident, number
from flywheel.stages.ingest.readers._tagged import with_tagged
from flywheel.stages.ingest.readers.apis._dialects.calls import call_events
from flywheel.stages.ingest.readers.apis._dialects.chat import CHAT, choices, completed
from flywheel.stages.ingest.readers.apis._dialects.openai_files import chunk_event, is_preference, preference
from flywheel.stages.ingest.readers.apis._dialects.which import as_answered

_LISTS = ("tool_calls", "content")  # of a message; other programs list what they made next to its words
_OWN = {"ts", "output_tokens"}  # of a message in a chat of a program, which `transcripts` reads with them
_BLOCKS = ("tool_use", "tool_result", "thinking")
_UNRENDERED = (("raw_messages", "response"), ("fncall_messages", "fncall_response"))
_RESPONSES = ("chat.completion", "text_completion")


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one pair, response, chunk, transcript or preference."""
    if is_preference(record):
        yield from preference(record)
        return
    pair = _pair(record)
    if not pair.request and is_chunk(record):
        yield from chunk_event(record, line)
    elif pair.request is record and "messages" in record and not (completed(pair.response) or _failed(record)):
        events = all_called(record, _transcript(record))
        yield from whole({"messages": record["messages"]}, events)
    else:
        pair, dialect = as_answered(record, pair, CHAT)
        made = (event for one in _apart(pair) for event in call_events(one, dialect, line))
        yield from all_called(record, made) if "said" in pair.response else made


def _pair(record: Any) -> Pair:
    """Return a record's pair; OpenHands also logs it as it was before calls were written as words, for some models."""
    pair = pair_of(record, CHAT.fields)
    for asked, answered in _UNRENDERED:
        if isinstance(turns := as_dict(record).get(asked), list):
            response = as_dict(record.get(answered)) or pair.response
            return pair._replace(request={**pair.request, "messages": turns}, response=response)
    return pair


def _failed(record: Mapping[str, Any]) -> bool:
    """Whether a record is a call without an answer, and not a run with an error: one has a task, a reward or an end."""
    if record.get("error"):
        ended = any("success" not in result.name for result in results(record))  # which a call may have, too
        return not (ends_answered(record) or source_of(record)["task_key"] or ended)
    return "response" in record and not ends_answered(record)


def _is_pair(record: Any) -> bool:
    pair = _pair(record)
    answered = isinstance(completed(pair.response).get("choices"), list) and "said" not in pair.response
    return bool(pair.request) and (answered or _is_error(pair.response))


def _is_error(response: Mapping[str, Any]) -> bool:
    """Whether a response is how this API refuses a call, which is one all the same."""
    return "message" in as_dict(response.get("error")) and response.get("type") != "error"  # the last is Claude's


def _is_said(record: Any) -> bool:
    """Whether a record has a request and no more of the answer than its text, as home-made logs do."""
    response = _pair(record).response
    return "said" in response and not _is_run(as_dict(as_dict(choices(response)[0]).get("message")).get("content"))


def _is_run(answer: Any) -> bool:
    """Whether an answer's text is an object with the calls of a whole run, and what came of them."""
    return any(map(are_made, as_dict(embedded(answer)).values()))


def _is_call(record: Any) -> bool:
    return _is_pair(record) or is_chunk(record) or is_preference(record)


def _is_response(record: Any) -> bool:
    outer = as_dict(record)
    response = pair_of(outer).response
    return response.get("object") in _RESPONSES and bool(choices(response)) and "custom_id" not in outer


def _is_transcript(record: Any) -> bool:
    items = as_list(as_dict(record).get("messages"))
    if not items or not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in items):
        return False
    if not all(any(name in m for name in (*_LISTS, "function_call", "refusal", "audio")) for m in items):
        return False
    parts = (p for m in items for p in as_list(m.get("content")))
    beside = (held for m in items for name, held in m.items() if name != "content" and isinstance(held, list))
    is_plain = not has_untyped_parts(items) and people_in(items) is None and not any(map(are_made, beside))
    is_plain = is_plain and not _is_programs(items)
    return is_plain and not any(as_dict(p).get("type") in _BLOCKS for p in parts)


def _is_programs(items: Sequence[Mapping[str, Any]]) -> bool:
    """Whether messages are of a chat of some program, which `transcripts` reads with the times and tokens of each."""
    roles = {str(m["role"]).lower() for m in items}
    is_told = "assistant" in roles and roles <= ROLES.keys() and not any("weight" in m for m in items)
    return is_told and any(facts_of(m).keys() & _OWN or (m["role"] == "assistant" and opinions_in(m)) for m in items)


def _apart(pair: Pair) -> Iterator[Pair]:
    """Yield a text completion of several prompts as one pair each: their choices are in one list."""
    prompts = [p for p in as_list(pair.request.get("prompt")) if isinstance(p, str)]
    answers = choices(completed(pair.response)) if prompts[1:] else []
    if not prompts[1:] or len(answers) % len(prompts):
        yield pair
        return
    each = len(answers) // len(prompts)
    for n, prompt in enumerate(prompts):
        response_id = ident(pair.response.get("id"))
        own = {"choices": answers[n * each : (n + 1) * each], "id": f"{response_id}#{n}" if response_id else None}
        yield Pair({**pair.request, "prompt": prompt}, {**pair.response, **own, "usage": None}, pair.envelope)


def _transcript(record: Mapping[str, Any]) -> Iterator[Event]:
    """A transcript is one attempt: the same words of one name and time are the same one, any other words another."""
    history, actions = _weighed(record["messages"])
    history, places = with_tagged(history)
    actions = {n for n, place in enumerate(places) if place in actions and history[n]["role"] == "assistant"}
    history = with_written_calls(history)
    if (begun := with_instructions(history, record)) is not history:
        history, actions = begun, {place + 1 for place in actions}
    source = source_of(as_dict(embedded(record.get("metadata"))), record)
    if source["conversation_id"] is None:
        source |= {"conversation_id": attempt_of(record, history, source), "ids": own_names(record)}
    tools = tool_schemas(record.get("tools") or record.get("functions"))
    yield from acted(history, actions, source, {"tools": tools} if tools else {})
    yield from judgements(record, source, None)


def _weighed(value: Any) -> tuple[list[Message], set[int]]:
    """Return the messages, and which of them are acts: an answer of weight 0 is part of what the agent saw."""
    weights = [number(as_dict(m).get("weight")) for m in as_list(embedded(value))]
    if 0 not in weights:
        history = messages(value)
        return history, {n for n, m in enumerate(history) if m["role"] == "assistant"}
    history, actions = [], set()
    for item, weight in zip(embedded(value), weights, strict=True):
        for message in messages([item]):
            if message["role"] == "assistant" and weight != 0:
                actions.add(len(history))
            history.append(message)
    name_results(history)
    return history, actions


READER = reader(
    "openai",
    27,
    "logs and files of Chat Completions",
    marks=[(0.95, _is_call), (0.9, _is_response), (0.65, _is_said), (0.6, _is_transcript)],
    read=_read,
)
