"""A log's twins as tables: the records of every format, as CSV and as Arrow, give the same events or are refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from flywheel.config import IngestConfig
from flywheel.extensions import list_extensions, load_extension
from flywheel.stages.ingest.discovery import discover
from flywheel.stages.ingest.events import ingest
from flywheel.stages.ingest.framing.tables import WORDS
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


def arrow(records: list[dict[str, Any]]) -> bytes:
    """Return records as a stream of compressed batches: columns of their own types where all cells have one."""
    names = list(dict.fromkeys(name for record in records for name in record))
    table = pa.table({name: column(name, [record.get(name) for record in records]) for name in names})
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table, max_chunksize=2)
    return buffer.getvalue()


def column(name: str, values: list[Any]) -> pa.Array:
    """Return a column in the type that its values have in common, with repeated texts once; JSON text if there is none.

    Objects without their nulls are what a table keeps of them.
    """
    try:
        typed = pa.array(values)
        if typed.to_pylist() == values and not pa.types.is_nested(typed.type):
            return typed.dictionary_encode() if pa.types.is_string(typed.type) else typed
        if [bare(value) for value in typed.to_pylist()] == values:
            return typed
    except (pa.ArrowException, OverflowError):
        pass
    if any(isinstance(value, int | float) or (name in WORDS and isinstance(value, list | dict)) for value in values):
        pytest.skip(f"`{name}` has values of several types, which no table of types can hold")
    return pa.array([cell(value) for value in values])


def bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: bare(held) for name, held in value.items() if held is not None}
    return [bare(held) for held in value] if isinstance(value, list) else value


def events(log: Taken) -> list[str]:
    """Return what was read, whatever the blanks of JSON in it."""
    rows = log.events.drop(HASHED, strict=False).to_dicts()
    return sorted(json.dumps(row | {"payload": payload(row)}, default=str, sort_keys=True) for row in rows)


def payload(row: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(row["payload"])
    content = fields.get("content")
    return fields | ({"content": "".join(content.split())} if isinstance(content, str) else {})


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        pytest.param(log, kind, id=f"{log.name}-{kind}", marks=[pytest.mark.e2e] if (number + place) % 6 else [])
        for number, log in enumerate(LOGS)
        for place, kind in enumerate(("csv", "arrow"))
    ],
)
def test_a_table_gives_the_events_of_its_lines(log: Sample, kind: str, tmp_path: Path) -> None:
    lines = taken(log.write(tmp_path / "lines"), tmp_path / "lines")
    path = log.write(tmp_path / "table")
    path.write_bytes(table(log.records).encode() if kind == "csv" else arrow(log.records))

    twin = taken(path, tmp_path / "table")

    assert events(twin) == events(lines)
    assert twin.quarantined.height == lines.quarantined.height
    if lines.events.height:
        assert twin.events["conversation_id"].n_unique() == lines.events["conversation_id"].n_unique()
