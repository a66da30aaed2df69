"""Slices that are found, not declared: the language of a request, what it is about, groups of tasks.

In: what was asked, case by case. Out: a name of a slice for each case. Nothing here looks at an outcome or at what the
candidate did, so that a slice cannot be chosen by its result.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flywheel.stages.evaluate.cases import capped

if TYPE_CHECKING:
    Floats = npt.NDArray[np.float64]

__all__ = ["intents", "language", "task_groups"]

LEAST_CASES = 20  # below, nothing is gained by taking requests apart
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
    """Return the language of a text by its script or its commonest small words; None where they do not say."""
    text = text[:2_000]
    found = None if text.isascii() else _script(text)
    if found is not None:
        return found
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
    """Return what each request is about, as its group's three most telling words; {} where there is little to group.

    Spherical k-means over the 256 most frequent telling words. No randomness: the same requests give the same groups.
    """
    cases = sorted(case for case, text in texts.items() if text.strip())
    k = min(MOST_INTENTS, len(cases) // CASES_AN_INTENT)
    if len(cases) < LEAST_CASES:
        return {}
    bags = [_bag(texts[case]) for case in cases]
    words = _telling(bags)
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


def _telling(bags: Sequence[frozenset[str]]) -> dict[str, float]:
    """Return the words that some requests have and others have not, with their weights."""
    import math

    counts = Counter(word for bag in bags for word in bag)
    some = [(n, w) for w, n in counts.items() if 3 <= n <= len(bags) / 2]  # noqa: PLR2004 - once or twice is no group
    chosen = sorted(some, key=lambda pair: (-pair[0], pair[1]))[:_WORDS]
    return {word: math.log(len(bags) / n) for n, word in sorted(chosen, key=lambda pair: pair[1])}


def _vectors(bags: Sequence[frozenset[str]], words: Mapping[str, float]) -> Floats:
    place = {word: i for i, word in enumerate(words)}
    found = np.zeros((len(bags), len(words)))
    for row, bag in enumerate(bags):
        for word in bag & words.keys():
            found[row, place[word]] = words[word]
    unit: Floats = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
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
