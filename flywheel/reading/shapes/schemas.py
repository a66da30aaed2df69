"""Tool schemas, wherever in a logged value they stand and however their framework wraps them.

In: a list of schemas, a request that offers some, an object keyed by their names; also as JSON text. Out: schemas in
OpenAI's form. Used by `asked`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.memo import cached_by_content
from flywheel.reading.messages import tool_schemas
from flywheel.reading.shapes.lists import DEEPEST
from flywheel.reading.values import as_dict, embedded, first

_HOLDERS = (
    "functionDeclarations", "function_declarations", "toolSpec", "json_schema", "tools", "tool", "function_tools",
    "output_tools",
)  # fmt: skip
_PARAMETERS = ("parameters_json_schema", "parametersJsonSchema", "inputSchema", "args_schema")
_MARKS = {"description", "parameters", "input_schema", *_PARAMETERS}


def schemas(given: Any) -> list[dict[str, Any]] | None:
    """Return the tool schemas in a value; None when there are none."""
    return _schemas(given) or None if given else None


@cached_by_content
def _schemas(given: Any) -> list[dict[str, Any]]:
    return tool_schemas(list(_found(embedded(given), 0))) or []


def _found(given: Any, depth: int) -> Iterator[dict[str, Any]]:
    if depth > DEEPEST:
        return
    if isinstance(given, list):
        for item in given:
            yield from _found(embedded(item), depth + 1)
        return
    schema = as_dict(given)
    held = [embedded(schema[name]) for name in _HOLDERS if schema.get(name) is not None]
    if "name" in schema or ("function" in schema and not held):
        yield _schema(schema)
    elif held:
        yield from _found(held, depth)
    else:
        config = as_dict(schema.get("config")).get("tools")  # Gemini's
        yield from _found(config, depth + 1) if isinstance(config, list) else _keyed(schema)


def _keyed(by_name: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, item in by_name.items():
        schema = as_dict(embedded(item))
        if not _MARKS.isdisjoint(schema):
            yield _schema({**schema, "name": name})


def _schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    parameters = embedded(first(schema, _PARAMETERS))
    inner = as_dict(parameters)
    parameters = next((inner[k] for k in ("json", "jsonSchema") if isinstance(inner.get(k), dict)), parameters)
    return {"parameters": parameters, **schema, "inputSchema": None} if parameters else dict(schema)
