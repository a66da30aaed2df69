"""verifiers and prime-rl evaluation results: one record is one rollout of one example, with its reward.

Example ids are the same in every environment and run, so a task is named by its question and a rollout by all that its
record holds. Tool calls are JSON strings in a list, and results answer them in order, without ids. The policy stands in
`metadata.json` beside the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flywheel.extensions import BadRecordError, Sample
from flywheel.reading.events import Event, spoken
from flywheel.reading.messages import messages, tool_schemas
from flywheel.reading.pairs import share
from flywheel.reading.values import (
    as_dict,
    as_list,
    embedded,
    number,
    text,
    without_nulls,
)
from flywheel.records import EventKind, content_id

__all__ = ["READER", "VerifiersReader"]

_FIELDS = {"prompt", "completion", "reward"}


class VerifiersReader:
    """Reads the results.jsonl files of `vf-eval` and of prime-rl."""

    name = "verifiers"
    version = 1
    sidecar = "metadata.json"

    def sniff(self, sample: Sample) -> float:
        """Return how many records have what only these files have."""
        return share(sample.records, lambda r: set(as_dict(r)) >= _FIELDS and bool({"task", "info", "answer"} & set(r)))

    def from_sidecar(self, document: Any) -> Mapping[str, str]:
        """Return the model of a run: the policy that its rollouts show."""
        found = as_dict(document)
        model = text(found.get("model"))
        run = "env_id" in found or "env" in found
        return {"model": model, "policy": model} if model and run else {}

    def read(self, record: Any, line: int) -> Iterator[Event]:  # noqa: ARG002 - the protocol's signature
        """Yield the rollout's messages and its outcome; a rollout that never began gives nothing."""
        if not isinstance(record, dict) or not set(record) >= _FIELDS:
            raise BadRecordError("bad_record", "no object with prompt, completion and reward")
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


READER = VerifiersReader()
