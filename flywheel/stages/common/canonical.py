"""What makes two requests, two calls or two states "the same": canonical forms and the ids made from them.

In: parsed JSON of messages and calls. Out: text and ids that ignore what carries no meaning, so that attempts at one
task meet in the same anchor states: of calls the order of keys, 1.0 or 1 and outer blanks, of what people and agents
say also letter case and width. A call's case is a part of it: options, names and paths differ by it.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from flywheel.records import ID_HEX, canonical_json, content_id, has_no_floats, plain_value

STATE_TASK_HEX = 16  # digits of a state that are its task's
HOLDOUT_SALT = "flywheel-holdout:"

# Placeholders for ids, dates and the like in an action's key, as (pattern, slot), applied in this order. Only the
# credit of alike actions uses slots: within one task a wrong order number is a wrong action.
SLOTS: tuple[tuple[str, str], ...] = (
    (r"<([A-Za-z]+)_[0-9a-f]{4,}>", "<$1>"),  # redaction's pseudonyms
    (r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<ID>"),
    (r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "<EMAIL>"),
    (r"(?i)\bhttps?://[^\s\"]+", "<URL>"),
    (r"(?i)\b\d{4}-\d{2}-\d{2}(?:[t ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:z|[+-]\d{2}:?\d{2})?)?\b", "<DATE>"),
    (r"'[^'\n]{1,200}'|\\\"(?:[^\"\\\n]){1,200}\\\"", "<QUOTED>"),
    (r"(?i)\b(?:[a-z]+[-_#])?[0-9a-z]*\d[0-9a-z]*\d[0-9a-z]*\d[0-9a-z]*\b", "<ID>"),  # three digits or more
)


# How tables name a round ("round 3"), and how `flywheel champion` has it served ("shop-round-3").
_ROUND = re.compile(r"(?:.*-)?round[ -]\d+")


def is_round(name: str) -> bool:
    """Whether the name that a log gives a policy or a model is a round's."""
    return _ROUND.fullmatch(name) is not None


def parse(text: str, *, exact: bool) -> Any:
    """Return the JSON value; `exact` keeps integers beyond 64 bits, which the fast parser turns into floats."""
    if exact:
        return json.loads(text)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def dump(value: Any) -> str:
    """Return canonical JSON, by the fast writer where it can."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        return canonical_json(value)


def as_canonical(text: str, change: Callable[[Any], Any]) -> str:
    """Return the canonical JSON of a JSON text after a change, byte for byte as `canonical_json` writes it.

    Args:
        text: JSON with numbers as Python writes them; the store's own, which is canonical, costs least.
        change: returns the new value for the parsed one, with no other numbers; may change it in place.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:  # what only the tolerant parser reads: lone surrogates, NaN
        return canonical_json(change(json.loads(text)))
    # Both writers write floats differently, and the fast parser makes floats of integers beyond 64 bits: not where the
    # fast writer gives the text again.
    alike = orjson.dumps(value, option=orjson.OPT_SORT_KEYS) == text.encode() or has_no_floats(value)
    return dump(change(value)) if alike else canonical_json(change(json.loads(text)))


def normal_text(text: str) -> str:
    """Return the text in NFKC, case-folded, with each run of blanks as one space."""
    return " ".join(_fold(text).split())


def _fold(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def call_key(call: dict[str, Any]) -> str:
    """Return the canonical text of one call; a call that did not parse is identified by its raw text."""
    arguments = call.get("arguments")
    if arguments is None:
        return f"{call['name']} !{' '.join((call.get('arguments_raw') or '').split())}"
    return f"{call['name']} {dump(plain_value(arguments))}"


def action_key(keys: Sequence[str]) -> str | None:
    """Return the key of an action from its calls' keys, whose order does not matter; None without calls."""
    return "\n".join(sorted(keys)) if keys else None


def first_state(task_id: str) -> str:
    """Return the anchor state in which no call was made yet.

    A state's first half is its task's, the other half encodes the calls so far: so a state can be moved to another
    task without walking its episode again.
    """
    return task_id[:STATE_TASK_HEX] + content_id("state")[STATE_TASK_HEX:]


def next_state(state: str, keys: Sequence[str]) -> str:
    """Return the anchor state after an action's calls; text leaves the state as it is.

    Chained, so that a long episode costs linear time: two states are equal when task and calls so far are.
    """
    task, calls = state[:STATE_TASK_HEX], state[STATE_TASK_HEX:]
    for key in sorted(keys):
        calls = hashlib.sha256(f"{calls}\n{key}".encode("utf-8", "surrogatepass")).hexdigest()[
            : ID_HEX - STATE_TASK_HEX
        ]
    return task + calls


def task_of_key(task_key: str) -> str:
    """Return the task id for a task that the source names."""
    return content_id("task", task_key)


def task_of_request(request: str, tool_names: Sequence[str] | None) -> str:
    """Return the task id derived from the first request and, when known, the available tools."""
    return content_id("request", normal_text(request), None if tool_names is None else sorted(tool_names))


def tools_of(tool_names: Sequence[str] | None) -> str:
    """Return a hash of the available tools; of None where they are not known."""
    return content_id("tools", None if tool_names is None else sorted(tool_names))


def in_holdout(task_id: str, share: float) -> bool:
    """Return whether the task's fixed point in [0, 1) lies below the share: a larger share only adds tasks."""
    point = int(hashlib.sha256((HOLDOUT_SALT + task_id).encode()).hexdigest()[:8], 16)
    return point / 2**32 < share
