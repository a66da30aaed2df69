"""tau2-bench results: one record is a complete run, an object with `info`, `tasks` and `simulations`.

Task ids are those of a domain, so that the attempts of several policies at one task are grouped. The simulated user may
call tools; those calls and their results are not the agent's and are left out. The greeting that opens a conversation
was not generated: it is part of what the agent saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.events import Event, request
from flywheel.reading.messages import messages
from flywheel.reading.reader import has, reader
from flywheel.reading.rollout import Outcome, Rollout, rollout_events
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, ident, number, present, text, when
from flywheel.records import content_id

_NOT_THE_AGENTS = {"infrastructure_error", "user_error"}  # ends of a simulation that are not the agent's fault


def _read(record: Any) -> Iterator[Event]:
    """Yield the messages and outcomes of all simulations; one without messages (of voice) has no events."""
    for simulation in record["simulations"]:
        yield from _simulation(as_dict(simulation), as_dict(record.get("info")))


def _simulation(simulation: Mapping[str, Any], info: Mapping[str, Any]) -> Iterator[Event]:
    turns = list(_agents_turns(simulation.get("messages")))
    if not turns:
        return
    agent, environment = as_dict(info.get("agent_info")), as_dict(info.get("environment_info"))
    rules, model = text(environment.get("policy")), text(agent.get("llm"))
    turns = [{"role": "system", "content": rules}, *turns] if rules else turns
    history = messages(turns)
    start = next((n for n, m in enumerate(history) if m["role"] == "user"), len(history) - 1) + 1  # after the greeting
    facts = {n: _facts(turn) for n, turn in enumerate(turns)} if len(turns) == len(history) else {}
    rollout = Rollout(
        conversation=f"tau2/{content_id(ident(simulation.get('id')), history)}",
        task=f"tau2/{text(environment.get('domain_name')) or '?'}/{ident(simulation.get('task_id'))}",
        policy="/".join(name for name in (text(agent.get("implementation")), model) if name) or None,
        model=model,
        messages=history[start:],
        first=start,
        facts={n - start: known for n, known in facts.items()},
        ended=when(simulation.get("end_time")),
    )
    if text(simulation.get("termination_reason")) not in _NOT_THE_AGENTS:
        rollout.outcomes = [Outcome("reward", number(as_dict(simulation.get("reward_info")).get("reward")))]
    yield request(history[:start], {**rollout.columns(), "ts": facts.get(0, {}).get("ts")}, 0, {})
    yield from rollout_events(rollout)


def _agents_turns(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield messages without the results of the user's calls; a message of several results is one message each."""
    for turn in map(as_dict, as_list(value)):
        for part in map(as_dict, as_list(turn.get("tool_messages")) or [turn]):
            if part.get("role") != "tool" or part.get("requestor") != "user":
                yield part


def _facts(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Return the time of a turn, and of a model call its tokens and its cost; a cost of 0 is an unknown price."""
    if turn.get("role") != "assistant":
        return present(ts=when(turn.get("timestamp")))
    usage = token_counts(as_dict(turn.get("usage")))
    return present(ts=when(turn.get("timestamp")), **usage, cost_usd=number(turn.get("cost")) or None)


READER = reader(
    "tau2_bench",
    1,
    "tau2-bench result files",
    marks=has("simulations", "tasks", "info"),
    needs=has(simulations=list),
    read=_read,
)
