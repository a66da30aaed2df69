"""Which older rows keep what was learned before: of the kinds of requests that the new rows show least.

In: older rows in order of preference, and a round's new ones. Out: the older ones, the rarest kinds first.
"""

from __future__ import annotations

from collections import Counter

import polars as pl

from flywheel.stages.selection.kinds import kinds_of
from flywheel.stages.values.keys import request_of

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
