"""Which slices a case is in, declared and found, and which cases of each one side lacks.

In: each case's attempts by the old policy (of a round: the logged ones at the held-out task), and the declared rules.
Out: kind → values for each case. The same for two logs and for a round. Found slices are the language of a request, its
intent, groups of tasks, tools, tags and tiers. Nothing here looks at an outcome or at what the new policy did, so that
a slice cannot be chosen by its result.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from flywheel.stages.evaluate.attempt import Attempt
from flywheel.stages.evaluate.cases import capped
from flywheel.stages.evaluate.rows import Standing

if TYPE_CHECKING:
    from flywheel.config import SliceRule

    Floats = npt.NDArray[np.float64]

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
    """Return each declared kind of slice with its standing: declared, or unguarded by the rule."""
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
    return {case: {kind: tuple(sorted(v)) for kind, v in by_kind.items()} for case, by_kind in slices.items()}


def _found(cases: Cases) -> dict[str, _ByValue]:
    """Return the cases of each value of each kind."""
    first = {case: attempts[0] for case, attempts in cases.items() if attempts}
    requests = {case: attempt.request for case, attempt in first.items()}
    names = {case: next((a.name for a in attempts if a.name), "") for case, attempts in cases.items()}
    spoken = {text: language(text) for text in set(requests.values())}
    return {
        "tier": _by_value((case, a.tier) for case, attempts in cases.items() for a in attempts if a.tier),
        "group": _by_value(task_groups(names).items()),
        "language": _by_value((case, name) for case, text in requests.items() if (name := spoken[text])),
        "tool": _by_value((case, tool) for case, attempts in cases.items() for a in attempts for tool in a.tools),
        "intent": _by_value(intents(requests).items()),
        "tag": _by_value((case, tag) for case, attempts in cases.items() for a in attempts for tag in a.tags),
    }


def _by_value(pairs: Iterable[tuple[str, str]]) -> _ByValue:
    by_value: _ByValue = {}
    for case, value in pairs:
        by_value.setdefault(value, set()).add(case)
    return by_value


# --- declared ------------------------------------------------------------------------------------------------------


def _declared(rule: SliceRule, cases: Cases, kinds: Mapping[str, _ByValue]) -> set[str]:
    """Return the cases of a declared slice: those with an attempt that meets every condition of the rule."""
    pattern = re.compile(rule.request, re.IGNORECASE)
    members = set(cases)
    for kind, wanted in (("language", rule.language), ("intent", rule.intent)):
        if wanted:
            alike = [members_of for value, members_of in kinds[kind].items() if fnmatchcase(value, wanted)]
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
    gaps_found = []
    for name, cases in groups.items():
        missing = [case for case in cases if case in lacking]
        most = 0 if name == "all" else len(cases) / 2
        if len(missing) > most and (name == "all" or len(cases) >= LEAST_GAP):
            gaps_found.append(Gap(name, len(missing), len(cases), sorted(names.get(case, case) for case in missing)))
    return gaps_found


# --- found: language, intent, group of tasks -------------------------------------------------------------------------

LEAST_CASES = 20  # below, grouping requests gains nothing
MOST_INTENTS = 8
CASES_AN_INTENT = 10
_WORDS, _TEXT, _LEARNT_FROM, _ROUNDS = 256, 400, 5_000, 12

# Words that are frequent in one language and rare in the others.
_COMMON = {
    "en": "the and to of is you for my please with that what how can this i a was did who which where when does have "
    "has from by it be or are not get will would could about there their an on at in",
    "de": "der die das und ist ich nicht ein eine bitte mit wie den für sie wir auf von können möchte",
    "fr": "le la les et est je vous une des pour pas dans que avec bonjour mon sur un du veux",
    "es": "el los las y es por una para con que mi hola quiero cómo del en un favor no",
    "it": "il gli e è per una non con che mi della sono vorrei di un come ciao grazie la",
    "pt": "os as e é para uma não com que meu por você quero olá do da em um como",
    "nl": "de het een en is ik niet van voor met dat wat mijn hoe kan je graag wil op",
}
_SETS = {name: frozenset(words.split()) for name, words in _COMMON.items()}
_STOP = frozenset(word for words in _SETS.values() for word in words)
_LANGUAGES = {word: [name for name, words in _SETS.items() if word in words] for word in sorted(_STOP)}
_SCRIPTS = (
    ("ja", "\u3040", "\u30ff"), ("ko", "\uac00", "\ud7af"), ("zh", "\u4e00", "\u9fff"), ("ru", "\u0400", "\u04ff"),
    ("el", "\u0370", "\u03ff"), ("ar", "\u0600", "\u06ff"), ("he", "\u0590", "\u05ff"), ("hi", "\u0900", "\u097f"),
    ("th", "\u0e00", "\u0e7f"),
)  # fmt: skip
_WORD = re.compile(r"[^\W\d_]+")


def language(text: str) -> str | None:
    """Return the language of a text by its script or its commonest small words; None where they do not decide."""
    text = text[:2_000]
    by_script = None if text.isascii() else _script(text)
    if by_script is not None:
        return by_script
    hits = Counter(name for word in _WORD.findall(text.casefold()) for name in _LANGUAGES.get(word, ()))
    ranked = sorted(((n, name) for name, n in hits.items()), key=lambda pair: (-pair[0], pair[1]))
    if not ranked or ranked[0][0] < 2 or (len(ranked) > 1 and ranked[1][0] == ranked[0][0]):  # noqa: PLR2004 - two words
        return None
    return ranked[0][1]


def _script(text: str) -> str | None:
    letters = [c for c in text if c.isalpha()]
    for name, first, last in _SCRIPTS:
        if sum(first <= c <= last for c in letters) > 0.2 * len(letters):
            return name
    return None


def task_groups(names: Mapping[str, str]) -> dict[str, str]:
    """Return the group of each case whose task name is a path: mint/gsm8k/7 is of the group mint/gsm8k."""
    return {case: name.rpartition("/")[0] for case, name in names.items() if "/" in name}


def intents(texts: Mapping[str, str]) -> dict[str, str]:
    """Return what each request is about, as its group's three most distinctive words; {} where there are too few.

    Spherical k-means over the 256 most frequent distinctive words, without randomness: equal requests, equal groups.
    """
    cases = sorted(case for case, text in texts.items() if text.strip())
    k = min(MOST_INTENTS, len(cases) // CASES_AN_INTENT)
    if len(cases) < LEAST_CASES:
        return {}
    bags = [_bag(texts[case]) for case in cases]
    words = _distinctive(bags)
    if len(words) < k:
        return {}
    vectors = _vectors(bags, words)
    learnt = sorted(int(i) for i in capped([f"{i}" for i in range(len(cases))], _LEARNT_FROM))
    centres = _centres(vectors[learnt], k)
    nearest = (vectors @ centres.T).argmax(axis=1)
    names = [_name(centre, words) for centre in centres]
    return {case: names[i] for case, i, bag in zip(cases, nearest.tolist(), bags, strict=True) if bag & words.keys()}


def _bag(text: str) -> frozenset[str]:
    return frozenset(w for w in _WORD.findall(text[:_TEXT].casefold()) if w not in _STOP and len(w) > 2)  # noqa: PLR2004


def _distinctive(bags: Sequence[frozenset[str]]) -> dict[str, float]:
    """Return the words that some requests have and others have not, with their weights."""
    counts = Counter(word for bag in bags for word in bag)
    some = [(n, w) for w, n in counts.items() if 3 <= n <= len(bags) / 2]  # noqa: PLR2004 - once or twice is not a group
    chosen = sorted(some, key=lambda pair: (-pair[0], pair[1]))[:_WORDS]
    return {word: math.log(len(bags) / n) for n, word in sorted(chosen, key=lambda pair: pair[1])}


def _vectors(bags: Sequence[frozenset[str]], words: Mapping[str, float]) -> Floats:
    place = {word: i for i, word in enumerate(words)}
    weights = np.zeros((len(bags), len(words)))
    for row, bag in enumerate(bags):
        for word in bag & words.keys():
            weights[row, place[word]] = words[word]
    unit: Floats = weights / np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-12)
    return unit


def _centres(vectors: Floats, k: int) -> Floats:
    chosen = [int((vectors @ vectors.mean(axis=0)).argmax())]
    nearest = vectors @ vectors[chosen[0]]
    while len(chosen) < k:
        chosen.append(int(np.where(np.linalg.norm(vectors, axis=1) > 0, nearest, np.inf).argmin()))
        nearest = np.maximum(nearest, vectors @ vectors[chosen[-1]])
    centres = vectors[chosen]
    for _ in range(_ROUNDS):
        owner = (vectors @ centres.T).argmax(axis=1)
        sums = np.array([vectors[owner == i].sum(axis=0) for i in range(k)])
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(norms > 0, sums / np.maximum(norms, 1e-12), centres)
    return centres


def _name(centre: Floats, words: Mapping[str, float]) -> str:
    names = list(words)
    return " ".join(names[i] for i in sorted(range(len(names)), key=lambda i: (-centre[i], names[i]))[:3])
