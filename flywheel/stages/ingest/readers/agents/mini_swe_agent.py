"""mini-swe-agent trajectories: one record is one run at one instance; its outcome is in a SWE-bench report.

In: messages of tool-calling models (`tool_calls`, role tool), of the Responses API (`output` items), and of models that
write their command as a code block and are answered by a user message. Out: every command is a call of the tool `bash`.
A reply that could not be parsed is not in the history: it is a call of its own, and the next call has its own input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event, Source, request, tool_result
from flywheel.reading.feedback import feedback
from flywheel.reading.messages import Message, flat_text, result_message
from flywheel.reading.pairs import Pair, common_payload
from flywheel.reading.reader import has, reader
from flywheel.reading.status import FAILED, OK
from flywheel.reading.values import as_dict, first, ident, number, text, version, when
from flywheel.records import EventKind, content_id
from flywheel.stages.ingest.readers._swe import run_of_trajectory
from flywheel.stages.ingest.readers.agents._mini_swe import (
    NOT_RUN,
    command_of,
    refused_reply,
    reply_of,
    status_of,
    usage_of,
)

_DONE = ("Submitted", "", None)
_SUBMITS = re.compile(r"(?:COMPLETE_TASK_AND_SUBMIT|MINI_SWE_AGENT)_FINAL_OUTPUT")


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return the run that a file belongs to."""
    return run_of_trajectory(path)


def _read(record: Any) -> Iterator[Event]:
    """Yield the run's messages; of one that ended before it began only that, for its outcome."""
    if record["messages"] or ident(record.get("instance_id")):
        yield from _Run(record).events()


def _is_run(record: Any) -> bool:
    fields = as_dict(record)
    form = fields.get("trajectory_format")
    if isinstance(form, str) and form.startswith("mini-swe-agent"):
        return True
    info = as_dict(fields.get("info"))
    return isinstance(fields.get("messages"), list) and {"exit_status", "submission", "model_stats"} <= set(info)


class _Run:
    """One run, turned into events message by message."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._info, self._turns = as_dict(record.get("info")), record["messages"]
        config = as_dict(as_dict(self._info.get("config")).get("model"))
        instance, release = ident(record.get("instance_id")), version(self._info.get("mini_version"))
        named = text(config.get("model_name"))
        agent = "mini-swe-agent" + (f"-{release}" if release else "")
        self._source: Source = {
            "conversation_id": instance or f"mini-swe-agent/{content_id(_contents(self._turns))}",
            "task_key": instance,
            "model": named,
            "policy": f"{agent}/{named}" if named else None,
            "ts": None,
        }
        self._sampling = common_payload(Pair(as_dict(config.get("model_kwargs")), {}, {}))
        self._history: list[Message] = []  # what the agent sees
        self._open: list[Mapping[str, Any]] = []  # calls that were not answered yet
        self._unrun: list[Mapping[str, Any]] = []  # calls that a human stopped
        self._has_costs = False  # whether an answer has its own
        self._unseen = False  # whether the last reply is not part of what the agent sees
        self._seq = 0

    def events(self) -> Iterator[Event]:
        """Yield the run's events."""
        for position, given in enumerate(self._turns):
            turn = as_dict(given)
            last = position == len(self._turns) - 1
            for event in self._turn(turn, last=last):
                stamp = first(as_dict(turn.get("extra")), ("timestamp",)) or turn.get("timestamp")
                yield {**event, "seq": self._seq, "ts": when(stamp)}
                self._seq += 1
        told: dict[str, Any] = {"tags": ["not_submitted"]} if self._info.get("exit_status") not in _DONE else {}
        cost = number(as_dict(self._info.get("model_stats")).get("instance_cost"))
        if cost and not self._has_costs:
            told["usage_so_far"] = {"cost_usd": cost}
        if told:
            yield request([], self._source, self._seq, told)

    def _turn(self, turn: Mapping[str, Any], *, last: bool) -> Iterator[Event]:
        if not isinstance(turn.get("role"), str) and "output" not in turn:
            raise BadRecordError("bad_record", "a message has no role")
        extra = as_dict(turn.get("extra"))
        ended = turn.get("role") == "exit" or (last and turn.get("role") == "user" and bool(self._open))
        if turn.get("role") == "assistant" or isinstance(turn.get("output"), list):
            yield self._action(turn, extra)
        elif ended and self._info.get("exit_status") == _DONE[0]:
            yield from self._submitted(turn)
        elif turn.get("role") == "exit":
            return
        elif self._open and extra.get("interrupt_type") is None:
            yield from self._results(turn, status_of(turn, extra), extra)
        else:
            yield from self._incoming(turn, extra)

    def _action(self, turn: Mapping[str, Any], extra: Mapping[str, Any]) -> Event:
        message = reply_of(turn)
        if not message.get("tool_calls") and (command := command_of(message, extra)) is not None:
            message["tool_calls"] = [{"id": f"call-{self._seq}", "name": "bash", "arguments": {"command": command}}]
        payload = {"message": message, **(used := usage_of(extra)), **self._sampling}
        self._has_costs = self._has_costs or bool(used.get("cost_usd"))
        if self._unseen:
            payload["input"] = list(self._history)
            self._unseen = False
        self._open, self._unrun = list(message.get("tool_calls") or ()), []
        self._history.append(message)
        return self._call(payload, extra)

    def _call(self, payload: dict[str, Any], extra: Mapping[str, Any]) -> Event:
        served = text(as_dict(extra.get("response")).get("model")) or self._source["model"]
        return {**self._source, "model": served, "kind": EventKind.MODEL_CALL, "payload": payload}

    def _results(self, turn: Mapping[str, Any], status: str, extra: Mapping[str, Any]) -> Iterator[Event]:
        """Answer the call that a message names, or else the oldest open one."""
        call_id = ident(first(turn, ("tool_call_id", "call_id")))
        call = next((c for c in self._open if c["id"] == call_id), None) or next(iter(self._open), None)
        if call is None:
            return
        self._open = [c for c in self._open if c is not call]
        if extra.get("exception_info") == NOT_RUN:
            self._unrun.append(call)
        content = flat_text(first(turn, ("output", "content")))
        message = result_message(content, {"tool_call_id": call["id"], "name": call["name"]}, status=status)
        self._history.append(message)
        event = tool_result(message, self._source, 0)
        error = text(extra.get("exception_type"))
        if error and status == FAILED:
            event["payload"]["error_type"] = error
        yield event

    def _submitted(self, turn: Mapping[str, Any]) -> Iterator[Event]:
        """Answer the call that submitted the work: its output is in the last message."""
        waiting = [*self._open, *self._unrun]
        self._open = [c for c in waiting if _SUBMITS.search(str(c.get("arguments")))] or waiting
        yield from self._results({"content": turn.get("content")}, OK, {})

    def _incoming(self, turn: Mapping[str, Any], extra: Mapping[str, Any]) -> Iterator[Event]:
        """Yield what reached the agent from outside: its task, what a human wrote, what was wrong with its reply."""
        why = extra.get("interrupt_type")
        refused = refused_reply(extra) if why == "FormatError" else None
        if refused is not None:
            self._unseen = True
            yield self._call({"message": refused, **usage_of(extra), **self._sampling}, extra)
        content = flat_text(turn.get("content"))
        if not content:
            return
        if why == "UserRejection" and self._unrun:
            aim = {"target": "call", "target_id": self._unrun[0]["id"]}
            payload = {"name": "reject", "comment": content, "annotator": "human", **aim}
            yield feedback(self._source, payload)
        self._history.append({"role": "system" if turn.get("role") == "system" else "user", "content": content})
        yield request([self._history[-1]], self._source, 0, {})


def _contents(turns: list[Any]) -> list[Any]:
    """Return what identifies a run without a name: all contents and times."""
    return [
        [t.get("content"), t.get("timestamp"), as_dict(t.get("extra")).get("timestamp")] for t in map(as_dict, turns)
    ]


READER = reader(
    "mini_swe_agent",
    5,
    "mini-swe-agent's `.traj.json` files",
    marks=_is_run,
    needs=has(messages=list),
    read=_read,
    from_path=_from_path,
)
