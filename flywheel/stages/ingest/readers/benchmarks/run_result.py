"""Files next to transcripts that show how a run ended and with which settings: `metadata.json`, `result.json`, ....

In: one JSON object of a run, a list or a map of several by id, or a line of results or of a user's rating each. Out:
outcomes, ratings and settings, aimed at the session that an id names, or else at what is next to the file
(`conversations.beside` joins them). Transcripts are other files; a record that holds messages of its own is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from flywheel.extensions import BadRecordError, Sample
from flywheel.reading.events import Event
from flywheel.reading.feedback import feedback, outcome, ratings
from flywheel.reading.outcomes import by_name, is_unmeasured, measure_of, results
from flywheel.reading.reader import reader
from flywheel.reading.shapes.actions import is_step
from flywheel.reading.shapes.places import chats_within, numbered
from flywheel.reading.shapes.spoken import answered_field, asked_field
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, first, ident, text, when
from flywheel.records import SETTINGS, content_id
from flywheel.stages.ingest.framing.texts.plain_text import ATTEMPTS, attempt_in
from flywheel.stages.ingest.readers.apis._dialects.calls import LINE
from flywheel.stages.ingest.readers.apis.exchanges import is_page, is_worded

_IDS = (
    "session_id", "conversation_id", "thread_id", "trace_id", "trial_name", "trial_id",
    "rollout_id", "episode_id", "chat_id", "instance_id", "run_id",
)  # fmt: skip
_ANSWERS = ("response_id", "message_id", "request_id")  # which ratings are of
_TASKS = ("task_id", "task_name", "task_key", "problem_id", "example_id", "scenario_id", "task")
_TIMES = ("finished_at", "ended_at", "end_time", "trial_ended_at", "completed_at", "timestamp", "created_at")
_SEVERAL = ("results", "trials", "runs", "sessions", "episodes", "instances")
_BY_ID = (
    "individual",
    "instances",
    "per_task",
    "by_task",
    "tasks",
    "task_results",
    "per_instance",
    "details",
    "results",
    "eval_results",
    "raw_eval_results",
    "evaluations",
)  # maps by id
_SETTINGS = (
    "temperature", "top_p", "max_tokens", "reasoning_effort", "effort", "prompt_version", "system_prompt_version",
    "prompt_name", "prompt_id", "prompt", "variant", "scaffold", "agent_version", "config", "profile",
)  # fmt: skip
_PARTS = ("settings", "config", "params", "parameters", "sampling", "sampling_args", "generation_config", "model_args")
_TALKS = ("messages", "history", "trajectory", "turns", "steps", "events", "conversation", "completion", "request",
          "choices", "spans", "observations", "traj", "transcript", "input", "payload", "trajectories", "entries",
          "conversations", "logs", "raw_logging_results", "trace")  # fmt: skip
_TOOLS = ("tool", "tool_name", "toolName", "function")
_ACTIONS = ("action", "action_name", "actionName", "action_type", "actionType")
_KINDS = ("kind", "type", "event", "event_type", "span_type", "step_type")
_GIVEN = {"args", "arguments", "parameters", "params", "tool_input"}
_CAME_BACK = {"result", "output", "tool_result", "tool_output", "observation"}
_SEEN = ("observation", "observations", "action_input", "tool_calls", "function_call")
_HUMPS = re.compile(r"(?<=[a-z])([A-Z])")
_USERS = ("user", "user_id", "userId", "end_user", "customer_id", "customerId", "account_id", "accountId")
_OF_USERS = {"feedback", "rating", "review", "survey"}
_LONGEST_SETTING = 40
_SURE, _LIKELY = 0.8, 0.6


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return the file as what distinguishes equal results of two runs."""
    return {"scope": path.as_posix()}


def _sniff(sample: Sample) -> float:
    """A document of results has outcomes or settings and no conversation; of several each names what it is about."""
    records = [as_dict(record) for record in sample.records]
    entries = [entry for record in records for entry in _entries(record)]
    if not entries or (len(entries) > 1 and not all(name for name, _ in entries)):
        return 0.0
    if any(_talks(entry) for entry in (*records, *(fields for _, fields in entries))):
        return 0.0
    if any(_chats(record) or _has_steps(record) or is_page(record) for record in records):
        return 0.0
    if _are_calls(entries) or _are_parts(entries):
        return 0.0
    told = [entry for entry in entries if results(entry[1]) or (entry[0] and any(ratings(entry[1])))]
    if len(entries) > 1:
        return _SURE * (len(told) == len(entries))
    named = entries[0][0] is not None
    return _SURE if told and (named or _settings(entries[0][1])) else _LIKELY if told or _is_setup(records[0]) else 0.0


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the outcomes and settings of a record's runs."""
    entries = _entries(as_dict(record))
    for seq, (name, fields) in enumerate(entries):
        if name is None and (len(entries) > 1 or line > 1):
            raise BadRecordError("bad_record", "a result of several that names no session")
        aim = f"beside:{name or content_id(fields)}"
        source = {
            "conversation_id": aim, "target": aim, "seq": line * LINE + seq, "ts": when(_first(fields, _TIMES)),
            "task_key": ident(_first(fields, _TASKS)),
        }  # fmt: skip
        ended, is_of_a_user = results(fields), _is_of_a_user(fields)
        for result in ended:
            yield outcome(source, result.name, result.value, by="feedback" if is_of_a_user else result.by)
        scored = {result.name for result in ended if 0 <= result.value <= 1 and not is_of_a_user}  # by a program
        for rating in ratings(fields) if measure_of(fields) is None else ():
            if rating["name"] not in scored:
                yield feedback(source, rating)
        settings, model = _settings(fields), text(first(fields, ("model", "model_name", "model_id")))
        if settings or model:
            yield feedback(source, {"name": "settings", "comment": settings}, policy=SETTINGS + settings, model=model)


def _entries(record: Mapping[str, Any]) -> list[tuple[str | None, Mapping[str, Any]]]:
    """Return the runs of a document, each with the id that names it."""
    for key in _SEVERAL:
        runs = [as_dict(run) for run in as_list(record.get(key))]
        ended = [run for run in runs if results(run)]
        if ended and all(run in ended or is_unmeasured(run) for run in runs):
            return [(_id(run) or ident(run.get("id")), {**_shared(record), **run}) for run in ended]
    for held in (record, *(as_dict(record.get(name)) for name in _BY_ID)):
        if named := by_name(held):
            return [(_id(run) or ident(name), {**_shared(record), **run}) for name, run in named.items()]
    return [(_id(record), record)] if record else []


def _shared(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of all runs of a document."""
    return {key: record[key] for key in (*_SETTINGS, *_PARTS, "model", "model_name") if key in record}


def _id(fields: Mapping[str, Any]) -> str | None:
    named = ident(_first(fields, _IDS)) or (
        ident(_first(fields, _TASKS)) if not isinstance(fields.get("task"), dict) else None
    )
    return named or ident(_first(fields, _ANSWERS))


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the first value that is there, whether its name is written as `run_id` or as `runId`."""
    return first({**{_HUMPS.sub(r"_\1", name).lower(): value for name, value in fields.items()}, **fields}, names)


def _chats(record: Mapping[str, Any]) -> bool:
    """Whether a record has a chat, be it one that cannot be read."""
    try:
        return bool(chats_within(record))
    except BadRecordError:
        return True


def _has_steps(place: Any) -> bool:
    """Whether a list in a record, at any depth, has what was observed step by step: a talk that no reader knows."""
    place = numbered(place)
    if isinstance(place, list):
        held = (step.get(name) for step in map(as_dict, place) for name in _SEEN)
        return any(value and isinstance(value, str | list | dict) for value in held) or any(map(_has_steps, place))
    return isinstance(place, dict) and any(_has_steps(held) for held in place.values() if isinstance(held, dict | list))


def _talks(fields: Mapping[str, Any]) -> bool:
    """Whether an object holds a talk, or is a step of one or a call of a tool with its result."""
    talks = any(isinstance(fields.get(key), list | dict) and fields[key] for key in _TALKS) or is_step(fields)
    talks = talks or any(attempt_in(held) for key in ATTEMPTS if isinstance(held := fields.get(key), str))
    talks = talks or (fields.get("done") is False and first(fields, ("step", *_ACTIONS)) is not None)
    within = {name: held for inner in map(as_dict, fields.values()) for name, held in inner.items()}
    talks = talks or (is_worded(fields) and answered_field(fields) != "answer")  # which may be the right one
    talks = talks or bool(asked_field(within) and answered_field(within))
    talks = talks or (isinstance(fields.get("prompt"), str) and isinstance(fields.get("completion"), str))
    talks = talks or _is_request(fields) or any(map(_is_call, (c for held in fields.values() for c in as_list(held))))
    return talks or (text(first(fields, _TOOLS)) is not None and not fields.keys().isdisjoint(_GIVEN))


def _is_call(item: Any) -> bool:
    """Whether an item of a list is a call of a tool, with what was given to it or came back."""
    call = as_dict(item)
    return text(first(call, _TOOLS)) is not None and not call.keys().isdisjoint({*_GIVEN, *_CAME_BACK})


def _is_request(fields: Mapping[str, Any]) -> bool:
    """Whether an object is a line on a request to a model, whose answer is not kept: what succeeded is the request."""
    asked = text(first(fields, ("query", "prompt", "user_message"))) or ""
    counted = token_counts(fields)
    is_asked = any(map(str.isspace, asked)) and first(fields, ("model", "model_id", "model_name")) is not None
    ended = {result.name for result in results(fields)}
    return is_asked and None not in counted.values() and ended <= {"success"} and _first(fields, _TASKS) is None


def _are_calls(entries: list[tuple[str | None, Mapping[str, Any]]]) -> bool:
    """Whether results are of single calls: several of a run, each with its tool or action."""
    names = [name for name, _ in entries]
    acted = all(first(fields, (*_TOOLS, *_ACTIONS)) is not None for _, fields in entries)
    return acted and len(set(names)) < len(names)


def _are_parts(entries: list[tuple[str | None, Mapping[str, Any]]]) -> bool:
    """Whether results are of parts of runs: half of them name what another does, and each its kind (`llm_call`)."""
    names = [name for name, _ in entries]
    kinds = {key: {fields.get(key) for _, fields in entries if isinstance(fields.get(key), str)} for key in _KINDS}
    return len(set(names)) <= len(names) / 2 and any(len(several) > 1 for several in kinds.values())


def _is_of_a_user(fields: Mapping[str, Any]) -> bool:
    """Whether a result names the user who stated it: what an application writes of a rating, not how a run ended."""
    kinds = {str(fields.get(key)).lower() for key in ("kind", "type", "event")}
    return ident(first(fields, _USERS)) is not None or bool(kinds & _OF_USERS)


def _is_setup(record: Mapping[str, Any]) -> bool:
    """Whether a document without an outcome is the settings of a run that has no reader of its own."""
    return (
        bool(_settings(record)) and "model" in record and not {"env_id", "env", "request", "response"} & record.keys()
    )


def _settings(fields: Mapping[str, Any]) -> str:
    """Return the declared settings of a run as one text, in order of their names."""
    places = [fields, *(as_dict(fields.get(key)) for key in _PARTS)]
    values = {key: first(place, (key,)) for place in reversed(places) for key in _SETTINGS if key in place}
    shown = {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in values.items()
             if isinstance(value, str | int | float) and value != ""}  # fmt: skip
    return " ".join(f"{key}={value}" for key, value in sorted(shown.items()) if _is_short(value))


def _is_short(value: str) -> bool:
    return len(value) <= _LONGEST_SETTING and not any(c.isspace() or c == "=" for c in value)


READER = reader(
    "run_result",
    12,
    "results and settings next to transcripts",
    sniff=_sniff,
    surest=_SURE,
    read=_read,
    from_path=_from_path,
)
