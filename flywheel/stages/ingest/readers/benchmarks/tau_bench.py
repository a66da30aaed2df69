"""tau-bench results: one record is one attempt at one task, with its transcript and its reward.

Task numbers are the same in every domain and model, so task and conversation are named by content: the same attempt in
two files is one, another model's attempt at the same task number is another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.events import Event, spoken
from flywheel.reading.messages import Message, messages
from flywheel.reading.reader import has, reader
from flywheel.reading.values import as_dict, as_list, ident, number
from flywheel.records import EventKind, content_id


def _read(record: Any) -> Iterator[Event]:
    """Yield the attempt's messages and its outcome; a run that crashed before its first message gives nothing."""
    history = messages(record["traj"])
    if not history:
        return
    task, trial = _task(record, history), ident(record.get("trial")) or "0"
    source = {
        "conversation_id": f"tau-bench/{task}/{trial}/{content_id(history)}",
        "task_key": f"tau-bench/{task}",
        "ts": None,
    }
    suspect = {"tags": ["suspect"]} if _unearned(record, history) else {}
    yield from spoken(history, source, suspect)
    reward = number(record.get("reward"))
    if reward is not None:
        payload = {"name": "reward", "value": reward, "scale": [0, 1], "source": "recorded"}
        yield {**source, "kind": EventKind.OUTCOME, "seq": len(history), "payload": payload}


def _task(record: Mapping[str, Any], history: list[Message]) -> str:
    task = as_dict(record.get("info")).get("task")
    if isinstance(task, dict) and task:
        return content_id(task)
    system = next((m.get("content") for m in history if m["role"] == "system"), None)
    return content_id(ident(record.get("task_id")), system)


def _unearned(record: Mapping[str, Any], history: list[Message]) -> bool:
    """Whether a run that called no tool at all was rewarded for a task that demands calls."""
    demanded = as_list(as_dict(as_dict(record.get("info")).get("task")).get("actions"))
    return bool(demanded and number(record.get("reward"))) and not any(m.get("tool_calls") for m in history)


READER = reader(
    "tau_bench",
    1,
    marks=has("task_id", "reward", "traj"),
    needs=has(traj=list),
    refusal="no object with a traj list",
    read=_read,
)
