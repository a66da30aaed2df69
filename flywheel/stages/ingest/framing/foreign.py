"""Files that hold logs in another form than JSON or Parquet: known by how they begin, so that a refusal can name them.

In: a content's first bytes. Out: what it is, in words that say what to do; '' for what is not known.
"""

from __future__ import annotations

import re

_PROTOBUF = "OpenTelemetry as protobuf; write it as JSON (`format: json` of the collector's file exporter)"
_INSTEAD = "export JSON or Parquet"
_UTF16 = "UTF-16 text; convert it to UTF-8"
_FILES = {
    b"PK\x03\x04": "a zip archive inside an archive or a stream; unpack it first",
    b"version https:": "a Git LFS pointer; fetch the file that it points to",
    b"BZh": "a bzip2 file; unpack it first",
    b"\xfd7zXZ\x00": "an xz file; unpack it first",
    b"SQLite format 3\x00": "an SQLite database inside an archive or a stream; unpack it first",
    b"FEA1": "a Feather file of version 1; write it as Parquet, or as Feather of version 2",
    b"\xd0\xcf\x11\xe0": "a document of an old Office, such as an Excel sheet; save the sheet as CSV",
    b"\xff\xfe": _UTF16,
    b"\xfe\xff": _UTF16,
}
_PROBED = 16_384
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_LENGTH = 4  # bytes of the length before a message
_FIRST, _SECOND = 0x0A, 0x12  # tags of a protobuf message's first fields, where they hold messages
_MARKUP = re.compile(rb"<(\?xml|!doctype html|html|[a-z][\w:.-]*[\s/>])", re.IGNORECASE)
_ZEROS = 0.2  # the share of zero bytes, on one side, that only text of two bytes a character has


def foreign_file(head: bytes) -> str:
    """Return what a file is by its magic bytes; '' for none of those that are known."""
    return next((what for magic, what in _FILES.items() if head.startswith(magic)), "")


def foreign_bytes(head: bytes) -> str:
    """Return what bytes other than UTF-8 are: protobuf, also behind its length, or UTF-16; '' if neither."""
    if _is_protobuf(head) or _is_protobuf(head[_LENGTH:]):
        return _PROTOBUF
    return _UTF16 if _is_utf16(head) else ""


def _is_protobuf(head: bytes) -> bool:
    """Whether bytes begin like an export request of OTLP: a message in a message, each no longer than its outer one."""
    if not head.startswith(b"\n") or not _BINARY.search(head[:_PROBED]):
        return False
    outer, start = _varint(head, 1)
    if outer <= 1 or start >= len(head) or head[start] not in (_FIRST, _SECOND):
        return False
    inner, end = _varint(head, start + 1)
    return end > start + 1 and inner + end - start <= outer


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """Return a number and where it ends; (-1, start) where there is none."""
    value = 0
    for position, byte in enumerate(data[start : start + 5]):
        value |= (byte & 0x7F) << 7 * position
        if byte < 0x80:  # noqa: PLR2004 - the last byte has no high bit
            return value, start + position + 1
    return -1, start


def foreign_text(head: bytes) -> str:
    """Return what a text other than JSON is: XML, a web page; '' if neither."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:_PROBED]
    markup = _MARKUP.match(text)
    if markup:
        is_page = b"html" in text[:200].lower()
        return f"a web page (HTML); {_INSTEAD}" if is_page else f"an XML document; {_INSTEAD}"
    return ""


def _is_utf16(head: bytes) -> bool:
    """Whether many bytes on one side and none on the other are zero, as in UTF-16 without a byte order mark."""
    probe = head[: _PROBED - _PROBED % 2]
    sides = sorted(side.count(0) / max(len(side), 1) for side in (probe[::2], probe[1::2]))
    return sides[0] == 0 and sides[1] > _ZEROS
