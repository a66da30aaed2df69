"""When a proposed tool call is the same as a logged one: same tool, same arguments, types and all.

In: calls in the normal form (`records.ToolCall` as a dict). The comparison is strict where a wrong character is a wrong
call: ids, paths, numbers in strings, SQL and code are equal only if their text is, after Unicode's compatibility form
and outer blanks. Only arguments that the caller marks as free text are compared loosely, because a loose comparison
would call `a/b` and `ab`, or "-5" and "5", the same.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TOLERANCE = 1e-6
_LOOSE = str.maketrans(dict.fromkeys(" ,./-_*^") | {"'": '"'})


@dataclass(frozen=True)
class MatchRules:
    """Exceptions from strictness, each as (tool, argument)."""

    free_text: frozenset[tuple[str, str]] = frozenset()
    ignore: frozenset[tuple[str, str]] = frozenset()


STRICT = MatchRules()


def same_text(proposed: str, wanted: str, *, free_text: bool = False) -> bool:
    """Return whether two strings mean the same: exactly, or without case, blanks and light punctuation."""
    first, second = (unicodedata.normalize("NFKC", t).strip() for t in (proposed, wanted))
    if free_text:
        return first.lower().translate(_LOOSE) == second.lower().translate(_LOOSE)
    return first == second


def same_value(proposed: Any, wanted: Any, *, free_text: bool = False) -> bool:
    """Return whether two JSON values are equal, a number's being whole or not and 1e-6 of it apart."""
    if isinstance(proposed, bool) or isinstance(wanted, bool) or proposed is None or wanted is None:
        return proposed is wanted
    if isinstance(proposed, (int, float)) and isinstance(wanted, (int, float)):
        return _same_number(proposed, wanted)
    if isinstance(proposed, str) and isinstance(wanted, str):
        return same_text(proposed, wanted, free_text=free_text)
    if isinstance(proposed, list) and isinstance(wanted, list):
        return len(proposed) == len(wanted) and all(
            same_value(m, w, free_text=free_text) for m, w in zip(proposed, wanted, strict=True)
        )
    if isinstance(proposed, dict) and isinstance(wanted, dict):
        return proposed.keys() == wanted.keys() and all(
            same_value(proposed[k], wanted[k], free_text=free_text) for k in proposed
        )
    return False


def _same_number(proposed: float, wanted: float) -> bool:
    """Whole numbers are compared exactly: two large ids a digit apart are two ids."""
    if isinstance(proposed, int) and isinstance(wanted, int):
        return proposed == wanted
    return math.isclose(proposed, wanted, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _tool_name(name: str) -> str:
    return name.replace(".", "_")


def _schemas(tools: Sequence[Mapping[str, Any]] | None) -> dict[str, Mapping[str, Any]]:
    """Return each tool's parameter schema by name, from OpenAI function schemas with or without their wrapper."""
    functions = [t.get("function", t) for t in tools or []]
    return {_tool_name(str(f.get("name"))): f.get("parameters") or {} for f in functions if isinstance(f, Mapping)}


def _without_defaults(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without optional ones that mean the same as their absence: null, or the default."""
    properties, required = schema.get("properties") or {}, set(schema.get("required") or ())

    def is_default(name: str, value: Any) -> bool:
        described = properties.get(name)
        if name in required or not isinstance(described, Mapping):
            return False
        return value is None or ("default" in described and same_value(value, described["default"]))

    return {name: value for name, value in arguments.items() if not is_default(name, value)}


def _same_call(
    proposed: Mapping[str, Any], wanted: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]], rules: MatchRules
) -> bool:
    tool = _tool_name(str(proposed["name"]))
    if tool != _tool_name(str(wanted["name"])) or proposed.get("arguments") is None or wanted.get("arguments") is None:
        return False
    schema = schemas.get(tool, {})
    first, second = (_without_defaults(c["arguments"], schema) for c in (proposed, wanted))
    names = {n for n in first.keys() | second.keys() if (tool, n) not in rules.ignore}
    if not (names <= first.keys() and names <= second.keys()):
        return False
    return all(same_value(first[n], second[n], free_text=(tool, n) in rules.free_text) for n in names)


def same_calls(
    proposed: Sequence[Mapping[str, Any]],
    wanted: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    rules: MatchRules = STRICT,
) -> bool:
    """Return whether two actions make the same calls, in any order; a call that did not parse equals none.

    Args:
        proposed: the calls to check.
        wanted: the logged calls.
        tools: tool schemas, where known: they define which arguments are optional and their defaults.
        rules: arguments compared loosely or not at all.
    """
    if len(proposed) != len(wanted):
        return False
    schemas = _schemas(tools)
    partners = [[j for j, w in enumerate(wanted) if _same_call(m, w, schemas, rules)] for m in proposed]
    taken: dict[int, int] = {}
    return all(_place(i, partners, taken, set()) for i in range(len(proposed)))


def _place(i: int, partners: Sequence[Sequence[int]], taken: dict[int, int], tried: set[int]) -> bool:
    """Give call i a partner, moving others where needed (augmenting paths)."""
    for j in partners[i]:
        if j not in tried:
            tried.add(j)
            if j not in taken or _place(taken[j], partners, taken, tried):
                taken[j] = i
                return True
    return False
