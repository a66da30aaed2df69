"""`flywheel diff`: what changed between two rounds in settings, tables, trained rows and metrics.

In: two rounds' folders. Out: a `DiffAnswer`; equal rounds give an empty one.
"""

from __future__ import annotations

from typing import Any

from flywheel.errors import UsageError
from flywheel.io.files import read_rows
from flywheel.pipeline.build.run import changes
from flywheel.pipeline.context import Context
from flywheel.records import RoundManifest
from flywheel.results.rounds import DiffAnswer, DiffMetric

_MADE = ("method", "parent", "reference", "base_model", "base_model_sha256", "seed", "versions", "state")


def compare_rounds(ctx: Context, first: str, second: str) -> DiffAnswer:
    """Return the changes from the first round to the second.

    Raises:
        UsageError: a name is not a round's, or is the base model's.
    """
    before, now = (_round(ctx, name) for name in (first, second))
    rows = [_rows(ctx, manifest) for manifest in (before, now)]
    return DiffAnswer(
        before=before.round,
        now=now.round,
        made=_changes({name: getattr(before, name) for name in _MADE}, {name: getattr(now, name) for name in _MADE}),
        config=_changes(before.config, now.config),
        inputs=_changed_tables(before, now),
        rows_added=len(rows[1].keys() - rows[0].keys()),
        rows_dropped=len(rows[0].keys() - rows[1].keys()),
        rows_kept=len(rows[0].keys() & rows[1].keys()),
        tasks_added=len(set(rows[1].values()) - set(rows[0].values())),
        tasks_dropped=len(set(rows[0].values()) - set(rows[1].values())),
        funnel=_changes(before.counts, now.counts),
        metrics=_metrics(ctx, before.round, now.round),
    )


def _round(ctx: Context, name: str) -> RoundManifest:
    number = ctx.registry.resolve(name)
    if number is None:
        raise UsageError(f"`{name}` is the base model, which is not a round", hint="flywheel log")
    return ctx.registry.manifest(number)


def _changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [line.removeprefix("config ") for line in changes({"settings": before}, {"settings": now})]


def _changed_tables(before: RoundManifest, now: RoundManifest) -> list[str]:
    hashes = [{table: value.get("sha256") for table, value in m.inputs.items()} for m in (before, now)]
    return sorted(table for table in {*before.inputs, *now.inputs} if hashes[0].get(table) != hashes[1].get(table))


def _rows(ctx: Context, manifest: RoundManifest) -> dict[str, str]:
    """Return the ids of a round's rows with their tasks."""
    rows: dict[str, str] = {}
    for data in manifest.dataset:
        path = ctx.registry.folder(manifest.round) / data.path
        rows |= {row["id"]: row["task_id"] for row in read_rows(path, optional=True)}
    return rows


def _metrics(ctx: Context, before: int, now: int) -> list[DiffMetric]:
    """Return the metrics of both evaluations, without differences: each evaluation has cases of its own."""
    reports = [ctx.registry.report(number) for number in (before, now)]
    rows = [
        {(m.suite, m.metric): m for m in report.metrics if m.slice == "all"} if report else {} for report in reports
    ]
    return [
        DiffMetric(
            suite=key[0],
            metric=key[1],
            before=rows[0][key].value if key in rows[0] else None,
            n_before=rows[0][key].n if key in rows[0] else 0,
            now=rows[1][key].value if key in rows[1] else None,
            n_now=rows[1][key].n if key in rows[1] else 0,
        )
        for key in sorted({*rows[0], *rows[1]})
    ]
