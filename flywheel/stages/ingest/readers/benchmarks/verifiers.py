"""verifiers and prime-rl evaluation results: one record is one rollout of one example, with its reward.

Example ids are numbers of rows: the same in every environment, others in the next run, in older files those of
rollouts. So a task is named by its question, its answer and its own information, which tell tasks with equal prompts
apart; only where there is neither, the number of the example counts. A rollout is named by all that its record holds.
Tool calls are JSON strings in a list, and results answer them in order, without ids. The policy is in
`metadata.json` next to the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flywheel.reading.events import Event
from flywheel.reading.messages import messages, tool_schemas
from flywheel.reading.reader import has, reader
from flywheel.reading.rollout import Outcome, Rollout, rollout_events
from flywheel.reading.values import as_dict, as_list, embedded, ident, number, text, without_nulls
from flywheel.records import content_id

_OFFERED = ("oai_tools", "tools", "tool_defs")
_FIELDS = {"prompt", "completion", "reward"}
_ENDED = {"outcome", "reward", "resolved", "success", "result"}  # of one run; a file of verifiers has averages


def _from_sidecar(document: Any) -> Mapping[str, str]:
    """Return the model of a run: the policy that its rollouts show."""
    fields = as_dict(document)
    model = text(fields.get("model"))
    run = ("env_id" in fields or "env" in fields) and fields.keys().isdisjoint(_ENDED)
    return {"model": model, "policy": model} if model and run else {}


def _read(record: Any) -> Iterator[Event]:
    """Yield the rollout's messages and its outcome; one that never began is what was asked, and its outcome."""
    prompt = _turns(record["prompt"], "user")
    history = messages(_joined([*prompt, *_turns(record["completion"], "assistant")]))
    yield from rollout_events(
        Rollout(
            conversation=f"verifiers/{content_id(record)}",
            task=f"verifiers/{content_id(*_task(record, prompt))}",
            messages=history,
            tools=tool_schemas(without_nulls(as_dict(embedded(record.get("info"))).get("oai_tools"))),
            outcomes=[Outcome("reward", number(record["reward"]))],
        )
    )


def _is_rollout(record: Any) -> bool:
    return as_dict(record).keys() >= _FIELDS and not record.keys().isdisjoint(("task", "info", "answer"))


def _task(record: Mapping[str, Any], prompt: Sequence[Any]) -> list[Any]:
    """Return what makes a task: the question, and what a run's files say of it without its tools."""
    info = without_nulls({k: v for k, v in as_dict(embedded(record.get("info"))).items() if k not in _OFFERED})
    parts = [text(record.get("answer")), info or None]
    return [_question(prompt), *(parts if any(parts) else [ident(record.get("example_id"))])]


def _question(prompt: Sequence[Any]) -> list[Any]:
    """Return what the user asked: the same question under another system prompt is the same task."""
    questions = [m["content"] for m in messages(prompt) if m["role"] == "user" and m.get("content")]
    return questions or list(prompt)


def _turns(value: Any, role: str) -> list[Any]:
    """Return messages; a completion-style environment writes plain text."""
    return [{"role": role, "content": value}] if isinstance(value, str) and value else as_list(value)


def _joined(turns: Sequence[Any]) -> list[Any]:
    """Return messages with parsed calls, each tool result naming the call that it answers: the next one in order."""
    open_calls: list[str] = []
    joined = []
    for turn in turns:
        message = dict(as_dict(turn))
        calls = [embedded(call) for call in as_list(message.get("tool_calls"))]
        if calls:
            message["tool_calls"] = calls
            open_calls = [str(as_dict(call).get("id") or "") for call in calls]
        elif message.get("role") == "tool" and not message.get("tool_call_id") and open_calls:
            message["tool_call_id"] = open_calls.pop(0)
        joined.append(message)
    return joined


READER = reader(
    "verifiers",
    3,
    "the results.jsonl files of `vf-eval` and of prime-rl",
    marks=_is_rollout,
    needs=has("prompt", "completion", "reward"),
    read=_read,
    from_sidecar=_from_sidecar,
    sidecar="metadata.json",
)
