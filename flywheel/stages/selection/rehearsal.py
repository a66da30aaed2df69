"""Which older rows keep what was learned before: of the kinds of requests that the new rows show least.

In: older rows in order of preference, and a round's new ones. Out: the older ones, the rarest kinds first.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import polars as pl

from flywheel.stages.tasks.minhash import masked_words
from flywheel.stages.values.keys import request_of

if TYPE_CHECKING:
    from collections.abc import Iterable

ALIKE = 0.7  # cosine of the words of two requests of one kind, numbers and ids aside
MOST_KINDS = 256  # of requests; what is like none of them is one more kind
FEWEST_LOOKED_AT, LOOKED_AT = 1000, 10  # older rows: so many at least, and so many for each that is wanted


def rarest_first(older: pl.DataFrame, new: pl.DataFrame, wanted: int) -> pl.DataFrame:
    """Return older rows, in an order in which the first ones make the kinds of a round's requests equally frequent.

    Within a kind their order stays.

    Args:
        older: rows with their prompts, in order of preference.
        new: that are trained in any case.
        wanted: how many of the older rows will be taken.
    """
    if "prompt" not in older.columns:
        return older
    looked_at = older.head(max(FEWEST_LOOKED_AT, LOOKED_AT * wanted))
    kinds = kinds_of(map(request_of, [*new["prompt"], *looked_at["prompt"]]))
    there, turns = Counter(kinds[: new.height]), list[int]()
    for kind in kinds[new.height :]:
        turns.append(there[kind])
        there[kind] += 1
    order = sorted(range(looked_at.height), key=lambda place: turns[place])
    return pl.concat([looked_at[order], older.slice(looked_at.height)])


def kinds_of(requests: Iterable[str | None]) -> list[int]:
    """Return the kind of each request, by the first request that is like it."""
    leaders, kinds = list[frozenset[str]](), dict[frozenset[str], int]()
    found = []
    for request in requests:
        words = frozenset(masked_words(request or ""))
        if words not in kinds:
            place = next((n for n, leader in enumerate(leaders) if _alike(words, leader)), len(leaders))
            kinds[words] = place
            if place == len(leaders) < MOST_KINDS:
                leaders.append(words)
        found.append(kinds[words])
    return found


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) ** 2 >= ALIKE**2 * len(one) * len(other) > 0
