"""Messages whose fields are spelt otherwise: in capitals, with a `kind` in the place of a type, or without names.

In: one item of a session, as .NET writes it, as a list of two, or as an entry of a log. Out: the same with the names
that most programs use; any other item as it is.
"""

from __future__ import annotations

from typing import Any

from flywheel.reading.messages import ROLES
from flywheel.reading.shapes.turns import CALL_KINDS, RESULT_KINDS
from flywheel.reading.values import as_dict, when

_CALLS = (*CALL_KINDS, *RESULT_KINDS)


def lowered(item: Any) -> Any:
    """Return a message as others write it: of .NET, in capitals, whose role is an object; of a pair."""
    if isinstance(item, list):
        return _paired(item)
    if not isinstance(item, dict) or "Role" not in item or "role" in item:
        return {**item, "type": item["kind"]} if _is_of_kind(item) else item
    role = item["Role"]
    named = as_dict(role).get("Label") if isinstance(role, dict) else role
    parts = next((item[name] for name in ("Items", "Contents", "Content") if name in item), None)
    return {**_in_small(item), "role": str(named).lower(), "content": _in_small(parts)}


def _is_of_kind(item: Any) -> bool:
    """Whether an object is a call or a result by its `kind`, where others have a `type`."""
    return isinstance(item, dict) and item.get("kind") in _CALLS and "type" not in item and "role" not in item


def _paired(item: list[Any]) -> Any:
    """Return the message of a pair, `[time, message]` or `[role, words]`; any other list as it is."""
    if len(item) != len(("time", "message")) or not isinstance(item[0], str | int | float):
        return item
    before, message = item[0], as_dict(item[1])
    if "role" in message and when(before) is not None:
        return {"timestamp": before, **message}
    if isinstance(before, str) and before.lower() in ROLES and isinstance(item[1], str):
        return {"role": before.lower(), "content": item[1]}
    return item


def _in_small(value: Any) -> Any:
    """Return a value with the fields of its objects beginning in small letters, but those of arguments and results."""
    if isinstance(value, list):
        return [_in_small(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {k[:1].lower() + k[1:]: v if k in ("Arguments", "Result") else _in_small(v) for k, v in value.items()}
