"""Whether two actions are the same in other words, so that neither is better.

In: a pair. Out: yes or no. Between calls any difference is a real one, but for sentences in them and for how a search
words what it looks for.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from flywheel.records import canonical_json, texts_in
from flywheel.stages.common.tools import is_search
from flywheel.stages.datasets.grounding import content_words, named_tokens, without_prose
from flywheel.stages.datasets.pairs.believed import CHEAPER
from flywheel.stages.datasets.pairs.facts import Facts, Pair, calls_of, message_of, plain_words
from flywheel.stages.datasets.pairs.within import overlap

TOO_SIMILAR, SAME_SEARCH = 0.9, 0.77  # overlap of two texts; share of both searches' words from which they are one


def near_identical(pair: Pair, facts: Facts) -> bool:
    """Whether the sides are the same in other words, so that neither is better.

    Calls count as such when they differ in prose only and neither side names anything (a number, an identifier)
    beyond what the other names; any other difference between calls is a real one, however small. What a search asks for
    is its words, in any order, with hardly one more or less: what it then finds first is chance. Two texts are the same
    when they share nearly all words, or tell the same: the same numbers and names that the user did not mention.
    """
    del facts
    chosen, rejected = (message_of(pair, side) for side in ("chosen", "rejected"))
    if calls_of(chosen) and calls_of(rejected):
        return _beyond_words(pair["chosen"]) == _beyond_words(pair["rejected"]) and _asks_the_same(pair)
    if calls_of(chosen) or calls_of(rejected):
        return False
    texts = [str(message.get("content") or "") for message in (chosen, rejected)]
    if overlap(*map(plain_words, texts)) > TOO_SIMILAR:
        return True
    asked = _asked(pair["prompt"])
    told = [named_tokens({"content": text}) - asked for text in texts]
    return bool(told[0]) and told[0] == told[1]


def _asks_the_same(pair: Pair) -> bool:
    """Whether calls that differ in prose only name nothing beyond each other, and search for the same words."""
    chosen, rejected = (message_of(pair, side) for side in ("chosen", "rejected"))
    ours, theirs = named_tokens(chosen), named_tokens(rejected)
    nothing_named = ours <= theirs or theirs <= ours or pair["builder"] == CHEAPER
    return nothing_named and (not _searches(chosen) or _same_words(_asked_for(chosen), _asked_for(rejected)))


@lru_cache(maxsize=64)
def _asked(prompt: str) -> frozenset[str]:
    """Return what users named: an answer that repeats it adds nothing by that."""
    people = [m for m in json.loads(prompt) if m["role"] == "user"]
    return frozenset[str]().union(*(named_tokens({"content": str(m.get("content") or "")}) for m in people))


@lru_cache(maxsize=256)  # an action is in several pairs of a state
def _beyond_words(messages: str) -> str:
    """Return an action's calls without the prose in them, those of searches without any text."""
    message = json.loads(messages)[-1]
    searches = _searches(message)

    def strip(value: Any) -> Any:
        if isinstance(value, dict):  # what a search is given as nothing, or as no, is as if it were not there
            return {key: strip(inner) for key, inner in value.items() if inner or not searches}
        if isinstance(value, list):
            return [strip(inner) for inner in value]
        if not isinstance(value, str):
            return value
        return "" if searches else without_prose(value)

    return canonical_json([(call["name"], strip(call.get("arguments"))) for call in calls_of(message)])


def _searches(message: dict[str, Any]) -> bool:
    return all(is_search(call["name"]) for call in calls_of(message))


def _asked_for(message: dict[str, Any]) -> frozenset[str]:
    texts = (text for call in calls_of(message) for text in texts_in(call.get("arguments")))
    return frozenset[str]().union(*map(content_words, texts))


def _same_words(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Whether two searches ask for the same words, but for one or two plain ones."""
    is_same = len(ours & theirs) >= SAME_SEARCH * len(ours | theirs)
    return is_same and not any(map(str.isdecimal, "".join(ours ^ theirs)))
