"""Which files and sources are too bad to be stored at all, by `ingest.max_quarantine`.

In: how many records of each file were read and refused. Out: the files of which nothing is stored, and the sources
(paths as the user named them). A file that no reader knows is set aside by itself and
counts nowhere: a table next to the logs proves nothing about the logs.

- A file is too bad if more than the share of its records is unreadable. One that merely ends too early is not: its
  last record may still come. Nor is a small file with a single unreadable record, where its source is below the share.
- A source is too bad if most of its files are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from flywheel.present import count, percent
from flywheel.results.data import RefusedSource
from flywheel.stages.ingest.batches import BAD_FILE, Batch
from flywheel.stages.ingest.sources import SourceState

MEMBER = "!/"  # between an archive's name and a member's
_FEW = 20  # unreadable records that the quarantine lists one by one


class BadSource(NamedTuple):
    """A source of which nothing new is stored; `left_out` counts the records of its files that are not bad by name."""

    refusal: RefusedSource
    left_out: dict[str, int]


@dataclass
class Verdicts:
    """What is refused: files by their recorded name, with the reason; and sources."""

    files: dict[str, str] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    sources: list[BadSource] = field(default_factory=list)

    def leaves_out(self) -> set[str]:
        """Return the files that are not read: those of a refused source that have no refusal of their own."""
        return {name.partition(MEMBER)[0] for source in self.sources for name in source.left_out}

    def refuses(self, source: Path) -> bool:
        """Whether nothing of a source is stored."""
        return any(refused.refusal.source == str(source) for refused in self.sources)


@dataclass
class Tally:
    """Records read and refused, by file or archive member; refusals of whole files by name."""

    read: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)

    def add(self, batch: Batch) -> None:
        """Count a batch."""
        self.read.update(batch.by_content)
        columns = ("source_file", "source_line", "reason", "detail")
        for name, line, reason, detail in batch.quarantined.select(columns).iter_rows():
            if not line:
                self.whole[name] = f"{reason}: {detail}"
            elif name in batch.by_content and reason != "truncated":
                self.bad[name] += 1
                self.first.setdefault(name, f"{name}:{line}: {reason}: {detail}")

    def bad_of(self, file: str) -> int:
        """Return the refused records of a file or an archive."""
        return sum(n for name, n in self.bad.items() if name.partition(MEMBER)[0] == file)

    def whole_of(self, file: str) -> dict[str, str]:
        """Return what of a file or an archive was refused as a whole, by name."""
        return {name: why for name, why in sorted(self.whole.items()) if name.partition(MEMBER)[0] == file}


def judge(
    tally: Tally, sources: Mapping[str, Path], known: Mapping[str, SourceState], limit: float
) -> tuple[Verdicts, dict[str, str]]:
    """Return what is refused, and the files whose few records are all unreadable: of them there is nothing to refuse.

    Args:
        tally: the counts of this run.
        sources: by a file's recorded name, the path that named it.
        known: earlier states of the files, by name.
        limit: `ingest.max_quarantine`.
    """
    verdicts, empty = Verdicts(), dict[str, str]()
    totals = _totals(tally, known)
    for name in sorted(_too_bad(tally, totals, sources, limit)):
        bad, read = totals[name]
        if bad == read <= _FEW:
            empty[name] = tally.first[name].partition(": ")[2]
            continue
        share = f"{bad:,} of {read:,} records are unreadable ({percent(bad / read)}, limit {percent(limit)})"
        verdicts.files[name] = f"{share}, the first at {tally.first[name]}"
        verdicts.records[name] = tally.read[name]
    refused = {*verdicts.files, *empty, *(name for name, state in known.items() if BAD_FILE in _reasons(state))}
    verdicts.sources = list(_bad_sources(tally, totals, sources, refused))
    return verdicts, empty


def _too_bad(
    tally: Tally, totals: Mapping[str, tuple[int, int]], sources: Mapping[str, Path], limit: float
) -> Iterator[str]:
    """Yield the files of which more than the limit is unreadable.

    A single unreadable record among others is forgiven where the files of its source together stay below the limit.
    """
    over = [name for name in tally.bad if totals[name][0] > limit * totals[name][1]]
    single = {name for name in over if totals[name][0] == 1 < totals[name][1]}
    yield from (name for name in over if name not in single)
    for source in {_source_of(name, sources) for name in single}:
        files = [name for name in totals if _source_of(name, sources) == source and name not in {*over} - single]
        bad, read = (sum(totals[name][part] for name in files) for part in (0, 1))
        if bad > limit * read:
            yield from (name for name in single if _source_of(name, sources) == source)


def _source_of(name: str, sources: Mapping[str, Path]) -> Path:
    return sources[name.partition(MEMBER)[0]]


def _totals(tally: Tally, known: Mapping[str, SourceState]) -> dict[str, tuple[int, int]]:
    """Return the refused and all records of each file, also of those read before: a log that grew is one file."""
    totals = {name: (state.bad, state.records) for name, state in known.items() if state.records}
    for name in tally.read:
        before = known.get(name)
        bad, read = (before.bad, before.records) if before is not None and before.offset_bytes else (0, 0)
        totals[name] = (bad + tally.bad[name], read + tally.read[name])
    return totals


def _reasons(state: SourceState) -> set[str]:
    return {why.partition(":")[0] for why in state.set_aside.values()}


def _bad_sources(
    tally: Tally, totals: Mapping[str, tuple[int, int]], sources: Mapping[str, Path], refused: set[str]
) -> Iterator[BadSource]:
    """Yield the sources most of whose files are refused; those without any good file have nothing left to refuse."""
    members = defaultdict[Path, list[str]](list)
    for name in sorted(totals):
        members[_source_of(name, sources)].append(name)
    for source, names in sorted(members.items()):
        good = [name for name in names if name not in refused]
        bad = len(names) - len(good)
        left_out = {name: tally.read[name] for name in good if name in tally.read}
        if left_out and bad > len(good):
            reason = f"{bad:,} of its {count(len(names), 'file')} have too many unreadable records"
            yield BadSource(RefusedSource(source=str(source), files=len(names), reason=reason), left_out)
