"""Events as readers yield them: requests, model calls and tool results of a transcript.

In: messages in normal form, and the columns that a record gives. Out: events. `spoken` turns a finished transcript into
requests, model calls and tool results; `conversation_of` names a conversation that the log does not name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from flywheel.reading.messages import Message
from flywheel.reading.outcomes import results
from flywheel.reading.status import error_type
from flywheel.reading.values import as_dict, ident, text, when, words_of
from flywheel.records import EventKind, content_id

Event = dict[str, Any]
Source = dict[str, Any]

_CONVERSATION = (
    "conversation_id", "session_id", "thread_id", "conversationId", "sessionId", "threadId", "chat_id", "chatId",
    "sessionID", "dialogue_id", "trace_id", "traceId",
)  # fmt: skip
_USER = (
    "user",
    "user_id",
    "userId",
    "end_user",
    "end_user_id",
    "safety_identifier",
    "client_id",
    "tenant",
    "tenant_id",
)
_POLICY = ("policy", "release", "policy_version", "agent_version", "pipeline_name")  # the last one AgentDojo's
_ARMS = ("model_version", "condition_id", "config_id", "config_name", "variant", "harness")
_TASK = (
    "task_key", "task_id", "dataset_item_id", "example_id", "scenario_id", "problem_id", "question_id",
    "weave_task_id", "user_task_id", "test_case_id", "testCaseId", "taskKey", "taskId", "datasetItemId", "exampleId",
    "scenarioId", "problemId", "questionId",
)  # fmt: skip
# Where a task's id is a number, or a word and a number, it is one of each of these.
_SUITE = ("suite_name", "suite", "task_suite", "benchmark", "benchmark_name", "dataset", "dataset_name", "domain")
_BARE = re.compile(r"(?:[A-Za-z]+[ _-]?){0,3}\d{1,6}")
_BESIDE_A_PROBLEM = {"resolved", "is_resolved", "exit_status", "model_patch"}  # there, an instance is a problem
_ISSUE = re.compile(r"[\w.-]{1,80}__[\w.-]{1,80}-\d{1,8}\Z")  # django__django-11099
_TIME = (
    "timestamp", "ts", "created_at", "createdAt", "created", "start_time", "startTime", "time", "datetime_utc",
    "logging_time", "processed_time",
)  # fmt: skip
# A conversation or a time under a name of a program's own, by the words of the name.
_TALKS = {"conversation", "conv", "convo", "session", "chat", "thread", "dialog", "dialogue", "episode"}
_APART_BY = {"id", "uuid", "guid", "key", "hash", "ref", "number", "no", "fk"}
_MOMENTS = {"at", "time", "timestamp", "datetime", "ts"}
_OF_MOMENTS = {
    "sent", "send", "said", "started", "date", "logged", "posted", "received", "recorded", "created", "message", "msg",
    "event", "utc", "iso", "ms", "start", "asked", "unix", "secs", "seconds", "epoch", "begun", "opened",
}  # fmt: skip
_LONGEST_ID = 128
_SHORTEST_NAME = 8  # of a record, by which a rating in another file may call it
_CLOCK = re.compile(r"\d{1,2}:\d\d(?::\d\d(?:\.\d{1,6})?)?\Z")
_ATTEMPT = ("id", "trajectory_id", "rollout_id", "attempt_id", "sample_id", "uuid")
# What distinguishes equal attempts that have neither an id nor a time.
_APART = (
    "run_id", "run", "run_name", "run_index", "run_idx", "run_number", "experiment", "trial", "trial_id", "trial_index",
    "trial_idx", "attempt", "attempt_index", "attempt_number", "sample_index", "sample_idx", "rollout_index",
    "rollout_idx", "epoch", "repeat", "repetition", "replica", "seed", "condition", "condition_id", "config",
    "config_id", "variant", "strategy", "method", "harness", "llm", "agent", "agent_name",
)  # fmt: skip


_MEANINGS = {
    "conversation_id": _CONVERSATION, "user": _USER, "policy": _POLICY, "task_key": _TASK, "ts": _TIME,
    "model": ("model", "model_name", "modelName", "llm"),
}  # fmt: skip
_RANKED = {name: (meaning, rank) for meaning, names in _MEANINGS.items() for rank, name in enumerate(names)}
_NAMED = _RANKED.keys()


def source_of(*places: Mapping[str, Any]) -> Source:
    """Return the columns that all events of a record share, each from the first of the places that has it."""
    columns: dict[str, Any] = {}
    for place in places:
        ranked: dict[str, tuple[int, Any]] = {}
        for name in place.keys() & _NAMED:
            meaning, rank = _RANKED[name]
            if meaning in columns or (value := place[name]) is None or value == "":
                continue
            if meaning not in ranked or rank < ranked[meaning][0]:
                ranked[meaning] = (rank, value)
        columns |= {meaning: value for meaning, (_, value) in ranked.items()}
        if "conversation_id" not in columns or "ts" not in columns:
            columns = {**_by_words(place), **columns}
        if "task_key" not in columns and (instance := place.get("instance_id")) and _is_problem(instance, place):
            columns["task_key"] = instance
    return {
        "conversation_id": ident(columns.get("conversation_id")),
        "user": ident(as_dict(columns.get("user")).get("id")) or ident(columns.get("user")),
        "policy": ident(columns.get("policy")) or _release(text(columns.get("model")), places),
        "task_key": _in_suite(ident(columns.get("task_key")), places),
        "ts": when(columns.get("ts")) or _on_day(columns.get("ts"), places),
        "model": text(columns.get("model")),
    }


def _release(model: str | None, places: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a model with its version or with the arm of an experiment: either alone may be of several models."""
    named = (value for place in places for name in _ARMS if isinstance(value := place.get(name), str | int))
    version = next((name for value in named if not isinstance(value, bool) and (name := ident(value))), None)
    return f"{model}/{version}" if model and version and version != model else version


def _is_problem(instance: Any, place: Mapping[str, Any]) -> bool:
    """Whether an instance is a problem to be solved, and not a machine: one of SWE-bench has the form of its names."""
    return not _BESIDE_A_PROBLEM.isdisjoint(place) or (isinstance(instance, str) and bool(_ISSUE.match(instance)))


def _by_words(place: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conversation and the time that a record has under names of its own; no words are an id."""
    found: dict[str, Any] = {}
    for name, value in place.items():
        meaning = _meant(name)
        if not meaning or meaning in found:
            continue
        is_id = ident(value) is not None and not any(map(str.isspace, str(value)[:_LONGEST_ID]))
        # A number of an episode is of each run again.
        is_id = is_id and not ("episode" in name.lower() and str(value).isdecimal())
        if is_id if meaning == "conversation_id" else when(value) is not None:
            found[meaning] = value
    return found


@lru_cache(4096)
def _meant(name: str) -> str:
    """Return what a field's name means by its words; '' where they do not show it: a thread alone is a processor's."""
    words = words_of(name)
    if name == "thread_ts" or (words & _TALKS and words <= _TALKS | _APART_BY and words != {"thread"}):
        return "conversation_id"
    return "ts" if words & _MOMENTS and words <= _MOMENTS | _OF_MOMENTS else ""


def _on_day(clock: Any, places: Sequence[Mapping[str, Any]]) -> datetime | None:
    """Return the time of a clock's reading, where one of the places has the day."""
    if not isinstance(clock, str) or not _CLOCK.match(clock):
        return None
    return next((at for place in places if (at := when(f"{place.get('date')} {clock}")) is not None), None)


def _in_suite(task: str | None, places: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a task's id, behind the name of its suite where other suites have the same."""
    if task is None or not _BARE.fullmatch(task):
        return task
    suite = next((name for place in places for key in _SUITE if (name := text(place.get(key)))), None)
    return f"{suite}/{task}" if suite else task


def conversation_of(history: list[Message], user: str | None) -> str:
    """Name a conversation by how it begins: every later call repeats its system prompt and first user message."""
    system = next((m.get("content") for m in history if m["role"] == "system"), None)
    opening = next((m.get("content") for m in history if m["role"] == "user"), None)
    if opening is None:
        return "chat-" + content_id("history", history, user)
    return "chat-" + content_id(system, opening, user)


def attempt_of(record: Mapping[str, Any], history: list[Message], source: Source) -> str:
    """Name an attempt that is one record: by its words, its id and time.

    Without these it is named by who acted in which run and how it ended: equal words that ended otherwise are of two
    attempts.
    """
    named: list[Any] = [ident(record[name]) for name in _ATTEMPT if record.get(name) is not None]
    named += [source["ts"].isoformat()] if source["ts"] else []
    if not named:
        apart: list[tuple[Any, ...]] = [
            (name, ident(record[name])) for name in _APART if isinstance(record.get(name), str | int)
        ]
        apart += [("policy", source["policy"])] if source["policy"] else []
        apart += [("ended", result.name, result.value) for result in results(record)]
        named = [[source["model"], *apart]] if source["model"] or apart else []
    return "chat-" + content_id("transcript", history, source["user"], source["task_key"], *named)


def own_names(record: Mapping[str, Any]) -> list[str]:
    """Return the name by which other files may call a record that is a talk: its own id, unless it is a number."""
    own = ident(record.get("id"))
    return [f"session:{own}"] if own and len(own) >= _SHORTEST_NAME and not own.isdecimal() else []


def spoken(history: list[Message], source: Source, extra: Mapping[str, Any], *, seen: int = 0) -> Iterator[Event]:
    """Yield the events of a transcript that is logged once, from beginning to end.

    Args:
        history: messages in normal form.
        source: columns shared by all events.
        extra: payload fields of the first request: tools, tags.
        seen: how many messages at the beginning the agent only saw, whoever speaks in them: demonstrations, say.
    """
    waiting: list[Message] = []
    first_fields = dict(extra)
    start = 0
    for position, message in enumerate(history):
        if position < seen or message["role"] in {"system", "user", "context"}:
            start = start if waiting else position
            waiting.append(message)
            continue
        if waiting or first_fields:
            yield request(waiting, source, start, first_fields)
            waiting, first_fields = [], {}
        if message["role"] == "assistant":
            yield {**source, "kind": EventKind.MODEL_CALL, "seq": position, "payload": {"message": message}}
        else:
            yield tool_result(message, source, position)
    if waiting:
        yield request(waiting, source, start, first_fields)


def acted(
    history: list[Message], actions: set[int], source: Source, extra: Mapping[str, Any], *, apart: bool = False
) -> Iterator[Event]:
    """Yield the events of a transcript of which only some assistant messages are the agent's acts.

    The others (examples, what was copied or written for the agent) are part of what it saw: where there are any, every
    act has the full history before it as its input.

    Args:
        history: messages in normal form.
        actions: positions of the acts.
        source: columns shared by all events.
        extra: payload fields that say something of the whole: tools, tags.
        apart: whether it does not continue what the conversation has before it.
    """
    if not apart and all(position in actions for position, m in enumerate(history) if m["role"] == "assistant"):
        yield from spoken(history, source, extra)
        return
    if not actions:
        yield request(history, source, 0, extra)
        return
    for position in sorted(actions):
        payload = {"message": history[position], "input": history[:position], **extra}
        yield {**source, "kind": EventKind.MODEL_CALL, "seq": position, "payload": payload}
    start = max(actions) + 1
    for event in spoken([m for m in history[start:] if m["role"] != "assistant"], source, {}):
        yield {**event, "seq": event["seq"] + start}


def answer_from(answers: list[Message], tags: list[str]) -> dict[str, Any]:
    """Return the payload fields of a call's answers: the first is the answer; without any the content is missing."""
    flags = {"tags": sorted({*tags, *(() if answers else ("content_missing",))})} if tags or not answers else {}
    others = {"other_choices": answers[1:]} if len(answers) > 1 else {}
    return {"message": answers[0] if answers else {"role": "assistant"}} | others | flags


def request(messages: list[Message], source: Source, seq: int, extra: Mapping[str, Any]) -> Event:
    """Return what reached the agent from outside."""
    return {**source, "kind": EventKind.REQUEST, "seq": seq, "payload": {"messages": messages, **extra}}


def tool_result(message: Message, source: Source, seq: int) -> Event:
    """Return a tool message as an event of its own."""
    payload: dict[str, Any] = {"content": message["content"], "status": message["status"]}
    kind = error_type(message["content"]) if message["status"] == "failed" else None
    if kind:
        payload["error_type"] = kind
    return {
        **source,
        "kind": EventKind.TOOL_RESULT,
        "seq": seq,
        "tool_name": message.get("name"),
        "tool_call_id": message.get("tool_call_id"),
        "payload": payload,
    }
