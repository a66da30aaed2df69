"""Disjoint sets: what belongs together, directly or through others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T", int, str, tuple[int, str])


class DisjointSets(Generic[T]):
    """Union-find with path halving (Tarjan and van Leeuwen 1984); each set is known by its smallest member."""

    def __init__(self) -> None:
        self._parent: dict[T, T] = {}

    def root(self, member: T) -> T:
        """Return the smallest member of a member's set; a new one is a set of its own."""
        parent = self._parent
        while (above := parent.setdefault(member, member)) != member:
            parent[member] = parent[above]
            member = parent[above]
        return member

    def join(self, members: Iterable[T]) -> None:
        """Put members into one set."""
        roots = sorted({self.root(member) for member in members})
        for root in roots[1:]:
            self._parent[root] = roots[0]
