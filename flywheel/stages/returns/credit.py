"""Who deserves the return: a prefix tree over attempts at one task splits it into the policy's skill and luck.

In: each attempt as a path of (action, observation) keys, and its return. Out: for each action its skill
V(state, action) - V(state) and its luck V(next state) - V(state, action). Attempts that did the same share a node, so
what an action is worth is told apart from what the world did next; only skill trains a policy.

A node with few attempts is drawn towards its parent, V = (sum R + k V(parent)) / (n + k), V(root) = mean R. With
`leave_one_out` an attempt's own return is taken out of every node it judges itself by: otherwise the tree remembers
singletons. An action that nobody else took then has skill 0: there is no evidence, which is not the same as failure.
Along one attempt, skills and lucks add up to R - V(root): what the tree cannot explain falls to the last luck.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Attempt", "Move", "StepCredit", "prefix_credit"]

DIGITS = 12  # beyond them lies only the rounding of sums

Move = tuple[str, str]  # canonical action, class of what came back


class Attempt(NamedTuple):
    """One episode as the tree sees it; an unknown return gets credit from others and gives none."""

    path: Sequence[Move]
    value: float | None


class StepCredit(NamedTuple):
    """The credit of one action."""

    skill: float
    luck: float
    weight: float  # |skill| / (|skill| + its standard error)
    n_support: int  # attempts through this action, this one included


@dataclass(slots=True)
class _Node:
    n: int = 0  # attempts with a known return
    passed: int = 0  # all attempts
    total: float = 0.0
    squares: float = 0.0
    children: dict[str, _Node] = field(default_factory=dict)

    def add(self, value: float | None) -> None:
        self.passed += 1
        if value is not None:
            self.n += 1
            self.total += value
            self.squares += value * value


class _View(NamedTuple):
    """A node as one attempt may see it: count, sum and squares, without its own return where it is left out."""

    n: int
    total: float
    squares: float

    def variance(self) -> float:
        return max(self.squares / self.n - (self.total / self.n) ** 2, 0.0) if self.n else 0.0


def prefix_credit(
    attempts: Mapping[str, Attempt], *, shrinkage: float, leave_one_out: bool = True
) -> dict[str, list[StepCredit]]:
    """Return the credit of every action of every attempt at one task.

    Args:
        attempts: by episode id.
        shrinkage: how many attempts the parent's value is worth (k).
        leave_one_out: judge each attempt by the others only.
    """
    root = _grow(attempts)
    return {
        name: _walk(root, attempts[name], shrinkage, leave_one_out=leave_one_out and attempts[name].value is not None)
        for name in sorted(attempts)
    }


def _grow(attempts: Mapping[str, Attempt]) -> _Node:
    root = _Node()
    for name in sorted(attempts):
        path, value = attempts[name]
        node = root
        node.add(value)
        for key in (key for move in path for key in move):
            node = node.children.setdefault(key, _Node())
            node.add(value)
    return root


def _walk(root: _Node, attempt: Attempt, k: float, *, leave_one_out: bool) -> list[StepCredit]:
    own = attempt.value if leave_one_out else None
    state, view = root, _view(root, own)
    start = value = view.total / view.n if view.n else 0.0
    found: list[StepCredit] = []
    for action_key, observation_key in attempt.path:
        action = state.children[action_key]
        state = action.children[observation_key]
        seen, reached = _view(action, own), _view(state, own)
        of_action = _shrunk(seen, view, value, k)
        of_state = _shrunk(reached, seen, of_action, k)
        skill = of_action - value
        found.append(StepCredit(skill, of_state - of_action, _confidence(skill, view, seen), action.passed))
        view, value = reached, of_state
    if found and attempt.value is not None and _view(root, own).n:
        explained = start + math.fsum(part for credit in found for part in credit[:2])
        found[-1] = found[-1]._replace(luck=found[-1].luck + attempt.value - explained)
    return [credit._replace(skill=round(credit.skill, DIGITS), luck=round(credit.luck, DIGITS)) for credit in found]


def _view(node: _Node, own: float | None) -> _View:
    if own is None:
        return _View(node.n, node.total, node.squares)
    if node.n == 1:
        return _View(0, 0.0, 0.0)
    return _View(node.n - 1, node.total - own, node.squares - own * own)


def _shrunk(child: _View, parent: _View, value: float, k: float) -> float:
    """Return a node's value, drawn towards its parent's; a node that all attempts of its parent went to is the same."""
    if child.n in {0, parent.n}:
        return value
    return (child.total + k * value) / (child.n + k)


def _confidence(skill: float, state: _View, action: _View) -> float:
    """Return |A| / (|A| + se); se^2 = s2 / n_action + s2 / n_state, s2 the state's variance; 0 without evidence."""
    if not action.n or not skill:
        return 0.0
    error = math.sqrt(state.variance() * (1 / action.n + 1 / state.n))
    return abs(skill) / (abs(skill) + error)
