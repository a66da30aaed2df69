"""The published JSON Schemas of records, configuration, pipelines and results."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flywheel.results  # noqa: F401 - importing a result publishes its schema
from flywheel.config import Config, Pipeline
from flywheel.contracts import SCHEMA_MODELS, model_schema
from flywheel.errors import UsageError
from flywheel.io import files
from flywheel.records import TABLES, Document

if TYPE_CHECKING:
    from pydantic import BaseModel


def all_schemas() -> dict[str, tuple[type[BaseModel], int]]:
    """Return name → (model, version) of everything under `schemas/`."""
    return {
        **SCHEMA_MODELS,
        "config": (Config, 1),
        "pipeline": (Pipeline, 1),
        **{name: (model, model.version) for name, model in Document.published.items()},
    }


def schema_document(name: str) -> dict[str, Any]:
    """Return one JSON Schema.

    Args:
        name: of a schema, or of a table.

    Raises:
        UsageError: no schema has that name.
    """
    known = all_schemas()
    if name in TABLES:  # a table has the schema of its rows
        name = next(schema for schema, (model, _) in known.items() if model is TABLES[name])
    if name not in known:
        near = difflib.get_close_matches(name, [*known, *TABLES], n=3)
        hint = f"did you mean {' or '.join(f'`{one}`' for one in near)}? " if near else ""
        raise UsageError(f"no schema named `{name}`", hint=f"{hint}`flywheel schema` lists all")
    return model_schema(name, *known[name])


def write_schemas(folder: Path) -> list[Path]:
    """Write every schema to `<folder>/<name>/v<N>.json` and return the paths."""
    paths = []
    for name, (_, version) in sorted(all_schemas().items()):
        path = folder / name / f"v{version}.json"
        files.write_json(path, schema_document(name))
        paths.append(path)
    return paths
