"""ATIF trajectories (schema_version ATIF-v1.x): one document a run, as many agents' logs are converted to by Harbor.

A step of the agent holds its message, its calls and their results. What was copied from another document, or made
without a model, was seen and not done. Agents within agents have conversations of their own. Under Harbor a document
is in its trial's folder, whose name is that of the trial's result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from flywheel.reading.events import Event
from flywheel.reading.messages import tool_schemas, with_origins
from flywheel.reading.reader import reader
from flywheel.reading.rollout import Rollout, rollout_events
from flywheel.reading.usage import token_counts, token_ids
from flywheel.reading.values import as_dict, as_list, first, ident, number, present, text, when
from flywheel.records import content_id

_CONTINUED = re.compile(r"(.+)-cont-(\d{1,6})\Z")  # how Harbor names the session of a document that goes on
_SEGMENT = 1_000_000  # positions that a document has before the next one's begin
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}


def _from_path(path: PurePosixPath) -> Mapping[str, str]:
    """Return the trial that a document under Harbor belongs to: TRIAL/agent/... or TRIAL/steps/STEP/agent/..."""
    if path.parent.name == "user-agent":
        return {"ignored": "a simulated user's own run"}
    if path.parent.name != "agent":
        return {}
    trial = path.parent.parent
    if trial.parent.name == "steps":
        trial = trial.parent.parent
    return {"id": f"session:{trial.name}"} if trial.name else {}


def _read(record: Any) -> Iterator[Event]:
    """Yield the events of a trajectory and of those within it."""
    yield from _trajectory(record, "", {})


def _is_trajectory(record: Any) -> bool:
    fields = as_dict(record)
    return str(fields.get("schema_version")).startswith("ATIF-") and isinstance(fields.get("steps"), list)


def _trajectory(record: Mapping[str, Any], within: str, parents: Mapping[str, Any]) -> Iterator[Event]:
    agent = {**parents, **present(as_dict(record.get("agent")))}
    conversation, ids, start = _place(record, within)
    history, steps = with_origins(map(as_dict, as_list(record.get("steps"))), _turns)
    model = text(agent.get("model_name"))
    system = "@".join(name for name in (text(agent.get("name")), text(agent.get("version"))) if name)
    acts = {
        n
        for n, step in steps.items()
        if history[n]["role"] == "assistant" and not step.get("is_copied_context") and step.get("llm_call_count") != 0
    }
    yield from rollout_events(
        Rollout(
            conversation=conversation,
            policy="/".join(name for name in (system, model) if name) or None,
            model=model,
            ids=ids,
            messages=history,
            acts=acts,
            first=start,
            facts={n: _facts(step, sampled=n in acts) for n, step in steps.items()},
            tools=tool_schemas(as_dict(record.get("agent")).get("tool_definitions")),
        )
    )
    for inner in as_list(record.get("subagent_trajectories")):
        if isinstance(as_dict(inner).get("steps"), list):
            yield from _trajectory(inner, conversation, {"model_name": agent.get("model_name")})


def _place(record: Mapping[str, Any], within: str) -> tuple[str, list[str], int]:
    """Return a document's conversation, its other names, and the position at which the document begins in it."""
    session, document = ident(record.get("session_id")), ident(record.get("trajectory_id"))
    continued = _CONTINUED.match(session or "")
    session, segment = (continued[1], int(continued[2])) if continued else (session, 0)
    names = [name for name in (None if within else session, document if document != session else None) if name]
    conversation = "/".join([within or "atif", *(names or [content_id(record.get("steps"))])])
    return conversation, [f"session:{session}"] if session and not within else [], segment * _SEGMENT


def _turns(step: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a step as messages: the agent's, then the results."""
    said, calls = step.get("message"), [_call(as_dict(c)) for c in as_list(step.get("tool_calls"))]
    results = [as_dict(r) for r in as_list(as_dict(step.get("observation")).get("results"))]
    role = _ROLES.get(str(step.get("source")), "")
    if said or role == "assistant" or not results:
        spoken = {"role": role, "content": said, "tool_calls": calls}
        yield spoken | ({"reasoning": step["reasoning_content"]} if step.get("reasoning_content") else {})
    answered = [ident(r.get("source_call_id")) for r in results]
    open_calls = [c["id"] for c in calls if c["id"] not in answered]
    unnamed = answered.count(None)
    left = iter(open_calls[-1:] if unnamed == 1 else open_calls)  # one result for all calls comes after the last
    for result, named in zip(results, answered, strict=True):
        call_id = named or next(left, None)
        if call_id or result.get("content"):
            yield _result(result, call_id, as_dict(step.get("extra")) if len(calls) == 1 else {})


def _call(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": ident(fields.get("tool_call_id")),
        "name": fields.get("function_name"),
        "arguments": fields.get("arguments"),
    }


def _result(result: Mapping[str, Any], call_id: Any, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's result; without a call it is a message of the environment. Flags are under `extra`."""
    if not call_id:
        return {"role": "user", "content": result.get("content")}
    fields = {**extra, **as_dict(result.get("extra"))}
    flag = first(fields, ("tool_result_is_error", "is_error"))
    flags = {name: fields[name] for name in ("error", "exit_code", "status") if name in fields}
    failed = {"is_error": flag} if isinstance(flag, bool) else {}
    return {"role": "tool", "tool_call_id": call_id, "content": result.get("content")} | flags | failed


def _facts(step: Mapping[str, Any], *, sampled: bool) -> dict[str, Any]:
    """Return the time and the model of a step, and where its message was sampled what is known of the call."""
    facts = present(ts=when(step.get("timestamp")), model=text(step.get("model_name")))
    metrics = as_dict(step.get("metrics"))
    if not sampled:
        return facts
    return facts | present(
        **token_counts(metrics),
        cost_usd=number(metrics.get("cost_usd")),
        prompt_token_ids=token_ids(metrics.get("prompt_token_ids")),
        completion_token_ids=token_ids(metrics.get("completion_token_ids")),
        completion_logprobs=[number(n) for n in as_list(metrics.get("logprobs"))] or None,
    )


READER = reader(
    "atif",
    3,
    "ATIF trajectories",
    marks=_is_trajectory,
    refusal="no object of an ATIF version with a list of steps",
    read=_read,
    from_path=_from_path,
)
