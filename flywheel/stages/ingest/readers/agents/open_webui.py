"""Open WebUI: exported feedback with its snapshot of the chat, and exported chats with ratings on their messages.

In: a chat is a tree of messages: a message that was generated again, or by several models side by side, has siblings.
Out: the path to the current message is the chat's conversation; every sibling of a rated answer is a conversation of
its own that begins alike, so that the answers can be compared. Tool calls and thoughts are HTML in the text, and stay
there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event, Source, request
from flywheel.reading.feedback import feedback
from flywheel.reading.messages import Message, messages
from flywheel.reading.reader import reader
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, number, present, text, when
from flywheel.records import EventKind

_COLUMNS = {"chat", "snapshot", "data", "meta"}
_RATED = {"type", "data", "meta"}
Tree = dict[str, Mapping[str, Any]]


def _opened(record: Any) -> dict[str, Any]:
    """Return a row of its database with what its columns hold as JSON text."""
    return {name: embedded(held) if name in _COLUMNS else held for name, held in as_dict(record).items()}


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the chat that was rated, its other answers, and the rating."""
    record = _opened(record)
    source: Source = {"user": ident(record.get("user_id"))}
    if not _is_feedback(record):
        yield from _chat(record, source, line)
        return
    meta, chat = as_dict(record.get("meta")), as_dict(as_dict(record.get("snapshot")).get("chat"))
    name = ident(first(meta, ("chat_id",))) or ident(chat.get("id")) or ident(record.get("id"))
    if name is None:
        raise BadRecordError("bad_record", "a feedback without a chat")
    rated, tree = ident(meta.get("message_id")), _tree(chat.get("chat") or chat)
    source["conversation_id"] = name
    path = _path(tree, _current(chat, rated))
    yield from _conversation(path, source)
    for other in _siblings(tree, rated):
        if other not in [ident(message.get("id")) for message in path]:
            yield from _other(_path(tree, other), {**source, "conversation_id": f"{name}/{other}"})
    known = not path or rated in [ident(message.get("id")) for message in path]
    where = name if known or rated not in tree else f"{name}/{rated}"
    fields = {"ts": when(first(record, ("updated_at", "created_at"))), "conversation_id": where}
    yield from _ratings(as_dict(record.get("data")), rated, {**source, **fields}, line)


def _is_export(record: Any) -> bool:
    row = _opened(record)
    return _is_feedback(row) or bool(_tree(row.get("chat")))


def _is_feedback_or_chat(record: Any) -> bool:
    return "chat" in as_dict(record) or _is_feedback(_opened(record))


def _is_feedback(record: Mapping[str, Any]) -> bool:
    named = "rating" in as_dict(record.get("data")) or "model_id" in as_dict(record.get("data"))
    return set(record) >= _RATED and named and isinstance(record.get("meta"), dict)


def _tree(chat: Any) -> Tree:
    """Return a chat's messages by id."""
    tree = as_dict(as_dict(chat).get("history")).get("messages")
    nodes = list(tree.values()) if isinstance(tree, dict) else as_list(tree)
    return {name: one for one in map(as_dict, nodes) if (name := ident(one.get("id"))) and text(one.get("role"))}


def _current(chat: Mapping[str, Any], rated: str | None) -> str | None:
    history = as_dict(as_dict(chat.get("chat") or chat).get("history"))
    return ident(first(history, ("currentId", "current_id"))) or rated


def _path(tree: Tree, leaf: str | None) -> list[Mapping[str, Any]]:
    """Return the messages from the beginning to a leaf; a circle ends where it closes."""
    items: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    while leaf is not None and leaf in tree and leaf not in seen:
        seen.add(leaf)
        items.append(tree[leaf])
        leaf = ident(tree[leaf].get("parentId"))
    return items[::-1]


def _siblings(tree: Tree, rated: str | None) -> list[str]:
    """Return the answers to what the rated message answers, itself among them."""
    parent = as_dict(tree.get(rated or "")).get("parentId")
    if parent is None:
        return [rated] if rated in tree else []
    return [n for n, one in tree.items() if one.get("parentId") == parent and one.get("role") == "assistant"]


def _normal(message: Mapping[str, Any]) -> Message:
    return messages([{"role": message.get("role"), "content": message.get("content")}])[0]


def _conversation(path: list[Mapping[str, Any]], source: Source) -> Iterator[Event]:
    for seq, message in enumerate(path):
        if message.get("role") == "assistant":
            if not _has_failed(message):
                yield _call(message, source, seq, {})
        else:
            here = {**source, "ts": when(message.get("timestamp")), "span_id": ident(message.get("id"))}
            yield request([_normal(message)], here, seq, {})


def _has_failed(message: Mapping[str, Any]) -> bool:
    """Whether a reply is nothing but an error: the model gave none."""
    return bool(message.get("error")) and not message.get("content")


def _other(path: list[Mapping[str, Any]], source: Source) -> Iterator[Event]:
    if _has_failed(path[-1]):
        return
    yield _call(path[-1], source, len(path), {"input": [_normal(message) for message in path[:-1]]})


def _call(message: Mapping[str, Any], source: Source, seq: int, extra: Mapping[str, Any]) -> Event:
    name, model, usage = ident(message.get("id")), text(message.get("model")), as_dict(message.get("usage"))
    counts = present(
        **token_counts(usage),
        tags=["call_failed"] if message.get("error") else None,
    )
    return {
        **source,
        "kind": EventKind.MODEL_CALL,
        "seq": seq,
        "ts": when(message.get("timestamp")),
        "model": model,
        "policy": model,
        "span_id": name,
        "ids": [f"message:{name}"] if name else [],
        "payload": {"message": {**_normal(message), "role": "assistant"}, "response_id": name, **counts, **extra},
    }


def _ratings(data: Mapping[str, Any], rated: str | None, source: Source, line: int) -> Iterator[Event]:
    """Yield the thumb, and the finer mark that newer versions ask for; words and reason go with the thumb."""
    value, fine = number(data.get("rating")), number(as_dict(data.get("details")).get("rating"))
    items = [text(data.get(name)) for name in ("reason", "comment")]
    aim = {"target": "response", "target_id": rated} if rated else {}
    target = {"target": f"message:{rated}"} if rated else {}
    words = {"comment": "; ".join(t for t in items if t)} if any(items) else {}
    marks: list[dict[str, Any]] = []
    if value is not None:
        label = {"label": "up" if value > 0 else "down"} if value else {}
        marks.append({"name": "rating", "value": value, **label, **words})
    if fine is not None:
        marks.append({"name": "rating_detail", "value": fine, "scale": [1, 10]})
    for mark in marks:
        payload = {**mark, **aim, "annotator": "human"}
        yield feedback({**source, **target}, payload, seq=line)


def _chat(record: Mapping[str, Any], source: Source, line: int) -> Iterator[Event]:
    """Yield an exported chat, and the ratings of its messages."""
    chat, name = as_dict(record.get("chat")), ident(record.get("id"))
    tree = _tree(chat)
    if name is None or not tree:
        return
    source["conversation_id"] = name
    path = _path(tree, _current(record, None) or next(reversed(tree)))
    yield from _conversation(path, source)
    for message in path:
        rating = as_dict(message.get("annotation"))
        fields = {**source, "ts": None}
        yield from _ratings(rating, ident(message.get("id")), fields, line)


READER = reader(
    "open_webui",
    4,
    "exports of Open WebUI",
    marks=_is_export,
    needs=_is_feedback_or_chat,
    refusal="neither a feedback nor a chat",
    read=_read,
)
