"""Canaries night by night, with and without what users did before; a part of benchmarks/gate.py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from flywheel.config import CanaryConfig
from flywheel.pipeline.promote.canary import HARM_ALPHA
from flywheel.stages.gate.canary import Sides, confidence_sequence, log_e_better, log_e_failing, log_e_harm

CANARY = CanaryConfig()


class _Canary(NamedTuple):
    """A world of canaries: users, the canary's share of them, its true gain, how that differs between users."""

    users: int
    share: float
    gain: float
    other: float = 0.0  # users with high rates gain so much more than `gain`, those with low ones so much less
    returning: bool = True  # else every night has users of its own


_CANARIES = (
    _Canary(100, 0.2, 0.0), _Canary(100, 0.2, 0.0, other=0.2), _Canary(100, 0.5, 0.0, other=0.2),
    _Canary(100, 0.2, 0.0, returning=False), _Canary(2_000, 0.05, 0.0), _Canary(100, 0.5, 0.2),
    _Canary(100, 0.2, 0.3), _Canary(300, 0.5, 0.05), _Canary(1_000, 0.5, 0.1), _Canary(200, 0.5, -0.2),
)  # fmt: skip


def canary(histories: int) -> Iterator[str]:
    """Users who differ by sd .2 and come back every night, split once; equal policies, and better or worse ones."""
    for world in _CANARIES:
        for past in (0, 40):
            rng, runs = np.random.default_rng(7), max(1, histories // (5 if world.users <= 300 else 20))  # noqa: PLR2004
            promoted = rolled_back = missed = 0
            for _ in range(runs):
                nights, gained = _canary_nights(rng, world, past)
                promoted += log_e_better(nights) >= math.log(1 / CANARY.alpha)
                rolled_back += log_e_harm(nights, CANARY.margin) >= math.log(1 / HARM_ALPHA)
                low, high = confidence_sequence(nights)
                missed += not low <= gained <= high
            words = f"{world.users:,} users{'' if world.returning else ' a night'}, {world.share:.0%} the canary's"
            words += f", {world.gain:+.2f}" + (f" and {world.other:.1f} more or less by user" if world.other else "")
            yield (
                f"canary, 60 nights, {words}, {past / 2:.0f} attempts before: promoted {promoted / runs:.3f}, "
                f"rolled back {rolled_back / runs:.3f}, misses {missed / runs:.3f} ({runs} runs)"
            )


def _canary_nights(rng: np.random.Generator, world: _Canary, past: int) -> tuple[list[Sides], float]:
    """Return nights with one to three attempts a user, up to `past` before the canary, and what it gains on average."""
    nights, population = list[Sides](), 60 * world.users if not world.returning else world.users
    rates = np.clip(rng.normal(0.5, 0.2, population), 0, 1)
    chosen = rng.permutation(population) < world.share * population
    with_canary = np.clip(rates + world.gain + world.other * np.sign(rates - 0.5), 0, 1)
    tries = rng.integers(0, past + 1, population)
    before = {f"u{i}": (float(rng.binomial(tries[i], rates[i])), int(tries[i])) for i in np.flatnonzero(tries)}
    for night in range(60):
        users = np.arange(population) if world.returning else np.arange(night * world.users, (night + 1) * world.users)
        attempts = rng.integers(1, 4, len(users))
        successes = rng.binomial(attempts, np.where(chosen, with_canary, rates)[users])
        sides: tuple[dict[str, tuple[float, int]], dict[str, tuple[float, int]]] = ({}, {})
        for user, total, n in zip(users.tolist(), successes.tolist(), attempts.tolist(), strict=True):
            sides[int(chosen[user])][f"u{user}"] = (float(total), n)
        nights.append(Sides(*sides, before if night == 0 else {}))
    # clipping takes a little of a gain, and what it takes is part of the truth
    mean = np.clip(np.random.default_rng(1).normal(0.5, 0.2, 20_000), 0, 1)
    return nights, float((np.clip(mean + world.gain + world.other * np.sign(mean - 0.5), 0, 1) - mean).mean())


class _Errors(NamedTuple):
    """A world whose users meet errors at rates of their own, Beta with this mean; at spread 1 most fail never."""

    users: int
    canary: int
    mean: float
    spread: float
    times: float = 1.0  # as many at the canary
    returning: bool = True


_FAILING = (
    _Errors(100, 5, 0.1, 1), _Errors(100, 5, 0.3, 1), _Errors(100, 20, 0.1, 1), _Errors(100, 50, 0.1, 0.5),
    _Errors(100, 5, 0.1, 30, 5), _Errors(100, 20, 0.1, 30, 3), _Errors(100, 50, 0.1, 5, 3),
    _Errors(420, 20, 0.1, 5, 3, returning=False),
)  # fmt: skip


def failing(histories: int) -> Iterator[str]:
    """Errors that double: E by users, and how often it reaches what rolls back within 60 nights, and when."""
    for world in _FAILING:
        rng, reached = np.random.default_rng(3), list[int]()
        runs = max(1, histories // 20)
        for _ in range(runs):
            nights = list(_failing_nights(rng, world))
            if log_e_failing(nights) >= (bar := math.log(1 / HARM_ALPHA)):
                reached.append(next(n for n in range(1, 61) if log_e_failing(nights[:n]) >= bar))
        words = f"{world.users} users{'' if world.returning else ' a night'}, {world.canary} the canary's"
        yield (
            f"errors of {world.mean:.0%}, spread {world.spread}, times {world.times}, {words}: seen "
            f"{len(reached) / runs:.3f}, night {np.median(reached) if reached else '-'} ({runs} runs)"
        )


def _failing_nights(rng: np.random.Generator, world: _Errors) -> Iterator[Sides]:
    rates = np.zeros(world.users)
    for night in range(60):
        if night == 0 or not world.returning:
            rates = rng.beta(world.mean * world.spread, (1 - world.mean) * world.spread, world.users)
            rates[: world.canary] = np.minimum(rates[: world.canary] * world.times, 1.0)
        attempts = rng.integers(1, 7, world.users)
        failed = rng.binomial(attempts, rates)
        name = "" if world.returning else f"{night} "
        units = [(f"{name}{i}", (float(failed[i]), int(attempts[i]))) for i in range(world.users)]
        yield Sides(dict(units[world.canary :]), dict(units[: world.canary]))
