"""Publishing the current tables as Delta tables over the store's own parts, so that other programs open them.

In: the store, in a folder or a bucket. Out: `tables/<table>/_delta_log/<version>.json`: lines of JSON that name parts,
as the Delta protocol (version 1 for readers, 2 for writers) has them. Nothing is copied. The store's snapshots stay the
commit; a log is one table's history of what was published, and holds no value of any row: no statistics, no times.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import polars as pl

from flywheel.contracts import polars_schema
from flywheel.errors import StoreError
from flywheel.io import files
from flywheel.io.places import Folder
from flywheel.pipeline.build.registry import stage_of
from flywheel.records import TABLES, Row, canonical_json
from flywheel.results.data import PublishAnswer, PublishedTable
from flywheel.store import Part, Store, way_out

_LOG = "_delta_log"
_PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
_TYPES: dict[pl.DataType, str] = {
    pl.String(): "string",
    pl.Boolean(): "boolean",
    pl.Int64(): "long",
    pl.Float64(): "double",
    pl.Datetime("us", "UTC"): "timestamp",
}


def publish(store: Store) -> PublishAnswer:
    """Bring every table's Delta log up to its current snapshot; what has not changed gets no new version.

    Raises:
        StoreError: a part or a log is missing or damaged.
        BusyError: the store is in a bucket, and another machine has published since this command began.
    """
    return PublishAnswer(tables=_published(store, TABLES))


def republish(store: Store) -> None:
    """Bring those tables up to date that were published before: their newest version is to name files that stay.

    Raises:
        StoreError: a part or a log is missing or damaged.
    """
    _published(store, [name for name in TABLES if store.place.published(f"tables/{name}/{_LOG}")])


def _published(store: Store, names: Iterable[str]) -> list[PublishedTable]:
    tables = []
    for name in names:
        snapshot = store.current(stage_of(name))
        if snapshot is None:
            continue
        parts = [part for part in snapshot.parts if part.table == name]
        for part in parts:
            if problem := store.damage(part):
                raise StoreError(f"a part of table {name} is {problem}: `{part.path}`", hint=way_out(name))
        version, shown = _publish_table(store.place, name, parts, snapshot.number), store.place.shown(f"tables/{name}")
        tables.append(PublishedTable(table=name, folder=shown, version=version, rows=snapshot.rows(name)))
    return tables


def _publish_table(place: Folder, name: str, parts: Sequence[Part], snapshot: int) -> int:
    """Append a version if the table's parts or columns have changed; return the newest version's number."""
    log = f"tables/{name}/{_LOG}"
    versions = [version for version in place.published(log) if Path(version).stem.isdigit()]
    there, columns = set[str](), ""
    for action in (action for version in versions for action in place.rows(version)):
        there |= {action["add"]["path"]} if "add" in action else set()
        there -= {action["remove"]["path"]} if "remove" in action else set()
        columns = action["metaData"]["schemaString"] if "metaData" in action else columns
    here = {Path(part.path).relative_to(f"tables/{name}").as_posix(): part for part in parts}
    wanted = _columns(TABLES[name])
    if versions and there == here.keys() and columns == wanted:
        return len(versions) - 1
    actions = [
        {"commitInfo": {"operation": "flywheel publish", "operationParameters": {"snapshot": str(snapshot)}}},
        *([] if versions else [_PROTOCOL]),
        *([] if columns == wanted else [_metadata(name, wanted)]),
        *({"remove": {"path": path, "dataChange": True}} for path in sorted(there - here.keys())),
        *_added({path: part for path, part in here.items() if path not in there}),
    ]
    text = "".join(json.dumps(action, sort_keys=True, separators=(",", ":")) + "\n" for action in actions)
    place.publish(f"{log}/{len(versions):020}.json", text)
    return len(versions)


def _added(parts: dict[str, Part]) -> Iterator[dict[str, Any]]:
    for path, part in sorted(parts.items()):
        counts = canonical_json({"numRecords": part.rows})
        of_file = {"path": path, "size": part.size_bytes, "modificationTime": 0, "stats": counts}
        yield {"add": {**of_file, "partitionValues": {}, "dataChange": True}}


def _metadata(name: str, columns: str) -> dict[str, Any]:
    names = {"id": str(UUID(files.hash_text(f"flywheel {name}")[:32])), "name": name}
    how = {"format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "configuration": {}}
    return {"metaData": {**names, **how, "schemaString": columns}}


def _columns(row: type[Row]) -> str:
    """Return a table's columns as Delta writes them; all may be null, as in parts that are older than a column."""
    fields = [
        {"name": name, "type": _type(dtype), "nullable": True, "metadata": {}}
        for name, dtype in polars_schema(row).items()
    ]
    return canonical_json({"type": "struct", "fields": fields})


def _type(dtype: pl.DataType) -> Any:
    if isinstance(dtype, pl.List):
        return {"type": "array", "elementType": _type(cast("pl.DataType", dtype.inner)), "containsNull": True}
    return _TYPES[dtype]
