"""The quarantine: the records that ingest refused, what each reason means, and reading their files again.

A row leaves the quarantine when its line is read again: after a retry, when its file grew past an unfinished line, or
when the file was replaced. The refused text itself is never stored; a retry reads it where it came from.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl

from flywheel.errors import UsageError
from flywheel.pipeline.context import Context
from flywheel.pipeline.ingest.reread import is_there
from flywheel.pipeline.ingest.run import ingest_logs
from flywheel.records import Quarantined
from flywheel.results.data import QuarantineAnswer, QuarantineReason, QuarantineRetry
from flywheel.stages.ingest.sources import placed

MEANING = {
    "bad_json": "Not valid JSON: usually a logger killed mid-write, or two processes writing one file.",
    "bad_record": "JSON of a known format with a part that cannot be used; the detail names it.",
    "bad_encoding": "Not UTF-8: export the log as UTF-8.",
    "truncated": "The file ends inside a record, or its compression is damaged; read once the file is complete.",
    "bad_file": "More of the file is unreadable than ingest.max_quarantine allows, so none of it is stored.",
    "unreadable_file": "The file could not be opened: check its permissions.",
    "unknown_format": "No reader recognises the records: name one with --format, or write one as a plugin.",
}
_ARCHIVE = "!/"


def quarantined_rows(ctx: Context) -> pl.DataFrame:
    """Return the quarantine, by file and line."""
    return ctx.store.table("quarantine", "ingest").collect().sort("source_file", "source_line", "reason")


def quarantine(ctx: Context, *, reason: str | None, file: str | None, limit: int) -> QuarantineAnswer:
    """Return the quarantine's counts by reason, and its first rows.

    Raises:
        UsageError: no such reason.
    """
    if reason is not None and reason not in MEANING:
        raise UsageError(f"no reason `{reason}`", hint=f"reasons: {', '.join(MEANING)}")
    rows = quarantined_rows(ctx)
    if reason is not None:
        rows = rows.filter(pl.col("reason") == reason)
    if file is not None:
        rows = rows.filter(pl.col("source_file").str.contains(file, literal=True))
    counts = Counter(rows["reason"].to_list())
    return QuarantineAnswer(
        records=rows.height,
        files=rows["source_file"].n_unique(),
        size_bytes=int(rows["size_bytes"].sum()),
        reasons=[
            QuarantineReason(reason=name, records=counts[name], meaning=MEANING[name])
            for name in sorted(counts, key=lambda name: (-counts[name], name))
        ],
        rows=[Quarantined(**row) for row in rows.head(limit).iter_rows(named=True)],
    )


def retry(ctx: Context, key: bytes) -> QuarantineRetry:
    """Read every file that has quarantined records once more, from its beginning; what is stored is not stored twice.

    Raises:
        UsageError: the quarantine is empty.
    """
    before = quarantined_rows(ctx)
    names = sorted({name.partition(_ARCHIVE)[0] for name in before["source_file"]})
    if not names:
        raise UsageError("nothing is quarantined", hint="`flywheel status` shows what is new")
    there = {name: path for name in names if is_there(path := placed(name, ctx.project), ctx.config.ingest)}
    fields: dict[str, Any] = {"read": 0, "kept": 0}
    if there:
        paths = list(there.values())
        result = ingest_logs(ctx.store, ctx.config, ctx.project, paths, key=key, again=frozenset(there), strict=False)
        fields = {"read": result.read, "kept": result.kept}
    return QuarantineRetry(
        files=len(there),
        gone=[name for name in names if name not in there],
        before=before.height,
        after=quarantined_rows(ctx).height,
        **fields,
    )
