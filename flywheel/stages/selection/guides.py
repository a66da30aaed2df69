"""Actions of a demonstration carried over to another request of its kind: how an attempt may begin.

In: a demonstration's request and actions, and another request. Out: the actions as that request needs them. What a
policy never does no sampling finds; an attempt that begins with an expert's actions shows it (BREAD, Zhang et al. 2025,
arXiv 2506.17211), and the policy goes on from there. Whether it was right is seen by executing it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

Row = dict[str, Any]

_LONGEST = 300  # words of a request that is compared with another one
_AMOUNT = re.compile(r"(?:0|[1-9]\d{0,15})(?:\.\d{1,15})?")  # as JSON writes it
_WORD = re.compile(r"\w+(?:[-.:/@]\w+)*|[^\w\s]")


def carried_over(actions: Sequence[Row], asked: str, request: str) -> list[Row]:
    """Return a demonstration's actions up to the last that names what it was asked for, with what another one names.

    `How many lamps did Oslo buy?` leads from `{"city": "Oslo", "product": "lamp"}` to nothing that a request for chairs
    can use, since `lamps` is in no argument; a request for the lamps of Lima has `{"city": "Lima", "product": "lamp"}`.

    Args:
        actions: messages with tool calls, as {name, arguments}.
        asked: the demonstration's request.
        request: the other one.

    Returns:
        None of them where the words of the requests do not line up, or a word in which they differ is in no argument.
    """
    other = _in_place_of(asked, request)
    if not other:
        return []
    words = "|".join(re.escape(old) for old in sorted(other, key=len, reverse=True))
    whole = re.compile(rf"(?<!\w)(?<!\w[-.:/@])(?:{words})(?!\w)(?![-.:/@]\w)")
    named = [{old for call in action["tool_calls"] for old in _named(call["arguments"], whole)} for action in actions]
    if set[str]().union(*named) != set(other):
        return []
    if any(_is_amount(old) and not _is_amount(new) for old, new in other.items()):
        return []
    last = max(place for place, names in enumerate(named) if names)
    return [
        {
            **action,
            "tool_calls": [{**c, "arguments": _replaced(c["arguments"], whole, other)} for c in action["tool_calls"]],
        }
        for action in actions[: last + 1]
    ]


def _in_place_of(asked: str, request: str) -> dict[str, str]:
    """Return what a request has in place of what another one names; nothing where that is not clear.

    Requests of as many words are compared place by place; where one has more, a name may be of several words.
    """
    ours, theirs = list(_WORD.finditer(asked)), list(_WORD.finditer(request))
    before, after = [word[0] for word in ours], [word[0] for word in theirs]
    if max(len(before), len(after)) > _LONGEST:
        return {}
    if len(ours) == len(theirs):
        places = [(n, n + 1, n, n + 1) for n, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
    else:
        steps = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        places = [step[1:] for step in steps if step[0] != "equal"]
    other: dict[str, str] = {}
    for start, end, at, to in places:
        if start == end or at == to:
            return {}
        if not (_says(before[start:end]) and _says(after[at:to])):
            return {}
        old, new = asked[ours[start].start() : ours[end - 1].end()], request[theirs[at].start() : theirs[to - 1].end()]
        if other.setdefault(old, new) != new:
            return {}
    stays = {before[n] for n in range(len(before)) if not any(start <= n < end for start, end, *_ in places)}
    return {} if stays & other.keys() else other


def _says(words: Sequence[str]) -> bool:
    return all(any(sign.isalnum() for sign in word) for word in words)


def _named(value: Any, whole: re.Pattern[str]) -> Iterator[str]:
    """Yield what arguments name: words within texts, and numbers that are no more than one."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _named(inner, whole)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner, whole)
    elif isinstance(value, str):
        yield from whole.findall(value)
    elif _is_number(value) and whole.fullmatch(str(value)):
        yield str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _replaced(value: Any, whole: re.Pattern[str], other: Mapping[str, str]) -> Any:
    """Return arguments with words replaced, numbers by numbers."""
    if isinstance(value, Mapping):
        return {key: _replaced(inner, whole, other) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, whole, other) for inner in value]
    if isinstance(value, str):
        return whole.sub(lambda found: other[found[0]], value)
    if _is_number(value) and (new := other.get(str(value))) is not None:
        return json.loads(new)
    return value


def _is_amount(word: str) -> bool:
    return _AMOUNT.fullmatch(word) is not None
