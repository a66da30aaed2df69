"""Checkpoints of LangGraph, a row each, as one state a thread: each row holds the whole state at its time once more.

In: rows in order of thread, namespace and checkpoint. Out: the last state of each thread, with the messages in order of
their first appearance, those that were removed later among them, each with the time of the checkpoint that has it
first. Where somebody went back and on from there, each way is a thread of its own; so is a graph within the graph,
unless its messages came into the thread's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from flywheel.reading.shapes.facts import COPIED
from flywheel.reading.values import as_dict, as_list, ident

COLUMNS = ("thread_id", "checkpoint_ns", "checkpoint_id")  # also the order of the rows
CHANNELS = "channel_values"
_STATE, _BEFORE, _TIME = "checkpoint", "parent_checkpoint_id", "timestamp"


_Key = tuple[str, str | None]  # a channel, and the id of a message in it


@dataclass
class _Way:
    """Checkpoints of which each follows from the one before, and what they added to each channel of messages."""

    last: Mapping[str, Any]
    begun: Mapping[str, list[Any]]  # the messages of each channel at the checkpoint from which it went on
    added: list[dict[str, list[Any]]] = field(default_factory=list)
    newest: dict[_Key, Any] = field(default_factory=dict)  # edits replace what was there

    def messages(self, until: int | None = None) -> dict[str, list[Any]]:
        """Return the messages of each channel up to one of its checkpoints."""
        found = {channel: [*items] for channel, items in self.begun.items()}
        for added in self.added[:until]:
            for channel, items in added.items():
                found.setdefault(channel, []).extend(items)
        return found


def folded(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a record for each way through a thread."""
    for _, thread in groupby(rows, key=lambda row: row.get(COLUMNS[0])):
        seen: set[str | None] = set()
        for namespace, members in groupby(thread, key=lambda row: row.get(COLUMNS[1]) or ""):
            ways = _ways(members)
            own = {name for way in ways for _, name in way.newest}
            if not namespace or not own <= seen:
                yield from (_record(way, namespace, place) for place, way in enumerate(ways))
            seen |= own


def _ways(rows: Iterable[Mapping[str, Any]]) -> list[_Way]:
    ways: list[_Way] = []
    places: dict[Any, tuple[_Way, int]] = {}
    for row in rows:
        held = _messages(row)
        way, upto = places.get(row.get(_BEFORE)) or _continued(ways, held)
        if way is None or upto < len(way.added):
            begun = _copied(way.messages(upto)) if way else {}
            newest = {(channel, _name(item)): item for channel, items in begun.items() for item in items}
            way = _Way(row, begun, newest=newest)
            ways.append(way)
        _add(way, row, held)
        places[row.get(COLUMNS[2])] = (way, len(way.added))
    return ways


def _continued(ways: list[_Way], held: Mapping[str, Mapping[str | None, Any]]) -> tuple[_Way | None, int]:
    """Return the way whose messages a checkpoint has, where the one before it was deleted."""
    keys = {(channel, name) for channel, items in held.items() for name in items}
    way = next((way for way in reversed(ways) if way.newest and way.newest.keys() <= keys), None)
    return way, len(way.added) if way else 0


def _messages(row: Mapping[str, Any]) -> dict[str, dict[str | None, Any]]:
    """Return the messages of each channel that has such, by their ids."""
    channels = as_dict(as_dict(row.get(_STATE)).get(CHANNELS))
    named = {channel: {_name(item): item for item in as_list(items)} for channel, items in channels.items()}
    return {channel: items for channel, items in named.items() if items and None not in items}


def _copied(messages: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    return {channel: [{**item, COPIED: True} for item in items] for channel, items in messages.items()}


def _add(way: _Way, row: Mapping[str, Any], held: Mapping[str, Mapping[str | None, Any]]) -> None:
    time = as_dict(row.get(_STATE)).get("ts")
    added = {}
    for channel, items in held.items():
        new = (item for name, item in items.items() if (channel, name) not in way.newest)
        added[channel] = [{_TIME: time, **item} for item in new]
        way.newest.update({(channel, name): item for name, item in items.items()})
    way.added.append(added)
    way.last = row


def _record(way: _Way, namespace: str, place: int) -> dict[str, Any]:
    """Return a way's last row, with all messages in it; those that were edited since as they are now."""
    state = as_dict(way.last.get(_STATE))
    messages = {
        channel: [{**item, **way.newest[channel, _name(item)]} for item in items]
        for channel, items in way.messages().items()
    }
    thread = [str(way.last.get(COLUMNS[0])), namespace, str(way.last.get(COLUMNS[2])) if place else ""]
    named = {COLUMNS[0]: "/".join(filter(None, thread))}
    return {**way.last, **named, _STATE: {**state, CHANNELS: {**as_dict(state.get(CHANNELS)), **messages}}}


def _name(item: Any) -> str | None:
    """Return the id of a message, also of one that LangChain serialized with its class."""
    fields = as_dict(item)
    return ident(as_dict(fields.get("kwargs")).get("id")) or ident(fields.get("id"))
