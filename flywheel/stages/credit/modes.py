"""Credit as other tools give it, for comparison; each is a function of the same paths.

broadcast     every step gets its episode's advantage R - mean of the others
discounted    the same, times discount^(steps to the end)
gigpo         (R - mean R) + omega (G_t - mean G_t at the same anchor state), G_t = discount^(steps to the end) R,
              without dividing by the spread (arXiv 2505.10978 with F_norm = 1)
process       step rewards standardised over all steps of the task, A_t = the sum of those still to come (GRPO with
              process rewards, arXiv 2402.03300)
error_local   a call that fails costs 0.2; the first later success of the same tool gives back as much and no more,
              or erring and mending would pay
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from flywheel.stages.credit.estimators import NO_LEVEL, Credits
from flywheel.stages.credit.paths import Paths, dense

if TYPE_CHECKING:
    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

ERROR = 0.2
_STD_EPSILON = 1e-4  # as GRPO implementations have it


def steps_to_end(paths: Paths) -> Ints:
    """Return how many steps of the path follow each step."""
    return np.asarray(np.bincount(paths.episode)[paths.episode] - 1 - paths.depth, dtype=np.int64)


def outcome_credit(paths: Paths, *, discount: float = 1.0) -> Floats:
    """Return each step's share of its episode's leave-one-out advantage; 0 where no other attempt is known."""
    known = ~np.isnan(paths.values)
    worth = np.where(known, paths.values, 0.0)
    root = dense(paths.roots[0])
    others = np.bincount(root, weights=known)[root] - 1
    total = np.bincount(root, weights=worth)[root] - worth
    judged = known & (others > 0)
    advantage = np.where(judged, worth - total / np.maximum(others, 1), 0.0)
    return np.asarray(advantage[paths.episode] * discount ** steps_to_end(paths), dtype=np.float64)


def gigpo(paths: Paths, *, omega: float = 1.0, discount: float = 0.95) -> Floats:
    """Return GiGPO's advantage; anchor states are those of the exact prefix tree."""
    who = paths.episode
    known = ~np.isnan(paths.values)
    worth = np.where(known, paths.values, 0.0)
    root = dense(paths.roots[0])
    mean = np.bincount(root, weights=worth)[root] / np.maximum(np.bincount(root, weights=known)[root], 1)
    to_come = worth[who] * discount ** steps_to_end(paths)
    anchor = _anchors(paths, root)
    weights = known[who].astype(np.float64)
    there = np.bincount(anchor, weights=to_come * weights)[anchor] / np.maximum(np.bincount(anchor, weights)[anchor], 1)
    return np.where(known[who], (worth - mean)[who] + omega * (to_come - there), 0.0)


def _anchors(paths: Paths, root: Ints) -> Ints:
    """Return the exact state before each step."""
    node, states = root.copy(), np.zeros(len(paths.episode), dtype=np.int64)
    for depth in range(int(paths.depth.max(initial=-1)) + 1):
        rows = np.flatnonzero(paths.depth == depth)
        who = paths.episode[rows]
        states[rows] = node[who]
        node[who] = dense(node[who], paths.actions[0][rows], paths.seen[rows])
    return dense(states, paths.depth)


def process(paths: Paths, rewards: Floats) -> Floats:
    """Return the sums of standardised step rewards still to come.

    Args:
        paths: the attempts.
        rewards: one a step; the episode's return is added to its last step here.
    """
    who = paths.episode
    last = steps_to_end(paths) == 0
    own = rewards + np.where(last, np.nan_to_num(paths.values)[who], 0.0)
    task = dense(paths.roots[0])[who]
    n = np.bincount(task)[task]
    mean = (np.bincount(task, weights=own) / np.maximum(np.bincount(task), 1))[task]
    spread = np.sqrt(np.bincount(task, weights=(own - mean) ** 2)[task] / n)
    return _to_come(paths, (own - mean) / (spread + _STD_EPSILON))


def _to_come(paths: Paths, parts: Floats) -> Floats:
    """Return for each step the sum from it to the end of its path."""
    sums = parts.copy()
    left = steps_to_end(paths)
    for distance in range(1, int(left.max(initial=0)) + 1):
        rows = np.flatnonzero(left == distance)
        sums[rows] += sums[rows + 1]
    return sums


def error_local(episode: Sequence[int], calls: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[float]:
    """Return -0.2 for each call that failed, and 0.2 once for the first later success of its tool.

    Args:
        episode: of each step, ascending.
        calls: names and status of each step's calls; a call that did not parse counts as failed.
    """
    open_errors: set[str] = set()
    rewards, before = [], -1
    for number, (names, status) in zip(episode, calls, strict=True):
        if number != before:
            open_errors, before = set(), number
        total = 0.0
        for name, end in zip(names, status, strict=True):
            if end == "failed":
                total -= 0.0 if name in open_errors else ERROR
                open_errors.add(name)
            elif end == "ok" and name in open_errors:
                open_errors.remove(name)
                total += ERROR
        rewards.append(total)
    return rewards


def whole_credit(
    mode: Literal["broadcast", "discounted", "gigpo", "process"],
    paths: Paths,
    rewards: Floats,
    *,
    omega: float,
    discount: float,
) -> Credits:
    """Return a mode's advantages as credits: luck is not separated, and no grain applies."""
    values = {
        "broadcast": lambda: outcome_credit(paths),
        "discounted": lambda: outcome_credit(paths, discount=discount),
        "gigpo": lambda: gigpo(paths, omega=omega, discount=discount),
        "process": lambda: process(paths, rewards),
    }[mode]()
    return plain(paths, np.asarray(values))


def plain(paths: Paths, values: Floats) -> Credits:
    """Return the values as credits of full confidence where they are not 0."""
    tried = np.bincount(paths.roots[0])[paths.roots[0]] if len(paths.values) else np.zeros(0, dtype=np.int64)
    return Credits(
        skill=np.round(values, 12) + 0.0,
        luck=np.zeros(len(values)),
        weight=(np.abs(values) > 0).astype(np.float64),
        n_support=tried[paths.episode],
        level=np.full(len(values), NO_LEVEL),
    )
