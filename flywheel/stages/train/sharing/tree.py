"""Rows that begin alike, as a tree that holds a shared beginning once.

In: rows of token ids, with the windows of each that are trained. Out: one flat sequence of segments, the position every
token has in its own row, which segments a token may look at, and where each trained token is predicted. Plain Python:
what a model makes of it is `packed.py`'s.

The last token of a shared beginning predicts the first token of several branches; so a trained token is looked up by
the place that predicts it, never by shifting the flat sequence.

Cost model: G rows with a shared beginning of P tokens and R own ones cost P + G·R tokens instead of G·(P + R).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flywheel.models.prefixes import common_length

# A shorter shared piece is computed once for every row: another level costs more than it saves.
MIN_SHARED = 8
# A tree whose rows, side by side and padded, are fewer tokens than so many times its own costs more than it saves: one
# that shares nothing takes up to 1.24 times as long as its rows (`benchmarks/train.py`, alone).
_WORTH = 1.15
# Branches of one beginning are attended to together up to so many tokens; above, the masked squares cost too much.
_TOGETHER = 160


@dataclass(frozen=True)
class Row:
    """A row's tokens and the windows [start, end) of it that are trained; position 0 is predicted by nothing."""

    ids: tuple[int, ...]
    windows: tuple[tuple[int, int], ...]

    @property
    def trained(self) -> list[int]:
        """Positions of the trained tokens, in order."""
        return [p for start, end in self.windows for p in range(max(start, 1), end)]


@dataclass(frozen=True)
class Segment:
    """A run of tokens [start, end) of the flat sequence that begins at position `depth` of every row through it."""

    start: int
    end: int
    depth: int
    parent: int  # index of the segment before it; -1 at a root


@dataclass(frozen=True)
class Block:
    """Neighbouring segments [start, end) of one parent, and the flat ranges of everything before them."""

    start: int
    end: int
    context: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Tree:
    """Rows as one flat sequence.

    Attributes:
        ids: N tokens.
        positions: N positions, restarted in every branch.
        owners: N indices into `segments`.
        segments: in the order of the flat sequence.
        blocks: what is attended to at once; together they cover the sequence.
        sources: flat places whose hidden state predicts a trained token; each (source, target) once.
        targets: the tokens predicted there.
        rows: for each row, the places in `sources` of its trained tokens, in order.
        plain: tokens of the rows one by one.
    """

    ids: list[int]
    positions: list[int]
    owners: list[int]
    segments: tuple[Segment, ...]
    blocks: tuple[Block, ...]
    sources: list[int]
    targets: list[int]
    rows: list[list[int]]
    plain: int


def _alike(group: list[int], rows: Sequence[Row], depth: int, least: int) -> Iterator[list[int]]:
    """Split sorted rows that agree up to `depth` into runs that agree for at least `least` tokens more."""
    run = [group[0]]
    for before, i in itertools.pairwise(group):
        if common_length(rows[before].ids, rows[i].ids, depth) >= depth + least:
            run.append(i)
        else:
            yield run
            run = [i]
    yield run


class _Growing:
    """Segments and each row's path through them."""

    def __init__(self, rows: Sequence[Row], least: int) -> None:
        self.rows, self.least = rows, least
        self.ids: list[int] = []
        self.segments: list[Segment] = []
        self.paths: list[list[int]] = [[] for _ in rows]

    def grow(self) -> None:
        order = sorted((i for i in range(len(self.rows)) if self.rows[i].ids), key=lambda i: self.rows[i].ids)
        waiting = [(order, 0, -1)] if order else []
        while waiting:
            waiting += reversed(list(self._children(*waiting.pop())))

    def _children(self, group: list[int], depth: int, parent: int) -> Iterator[tuple[list[int], int, int]]:
        """Add the segments that follow one parent, side by side; yield what goes on after each."""
        for run in list(_alike(group, self.rows, depth, self.least)):
            first = self.rows[run[0]].ids
            end = common_length(first, self.rows[run[-1]].ids, depth)
            self.segments.append(Segment(len(self.ids), len(self.ids) + end - depth, depth, parent))
            self.ids += first[depth:end]
            for i in run:
                self.paths[i].append(len(self.segments) - 1)
            rest = [i for i in run if len(self.rows[i].ids) > end]
            if rest:
                yield rest, end, len(self.segments) - 1

    def places(self, i: int) -> list[int]:
        """Return the flat place of every token of row i."""
        return [p for s in self.paths[i] for p in range(self.segments[s].start, self.segments[s].end)]


def _context(segments: Sequence[Segment], parent: int) -> tuple[tuple[int, int], ...]:
    ranges: list[tuple[int, int]] = []
    while parent >= 0:
        ranges.append((segments[parent].start, segments[parent].end))
        parent = segments[parent].parent
    return tuple(reversed(ranges))


def _blocks(segments: Sequence[Segment]) -> Iterator[Block]:
    first = 0
    for i, segment in enumerate(segments):
        following = segments[i + 1] if i + 1 < len(segments) else None
        together = (
            following is not None
            and following.parent == segment.parent >= 0
            and following.end - segments[first].start <= _TOGETHER
        )
        if not together:
            yield Block(segments[first].start, segment.end, _context(segments, segment.parent))
            first = i + 1


def grow(rows: Sequence[Row], least: int = MIN_SHARED) -> Tree:
    """Return rows as one tree (or several, where beginnings differ).

    Args:
        rows: of any lengths; two may be equal.
        least: fewest tokens that a shared piece must have.
    """
    growing = _Growing(rows, least)
    growing.grow()
    scored: dict[tuple[int, int], int] = {}
    scored_rows = []
    for i, row in enumerate(rows):
        places = growing.places(i)
        keys = [(places[p - 1], row.ids[p]) for p in row.trained]
        scored_rows.append([scored.setdefault(key, len(scored)) for key in keys])
    positions = [s.depth + k for s in growing.segments for k in range(s.end - s.start)]
    owners = [i for i, s in enumerate(growing.segments) for _ in range(s.end - s.start)]
    return Tree(
        ids=growing.ids,
        positions=positions,
        owners=owners,
        segments=tuple(growing.segments),
        blocks=tuple(_blocks(growing.segments)),
        sources=[source for source, _ in scored],
        targets=[target for _, target in scored],
        rows=scored_rows,
        plain=sum(len(row.ids) for row in rows),
    )


def padded(rows: Sequence[Row]) -> int:
    """Return the tokens of rows side by side, each as long as the longest."""
    return len(rows) * max(len(row.ids) for row in rows)


def pays(tree: Tree, rows: Sequence[Row]) -> bool:
    """Return whether a pass over the rows' tree is cheaper than one over the rows side by side."""
    return padded(rows) >= _WORTH * len(tree.ids)
