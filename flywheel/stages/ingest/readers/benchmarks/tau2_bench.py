"""tau2-bench results: one record is a complete run, an object with `info`, `tasks` and `simulations`.

Task ids are those of a domain, so that the attempts of several policies at one task are grouped. The simulated user may
call tools; those calls and their results are not the agent's and are left out. In solo mode there is no user: the agent
gets a ticket and drives the user's tools, so that all calls are its own. Neither the greeting that opens a conversation
nor the history that a task begins with was generated: they are part of what the agent saw. A simulation that ended
before its first message is an episode with its outcome and no step; one of voice, without messages, has no events.
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

_VOICE = "full_duplex"
_NOT_THE_AGENTS = {"infrastructure_error", "user_error"}  # ends of a simulation that are not the agent's fault


def _read(record: Any) -> Iterator[Event]:
    """Yield the messages and outcomes of all simulations."""
    tasks = {ident(task.get("id")): task for task in map(as_dict, as_list(record.get("tasks")))}
    for simulation in map(as_dict, record["simulations"]):
        task = tasks.get(ident(simulation.get("task_id")), {})
        yield from _simulation(simulation, as_dict(record.get("info")), task)


def _simulation(simulation: Mapping[str, Any], info: Mapping[str, Any], task: Mapping[str, Any]) -> Iterator[Event]:
    logged = [as_dict(turn) for turn in as_list(simulation.get("messages"))]
    if not logged and (simulation.get("ticks") or simulation.get("mode") == _VOICE):
        return
    turns = list(_agents_turns(logged))
    agent, environment = as_dict(info.get("agent_info")), as_dict(info.get("environment_info"))
    rules, model = text(environment.get("policy")), text(agent.get("llm"))
    opening: list[dict[str, Any]] = [{"role": "system", "content": rules}] if rules else []
    if not any(turn.get("role") == "user" for turn in logged) and (ticket := text(task.get("ticket"))):
        opening.append({"role": "user", "content": ticket})
    history = messages([*opening, *turns])
    start = len(opening) + _given(logged, task)
    facts = {n: _facts(turn) for n, turn in enumerate([*opening, *turns])}
    rollout = Rollout(
        conversation=f"tau2/{content_id(ident(simulation.get('id')), history)}",
        task=f"tau2/{text(environment.get('domain_name')) or '?'}/{ident(simulation.get('task_id'))}",
        policy="/".join(name for name in (text(agent.get("implementation")), model) if name) or None,
        model=model,
        messages=history[start:],
        first=start,
        facts={n - start: known for n, known in facts.items()} if len(facts) == len(history) else {},
        ended=when(simulation.get("end_time")),
    )
    if text(simulation.get("termination_reason")) not in _NOT_THE_AGENTS:
        rollout.outcomes = [Outcome("reward", number(as_dict(simulation.get("reward_info")).get("reward")))]
    opened, totals = {**rollout.columns(), "ts": facts.get(0, {}).get("ts")}, _totals(simulation, turns)
    if start or totals:
        yield request(history[:start], opened, 0, totals)
    yield from rollout_events(rollout)


def _given(logged: list[Mapping[str, Any]], task: Mapping[str, Any]) -> int:
    """Return how many messages were there before the agent's first act, counted as `_agents_turns` yields them.

    That is the history of the task's initial state; without one, a greeting, which calls no tool and which a user
    answers or which cost nothing, and the user's reply to it.
    """
    history = len(as_list(as_dict(task.get("initial_state")).get("message_history")))
    if not history and logged and logged[0].get("role") == "assistant" and not logged[0].get("tool_calls"):
        answered = any(turn.get("role") == "user" for turn in logged)
        history = 1 if answered or not logged[0].get("usage") else 0
    begins = history
    while begins < len(logged) and logged[begins].get("role") == "user" and not logged[begins].get("tool_calls"):
        begins += 1
    return len(list(_agents_turns(logged[:begins])))


def _agents_turns(logged: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield messages without the results of the user's calls; a message of several results is one message each.

    A result belongs to whoever made its call: in solo mode the agent calls the user's tools. A message of the user that
    only calls tools does not reach the agent; where the agent never speaks, the user's part is the agent's.
    """
    spoken = any(turn.get("role") == "assistant" for turn in logged)
    callers = {
        ident(as_dict(call).get("id")): turn.get("role") for turn in logged for call in as_list(turn.get("tool_calls"))
    }
    for turn in logged:
        if not spoken and turn.get("tool_calls"):
            yield {**turn, "role": "assistant"}
            continue
        if turn.get("role") == "user" and turn.get("tool_calls") and not turn.get("content"):
            continue
        for part in map(as_dict, as_list(turn.get("tool_messages")) or [turn]):
            caller = callers.get(ident(part.get("id")), part.get("requestor"))
            if part.get("role") != "tool" or caller != "user" or not spoken:
                yield part


def _totals(simulation: Mapping[str, Any], turns: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the agent's total cost where no message has a cost of its own."""
    total = number(simulation.get("agent_cost"))
    alone = total and not any(turn.get("cost") for turn in turns if turn.get("role") == "assistant")
    return {"usage_so_far": {"cost_usd": total}} if alone else {}


def _facts(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Return the time of a turn, and of a model call its tokens and its cost; a cost of 0 is an unknown price."""
    if turn.get("role") != "assistant":
        return present(ts=when(turn.get("timestamp")))
    usage = token_counts(as_dict(turn.get("usage")))
    return present(ts=when(turn.get("timestamp")), **usage, cost_usd=number(turn.get("cost")) or None)


READER = reader(
    "tau2_bench",
    4,
    "tau2-bench result files",
    marks=has("simulations", "tasks", "info"),
    needs=has(simulations=list),
    read=_read,
)
