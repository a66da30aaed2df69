"""What a kind of data is, and the small sums that the kinds share."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

PLACEHOLDER = r"<[A-Z][A-Z_]{1,40}_[0-9a-f]{8}>"
GIVEN = re.compile(PLACEHOLDER)


class Find(NamedTuple):
    """A candidate that is one: its normal form, and which part of the text to replace."""

    value: str
    start: int
    end: int


@dataclass(frozen=True)
class Kind:
    """One kind of data: how to find it, how to be sure, and how it is written normally.

    `trigger` is searched in a whole payload's JSON by polars' engine (no look-around): where it finds nothing, no text
    of the payload holds this kind, and none is looked at. So it must find whatever `pattern` could, also where JSON has
    put a backslash before a quote. Triggers are searched together, those made of `words` apart from the others: each
    half is fast as long as it has few states, so keep them short, above all `{n,m}`.

    `decide` gets a candidate and the name of its field ("" without one).

    `numbers` is what a field is called whose number, not text, may be one.

    `tokens`, where given, narrows the payloads further, in one pass over all of them: only where `worth` holds for one
    of the texts that it finds can a text hold this kind.
    """

    name: str
    trigger: str
    pattern: str
    decide: Callable[[re.Match[str], str], Find | None]
    words: bool = False
    numbers: str = ""
    tokens: str = ""
    worth: Callable[[str], bool] = bool

    def finder(self) -> Callable[[Callable[[re.Match[str]], str], str], str]:
        """Return what replaces candidates in a text; pseudonyms given before are candidates too, and stay."""
        return partial(re.compile(f"{PLACEHOLDER}|{self.pattern}", re.VERBOSE | re.DOTALL).sub)


def whole(match: re.Match[str], value: str) -> Find:
    """Return a find of all that matched."""
    return Find(value, match.start(), match.end())


def digits_of(text: str) -> str:
    """Return a text's ASCII digits."""
    return "".join(c for c in text if c in "0123456789")


def entropy(text: str) -> float:
    """Return Shannon's entropy in bits a character."""
    counts = Counter(text)
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values())


def luhn(digits: str) -> bool:
    """Whether the last digit is Luhn's check digit (ISO/IEC 7812-1)."""
    doubled = sum(sum(divmod(2 * int(d), 10)) for d in digits[-2::-2])
    return (doubled + sum(int(d) for d in digits[-1::-2])) % 10 == 0
