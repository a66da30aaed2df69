"""One file being read: an archive's members, or the file's own records, each with the reader that knows them.

In: a file and where to begin. Out: full blocks as they come; what is left stays in the builder for the next file. The
reader is chosen once a file, by its first records. A line that was cut in two by whoever split or rotated the log is
put together from the files next to it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from flywheel.config import IngestConfig
from flywheel.errors import where
from flywheel.extensions import Reader
from flywheel.io.files import hash_text
from flywheel.stages.ingest.batches import BAD_FILE, Block, BlockBuilder, Reached
from flywheel.stages.ingest.detect import (
    READER_FAULTS,
    SAMPLE_RECORDS,
    TEXT_FILE,
    Detection,
    is_about_a_project,
    is_document_name,
    is_text_document,
)
from flywheel.stages.ingest.envelopes import Opener, Recognised, carries_text, first_of, recognised
from flywheel.stages.ingest.framing.archives import Member, archive_kind, member_beside, members
from flywheel.stages.ingest.framing.framed import Bad, Framed, Lines, Passed, Raw, Record, refused
from flywheel.stages.ingest.framing.framer import Framing, Limits
from flywheel.stages.ingest.framing.jsontext import is_object
from flywheel.stages.ingest.framing.opening import Content, Opened, file_content
from flywheel.stages.ingest.sidecar import columns_of, neighbour
from flywheel.stages.ingest.signature import signed_by
from flywheel.stages.ingest.sources import UNKNOWN, SourceState, Start, legible, reading_key

_SAMPLE_BYTES = 8_000_000
_LOOKED_FOR = 2_000  # records among which one of an agent is looked for in a program's log
_MOST_FILES = 8  # a line that is cut into more pieces is lost
_NOTHING: Mapping[str, str] = {}


class _Place(NamedTuple):
    """A content's name in the records, and its size and hash in a refusal of all of it."""

    name: str
    size_bytes: int
    sha256: str
    framing: Framing | None = None  # of a whole file, which can be read on from where a block ends


class FileReading:
    """Reads one file.

    Args:
        file: the file.
        name: its path as recorded.
        start: what is known of it.
        cfg: format and limits.
        readers: candidates by name.
        refused: why nothing of a content is to be stored, by its name; it is not read then.
    """

    def __init__(
        self,
        file: Path,
        name: str,
        start: Start,
        cfg: IngestConfig,
        readers: Mapping[str, Reader],
        refused: Mapping[str, str] = _NOTHING,
    ) -> None:
        self.state: SourceState | None = None
        self._refused = refused
        self._file, self._name, self._start, self._cfg, self._readers = file, name, start, cfg, readers
        self._limits = Limits(cfg.max_record_mb * 1_000_000, cfg.max_expand_ratio)
        self._formats: Counter[str] = Counter()
        self._records = 0

    def is_known(self) -> bool:
        """Whether all of this was read before, with the same columns from its place.

        What was set aside is known where it was tried with the same readers and settings.
        """
        same = self._start.same
        if same is not None and same.set_aside:
            return same.path == self._name and same.tried == reading_key(self._cfg, self._readers)
        return same is not None and (same.path == self._name or self._columns(same.format) == dict(same.columns))

    def _columns(self, source_format: str) -> dict[str, str]:
        reader = self._readers.get(source_format)
        if reader is None:
            return {}
        columns = columns_of(reader, self._name, lambda name: neighbour(self._file, name))
        return columns | ({"signed": self._signed} if self._signed else {})

    def _opening(self, source_format: str, begun: Framed | None, before: SourceState | None) -> Mapping[str, str]:
        """Return the columns that the first record gives, also where the file is read from a later one on."""
        opened = getattr(self._readers.get(source_format), "from_opening", None)
        if opened is None:
            return {}
        if before is not None:
            return {name: before.columns[name] for name in ("series",) if name in before.columns}
        columns: Mapping[str, str] = opened(begun.value) if isinstance(begun, Record) else {}
        return columns

    @cached_property
    def _signed(self) -> str | None:
        return signed_by(self._file) if self._start.size_bytes >= 0 else None

    def blocks(self, builder: BlockBuilder) -> Iterator[Block]:
        """Yield full blocks; the file's last records may stay in the builder."""
        start = self._start
        kind = archive_kind(self._file, start.size_bytes, self._limits.expand_ratio)
        if kind:
            yield from self._archive(kind, builder)
            self.state = self._state(f"{kind} of {self._commonest()}")
        elif is_text_document(self._file.name, file_content(self._file, start.size_bytes).open_at):
            yield from self._text(self._name, builder)
            self.state = self._state(TEXT_FILE)
        else:
            yield from self.of(file_content(self._file, start.size_bytes), builder)
        builder.close(self.state)

    def of(self, content: Content, builder: BlockBuilder) -> Iterator[Block]:
        """Read one content other than an archive."""
        before = self._continued()
        begin = None
        if before is not None and self._start.hash_before is not None:
            begin = (before.offset_bytes, before.offset_lines, before.numbered, self._start.hash_before)
        mended = self._mended(content)
        if mended is not None:
            begin = (len(mended[0]), 1, 1, hashlib.sha256(mended[0]))
        framing = Framing(content, self._limits, start=begin)
        records = _guarded(chain([Raw(1, mended[1], 1)] if mended is not None else [], framing))
        head, records = _begun(records)
        known = Recognised(Detection(before.format, 1.0)) if before is not None else None
        detection, envelope = known or self._recognised(content.name, head, records)
        if envelope is not None:
            opener = Opener(envelope, self._readers[detection.format])
            head, records = [], _guarded(opener.opened(chain(head, records)))
        begun, records = _first(head, records)
        columns = {**self._columns(detection.format), **self._opening(detection.format, begun, before)}
        by_line = envelope is None  # what is in envelopes is read again as a whole when its file has grown
        place = _Place(self._name, self._start.size_bytes, self._start.sha256, framing if by_line else None)
        yield from self._records_of(place, detection, columns, head, records, builder)
        if content.size < 0:
            return
        if self._name in self._refused:
            self.state = self._refused_state(detection.format)
            return
        offset = framing.offset if by_line and detection.format != UNKNOWN else 0  # was only looked at, not read
        self.state = self._state(
            detection.format,
            offset=offset,
            lines=framing.whole_lines if offset else 0,
            numbered=framing.whole_records if offset else None,
            prefix=framing.digest,
            columns=columns,
        )

    def _records_of(
        self,
        place: _Place,
        found: Detection,
        columns: Mapping[str, str],
        head: Sequence[Record | Bad],
        records: Iterator[Framed],
        builder: BlockBuilder,
    ) -> Iterator[Block]:
        """Give a content's records to the builder; all of them as one refusal where no reader knows them."""
        if found.format == UNKNOWN:
            builder.open(place.name, UNKNOWN, {})
            yield from filled(builder.add(_refusal(head, found, place)))
            return
        if place.name in self._refused:
            builder.open(place.name, found.format, {})
            detail = self._refused[place.name]
            yield from filled(builder.add(Bad(0, BAD_FILE, detail, max(place.size_bytes, 0), place.sha256)))
            return
        builder.open(place.name, found.format, columns, found.reason or columns.get("ignored", ""))
        for first in head:
            self._records += 1
            yield from filled(builder.add(first))
        for record in records:
            self._records += record.n_records if isinstance(record, Lines) else 1
            yield from filled(builder.add(record, lambda: self._reached(found.format, columns, place.framing)))

    def _reached(self, source_format: str, columns: Mapping[str, str], framing: Framing | None) -> Reached | None:
        """Return how far the file is read, with the state that it would have if it ended here."""
        if framing is None or self._start.size_bytes < 0:
            return None
        if not framing.offset:
            return Reached(self._name, framing.position, None)
        digest = framing.digest
        state = self._state(
            source_format,
            offset=framing.offset,
            lines=framing.whole_lines,
            numbered=framing.whole_records,
            prefix=digest,
            columns=columns,
        )
        shorter = min(framing.offset, self._start.size_bytes - 1)
        so_far = replace(state, etag="", sha256=digest, content_sha256="", size_bytes=shorter)
        return Reached(self._name, framing.position, so_far)

    def _mended(self, content: Content) -> tuple[bytes, bytes] | None:
        """Return a file's first line and the complete line, whose beginning is in a file next to this one."""
        if self._start.before is not None or content.path is None or not self._start.torn:
            return None
        with Opened(content, max_ratio=self._limits.expand_ratio) as opened:
            end = b"" if opened.compression else opened.readline(self._limits.record_bytes)
        whole = (
            whole_line(end, self._start.torn, self._limits.record_bytes) if end.strip() and not is_object(end) else None
        )
        return (end, whole) if whole is not None else None

    def _continued(self) -> SourceState | None:
        """Return the earlier reading to go on from; not one whose records meant something else by their place."""
        before = self._start.before
        if before is None or before.format not in self._readers:
            return None
        fits = before.path == self._name or self._columns(before.format) == dict(before.columns)
        return before if fits else None

    def _text(self, name: str, builder: BlockBuilder) -> Iterator[Block]:
        builder.open(name, TEXT_FILE, {}, "text document")
        yield from filled(builder.add(Raw(0, b"null", 0)))

    def _archive(self, kind: str, builder: BlockBuilder) -> Iterator[Block]:
        for member in members(self._file, self._start.size_bytes, kind, self._limits.expand_ratio):
            name = f"{self._name}!/{legible(member.name)}" if member.name else self._name
            if member.problem:
                builder.open(name, UNKNOWN, {})
                yield from filled(builder.add(Bad(0, member.reason, member.problem, 0, self._start.sha256)))
                continue
            head, records = _begun(_guarded(Framing(member.content, self._limits)))
            is_prose = is_document_name(member.name) and not any(isinstance(record, Record) for record in head)
            if is_prose or is_about_a_project(member.name):
                yield from self._text(name, builder)
            else:
                yield from self._member(kind, name, member, chain(head, records), builder)

    def _member(
        self, kind: str, name: str, member: Member, records: Iterator[Framed], builder: BlockBuilder
    ) -> Iterator[Block]:
        inside, content = member.name, member.content
        head, records = _begun(records)
        detection, envelope = self._recognised(content.name, head, records)
        if envelope is not None:
            opener = Opener(envelope, self._readers[detection.format])
            head, records = [], _guarded(opener.opened(chain(head, records)))
        self._formats[detection.format] += 1
        columns: dict[str, str] = {}
        if (reader := self._readers.get(detection.format)) is not None:
            columns = columns_of(reader, name, lambda wanted: member_beside(self._file, kind, inside, wanted))
        place = _Place(name, content.size, hash_text(f"{self._start.sha256} {inside}"))
        yield from self._records_of(place, detection, columns, head, records, builder)

    def _commonest(self) -> str:
        known = {name: count for name, count in self._formats.items() if name in self._readers}
        return min(known or {UNKNOWN: 1}, key=lambda name: (-known.get(name, 0), name))

    def _recognised(self, name: str, head: list[Record | Bad], records: Iterator[Framed]) -> Recognised:
        """Return who reads a content; where it begins with other lines of a program's log, the head grows by more."""
        if not head:
            return Recognised(Detection(TEXT_FILE, 1.0, "empty file"))
        found = recognised(name, head, self._readers, chosen=self._cfg.format)
        if found.detection.format != UNKNOWN or not any(map(carries_text, head)):
            return found
        head += first_of(records, _LOOKED_FOR)
        return recognised(name, head, self._readers, chosen=self._cfg.format)

    def _refused_state(self, source_format: str) -> SourceState:
        """Return the state of a file of which nothing new is stored: it goes on where an earlier reading ended."""
        before = self._continued() or SourceState(self._name, source_format, 0, "", 0)
        return replace(
            before,
            path=self._name,
            size_bytes=self._start.size_bytes,
            sha256=self._start.sha256,
            content_sha256=self._start.content_sha256,
            from_line=before.offset_lines,
            set_aside={},
            etag=self._start.etag,
        )

    def _state(
        self, source_format: str, *, offset: int = 0, lines: int = 0, numbered: int | None = None, prefix: str = "",
        columns: Mapping[str, str] | None = None,
    ) -> SourceState:  # fmt: skip
        before = self._continued()
        return SourceState(
            path=self._name,
            format=source_format,
            size_bytes=self._start.size_bytes,
            sha256=self._start.sha256,
            records=self._records + (before.records if before is not None else 0),
            offset_bytes=offset,
            offset_lines=lines,
            offset_records=numbered,
            from_line=before.offset_lines if before is not None else 0,
            prefix_sha256=prefix if offset else "",
            content_sha256=self._start.content_sha256,
            columns=dict(columns or {}),
            etag=self._start.etag,
        )


def _guarded(records: Iterable[Framed]) -> Iterator[Framed]:
    """Yield a content's records; where our own code fails at it, a refusal of the rest: no log stops the others."""
    try:
        yield from records
    except READER_FAULTS as error:
        yield refused(0, "truncated", f"taking it apart fails: {where(error)}; the rest is not read")


def filled(block: Block | None) -> Iterator[Block]:
    """Yield a block, if there is one."""
    if block is not None:
        yield block


def _first(head: Sequence[Record | Bad], records: Iterator[Framed]) -> tuple[Framed | None, Iterator[Framed]]:
    """Return the first record of a content, and the records behind its head as they were."""
    if head:
        return head[0], records
    begun = next(records, None)
    return begun, chain([begun] if begun is not None else [], records)


def _begun(records: Iterator[Framed]) -> tuple[list[Record | Bad], Iterator[Framed]]:
    """Return the records that detection looks at, parsed, and the others: framing gives the first ones singly."""
    passed: list[Passed] = []
    head = list(_head(records, passed))
    return head, chain(passed, records)


def _head(records: Iterator[Framed], passed: list[Passed]) -> Iterator[Record | Bad]:
    size = 0
    for count, record in enumerate(records, 1):
        if isinstance(record, Lines):
            raise TypeError("the first lines come one by one")
        if isinstance(record, Passed):
            passed.append(record)
            continue
        yield record.parse() if isinstance(record, Raw) else record
        size += len(record.raw or b"") if not isinstance(record, Bad) else 0
        if count >= SAMPLE_RECORDS or size > _SAMPLE_BYTES:
            return


def _refusal(head: Sequence[Record | Bad], found: Detection, place: _Place) -> Bad:
    """A file that no reader knows is one refusal, however many records it has."""
    bad = next((record for record in head if isinstance(record, Bad)), None)
    only_bad = all(isinstance(record, Bad) for record in head)
    detail = bad.detail if bad is not None and only_bad else found.reason
    reason = bad.reason if bad is not None and only_bad and bad.reason == "truncated" else "unknown_format"
    return Bad(0, reason, detail, max(place.size_bytes, 0), place.sha256)


def whole_line(end: bytes, before: Iterable[tuple[Path, SourceState]], limit: int) -> bytes | None:
    """Return the line that `end` is the end of.

    Args:
        end: the first line of a file.
        before: the files next to it, the one just before it first.
        limit: greatest length of a line in bytes.
    """
    begun = b""
    for count, (path, state) in enumerate(before):
        tail = _tail(path, state, limit)
        if not tail or len(begun) + len(tail) > limit or count >= _MOST_FILES:
            return None
        begun = tail + begun
        if is_object(begun + end):
            return begun + end
        if state.format != UNKNOWN:
            return None
    return None


def _tail(path: Path, state: SourceState, limit: int) -> bytes:
    """Return what was not read of a file: its unfinished last line, or all of a file that is but a piece of one."""
    size = state.size_bytes - state.offset_bytes
    if not state.torn or size > limit:
        return b""
    try:
        with path.open("rb") as handle:
            handle.seek(state.offset_bytes)
            return handle.read(size)
    except OSError:
        return b""
