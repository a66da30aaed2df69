"""SWE-agent trajectories (`.traj`): one record is one run at one instance; its outcome is in a SWE-bench report.

In: `history` (the model's input and output) and `trajectory` (what was run). Out: a command that was written as text is
a call of the tool `bash`, as the shell ran it. The last step is often in the trajectory alone. Demonstrations were
seen, not made. No return codes are logged: a status is unknown unless the text begins like an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from flywheel.reading.events import Event, request
from flywheel.reading.messages import Message, flat_text, messages, name_results, result_message
from flywheel.reading.reader import has, reader
from flywheel.reading.rollout import Rollout, rollout_events
from flywheel.reading.status import OK
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, embedded, ident, number, present, text, version
from flywheel.records import content_id
from flywheel.stages.ingest.readers._swe import run_of_trajectory


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return the run that a file belongs to, and the instance, which older versions name nowhere else."""
    run, instance = run_of_trajectory(path), path.name.split(".traj")[0]
    if not path.name.endswith(".traj") or not instance:
        return run
    scope = f"{run['scope']}/" if "scope" in run else ""
    return {**run, "task_key": instance, "id": f"session:{scope}{instance}"}


def _read(record: Any) -> Iterator[Event]:
    """Yield the run's messages; of one that ended before it began only that, for its outcome."""
    history, seen = _normal(_history(record))
    config = as_dict(embedded(record.get("replay_config")))
    instance = ident(as_dict(config.get("problem_statement")).get("id"))
    if not history and instance is None:
        return
    info = as_dict(record.get("info"))
    if history:
        history += _only_in_trajectory(as_list(record.get("trajectory")), history, seen)
    if info.get("exit_status") == "submitted" and history and history[-1]["role"] == "tool":
        history[-1]["status"] = OK
    name_results(history)
    model = text(as_dict(as_dict(config.get("agent")).get("model")).get("name"))
    release = version(info.get("swe_agent_version"))
    agent = "swe-agent" + (f"-{release}" if release else "")
    ended = text(info.get("exit_status"))
    rollout = Rollout(
        conversation=instance or f"swe-agent/{content_id(record['history'])}",
        task=instance,
        policy=f"{agent}/{model}" if model else None,
        model=model,
        messages=history,
        seen=seen,
        tags=["not_submitted"] if ended and not ended.startswith("submitted") else [],
    )
    yield from rollout_events(rollout)
    stats = as_dict(info.get("model_stats"))
    usage = token_counts({"input_tokens": stats.get("tokens_sent"), "output_tokens": stats.get("tokens_received")})
    told = present(usage, cost_usd=number(stats.get("instance_cost")) or None)
    if history and any(told.values()):  # of all its calls; a replay made none
        yield request([], rollout.columns(), len(history), {"usage_so_far": told})


def _history(record: Any) -> list[Mapping[str, Any]]:
    return [as_dict(turn) for turn in as_list(as_dict(record).get("history")) if as_dict(turn)]


def _is_run(record: Any) -> bool:
    history = _history(record)
    return bool(history) and ("trajectory" in record or any({"agent", "message_type"} <= set(turn) for turn in history))


def _normal(turns: list[Mapping[str, Any]]) -> tuple[list[Message], int]:
    """Return the history in normal form, and how much of it at the beginning was only seen."""
    history: list[Message] = []
    seen, open_call = 0, ""
    for turn in turns:
        message = _message(turn, open_call, len(history))
        history.append(message)
        calls = message.get("tool_calls")
        open_call = calls[0]["id"] if calls and not turn.get("is_demo") else ""
        seen = len(history) if turn.get("is_demo") else seen
    return history, seen


def _message(turn: Mapping[str, Any], open_call: str, position: int) -> Message:
    """Return a message; what follows a command is its result, also where it is a user's message."""
    role, action = turn.get("role"), text(turn.get("action"))
    if role == "tool" or (role == "user" and open_call):
        ids = as_list(turn.get("tool_call_ids")) or [open_call]
        return result_message(flat_text(turn.get("content")), {"tool_call_id": ids[0]})
    thoughts = [text(as_dict(block).get("thinking")) for block in as_list(turn.get("thinking_blocks"))]
    (message,) = messages([{**turn, "reasoning": "\n".join(t for t in thoughts if t)}])
    if role == "assistant" and action and not message.get("tool_calls"):
        message["tool_calls"] = [_command(action, position)]
    return message


def _command(action: str, position: int) -> dict[str, Any]:
    return {"id": f"call-{position}", "name": "bash", "arguments": {"command": action.strip()}}


def _only_in_trajectory(trajectory: list[Any], history: list[Message], seen: int) -> list[Message]:
    """Return what only the trajectory has: the last command's observation, and steps after the history's end."""
    steps = [as_dict(step) for step in trajectory]
    replies = sum(message["role"] == "assistant" for message in history[seen:])
    native = any(not str(c["id"]).startswith("call-") for m in history[seen:] for c in m.get("tool_calls", ()))
    items: list[Message] = []
    calls = history[-1].get("tool_calls")
    if calls and 0 < replies <= len(steps):
        items.append(_observed(steps[replies - 1], calls[0]["id"]))
    for step in steps[replies:]:
        action, position = text(step.get("action")), len(history) + len(items)
        message: Message = {"role": "assistant", "content": text(step.get("response")) or ""}
        items.append(message)
        if action:
            call = _command(action, position)
            if native and action.strip().isidentifier():
                call |= {"name": action.strip(), "arguments": {}}
            message["tool_calls"] = [call]
            items.append(_observed(step, call["id"]))
    return items


def _observed(step: Mapping[str, Any], call_id: str) -> Message:
    return result_message(flat_text(step.get("observation")), {"tool_call_id": call_id})


READER = reader(
    "swe_agent",
    7,
    "SWE-agent's `.traj` files",
    marks=_is_run,
    needs=has(history=list),
    read=_read,
    from_path=_from_path,
)
