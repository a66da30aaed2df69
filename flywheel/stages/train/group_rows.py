"""From a round's logged groups to rows of tokens: every action a window of its attempt, everything else context."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flywheel.config import TrainConfig
from flywheel.errors import TrainError
from flywheel.models.chat import ChatFormat
from flywheel.models.token_rows import Rendered, attempt_rows, logged, prompts_of
from flywheel.stages.train.sharing.tree import Row

SHIFT = 0.1  # by which a group's baseline is lowered: AsymRE's safe side (Arnal et al. 2025, arXiv 2506.20520)


@dataclass(frozen=True)
class Member:
    """One logged attempt: its rows (one, where its steps continue one another), and what is known of it."""

    rows: tuple[Row, ...]
    advantage: float  # mean of its actions'
    behaviour: str  # name of the policy that served it; "" where the log does not say
    logged: tuple[float, ...] | None  # log-probabilities of its trained tokens, as logged
    temperature: float = 1.0  # of sampling, for scoring it again
    actions: tuple[float, ...] = ()  # the advantage of each trained action, in order; none: all have the member's

    @property
    def by_token(self) -> tuple[float, ...]:
        """The advantage of each trained token's action."""
        lengths = [len(Row(row.ids, (window,)).trained) for row in self.rows for window in row.windows]
        actions = self.actions or (self.advantage,) * len(lengths)
        return tuple(a for a, n in zip(actions, lengths, strict=True) for _ in range(n))


def _behaviour(row: dict[str, Any], i: int, rows: Sequence[Rendered]) -> tuple[str, tuple[float, ...] | None, float]:
    """Return whose adapter can score a member again ("": none), what was logged, and the sampling temperature.

    A row without temperatures is one whose policies sampled at temperature 1.
    """
    temperature = row["temperatures"][i] if row.get("temperatures") else 1.0
    log_probs = row["log_probs"][i] if row.get("log_probs") else None
    name = str(row["policies"][i] or "") if temperature is not None else ""
    by_action = logged(log_probs, rows)
    known = None if by_action is None else tuple(x for action in by_action for x in action)
    return name, known, 1.0 if temperature is None else float(temperature)


def _actions(row: dict[str, Any], i: int, rows: Sequence[Rendered]) -> tuple[float, ...]:
    """Return the advantage of each action of a member; a row without any by step has one for the whole member."""
    n = sum(len(r.windows) for r in rows)
    steps = row["step_advantages"][i] if row.get("step_advantages") else ()
    if len(steps) == n:
        return tuple(map(float, steps))
    return (float(row["advantages"][i]) + SHIFT,) * n


def read_groups(rows: Sequence[dict[str, Any]], chat: ChatFormat, cfg: TrainConfig) -> tuple[list[list[Member]], int]:
    """Return groups of members that fit, and the number of members that do not; a group of one is none.

    Args:
        rows: with prompt (or prompts, where members were asked in other words), tools, completions (messages after
            the prompt, one list a member), advantages, policies, step_advantages (one list a member, one number an
            action) and log_probs (for each member null, or {ids, log_probs} for each action).
        chat: how the base model reads and writes.
        cfg: longest row, the share that may be refused.

    Raises:
        TrainError: no group is left, or more than `train.max_refused` of the members are too long.
    """
    groups, refused, total = [], 0, 0
    for row in rows:
        group = []
        for i, (messages, prompt) in enumerate(zip(row["completions"], prompts_of(row), strict=True)):
            member = attempt_rows(messages, prompt, row["tools"], chat, thoughts=cfg.thoughts == "keep")
            total += 1
            if not member or max(len(r.ids) for r in member) > cfg.max_length:
                refused += 1
                continue
            actions = _actions(row, i, member)
            advantage = math.fsum(actions) / len(actions)
            rows_ = tuple(Row(part.ids, part.windows) for part in member)
            group.append(Member(rows_, advantage, *_behaviour(row, i, member), actions))
        if len(group) > 1:
            groups.append(group)
    if not groups or refused / total > cfg.max_refused:
        raise TrainError(
            f"{refused:,} of {total:,} logged attempts are longer than train.max_length = {cfg.max_length:,} tokens",
            hint="raise train.max_length (memory grows with it) or train.max_refused",
        )
    return groups, refused
