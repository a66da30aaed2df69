"""One turn of a task as recorded: where it starts, the results of its calls, and the rewards of its ends.

In: rows of the tables `scenarios` and `fixtures`, or a row of a round's dataset. Out: `Scenario`, and back to a row, so
that a dataset is complete in itself.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flywheel.replay.keys import next_state

JudgedBy = Literal["state", "answer"]
Calls = Mapping[tuple[str, str], "Recorded"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded result of a call."""

    content: str
    status: str
    acts: bool  # whether it changes the state


@dataclass(frozen=True, slots=True)
class Ending:
    """How recorded attempts ended the turn, and how they were rewarded."""

    state: str
    answer: str  # '' where only the state counts
    reward: float  # mean return R
    success: float  # mean probability of success, in [0, 1]
    n: int  # attempts


@dataclass(frozen=True)
class Scenario:
    """A place from which a policy can be rolled out until it speaks to the user.

    Attributes:
        scenario_id: content id of the place.
        task_id: its task.
        split: "train", "holdout" or "between".
        prompt: messages before the first action.
        tools: tool schemas; None where the log does not name them.
        state: hash of the acts before.
        judged_by: what identifies an end: the state alone, or the state and the answer.
        endings: the ends that the log knows.
        calls: results by (state, `call_text`).
        n_calls: most calls that a recorded attempt made in this turn.
    """

    scenario_id: str
    task_id: str
    split: str
    prompt: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    state: str
    judged_by: JudgedBy
    endings: tuple[Ending, ...]
    calls: Calls = field(repr=False)
    n_calls: int = 0

    @property
    def tool_names(self) -> list[str]:
        """Names of the tools at hand: those of the schemas; where there are none, those that the log saw called."""
        if self.tools is None:
            return sorted({call.partition(" ")[0] for _, call in self.calls})
        return sorted({str(tool.get("function", tool).get("name")) for tool in self.tools})


def scenarios(scenario_rows: Iterable[Mapping[str, Any]], fixture_rows: Iterable[Mapping[str, Any]]) -> list[Scenario]:
    """Return scenarios with their calls, from rows of the two tables; each only gets its own task's and split's.

    Args:
        scenario_rows: rows of `scenarios`.
        fixture_rows: rows of `fixtures`; those of other tasks are left alone.
    """
    known: dict[tuple[str, str], dict[tuple[str, str], Recorded]] = defaultdict(dict)
    for row in fixture_rows:
        call = f"{row['tool']} {row['arguments']}"
        known[row["task_id"], row["split"]][row["state"], call] = Recorded(
            row["result"], row["status"], row["effect"] != "reads"
        )
    rows = [_scenario(row, known.get((row["task_id"], row["split"]), {})) for row in scenario_rows]
    return sorted(rows, key=lambda scenario: scenario.scenario_id)


def _scenario(row: Mapping[str, Any], calls: Calls) -> Scenario:
    columns = (row[f"{name}_E"] for name in ("states", "answers", "rewards", "successes", "counts"))
    return Scenario(
        scenario_id=row["scenario_id"],
        task_id=row["task_id"],
        split=row["split"],
        prompt=json.loads(row["prompt"]),
        tools=json.loads(row["tools"]) if row["tools"] is not None else None,
        state=row["state"],
        judged_by=row["judged_by"],
        endings=tuple(Ending(*values) for values in zip(*columns, strict=True)),
        calls=calls,
        n_calls=row["n_calls"],
    )


def scenario_row(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as a row of a round's dataset: with the calls that can be reached from where it starts."""
    calls = [
        [state, call, scenario.calls[state, call].content, scenario.calls[state, call].status, acts]
        for state, call, acts in sorted(_reachable(scenario))
    ]
    return {
        "id": scenario.scenario_id,
        "task_id": scenario.task_id,
        "prompt": scenario.prompt,
        "tools": scenario.tools,
        "state": scenario.state,
        "judged_by": scenario.judged_by,
        "endings": [[e.state, e.answer, e.reward, e.success, e.n] for e in scenario.endings],
        "calls": calls,
        "n_calls": scenario.n_calls,
    }


def _reachable(scenario: Scenario) -> Iterator[tuple[str, str, bool]]:
    """Yield (state, call, acts) of every call that recorded acts lead to."""
    here: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for (state, call), recorded in scenario.calls.items():
        here[state].append((call, recorded.acts))
    waiting, met = [scenario.state], {scenario.state}
    while waiting:
        state = waiting.pop()
        for call, acts in here.get(state, ()):
            yield state, call, acts
            after = next_state(state, call) if acts else state
            if after not in met:
                met.add(after)
                waiting.append(after)


def read_scenario(row: Mapping[str, Any]) -> Scenario:
    """Return the scenario of a dataset's row."""
    return Scenario(
        scenario_id=row["id"],
        task_id=row["task_id"],
        split="train",
        prompt=row["prompt"],
        tools=row["tools"],
        state=row["state"],
        judged_by=row["judged_by"],
        endings=tuple(Ending(*values) for values in row["endings"]),
        calls={(state, call): Recorded(*recorded) for state, call, *recorded in row["calls"]},
        n_calls=row["n_calls"],
    )
