"""Images, recordings and files in logs, kept as references: kind, type, hash, size and source, never the bytes.

In: one raw record, before its reader sees it. Out: the record with a mark such as `[image 3f2a09c4b51e]` where each of
them was, and the references by their marks. Readers make text of the parts of a message, each in its own way; a mark is
text and goes with it, through every reader, a plugin's too. `with_references` then names on each message what it held.

What is a part of a message, or all of a value, was given to the agent as a picture or file: the message needs it. In
the middle of a longer text (a page with an icon in it) it was characters to the agent: the mark alone replaces it.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import orjson
import polars as pl

from flywheel.reading.messages import MARK
from flywheel.reading.values import first
from flywheel.records import EventKind, texts_in

Reference = dict[str, Any]
References = dict[str, Reference]

_KINDS = {
    "image": "image", "image_url": "image", "input_image": "image", "image-url": "image", "image-data": "image",
    "computer_screenshot": "image", "audio": "audio", "input_audio": "audio", "audio-url": "audio", "video": "video",
    "video_url": "video", "video-url": "video", "file": "file", "input_file": "file", "file-data": "file",
    "file-url": "file", "document": "file", "document-url": "file", "media": "file", "blob": "file", "uri": "file",
    "binary": "file", "resource": "file", "data": "file", "container_upload": "file",
}  # fmt: skip
_LOOSE = ("file", "media", "uri", "resource", "data", "document")  # which are more than an address only with a type
_UNTYPED = ("inlineData", "inline_data", "fileData", "file_data", "image", "document", "video")  # Gemini's, Bedrock's
_DATA = ("data", "base64", "bytes", "blob", "file_data", "content", "image", "image_url")
_ADDRESS = ("url", "image_url", "file_url", "uri", "file_uri", "fileUri")
_NAMED = ("file_id", "fileId")
_TYPE = ("media_type", "mime_type", "mimeType", "mediaType", "contentType")
_TEXT = ("text", "page_content")
_PLACES = ("output", "content", "result", "value", "message_content")  # fields that may hold one part without a list
_ACTS = ("arguments", "args", "tool_kwargs", "parameters")  # what looks like a part in them is the agent's own object
_FLAT = re.compile(r"image(?:_url)?\.url\Z")  # the name of an attribute that OpenInference makes of a part
_MAGIC = {
    "iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp",
    "JVBERi0": "application/pdf", "UEsDBBQ": "application/zip", "T2dnUw": "audio/ogg", "SUQz": "audio/mpeg",
    "GkXfo": "video/webm",
}  # fmt: skip
_RUN = r"(?:[A-Za-z0-9+/_-]++|\\++/)++"
_BASE64 = _RUN + r"(?:(?:\\++[nr]|[\r\n])++(?:[A-Za-z0-9+/_-]{40,}+|[A-Za-z0-9+/_-]++(?==)))*+={0,2}"
_BYTE = range(256)
_SHORTEST = 64  # characters of base64 that are worth a reference
_LONG = 120  # characters from which base64 without an address before it is a file, by how it begins
_INLINE = re.compile(
    r"data:(?P<type>(?:image|audio|video|font|application)/[\w.+-]+)(?:;[\w=.+-]+){0,4};base64,"
    r"(?P<data>"
    + _BASE64
    + r")|(?<![A-Za-z0-9+/])(?P<bare>(?:"
    + "|".join(map(re.escape, _MAGIC))
    + ")"
    + _BASE64
    + ")"
)
_READABLE = re.compile(r"application/(?:[\w.]+\+)?(?:json|xml|javascript|yaml|x-sh)\Z")  # text, which agents may need
_LANGFUSE = re.compile(r"@@@langfuseMedia:type=(?P<type>[\w./+-]+)\|id=(?P<id>[\w-]+)\|source=\w+@@@")
_TRIGGERS = (
    '"image', "input_image", "nline_data", "nlineData", "ile_data", "ileData", "ile_id", '"document', '"audio',
    '"video', "edia_type", "ediaType", "mime", '"blob', "base64", "@@@langfuseMedia", "image.url", "image_url",
    *_MAGIC,
)  # fmt: skip
# OpenInference names the type of each span, `input.mime_type` and `output.mime_type`: these say nothing of images.
_TYPED = ("[^.]mime", r"[^t]\.mime", r"[^u]t\.mime", r"[^p]ut\.mime")
_ANY_TRIGGER = "|".join([*(re.escape(trigger) for trigger in _TRIGGERS if trigger != "mime"), *_TYPED])


def may_hold(raws: Sequence[bytes]) -> list[bool]:
    """Return of each record's text whether anything in it could be an image or a file: of most, nothing."""
    try:
        texts = pl.Series(raws, dtype=pl.Binary).cast(pl.String)
    except pl.exceptions.ComputeError:  # one of them is not UTF-8
        return [True] * len(raws)
    return texts.str.contains(_ANY_TRIGGER).to_list()


def without_contents(value: Any) -> tuple[Any, References]:
    """Return a record with marks in the place of images and files, and what they refer to; mostly the record itself."""
    references: References = {}
    return _without(value, references, parts=True), references


def with_references(event: dict[str, Any], references: References) -> dict[str, Any]:
    """Return an event whose messages name what they hold, as `attachments`."""
    payload = event.get("payload")
    if not references or not isinstance(payload, dict):
        return event
    named = dict(payload)
    for name in ("messages", "input", "other_choices"):
        if isinstance(payload.get(name), list):
            named[name] = [_named(message, references) for message in payload[name]]
    if isinstance(payload.get("message"), dict):
        named["message"] = _named(payload["message"], references)
    elif event.get("kind") in {EventKind.TOOL_CALL, EventKind.TOOL_RESULT}:
        named = _named(named, references)
    return {**event, "payload": named}


def _named(message: Any, references: References) -> Any:
    if not isinstance(message, dict):
        return message
    marks = dict.fromkeys(mark for text in texts_in(message) for mark in MARK.findall(text))
    held = [references[mark] for mark in marks if mark in references]
    return {**message, "attachments": held} if held else message


def _without(value: Any, references: References, *, parts: bool, name: str = "") -> Any:
    if isinstance(value, str):
        return _text(value, references, parts=parts, name=name)
    if isinstance(value, list):
        items = [_item(item, references, parts=parts) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if not isinstance(value, dict):
        return value
    fields = {}
    for key, item in value.items():
        inside = parts and not (key in _ACTS or (key == "input" and "name" in value))
        one = inside and key in _PLACES and isinstance(item, dict)
        place = str(value.get("key")) if key == "value" else name if key == "stringValue" else key
        walk = _item if one else _without
        fields[key] = walk(item, references, parts=inside, name=place)
    if parts and isinstance(value.get("role"), str) and isinstance(value.get("images"), list):
        pictures = [seen for item in value["images"] if (seen := _logged(item, "image", None)) is not None]
        said = [str(fields.get("content") or ""), *(_kept(seen, references) for seen in pictures)]  # Ollama's
        fields |= {"content": "\n".join(filter(None, said))} if pictures else {}
    return fields if any(fields.get(key) is not item for key, item in value.items()) else value


def _item(item: Any, references: References, *, parts: bool, name: str = "") -> Any:
    """Return a part of a message as its mark, in the form of a text of the same API; anything else without contents."""
    reference = _reference(item) if parts and isinstance(item, dict) else None
    if reference is None:
        return _without(item, references, parts=parts, name=name)
    mark = _kept(reference, references)
    if isinstance(item.get("kind"), str) and "type" not in item:
        return mark
    named = next((name for name in ("type", "$type") if name in item), None)
    kind = "input_text" if str(item.get("type")).startswith("input_") else "text"
    return {named: kind, "text": mark} if named else {"text": mark}


def _reference(part: Mapping[str, Any]) -> Reference | None:
    """Return what a part of a message refers to, if it is an image, a recording or a file."""
    stated = first(part, ("type", "$type", "kind"))
    if stated is None:
        held = next((name for name in _UNTYPED if isinstance(part.get(name), dict)), None)
        sourced = held is not None and (held not in _KINDS or {"format", "source"} <= part[held].keys())
        return _of(dict(_leaves(part[held])), held) if held and sourced else None
    if not isinstance(stated, str) or stated not in _KINDS or any(part.get(name) for name in _TEXT):
        return None
    leaves = dict(_leaves({key: item for key, item in part.items() if key not in {"type", "kind"}}))
    if stated in _LOOSE and not first(leaves, (*_TYPE, *_NAMED, "format")) and "source" not in part:
        return None if not _inline_in(leaves) else _of(leaves, stated)
    return _of(leaves, stated)


def _leaves(part: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a part and of the objects in it, outer ones last: they win."""
    for key, item in part.items():
        if isinstance(item, dict):
            yield from _leaves(item)
        else:
            yield key, item


def _inline_in(leaves: Mapping[str, Any]) -> bool:
    return any(str(leaves.get(name, ""))[:5] == "data:" for name in (*_DATA, *_ADDRESS))


def _of(leaves: Mapping[str, Any], stated: str) -> Reference | None:
    media = first(leaves, _TYPE)
    media = media if isinstance(media, str) else None
    form = leaves.get("format")
    kind = _KINDS.get(stated, "file")
    if media is None and isinstance(form, str):
        media = form if "/" in form else f"{'application' if kind == 'file' else kind}/{form}"
    modality = leaves.get("modality")
    kind = modality if modality in {"image", "audio", "video"} else kind
    for name in (*_DATA, *_ADDRESS):
        reference = _logged(leaves.get(name), kind, media, plain=leaves.get("type") == "text")
        if reference is not None:
            return reference
    ident = first(leaves, _NAMED)
    if isinstance(ident, str):
        return _made(kind, media, source=f"id:{ident}")
    return None


def _logged(content: Any, kind: str, media: str | None, *, plain: bool = False) -> Reference | None:
    """Return the reference to what a part's field holds: bytes, base64, an address."""
    if isinstance(content, list) and content and all(isinstance(n, int) and n in _BYTE for n in content):
        return _made(kind, media, content=bytes(content))
    if not isinstance(content, str) or not content or MARK.fullmatch(content):
        return None
    if content.startswith("data:"):
        head, _, data = content[5:].partition(",")
        named, *options = head.split(";")
        return _made(kind, named or media, content=_bytes(data) if "base64" in options else unquote_to_bytes(data))
    if re.match(r"[a-z][a-z0-9+.-]*://", content, re.IGNORECASE):
        return _made(kind, media, source=_address(content))
    if (match := _LANGFUSE.fullmatch(content)) is not None:
        return _made(kind, match["type"], source=f"langfuse:{match['id']}")
    return _made(kind, media or _media_of(content), content=content.encode() if plain else _bytes(content))


def _address(url: str) -> str:
    """Return a URL without what may sign it or name a user."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "url"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def _bytes(text: str) -> bytes:
    """Return what base64 encodes; a text that is none, as it is."""
    plain = re.sub(r"\\+[nr]|\s", "", text).replace("\\/", "/").translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        return b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        return text.encode("utf-8", "surrogatepass")


def _media_of(data: str) -> str | None:
    return next((media for begin, media in _MAGIC.items() if data.startswith(begin)), None)


def _made(kind: str, media: str | None, *, content: bytes | None = None, source: str = "inline") -> Reference:
    main = (media or "").partition("/")[0]
    named = {"kind": main if main in {"image", "audio", "video"} else kind, "media_type": media, "source": source}
    sized = {} if content is None else {"sha256": sha256(content).hexdigest(), "size_bytes": len(content)}
    return {name: item for name, item in {**named, **sized}.items() if item is not None}


def _kept(reference: Reference, references: References) -> str:
    """Return the mark of a reference, and keep it."""
    identity = reference.get("sha256") or sha256(reference["source"].encode("utf-8", "surrogatepass")).hexdigest()
    mark = f"[{reference['kind']} {identity[:12]}]"
    references[mark] = reference
    return mark


def _text(text: str, references: References, *, parts: bool, name: str) -> str:
    """Return a text with marks for the contents in it; JSON of messages in a text is read as messages."""
    if parts and _FLAT.search(name) and (reference := _logged(text, "image", None)) is not None:
        return _kept(reference, references)
    if parts and text[:1] in {"[", "{"} and '"role' in text and any(trigger in text for trigger in _TRIGGERS):
        try:
            logged = orjson.loads(text)
        except orjson.JSONDecodeError:
            logged = None
        if logged is not None:
            changed = _without(logged, references, parts=True)
            return text if changed is logged else orjson.dumps(changed).decode()
    if "@@@langfuseMedia" in text:
        text = _LANGFUSE.sub(
            lambda found: _kept(_made("file", found["type"], source=f"langfuse:{found['id']}"), references), text
        )
    return _INLINE.sub(lambda found: _inline(found, references), text) if _may_hold(text) else text


def _may_hold(text: str) -> bool:
    return len(text) > _LONG and (";base64," in text or any(begin in text for begin in _MAGIC))


def _inline(found: re.Match[str], references: References) -> str:
    """Return the mark for what a text holds: kept as a reference where it is all of the text."""
    data, media = found["data"] or found["bare"], found["type"] or _media_of(found["bare"] or "")
    if len(data) < (_LONG if found["bare"] else _SHORTEST) or (media and _READABLE.match(media)):
        return found[0]
    reference = _made("file", media, content=_bytes(data))
    whole = not found.string[: found.start()].strip() and not found.string[found.end() :].strip()
    return _kept(reference, references if whole else {})
