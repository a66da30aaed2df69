"""mini-swe-agent trajectories: one record is one run at one instance; its outcome stands in a SWE-bench report.

In: messages of tool-calling models (`tool_calls`, role tool), of the Responses API (`output` items), and of models that
write their command as a code block and are answered by a user message. Out: every command is a call of the tool `bash`.
A reply that could not be parsed is not in the history: it is told apart, and the next call has the history it saw.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from flywheel.extensions import BadRecordError, Sample
from flywheel.records import EventKind, content_id
from flywheel.stages.ingest.readers._events import Event, Source, request, tool_result
from flywheel.stages.ingest.readers._messages import Message, flat_text, messages, result_message
from flywheel.stages.ingest.readers._pairs import Pair, common_payload, share
from flywheel.stages.ingest.readers._status import FAILED, OK, UNKNOWN
from flywheel.stages.ingest.readers._swe import run_of_trajectory
from flywheel.stages.ingest.readers._values import as_dict, as_list, first, ident, number, text, when, whole

__all__ = ["READER", "MiniSweAgentReader"]

_BLOCK = re.compile(r"```(?:bash|mswea_bash_command)[^\S\n]*\n(.*?)\n```", re.DOTALL)
_RETURNED = re.compile(r"\s*<returncode>(-?\d+)</returncode>")
_TIMED_OUT = "The last command <command>"
_DONE = ("Submitted", "", None)
_NOT_RUN = "action was not executed"
_SUBMITS = re.compile(r"(?:COMPLETE_TASK_AND_SUBMIT|MINI_SWE_AGENT)_FINAL_OUTPUT")


class MiniSweAgentReader:
    """Reads `.traj.json` files."""

    name = "mini_swe_agent"
    version = 1

    def sniff(self, sample: Sample) -> float:
        """Return how many records have what only these files have."""
        return share(sample.records, _is_run)

    def from_path(self, path: PurePath) -> Mapping[str, str]:
        """Return the run that a file belongs to."""
        return run_of_trajectory(path)

    def read(self, record: Any, line: int) -> Iterator[Event]:  # noqa: ARG002 - the protocol's signature
        """Yield the run's messages; one that ended before it began gives nothing."""
        if not isinstance(record, dict) or not isinstance(record.get("messages"), list):
            raise BadRecordError("bad_record", "no object with a list of messages")
        if record["messages"]:
            yield from _Run(record).events()


def _is_run(record: Any) -> bool:
    found = as_dict(record)
    told = found.get("trajectory_format")
    if isinstance(told, str) and told.startswith("mini-swe-agent"):
        return True
    info = as_dict(found.get("info"))
    return isinstance(found.get("messages"), list) and {"exit_status", "submission", "model_stats"} <= set(info)


class _Run:
    """One run being told, message by message."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._info, self._turns = as_dict(record.get("info")), record["messages"]
        config = as_dict(as_dict(self._info.get("config")).get("model"))
        instance, version = ident(record.get("instance_id")), ident(self._info.get("mini_version"))
        named = text(config.get("model_name"))
        agent = "mini-swe-agent" + (f"-{version}" if version else "")
        self._source: Source = {
            "conversation_id": instance or f"mini-swe-agent/{content_id(_told(self._turns))}",
            "task_key": instance,
            "model": named,
            "policy": f"{agent}/{named}" if named else None,
            "ts": None,
        }
        self._sampling = common_payload(Pair(as_dict(config.get("model_kwargs")), {}, {}))
        self._history: list[Message] = []  # what the agent sees
        self._open: list[Mapping[str, Any]] = []  # calls that were not answered yet
        self._unrun: list[Mapping[str, Any]] = []  # calls that a human stopped
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
        if self._info.get("exit_status") not in _DONE:
            yield request([], self._source, self._seq, {"tags": ["not_submitted"]})

    def _turn(self, turn: Mapping[str, Any], *, last: bool) -> Iterator[Event]:
        extra = as_dict(turn.get("extra"))
        ended = turn.get("role") == "exit" or (last and turn.get("role") == "user" and bool(self._open))
        if turn.get("role") == "assistant" or isinstance(turn.get("output"), list):
            yield self._action(turn, extra)
        elif ended and self._info.get("exit_status") == _DONE[0]:
            yield from self._submitted(turn)
        elif turn.get("role") == "exit":
            return
        elif self._open and extra.get("interrupt_type") is None:
            yield from self._results(turn, _status(turn, extra), extra)
        else:
            yield from self._said(turn, extra)

    def _action(self, turn: Mapping[str, Any], extra: Mapping[str, Any]) -> Event:
        message = _reply(turn)
        if not message.get("tool_calls") and (command := _command(message, extra)) is not None:
            message["tool_calls"] = [{"id": f"call-{self._seq}", "name": "bash", "arguments": {"command": command}}]
        payload = {"message": message, **_usage(extra), **self._sampling}
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
        if extra.get("exception_info") == _NOT_RUN:
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
        """Answer the call that handed the work in: its output stands in the last message."""
        waiting = [*self._open, *self._unrun]
        self._open = [c for c in waiting if _SUBMITS.search(str(c.get("arguments")))] or waiting
        yield from self._results({"content": turn.get("content")}, OK, {})

    def _said(self, turn: Mapping[str, Any], extra: Mapping[str, Any]) -> Iterator[Event]:
        """Yield what reached the agent from outside: its task, what a human wrote, what was wrong with its reply."""
        why = extra.get("interrupt_type")
        refused = _refused(extra) if why == "FormatError" else None
        if refused is not None:
            self._unseen = True
            yield self._call({"message": refused, **_usage(extra), **self._sampling}, extra)
        content = flat_text(turn.get("content"))
        if not content:
            return
        if why == "UserRejection" and self._unrun:
            aim = {"target": "call", "target_id": self._unrun[0]["id"]}
            payload = {"name": "reject", "comment": content, "annotator": "human", **aim}
            yield {**self._source, "kind": EventKind.FEEDBACK, "payload": payload}
        self._history.append({"role": "system" if turn.get("role") == "system" else "user", "content": content})
        yield request([self._history[-1]], self._source, 0, {})


def _told(turns: list[Any]) -> list[Any]:
    """Return what tells two runs apart that have no name: all that was said, and when."""
    return [
        [t.get("content"), t.get("timestamp"), as_dict(t.get("extra")).get("timestamp")] for t in map(as_dict, turns)
    ]


def _reply(turn: Mapping[str, Any]) -> Message:
    """Return an assistant message, also where it is a response of items."""
    items = [as_dict(item) for item in as_list(turn.get("output"))]
    if not items:
        return messages([{**turn, "role": "assistant"}])[0]
    said = [part for item in items if item.get("type") == "message" for part in as_list(item.get("content"))]
    thought = [flat_text(item.get("summary")) for item in items if item.get("type") == "reasoning"]
    made = [{**item, "id": item.get("call_id")} for item in items if item.get("type") == "function_call"]
    reply = {"role": "assistant", "content": said or None, "tool_calls": made}
    return messages([reply | {"reasoning": "\n".join(t for t in thought if t)}])[0]


def _command(message: Message, extra: Mapping[str, Any]) -> str | None:
    """Return the command of a reply in plain text: as it was parsed, else its only code block."""
    actions = as_list(extra.get("actions"))
    found = [text(as_dict(action).get("command")) for action in actions]
    if not actions:
        found = [block.strip() for block in _BLOCK.findall(message.get("content") or "")]
    return found[0] if len(found) == 1 else None


def _status(turn: Mapping[str, Any], extra: Mapping[str, Any]) -> str:
    """Return how a command ended: by its return code, in the older files as the message's text tells it."""
    if extra.get("exception_info") == _NOT_RUN:
        return UNKNOWN
    content = flat_text(turn.get("content")) or ""
    told = _RETURNED.match(content)
    code = number(extra.get("returncode")) if "returncode" in extra else number(told[1]) if told else None
    if code is not None:
        return FAILED if code else OK
    return FAILED if content.startswith(_TIMED_OUT) else UNKNOWN


def _refused(extra: Mapping[str, Any]) -> Message | None:
    """Return the reply that could not be parsed."""
    for choice in as_list(as_dict(extra.get("response")).get("choices")):
        return _reply(as_dict(as_dict(choice).get("message")))
    if as_list(as_dict(extra.get("response")).get("output")):
        return _reply(as_dict(extra["response"]))
    written = text(extra.get("model_response"))
    return {"role": "assistant", "content": written} if written else None


def _usage(extra: Mapping[str, Any]) -> dict[str, Any]:
    response = as_dict(extra.get("response"))
    usage = as_dict(response.get("usage"))
    choice = as_dict(next(iter(as_list(response.get("choices"))), None))
    found = {
        "response_id": ident(response.get("id")),
        "finish_reason": text(choice.get("finish_reason")),
        "input_tokens": whole(first(usage, ("prompt_tokens", "input_tokens"))),
        "output_tokens": whole(first(usage, ("completion_tokens", "output_tokens"))),
        "cost_usd": number(extra.get("cost")),
    }
    return {name: value for name, value in found.items() if value is not None}


READER = MiniSweAgentReader()
