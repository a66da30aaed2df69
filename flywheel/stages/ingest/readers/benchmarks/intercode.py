"""InterCode results: one record is a whole run, an object of attempts that hold actions, observations and rewards.

In: actions as the environment ran them (in ReAct runs `execute[...]` and `submit`, with thoughts). Out: calls of the
tool that the environment names (bash, python, sql), their observations as results, and the best reward as outcome, as
the benchmark scores it. The model is in the file's name or its folder. `blocked` is not an action: a provider refused
to answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath, PurePosixPath
from typing import Any

from flywheel.reading.events import Event
from flywheel.reading.messages import Message, flat_text, name_results, result_message
from flywheel.reading.reader import reader
from flywheel.reading.rollout import Outcome, Rollout, rollout_events
from flywheel.reading.status import FAILED, OK, UNKNOWN
from flywheel.reading.values import as_dict, as_list, ident, number, text

_ATTEMPT = {"environment", "query", "turn_history", "summary"}
_EXECUTE = re.compile(r"\s*execute\[(.*)\]\s*\Z", re.DOTALL)
_FILE = re.compile(r"ic_[a-z]+_(?P<how>[a-z]+)_(?:(?P<model>.+)_)?\d+_turns")
_ARGUMENT = {"bash": "command", "python": "code", "sql": "query"}
_PYTHON_OK = re.compile(r"\{'output': .*'error': ''\}\s*\Z", re.DOTALL)
_PYTHON_FAILED = "Error executing action"


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return model, policy and run from names like ic_ENV_HOW_MODEL_N_turns.json."""
    stem = path.name.split(".json")[0]
    folder = path.parent.name
    named = _FILE.match(stem)
    model = (named["model"] or folder) if named else folder
    how = named["how"] if named else ""
    policy = "/".join(part for part in (model, how) if part)
    fields = {"model": model, "policy": policy, "scope": "/".join(part for part in (folder, stem) if part)}
    return {name: value for name, value in fields.items() if value}


def _read(record: Any) -> Iterator[Event]:
    """Yield the actions, results and outcomes of all attempts."""
    for name, attempt in _attempts(record).items():
        yield from _attempt(name, attempt)


def _attempts(record: Any) -> dict[str, Mapping[str, Any]]:
    return {str(name): one for name, one in as_dict(record).items() if set(as_dict(one)) >= _ATTEMPT}


def _attempt(name: str, attempt: Mapping[str, Any]) -> Iterator[Event]:
    environment = (text(attempt.get("environment")) or "?").removeprefix("ic_")
    dataset = PurePosixPath(text(attempt.get("dataset")) or "?").stem
    task = ident(attempt.get("task_id")) or name
    turns = as_dict(attempt.get("turn_history"))
    messages, tags = _transcript(flat_text(attempt.get("query")) or "", turns, environment)
    yield from rollout_events(
        Rollout(
            conversation=f"intercode/{environment}/{dataset}/{name}",
            task=f"intercode/{environment}/{dataset}/{task}",
            messages=messages,
            tags=tags,
            outcomes=[Outcome("reward", number(as_dict(attempt.get("summary")).get("max_reward")))],
        )
    )


def _transcript(query: str, turns: Mapping[str, Any], tool: str) -> tuple[list[Message], list[str]]:
    """Return the messages of an attempt, and its tags."""
    history: list[Message] = [{"role": "user", "content": query}]
    tags = []
    actions, observations = as_list(turns.get("actions")), as_list(turns.get("observations"))
    thoughts, valid = as_list(turns.get("thoughts")), as_list(turns.get("valid_action"))
    for n, action in enumerate(actions):
        if n >= len(observations) and action == "blocked":
            tags.append("blocked_by_provider")
            continue
        message = _action(flat_text(action) or "", _at(thoughts, n), tool, f"call-{n}")
        history.append(message)
        if n >= len(observations):
            continue
        seen = flat_text(observations[n]) or ""
        if message.get("tool_calls"):
            history.append(
                result_message(seen, {"tool_call_id": f"call-{n}"}, status=_status(seen, _at(valid, n), tool))
            )
        else:
            history.append({"role": "user", "content": seen})
    name_results(history)
    return history, tags


def _at(values: list[Any], position: int) -> Any:
    return values[position] if position < len(values) else None


def _action(action: str, thought: Any, tool: str, call_id: str) -> Message:
    """Return an action as a message; in a ReAct run one that is neither a command nor a submission is only text."""
    message: Message = {"role": "assistant"}
    if text(thought):
        message["content"] = thought
    within = _EXECUTE.match(action)
    if thought is not None and within is None and action.strip() != "submit":
        return {"role": "assistant", "content": "\n".join(part for part in (text(thought), action) if part)}
    name, arguments = tool, {_ARGUMENT.get(tool, "code"): within[1] if within else action}
    if thought is not None and within is None:
        name, arguments = "submit", {}
    return message | {"tool_calls": [{"id": call_id, "name": name, "arguments": arguments}]}


def _status(seen: str, valid: Any, tool: str) -> str:
    """Return how an action ended; in Python runs the log's flag means nothing: it is about tests, not calls."""
    if tool == "python":
        return OK if _PYTHON_OK.match(seen) else FAILED if seen.startswith(_PYTHON_FAILED) else UNKNOWN
    return UNKNOWN if not isinstance(valid, bool) else OK if valid else FAILED


READER = reader(
    "intercode",
    1,
    "InterCode's result files",
    marks=_attempts,
    refusal="no object of attempts with a query and a turn_history",
    read=_read,
    from_path=_from_path,
)
