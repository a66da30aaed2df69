"""mini-swe-agent trajectories that are a bare list of messages: one record is one message, the file is the run.

The instance and the end of the run are not logged. Results answer the calls before them in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from flywheel.extensions import Sample
from flywheel.reading.events import Event, Source, request, tool_result
from flywheel.reading.messages import flat_text, result_message
from flywheel.reading.reader import reader
from flywheel.reading.values import as_dict, first, ident, text, when
from flywheel.records import EventKind
from flywheel.stages.ingest.readers._swe import run_of_trajectory
from flywheel.stages.ingest.readers.agents._mini_swe import RETURNED, command_of, reply_of, status_of, usage_of

_ROLES = ("system", "user", "assistant", "tool", "exit")
_SAID_OF_RUNS = {"actions", "returncode", "exit_status"}


def _sniff(sample: Sample) -> float:
    """A list of messages is one of these if a command's end is logged as only these files log it."""
    turns = [as_dict(record) for record in sample.records]
    all_said = bool(turns) and all(turn.get("role") in _ROLES and "content" in turn for turn in turns)
    return 1.0 if all_said and any(map(_is_end, turns)) else 0.0


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return the run and the file."""
    run = run_of_trajectory(path).get("scope")
    return {"scope": "/".join(part for part in (run, path.name.split(".traj")[0]) if part)}


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one message."""
    extra = as_dict(record.get("extra"))
    stamp = first(extra, ("timestamp",)) or record.get("timestamp")
    source: Source = {"conversation_id": "mini-swe-agent", "ts": when(stamp)}
    for event in _events(record, extra, source, line):
        yield {**event, "seq": line}


def _is_message(record: Any) -> bool:
    return as_dict(record).get("role") in _ROLES


def _is_end(turn: Mapping[str, Any]) -> bool:
    extra = as_dict(turn.get("extra"))
    return bool(_SAID_OF_RUNS & set(extra)) or (turn["role"] == "user" and _returned(turn))


def _returned(turn: Mapping[str, Any]) -> bool:
    return bool(RETURNED.match(flat_text(turn.get("content")) or ""))


def _events(turn: Mapping[str, Any], extra: Mapping[str, Any], source: Source, line: int) -> Iterator[Event]:
    role, content = turn["role"], flat_text(turn.get("content"))
    if role == "assistant":
        message = reply_of(turn)
        if not message.get("tool_calls") and (command := command_of(message, extra)) is not None:
            message["tool_calls"] = [{"id": "", "name": "bash", "arguments": {"command": command}}]
        model = text(as_dict(extra.get("response")).get("model"))
        payload = {"message": message, **usage_of(extra)}
        yield {**source, "model": model, "kind": EventKind.MODEL_CALL, "payload": payload}
    elif role == "tool" or "returncode" in extra or _returned(turn):
        fields = {"tool_call_id": ident(turn.get("tool_call_id")), "name": "bash"}
        yield tool_result(result_message(content, fields, status=status_of(turn, extra)), source, line)
    elif content and role != "exit":
        yield request([{"role": role, "content": content}], source, line, {})


READER = reader(
    "mini_swe_messages",
    2,
    "mini-swe-agent's trajectories without a wrapper",
    sniff=_sniff,
    needs=_is_message,
    refusal="no message with a known role",
    read=_read,
    from_path=_from_path,
)
