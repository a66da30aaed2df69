"""Where a tracer's rows have what a span needs: names of columns as data, one table a kind of row.

In: a TOML table that gives for each meaning the paths at which it may be, the first with a value counting:

    [acme]
    id = ["span/id"]                           # `/` leads into objects, lists (`parents/-1`) and JSON in texts
    trace = ["trace_id", "span/id"]
    conversation = ["metadata/thread", "*"]    # `*`: what `source_of` finds in the places that the reader gives
    name = ["name"]
    started = ["start"]

Out: columns, spans and token counts of rows.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from flywheel.reading.events import Source, source_of
from flywheel.reading.spans import Run
from flywheel.reading.values import count, embedded, hex_id, ident, number, text, when


@dataclass(frozen=True)
class SpanMap:
    """The paths of each meaning."""

    id: tuple[str, ...] = ()
    parent: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    conversation: tuple[str, ...] = ()  # without one, the trace is the conversation
    user: tuple[str, ...] = ("*",)
    policy: tuple[str, ...] = ("*",)
    task: tuple[str, ...] = ("*",)
    model: tuple[str, ...] = ()
    name: tuple[str, ...] = ("name",)
    started: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    input_tokens: tuple[str, ...] = ()
    output_tokens: tuple[str, ...] = ()
    cost: tuple[str, ...] = ()  # USD
    hex_ids: bool = False  # whether ids are bytes, written in hex or base64
    zero_is_unknown: bool = False  # whether a count or a cost of 0 means that there is none

    def source(self, row: Mapping[str, Any], *places: Mapping[str, Any], trace: str | None = None) -> Source:
        """Return the columns that all events of a row share.

        Args:
            row: a span or a trace.
            places: metadata, in which `*` looks for the usual names.
            trace: the trace's id, where the row does not have it.
        """
        known = source_of(*places)
        trace = trace or self._id(row, "trace") or "?"
        span = self._id(row, "id")
        return {
            "conversation_id": self._name(row, "conversation", known["conversation_id"]) or trace,
            "user": self._name(row, "user", known["user"]),
            "policy": self._name(row, "policy", known["policy"]),
            "task_key": self._name(row, "task", known["task_key"]),
            "model": next((name for value in self._values(row, "model") if (name := text(value))), None),
            "ids": [f"trace:{trace}", *([f"span:{span}"] if span else [])],
            **({"span_id": span, "parent_id": self._id(row, "parent")} if self.id else {}),
        }

    def span(
        self, row: Mapping[str, Any], source: Source, error: str | None = None, *, ended_well: bool | None = None
    ) -> Run:
        """Return a row as a span; whether it failed is for the reader to see."""
        name, started, ended = (next(self._values(row, part), None) for part in ("name", "started", "ended"))
        return Run(source, text(name), when(started), when(ended), error, ended_well)

    def usage(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tokens and the cost in USD of a row; None where it has none."""
        return {
            "input_tokens": self._amount(row, "input_tokens", count),
            "output_tokens": self._amount(row, "output_tokens", count),
            "cost_usd": self._amount(row, "cost", number),
        }

    def _values(self, row: Mapping[str, Any], meaning: str) -> Iterator[Any]:
        for path in getattr(self, meaning):
            value = _at(row, path)
            if value is not None and value != "":
                yield value

    def _id(self, row: Mapping[str, Any], meaning: str) -> str | None:
        read = hex_id if self.hex_ids else ident
        return next((name for value in self._values(row, meaning) if (name := read(value))), None)

    def _name(self, row: Mapping[str, Any], meaning: str, known: str | None) -> str | None:
        paths = getattr(self, meaning)
        return next((name for path in paths if (name := known if path == "*" else ident(_at(row, path)))), None)

    def _amount(self, row: Mapping[str, Any], meaning: str, read: Any) -> Any:
        amounts = (read(value) for value in self._values(row, meaning))
        if self.zero_is_unknown:
            return next(filter(None, amounts), None)
        return next(amounts, None)


def _at(row: Any, path: str) -> Any:
    value = row
    for part in path.split("/"):
        value = embedded(value)
        if isinstance(value, list) and part.lstrip("-").isdecimal():
            value = value[int(part)] if -len(value) <= int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def span_maps(text: str) -> dict[str, SpanMap]:
    """Return the maps in a TOML text, by the names of its tables.

    Raises:
        ValueError: a table has a meaning that is not known.
    """
    known = {field.name for field in fields(SpanMap)}
    maps = {}
    for name, table in tomllib.loads(text).items():
        if unknown := table.keys() - known:
            raise ValueError(f"[{name}] has unknown meanings: {', '.join(sorted(unknown))}")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
        maps[name] = SpanMap(**values)
    return maps


@cache
def packaged_span_maps(package: str) -> Mapping[str, SpanMap]:
    """Return the maps in a package's `spans.toml`."""
    return span_maps(files(package).joinpath("spans.toml").read_text(encoding="utf-8"))
