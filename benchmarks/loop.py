"""A policy that writes its own next logs: which method ends highest, with equal rows, in a world that is known.

`python benchmarks/loop.py [--seeds N] [--rounds N]`: 40 intents with 4 decisions of 4 actions each, half of the
decisions without any effect; in the others one action is right (1) and three are wrong (.55). Success has the product
of its actions' chances. Each round the policy, a table of logits, makes its attempts; a method turns them into
gradients; the last round's success is exact. Learning rates are each method's best of several.

    sft      likelihood of all steps of successes
    credited the same, of steps that are not likelier to be worse than the others (as `examples` are labelled)
    pairs    DPO with the posterior as soft label, and credited demonstrations (as a round of pairs is made)
    topr     whole attempts by their group's advantage, against the log's policy
    steps    the same with each step's credit, where other attempts show it (as `groups.step_advantages_G`)

The values of actions come from `flywheel.stages.values`, as in a build: exact states, and states across the tasks of an
intent.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from flywheel.contracts import polars_schema
from flywheel.funnel import Funnel
from flywheel.records import Evidence
from flywheel.stages.values.fit import build_values
from flywheel.stages.values.model import Sides, Values

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

INTENTS, DECISIONS, ACTIONS = 40, 4, 4
WRONG = 0.55
ROWS = 400  # gradients of a round, for every method
STEPS = 4
BELIEVED, LIKELIER = 0.8, 0.001  # as pairs.min_p_better, and as examples are dropped
RATES = (0.5, 1.5, 5.0)


class Log(NamedTuple):
    """A round's N attempts."""

    intent: Ints
    task: Ints
    actions: Ints  # (N, DECISIONS)
    outcome: Floats  # -1 or 1, as recorded
    policy: Floats  # (INTENTS, DECISIONS, ACTIONS) probabilities that the actions were sampled with


def softmax(logits: Floats) -> Floats:
    """Return probabilities over the last axis."""
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True), dtype=np.float64)


def truth(seed: int) -> Floats:
    """Return each action's factor, (INTENTS, DECISIONS, ACTIONS); half of the decisions have no effect."""
    rng = np.random.default_rng(seed)
    factors = np.ones((INTENTS, DECISIONS, ACTIONS))
    for intent in range(INTENTS):
        for decision in rng.permutation(DECISIONS)[: DECISIONS // 2]:
            factors[intent, decision] = WRONG
            factors[intent, decision, rng.integers(ACTIONS)] = 1.0
    return factors


def success(factors: Floats, logits: Floats) -> float:
    """Return the policy's chance of success over all intents, exactly: decisions are independent."""
    return float((softmax(logits) * factors).sum(axis=2).prod(axis=1).mean())


def attempts(factors: Floats, logits: Floats, setting: Setting, rng: np.random.Generator) -> Log:
    """Return the attempts at some tasks, whose intents take turns."""
    task = np.repeat(np.arange(setting.tasks), setting.each)
    intent = task % INTENTS
    policy = softmax(logits)
    drawn = rng.random((len(task), DECISIONS, 1)) > policy[intent].cumsum(axis=2)
    actions = np.minimum(drawn.sum(axis=2), ACTIONS - 1)
    places = np.arange(DECISIONS)
    chance = factors[intent[:, None], places, actions].prod(axis=1)
    won = (rng.random(len(task)) < chance) ^ (rng.random(len(task)) < setting.mislabelled)
    return Log(intent, task, actions, np.where(won, 1.0, -1.0), policy)


class Believed(NamedTuple):
    """What the values of actions show."""

    model: Values
    n: Floats  # (INTENTS, DECISIONS, ACTIONS)
    total: Floats


def believed(logs: Sequence[Log]) -> Believed:
    """Return the values of actions, from states of one task and of one intent."""
    parts = {name: np.concatenate([getattr(log, name) for log in logs]) for name in ("intent", "task", "actions")}
    log = Log(**parts, outcome=np.concatenate([log.outcome for log in logs]), policy=logs[-1].policy)
    tables = []
    sums = np.zeros((2, INTENTS, DECISIONS, ACTIONS))
    for decision in range(DECISIONS):
        chosen = log.actions[:, decision]
        np.add.at(sums[0][:, decision], (log.intent, chosen), 1.0)
        np.add.at(sums[1][:, decision], (log.intent, chosen), log.outcome)
        before = log.actions[:, :decision] @ (ACTIONS ** np.arange(decision))
        frame = pl.DataFrame({"intent": log.intent, "task": log.task, "before": before, "a": chosen, "y": log.outcome})
        frame = frame.with_columns(
            near=pl.format("{} {}", "intent", pl.lit(decision)), action=pl.col("a").cast(pl.String)
        )
        frame = frame.with_columns(exact=pl.format("{} {} {}", "near", "task", "before"))
        for level, state in ((0, "exact"), (1, "near")):
            met = frame.filter(pl.len().over(state) > 1) if level == 0 else frame
            tables.append(
                met.group_by("task", "action", state=state)
                .agg(pl.len().alias("count"), pl.col("near").first(), total=pl.col("y").sum())
                .select(
                    "state", "action", "count", "total",
                    level=pl.lit(level), task_id=pl.col("task").cast(pl.String), weight=pl.col("count"),
                    squares=pl.col("count"), policy=pl.lit("agent"), sample_episode=pl.lit(""), sample_step=pl.lit(0),
                    voter=pl.lit(None), parent_action="action" if level == 0 else pl.lit(None),
                    parent_state="near" if level == 0 else pl.lit(None),
                )
            )  # fmt: skip
    schema = polars_schema(Evidence)
    evidence = pl.concat([t.select(pl.col(name).cast(kind) for name, kind in schema.items()) for t in tables])
    return Believed(Values.read(build_values(evidence, Funnel())), sums[0], sums[1])


def skill(known: Believed, log: Log) -> tuple[Floats, Floats, Floats]:
    """Return each step's posterior skill, P(better) and P(worse) than the others, own attempt left out."""
    at = log.intent[:, None], np.arange(DECISIONS), log.actions
    n, total = known.n[at] - 1, known.total[at] - log.outcome[:, None]
    state_n = known.n.sum(axis=2)[log.intent] - 1
    state_total = known.total.sum(axis=2)[log.intent] - log.outcome[:, None]
    sides = Sides(n.ravel(), total.ravel(), (state_n - n).ravel(), (state_total - total).ravel())
    found = known.model.model.posterior(known.model.model.combined({1: sides})[0])
    rest = (state_n - n) / np.maximum(state_n, 1)
    return found.mean.reshape(n.shape) * rest, found.above.reshape(n.shape), found.below.reshape(n.shape)


Gradient = Callable[[Floats], Floats]
Method = Callable[[Log, "Believed", np.random.Generator], Gradient]


def _shown(log: Log, weights: Floats, rng: np.random.Generator, rows: int) -> Gradient:
    """Return the gradient of a sample of the steps with weights that are not 0, by their likelihood."""
    attempt, decision = np.nonzero(weights)
    some = rng.permutation(len(attempt))[:rows]
    attempt, decision = attempt[some], decision[some]
    weight = weights[attempt, decision]

    def gradient(logits: Floats) -> Floats:
        slope = np.zeros_like(logits)
        at = log.intent[attempt], decision
        np.add.at(slope, at, -softmax(logits)[at] * weight[:, None])
        np.add.at(slope, (*at, log.actions[attempt, decision]), weight)
        return slope / max(rows, 1)

    return gradient


def sft(log: Log, known: Believed, rng: np.random.Generator) -> Gradient:
    """Copy all steps of successes."""
    del known
    return _shown(log, np.repeat((log.outcome > 0)[:, None], DECISIONS, axis=1).astype(np.float64), rng, ROWS)


def credited(log: Log, known: Believed, rng: np.random.Generator, rows: int = ROWS) -> Gradient:
    """Copy the steps of successes by the probability that they are not worse."""
    _, better, worse = skill(known, log)
    weights = np.where((log.outcome[:, None] > 0) & (worse - better <= LIKELIER), 1 - worse, 0.0)
    return _shown(log, weights, rng, rows)


def pairs(log: Log, known: Believed, rng: np.random.Generator, beta: float = 0.1) -> Gradient:
    """Prefer what is believed to be better, by its posterior, next to credited demonstrations."""
    one, other = (index.ravel() for index in np.meshgrid(range(ACTIONS), range(ACTIONS), indexing="ij"))
    one, other = one[one < other], other[one < other]
    n, total = (sums[:, :, [one, other]].reshape(INTENTS * DECISIONS, 2, -1) for sums in (known.n, known.total))
    sides = Sides(*(x.ravel() for x in (n[:, 0], total[:, 0], n[:, 1], total[:, 1])))
    found = known.model.model.posterior(known.model.model.combined({1: sides})[0])
    p = np.maximum(found.above, found.below)
    sure = np.nonzero(p >= BELIEVED)[0]
    rows = sure[rng.integers(len(sure), size=ROWS // 4)] if len(sure) else sure
    state, pick = np.divmod(rows, len(one))
    first = found.above[rows] >= found.below[rows]
    better = np.where(first, one[pick], other[pick])
    worse = np.where(first, other[pick], one[pick])
    where = np.divmod(state, DECISIONS)
    start: list[Floats] = []
    beside = credited(log, known, rng, ROWS - len(rows))

    def gradient(logits: Floats) -> Floats:
        if not start:
            start.append(logits.copy())
        slope = np.zeros_like(logits)
        gap = logits[*where, better] - logits[*where, worse]
        gap -= start[0][*where, better] - start[0][*where, worse]
        pull = beta * (p[rows] - 1 / (1 + np.exp(-beta * gap)))
        np.add.at(slope, (*where, better), pull)
        np.add.at(slope, (*where, worse), -pull)
        return slope / ROWS / beta + beside(logits) * (ROWS - len(rows)) / ROWS

    return gradient


def _policy_gradient(log: Log, advantage: Floats, rng: np.random.Generator) -> Gradient:
    some = rng.permutation(len(log.task))[: ROWS // DECISIONS]
    at = log.intent[some][:, None], np.arange(DECISIONS)[None, :]
    drawn = np.log(log.policy[*at, log.actions[some]]).sum(axis=1)

    def gradient(logits: Floats) -> Floats:
        now = softmax(logits)
        ratio = np.exp(np.log(now[*at, log.actions[some]]).sum(axis=1) - drawn)
        factor = np.where(advantage[some] < 0, np.minimum(ratio, 1)[:, None], 1.0) * advantage[some]
        slope = np.zeros_like(logits)
        np.add.at(slope, at, -now[at] * factor[:, :, None])
        np.add.at(slope, (*at, log.actions[some]), factor)
        return slope / ROWS

    return gradient


def _lead(log: Log) -> Floats:
    """Return each attempt's lead over the others at its task; over all where there is no other."""
    n, total = np.bincount(log.task)[log.task], np.bincount(log.task, weights=log.outcome)[log.task]
    alone = log.outcome - log.outcome.mean()
    return np.where(n > 1, log.outcome - (total - log.outcome) / np.maximum(n - 1, 1), alone)


def topr(log: Log, known: Believed, rng: np.random.Generator) -> Gradient:
    """Push whole attempts by their lead."""
    del known
    return _policy_gradient(log, np.repeat(_lead(log)[:, None], DECISIONS, axis=1), rng)


def steps(log: Log, known: Believed, rng: np.random.Generator) -> Gradient:
    """Push each step by its credit."""
    return _policy_gradient(log, skill(known, log)[0], rng)


METHODS: dict[str, Method] = {"sft": sft, "credited": credited, "pairs": pairs, "topr": topr, "steps": steps}


class Setting(NamedTuple):
    """How many attempts a round has, and how many of their outcomes are wrong."""

    tasks: int
    each: int
    mislabelled: float = 0.0
    rounds: int = 8


def run(method: Method, setting: Setting, rate: float, seed: int) -> float:
    """Return the last policy's chance of success; a round trains on its own log, and the values know all before it."""
    factors = truth(seed)
    rng = np.random.default_rng(seed + 1000)
    logits = np.zeros((INTENTS, DECISIONS, ACTIONS))
    logs: list[Log] = []
    for number in range(setting.rounds):
        log = attempts(factors, logits, setting, rng)
        log = log._replace(task=log.task + number * setting.tasks)
        logs.append(log)
        gradient = method(log, believed(logs), rng)
        for _ in range(STEPS):
            logits = logits + rate * INTENTS * DECISIONS / STEPS * gradient(logits)
    return success(factors, logits)


def best(name: str, setting: Setting, seeds: int = 3) -> float:
    """Return a method's mean success at its best learning rate."""
    return max(float(np.mean([run(METHODS[name], setting, rate, seed) for seed in range(seeds)])) for rate in RATES)


def main() -> None:
    """Print a line for every method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    for name in METHODS:
        found = [
            best(name, Setting(tasks, each, wrong, arguments.rounds), arguments.seeds)
            for tasks, each, wrong in ((200, 4, 0.0), (200, 4, 0.15), (200, 2, 0.15), (800, 1, 0.0), (800, 1, 0.15))
        ]
        print(f"{name:9} " + "  ".join(f"{value:.2f}" for value in found), flush=True)


if __name__ == "__main__":
    main()
