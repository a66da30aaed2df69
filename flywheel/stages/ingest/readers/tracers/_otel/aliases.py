"""The names of GenAI attributes, as data.

In: `aliases.toml`, read once, with the first span. Out: `Aliases`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Names:
    """The attributes of each meaning; the first that is present wins."""

    operation: tuple[str, ...]
    response_id: tuple[str, ...]
    finish_reason: tuple[str, ...]
    input: tuple[str, ...]
    output: tuple[str, ...]
    output_text: tuple[str, ...]
    output_object: tuple[str, ...]
    output_calls: tuple[str, ...]
    output_reasoning: tuple[str, ...]
    message_events: tuple[str, ...]
    transcript: tuple[str, ...]
    new_from: tuple[str, ...]
    system: tuple[str, ...]
    tools: tuple[str, ...]
    references: tuple[str, ...]
    time: tuple[str, ...]
    latency_ms: tuple[str, ...]
    sampling: tuple[str, ...]
    prompt_token_ids: tuple[str, ...]
    completion_token_ids: tuple[str, ...]
    tool_name: tuple[str, ...]
    tool_call_id: tuple[str, ...]
    tool_arguments: tuple[str, ...]
    tool_result: tuple[str, ...]
    tool_success: tuple[str, ...]
    tool_failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Aliases:
    """The complete table: names of attributes, and the roles of spans by the values of attributes and by name."""

    version: int
    names: Names
    roles: Mapping[str, str]
    prefixes: Mapping[str, tuple[str, ...]]


@cache
def aliases() -> Aliases:
    """Return the packaged table."""
    return parse_aliases(
        files("flywheel.stages.ingest.readers.tracers").joinpath("aliases.toml").read_text(encoding="utf-8")
    )


def parse_aliases(text: str) -> Aliases:
    """Return a table from its text.

    Raises:
        ValueError: a meaning is missing, unknown, empty, or names an attribute twice.
    """
    record: dict[str, Any] = tomllib.loads(text)
    names = {meaning: tuple(given) for meaning, given in record["names"].items()}
    wrong = {field.name for field in fields(Names)} ^ names.keys()
    wrong |= {meaning for meaning, given in names.items() if not given or len(set(given)) < len(given)}
    if wrong:
        raise ValueError(f"meanings missing, unknown, empty or with a name twice: {', '.join(sorted(wrong))}")
    roles = {value: role for role, values in record["roles"].items() for value in values}
    prefixes = {role: tuple(values) for role, values in record["prefixes"].items()}
    return Aliases(record["version"], Names(**names), roles, prefixes)
