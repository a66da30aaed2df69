"""OpenHands: events of a session as its servers, its SDK (`events/event-NNNNN-ID.json`) and evaluations write them.

An event is an action, of the user or the agent, or an observation. The model's own reply is next to an action; where it
is not, the action is the call. A record is one event, a line of an evaluation's `output.jsonl` with its `history`, or
the `base_state.json` next to a session's events, which names its model and what it took.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from flywheel.reading.events import Event, Source, request, tool_result
from flywheel.reading.feedback import outcome
from flywheel.reading.messages import Message, flat_text, messages, result_message, tool_schemas
from flywheel.reading.outcomes import results
from flywheel.reading.reader import reader
from flywheel.reading.status import FAILED, OK
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, first, ident, number, picked, present, text, when
from flywheel.records import EventKind, canonical_json, content_id
from flywheel.stages.ingest.readers._swe import run_of_trajectory

_KINDS = ("SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent",
          "UserRejectObservation", "ConversationStateUpdateEvent", "Condensation", "PauseEvent")  # fmt: skip
_WORDS = ("content", "final_thought", "thought", "message")
_OWN = {"thought", "confirmation_state", "security_risk", "is_confirmed", "hidden", "blocking", "timeout", "is_static",
        "keep_prompt", "action_risk", "kernel_init_code"}  # fmt: skip
_STATES = ("agent_state_changed", "null", "recall", "success", "condensation_action")
_WRITTEN_WHOLE = {"args", "extras", "kind", "source"}
_STATE = "base_state.json"
_CONDENSER = "condenser"  # in the name of a model that shortens a history: its tokens are none of the agent's
_TASKS = ("instance_id", "issue")  # of an evaluation, of a resolver of issues


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return the session: the folder of its `events`, else the file."""
    if path.name.startswith("output."):  # of an evaluation: the run is its folder
        return run_of_trajectory(path)
    folder = path.parent.parent if path.parent.name == "events" else path.parent if path.name == _STATE else None
    name = path.name.split(".json")[0] if folder is None else folder.name
    return {"scope": name, "id": f"session:{name}"} if name else {}


def _read(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of one event, or of an evaluated instance."""
    if _is_state(record):
        yield from _state(record, {"conversation_id": "openhands", "ts": None}, 0)
        return
    if "history" not in record:
        source: Source = {"conversation_id": "openhands", "ts": when(record.get("timestamp"))}
        yield from ({**event, "seq": line} for event in _events(record, source))
        return
    setup = as_dict(as_dict(record.get("metadata")).get("llm_config"))
    task = ident(record.get("instance_id")) or _issue(as_dict(record.get("issue")))
    model = text(setup.get("model"))
    attempt = ident(first(record, ("attempt", "attempt_id")))
    named = "/".join(filter(None, (task, attempt))) or content_id(canonical_json(record["history"]))
    source = {"conversation_id": named, "task_key": task, "model": model}
    seq = 0
    for entry in _flat(record["history"]):
        for event in _events(entry, {**source, "ts": when(entry.get("timestamp"))}):
            seq += 1
            yield {**event, "seq": seq, "model": event.get("model") or model}
    if (cost := number(as_dict(record.get("metrics")).get("accumulated_cost"))) and seq:
        yield request([], source, seq, {"usage_so_far": {"cost_usd": cost}})
    tested = as_dict(record.get("test_result"))
    for result in results({**as_dict(tested.get("report")), **tested, **record}):
        yield outcome(source, result.name, result.value, by=result.by, seq=seq + 1)


def _flat(history: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a history, which older versions write as pairs of action and observation."""
    entries = [one for entry in as_list(history) for one in (entry if isinstance(entry, list) else [entry])]
    for place, entry in enumerate(map(as_dict, entries), 1):
        yield entry if not _WRITTEN_WHOLE.isdisjoint(entry) else _completed(entry, place)


def _completed(entry: Mapping[str, Any], place: int) -> Mapping[str, Any]:
    """Return an event of which a history has only its action's or its observation's own fields."""
    seen, own = text(entry.get("observation")), {k: v for k, v in entry.items() if k not in ("action", "observation")}
    if seen:
        content = own.pop("content", None)
        return {"observation": seen, "content": content, "extras": own, "source": "environment", "cause": place - 1}
    by_user = entry.get("action") == "message" and not entry.get("wait_for_response")
    return {"id": place, "action": entry.get("action"), "args": own, "source": "user" if by_user else "agent"}


def _issue(issue: Mapping[str, Any]) -> str | None:
    """Return the name of an issue, by its repository and number."""
    named = [str(issue[name]) for name in ("owner", "repo", "number") if issue.get(name)]
    return "/".join(named) or None


def _events(event: Mapping[str, Any], source: Source) -> Iterator[Event]:
    kind = event.get("kind")
    if isinstance(kind, str):
        yield from _of_sdk(kind, event, source)
    elif "observation" in event:
        yield from _observed(event, source)
    elif event.get("action") == "system":
        args = as_dict(event.get("args"))
        tools = tool_schemas(args.get("tools"))
        yield request([{"role": "system", "content": text(args.get("content")) or ""}], source, 0, present(tools=tools))
    elif event.get("source") == "user":
        if event.get("action") == "message":
            yield request([{"role": "user", "content": _words(event)}], source, 0, {})
    elif "action" in event and event["action"] not in (*_STATES, "change_agent_state"):
        yield _acted(event, source)


def _acted(event: Mapping[str, Any], source: Source) -> Event:
    """Return what the agent did: its reply as the model wrote it, one call of it an event."""
    about = as_dict(event.get("tool_call_metadata"))
    response = as_dict(about.get("model_response"))
    reply = as_dict(as_dict((as_list(response.get("choices")) or [None])[0]).get("message"))
    if not reply:
        args, name = as_dict(event.get("args")), text(event.get("action")) or ""
        given = {k: v for k, v in args.items() if k not in _OWN and v not in (None, "", [])}
        call = {"id": ident(event.get("id")) or "", "name": name, "arguments": given}
        told = name in ("message", "finish")
        words = _words(event) if told else text(args.get("thought"))
        reply = {"role": "assistant", "content": words, "tool_calls": [] if told else [call]}
    (message,) = messages([{**reply, "role": "assistant"}])
    own = ident(response.get("id"))
    calls = message.get("tool_calls", [])
    if own and len(calls) > 1:  # several calls of a reply are events of their own, each with the whole reply
        message["tool_calls"] = [c for c in calls if c["id"] == about.get("tool_call_id")]
        message = message if calls[0]["id"] == about.get("tool_call_id") else {
            "role": "assistant", "tool_calls": message["tool_calls"]}  # fmt: skip
    return _call(
        message, own, {**source, "model": text(response.get("model"))}, token_counts(as_dict(response.get("usage")))
    )


def _call(message: Message, own: str | None, source: Source, told: Mapping[str, Any]) -> Event:
    piece = {"response_id": own, "fragment": "block"} if own else {}
    payload = {"message": message, **present(told), **piece}
    return {**source, "kind": EventKind.MODEL_CALL, "seq": 0, "payload": payload}


def _observed(event: Mapping[str, Any], source: Source) -> Iterator[Event]:
    if event.get("observation") in _STATES:
        return
    about, extras = as_dict(event.get("tool_call_metadata")), as_dict(event.get("extras"))
    code = first(as_dict(extras.get("metadata")), ("exit_code",))
    code = extras.get("exit_code") if code is None else code
    failed = event.get("observation") in ("error", "user_rejected") or event.get("success") is False
    failed = failed or code not in (None, 0) or extras.get("error") is True  # the last of a browser
    status = FAILED if failed else OK if code == 0 or event.get("success") is True else None
    own = ident(about.get("tool_call_id")) or ident(event.get("cause"))
    fields = present(tool_call_id=own, name=text(about.get("function_name")))
    yield tool_result(result_message(text(event.get("content")), fields, status=status), source, 0)


def _of_sdk(kind: str, event: Mapping[str, Any], source: Source) -> Iterator[Event]:
    """Yield an event of the SDK's."""
    own = ident(event.get("llm_response_id"))
    if kind == "SystemPromptEvent":
        prompt = {"role": "system", "content": flat_text(as_dict(event.get("system_prompt"))) or ""}
        yield request([prompt], source, 0, present(tools=tool_schemas(event.get("tools"))))
    elif kind == "MessageEvent":
        said = as_dict(event.get("llm_message"))
        if event.get("source") == "agent":
            yield _call(messages([{**said, "role": "assistant"}])[0], own, source, {})
        else:
            yield request(messages([said]), source, 0, {})
    elif kind == "ActionEvent":
        reply = {"role": "assistant", "content": event.get("thought"), **picked(event, ("reasoning_content",)),
                 "tool_calls": [event.get("tool_call") or {}]}  # fmt: skip
        yield _call(messages([reply])[0], own, source, {})
    elif kind == "ConversationStateUpdateEvent" and event.get("key") in ("stats", "full_state"):
        value = event.get("value")
        yield from _state(as_dict(value if event["key"] == "full_state" else {"stats": value}), source, 0)
    elif kind in ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation"):
        seen = as_dict(event.get("observation"))
        words = flat_text(first(seen, ("content", "output"))) or text(first(event, ("error", "rejection_reason")))
        failed = kind != "ObservationEvent" or seen.get("is_error") is True or bool(number(seen.get("exit_code")))
        fields = present(tool_call_id=ident(event.get("tool_call_id")), name=text(event.get("tool_name")))
        yield tool_result(result_message(words, fields, status=FAILED if failed else OK), source, 0)


def _state(state: Mapping[str, Any], source: Source, seq: int) -> Iterator[Event]:
    """Yield what a session's state shows of it: the agent's model, and the tokens so far."""
    used = as_dict(as_dict(state.get("stats")).get("usage_to_metrics"))
    metrics = [as_dict(one) for name, one in used.items() if _CONDENSER not in name]
    told = [token_counts(as_dict(one.get("accumulated_token_usage"))) for one in metrics]
    totals: dict[str, float] = {
        name: sum(one.get(name) or 0 for one in told) for name in ("input_tokens", "output_tokens")
    }
    if cost := sum(number(one.get("accumulated_cost")) or 0.0 for one in metrics):
        totals["cost_usd"] = cost
    served = (as_dict(as_dict(state.get("agent")).get("llm")).get("model"), *(one.get("model_name") for one in metrics))
    model = next(filter(None, map(text, served)), None)
    if model or any(totals.values()):
        yield request([], {**source, "model": model}, seq, {"usage_so_far": totals} if any(totals.values()) else {})


def _is_state(record: Any) -> bool:
    """Whether a record is the state of a session of the SDK."""
    return {"agent", "stats", "execution_status", "workspace"} <= as_dict(record).keys()


def _words(event: Mapping[str, Any]) -> str:
    return text(first(as_dict(event.get("args")), _WORDS)) or text(event.get("message")) or ""


def _is_event(record: Any) -> bool:
    event = as_dict(record)
    if event.get("kind") in _KINDS:
        return "source" in event and "timestamp" in event
    acts = isinstance(event.get("action"), str) and isinstance(event.get("args"), dict)
    sees = isinstance(event.get("observation"), str) and "extras" in event
    return (acts or sees) and event.get("source") in ("user", "agent", "environment")


def _is_evaluated(record: Any) -> bool:
    fields = as_dict(record)
    events: Sequence[Any] = list(_flat(fields.get("history")))[:5]
    return any(name in fields for name in _TASKS) and bool(events) and all(map(_is_event, events))


def _is_either(record: Any) -> bool:
    return _is_event(record) or _is_evaluated(record) or _is_state(record)


READER = reader(
    "openhands",
    7,
    "events and evaluations of OpenHands",
    marks=_is_either,
    refusal="no event of OpenHands",
    read=_read,
    from_path=_from_path,
)
