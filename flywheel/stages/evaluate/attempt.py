"""One attempt at a task, as far as a comparison or a slice needs it; made from the tables by the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Act(NamedTuple):
    """One action.

    Attributes:
        key: what makes it the same as another.
        kind: the tools and which arguments they were given.
        log_prob: of its tokens to the policy that took it, in nats, as logged; None where it is not.
    """

    key: str
    kind: str
    log_prob: float | None = None


@dataclass(frozen=True)
class Attempt:
    """One episode, as far as a comparison needs it."""

    episode_id: str
    task_id: str
    request: str  # normal text of the first request; '' where there is none
    score: float | None  # in [0, 1]; None without an outcome
    name: str = ""  # the source's name of the task
    user: str | None = None
    tier: str | None = None
    tools: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    well_formed: bool = True
    amounts: Mapping[str, float] = field(default_factory=dict)  # cost, latency, ...: shown, not scored
    acts: tuple[Act, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)  # of the episode, known before it acted; for slices
