"""Which slices a case is in, declared and found, and which cases of each one side lacks.

In: each case's attempts by the old policy (of a round: the logged ones at the held-out task), and the declared rules.
Out: kind → values for each case. The same for two logs and for a round beside the champion. Nothing here looks at an
outcome or at what the new policy did, so that a slice cannot be chosen by its result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from flywheel.stages.evaluate.attempt import Attempt
from flywheel.stages.evaluate.rows import Standing
from flywheel.stages.evaluate.slices import intents, language, task_groups

if TYPE_CHECKING:
    from flywheel.config import SliceRule

__all__ = ["Gap", "Slices", "case_slices", "gaps", "standings"]

MOST_VALUES = 8  # of one kind of found slice
LEAST_GAP = 5  # cases of a slice from which on its lack is named
_DECLARED = "slice "

Slices = dict[str, dict[str, tuple[str, ...]]]  # case → kind → values
Cases = Mapping[str, Sequence[Attempt]]
_ByValue = dict[str, set[str]]  # value → cases


class Gap(NamedTuple):
    """Cases that the old side has and the new one lacks; of a slice, when it lost more than half of its cases."""

    slice: str  # 'all' or name=value
    lacking: int
    of: int
    names: list[str]


def standings(rules: Sequence[SliceRule]) -> dict[str, Standing]:
    """Return each declared kind of slice with its standing: declared, or unguarded where the rule says so."""
    return {f"{_DECLARED}{rule.name}": "declared" if rule.guarded else "unguarded" for rule in rules}


def case_slices(cases: Cases, rules: Sequence[SliceRule] = ()) -> Slices:
    """Return each case's slices.

    Declared ones whole; of a found kind the eight largest values, and none that holds the same cases as one before it
    or all of them.
    """
    kinds = _found(cases)
    slices: dict[str, dict[str, list[str]]] = {case: {} for case in cases}
    seen: set[frozenset[str]] = {frozenset(cases)}
    for rule in rules:
        members = _declared(rule, cases, kinds)
        seen.add(frozenset(members))
        for case in members:
            slices[case][f"{_DECLARED}{rule.name}"] = ["yes"]
    for kind, values in kinds.items():
        for value in sorted(values, key=lambda value: (-len(values[value]), value))[:MOST_VALUES]:
            if frozenset(values[value]) not in seen:
                seen.add(frozenset(values[value]))
                for case in values[value]:
                    slices[case].setdefault(kind, []).append(value)
    return {case: {kind: tuple(sorted(v)) for kind, v in found.items()} for case, found in slices.items()}


def _found(cases: Cases) -> dict[str, _ByValue]:
    """Return the cases of each value of each kind."""
    first = {case: made[0] for case, made in cases.items() if made}
    requests = {case: attempt.request for case, attempt in first.items()}
    names = {case: next((a.name for a in made if a.name), "") for case, made in cases.items()}
    spoken = {text: language(text) for text in set(requests.values())}
    return {
        "tier": _by_value((case, a.tier) for case, made in cases.items() for a in made if a.tier),
        "group": _by_value(task_groups(names).items()),
        "language": _by_value((case, name) for case, text in requests.items() if (name := spoken[text])),
        "tool": _by_value((case, tool) for case, made in cases.items() for a in made for tool in a.tools),
        "intent": _by_value(intents(requests).items()),
        "tag": _by_value((case, tag) for case, made in cases.items() for a in made for tag in a.tags),
    }


def _by_value(pairs: Iterable[tuple[str, str]]) -> _ByValue:
    found: _ByValue = {}
    for case, value in pairs:
        found.setdefault(value, set()).add(case)
    return found


# --- declared ------------------------------------------------------------------------------------------------------


def _declared(rule: SliceRule, cases: Cases, kinds: Mapping[str, _ByValue]) -> set[str]:
    """Return the cases of a declared slice: those with an attempt for which all that the rule says holds."""
    pattern = re.compile(rule.request, re.IGNORECASE)
    members = set(cases)
    for kind, wanted in (("language", rule.language), ("intent", rule.intent)):
        if wanted:
            alike = [made for value, made in kinds[kind].items() if fnmatchcase(value, wanted)]
            members &= set().union(*alike)
    return {case for case in members if any(_holds(rule, pattern, attempt) for attempt in cases[case])}


def _holds(rule: SliceRule, pattern: re.Pattern[str], attempt: Attempt) -> bool:
    return (
        fnmatchcase(attempt.name, rule.task or "*")
        and (not rule.tool or any(fnmatchcase(tool, rule.tool) for tool in attempt.tools))
        and (not rule.tag or any(fnmatchcase(tag, rule.tag) for tag in attempt.tags))
        and (not rule.tier or fnmatchcase(attempt.tier or "", rule.tier))
        and all(fnmatchcase(attempt.columns.get(name, ""), wanted) for name, wanted in rule.where.items())
        and bool(pattern.search(attempt.request))
    )


# --- gaps ----------------------------------------------------------------------------------------------------------


def gaps(have: Collection[str], lacking: Collection[str], slices: Slices, names: Mapping[str, str]) -> list[Gap]:
    """Return what one side has and the other lacks: over all, and slices that lost more than half of their cases.

    Args:
        have: cases of the old side.
        lacking: those of them that the new side has not.
        slices: of the cases.
        names: what a case is called, where it has a name.
    """
    groups: dict[str, list[str]] = {"all": list(have)}
    for case in have if lacking else ():
        for kind, values in slices.get(case, {}).items():
            for value in values:
                groups.setdefault(f"{kind}={value}", []).append(case)
    found = []
    for name, cases in groups.items():
        missing = [case for case in cases if case in lacking]
        most = 0 if name == "all" else len(cases) / 2
        if len(missing) > most and (name == "all" or len(cases) >= LEAST_GAP):
            found.append(Gap(name, len(missing), len(cases), sorted(names.get(case, case) for case in missing)))
    return found
