"""What could be known at all in the worlds of `benchmarks/preferences.py`: exact posteriors, next to flywheel's.

`python benchmarks/bounds.py [--seeds 200]`: no logs, only the outcomes of attempts (800 tasks of 40 intents for one
attempt a task, else 40 tasks of 4 intents; four fifths of the tasks), and three readers of them:

    oracle   knows the world: which decisions matter and by how much, each user's mood, how many labels are wrong; not
             which of both choices is the right one. It reads every attempt with all of its decisions. No one can do
             better on average
    worlds   knows that it is one of these six worlds, each as likely, and how large differences are in each; it reads
             the sums that flywheel reads
    model    flywheel: the same sums, `flywheel.stats.effects`

A fact is an intent and a decision. Printed for each: facts that are believed with .8 or more, a seed; what is claimed
of them and how many are right, that is in the right direction of a decision that matters; the same from .85 on; the
share of wrong steps of successes that demonstrations still contain, each without its own attempt; and of the steps of
successes that have no effect, the share that is left out all the same.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from flywheel.stages.datasets.examples import LIKELIER
from flywheel.stages.values.model import Model, Sides
from flywheel.stats import effects
from preferences import WORLDS, Attempts, World, drawn

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

BELIEVED, SURE = 0.8, 0.85
CERTAIN = 0.97  # P(success) of a recorded success
TRAINED = 0.8  # share of the tasks
EVEN = 0.5


class Log(NamedTuple):
    """A world's attempts that training may see."""

    world: World
    attempts: Attempts
    intent: npt.NDArray[np.int64]
    intents: int


class Read(NamedTuple):
    """What a reader makes of a log: of F facts, and of the wrong steps of successes."""

    right: Floats  # P(the right choice is better), (F,)
    wrong: Floats  # P(it is worse)
    shown: Bools
    lost: Bools


def log_of(world: World, attempts: int, seed: int) -> Log:
    """Return a world's attempts at the training tasks."""
    tasks, intents = (800, 40) if attempts == 1 else (40, 4)
    every = drawn(world, tasks * attempts, seed)
    task = np.arange(tasks * attempts) // attempts
    kept = (np.random.default_rng([seed, 1]).random(tasks) < TRAINED)[task]
    return Log(world, Attempts(*(part[kept] for part in every)), task[kept] % intents, intents)


def oracle(log: Log) -> Read:
    """Return the exact posterior of the directions, by enumerating those of an intent."""
    factors, wrong_labels = np.array(log.world.factors), log.world.mislabelled
    turned = np.array(list(itertools.product((False, True), repeat=len(factors))))
    facts, shown = list[float](), list[bool]()
    for intent in range(log.intents):
        wrong, _, mood, recorded = (part[log.intent == intent] for part in log.attempts)
        chance = np.where(wrong[:, None, :] ^ turned, factors, 1.0).prod(axis=2) * log.world.best * mood[:, None]
        chance = chance * (1 - wrong_labels) + (1 - chance) * wrong_labels
        each = np.where(recorded[:, None], np.log(chance), np.log1p(-chance))
        together, without = _shares(each.sum(axis=0)), _shares(each.sum(axis=0) - each)
        for decision in np.nonzero(factors < 1)[0]:
            true = ~turned[:, decision]
            facts.append(float(together[true].sum()))
            bad = wrong[:, decision] & recorded
            shown += (without[bad][:, true].sum(axis=1) <= EVEN).tolist()
    right = np.array(facts)
    return Read(right, 1 - right, np.array(shown, dtype=np.bool_), np.zeros(0, dtype=np.bool_))


def _shares(logs: Floats) -> Floats:
    raised = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


Reader = Callable[[effects.Differences], effects.Posterior]
Fit = Callable[[effects.Differences], Reader]


def of_sums(log: Log, fit: Fit) -> Read:
    """Return what follows from the sums of each choice of a decision of an intent."""
    wrong, recorded = log.attempts.wrong, log.attempts.recorded
    outcome = np.where(recorded, 1.0, -1.0) * (2 * CERTAIN - 1)
    decisions = wrong.shape[1]
    n, total = np.zeros((2, log.intents, decisions, 2))
    place = log.intent[:, None], np.arange(decisions)[None], wrong.astype(np.int64)
    np.add.at(n, place, 1.0)
    np.add.at(total, place, outcome[:, None])
    model = Model(widest=float((outcome**2).mean()))
    seen = model.translated(model.observed(Sides(*(x[..., c].ravel() for c in (0, 1) for x in (n, total)))), 1)
    finite = np.isfinite(seen.variance)
    posterior = fit(effects.Differences(*(part[finite] for part in seen)))
    found = posterior(seen)
    attempt, decision = np.nonzero(np.repeat(recorded[:, None], decisions, axis=1))
    at, choice = (log.intent[attempt], decision), wrong[attempt, decision].astype(np.int64)
    own = Sides(n[*at, choice] - 1, total[*at, choice] - outcome[attempt], n[*at, 1 - choice], total[*at, 1 - choice])
    step = posterior(model.translated(model.observed(own), 1))
    shown, matters = step.below - step.above <= LIKELIER, np.array(log.world.factors)[decision] < 1
    return Read(found.above, found.below, shown[matters & (choice == 1)], ~shown[~matters])


def model(seen: effects.Differences) -> Reader:
    """Fit flywheel's prior."""
    prior = effects.fit_prior(seen)
    return lambda differences: effects.posterior(differences, prior)


def worlds(seen: effects.Differences) -> Reader:
    """Weigh the six worlds, each with the size that differences have there and the share of them that are none."""
    nearest = {name: int(np.abs(effects.SIZES - size(world)).argmin()) for name, world in WORLDS.items()}
    matter = [np.mean(np.array(world.factors) < 1) for world in WORLDS.values()]
    shares = np.array([
        share * np.eye(len(effects.SIZES))[nearest[name]] + (1 - share) * np.eye(len(effects.SIZES))[0]
        for name, share in zip(WORLDS, matter, strict=True)
    ])  # fmt: skip
    densities = effects.densities(seen)
    explained = np.log(np.maximum(densities @ shares.T, 1e-300)).sum(axis=0)
    prior = effects.Prior(_shares(explained), shares)
    return lambda differences: effects.posterior(differences, prior)


def size(world: World) -> float:
    """Return how large the difference of a decision that matters is, in returns."""
    factors = np.array(world.factors)
    if not (factors < 1).any():
        return 0.0
    decision = int(factors.argmin())
    others = np.delete((1 + factors) / 2, decision).prod() * world.best * (0.8 if world.moods else 1.0)
    return float(2 * (2 * CERTAIN - 1) * others * (1 - factors[decision]) * (1 - 2 * world.mislabelled))


READERS: dict[str, Callable[[Log], Read]] = {
    "oracle": oracle,
    "worlds": lambda log: of_sums(log, worlds),
    "model": lambda log: of_sums(log, model),
}


def summary(name: str, attempts: int, reader: str, seeds: int) -> dict[str, float]:
    """Return what a reader believes over many seeds of a world."""
    world = WORLDS[name]
    found = [READERS[reader](log_of(world, attempts, seed)) for seed in range(seeds)]
    right, wrong, shown, lost = (np.concatenate([getattr(one, part) for one in found]) for part in Read._fields)
    matters = np.ones(len(right), dtype=np.bool_)
    if reader != "oracle":
        matters = np.tile(np.array(world.factors) < 1, len(right) // len(world.factors))
    claimed, true = np.maximum(right, wrong), (right > wrong) & matters
    numbers: dict[str, Any] = {"facts": len(right) / seeds}
    for label, least in (("believed", BELIEVED), ("sure", SURE)):
        some = claimed >= least
        numbers[label] = some.sum() / seeds
        numbers[f"{label}_claimed"] = claimed[some].mean() if some.any() else float("nan")
        numbers[f"{label}_right"] = true[some].mean() if some.any() else float("nan")
    return {**numbers, **{label: steps.mean() if len(steps) else float("nan") for label, steps in
                          (("shown", shown), ("lost", lost))}}  # fmt: skip


def main() -> None:
    """Print a line for every world, number of attempts and reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS))
    parser.add_argument("--attempts", nargs="*", type=int, default=[1, 4, 8, 32])
    arguments = parser.parse_args()
    for name, attempts in itertools.product(arguments.worlds, arguments.attempts):
        for reader in READERS:
            found = summary(name, attempts, reader, arguments.seeds // (5 if attempts == 1 else 1))
            numbers = "  ".join(f"{key} {value:.2f}" for key, value in found.items())
            print(f"{name:12} {attempts:3} attempts  {reader:7} {numbers}", flush=True)


if __name__ == "__main__":
    main()
