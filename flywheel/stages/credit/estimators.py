"""Who deserves the return: prefix trees over attempts at one task split it into the policy's skill and luck.

In: `Paths`, attempts as codes. Out: for each step its skill V(state, action) - V(state), its luck V(next state) -
V(state, action), and at which grain that was measured. Attempts that did the same share a node, so the value of
an action is separated from the environment's response; only skill trains a policy, and observations get no credit.

A node with few attempts is shrunk towards its parent, V = (sum R + k V(parent)) / (n + k), V(root) = mean R. With
`leave_one_out` an attempt's own return is left out of every node that its credit depends on: otherwise the tree
memorises singletons. An action with fewer than `min_support` attempts is measured at a coarser grain (see `paths`); one
that no other attempt took at any grain has skill 0: there is no evidence, which is not the same as failure. Along one
attempt, skills and lucks add up to R - V(root): what the tree cannot explain falls to the last luck.

Skill and luck: Mesnard et al. (arXiv 2402.12874); anchor states as in GiGPO (arXiv 2505.10978), without its division.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from flywheel.stages.credit.paths import Paths, dense

if TYPE_CHECKING:
    from collections.abc import Iterator

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

DIGITS = 12  # beyond them lies only the rounding of sums
NO_LEVEL = -1  # no similar attempt: only the episode's own advantage is left


class Credits(NamedTuple):
    """The credit of each of S steps."""

    skill: Floats
    luck: Floats
    weight: Floats  # |skill| / (|skill| + its standard error)
    n_support: Ints  # attempts through this action at its grain, this one included
    level: Ints  # grain that it was measured at; NO_LEVEL without evidence


class _View(NamedTuple):
    """Nodes as each of some steps may see them: without its own return where that is left out."""

    n: Floats  # attempts with a known return
    total: Floats
    squares: Floats

    def take(self, rows: Ints) -> _View:
        return _View(self.n[rows], self.total[rows], self.squares[rows])

    def variance(self) -> Floats:
        n = np.maximum(self.n, 1)
        return np.maximum(self.squares / n - (self.total / n) ** 2, 0.0)


class _Measured(NamedTuple):
    """The measurement of each step at one grain."""

    skill: Floats
    weight: Floats
    others: Floats  # known returns through the action that the step may see
    known: Ints  # all known returns through the action
    passed: Ints  # all attempts through the action


class _Sums:
    """Sums over attempts, of which each may see its own left out."""

    def __init__(self, values: Floats, *, leave_one_out: bool) -> None:
        known = ~np.isnan(values)
        worth = np.where(known, values, 0.0)
        self.parts = (known.astype(np.float64), worth, worth * worth)
        self.leave_one_out = leave_one_out

    @staticmethod
    def _sum(part: Floats, nodes: Ints, who: Ints, size: int) -> Floats:
        return np.bincount(nodes, weights=part[who], minlength=size).astype(np.float64)

    def over(self, nodes: Ints, episodes: Ints, *, again: bool = False) -> tuple[_View, Ints, Ints]:
        """Return each row's view of its node, the known returns in it, and all attempts; `again`: may be revisited."""
        counted, who = nodes, episodes
        if again:
            pairs = np.unique(nodes * (episodes.max(initial=0) + 1) + episodes, return_index=True)[1]
            pairs.sort()  # sums in order of the attempts, whatever the codes
            counted, who = nodes[pairs], episodes[pairs]
        size = int(nodes.max(initial=-1)) + 1
        n, total, squares = (self._sum(part, counted, who, size)[nodes] for part in self.parts)
        known, passed = n.astype(np.int64), np.bincount(counted, minlength=size)[nodes]
        if self.leave_one_out:
            own = _View(*(part[episodes] for part in self.parts))
            n = n - own.n
            total, squares = np.where(n > 0, total - own.total, 0.0), np.where(n > 0, squares - own.squares, 0.0)
        return _View(n, total, squares), known, passed


def tree_credit(
    paths: Paths, *, shrinkage: float, min_support: int = 1, stratum: int = 0, leave_one_out: bool = True
) -> Credits:
    """Return the credit of every step.

    Args:
        paths: attempts at any number of tasks, which are independent.
        shrinkage: how many attempts the parent's value is worth (k).
        min_support: attempts through an action from which its grain is used.
        stratum: attempts with the same tools and system prompt, and by the same policy, from which they are compared
            among themselves only: the value of a state that one policy alone reaches depends on that policy. 0: never.
        leave_one_out: compare each attempt with the others only.
    """

    def under(root: Ints) -> Credits:
        return _under(paths, root, shrinkage, min_support, _Sums(paths.values, leave_one_out=leave_one_out))

    credits_ = under(paths.roots[0])
    known = (~np.isnan(paths.values)).astype(np.float64)
    for coarse, fine in pairwise(paths.roots) if stratum else ():
        own, of_all = (np.bincount(root, weights=known)[root] for root in (fine, coarse))
        apart = (own >= stratum) & (own < of_all)
        if apart.any():
            rows = apart[paths.episode]
            credits_ = Credits(*(np.where(rows, new, old) for new, old in zip(under(fine), credits_, strict=True)))
    return credits_


def _under(paths: Paths, root: Ints, k: float, min_support: int, sums: _Sums) -> Credits:
    root = dense(root)
    exact, before, after = _exact(paths, root, k, sums)
    grains = (exact, *(_pooled(paths, root, grain, k, sums) for grain in (1, 2)))
    level = _level(grains, min_support)
    rows, at = np.arange(len(level)), np.maximum(level, 0)
    skill = np.stack([g.skill for g in grains])[at, rows]
    weight = np.stack([g.weight for g in grains])[at, rows]
    support = np.stack([g.passed for g in grains])[at, rows]
    none = level == NO_LEVEL
    skill[none], weight[none] = 0.0, 0.0
    luck = after - before - skill
    _leave_the_rest(luck, paths, root, after, sums)
    return Credits(np.round(skill, DIGITS) + 0.0, np.round(luck, DIGITS) + 0.0, weight, support, level)


def _level(grains: tuple[_Measured, ...], min_support: int) -> Ints:
    """Return the finest grain with enough attempts; else the finest with any other attempt."""
    level = np.full(len(grains[0].skill), NO_LEVEL)
    for accepts in ("others", "known"):
        for grain in (2, 1, 0):
            one = grains[grain]
            fits = (one.others > 0) & ((one.known >= min_support) | (accepts == "others"))
            level = np.where(fits, grain, level)
    return level


def _leave_the_rest(luck: Floats, paths: Paths, root: Ints, after: Floats, sums: _Sums) -> None:
    """Add what the last state's value leaves of the return to the last step's luck."""
    last = np.flatnonzero(np.diff(paths.episode, append=-1))
    who = paths.episode[last]
    view, _, _ = sums.over(root, np.arange(len(root)))
    known = ~np.isnan(paths.values[who]) & (view.n[who] > 0)
    luck[last[known]] += paths.values[who[known]] - after[last[known]]


def _depths(paths: Paths) -> Iterator[Ints]:
    """Yield the steps in the same place of their paths, first steps first."""
    order = np.argsort(paths.depth, kind="stable")
    yield from np.split(order, np.cumsum(np.bincount(paths.depth))[:-1]) if len(order) else ()


def _exact(paths: Paths, root: Ints, k: float, sums: _Sums) -> tuple[_Measured, Floats, Floats]:
    """Return grain 0, and the values of the states before and after each step."""
    everybody = np.arange(len(root))
    view, _, _ = sums.over(root, everybody)
    node, value = root.copy(), np.where(view.n > 0, view.total / np.maximum(view.n, 1), 0.0)
    size = len(paths.episode)
    counts = (np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64))
    out = _Measured(np.zeros(size), np.zeros(size), np.zeros(size), *counts)
    before, after = np.zeros(size), np.zeros(size)
    for rows in _depths(paths):
        who = paths.episode[rows]
        state, worth = view.take(who), value[who]
        action = dense(node[who], paths.actions[0][rows])
        seen, known, passed = sums.over(action, who)
        of_action = _shrunk(seen, state, worth, k)
        step = (of_action - worth, _confidence(of_action - worth, state, seen), seen.n, known, passed)
        for column, part in zip(out, step, strict=True):
            column[rows] = part
        following = dense(action, paths.seen[rows])
        reached, _, _ = sums.over(following, who)
        before[rows], after[rows] = worth, _shrunk(reached, seen, of_action, k)
        node[who], value[who] = following, after[rows]
        for column, part in zip(view, reached, strict=True):
            column[who] = part
    return out, before, after


def _pooled(paths: Paths, root: Ints, grain: int, k: float, sums: _Sums) -> _Measured:
    """Return a coarser grain, whose states an attempt may visit more than once."""
    who = paths.episode
    root_view = sums.over(root, np.arange(len(root)))[0].take(who)
    mean = np.where(root_view.n > 0, root_view.total / np.maximum(root_view.n, 1), 0.0)
    node = dense(root[who], paths.states[grain - 1])
    state, _, _ = sums.over(node, who, again=True)
    seen, known, passed = sums.over(dense(node, paths.actions[grain]), who, again=True)
    worth = _shrunk(state, root_view, mean, k)
    skill = _shrunk(seen, state, worth, k) - worth
    return _Measured(skill, _confidence(skill, state, seen), seen.n, known, passed)


def _shrunk(child: _View, parent: _View, value: Floats, k: float) -> Floats:
    """Return nodes' values, shrunk towards their parents'; unchanged where all attempts of the parent went."""
    same = (child.n <= 0) | (child.n == parent.n)
    return np.where(same, value, (child.total + k * value) / np.where(same, 1.0, child.n + k))


def _confidence(skill: Floats, state: _View, action: _View) -> Floats:
    """Return |A| / (|A| + se); se^2 = s2 / n_action + s2 / n_state, s2 the state's variance; 0 without evidence."""
    size = np.where(np.abs(skill) < 10**-DIGITS, 0.0, np.abs(skill))
    error = np.sqrt(state.variance() * (1 / np.maximum(action.n, 1) + 1 / np.maximum(state.n, 1)))
    shown = (action.n > 0) & (size > 0)
    return np.where(shown, size / np.where(shown, size + error, 1.0), 0.0)
