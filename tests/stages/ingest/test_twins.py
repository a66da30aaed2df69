"""A log's twin as a table: the records of every format, written as CSV, give the same events or are refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import IngestConfig
from flywheel.extensions import list_extensions, load_extension
from flywheel.stages.ingest.discovery import discover
from flywheel.stages.ingest.events import ingest
from tests.stages.ingest.conftest import KEY, Taken, collect
from tests.stages.ingest.formats import Sample, all_samples

HASHED = (
    "event_id",
    "content_hash",
    "source_file",
    "source_line",
    "conversation_id",
    "task_key",
)  # by the record's text
LOGS = [sample for sample in all_samples() if all(isinstance(record, dict) for record in sample.records)]
READERS = {e.name: load_extension("readers", e.name) for e in list_extensions("readers")}


def taken(path: Path, root: Path) -> Taken:
    return collect(ingest(discover([path]), root=root, known={}, cfg=IngestConfig(), key=KEY, readers=READERS))


def table(records: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    csv.DictWriter(text, names).writeheader()
    for record in records:
        csv.DictWriter(text, names).writerow({name: cell(value) for name, value in record.items()})
    return text.getvalue()


def cell(value: object) -> object:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def events(log: Taken) -> list[str]:
    """Return what was read, whatever the blanks of JSON in it."""
    rows = log.events.drop(HASHED, strict=False).to_dicts()
    return sorted(json.dumps(row | {"payload": payload(row)}, default=str, sort_keys=True) for row in rows)


def payload(row: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(row["payload"])
    content = fields.get("content")
    return fields | ({"content": "".join(content.split())} if isinstance(content, str) else {})


@pytest.mark.parametrize("log", LOGS, ids=[log.name for log in LOGS])
def test_a_table_gives_the_events_of_its_lines(log: Sample, tmp_path: Path) -> None:
    lines = taken(log.write(tmp_path / "lines"), tmp_path / "lines")
    path = log.write(tmp_path / "table")
    path.write_text(table(log.records), encoding="utf-8")

    twin = taken(path, tmp_path / "table")

    assert events(twin) == events(lines)
    assert twin.quarantined.height == lines.quarantined.height
    if lines.events.height:
        assert twin.events["conversation_id"].n_unique() == lines.events["conversation_id"].n_unique()
