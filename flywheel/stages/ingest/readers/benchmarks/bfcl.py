"""Results of the Berkeley Function-Calling Leaderboard that have a log of inference: those of several turns.

One record is one attempt: per turn what the user asked, and per step the model's reply, how its handler decoded it, and
what each call gave. Models that were prompted write their calls as Python. An attempt whose server failed has an error
in the place of all that. Results of one turn are calls without the question that they answer, and are refused. Scores
are files of their own which list only the failures, each with its attempt: the attempts that they leave out have no
verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event
from flywheel.reading.feedback import outcome
from flywheel.reading.messages import Message, messages
from flywheel.reading.reader import reader
from flywheel.reading.rollout import Rollout, rollout_events
from flywheel.reading.values import (
    as_dict,
    as_list,
    count,
    ident,
    number,
    picked,
    present,
    python_arguments,
    text,
)

_LOG, _ASKED, _STEP = "inference_log", "begin_of_turn_query", "step_"
_DECODED = "model_response_decoded"
_FOLDERS = ("result", "score")  # of a model's results, and of what they are worth
_SCORE = {"id", "valid", "test_category"}
_SUMMARY = {"accuracy", "correct_count", "total_count"}
_NEAR = 4  # folders that name a run


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return the model, which is the folder of its results, and the run and suite: each task has one attempt there."""
    folders = path.parts[:-1]
    stem = path.name.split(".json")[0].removesuffix("_result").removesuffix("_score")
    place = next((folders.index(name) for name in _FOLDERS if name in folders[:-1]), None)
    named = folders if place is None else (*folders[:place], *folders[place + 1 :])
    model = {} if place is None else {"model": folders[place + 1]}
    return {"scope": "/".join((*named[-_NEAR:], stem)), **model}


def _read(record: Mapping[str, Any]) -> Iterator[Event]:
    """Yield the messages of an attempt, or its outcome where it is a score."""
    if _is_summary(record):
        return
    task = f"bfcl/{ident(record['id'])}"
    if record.keys() >= _SCORE:
        source = {"conversation_id": task, "task_key": task}
        yield outcome(source, "valid", float(record["valid"] is True), scale=(0, 1), by="verifier")
        return
    if _is_crash(record):
        yield from rollout_events(Rollout(task, [], task, tags=["ended_by_error"]))
        return
    turns = [turn for turn in map(as_dict, as_list(record[_LOG])) if _is_turn(turn)]
    spoken: list[Message] = []
    facts: dict[int, dict[str, Any]] = {}
    for n, turn in enumerate(turns):
        spoken += [dict(message) for message in map(as_dict, as_list(turn.get(_ASKED)))]
        steps = sorted((name for name in turn if name.startswith(_STEP)), key=lambda name: int(name[len(_STEP) :]))
        for k, name in enumerate(steps):
            facts[len(spoken)] = _facts(record, n, k)
            spoken += _step([as_dict(entry) for entry in as_list(turn[name])], f"{n}_{k}")
    history = messages(spoken)
    if len(history) != len(spoken):
        raise BadRecordError("bad_record", "a message of a step that cannot be read")
    yield from rollout_events(Rollout(conversation=task, task=task, messages=history, facts=facts))


def _is_turn(turn: Mapping[str, Any]) -> bool:
    return _ASKED in turn or any(name.startswith(_STEP) for name in turn)


def _facts(record: Mapping[str, Any], turn: int, step: int) -> dict[str, Any]:
    """Return the tokens and the seconds of a step, which are lists of lists."""

    def told(name: str) -> Any:
        turns = as_list(record.get(name))
        steps = as_list(turns[turn]) if turn < len(turns) else []
        return steps[step] if step < len(steps) else None

    return present(
        input_tokens=count(told("input_token_count")),
        output_tokens=count(told("output_token_count")),
        latency_s=number(told("latency")),
    )


def _step(entries: Sequence[Mapping[str, Any]], place: str) -> list[Message]:
    """Return a step's reply and the results of its calls.

    Raises:
        BadRecordError: the reply or a result is in no form that is known.
    """
    replies = [entry for entry in entries if entry.get("role") == "assistant"]
    results = [entry for entry in entries if entry.get("role") == "tool"]
    if len(replies) != 1:
        raise BadRecordError("bad_record", "a step without one reply")
    content = replies[0].get("content")
    written = next((as_list(held) for entry in entries if (held := entry.get(_DECODED))), [])
    calls = _given(content) if isinstance(content, list) else [_written(one) for one in written]
    if len(results) > len(calls):
        raise BadRecordError("bad_record", "more results than calls in a step")
    made = [{"id": f"step_{place}_{n}", **call} for n, call in enumerate(calls)]
    said = None if made or not isinstance(content, str) else content
    thoughts = picked(replies[0], ("reasoning_content",))
    reply: Message = {"role": "assistant", "content": said, **thoughts, **({"tool_calls": made} if made else {})}
    gave = ({"role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": result.get("content")}
            for call, result in zip(made, results, strict=False))  # fmt: skip
    return [reply, *gave]


def _given(content: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the calls of a model that calls functions: an object of one function each, with its arguments as JSON."""
    if not all(isinstance(one, dict) and len(one) == 1 for one in content):
        raise BadRecordError("bad_record", "a reply that is not a list of calls")
    return [{"name": name, "arguments": given} for one in content for name, given in one.items()]


def _written(call: Any) -> dict[str, Any]:
    """Return a call that is written as Python's."""
    words = text(call) or ""
    given = python_arguments(words)
    return {"name": words.partition("(")[0].strip(), "arguments": {"input": words} if given is None else given}


def _is_log(record: Any) -> bool:
    turns = as_list(as_dict(record).get(_LOG))
    return any(_ASKED in as_dict(turn) for turn in turns) and ident(record.get("id")) is not None


def _is_crash(record: Any) -> bool:
    fields = as_dict(record)
    return fields.keys() >= {"id", "result", "traceback"} and _LOG not in fields and isinstance(fields["result"], str)


def _is_summary(record: Any) -> bool:
    return as_dict(record).keys() == _SUMMARY


def _is_ours(record: Any) -> bool:
    return _is_log(record) or _is_crash(record) or _is_summary(record) or as_dict(record).keys() >= _SCORE


READER = reader(
    "bfcl",
    2,
    "results of BFCL, of several turns",
    marks=_is_ours,
    refusal="a result of BFCL without the question that it answers",
    read=_read,
    from_path=_from_path,
)
