"""RLlib and Tianshou: attempts as transitions of a small discrete decision problem, the choice of the next tool.

What the agent did becomes one of few actions: a tool by its name, `ask` (a text that ends with a question mark) or
`reply` (another text). A state is what was done before: how often each action, which action was last, how many steps,
how many messages of the user. Arguments and words are not in it: this trains routing, when to stop and when to ask.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from flywheel.models.token_rows import prompts_of
from flywheel.pipeline.serve.targets.target import DataFile, Lost, Mined, Row, Target, json_lines
from flywheel.records import canonical_json

TEXTS = ("ask", "reply")


class Transition(NamedTuple):
    """One step of one attempt."""

    episode: str
    t: int
    state: list[float]
    action: int
    reward: float  # the attempt's return at its last step
    last: bool
    next_state: list[float]
    credit: float


def actions_of(rows: Sequence[Row]) -> list[str]:
    """Return the names of all actions, the tools' first."""
    attempts = [messages for row in rows for messages in row["completions"]]
    names = {_action(m) for messages in attempts for m in messages if m["role"] == "assistant"}
    return [*sorted(names - set(TEXTS)), *TEXTS]


def _action(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls") or []
    if calls:
        name = str(calls[0]["name"])
        return f"{name} (tool)" if name in TEXTS else name
    return "ask" if str(message.get("content") or "").rstrip().endswith("?") else "reply"


def _state(done: Sequence[int], asked: int, size: int) -> list[float]:
    counts = [float(done.count(action)) for action in range(size)]
    last = [float(bool(done) and done[-1] == action) for action in range(size)]
    return [*counts, *last, float(len(done)), float(asked)]


def transitions(rows: Sequence[Row], actions: Sequence[str]) -> Iterator[Transition]:
    """Yield the steps of every attempt, attempt by attempt."""
    for row in rows:
        for n in range(len(row["completions"])):
            yield from _attempt(row, n, actions)


def _attempt(row: Row, n: int, actions: Sequence[str]) -> Iterator[Transition]:
    credit = row["step_advantages"][n] if row["step_advantages"] else []
    asked, done, states = sum(m["role"] == "user" for m in prompts_of(row)[n]), list[int](), list[list[float]]()
    for message in row["completions"][n]:
        asked += message["role"] == "user"
        if message["role"] == "assistant":
            states.append(_state(done, asked, len(actions)))
            done.append(actions.index(_action(message)))
    states.append(_state(done, asked, len(actions)))
    for t, action in enumerate(done):
        last = t == len(done) - 1
        yield Transition(
            episode=row["episodes"][n],
            t=t,
            state=states[t],
            action=action,
            reward=float(row["rewards"][n]) if last else 0.0,
            last=last,
            next_state=states[t + 1],
            credit=float(credit[t]) if len(credit) == len(done) else 0.0,
        )


def _encoder(actions: Sequence[str]) -> DataFile:
    features = [f"times {a}" for a in actions] + [f"last was {a}" for a in actions] + ["steps", "messages of the user"]
    text = canonical_json({"actions": list(actions), "state": features}) + "\n"
    return DataFile("encoder.json", "groups", None, text.encode())


def _rllib(mined: Mined) -> Iterator[DataFile]:
    rows = mined.rows.get("groups", [])
    actions = actions_of(rows)
    by_episode: dict[str, list[Transition]] = {}
    for step in transitions(rows, actions):
        by_episode.setdefault(step.episode, []).append(step)
    batches = [
        {
            "type": "SampleBatch",
            "obs": [s.state for s in steps],
            "new_obs": [s.next_state for s in steps],
            "actions": [s.action for s in steps],
            "rewards": [s.reward for s in steps],
            "terminateds": [s.last for s in steps],
            "truncateds": [False for _ in steps],
            "eps_id": [number for _ in steps],
            "t": [s.t for s in steps],
            "credit": [s.credit for s in steps],
        }
        for number, steps in enumerate(by_episode.values())
    ]
    yield json_lines("episodes.json", "groups", batches)
    ids = [{"eps_id": n, "episode": name} for n, name in enumerate(by_episode)]
    yield json_lines("ids.jsonl", "groups", ids)._replace(rows=None)
    yield _encoder(actions)


def _tianshou(mined: Mined) -> Iterator[DataFile]:
    rows = mined.rows.get("groups", [])
    actions = actions_of(rows)
    steps = list(transitions(rows, actions))
    arrays: dict[str, Any] = {
        "observations": np.array([s.state for s in steps], np.float32),
        "actions": np.array([s.action for s in steps], np.int64),
        "rewards": np.array([s.reward for s in steps], np.float32),
        "terminals": np.array([s.last for s in steps], bool),
        "timeouts": np.zeros(len(steps), bool),
        "next_observations": np.array([s.next_state for s in steps], np.float32),
        "credit": np.array([s.credit for s in steps], np.float32),
        "episodes": np.array([s.episode for s in steps], np.str_),
    }
    sink = io.BytesIO()
    np.savez(sink, **arrays)  # plain arrays: nothing in it is a pickle
    yield DataFile("transitions.npz", "groups", len(steps), sink.getvalue())
    yield _encoder(actions)


_LOST = (
    Lost("log_probs", ("groups",), "they are of texts, not of the choice of a tool: no propensity is logged"),
    Lost(
        "tools",
        ("groups",),
        "an action is a step's first tool by name; other calls, arguments and words are left out",
    ),
)
_NOTES = (
    "This trains the choice of the next tool, not a language model; `encoder.json` names actions and features.",
    "Rewards are an attempt's return at its last step; `credit` has each step's own.",
)
_RLLIB_COMMANDS = (("groups", "python train.py bc"), ("groups", "python train.py marwil"))
_TIANSHOU_COMMANDS = (("groups", "python train.py"),)

RLLIB = Target(
    "rllib", "RLlib 2.60.0", ("groups",), _rllib, _RLLIB_COMMANDS, _LOST, _NOTES, tokens=False, trains="BC, MARWIL"
)
TIANSHOU = Target(
    "tianshou", "Tianshou 2.0.1", ("groups",), _tianshou, _TIANSHOU_COMMANDS, _LOST, _NOTES, tokens=False,
    trains="discrete BCQ",
)  # fmt: skip
