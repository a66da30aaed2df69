"""Which tasks of two logs are the same task?

In: each side's tasks with what was asked in them (normal text of the first request of each attempt). Out: cases, each
with the old side's and the new side's tasks that it consists of.

An id that somebody gave is believed: requests in other words under it are the same task, as real and simulated users
word each attempt differently. Two things speak against it. The other side has the same request under another id:
then that is its task. Or the ids merely count, as lines of two data sets do, and the requests behind equal numbers are
no more alike than those behind different ones; or nearly all requests are equal word for word, and this one is another.
Where ids do not help, the text does: equal requests under different ids are one task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from flywheel.stages.common.sets import DisjointSets
from flywheel.stages.evaluate.cases import capped
from flywheel.stats.paired import mcnemar_better

GRAM = 4  # characters
LIKE = 0.5  # texts that are certainly the same request in other words
APART = 0.2  # how much more alike requests of one id must be than those of different ids
WORDED = 0.8  # share of equal texts from which on texts count as verbatim
STRANGERS = 0.15  # likeness of unrelated requests, where there are too few to measure it
CHANCE = 0.001  # p-value of "requests behind equal numbers are alike by chance" below which the numbers agree
_LOOKED_AT = 200
_COUNTER = r"(?:(?:task|case|id|row|line|index|idx|item|sample|example|question|q|test)[\W_]*)?\d+"
_COUNTS = re.compile(_COUNTER, re.IGNORECASE)

_Node = tuple[int, str]  # side, task id
Texts = Mapping[str, Sequence[str]]  # task id → normal texts of its attempts' first requests


class Case(NamedTuple):
    """One task as both sides know it; sorted task ids, one side's may be empty."""

    case_id: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    by: str  # "id" or "text"


@dataclass(frozen=True)
class Matching:
    """Cases in order of their ids, and the ids that both sides use for different requests."""

    cases: list[Case] = field(default_factory=list)
    colliding: list[str] = field(default_factory=list)


def likeness(one: str, other: str) -> float:
    """Return the share of four-letter sequences that two texts have in common, from 0 to 1."""
    if one == other:
        return 1.0
    ours, theirs = ({t[i : i + GRAM] for i in range(max(1, len(t) - GRAM + 1))} for t in (one, other))
    return len(ours & theirs) / len(ours | theirs)


def _alike(ours: Sequence[str], theirs: Sequence[str]) -> float:
    return max((likeness(a, b) for a in ours for b in theirs), default=1.0)


def match_tasks(old: Texts, new: Texts, names: Mapping[str, str] | None = None) -> Matching:
    """Return the cases of two logs.

    Args:
        old: the old side's tasks with the normal texts of their first requests; [] where there is none.
        new: the new side's.
        names: task id → what the logs call the task; the id itself by default.
    """
    by_id, colliding = _trusted(old, new, names or {})
    if by_id == old.keys() == new.keys():
        return Matching([Case(task, (task,), (task,), "id") for task in sorted(by_id)], colliding)
    parts = DisjointSets[_Node]()
    for task in by_id:
        parts.join([(0, task), (1, task)])
    _join_by_text(parts, old, new, by_id)
    members: dict[tuple[int, str], tuple[list[str], list[str]]] = {}
    for side, tasks in enumerate((old, new)):
        for task in sorted(tasks):
            members.setdefault(parts.root((side, task)), ([], []))[side].append(task)
    cases = [
        Case(min(ours or theirs), tuple(ours), tuple(theirs), "id" if by_id & {*ours} & {*theirs} else "text")
        for ours, theirs in members.values()
    ]
    return Matching(_named_apart(cases), colliding)


def _named_apart(cases: list[Case]) -> list[Case]:
    """Return the cases in order; what only the new side has under an id of the old one gets another name."""
    taken = {case.case_id for case in cases if case.old}
    named = [c if c.old or c.case_id not in taken else c._replace(case_id=f"{c.case_id}/new") for c in cases]
    return sorted(named)


def _trusted(old: Texts, new: Texts, names: Mapping[str, str]) -> tuple[set[str], list[str]]:
    """Return the common ids that mean the same task on both sides, and those that do not."""
    common = sorted(old.keys() & new.keys())
    equal = {t for t in common if not old[t] or not new[t] or set(old[t]) & set(new[t])}
    differing = [task for task in common if task not in equal]
    if not differing:
        return equal, []
    owners = (_owners(old), _owners(new))
    verbatim = len(equal) >= WORDED * len(common)
    doubted = {t for t in differing if verbatim or _COUNTS.fullmatch(names.get(t, t).strip())}
    needed = _needed(old, new, common, verbatim=verbatim) if doubted else 0.0
    moved = {t for t in differing if _elsewhere(t, old, new, owners)}
    unlike = {t for t in doubted - moved if _alike(old[t], new[t]) < needed}
    return {*common} - moved - unlike, sorted(moved | unlike)


def _needed(old: Texts, new: Texts, common: list[str], *, verbatim: bool) -> float:
    """Return how alike two differing requests of one number must be for it to be trusted; 0 where the numbers agree."""
    if verbatim:
        return LIKE
    some = capped(common, _LOOKED_AT)
    own = [_alike(old[task], new[task]) for task in some]
    others = [_alike(old[a], new[b]) for a, b in zip(some, [*some[1:], *some[:1]], strict=True) if a != b]
    strangers = sum(others) / len(others) if others else STRANGERS
    if sum(own) / len(own) >= strangers + APART:
        return 0.0
    more = sum(a > b for a, b in zip(own, others, strict=False))
    return 0.0 if mcnemar_better(more, sum(a < b for a, b in zip(own, others, strict=False))) <= CHANCE else LIKE


def _owners(tasks: Texts) -> dict[str, set[str]]:
    owners: dict[str, set[str]] = {}
    for task, texts in tasks.items():
        for text in texts:
            owners.setdefault(text, set()).add(task)
    return owners


def _elsewhere(task: str, old: Texts, new: Texts, owners: tuple[dict[str, set[str]], dict[str, set[str]]]) -> bool:
    """Return whether a request of one side under this id is on the other side under another id, and only there."""
    texts = {*old[task], *new[task]}
    return any(len(mine := side.get(text, set())) == 1 and task not in mine for side in owners for text in texts)


def _join_by_text(parts: DisjointSets[_Node], old: Texts, new: Texts, by_id: set[str]) -> None:
    """Join tasks that ids do not pair by equal requests; to a pair of ids too, if it alone asks this."""
    holders: dict[str, list[tuple[int, str]]] = {}
    for side, tasks in enumerate((old, new)):
        for task in sorted(tasks):
            for text in tasks[task]:
                holders.setdefault(text, []).append((side, task))
    for _, nodes in sorted(holders.items()):
        unpaired = [node for node in nodes if node[1] not in by_id]
        paired = {parts.root(node) for node in nodes if node[1] in by_id}
        if unpaired:
            parts.join([*unpaired, *(paired if len(paired) == 1 else ())])
