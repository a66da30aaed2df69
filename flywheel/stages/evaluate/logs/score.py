"""Two policies' served episodes → scores, case by case: evaluation from logs alone, with no model to run.

In: what each side's log holds of each attempt. Out: `CaseScore`s of both sides for `compare`, and what could not be
compared. A case is a task; its score is the mean over its attempts. Everything a slice is made of is known before the
new policy acted: the request, and which tools the old one used for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from flywheel.config import SliceRule
from flywheel.extensions import CaseScore
from flywheel.stages.common.sets import DisjointSets
from flywheel.stages.evaluate.attempt import Attempt
from flywheel.stages.evaluate.logs.match_tasks import match_tasks
from flywheel.stages.evaluate.slices import Gap, case_slices, gaps

SUITE = "served"
SUCCESS, SCORE = "success", "score"  # the primary metric: of outcomes that are yes or no; of graded ones
NO_OUTCOME = "no outcome is known"
CROWD = 0.5  # share of all cases above which cases tied together by users do not make a unit


@dataclass(frozen=True)
class Served:
    """Both sides' scores, and everything else that a comparison shows."""

    old: list[CaseScore]
    new: list[CaseScore]
    gaps: list[Gap]
    only_new: int
    colliding: list[str]
    paired_by: dict[str, int]
    unit: str  # what is resampled as one: "task" or "user"
    binary: bool
    graded: bool  # whether an outcome is a score between worst and best, so that no mean of them is a rate
    attempts: dict[str, dict[str, list[Attempt]]]  # case → side → attempts with an outcome
    acted: dict[str, dict[str, list[Attempt]]]  # case → side → all attempts
    units: dict[str, str]  # case → the unit that it is resampled with


def serve(
    old: Sequence[Attempt],
    new: Sequence[Attempt],
    *,
    rules: Sequence[SliceRule] = (),
) -> Served:
    """Pair two policies' attempts, case by case.

    Args:
        old: what the old policy served, in any order.
        new: what the new one served.
        rules: declared slices.
    """
    sides = (_by_task(old), _by_task(new))
    names = {task: _names(sides, task) for task in sides[0].keys() & sides[1].keys()}
    asked = [{t: sorted({a.request for a in attempts if a.request}) for t, attempts in s.items()} for s in sides]
    matching = match_tasks(asked[0], asked[1], names)
    cases = {case.case_id: case for case in matching.cases}
    attempts = {name: (_all_of(case.old, sides[0]), _all_of(case.new, sides[1])) for name, case in cases.items()}
    scored = {name: tuple([a for a in side if a.score is not None] for side in both) for name, both in attempts.items()}
    binary = all(len(s) <= 1 and all(a.score in {0.0, 1.0} for a in s) for both in scored.values() for s in both)
    graded = any(a.score not in {0.0, 1.0} for both in scored.values() for side in both for a in side)
    metric = SCORE if graded else SUCCESS
    wanted = {name: both for name, both in attempts.items() if cases[name].old}
    slices = case_slices({name: both[0] for name, both in wanted.items()}, rules)
    units, unit = _units({name: scored[name] for name in wanted})
    have = [name for name in wanted if scored[name][0]]
    named = {
        name: next((a.name for side in both for a in side if a.name), cases[name].case_id)
        for name, both in attempts.items()
    }
    scores = [
        [
            s
            for name in wanted
            for s in _scores(name, units[name], scored[name][side], slices[name], metric=metric, binary=binary)
        ]
        for side in (0, 1)
    ]
    return Served(
        old=scores[0],
        new=scores[1],
        gaps=gaps(have, {name for name in have if not scored[name][1]}, slices, named),
        only_new=sum(not case.old for case in cases.values()),
        colliding=sorted({_names(sides, task) for task in matching.colliding}),
        paired_by=dict(sorted(Counter(case.by for case in matching.cases if case.old and case.new).items())),
        unit=unit,
        binary=binary,
        graded=graded,
        attempts={name: {"old": scored[name][0], "new": scored[name][1]} for name in wanted},
        acted={name: {"old": both[0], "new": both[1]} for name, both in wanted.items()},
        units=units,
    )


_Both = tuple[list[Attempt], list[Attempt]]


def _by_task(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    ordered = sorted(attempts, key=lambda a: (a.task_id, a.episode_id))
    return {task: list(attempts) for task, attempts in groupby(ordered, key=lambda a: a.task_id)}


def _all_of(tasks: Sequence[str], side: Mapping[str, list[Attempt]]) -> list[Attempt]:
    return side[tasks[0]] if len(tasks) == 1 else [a for task in tasks for a in side[task]]


def _names(sides: tuple[dict[str, list[Attempt]], dict[str, list[Attempt]]], task: str) -> str:
    return next((a.name for side in sides for a in side.get(task, ()) if a.name), task)


# --- scores --------------------------------------------------------------------------------------------------------


def _scores(
    name: str,
    unit: str,
    attempts: Sequence[Attempt],
    slices: Mapping[str, tuple[str, ...]],
    *,
    metric: str,
    binary: bool,
) -> list[CaseScore]:
    """Return a case's scores of one side; nothing where the side has no attempt with an outcome."""
    if not attempts:
        return []
    success = _mean([a.score or 0.0 for a in attempts])
    form = _mean([float(a.well_formed) for a in attempts])
    return [
        CaseScore(name, unit, metric, success, binary=binary, primary=True, slices=slices),
        CaseScore(name, unit, "well_formed", form, binary=binary),
    ]


def _mean(values: Sequence[float]) -> float:
    return values[0] if len(values) == 1 else min(1.0, max(0.0, math.fsum(values) / len(values)))


def _units(scored: Mapping[str, tuple[list[Attempt], ...]]) -> tuple[dict[str, str], str]:
    """Return the unit that each case is resampled with: the task, or where users are known, the users behind it.

    Cases that one user ties together are one unit. Where users tie more than half of all cases together, too little
    would be left to resample, and a case counts to its most frequent user.
    """
    if not scored or not all(any(a.user for side in both for a in side) for both in scored.values()):
        return {name: name for name in scored}, "task"
    users = {name: Counter(a.user for side in both for a in side if a.user) for name, both in scored.items()}
    tied = _tied(users)
    if max(Counter(tied.values()).values()) > CROWD * len(tied):
        tied = {name: min(counts, key=lambda user: (-counts[user], user)) for name, counts in users.items()}
    return tied, "user"


def _tied(users: Mapping[str, Counter[str]]) -> dict[str, str]:
    sets = DisjointSets[str]()
    for counts in users.values():
        sets.join(counts)
    return {name: sets.root(min(counts)) for name, counts in users.items()}
