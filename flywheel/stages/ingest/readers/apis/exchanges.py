"""Calls of any other API or framework: a record with what was asked and what was answered, under any usual names.

Gemini's `contents` (pairs, Vertex AI's request-response logs, batch files), Bedrock (Converse, invocation logs of any
model), Ollama, Cohere, Dify, and home-made lines of question and answer. A body that is Chat Completions' or Claude's
is read in its own dialect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from flywheel.extensions import Sample
from flywheel.reading.events import Event, answer_from, attempt_of, own_names, source_of
from flywheel.reading.feedback import judgements, outcome
from flywheel.reading.messages import Message, with_instructions
from flywheel.reading.outcomes import by_name, results
from flywheel.reading.pairs import USED, Pair, on_the_wire, response_body
from flywheel.reading.reader import reader, share
from flywheel.reading.rollout import Rollout, rollout_events
from flywheel.reading.shapes import about_answer, answered, asked, unread
from flywheel.reading.shapes.acts import made_in
from flywheel.reading.shapes.chats import chat, is_begun
from flywheel.reading.shapes.spoken import (
    answered_field,
    asked_field,
    is_named_by_whom,
    is_past,
    is_tested,
    is_written_by_model,
    made_between,
    thoughts_in,
    unanswered_field,
    words_in,
)
from flywheel.reading.shapes.turns import Turn
from flywheel.reading.shapes.whole import whole
from flywheel.reading.streams import stream_events
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, picked, present, text, words_of
from flywheel.stages.ingest.readers.apis._dialects.calls import LINE, Dialect, call_events
from flywheel.stages.ingest.readers.apis._dialects.responses import RESPONSES
from flywheel.stages.ingest.readers.apis._dialects.which import dialect_of

_PAIRS = (
    ("request", "response"), ("full_request", "full_response"), ("request_payload", "response_payload"),
    ("input", "output"), ("inputs", "outputs"), ("inputs", "output"), ("question", "answer"),
    ("query", "answer"), ("query", "response"), ("prompt", "output"), ("prompt", "answer"), ("prompt", "raw_output"),
    ("input", "actual_output"), ("input", "actualOutput"), ("body", "response"),
)  # fmt: skip
_BODIES = ("inputBodyJson", "outputBodyJson", "body")  # where Bedrock's log and proxies keep what went over the wire
_ASKED = ("contents", "messages", "prompt")  # the last as the AI SDK's models are given it
_ANSWERED = ("candidates", "message", "output", "choices", "events", "content", "outputs", "results", "generation")
_LOGGED = (  # what a line of a log has and a list of right answers has not
    "model", "model_name", "modelId", "session_id", "conversation_id", "thread_id", "timestamp", "ts", "created_at",
    "latency_ms", "latency_s", "input_tokens", "prompt_tokens", "usage", "time", "datetime", "response_time",
    "response_time_seconds", "response_time_ms",
    "actual_output", "actualOutput",
)  # fmt: skip
_OF_OTHERS = ("tool", "tool_name", "expected", "expected_output", "span_id", "spanId", "op_name", "run_type", "type")
# A line's type.
_OF_TALKS = ("chat", "message", "conversation", "interaction", "exchange", "completion", "query", "qa", "user_message",
             "chat_message")  # fmt: skip
_MODELS = ("model", "modelId", "model_id", "model_name", "ai_model", "model_used", "llm_model")
_ABOUT_MODEL = ("model_info", "modelInfo", "llm")  # objects that may name it
_SPLITS = {"train", "test", "dev", "val", "validation", "eval"}  # lists of a data set: no talks
_ADDRESS = re.compile(r"/models?/(?P<model>[\w.-]{1,80})(?:[:/]|%3A)")
_API, _WORDS = 0.8, 0.55


def _pair(record: Mapping[str, Any]) -> Pair | None:
    """Return what was asked and answered; anything but an object is under `input` and `raw`."""
    if "contents" in record:
        return _joined(record, record.get("response"), record)
    for question, answer in _PAIRS:
        if record.get(question) and answer in record and not _is_half(record[question], record[answer]):
            return _joined(_body(record[question]), _body(record[answer]), record)
    if "messages" in as_dict(record.get("llmInput")) and "rawResponse" in as_dict(record.get("llmOutput")):
        return _joined(record["llmInput"], record["llmOutput"]["rawResponse"], record)
    if "messages" in record and isinstance(record.get("response"), dict | list):
        return _joined(record, record["response"], record)
    by_user, by_agent = asked_field(record), answered_field(record) or unanswered_field(record)
    if by_user and by_agent and isinstance(record[by_user], str):
        return _joined(_with_history(record[by_user], record), words_in(record[by_agent]), record)
    return None


def _with_history(question: str, record: Mapping[str, Any]) -> Any:
    """Return a question behind the messages that were before it, where a record has them in a list for that.

    The list may have been logged after the question, or after the answer: they are not before themselves.
    """
    listed = next((record[name] for name in record if is_past(name) and is_begun(record[name])), None)
    if listed is None or not is_named_by_whom(record):
        return question
    before, _ = chat(listed)
    answer = answered_field(record)
    now = [question.strip(), (words_in(record[answer]) or "").strip() if answer else None]
    if len(before) > 1 and [(message.get("content") or "").strip() for message in before[-2:]] == now:
        before = before[:-2]
    elif before and before[-1]["role"] == "user" and (before[-1].get("content") or "").strip() == now[0]:
        before = before[:-1]
    now_asked: Message = {"role": "user", "content": question}
    return {"messages": [*with_instructions(before, record), now_asked]} if before else question


def _joined(question: Any, answer: Any, record: Mapping[str, Any]) -> Pair:
    request = dict(question) if isinstance(question, dict) else {"input": question}
    places = (request, record, *(as_dict(record.get(name)) for name in _ABOUT_MODEL))
    named = next((model for place in places if (model := text(first(place, _MODELS)))), None)
    named = named or _in_address(record.get("request")) or _in_address({"url": record.get("path")})
    turns = isinstance(answer, list) and bool(answer) and all("role" in as_dict(turn) for turn in answer)
    response = response_body(answer) if isinstance(answer, dict | list) and not turns else {"raw": answer}
    beside = {name: record[name] for name in ("inputTokenCount", "outputTokenCount") if name in record}
    return Pair(request | present(model=named), {**response, "beside": {**_used(record), **record, **beside}}, record)


def _body(value: Any) -> Any:
    """Return what a log wraps: Bedrock's bodies, Vertex AI's lists of one text."""
    opened = embedded(value)
    if isinstance(opened, list) and len(opened) == 1 and isinstance(embedded(opened[0]), dict):
        opened = embedded(opened[0]) if isinstance(opened[0], str) else opened
    inner = first(as_dict(opened), _BODIES)
    if isinstance(opened, dict) and (inner is None or _streamed(opened)):
        return _recorded(opened) or opened
    return embedded(inner) if inner is not None else opened


def _is_half(asked: Any, answered: Any) -> bool:
    """Whether what came back over the wire is not there as it was, but in pieces."""
    return _recorded(asked) is not None and _recorded(answered) is None


def _recorded(message: Any) -> Any:
    """Return the body of HTTP's message: JSON, or the events of a stream; None where it is none."""
    body = embedded(on_the_wire(message)) if isinstance(message, dict) else None
    return body if isinstance(body, dict) else _streamed(message) or None


def _streamed(message: Any) -> list[Mapping[str, Any]]:
    """Return the events of a message whose body is the text of a stream."""
    body = on_the_wire(message) if isinstance(message, dict) else None
    return stream_events(body) if isinstance(body, str) else []


def _in_address(request: Any) -> str | None:
    """Return the model that the address of a recorded request names, as Gemini's and Bedrock's do."""
    match = _ADDRESS.search(str(as_dict(request).get("url", "")))
    return match["model"] if match else None


def _history(request: Mapping[str, Any]) -> list[Message]:
    begun = asked(request)
    return begun.messages if begun else []


def _completed(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer as `raw`, with its model and id; {} for a failure."""
    beside = as_dict(response.get("beside"))
    said = response.get("raw")
    if said is None:
        inner = {name: value for name, value in response.items() if name not in ("beside", "raw")}
        said = _whole([as_dict(chunk) for chunk in stream_events(inner)]) if "events" in inner else inner
    fields = as_dict(said)
    if not said or (first(fields, ("error", "errorCode", "promptFeedback")) and "candidates" not in fields):
        return {}
    about = about_answer(said)
    return present(raw=said, id=about.get("response_id"), model=about.get("model"), beside=beside)


def _whole(chunks: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the response that a stream of Gemini's is: the pieces of a text belong together."""
    choices = [as_dict(choice) for chunk in chunks for choice in as_list(chunk.get("candidates"))[:1]]
    pieces = [as_dict(p) for choice in choices for p in as_list(as_dict(choice.get("content")).get("parts"))]
    parts: list[dict[str, Any]] = []
    for kind, group in groupby(pieces, key=lambda part: (part.keys() <= {"text", "thought"}, part.get("thought"))):
        run = list(group)
        is_text = kind[0] and all(isinstance(part.get("text"), str) for part in run)
        parts += [{**run[0], "text": "".join(part["text"] for part in run)}] if is_text else map(dict, run)
    merged = {name: value for chunk in chunks for name, value in chunk.items() if value is not None}
    reasons = [reason for choice in choices if (reason := choice.get("finishReason"))]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": reasons[-1] if reasons else None}
    return merged | {"candidates": [candidate]} if choices else {}


def _answer(request: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[list[Message], dict[str, Any]]:  # noqa: ARG001 - a dialect's signature
    answers = answered(response.get("raw"))
    payload = answer_from(answers, unread(response.get("raw"), answers))
    told = present(token_counts(as_dict(response.get("beside")))) | present(token_counts(as_dict(response.get("raw"))))
    about = {k: v for k, v in about_answer(response.get("raw")).items() if k not in ("model", "response_id")}
    return answers[:1], told | picked(payload, ("other_choices", "tags") if answers else ()) | about


def _tools(request: Mapping[str, Any], response: Mapping[str, Any]) -> list[dict[str, Any]] | None:  # noqa: ARG001 - a dialect's signature
    begun = asked(request)
    return begun.tools if begun else None


_ANY = Dialect((), _history, _completed, _answer, _tools)


def _read(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of a record: all that is in it, where a program of one's own wrote it."""
    if not is_worded(record):
        rows = _rows(record)
        if all(map(is_worded, rows)) and any(map(made_in, rows)):
            yield from (event for n, row in enumerate(rows) for event in _read(row, line + n))
        else:
            yield from _called(record, line)
        return
    asked, answered = asked_field(record), answered_field(record)
    between = list(made_between(record, {}))
    if (between or thoughts_in(record)) and asked and answered:
        yield from whole(record, _with_calls(record, asked, answered, between, line))
    else:
        yield from whole(record, _called(record, line))


def _with_calls(
    record: Mapping[str, Any], asked: str, answered: str, between: list[Turn], line: int
) -> Iterator[Event]:
    """Yield the events of a question in words, the calls about it that are listed next to it, and the answer."""
    said = {"role": "user", "content": record[asked]}
    answer = {"role": "assistant", "content": words_in(record[answered]), **present(reasoning=thoughts_in(record))}
    history, facts = chat([said, *between, answer])
    source = source_of(as_dict(embedded(record.get("metadata"))), record)
    rollout = Rollout(
        conversation=source["conversation_id"] or attempt_of(record, history, source),
        messages=history,
        ids=own_names(record),
        task=source["task_key"],
        policy=source["policy"],
        facts={n: {**present(model=source["model"]), **told} for n, told in facts.items()},
        first=line * LINE,
        started=source["ts"],
    )
    for event in rollout_events(rollout):
        yield {**event, "user": source["user"]}
    about = {**rollout.columns(), "user": source["user"], "ts": source["ts"]}
    is_run = source["conversation_id"] is None and source["user"] is None
    yield from judgements(record, about, None, of_run=is_run)


def _called(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of a record's calls, each in its own dialect, and how the tasks ended of which they are."""
    runs = {task: run for held in map(as_dict, record.values()) for task, run in by_name(held).items()}
    ended: dict[str, Event] = {}
    pairs = list(filter(None, map(_pair, _rows(record)))) or list(filter(None, [_unanswered(record)]))
    for n, pair in enumerate(pairs):
        for event in call_events(pair, dialect_of(pair) or _ANY, line + n):
            task = event.get("task_key")
            if task not in runs:
                yield event
                continue
            ended[task] = {**event, "conversation_id": "/".join(filter(None, (_run(record), task)))}
            yield ended[task]
    for task, event in ended.items():
        source = {"conversation_id": event["conversation_id"], "ts": event["ts"], "task_key": task}
        for result in results(runs[task]):
            yield outcome(source, result.name, result.value, by=result.by, seq=event["seq"] + 1)


def _used(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object in which a record has the tokens of its call."""
    return as_dict(first(record, USED))


def _run(record: Mapping[str, Any]) -> str | None:
    """Return the id of the run that a document is of."""
    places = (record, *map(as_dict, record.values()))
    return next((run for place in places if (run := ident(first(place, ("run_id", "runId"))))), None)


def _rows(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rows of a page, or of another document that has lists of calls, else the record itself.

    Exchanges in words under the id of a session are one talk; of several lists each is one, by its name.
    """
    if _pair(record) is not None:
        return [record]
    lists = {name: rows for name, held in record.items() if (rows := _rows_of(held))}
    own = source_of(record)["conversation_id"]
    named: list[Mapping[str, Any]] = []
    for name, rows in lists.items():
        talk = own or (name if len(lists) > 1 and name not in _SPLITS else None)
        named += [{"session_id": talk, **row} if talk and is_worded(row) else row for row in rows]
    return named or [record]


def _rows_of(held: Any) -> list[Mapping[str, Any]]:
    rows = [as_dict(row) for row in held] if isinstance(held, list) else []
    return rows if rows and all(map(_is_row, rows)) else []


def _is_row(record: Any) -> bool:
    return _is_api(record) or is_worded(record)


def _is_api(record: Any) -> bool:
    """Whether a record has the request and the response of an API as they went over the wire."""
    pair = _pair(as_dict(record))
    if pair is None:
        return False
    if not any(isinstance(embedded(pair.request.get(name)), list) for name in _ASKED):
        return dialect_of(pair) is RESPONSES
    is_said = "finish_reason" in pair.response and isinstance(pair.response.get("content"), str)  # AutoGen's
    return is_said or any(isinstance(pair.response.get(name), dict | list) for name in (*_ANSWERED, "error"))


def is_worded(record: Any) -> bool:
    """Whether a record has a question and an answer in words, and something that only a log has."""
    fields = as_dict(record)
    is_logged = (
        first(fields, _LOGGED) is not None
        or is_named_by_whom(fields)
        or is_written_by_model(fields)
        or bool(made_in(fields))
        or is_tested(fields)
        or _is_verified(fields)
    )
    is_other = first({**fields, "type": None if fields.get("type") in _OF_TALKS else fields.get("type")}, _OF_OTHERS)
    is_other = None if bool(made_in(fields)) and is_tested(fields) else is_other  # a test of an agent, with what it did
    is_other = is_other or next((name for name in fields if words_of(name) >= {"command", "executed"}), None)
    pair = _pair(fields) if is_logged and is_other is None else None
    if pair is None or len(asked := pair.request.keys() & {"input", "messages"}) != 1:
        return False
    if pair.request.keys() > {*asked, "model"}:
        return False
    question, answer = embedded(pair.request[asked.pop()]), pair.response.get("raw") or pair.response.get("events")
    return (isinstance(question, str | list) and isinstance(answer, str)) or (
        isinstance(question, list) and any("role" in as_dict(turn) for turn in as_list(answer))
    )


def _is_verified(fields: Mapping[str, Any]) -> bool:
    """Whether a record has how it ended, and nothing but plain fields: an object may be what was done in between."""
    several = (held if isinstance(held, list) else [held] for held in fields.values())
    return bool(results(fields)) and not any(isinstance(one, list | dict) and one for held in several for one in held)


def is_page(record: Any) -> bool:
    """Whether a document has a list of such records."""
    return isinstance(record, dict) and _rows(record)[0] is not record


def _is_any(record: Any) -> bool:
    return isinstance(record, dict) and (_has_pair(record) or _unanswered(record) is not None)


def _has_pair(record: Mapping[str, Any]) -> bool:
    return any(_pair(row) for row in _rows(record))


def _unanswered(record: Mapping[str, Any]) -> Pair | None:
    """Return what was asked in a row of a session whose answer is missing: an empty cell of a table."""
    by_user = asked_field(record)
    if by_user is None or not isinstance(record[by_user], str) or source_of(record)["conversation_id"] is None:
        return None
    return _joined(record[by_user], None, record)


def _sniff(sample: Sample) -> float:
    """Return the confidence that records are calls; of rows in words, most with an answer, some may lack theirs."""
    records = sample.records
    rows = [record for record in records if is_worded(record)]
    others = (as_dict(record) for record in records if not is_worded(record))
    is_table = 2 * len(rows) > len(records) and all(_unanswered(record) is not None for record in others)
    worded = 1.0 if is_table else share(records, is_worded)
    return max(_API * share(records, _is_api), _WORDS * worded, _WORDS * share(records, is_page))


READER = reader(
    "exchanges",
    17,
    "calls of any other API, what was asked and answered",
    sniff=_sniff,
    surest=max(_API, _WORDS),
    needs=_is_any,
    refusal="no question with its answer",
    read=_read,
)
