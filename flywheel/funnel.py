"""Counting what a stage keeps and drops, so that nothing is dropped silently.

Every stage gets a `Funnel`; rows leave only through `drop(frame, where, reason)`. The counts add up:
considered = kept + sum(dropped by reason), which `check` asserts. What should never be in an honest log is an `error`:
it lies outside the sum, and `build` and `status` print it without being asked.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from flywheel.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

_ERROR = "error"


class Funnel:
    """Counts of one stage: what was considered, what was kept, what was dropped and why."""

    def __init__(self) -> None:
        self.considered = 0
        self.kept = 0
        self.dropped: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def drop(self, frame: pl.DataFrame, where: pl.Expr, reason: str) -> pl.DataFrame:
        """Return the rows for which `where` is not true; count the others under `reason`.

        A null counts as not true: the row stays.
        """
        kept = frame.filter(~where.fill_null(value=False))
        self.dropped[reason] += frame.height - kept.height
        return kept

    def note(self, name: str, count: int) -> None:
        """Add to a count that is reported but not part of the sum."""
        self.notes[name] += count

    def error(self, name: str, count: int) -> None:
        """Add to a count that should be 0: its name states what is wrong and where to look."""
        self.errors[name] += count

    def merge(self, other: Mapping[str, int]) -> None:
        """Add the counts of another funnel, as returned by `as_dict`."""
        for name, count in other.items():
            kind, _, rest = name.partition(": ")
            if name == "considered":
                self.considered += count
            elif name == "kept":
                self.kept += count
            elif kind == "dropped":
                self.dropped[rest] += count
            elif kind == _ERROR:
                self.errors[rest] += count
            else:
                self.notes[rest] += count

    def check(self, stage: str) -> None:
        """Raise if the counts do not add up: that is a bug of the stage.

        Raises:
            ContractError: considered differs from kept + dropped.
        """
        total = self.kept + sum(self.dropped.values())
        if self.considered != total:
            raise ContractError(
                f"stage {stage}: funnel does not add up: considered {self.considered}, accounted for {total}",
                hint="a stage lost rows outside Funnel.drop; please report this",
            )

    def as_dict(self) -> dict[str, int]:
        """Return the counts as a flat, sorted dict."""
        dropped = {f"dropped: {k}": v for k, v in sorted(self.dropped.items()) if v}
        errors = {f"{_ERROR}: {k}": v for k, v in sorted(self.errors.items()) if v}
        notes = {f"note: {k}": v for k, v in sorted(self.notes.items())}
        return {"considered": self.considered, "kept": self.kept, **dropped, **errors, **notes}


def errors_in(counts: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield the errors of a funnel as `as_dict` returns it: name and count."""
    for name, count in counts.items():
        kind, _, rest = name.partition(": ")
        if kind == _ERROR and count:
            yield rest, count
