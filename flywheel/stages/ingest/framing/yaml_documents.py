"""YAML as JSON: recordings of HTTP (VCR's cassettes), conversations and results that programs write as YAML.

In: the text of a file. Out: each of its documents as JSON. Only what JSON has is understood: tags make no objects, days
and `yes` stay text, bytes are unpacked where they are text. References (`*name`) count as often as they are used, so
that a few lines cannot become gigabytes. A cassette's calls come one by one, with what was sent and answered where
other logs have it.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flywheel.reading.values import as_dict, as_list, first
from flywheel.stages.ingest.framing.jsontext import MAX_DEPTH

_NAMES = (".yaml", ".yml")
_RECORDING = re.compile(rb"(?:---\s+)?(?:interactions|http_interactions):\s")
_INTERACTIONS = ("interactions", "http_interactions")
_WORDS: Mapping[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\Z")
_FRACTION = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?(?:[eE][-+]?[0-9]{1,2})?\Z")
_BINARY = ("tag:yaml.org,2002:binary", "!binary")  # Python's and Ruby's
_GZIP, _OF_GZIP = b"\x1f\x8b", 16  # its first bytes, and zlib's word for it
_NODE_BYTES = 8  # that a value counts in addition to its text


class YamlError(ValueError):
    """A text that is not YAML, or would be too large as JSON; the message has nothing of the text."""


class _Open(NamedTuple):
    """A mapping or a list whose values still come; `names` holds a mapping's name that waits for its value."""

    value: dict[str, Any] | list[Any]
    names: list[str]
    anchor: str | None
    before: int  # what was counted when it began


def is_yaml(name: str, head: bytes) -> bool:
    """Whether a file is YAML: by its name, or because it begins as recordings of HTTP do."""
    return name.lower().endswith(_NAMES) or _RECORDING.match(head) is not None


def yaml_values(raw: bytes, most: int) -> Iterator[Any]:
    """Yield the documents of a YAML text; of a list its elements, of a cassette its calls.

    Args:
        raw: the text, in UTF-8.
        most: how many bytes the values may have, each as often as it is referred to.

    Raises:
        YamlError: it is not YAML, refers to itself, is nested too deeply, or has more.
    """
    for document in _documents(raw, most):
        calls = as_list(first(as_dict(document), _INTERACTIONS))
        values = document if isinstance(document, list) else [] if document is None else [document]
        yield from [_call(call) for call in calls] or values


def _call(call: Any) -> Any:
    """Return a recorded call whose bodies were parsed, or kept as JSON, under the names that other recordings use."""
    sides = {name: dict(as_dict(as_dict(call).get(name))) for name in ("request", "response")}
    for side in sides.values():
        if "parsed_body" in side:
            side["body"] = side.pop("parsed_body")
    return {**as_dict(call), **{name: side for name, side in sides.items() if side}} if isinstance(call, dict) else call


def _documents(raw: bytes, most: int) -> Iterator[Any]:
    import yaml  # type: ignore[import-untyped]  # of the few files that need it

    if len(raw) > most:
        raise YamlError("more than ingest.max_record_mb allows")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(most)
    try:
        for event in yaml.parse(raw, Loader=loader):
            if isinstance(event, yaml.DocumentEndEvent):
                yield builder.taken()
            elif isinstance(event, yaml.AliasEvent):
                builder.refer(event.anchor)
            elif isinstance(event, yaml.ScalarEvent):
                value = _scalar(event.value, event.tag, most, plain=event.implicit[0])
                builder.add(value, event.anchor, len(value) if isinstance(value, str) else len(event.value))
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                builder.open({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor)
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                builder.close()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise YamlError(f"not YAML from line {line} on") from None
    except yaml.YAMLError:
        raise YamlError("not YAML: it has characters that YAML does not allow") from None


class _Builder:
    """Makes values from the events of a parser, without recursion."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, 0
        self._opened: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._root: Any = None

    def open(self, value: dict[str, Any] | list[Any], anchor: str | None) -> None:
        """Begin a mapping or a list."""
        if len(self._opened) >= MAX_DEPTH:
            raise YamlError(f"nested deeper than {MAX_DEPTH} levels")
        self._opened.append(_Open(value, [], anchor, self._bytes))
        self._count(_NODE_BYTES)

    def close(self) -> None:
        """End the mapping or list that was begun last."""
        value, _, anchor, before = self._opened.pop()
        self._remember(anchor, value, self._bytes - before)
        self._put(value)

    def add(self, value: Any, anchor: str | None, size: int) -> None:
        """Add a text, a number, a truth value or nothing."""
        self._count(size + _NODE_BYTES)
        self._remember(anchor, value, size + _NODE_BYTES)
        self._put(value)

    def refer(self, anchor: str) -> None:
        """Add the value that has a name once more."""
        if anchor not in self._anchors:
            raise YamlError("a value that refers to itself or to nothing")
        value, size = self._anchors[anchor]
        self._count(size)
        self._put(value)

    def taken(self) -> Any:
        """Return the document that has ended, and forget its names."""
        value, self._root = self._root, None
        self._anchors = {}
        return value

    def _put(self, value: Any) -> None:
        if not self._opened:
            self._root = value
            return
        holder, names, *_ = self._opened[-1]
        if isinstance(holder, list):
            holder.append(value)
        elif names:
            holder[names.pop()] = value
        else:
            names.append(value if isinstance(value, str) else str(value))

    def _remember(self, anchor: str | None, value: Any, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, size)

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._most:
            raise YamlError("more than ingest.max_record_mb allows, counted with all that it refers to")


def _scalar(written: str, tag: str | None, most: int, *, plain: bool) -> Any:
    """Return the value of a scalar; `plain`: it has neither quotes nor a tag."""
    if tag in _BINARY:
        return _unpacked(written, most)
    if not plain:
        return written
    if written.lower() in _WORDS:
        return _WORDS[written.lower()]
    return int(written) if _WHOLE.match(written) else float(written) if _FRACTION.match(written) else written


def _unpacked(written: str, most: int) -> str:
    """Return bytes as text: unpacked where they are gzip's, as they are written where they hold no text.

    Raises:
        YamlError: unpacked they are more than `most` bytes.
    """
    try:
        held = base64.b64decode("".join(written.split()), validate=True)
        if held.startswith(_GZIP):
            unpacking = zlib.decompressobj(zlib.MAX_WBITS | _OF_GZIP)
            held = unpacking.decompress(held, most)
            if unpacking.unconsumed_tail:
                raise YamlError("bytes that are more than ingest.max_record_mb allows once they are unpacked")
            if not unpacking.eof:
                return written
        return held.decode()
    except (binascii.Error, UnicodeDecodeError, zlib.error):
        return written
