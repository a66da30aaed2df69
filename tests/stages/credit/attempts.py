"""Attempts written by hand, as the credit functions get them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from flywheel.funnel import Funnel
from flywheel.stages.credit.build import Attempts, build_labels, credited
from flywheel.stages.credit.paths import Paths, dense

if TYPE_CHECKING:
    import polars as pl
    from flywheel.config import RewardsConfig


class Did(NamedTuple):
    """One step: its action and what came back; at coarser grains the action's `kind`."""

    action: str
    seen: str = "ok"
    kind: str = ""


def did(path: str) -> list[Did]:
    """Return a path of one-letter actions that always get the same answer."""
    return [Did(letter) for letter in path]


def codes(values: Sequence[Hashable]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int64)


def paths_of(
    attempts: Sequence[tuple[Sequence[Did], float | None]],
    tasks: Sequence[str] | None = None,
    policies: Sequence[str] | None = None,
) -> Paths:
    """Return the attempts at one task (or those named) by one policy (or those named)."""
    steps = [(n, d, step, list(path[:d])) for n, (path, _) in enumerate(attempts) for d, step in enumerate(path)]
    task = codes(tasks or ["t"] * len(attempts))
    policy = codes(policies or ["p"] * len(attempts))
    multisets = codes([(tuple(sorted((b.action, b.seen) for b in before)), before[-1:] == []) for *_, before in steps])
    return Paths(
        roots=(task, task, dense(task, policy)),
        values=np.array([np.nan if value is None else value for _, value in attempts], dtype=np.float64),
        episode=np.array([n for n, *_ in steps], dtype=np.int64),
        depth=np.array([d for _, d, *_ in steps], dtype=np.int64),
        actions=(
            codes([step.action for *_, step, _ in steps]),
            codes([step.action for *_, step, _ in steps]),
            codes([step.kind or step.action for *_, step, _ in steps]),
        ),
        seen=codes([step.seen for *_, step, _ in steps]),
        states=(multisets, codes([d.bit_length() for _, d, *_ in steps])),
    )


def build_returns(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    rewards: pl.DataFrame,
    cfg: RewardsConfig,
    funnel: Funnel,
    *,
    reliability: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return the returns of attempts alone: labelled here, their credit that of the prefix tree."""
    labels = build_labels(episodes, rewards, cfg, Funnel(), reliability=reliability)
    return credited(Attempts(episodes, steps, rewards), labels, None, cfg, funnel)
