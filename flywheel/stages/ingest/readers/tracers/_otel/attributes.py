"""A span's attributes in one form, whatever wrote them: dotted names, and lists where the log has numbered names.

`llm.input_messages.0.message.role` (numbered), `llm.input_messages: [{"message.role": ...}]` (dotted inside) and
`llm: {"input_messages": [{"message": {"role": ...}}]}` (nested) all become `llm.input_messages: [{"message": {"role":
...}}]`.

In: attributes as a span or row has them. Out: a dict by dotted names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from flywheel.reading.values import embedded

_NUMBERED = re.compile(r"(.+?)\.(\d{1,9}(?:\..+)?)\Z")
# OpenInference's own names; other conventions' structured values are what they are.
_ROOTS = {
    "llm", "openinference", "input", "output", "session", "user", "tool", "annotations", "evaluations", "trace",
    "agent", "metadata",
}  # fmt: skip
_WHOLE = {"llm.invocation_parameters", "input.value", "output.value"}  # JSON texts, which a table may have opened
_NESTED = "gen_ai"  # in Phoenix's data frames, where no value is an object
_AS_JSON = ("mlflow.", "traceloop.entity.")
_EMPTY: tuple[Any, ...] = (None, "", [], {})


def folded(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes by their dotted names, with a list in addition to the names that are numbered."""
    attributes = _spelled_out(fields)
    groups: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in attributes.items():
        parts = _numbered(name)
        if parts:
            groups[parts[0]][parts[1]] = value
    for prefix, flat in groups.items():
        attributes.setdefault(prefix, _listed(_tree(flat)))
    return attributes


@lru_cache(maxsize=4096)
def _numbered(name: str) -> Sequence[str]:
    """Return the part of a name before its first number, and the rest; () for a name without numbers."""
    match = _NUMBERED.match(name)
    return match.groups() if match else ()


def _spelled_out(record: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict | list) and name.split(".", 1)[0] in _ROOTS and name not in _WHOLE:
            fields.update(_leaves(name, value))
        elif isinstance(value, dict) and name == _NESTED:
            fields.update(_branches(name, value))
        elif value is not None:
            fields[name] = unquoted(value) if name.startswith(_AS_JSON) else value
    return fields


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for number, inner in enumerate(value):
            yield from _leaves(f"{name}.{number}", inner)
    elif value is not None:
        yield name, value


def _branches(name: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested names; a list is a value."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _branches(f"{name}.{key}", inner)
        elif inner is not None:
            yield f"{name}.{key}", inner


def unquoted(value: Any) -> Any:
    """Return the text in a text that was written as JSON, as MLflow and OpenLLMetry's decorators write theirs."""
    if not isinstance(value, str) or not value[:1] == value[-1:] == '"':
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _tree(flat: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *path, leaf = name.split(".")
        node = tree
        for part in path:
            inner = node.setdefault(part, {})
            node = inner if isinstance(inner, dict) else {}
        node[leaf] = value
    return tree


def _listed(node: Any) -> Any:
    """Return a tree whose numbered branches are lists; gaps in the numbers are nothing."""
    if not isinstance(node, dict):
        return node
    numbers = [key for key in node if key.isdecimal()]
    if numbers:
        return [_listed(node[key]) for key in sorted(numbers, key=int)]
    return {key: _listed(value) if isinstance(value, dict) else value for key, value in node.items()}


def nested(attributes: Mapping[str, Any], prefix: str) -> Any:
    """Return what was flattened into names like `prefix.0.role`; gaps in a list's numbers are nothing."""
    start = prefix + "."
    return _listed(_tree({name[len(start) :]: value for name, value in attributes.items() if name.startswith(start)}))


def value_of(attributes: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the first of the named values that is not empty, parsed where it is JSON; None when there is none."""
    if attributes.keys().isdisjoint(names):
        return None
    for name in names:
        value = attributes.get(name)
        if value is not None and ((opened := embedded(value)) or opened not in _EMPTY):
            return opened
    return None
