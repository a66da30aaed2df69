"""The ledger of candidates: who was ever evaluated against a champion, on what, and how each of them ended.

    rounds/candidates.jsonl    trained, registered → look → report → look → ... → ended; one line each, chained by hash

A candidate is a round's adapter, the baseline it is compared with, and the protocol, which is fixed when the round is
trained. Whoever is evaluated is registered before a score is seen, with or without --promote: its place gives its
level. It stays until it is promoted, rejected, or replaced; all its looks together are one test.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flywheel.errors import StoreError
from flywheel.io import files, hash_chain
from flywheel.records import LedgerEntry, Outcome
from flywheel.stats.planning import expired, pace

Units = Mapping[str, tuple[float, int]]


@dataclass(frozen=True)
class Candidate:
    """A registered candidate with its looks so far.

    `known` are the units on which another candidate was looked at before this one was registered; `outcomes` are those
    of the looks before it, oldest first, which may have led to it. `lines` are the hashes of its looks' lines, `report`
    is that of the last evaluation report on it.
    """

    registered: LedgerEntry
    looks: Sequence[LedgerEntry] = ()
    lines: Sequence[str] = ()
    report: str = ""
    ended: Outcome | None = None
    known: frozenset[str] = frozenset()
    outcomes: Sequence[str] = ()

    @property
    def place(self) -> int:
        """Its place in the family, from 1."""
        return self.registered.candidate

    @property
    def last_look(self) -> str:
        """The hash of its last look's line; '' before the first."""
        return self.lines[-1] if self.lines else ""

    @property
    def tasks(self) -> dict[str, str]:
        """The held-out tasks looked at so far → hash of their rows when they were last."""
        return {task: rows for look in self.looks for task, rows in look.tasks.items()}


class CandidateLedger:
    """The ledger in a rounds folder.

    Args:
        root: the rounds folder.
        record: appends an entry to a ledger there, by its file's name, and returns the line's hash.
    """

    def __init__(self, root: Path, record: Callable[[str, Mapping[str, Any]], str]) -> None:
        self._path = root / "candidates.jsonl"
        self._record = record
        self._spent = root / "spent.jsonl"  # of versions that let a decision use a task once

    def entries(self) -> list[LedgerEntry]:
        """Return all lines, oldest first.

        Raises:
            StoreError: a line does not fit its schema.
        """
        return self._entries("")

    def _entries(self, containing: str) -> list[LedgerEntry]:
        entries = []
        for number, line in enumerate(hash_chain.lines_of(self._path), 1):
            if containing not in line:
                continue
            try:
                entries.append(LedgerEntry.model_validate_json(line))
            except ValidationError:
                raise StoreError(
                    f"`{self._path}` line {number} does not fit its schema",
                    hint="was it edited by hand? restore it from git or a backup",
                ) from None
        return entries

    def candidates(self) -> list[Candidate]:
        """Return every candidate, in the order they were registered."""
        known: set[str] = {task for line in hash_chain.lines_of(self._spent) for task in json.loads(line)["tasks"]}
        looks: list[int] = []  # the candidate of each look so far
        ended: dict[int, Outcome | None] = {}
        found: dict[int, Candidate] = {}
        for entry, line in zip(self.entries(), hash_chain.lines_of(self._path), strict=True):
            place = entry.candidate
            if entry.event == "registered":
                found[place] = Candidate(entry, known=frozenset(known), outcomes=_outcomes(looks, ended))
            elif entry.event == "look":
                seen = found[place]
                found[place] = replace(seen, looks=[*seen.looks, entry], lines=[*seen.lines, files.hash_text(line)])
                known.update(entry.units)
                looks.append(place)
            elif entry.event == "report":
                found[place] = replace(found[place], report=entry.report_sha256)
            elif entry.event == "ended":
                found[place] = replace(found[place], ended=entry.outcome)
                units = [look.units for look in found[place].looks if look.units]
                foreseen = entry.outcome == "rejected" and expired(len(units), pace(units))
                ended[place] = None if foreseen else entry.outcome
        return list(found.values())

    def find(self, candidate_sha256: str, baseline_sha256: str, protocol_sha256: str) -> Candidate | None:
        """Return the candidate of these three hashes, or None."""
        wanted = (candidate_sha256, baseline_sha256, protocol_sha256)
        for candidate in reversed(self.candidates()):
            entry = candidate.registered
            if (entry.candidate_sha256, entry.baseline_sha256, entry.protocol_sha256) == wanted:
                return candidate
        return None

    def open(self) -> list[Candidate]:
        """Return the candidates that have not ended, oldest first."""
        return [c for c in self.candidates() if c.ended is None]

    def registered(self) -> set[tuple[int, int]]:
        """Return each round that was ever a candidate, with its place; lines that do not fit are left out."""
        found = set()
        for line in hash_chain.lines_of(self._path):
            with suppress(ValidationError):
                entry = LedgerEntry.model_validate_json(line)
                found |= {(entry.round, entry.candidate)} if entry.event == "registered" else set()
        return found

    def next_place(self) -> tuple[int, int]:
        """Return the next candidate's place, and how many were promoted before it."""
        entries = self.entries()
        places = [e.candidate for e in entries if e.event == "registered"]
        return max(places, default=0) + 1, sum(e.outcome == "promoted" for e in entries)

    def unspent(self) -> int:
        """Return how many candidates ended without ever having had the units to reach their level (Tarone 1990).

        n units multiply a stake by less than 2^n. Such candidates could not be promoted, whatever their scores were, so
        their places cost no error: those who come later move up by one, which takes no more than was left.
        """
        ended = (c for c in self.candidates() if c.ended in {"rejected", "replaced"})
        units = ((len({unit for look in c.looks for unit in look.units}), c.registered.level) for c in ended)
        return sum(n < math.log2(1 / level) for n, level in units if level > 0)

    def append(self, entry: LedgerEntry) -> str:
        """Append a line and return its hash."""
        return self._record(self._path.name, entry.model_dump(mode="json", exclude={"previous_sha256"}))

    def trained(self, number: int, candidate_sha256: str, protocol_sha256: str, files_sha256: str = "") -> None:
        """Record what training left and what it will be decided by, unless that is what it left last."""
        if self.left_by_training(number)[-1:] != [(candidate_sha256, files_sha256)]:
            self.append(
                LedgerEntry(
                    event="trained",
                    round=number,
                    candidate_sha256=candidate_sha256,
                    protocol_sha256=protocol_sha256,
                    files_sha256=files_sha256,
                )
            )

    def left_by_training(self, number: int) -> list[tuple[str, str]]:
        """Return the hashes of the weights and of all files that trainings of a round left; [] for older rounds."""
        entries = self._entries('"event":"trained"')
        return [(entry.candidate_sha256, entry.files_sha256) for entry in entries if entry.round == number]

    def protocol_of(self, candidate_sha256: str) -> str | None:
        """Return the hash of the protocol that an adapter was trained with; None where none was recorded."""
        own = (e for e in self.entries() if e.event == "trained" and e.candidate_sha256 == candidate_sha256)
        return next((e.protocol_sha256 for e in own), None)

    def look(
        self,
        candidate: Candidate,
        tasks: Mapping[str, str],
        units: Units,
        scores_sha256: str,
        *,
        holdout_sha256: str = "",
    ) -> str:
        """Record a look at a candidate; the same scores of the same held-out tasks again are the same look."""
        if any((e.scores_sha256, e.holdout_sha256) == (scores_sha256, holdout_sha256) for e in candidate.looks):
            return self.head()
        return self.append(
            LedgerEntry(
                event="look",
                candidate=candidate.place,
                round=candidate.registered.round,
                tasks=dict(sorted(tasks.items())),
                units=dict(sorted(units.items())),
                scores_sha256=scores_sha256,
                holdout_sha256=holdout_sha256,
            )
        )

    def reported(self, candidate: Candidate, report_sha256: str) -> None:
        """Record the report on a candidate, unless it is the one that was recorded last."""
        if candidate.report != report_sha256:
            entry = LedgerEntry(
                event="report",
                candidate=candidate.place,
                round=candidate.registered.round,
                report_sha256=report_sha256,
            )
            self.append(entry)

    def pace(self) -> tuple[float, float] | None:
        """Return the new units of a look and their discordance, by the newest candidate's looks; None before one."""
        looked_at = [c for c in self.candidates() if c.looks]
        if not looked_at:
            return None
        looks = looked_at[-1].looks
        squares = [(total / cases) ** 2 for look in looks for total, cases in look.units.values()]
        return pace([look.units for look in looks]), sum(squares) / len(squares) if squares else 0.0

    def end(self, candidate: Candidate, outcome: Outcome) -> str:
        """Record how a candidate ended, once; return the hash of the last line."""
        if any(e.event == "ended" and e.candidate == candidate.place for e in self.entries()):
            return self.head()
        number = candidate.registered.round
        return self.append(LedgerEntry(event="ended", candidate=candidate.place, round=number, outcome=outcome))

    def head(self) -> str:
        """Return the hash of the last line; '' for an empty ledger."""
        return hash_chain.head_of(self._path)

    def problems(self, ledger_sha256s: Iterator[str]) -> list[str]:
        """Return where the ledger was changed, in words.

        Args:
            ledger_sha256s: of the lines that decisions rest on.
        """
        problems = hash_chain.breaks(self._path, head=None) + hash_chain.breaks(self._spent, head=None)
        known = {files.hash_text(line) for path in (self._path, self._spent) for line in hash_chain.lines_of(path)}
        if any(sha256 and sha256 not in known for sha256 in ledger_sha256s):
            problems.append(f"{self._path.name} lacks a line that a decision wrote into it")
        return problems


def _outcomes(looks: Sequence[int], ended: Mapping[int, Outcome | None]) -> tuple[str, ...]:
    """Return the outcome of each look: of a candidate's last one how it ended, if its scores decided; else 'open'."""
    last = {place: at for at, place in enumerate(looks)}
    decided = {place: outcome for place, outcome in ended.items() if outcome in {"promoted", "rejected"}}
    return tuple(decided.get(place) or "open" if last[place] == at else "open" for at, place in enumerate(looks))
