"""verifiers and prime-rl evaluation results: one record is one rollout of one example, with its reward.

Example ids are the same in every environment and run, so a task is named by its question and a rollout by all that its
record holds. Tool calls are JSON strings in a list, and results answer them in order, without ids. The policy stands in
`metadata.json` beside the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flywheel.reading.events import Event, spoken
from flywheel.reading.messages import messages, tool_schemas
from flywheel.reading.reader import has, reader
from flywheel.reading.values import (
    as_dict,
    as_list,
    embedded,
    number,
    text,
    without_nulls,
)
from flywheel.records import EventKind, content_id

_FIELDS = {"prompt", "completion", "reward"}


def _from_sidecar(document: Any) -> Mapping[str, str]:
    """Return the model of a run: the policy that its rollouts show."""
    found = as_dict(document)
    model = text(found.get("model"))
    run = "env_id" in found or "env" in found
    return {"model": model, "policy": model} if model and run else {}


def _read(record: Any) -> Iterator[Event]:
    """Yield the rollout's messages and its outcome; a rollout that never began gives nothing."""
    prompt = _turns(record["prompt"], "user")
    history = messages(_joined([*prompt, *_turns(record["completion"], "assistant")]))
    if len(history) <= len(prompt):
        return
    source = {
        "conversation_id": f"verifiers/{content_id(record)}",
        "task_key": f"verifiers/{content_id(_asked(prompt))}",
        "ts": None,
    }
    tools = tool_schemas(without_nulls(as_dict(embedded(record.get("info"))).get("oai_tools")))
    yield from spoken(history, source, {"tools": tools} if tools else {})
    reward = number(record["reward"])
    if reward is not None:
        payload = {"name": "reward", "value": reward, "scale": [0, 1], "source": "recorded"}
        yield {**source, "kind": EventKind.OUTCOME, "seq": len(history), "payload": payload}


def _is_rollout(record: Any) -> bool:
    return as_dict(record).keys() >= _FIELDS and not record.keys().isdisjoint(("task", "info", "answer"))


def _asked(prompt: Sequence[Any]) -> list[Any]:
    """Return what the user asked: the same question under another system prompt is the same task."""
    asked = [m["content"] for m in messages(prompt) if m["role"] == "user" and m.get("content")]
    return asked or list(prompt)


def _turns(given: Any, role: str) -> list[Any]:
    """Return messages; a completion-style environment writes plain text."""
    return [{"role": role, "content": given}] if isinstance(given, str) and given else as_list(given)


def _joined(turns: Sequence[Any]) -> list[Any]:
    """Return messages with parsed calls, each tool result naming the call that it answers: the next one in order."""
    open_calls: list[str] = []
    made = []
    for turn in turns:
        message = dict(as_dict(turn))
        calls = [embedded(call) for call in as_list(message.get("tool_calls"))]
        if calls:
            message["tool_calls"] = calls
            open_calls = [str(as_dict(call).get("id") or "") for call in calls]
        elif message.get("role") == "tool" and not message.get("tool_call_id") and open_calls:
            message["tool_call_id"] = open_calls.pop(0)
        made.append(message)
    return made


READER = reader(
    "verifiers",
    1,
    marks=_is_rollout,
    needs=has(*_FIELDS),
    refusal="no object with prompt, completion and reward",
    read=_read,
    from_sidecar=_from_sidecar,
    sidecar="metadata.json",
)
