"""Where an action was taken: the anchor states of every step, from the exact conversation to a rough course of events.

In: steps of complete tasks. Out: the steps with three states and the action that was taken there. Two steps with an
equal state can be compared:

- `seen`: everything before them is equal, word for word (ids of calls aside). What two attempts do there differently is
  their first divergence, in calls or in words.
- `exact`: the same calls with the same kinds of results (ok, empty, failed), the user has spoken equally often before
  each of them, and the newest message is of the same role; the words may differ.
- `rough`: the same tools were called, equally often and with equal success, in any order and with any arguments, the
  last result was of the same kind, and the same role spoke last, in the same turn of the user. The fallback where
  attempts rarely meet.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import orjson
import polars as pl

from flywheel.reading.status import says_nothing
from flywheel.records import ToolStatus
from flywheel.stages.common.canonical import normal_text

ANCHORS = ("seen", "exact", "rough")
_SPOKEN = "says"  # before the digest of a text action; its order among tool names decides ties
_SHORT = 2_000  # characters of messages that may say nothing
_CALL_ID = r'"(?:tool_call_id|id)":"[^"]*",?'
_ROLE = r'"role":"(?:user|tool)"'  # as canonical JSON writes it; inside a text the quotes are escaped
_BY_USER = '"role":"user"'


class _Row(NamedTuple):
    episode_id: str
    task_id: str
    step: int
    resets_context: bool
    state_key: str
    action_key: str | None
    tools: str
    kind: str  # of the results: "failed", "empty", "ok" or "" for text
    observation: str
    asked: int  # messages of the user in it
    newest: str  # role of the last message of it that is the user's or a tool's; empty without one
    action: str


def is_failed() -> pl.Expr:
    """Return whether a step's call failed or did not parse."""
    return pl.col("malformed") | pl.col("tool_status").list.contains(ToolStatus.FAILED.value)


def anchored(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps, sorted, with the columns seen, exact, rough, act, failed and turn.

    States are numbers that mean something among these steps alone. `act` names the action: its calls, or its words;
    `turn` counts the calls made before; null `act`: an empty message.
    """
    rows = _rows(steps)
    states = list(_walk(map(_Row._make, rows.select(*_Row._fields).iter_rows())))
    names = [*ANCHORS, "act", "turn"]
    columns = {name: [row[place] for row in states] for place, name in enumerate(names)}
    types = dict.fromkeys(names, pl.Int64) | {"act": pl.String}
    return rows.drop("observation", "asked", "newest", "action", "kind", "tools", "step").with_columns(
        pl.Series(name, columns[name], dtype=types[name]) for name in names
    )


def _rows(steps: pl.DataFrame) -> pl.DataFrame:
    calls = pl.col("action_key").is_not_null()
    goes_on = pl.col("episode_id").shift(-1) == pl.col("episode_id")
    short = pl.col("observation").str.len_chars() <= _SHORT
    after = pl.when(goes_on & calls & ~is_failed() & short.shift(-1)).then(pl.col("observation").shift(-1))
    empty = after.map_batches(_show_nothing, return_dtype=pl.Boolean)
    roles = pl.col("observation").str.extract_all(_ROLE)
    kind = pl.when(~calls).then(pl.lit("")).when(is_failed()).then(pl.lit("failed")).when(empty).then(pl.lit("empty"))
    made = {"step", "kind", "tools", "asked", "newest"}
    read = [name for name in _Row._fields if name not in made]
    return (
        steps.select(*read, "index", "tool_names", "tool_status", "malformed")
        .sort("episode_id", "index")
        .with_columns(kind=kind.otherwise(pl.lit("ok")), failed=is_failed(), tools=pl.col("tool_names").list.join(" "))
        .with_columns(pl.col("observation").str.replace_all(_CALL_ID, ""), step="index")
        .with_columns(asked=roles.list.count_matches(_BY_USER), newest=roles.list.last().str.slice(8, 4).fill_null(""))
        .select(*_Row._fields, "index", "failed")
    )


def _show_nothing(observations: pl.Series) -> pl.Series:
    """Return whether each text shows nothing; no text is none that does. What comes again is read once."""
    nothing = [text for text in observations.unique().drop_nulls() if _shows_nothing(text)]
    return observations.is_in(nothing).fill_null(value=False)


def _shows_nothing(observation: str) -> bool:
    """Whether no tool's result among some messages shows more than that its call ran."""
    results = [m.get("content") for m in orjson.loads(observation) if m["role"] == "tool"]
    return bool(results) and all(says_nothing(r if isinstance(r, str) else None) for r in results)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class _Numbers(dict[tuple[object, ...], int]):
    """Numbers what it is asked for, in the order in which that is first met; equal parts have one number."""

    def __missing__(self, parts: tuple[object, ...]) -> int:
        self[parts] = number = len(self)
        return number


def _walk(rows: Iterator[_Row]) -> Iterator[tuple[int, int, int, str | None, int]]:
    number_of = _Numbers()
    episode, task, kinds, done, last, turn = "", -1, -1, Counter[str](), "", 0
    seen, spoken, newest = -1, 0, ""
    for row in rows:
        if row.episode_id != episode:
            episode, task = row.episode_id, number_of["task", row.task_id]
            kinds, done, last, turn = -1, Counter(), "", 0
            seen, spoken, newest = task, 0, ""
        if row.resets_context:
            seen, spoken, newest = task, 0, ""
        seen = number_of["seen", seen, _digest(row.observation)]
        spoken, newest = spoken + row.asked, row.newest or newest
        exact = number_of["exact", task, row.state_key, kinds, spoken, newest]
        rough = number_of["rough", task, tuple(sorted(done.items())), last, spoken, newest]
        act = _act(row)
        yield seen, exact, rough, act, turn
        seen = number_of["acted", seen, act or ""]
        if row.action_key is not None:
            kinds = number_of["kinds", kinds, row.kind, spoken, newest]
            last = f"{row.tools} {row.kind}"
            done[last] += 1
            turn += 1
        newest = "agent"


def _act(row: _Row) -> str | None:
    if row.action_key is not None:
        return row.action_key
    content = orjson.loads(row.action).get("content")
    words = normal_text(content) if isinstance(content, str) else ""
    return f"{_SPOKEN} {_digest(words)}" if words else None
