"""Patterns and JSON Schemas that cannot hang: no network, and a time linear in the text.

In: a pattern or a schema that a user wrote. Out: a function. Patterns are matched with Rust's engine (through polars)
instead of Python's, whose time can grow exponentially; `patternProperties`, which the library matches with Python's, is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

_REFERENCES = ("$ref", "$dynamicRef")


class BadCheckError(Exception):
    """A check cannot be used: what is wrong, and what to do; never a value of the case."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def contains(pattern: str, text: str) -> bool:
    """Return whether a pattern is found in a text.

    Raises:
        BadCheckError: the pattern is not valid for this engine, or too large.
    """
    try:
        return bool(pl.Series([text], dtype=pl.String).str.contains(pattern, strict=True).item())
    except pl.exceptions.PolarsError:
        raise BadCheckError(
            "the pattern is not a regular expression in Rust's syntax",
            "no look-around, no back-references; use `absent` for something that must not be found",
        ) from None


def check_pattern(pattern: str) -> str:
    """Return the pattern if it can be used; raises BadCheckError if not."""
    contains(pattern, "")
    return pattern


def fits_schema(schema: Mapping[str, Any]) -> Callable[[Any], bool]:
    """Return whether a value fits a schema, as a function of the value.

    Raises:
        BadCheckError: it is not a schema of draft 2020-12, or refers to another document.
    """
    import jsonschema
    import referencing

    for key, value in _keywords(schema):
        if key in _REFERENCES and not str(value).startswith("#"):
            raise BadCheckError("the schema refers to another document", "keep what it refers to under `$defs`")
        if key == "patternProperties":
            raise BadCheckError("the schema uses `patternProperties`", "use `propertyNames` with a `pattern` instead")
        if key == "pattern":
            check_pattern(str(value))
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        place = "/".join(str(part) for part in error.absolute_path)
        raise BadCheckError(f"the schema is wrong at /{place}", "it must be a JSON Schema of draft 2020-12") from None
    extend: Any = jsonschema.validators.extend
    bounded = extend(jsonschema.Draft202012Validator, {"pattern": _pattern})
    validator = bounded(schema, registry=referencing.Registry())

    def fits(value: Any) -> bool:
        try:
            return bool(validator.is_valid(value))
        except RecursionError:
            return False

    return fits


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key of every object in a schema that could be a keyword: names of properties are none."""
    if isinstance(schema, list):
        for inner in schema:
            yield from _keywords(inner)
    if not isinstance(schema, Mapping):
        return
    for key, value in schema.items():
        yield key, value
        if key in {"properties", "$defs", "definitions", "dependentSchemas"} and isinstance(value, Mapping):
            for inner in value.values():
                yield from _keywords(inner)
        elif key not in {"enum", "const", "default", "examples"}:
            yield from _keywords(value)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ARG001 - its contract
    import jsonschema

    if isinstance(instance, str) and not contains(pattern, instance):
        yield jsonschema.ValidationError("the pattern is not found")
