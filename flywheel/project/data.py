"""Commands that read logs and build tables."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flywheel.errors import UsageError
from flywheel.pipeline.build.run import StageStatus, build, select_stages, statuses
from flywheel.project.opened import Opened
from flywheel.records import Split
from flywheel.results import (
    BuildAnswer,
    ExportAnswer,
    IngestAnswer,
    LostFields,
    QuarantineAnswer,
    QuarantineRetry,
    ReadersAnswer,
    StageAnswer,
    StatusAnswer,
)

if TYPE_CHECKING:
    from flywheel.pipeline.ingest.run import IngestResult

__all__ = ["DataCommands"]

_REST = 4.0  # how much longer following rests than it read


class DataCommands(Opened):
    """Commands that read logs and build tables."""

    def ingest(
        self, paths: Sequence[Path | str] = (), *, log_format: str | None = None, dry_run: bool = False
    ) -> IngestAnswer:
        """Read new log lines into the store. The same files twice change nothing.

        Raises:
            IngestError: nothing was found, or too much is unreadable.
        """
        from flywheel.pipeline.ingest.run import default_sources, ingest_logs

        config = self.config
        if log_format is not None:
            config = config.model_copy(update={"ingest": config.ingest.model_copy(update={"format": log_format})})
        chosen = [Path(p) for p in paths] or default_sources(config, self.folder)
        with self.locked("ingest") as ctx:
            return _ingest_answer(
                ingest_logs(ctx.store, config, self.folder, chosen, key=self.key(), dry_run=dry_run), dry_run=dry_run
            )

    def follow(
        self,
        paths: Sequence[Path | str] = (),
        *,
        log_format: str | None = None,
        interval_s: float = 10.0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> Iterator[IngestAnswer]:
        """Read what is new, again and again; yield an answer whenever there was something, until the caller stops.

        Only files whose size or time of change moved are looked at, the lock is held only while reading, and after a
        long reading there is a long rest.

        Raises:
            IngestError: nothing is there to follow, or too much of it is unreadable.
        """
        from flywheel.stages.ingest.sources import discover

        chosen = [Path(p) for p in paths] or [self.folder / s for s in self.config.ingest.sources]
        seen: dict[Path, tuple[int, int]] = {}
        while True:
            began = time.monotonic()
            now = {file: (stat.st_size, stat.st_mtime_ns) for file in discover(chosen) if (stat := _stat(file))}
            moved = [file for file, mark in now.items() if seen.get(file) != mark]
            seen = now
            if moved:
                answer = self.ingest(moved, log_format=log_format)
                if answer.read or answer.quarantined:
                    yield answer
            sleep(max(interval_s, _REST * (time.monotonic() - began)))

    def quarantine(self, *, reason: str | None = None, file: str | None = None, limit: int = 20) -> QuarantineAnswer:
        """Return what ingest refused: counts by reason with what they mean, and the first rows.

        Raises:
            UsageError: no such reason.
        """
        from flywheel.pipeline.ingest.quarantine import quarantine

        return quarantine(self.context, reason=reason, file=file, limit=limit)

    def retry_quarantine(self) -> QuarantineRetry:
        """Read the files with quarantined records once more.

        Raises:
            UsageError: the quarantine is empty.
        """
        from flywheel.pipeline.ingest.quarantine import retry

        with self.locked("quarantine") as ctx:
            return retry(ctx, self.key())

    def readers(self, file: Path | None = None) -> ReadersAnswer:
        """Return the installed readers; with a file, how sure each is of it, and what it is taken for.

        Raises:
            IngestError: the file cannot be read.
        """
        from flywheel.pipeline.ingest.detect import readers

        return readers(self.config.ingest, self.folder, file)

    def build(
        self,
        *,
        select: str | None = None,
        full_refresh: bool = False,
        on_stage: Callable[[StageAnswer], None] = lambda _: None,
    ) -> BuildAnswer:
        """Bring the derived tables up to date; fresh stages are skipped.

        Raises:
            UsageError: `select` names no stage.
        """
        stages = select_stages(select)
        with self.locked("build") as ctx:
            done = build(
                ctx.store,
                ctx.config,
                self.folder,
                stages=stages,
                full_refresh=full_refresh,
                on_stage=lambda s: on_stage(_stage_answer(s)),
            )
        return BuildAnswer(stages=[_stage_answer(s) for s in done])

    def export(self, folder: Path | str, *, forms: Sequence[str] = (), split: str = "train") -> ExportAnswer:
        """Write the mined rows in TRL's dataset forms into a folder; stale tables are built first.

        Raises:
            UsageError: an unknown form or split, or a folder that flywheel did not write.
        """
        from flywheel.pipeline.serve.export import export

        if split not in tuple(Split):
            raise UsageError(f"unknown split `{split}`", hint=f"splits: {', '.join(Split)}")
        with self.locked("export") as ctx:
            build(ctx.store, ctx.config, self.folder)
            return export(ctx, Path(folder).resolve(), list(forms), Split(split))

    def status(self) -> StatusAnswer:
        """Return what is new, stale and pending; reads JSON files only."""
        from flywheel.pipeline.inspect.status import next_command, source_files

        stages = statuses(self.store, self.config)
        known, new = source_files(self.context)
        aliases = self.registry.aliases()
        snapshots = [self.store.current(name) for name in ("ingest", *(s.stage for s in stages))]
        return StatusAnswer(
            project=self.config.name or self.folder.name,
            store=self.config.store,
            store_bytes=sum(p.size_bytes for s in snapshots if s for p in s.parts),
            **aliases,
            next_round=self.registry.next_number(),
            source_files=known,
            new_files=new,
            stages=[_stage_answer(s) for s in stages],
            next=next_command(self.context, stages, known=known, new=new),
        )


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:  # rotated away just now
        return None


def _ingest_answer(found: IngestResult, *, dry_run: bool) -> IngestAnswer:
    return IngestAnswer(
        files=found.files,
        unchanged=found.unchanged,
        formats=dict(sorted(found.formats.items())),
        read=found.read,
        kept=found.kept,
        duplicate=found.duplicate,
        forgotten=found.forgotten,
        ignored=dict(sorted(found.ignored.items())),
        quarantined=dict(sorted(found.quarantined.items())),
        first_quarantined=found.first_bad,
        events=found.events,
        redacted=dict(sorted(found.redacted.items())),
        lost=[
            LostFields(format=name, sampled=fields.total, fields=dict(sorted(fields.by_path.items())))
            for name, fields in sorted(found.lost.items())
        ],
        dry_run=dry_run,
    )


def _stage_answer(status: StageStatus) -> StageAnswer:
    return StageAnswer(
        stage=status.stage,
        state=status.state,
        why=list(status.why),
        rows=dict(status.rows),
        funnel=dict(status.funnel),
        seconds=round(status.seconds, 3),
    )
