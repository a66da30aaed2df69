"""Two policies' served episodes → scores, case by case: evaluation from logs alone, with no model to run.

In: what each side's log holds of each attempt. Out: `CaseScore`s of both sides that `compare` sets beside each other,
and what could not be compared. A case is a task; its score is the mean over its attempts. Everything a slice is made of
is known before the new policy acted: the request, and which tools the old one used for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from flywheel.extensions import CaseScore
from flywheel.stages.evaluate.pairing import Case, Matching, match_tasks
from flywheel.stages.evaluate.slices import intents, language, task_groups

__all__ = ["NOT_JUDGED", "SUITE", "Act", "Attempt", "Gap", "Served", "serve"]

SUITE = "served"
SUCCESS = "success"
NOT_JUDGED = "no outcome is known"
MOST_VALUES = 8  # of one kind of slice
LEAST_GAP = 5  # cases of a slice from which on its lack is named
CROWD = 0.5  # share of all cases above which cases that users tie together are no unit any more


class Act(NamedTuple):
    """One action: what makes it the same as another, and its kind: the tools and which arguments they were given."""

    key: str
    kind: str


@dataclass(frozen=True)
class Attempt:
    """One episode, as far as a comparison needs it."""

    episode_id: str
    task_id: str
    request: str  # normal text of the first request; '' where there is none
    score: float | None  # in [0, 1]; None where nobody judged it
    name: str = ""  # the source's name of the task
    user: str | None = None
    tier: str | None = None
    tools: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    well_formed: bool = True
    amounts: Mapping[str, float] = field(default_factory=dict)  # cost, latency, ...: told, not judged
    acts: tuple[Act, ...] = ()


class Gap(NamedTuple):
    """Cases that the old side has and the new one lacks; of a slice, when it lost more than half of its cases."""

    slice: str  # 'all' or name=value
    lacking: int
    of: int
    names: list[str]


@dataclass(frozen=True)
class Served:
    """Both sides' scores and everything that stands beside them."""

    old: list[CaseScore]
    new: list[CaseScore]
    gaps: list[Gap]
    only_new: int
    colliding: list[str]
    paired_by: dict[str, int]
    unit: str  # what is drawn as a whole: "task" or "user"
    binary: bool
    attempts: dict[str, dict[str, list[Attempt]]]  # case → side → judged attempts
    acted: dict[str, dict[str, list[Attempt]]]  # case → side → all attempts
    units: dict[str, str]  # case → what it is drawn with


def serve(
    old: Sequence[Attempt],
    new: Sequence[Attempt],
    *,
    declared: Callable[[Attempt], Mapping[str, str]] = lambda _: {},
) -> Served:
    """Set two policies' attempts beside each other.

    Args:
        old: what the old policy served, in any order.
        new: what the new one served.
        declared: declared slices of an attempt, name → value.
    """
    sides = (_by_task(old), _by_task(new))
    matching = match_tasks(
        *({t: sorted({a.request for a in made if a.request}) for t, made in s.items()} for s in sides)
    )
    cases = {case.case_id: case for case in matching.cases}
    made = {name: _of(case, sides) for name, case in cases.items()}
    scored = {name: tuple([a for a in side if a.score is not None] for side in both) for name, both in made.items()}
    binary = all(len(s) <= 1 and all(a.score in {0.0, 1.0} for a in s) for both in scored.values() for s in both)
    wanted = {name: both for name, both in made.items() if cases[name].old}
    slices = _slices(wanted, declared)
    units, unit = _units({name: scored[name] for name in wanted})
    named = {name: _name(cases[name], both) for name, both in made.items()}
    scores = [
        [s for name in wanted for s in _scores(name, units[name], scored[name][side], slices[name], binary=binary)]
        for side in (0, 1)
    ]
    return Served(
        old=scores[0],
        new=scores[1],
        gaps=_gaps(wanted, scored, slices, named),
        only_new=sum(not case.old for case in cases.values()),
        colliding=sorted({_names(sides, task) for task in matching.colliding}),
        paired_by=_paired_by(matching),
        unit=unit,
        binary=binary,
        attempts={name: {"old": scored[name][0], "new": scored[name][1]} for name in wanted},
        acted={name: {"old": both[0], "new": both[1]} for name, both in wanted.items()},
        units=units,
    )


_Both = tuple[list[Attempt], list[Attempt]]


def _by_task(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    ordered = sorted(attempts, key=lambda a: (a.task_id, a.episode_id))
    return {task: list(made) for task, made in groupby(ordered, key=lambda a: a.task_id)}


def _of(case: Case, sides: tuple[dict[str, list[Attempt]], dict[str, list[Attempt]]]) -> _Both:
    old, new = (
        [a for task in tasks for a in side[task]] for tasks, side in zip((case.old, case.new), sides, strict=True)
    )
    return old, new


def _names(sides: tuple[dict[str, list[Attempt]], dict[str, list[Attempt]]], task: str) -> str:
    return next((a.name for side in sides for a in side.get(task, ()) if a.name), task)


def _name(case: Case, both: _Both) -> str:
    return next((a.name for side in both for a in side if a.name), case.case_id)


def _paired_by(matching: Matching) -> dict[str, int]:
    return dict(sorted(Counter(case.by for case in matching.cases if case.old and case.new).items()))


# --- scores --------------------------------------------------------------------------------------------------------


def _scores(
    name: str, unit: str, judged: Sequence[Attempt], slices: Mapping[str, str | tuple[str, ...]], *, binary: bool
) -> list[CaseScore]:
    """Return a case's scores of one side; nothing where the side has no attempt that was judged."""
    if not judged:
        return []
    success = _mean([a.score for a in judged if a.score is not None])
    form = _mean([float(a.well_formed) for a in judged])
    return [
        CaseScore(name, unit, SUCCESS, success, binary=binary, primary=True, slices=slices),
        CaseScore(name, unit, "well_formed", form, binary=binary),
    ]


def _mean(values: Sequence[float]) -> float:
    return min(1.0, max(0.0, math.fsum(values) / len(values)))


def _units(scored: Mapping[str, tuple[list[Attempt], ...]]) -> tuple[dict[str, str], str]:
    """Return what is drawn as a whole for each case: the task, or where users are known, the users behind it.

    Cases that one user ties together are one unit. Where users tie more than half of all cases together nothing would
    be left to draw, and a case counts to its commonest user.
    """
    users = {name: Counter(a.user for side in both for a in side if a.user) for name, both in scored.items()}
    users = {name: counts for name, counts in users.items() if counts}
    if len(users) < len(scored) or not users:
        return {name: name for name in scored}, "task"
    tied = _tied(users)
    if max(Counter(tied.values()).values()) > CROWD * len(tied):
        tied = {name: min(counts, key=lambda user: (-counts[user], user)) for name, counts in users.items()}
    return tied, "user"


def _tied(users: Mapping[str, Counter[str]]) -> dict[str, str]:
    parent: dict[str, str] = {}

    def find(user: str) -> str:
        root = user
        while parent.setdefault(root, root) != root:
            root = parent[root]
        while parent[user] != root:
            parent[user], user = root, parent[user]
        return root

    for counts in users.values():
        roots = sorted({find(user) for user in counts})
        for root in roots[1:]:
            parent[root] = roots[0]
    return {name: find(min(counts)) for name, counts in users.items()}


# --- slices and gaps -----------------------------------------------------------------------------------------------


def _slices(
    wanted: Mapping[str, _Both], declared: Callable[[Attempt], Mapping[str, str]]
) -> dict[str, dict[str, str | tuple[str, ...]]]:
    """Return each case's slices; of a kind the most frequent values only, and no two that hold the same cases."""
    found: dict[str, dict[str, set[str]]] = {}  # kind → value → cases
    for kind, by_case in _kinds(wanted, declared).items():
        for case, values in by_case.items():
            for value in values:
                found.setdefault(kind, {}).setdefault(value, set()).add(case)
    slices: dict[str, dict[str, list[str]]] = {case: {} for case in wanted}
    seen: set[frozenset[str]] = {frozenset(wanted)}
    for kind, values in found.items():
        largest = sorted(values, key=lambda value: (-len(values[value]), value))
        for value in largest[: MOST_VALUES if kind in _FOUND else None]:
            if frozenset(values[value]) in seen:
                continue
            seen.add(frozenset(values[value]))
            for case in values[value]:
                slices[case].setdefault(kind, []).append(value)
    return {case: {kind: tuple(sorted(v)) for kind, v in kinds.items()} for case, kinds in slices.items()}


_FOUND = ("tier", "group", "language", "tool", "intent", "tag")


def _kinds(
    wanted: Mapping[str, _Both], declared: Callable[[Attempt], Mapping[str, str]]
) -> dict[str, dict[str, Iterable[str]]]:
    """Return the values of each kind of slice by case; declared ones first, so that they win over found ones."""
    kinds: dict[str, dict[str, Iterable[str]]] = {}
    for case, (old, _) in wanted.items():
        for attempt in old:
            for kind, value in sorted(declared(attempt).items()):
                kinds.setdefault(kind, {}).setdefault(case, set())
                kinds[kind][case] = {*kinds[kind][case], value}
    requests = {case: old[0].request for case, (old, _) in wanted.items()}
    names = {case: next((a.name for a in old if a.name), "") for case, (old, _) in wanted.items()}
    kinds["tier"] = {case: {a.tier for a in old if a.tier} for case, (old, _) in wanted.items()}
    kinds["group"] = {case: [group] for case, group in task_groups(names).items()}
    kinds["language"] = {case: [name] for case, text in requests.items() if (name := language(text))}
    kinds["tool"] = {case: {tool for a in old for tool in a.tools} for case, (old, _) in wanted.items()}
    kinds["intent"] = {case: [name] for case, name in intents(requests).items()}
    kinds["tag"] = {case: {tag for a in old for tag in a.tags} for case, (old, _) in wanted.items()}
    return kinds


def _gaps(
    wanted: Mapping[str, _Both],
    scored: Mapping[str, tuple[list[Attempt], ...]],
    slices: Mapping[str, Mapping[str, str | tuple[str, ...]]],
    named: Mapping[str, str],
) -> list[Gap]:
    """Return what the old side has and the new one lacks: over all, and slices that lost more than half of theirs."""
    have = [case for case in wanted if scored[case][0]]
    groups: dict[str, list[str]] = {"all": have}
    for case in have:
        for kind, values in slices[case].items():
            for value in (values,) if isinstance(values, str) else values:
                groups.setdefault(f"{kind}={value}", []).append(case)
    found = []
    for name, cases in groups.items():
        lacking = [case for case in cases if not scored[case][1]]
        most = 0 if name == "all" else len(cases) / 2
        if len(lacking) > most and (name == "all" or len(cases) >= LEAST_GAP):
            found.append(Gap(name, len(lacking), len(cases), sorted(named[case] for case in lacking)))
    return found
