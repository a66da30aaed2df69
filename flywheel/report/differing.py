"""Where two sides of a pair differ, token by token: two lists of texts in, pieces that are alike or not out.

Common beginnings and ends are taken off first, so that the slow part sees only what lies between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import TypedDict

_WORD = re.compile(r"\s*(?:\w+|[^\w\s]|\s+$)")
_LONGEST = 3000  # tokens between beginning and end; beyond it the middle is marked whole


class Piece(TypedDict):
    """Consecutive tokens that are the same on the other side, or are not there."""

    text: str
    differs: bool


def words(text: str) -> list[str]:
    """Return a text as words and signs with the space before them, as pieces where there is no tokenizer."""
    pieces = [match[0] for match in _WORD.finditer(text)]
    rest = text[sum(map(len, pieces)) :]
    return [*pieces, rest] if rest else pieces


def differing(left: Sequence[str], right: Sequence[str]) -> tuple[list[Piece], list[Piece]]:
    """Return both sides in pieces; the texts of a side's pieces, one after the other, are that side."""
    shorter = min(len(left), len(right))
    start = next((i for i in range(shorter) if left[i] != right[i]), shorter)
    end = next((i for i in range(shorter - start) if left[-1 - i] != right[-1 - i]), shorter - start)
    inner = left[start : len(left) - end], right[start : len(right) - end]
    flags = _flags(*inner)
    sides = []
    for side, changed in zip((left, right), flags, strict=True):
        marks = [False] * start + changed + [False] * end
        sides.append(list(_pieces(side, marks)))
    return sides[0], sides[1]


def _flags(left: Sequence[str], right: Sequence[str]) -> tuple[list[bool], list[bool]]:
    """Return for each token whether the other side lacks it."""
    flags = [True] * len(left), [True] * len(right)
    if max(len(left), len(right)) > _LONGEST:
        return flags
    for block in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        flags[0][block.a : block.a + block.size] = [False] * block.size
        flags[1][block.b : block.b + block.size] = [False] * block.size
    return flags


def _pieces(tokens: Sequence[str], marks: Sequence[bool]) -> Iterator[Piece]:
    for differs, run in groupby(zip(tokens, marks, strict=True), key=lambda pair: pair[1]):
        yield {"text": "".join(token for token, _ in run), "differs": differs}
