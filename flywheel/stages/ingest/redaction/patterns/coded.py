r"""Texts in another writing: percent and HTML escapes, `\u0040`, wide and invisible characters, base64, hex.

A view is a part of a text as it would be read, with the place that each of its characters came from. Kinds are looked
for in views; what they find is replaced where it came from. Views are made of what surrounds an escape only, so that a
long text with one `%40` is not looked at twice.
"""

from __future__ import annotations

import binascii
import html
import re
import sys
import unicodedata
import zlib
from base64 import a85decode, b32decode, b64decode
from binascii import a2b_uu
from collections.abc import Iterator
from typing import NamedTuple

from flywheel.stages.ingest.redaction.patterns.hints import Hint
from flywheel.stages.ingest.redaction.patterns.kinds import Scan, joined

_AROUND = 160  # characters next to an escape that are looked at with it
_ROUNDS = 3  # of decoding: percent in percent, entities in JSON
_ZERO = "\u200b-\u200f\u2060-\u2064\ufeff\u00ad\u034f\u061c\u180e\u202a-\u202e\u2066-\u2069"
_SPACES = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_DASHES = "\u2010-\u2015\u2212\ufe58\ufe63\uff0d\u00b7\u2024\u2027"
_WIDE = "\uff01-\uff5e\U0001d400-\U0001d7ff\u2460-\u2473\u24b6-\u24e9\u00b9\u00b2\u00b3\u2070-\u2089"
_FOREIGN = "\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u09e6-\u09ef\u0e50-\u0e59"
_ESCAPE = re.compile(
    rf"(?P<percent>(?:%[0-9A-Fa-f]{{2}})+)|(?P<entity>&(?:#[0-9]{{1,7}}|#[xX][0-9A-Fa-f]{{1,6}}|[A-Za-z]{{2,8}});)"
    rf"|(?P<pair>\\+u[dD][89abAB][0-9A-Fa-f]{{2}}\\+u[dD][c-fC-F][0-9A-Fa-f]{{2}})|(?P<bytes>(?:\\+x[89a-fA-F][0-9A-Fa-f]){{2,4}})"
    rf"|\\+(?:u(?P<unit>[0-9A-Fa-f]{{4}})|x(?P<code>[0-9A-Fa-f]{{2}})|u\{{(?P<braced>[0-9A-Fa-f]{{2,6}})\}}|U(?P<long>[0-9A-Fa-f]{{8}})|0{{2,4}}(?P<css>[2-7][0-9A-Fa-f]))|(?P<zero>[{_ZERO}])|(?P<wide>[{_WIDE}{_FOREIGN}])"
    rf"|(?<=[0-9A-Za-z])(?P<space>[{_SPACES}])(?=[0-9A-Za-z])|(?<=[0-9A-Za-z\uff10-\uff19])(?P<dash>[{_DASHES}\u30fc])(?=[0-9A-Za-z\uff10-\uff19])"
    r"|(?P<printable>(?:=[0-9A-F]{2}){3,}|=(?:40|3[AD])(?![0-9A-F]{2}=)|(?<=[^\n]{40})=\r?\n(?=[^\s=]))|(?P<octal>(?:\\+[0-3][0-7]{2}){4,})"
)
# The same as polars finds it in JSON: an escape that is more than a space in an address, a character next to another.
ESCAPED = (
    r"%20[0-9+]|%(?:25)*(?:2[1-9A-Fa-f]|[3-7][0-9A-Fa-f]|EF%B[CD])|&(?:#[0-9xX]|[a-z]{2,6};)|\\(?:u[0-9a-fA-F]{2}|x[2-7c-e]|u\{|U0000|00[02-7])"
    rf"|[0-9A-Za-z@._:-][{_ZERO}]|[{_ZERO}][0-9A-Za-z@._:-]|[{_WIDE}{_FOREIGN}]{{2}}|[0-9][{_SPACES}{_DASHES}][0-9A-Za-z]|[0-9A-Za-z]\uff20|[A-Za-z][{_SPACES}{_DASHES}][0-9]"
    r"|=[2-7][0-9A-F]=[2-7][0-9A-F]=|=3[AD]|=40|\\[01][0-7][0-7]\\+[01][0-7]|=\\n[^\\ ]|\\[01][0-7][0-7]\\"
)
# Four characters of base64 that three printable ASCII characters make; a pair of hex digits that one makes.
_FOUR = "[I-Za-f][C-HS-Xi-ny-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]"
_PAIR = "[2-7][0-9A-Fa-f]"
# Eight characters of base64 that three ASCII characters make in UTF-16, as PowerShell takes its commands.
_EIGHT = "[A-Za-z0-9+/][AQgw][AB][A-Za-z0-9+/]A[C-H][AEIMQUYcgkosw048]A"
BLOB_TRIGGER = (
    rf"(?:{_FOUR}){{4}}|(?:{_PAIR}){{10}}|(?:{_EIGHT}){{3}}|(?:A[A-Za-z0-9+/][A-Za-z0-9+/]{{2}}A[A-Za-z0-9+/]{{3}}){{3}}|(?:{_PAIR}00){{4}}|(?:00{_PAIR}){{4}}"
    rf"|(?:{_PAIR}[ :-]){{6}}|0x{_PAIR}[, ]{{1,2}}0x{_PAIR}|(?:[1-9][0-9][0-9]?, ?){{6}}|[0-9] 1[0-2][0-9] [1-9][0-9]|<~[!-~]|[A-Z2-7]{{24}}|(?i:chrw?)\([0-9]|begin [0-7]{{3}} [^ ]|[01]{{8}} [01]{{8}}|H4sI|1f8b08|\?[bB]\?|eJ[wxyz][A-Za-z0-9+/]{{8}}|eN[a-z][A-Za-z0-9+/]{{8}}"
)
_WIDE_BASE64 = re.compile(rf"(?:{_EIGHT}){{3,8192}}[A-Za-z0-9+/]{{0,7}}={{0,2}}")
_BASE64 = re.compile(
    rf"(?<![A-Za-z0-9+/_-])(?P<before>[A-Za-z0-9+/_-]{{0,512}}?)(?P<chain>(?:{_FOUR}){{4}})[A-Za-z0-9+/_-]*={{0,2}}"
)
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:0[xX]|\\+x)?(?P<hex>(?:[0-9a-f]{2}){10,}|(?:[0-9A-F]{2}){10,})(?![0-9A-Za-z])")
_OF_MAIL, _RUN = re.compile(r"=(?:3D|2E|C3=[89AB][0-9A-F])"), re.compile(r"[A-Za-z0-9+/=]{20}\Z")
_UNIT = re.compile(r"\\[ux][0-9A-Fa-f]{2,4}\Z")
_OCTAL = re.compile(r"\\+([0-7]{3})")
_BASE32 = re.compile(r"(?<![A-Za-z0-9])(?:[A-Z2-7]{24,8192}|[a-z2-7]{36,8192})={0,6}(?![A-Za-z0-9])")
# Bytes in a list or in pairs, as dumps and debuggers print them; lines of base64 as mail has them.
_BYTES = re.compile(
    r"(?i:(?<![0-9.,])(?:9|[1-9][0-9]|1[0-2][0-9])(?:(?:,[ ]?|[ ])(?:9|1[0-3]?|[2-9][0-9]|1[0-2][0-9])){9,}(?![0-9.a-f])"
    r"|(?<![0-9a-f])[2-7][0-9a-f](?P<gap>[ :-])(?:[0-9a-f]{2}(?P=gap)?(?P<dump>[ ]{1,3}(?:\|[^\n]{0,16}\|)?\n[0-9a-f]{4,16}:?[ ]{1,3})?[ ]?){8,}"
    r"|0x[2-7][0-9a-f](?:,?[ ]?0x[0-9a-f]{2}){9,})"
)
# One byte after the other as code or digits of two.
_SPELT = re.compile(
    r"(?i:(?:chrw?\([0-9]{1,3}\)[ ]{0,2}[+.,&|][ ]{0,2}){7,4096}chrw?\([0-9]{1,3}\))|(?<![01])(?:[01]{8} ){7,4096}[01]{8}(?![01])"
)
_ONE_BYTE = re.compile(
    r"\n[0-9A-Fa-f]{4,16}:?[ ]{1,3}|\|[^\n]{0,16}\||(?:0x)?(?P<byte>[0-9A-Fa-f]{2,3})(?![0-9A-Fa-f])"
)
# What is between the lines of one text: an end of line, also as JSON writes it, a quote before and after it.
_JOINT = r"\?=(?:\r?\n|\\{1,4}n)?[ \t]{0,8}=\?[\w-]{1,20}\?[bB]\?|(?:[ ]\\{1,4})?(?:\\{0,4}[\"'](?:[,+][ ]?|[ ])?)?(?:\r?\n|(?:\\{1,4}r)?\\{1,4}n)[ ]{0,12}(?:>[ ]?){0,3}(?:\\{0,4}[\"'])?|[\"'][ ]?[,+]?[ ]?[\"']"
_IS_JOINT = re.compile(_JOINT)
_LINES = re.compile(rf"(?:[A-Za-z0-9+/_-]{{16,76}}(?:{_JOINT})){{1,4096}}[A-Za-z0-9+/_-]{{2,76}}={{0,2}}")
_MIME = re.compile(
    rf"(?<=\?[bB]\?)(?:[A-Za-z0-9+/]{{4,76}}={{0,2}}(?:{_JOINT})){{1,1024}}[A-Za-z0-9+/]{{2,76}}={{0,2}}(?=\?=)"
)
_HEX_LINES = re.compile(
    rf"(?:(?<![0-9A-Za-z])|(?<=\\n))(?:[0-9a-f]{{32,64}}(?:{_JOINT})){{1,4096}}[0-9a-f]{{2,64}}(?![0-9A-Za-z])"
)
_BASE85 = re.compile(r"<~(?P<run>[!-u\sz]{10,65536})~>")
_PACKED = re.compile(r"(?<![A-Za-z0-9+/])(?:H4sI|eJ[wxyz]|eN[a-z]|eA[EF])[A-Za-z0-9+/]{16,65536}={0,2}")
_UUENCODED = re.compile(r"(?<!\w)begin [0-7]{3} [^\n]{1,255}\n(?P<run>(?:[ -`]{1,62}\n){1,4096}?)[ `]?\n?end")
_PRINTABLE = 0.9
_COLON, _UNRESERVED, _WIDE_SIGN = re.compile(":"), re.compile(r"[\w.~!*-]"), re.compile(f"[{_WIDE}]")
_LONGEST_LOGIN, _NO_LOGIN = 320, re.compile(r":[^:]*:|:/|:[0-9a-f]{32}")  # a name of parts, an address, a digest
_MOST_BLOB, _GZIP = 1 << 16, b"\x1f\x8b\x08"


class View(NamedTuple):
    """A part of a text as it reads; `starts` has one more entry than `text` has characters. `whole`: base64 or hex."""

    text: str
    starts: list[int]
    ends: list[int]
    blob: bool = False
    cut: bool = False  # something of the text is before it
    wide: str | None = None  # the text, where letters in it are written wide

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return where characters of the view came from."""
        return self.starts[start], self.ends[end - 1]

    def is_escaped(self, n: int) -> bool:
        """Whether a character was written in another way, or something unseen is next to it."""
        after = self.starts[n + 1] if n + 1 < len(self.text) else self.ends[n]
        before = self.ends[n - 1] if n else self.starts[n]
        wide = self.wide is not None and _WIDE_SIGN.match(self.wide, self.starts[n]) is not None
        return wide or self.ends[n] - self.starts[n] > 1 or after != self.ends[n] or before != self.starts[n]


def views(text: str) -> Iterator[View]:
    """Yield the parts of a text that read differently from how they are written."""
    places = (match.span() for match in _ESCAPE.finditer(text))
    for start, end in joined((max(0, first - _AROUND), min(len(text), last + _AROUND)) for first, last in places):
        view = View(text[start:end], list(range(start, end)), list(range(start + 1, end + 1)))
        for _ in range(_ROUNDS):
            decoded = _decoded(view)
            if decoded is None:
                break
            view = decoded
        yield view._replace(cut=start > 0, wide=None if text.isascii() else text)


def escaped_runs(view: View) -> Iterator[tuple[int, int]]:
    """Yield the parts of a view that are written as one: escapes, and what needs none; a colon of theirs is escaped."""
    for colon in _COLON.finditer(view.text):
        start, end = colon.span()
        if not view.is_escaped(start):
            continue
        while start and (view.is_escaped(start - 1) or _UNRESERVED.match(view.text, start - 1)):
            start -= 1
        while end < len(view.text) and (view.is_escaped(end) or _UNRESERVED.match(view.text, end)):
            end += 1
        if end - start <= _LONGEST_LOGIN and not _NO_LOGIN.search(view.text, start, end):
            yield start, end


def blobs(text: str) -> Iterator[View]:
    """Yield what base64, hex and other writings of bytes in a text hold, where that is text."""
    for pattern, decoded in _WRITINGS:
        for match in pattern.finditer(text):
            yield from decoded(match)


def _from_hex(match: re.Match[str]) -> Iterator[View]:
    at, raw = match.start("hex"), bytes.fromhex(match["hex"])
    if raw.startswith(_GZIP):
        yield from _whole(_inflated(raw), match)
        return
    yield from _plain(raw, [(place, place + 2) for place in range(at, at + 2 * len(raw), 2)])


def _from_spelt(match: re.Match[str]) -> Iterator[View]:
    base = 10 if match[0][0] in "cC" else 2
    codes = [int(code, base) for code in re.findall("[0-9]+", match[0])]
    yield from _whole(bytes(code for code in codes if code < 256), match)  # noqa: PLR2004


def _from_base85(run: str) -> bytes:
    """Return what base85 holds, as Adobe writes it; nothing where it holds none."""
    try:
        return a85decode(run)
    except ValueError:
        return b""


def _from_uuencoded(run: str) -> bytes:
    """Return what lines of uuencode hold; nothing where they hold none."""
    try:
        return b"".join(map(a2b_uu, run.splitlines()))
    except binascii.Error:
        return b""


def _from_hex_lines(match: re.Match[str]) -> Iterator[View]:
    """Decode hex that is cut into lines."""
    places = _without_joints(match)
    pairs = list(zip(places[::2], places[1::2], strict=False))
    raw = bytes.fromhex("".join(match.string[first] + match.string[second] for first, second in pairs))
    yield from _plain(raw, [(first, second + 1) for first, second in pairs])


def _from_base32(run: str) -> bytes:
    """Return what base32 holds; nothing where it holds none."""
    run = run.rstrip("=")
    try:
        return b32decode(run.upper() + "=" * (-len(run) % 8))
    except binascii.Error:
        return b""


def _unpacked(run: str) -> bytes:
    """Return what a gzip or zlib stream in base64 holds, as far as it may be looked at."""
    run = run.rstrip("=")
    try:
        return _inflated(b64decode(run + "=" * (-len(run) % 4)))
    except binascii.Error:
        return b""


def _inflated(raw: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=47).decompress(raw, _MOST_BLOB)
    except zlib.error:
        return b""


def _whole(raw: bytes, match: re.Match[str]) -> Iterator[View]:
    """Yield what cannot be changed in part: whatever is found in it replaces all of it."""
    if _is_text(raw):
        yield View(raw.decode("latin-1"), [match.start()] * len(raw), [match.end()] * len(raw), blob=True)


def _plain(raw: bytes, places: list[tuple[int, int]]) -> Iterator[View]:
    """Yield bytes as text, in ASCII or UTF-16, each with its place."""
    if _is_text(raw) and raw.count(0) * 3 < len(raw):
        yield View(raw.decode("latin-1"), [start for start, _ in places], [end for _, end in places], blob=True)
    for odd in (0, 1):
        if len(raw) > 7 and not any(raw[1 - odd :: 2]) and _is_text(raw[odd::2]):  # noqa: PLR2004
            half = raw[odd::2]
            spans = [(places[n * 2][0], places[min(n * 2 + 1, len(places) - 1)][1]) for n in range(len(half))]
            yield View(half.decode("latin-1"), [start for start, _ in spans], [end for _, end in spans], blob=True)


def _from_bytes(match: re.Match[str]) -> Iterator[View]:
    codes = [code for code in _ONE_BYTE.finditer(match[0]) if code["byte"]]
    is_hex = match["gap"] is not None or match[0][:2].lower() == "0x"
    both = not is_hex and "," not in match[0] and all(len(code["byte"]) == 2 for code in codes)  # noqa: PLR2004
    at = match.start()
    for base in (10, 16) if both else (16 if is_hex else 10,):
        values = [int(code["byte"], base) for code in codes]
        if values and max(values) < 256:  # noqa: PLR2004
            yield from _plain(bytes(values), [(at + code.start(), at + code.end()) for code in codes])


def _from_lines(match: re.Match[str]) -> Iterator[View]:
    """Decode base64 that is cut into lines."""
    places = [place for place in _without_joints(match) if match.string[place] != "="]
    run = "".join(match.string[place] for place in places)[:_MOST_BLOB]
    run = run[: len(run) - (len(run) % 4 == 1)]
    raw = b64decode(run.translate(_STANDARD) + "=" * (-len(run) % 4))
    if _is_text(raw):
        starts = [places[n // 3 * 4] for n in range(len(raw))]
        ends = [places[min(len(run) - 1, n // 3 * 4 + 3)] + 1 for n in range(len(raw))]
        yield View(raw.decode("latin-1"), starts, ends, blob=True)


def _without_joints(match: re.Match[str]) -> list[int]:
    """Return where the characters of a text in lines are."""
    joints = list(_IS_JOINT.finditer(match.string, match.start(), match.end()))
    starts, ends = (
        [match.start(), *(joint.end() for joint in joints)],
        [*(joint.start() for joint in joints), match.end()],
    )
    return [place for start, end in zip(starts, ends, strict=True) for place in range(start, end)]


def _decoded(view: View) -> View | None:
    """Return a view with its escapes decoded once; None if it has none."""
    chars: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    for match in _ESCAPE.finditer(view.text):
        parts = _parts(match)
        if parts is None:
            continue
        chars += view.text[at : match.start()]
        starts += view.starts[at : match.start()]
        ends += view.ends[at : match.start()]
        for char, first, last in parts:
            chars += char
            starts += [view.starts[match.start() + first]] * len(char)
            ends += [view.ends[match.start() + last - 1]] * len(char)
        at = match.end()
    if not at:
        return None
    chars += view.text[at:]
    return View("".join(chars), starts + view.starts[at:], ends + view.ends[at:])


def _parts(match: re.Match[str]) -> list[tuple[str, int, int]] | None:  # noqa: PLR0911 - one for each escape
    """Return the characters that an escape means, each with its place in the escape; None where it is none."""
    text, size = match[0], len(match[0])
    if match["percent"]:
        return _of_percent(text)
    if match["pair"] or match["bytes"]:
        return _of_units(text)
    if match["entity"]:
        char = html.unescape(text)
        return None if char == text else [(char, 0, size)]
    if code := match["code"] or match["unit"] or match["braced"] or match["long"] or match["css"]:
        return _of_code(int(code, 16), match)
    if match["printable"]:
        if text[1] in "\r\n":  # a line that goes on, in mail alone
            run = _RUN.search(match.string, max(0, match.start() - 40), match.start())
            return [("", 0, size)] if run is None and _OF_MAIL.search(match.string) else None
        return _of_percent(text.replace("=", "%"))
    if match["octal"]:
        return [(chr(int(code[1], 8)), *code.span()) for code in _OCTAL.finditer(text)]
    if match["zero"]:
        return [("", 0, size)]
    if match["wide"]:
        digit = unicodedata.digit(text, None)
        return [(str(digit) if digit is not None else unicodedata.normalize("NFKC", text), 0, size)]
    return [(" " if match["space"] else "." if text in "\u00b7\u2024\u2027" else "-", 0, size)]


def _of_code(code: int, match: re.Match[str]) -> list[tuple[str, int, int]] | None:
    char = chr(code) if code <= sys.maxunicode else ""
    ends_json = char in '"\\' and not _is_within(match)
    return None if "\ud800" <= char <= "\udfff" or ends_json else [(char, 0, len(match[0]))]


def _is_within(match: re.Match[str]) -> bool:
    """Whether escapes are before and after one: all of a text is written so, and a quote of it ends no JSON."""
    before = _UNIT.search(match.string, max(0, match.start() - 12), match.start())
    return before is not None and match.string[match.end() : match.end() + 1] == "\\"


def _of_units(text: str) -> list[tuple[str, int, int]] | None:
    r"""Return the character that two units of UTF-16 or some bytes of UTF-8 mean (`\\ud835\\ude7a`, `\\xc5\\x82`)."""
    units, codes = (
        bytes.fromhex("".join(re.findall("u(....)", text))),
        bytes.fromhex("".join(re.findall("x(..)", text))),
    )
    try:
        char = units.decode("utf-16-be") + codes.decode()
    except UnicodeDecodeError:
        return None
    return [(unicodedata.normalize("NFKC", char), 0, len(text))] if len(char) == 1 else None


def _of_percent(text: str) -> list[tuple[str, int, int]] | None:
    try:
        chars = bytes.fromhex(text.replace("%", "")).decode()
    except UnicodeDecodeError:
        return None
    parts, at = [], 0
    for char in chars:
        end = at + 3 * len(char.encode())
        parts.append((char, at, end))
        at = end
    return parts


def _from_base64(match: re.Match[str]) -> Iterator[View]:
    """Decode a run from where groups of four begin; what is before or after text in it is left out."""
    text = match.string
    start = match.start() + len(match["before"]) % 4
    run = text[start : match.end()].rstrip("=")[:_MOST_BLOB]
    run = run[: len(run) - (len(run) % 4 == 1)]
    raw = b64decode(run.translate(_STANDARD) + "=" * (-len(run) % 4))
    if not _is_text(raw) or raw.count(0) * 3 > len(raw):
        return
    length = match.end() - start
    starts = [start + n // 3 * 4 for n in range(len(raw))]
    ends = [start + min(length, n // 3 * 4 + 4) for n in range(len(raw))]
    yield View(raw.decode("latin-1"), starts, ends, blob=True)


def _from_utf16(match: re.Match[str]) -> Iterator[View]:
    start, run = match.start(), match[0].rstrip("=")
    raw = b64decode(run[: len(run) - (len(run) % 4 == 1)] + "=" * (-len(run) % 4))
    shown = raw[: len(raw) // 2 * 2].decode("utf-16-le", "replace")
    if len(shown) * 2 < len(raw) - 1 or not "".join(shown.split()).isprintable():
        return
    starts = [start + 2 * n // 3 * 4 for n in range(len(shown))]
    ends = [start + min(len(match[0]), (2 * n + 1) // 3 * 4 + 4) for n in range(len(shown))]
    yield View(shown, starts, ends, blob=True)


_STANDARD = str.maketrans("-_", "+/")
_IS_PRINTABLE = bytes((*range(0x20, 0x7F), 0, 9, 10, 13))


def _is_text(raw: bytes) -> bool:
    return bool(raw) and len(raw) - len(raw.translate(None, _IS_PRINTABLE)) >= _PRINTABLE * len(raw)


_WRITINGS = (
    (_BASE64, _from_base64), (_WIDE_BASE64, _from_utf16), (_HEX, _from_hex), (_BYTES, _from_bytes), (_SPELT, _from_spelt),
    (_BASE32, lambda match: _whole(_from_base32(match[0]), match)), (_PACKED, lambda match: _whole(_unpacked(match[0]), match)),
    (_LINES, _from_lines), (_MIME, _from_lines), (_HEX_LINES, _from_hex_lines), (_BASE85, lambda match: _whole(_from_base85(match["run"]), match)),
    (_UUENCODED, lambda match: _whole(_from_uuencoded(match["run"]), match)),
)  # fmt: skip
# Not kinds of data: they tell in which payloads texts have to be decoded.
CODED = Scan("", ESCAPED, lambda _text, _name: iter(()))
# Apart for the sake of speed: its automaton has many states, and more with those of others.
BLOBBED = Scan("", BLOB_TRIGGER, lambda _text, _name: iter(()), hint=Hint(pattern=BLOB_TRIGGER))
