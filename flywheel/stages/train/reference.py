"""Log-probabilities of the reference policy, computed once for every row and kept by what they depend on.

Rows are scored in units: the rows of one state and of the steps that continue it, in one tree. A unit's numbers depend
on its rows, the reference's weights and the arithmetic, and on nothing else, so they are the same whatever else is
trained, and the next round over the same rows finds them. What is kept is hashes and numbers, never text or tokens.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from flywheel.errors import TrainError
from flywheel.io.files import atomic_write
from flywheel.stages.train.sharing.packed import Scorer
from flywheel.stages.train.sharing.tree import Row, grow

_VERSION = 1
_FLUSH_S = 30.0


@dataclass(frozen=True)
class LogProbs:
    """What `score_once` gives: a tensor of token log-probabilities for each row, and how they were computed."""

    rows: list[torch.Tensor]
    computed: int  # rows; the others were kept from before
    units: list[list[int]]  # rows that were scored together


def units(rows: Sequence[Row], limit: int) -> list[list[int]]:
    """Return rows in groups that are scored together: equal prompts, and prompts that continue one another.

    Args:
        rows: in any order; the groups do not depend on it.
        limit: most tokens of a group's tree; a longer one is cut.
    """
    order = sorted(range(len(rows)), key=lambda i: (rows[i].ids, rows[i].windows))
    groups: list[list[int]] = []
    trunk: tuple[int, ...] = ()
    for i in order:
        prompt = rows[i].ids[: rows[i].windows[0][0]] if rows[i].windows else rows[i].ids
        follows = bool(groups) and len(trunk) > 0 and prompt[: len(trunk)] == trunk
        if follows and len(grow([rows[k] for k in (*groups[-1], i)]).ids) <= limit:
            groups[-1].append(i)
        else:
            groups.append([i])
            trunk = prompt
    return groups


@dataclass
class ReferenceCache:
    """Log-probabilities by content, in files that are written whole and only added to.

    Args:
        folder: where; None keeps nothing.
        identity: what the numbers depend on besides the rows: weights, dtype, threads, versions.
    """

    folder: Path | None
    identity: Sequence[object]
    _new: dict[str, list[list[float]]] = field(default_factory=dict)

    def _place(self) -> Path | None:
        name = hashlib.sha256(json.dumps([_VERSION, *map(str, self.identity)]).encode()).hexdigest()[:24]
        return None if self.folder is None else self.folder / name

    def read(self) -> dict[str, list[list[float]]]:
        """Return everything kept for this identity; a file that is not a cache is removed."""
        place, scores = self._place(), dict[str, list[list[float]]]()
        for path in sorted(place.glob("*.json")) if place is not None else []:
            try:
                scores |= json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                path.unlink()
        return scores

    def add(self, key: str, scores: list[list[float]]) -> None:
        """Keep a unit's numbers; `write` puts them on disk."""
        self._new[key] = scores

    def write(self) -> None:
        """Write what was added since the last time as one file, named by its keys."""
        place = self._place()
        if place is not None and self._new:
            name = hashlib.sha256("".join(sorted(self._new)).encode()).hexdigest()[:32]
            atomic_write(place / f"{name}.json", json.dumps(self._new, sort_keys=True) + "\n")
        self._new = {}


def score_once(scorer: Scorer, rows: Sequence[Row], cache: ReferenceCache, limit: int) -> LogProbs:
    """Return the log-probabilities of every row's trained tokens under the current model.

    Raises:
        TrainError: a number is not finite.
    """
    kept, found, computed = cache.read(), dict[int, torch.Tensor](), 0
    written, together = time.monotonic(), units(rows, limit)
    for unit in together:
        batch = [rows[i] for i in unit]
        key = hashlib.sha256(json.dumps([[row.ids, row.windows] for row in batch]).encode()).hexdigest()
        if key not in kept or [len(s) for s in kept[key]] != [len(r.trained) for r in batch]:
            with torch.inference_mode():
                kept[key] = [s.tolist() for s in scorer(batch)]
            computed += len(batch)
            cache.add(key, kept[key])
        found |= {i: torch.tensor(scores) for i, scores in zip(unit, kept[key], strict=True)}
        if time.monotonic() - written > _FLUSH_S:
            cache.write()
            written = time.monotonic()
    if not all(bool(scores.isfinite().all()) for scores in found.values()):
        raise TrainError(
            "the reference policy gives log-probabilities that are not numbers", hint="is its adapter complete?"
        )
    cache.write()
    return LogProbs([found[i] for i in range(len(rows))], computed, together)


def neighbours(rows: Sequence[Sequence[Row]], most: int) -> Iterator[list[int]]:
    """Yield items (each some rows) in runs of at most `most` that begin with the same tokens, in order of content."""
    order = sorted(range(len(rows)), key=lambda i: [row.ids for row in rows[i]])
    run: list[int] = []
    for i in order:
        prompt = rows[i][0].ids[: rows[i][0].windows[0][0]]
        if run and (len(run) >= most or rows[run[0]][0].ids[: len(prompt)] != prompt):
            yield run
            run = []
        run.append(i)
    if run:
        yield run
