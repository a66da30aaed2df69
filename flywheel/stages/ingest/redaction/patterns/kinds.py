"""What a kind of data is, and the small sums that the kinds share."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from flywheel.stages.ingest.redaction.patterns.hints import Hint

PLACEHOLDER = r"<[A-Z][A-Z_]{1,40}_[0-9a-f]{8}>"
GIVEN = re.compile(PLACEHOLDER)
_LONGEST_GIVEN = 53  # characters of a pseudonym


class Find(NamedTuple):
    """A candidate that is one: its normal form, and which part of the text to replace."""

    value: str
    start: int
    end: int


@dataclass(frozen=True)
class Kind:
    """One kind of data: how to find it, how to be sure, and how it is written normally.

    `hint` is searched in all payloads' JSON by polars' engine (no look-around), once for all kinds that have the same, and
    `trigger` in those where the hint is: where one of them finds nothing, no text of the payload holds this kind, and
    none is looked at. So both must find whatever `pattern` could, also where JSON has put a backslash before a quote. The
    engine is fast (500 MB/s) as long as an expression has few states: keep hints short, above all `{n,m}`.

    `decide` gets a candidate and the name of its field ("" without one).

    `numbers` is what a field is called whose number, not text, may be one.

    `tokens`, where given, narrows the payloads further, in one pass over all of them: only where `worth` holds for one
    of the texts that it finds can a text hold this kind.

    What is `local` depends on no more than some lines around it, and its trigger is among them.
    """

    name: str
    trigger: str
    pattern: str
    decide: Callable[[re.Match[str], str], Find | None]
    numbers: str = ""
    tokens: str = ""
    worth: Callable[[str], bool] = bool
    early: bool = False
    hint: Hint | None = None
    local: bool = True

    @cached_property
    def _candidates(self) -> re.Pattern[str]:
        return re.compile(f"{PLACEHOLDER}|{self.pattern}", re.VERBOSE | re.DOTALL)

    def finds(self, text: str, name: str) -> Iterator[Find]:
        """Yield what a text holds of this kind, in order; pseudonyms given before are candidates too, and stay."""
        for match in self._candidates.finditer(text):
            if not GIVEN.fullmatch(match[0]) and (find := self.decide(match, name)) is not None:
                yield find


@dataclass(frozen=True)
class Scan:
    """A kind that needs more than one pattern: `scan` gets a text and its field's name. The rest is as in `Kind`.

    A text may also hold it where `near` is (whatever the hint), if one of its `tokens` is of `worth`; without `near`,
    `tokens` narrow what `trigger` finds. With `early` it goes before texts are decoded: it ends values where their writing shows so.
    """

    name: str
    trigger: str
    scan: Callable[[str, str], Iterator[Find]]
    numbers: str = ""
    tokens: str = ""
    worth: Callable[[str], bool] = bool
    early: bool = False
    hint: Hint | None = None
    near: str = ""
    local: bool = True

    def finds(self, text: str, name: str) -> Iterator[Find]:
        """Yield what a text holds of this kind, none overlapping, in order."""
        end = 0
        for find in sorted(self.scan(text, name), key=lambda find: (find.start, -find.end)):
            if find.start >= end and not is_given(text, find.start, find.end):
                yield find
                end = find.end


def is_given(text: str, start: int, end: int) -> bool:
    """Whether a part of a text has some of a pseudonym in it, or is within one: its digits may read as a number."""
    near = GIVEN.finditer(text, max(0, start - _LONGEST_GIVEN), end + _LONGEST_GIVEN)
    return any(given.start() < end and given.end() > start for given in near)


def whole(match: re.Match[str], value: str) -> Find:
    """Return a find of all that matched."""
    return Find(value, match.start(), match.end())


def lowered(text: str) -> str:
    """Return a text in small letters, character for character."""
    small = text.lower()
    return small if len(small) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def windows(places: Iterable[re.Match[str]], before: int, after: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text around places, those that overlap as one."""
    return joined((max(0, place.start() - before), place.end() + after) for place in places)


def joined(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield spans in the order of their starts, those that overlap or meet as one."""
    first = last = -1
    for start, end in spans:
        if first >= 0 and start <= last:
            last = max(last, end)
            continue
        if first >= 0:
            yield first, last
        first, last = start, end
    if first >= 0:
        yield first, last


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
