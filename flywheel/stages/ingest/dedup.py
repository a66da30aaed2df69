"""Duplicate events are one event: in two exports, in overlapping files, in a file that is read again.

In: events with their content ids, and the ids that are known. Out: the events that are new, each once. Of several the
one with the smallest place in the sources stays, so that the order in which files are read changes nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from flywheel.records import ID_HEX

Halves = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]


class Ids:
    """A set of content ids, 16 bytes each: sorted runs whose sizes double, so that adding stays cheap however many."""

    def __init__(self) -> None:
        self._runs: list[Halves] = []

    def __len__(self) -> int:
        return sum(run[0].size for run in self._runs)

    def add(self, ids: pl.Series) -> None:
        """Take in ids, none of which is known."""
        if ids.len() == 0:
            return
        self._runs.append(_sorted(*_halves(ids)))
        while len(self._runs) > 1 and 2 * self._runs[-1][0].size >= self._runs[-2][0].size:
            self._runs[-2:] = [_merged(*self._runs[-2:])]

    def known(self, ids: pl.Series) -> list[bool]:
        """Return for each id whether it is in the set."""
        is_known = np.zeros(ids.len(), dtype=bool)
        if ids.len() == 0:
            return []
        high, low = _halves(ids)
        for run_high, run_low in self._runs:
            at = np.searchsorted(run_high, high)
            inside = at < run_high.size
            at[~inside] = 0
            same = inside & (run_high[at] == high)
            is_known |= same & (run_low[at] == low)
            for place in np.flatnonzero(same & (run_low[at] != low)):  # two ids that share their first half
                end = np.searchsorted(run_high, high[place], side="right")
                is_known[place] |= bool(np.any(run_low[at[place] : end] == low[place]))
        return list(map(bool, is_known))


def _halves(ids: pl.Series) -> Halves:
    """Return 32-digit hex ids as two columns of 64 bits."""
    digits = "".join(ids.to_list())
    if len(digits) != ID_HEX * ids.len():
        raise ValueError(f"an id has not {ID_HEX} digits")
    both = np.frombuffer(bytes.fromhex(digits), dtype=">u8").astype(np.uint64).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


def _sorted(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> Halves:
    order = high.argsort(kind="stable")
    return high[order], low[order]


def _merged(one: Halves, other: Halves) -> Halves:
    return _sorted(np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]]))


def dedup(frame: pl.DataFrame, known: Ids) -> pl.DataFrame:
    """Return the events that are not known, each once; sorted by their place in the sources."""
    order = ["source_file", "source_line", "seq", "event_id"]
    single = frame.sort(order).unique("event_id", keep="first", maintain_order=True)
    return single.filter(~pl.Series(known.known(single["event_id"]), dtype=pl.Boolean))
