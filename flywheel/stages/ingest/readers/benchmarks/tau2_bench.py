"""tau2-bench results: one record is a whole run, an object with `info`, `tasks` and `simulations`.

Task ids are those of a domain, so that attempts of several policies at one task meet. The simulated user may call tools
of its own: those calls and their results are not the agent's and stay out. The greeting that opens a conversation was
not generated: it is part of what the agent saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flywheel.reading.events import Event, Source, request, spoken
from flywheel.reading.messages import Message, messages
from flywheel.reading.reader import has, reader
from flywheel.reading.values import as_dict, as_list, ident, number, text, when, whole
from flywheel.records import EventKind, content_id

_NOT_THE_AGENTS = {"infrastructure_error", "user_error"}  # how a simulation ended that says nothing of the agent


def _read(record: Any) -> Iterator[Event]:
    """Yield the messages and outcomes of all simulations; one without messages (of voice, say) gives nothing."""
    info = as_dict(record.get("info"))
    for simulation in record["simulations"]:
        yield from _simulation(as_dict(simulation), info)


def _simulation(simulation: Mapping[str, Any], info: Mapping[str, Any]) -> Iterator[Event]:
    told = [turn for turn in _flat(simulation.get("messages")) if not _users_tool(turn)]
    if not told:
        return
    agent, environment = as_dict(info.get("agent_info")), as_dict(info.get("environment_info"))
    rules = text(environment.get("policy"))
    turns = [{"role": "system", "content": rules}, *told] if rules else told
    history = messages(turns)
    source: Source = {
        "conversation_id": f"tau2/{content_id(ident(simulation.get('id')), history)}",
        "task_key": f"tau2/{text(environment.get('domain_name')) or '?'}/{ident(simulation.get('task_id'))}",
        "model": text(agent.get("llm")),
        "policy": "/".join(t for t in (text(agent.get("implementation")), text(agent.get("llm"))) if t) or None,
        "ts": None,
    }
    yield from _timed(_spoken(history, source), turns, len(history))
    reward = number(as_dict(simulation.get("reward_info")).get("reward"))
    if reward is not None and text(simulation.get("termination_reason")) not in _NOT_THE_AGENTS:
        payload = {"name": "reward", "value": reward, "scale": [0, 1], "source": "recorded"}
        ended = when(simulation.get("end_time"))
        yield {**source, "ts": ended, "kind": EventKind.OUTCOME, "seq": len(history), "payload": payload}


def _flat(given: Any) -> Iterator[Mapping[str, Any]]:
    """Yield messages, those that are told in one message of several results apart."""
    for turn in as_list(given):
        inner = as_list(as_dict(turn).get("tool_messages"))
        yield from (as_dict(t) for t in inner or [turn])


def _users_tool(turn: Mapping[str, Any]) -> bool:
    """Whether it is the result of a call that the simulated user made."""
    return turn.get("role") == "tool" and turn.get("requestor") == "user"


def _spoken(history: list[Message], source: Source) -> Iterator[Event]:
    """Yield the events of a transcript whose first words are a greeting that nobody generated."""
    start = next((i for i, m in enumerate(history) if m["role"] == "user"), len(history) - 1) + 1
    yield request(history[:start], source, 0, {})
    for event in spoken(history[start:], source, {}):
        yield {**event, "seq": event["seq"] + start}


def _timed(events: Iterator[Event], turns: Sequence[Mapping[str, Any]], n: int) -> Iterator[Event]:
    """Add what each turn says of its own time and cost; only where turns and messages are one to one."""
    for event in events:
        turn = turns[event["seq"]] if len(turns) == n else {}
        event["ts"] = when(turn.get("timestamp"))
        if event["kind"] == EventKind.MODEL_CALL:
            usage = as_dict(turn.get("usage"))
            found = {
                "input_tokens": whole(usage.get("prompt_tokens")),
                "output_tokens": whole(usage.get("completion_tokens")),
                "cost_usd": number(turn.get("cost")) or None,
            }
            event["payload"] |= {k: v for k, v in found.items() if v is not None}
        yield event


READER = reader(
    "tau2_bench",
    1,
    marks=has("simulations", "tasks", "info"),
    needs=has(simulations=list),
    refusal="no object with a list of simulations",
    read=_read,
)
