r"""Keys that bear no known mark: long, without words, from all classes of characters.

Published practice: truffleHog 2 flags base64 texts above 4.5 bits a character and hex above 3.0 from 20 characters on;
detect-secrets has the same limits and a filter against words; gitleaks requires 3.5 after a name like `api_key`. Logs
of agents are full of hashes, ids and paths, so that more is required here of a text without a secret's name: 4.5 bits
(85 % of what its length allows, where that is less), capitals, small letters and digits in quick change, hardly any
syllables. Hex alone is never enough: that is what hashes, UUIDs, trace and span ids look like.

What joins events stays: `call_…`, `toolu_…`, `chatcmpl-…` and whatever else begins with a small word and a dash, and
whatever has the name of an id, a hash or a signature. So do addresses, paths, and data too long to be a key.
"""

from __future__ import annotations

import binascii
import math
import re
from base64 import b64decode
from functools import lru_cache
from itertools import pairwise

from flywheel.stages.ingest.redaction.patterns.ids import is_other
from flywheel.stages.ingest.redaction.patterns.kinds import Find, Kind, entropy

_SHORTEST, _LONGEST = 20, 256
_BITS, _OF_POSSIBLE = 4.5, 0.85
_LEAST_CHANGES, _MOST_WORDS = 0.35, 0.5  # shares of the length; measured on random keys and on the logs in shared/data
_LEAST_NO_WORD = 13  # characters that are left without the words

_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
_RUN = "[A-Za-z0-9+/_-]{20,}"
# A run begins where no such character precedes it, or after the `\n` of a text quoted in a text.
_PATTERN = rf"(?:(?<![A-Za-z0-9+/_\\-])|(?<=\\)(?![nrt])|(?<=\\[nrt])){_RUN}={{0,2}}"
# Classes of characters in quick change: whatever looks random has some such place.
_MIXED = r"[a-z][0-9]+[A-Z]|[A-Z][0-9]+[a-z]|[0-9][a-z]+[A-Z]|[0-9][A-Z]+[a-z]|[a-z][A-Z]+[0-9]|[A-Z][a-z]{1,2}[0-9]"
_IS_MIXED = re.compile(_MIXED)
_TYPED = re.compile(r"(?:[a-z][a-z0-9]{1,15}[_-]+){1,3}[A-Za-z0-9+/_-]+")
_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}")
_PART = re.compile(r"(?=.*[aeiouy])[A-Z]?[a-z]{2,}(?:[_-][a-z]+)*")
_VOWEL = re.compile(r"(?i)[aeiouy]")
_CLASS = str.maketrans("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", "a" * 26 + "A" * 26 + "0" * 10)
_NAMES = (
    r"(?:id|ids|uuid|guid|hash|sha[0-9]*|md5|digest|checksum|integrity|etag|signature|fingerprint|cursor|commit"
    r"|revision|nonce|encrypted[_-]?content|url|uri|path)"
)
_NAMED = re.compile(rf"(?:\A|[^A-Za-z]|(?<=[a-z])(?=[A-Z]))(?i:{_NAMES})\Z")
_NAMED_BEFORE = re.compile(
    rf"(?:\A|[^A-Za-z]|(?<=[a-z])(?=[A-Z]))(?i:{_NAMES})[\"'\\`]{{0,4}}(?:\s{{0,2}}[:=#]\s{{0,2}}|\s)[\"'\\`]{{0,4}}\Z"
)
_PUSHED = re.compile(r"-[L-P][A-Za-z0-9_-]{18}")  # ids that Firebase makes
_ADDRESS_BEFORE = re.compile(
    r"(?:://|base64,|@|www\.)[^\s\"'<>]*\Z|\bh1:\Z|boundary=\"?-{2,40}(?:WebKitFormBoundary)?\Z"
)
_BEFORE = 128


@lru_cache(maxsize=1 << 14)
def looks_random(token: str) -> bool:
    """Whether a text without a secret's name looks like a key."""
    run = token.rstrip("=")
    if not _SHORTEST <= len(run) <= _LONGEST:
        return False
    if _TYPED.fullmatch(run):
        return _is_typed_key(run)
    if not _IS_MIXED.search(run):
        return False
    enough = min(_BITS, _OF_POSSIBLE * math.log2(len(run)))
    return entropy(run) >= enough and _is_no_prose(run) and not _is_encoded_text(token)


_IDS = frozenset(
    [
        "call",
        "toolu",
        "chatcmpl",
        "cmpl",
        "resp",
        "msg",
        "message",
        "req",
        "request",
        "run",
        "thread",
        "asst",
        "assistant",
        "file",
        "gen",
        "item",
        "step",
        "event",
        "evt",
        "trace",
        "span",
        "conv",
        "conversation",
        "user",
        "org",
        "proj",
        "project",
        "batch",
        "node",
        "task",
        "job",
        "build",
        "session",
        "cs",
        "pi",
        "seti",
        "cus",
        "price",
        "prod",
        "sub",
        "inv",
        "ch",
        "txn",
        "pod",
        "img",
        "image",
        "layer",
        "cache",
        "commit",
        "digest",
        "sha",
        "sha1",
        "sha256",
        "sha384",
        "sha512",
        "md5",
        "blake2",
        "uuid",
        "guid",
        "hash",
        "srvtoolu",
        "functions",
        "tool",
        "rs",
        "fc",
        "ws",
    ]
)
_PREFIX = re.compile(r"(?P<kind>[a-z][a-z0-9]{1,11})(?:[_-][a-z][a-z0-9]{0,11}){0,2}[_-]")
_LEAST_TAIL = 28  # longer than the ids that services give out behind a word (27 of KSUIDs, 26 of ULIDs)
_NO_HEX = re.compile(r"(?=.*(?:[g-z].*){3}|.*(?:[G-Z].*){3})[A-Za-z0-9]{28,}")


@lru_cache(maxsize=1 << 14)
def is_key_part(tail: str) -> bool:
    """Whether what follows a word like `key_` or `secret-` is random: with digits among letters, without words."""
    digits = sum(c.isdigit() for c in tail)
    words = sum(len(word) for word in _WORD.findall(tail) if _VOWEL.search(word) and len(word) > 3)  # noqa: PLR2004
    mixed = digits > 2 or (digits and not tail.islower() and not tail.isupper())  # noqa: PLR2004
    return bool(mixed) and digits < len(tail) and entropy(tail) >= 3 and words < _MOST_WORDS * len(tail)  # noqa: PLR2004


def is_typed(prefix: str, tail: str) -> bool:
    """Whether digits and letters behind words that name no id are a key: longer than ids are, or a name of keys there."""
    words = prefix.rstrip("_").split("_")
    return not _IDS.intersection(words) and bool(_OF_KEYS.intersection(words)) and is_key_part(tail)


_OF_KEYS = frozenset(
    [
        "sec",
        "secret",
        "key",
        "api",
        "live",
        "prod",
        "production",
        "server",
        "client",
        "admin",
        "priv",
        "private",
        "token",
        "tok",
        "pat",
        "sk",
        "rk",
        "auth",
        "access",
        "refresh",
        "oat",
        "svc",
        "service",
        "bot",
        "personal",
        "mobile",
        "deploy",
        "sdk",
        "ci",
    ]
)


def _is_typed_key(run: str) -> bool:
    """Whether a long random text follows a small word that names no id: a key of a service that no list has."""
    prefix = _PREFIX.match(run)
    if prefix is None or _IDS.intersection(re.split("[_-]", prefix[0])):
        return False
    tail = run[prefix.end() :]
    return len(tail) >= _LEAST_TAIL and (
        looks_random(tail) or (_NO_HEX.fullmatch(tail) is not None and is_key_part(tail))
    )


def _is_no_prose(run: str) -> bool:
    """Whether capitals, small letters and digits change quickly, and few of them make words."""
    classes = run.translate(_CLASS)
    changes = sum(a != b for a, b in pairwise(classes))
    words = sum(len(word) for word in _WORD.findall(run) if _VOWEL.search(word))
    quick = {"a", "A", "0"} <= set(classes) and changes >= _LEAST_CHANGES * len(run)
    return quick and words < _MOST_WORDS * len(run) and len(run) - words >= _LEAST_NO_WORD and not _is_path(run)


def _is_path(run: str) -> bool:
    """Whether slashes part words; base64 has a slash in 64 characters, and seldom a word between two."""
    return run.startswith("/") or ("/" in run and any(map(_PART.fullmatch, run.split("/"))))


def _is_encoded_text(token: str) -> bool:
    """Whether base64 decodes to readable text: that is a message, not a key."""
    run = token.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        text = b64decode(run[: len(run) // 4 * 4], validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return False
    return all(c.isprintable() or c in "\r\n\t" for c in text)


def _random(match: re.Match[str], name: str) -> Find | None:
    if _NAMED.search(name) or not looks_random(match[0]) or _PUSHED.fullmatch(match[0]) or is_other(match, name):
        return None
    before = match.string[max(0, match.start() - _BEFORE) : match.start()]
    if _ADDRESS_BEFORE.search(before) or _NAMED_BEFORE.search(before):
        return None
    return Find(match[0], match.start(), match.end())


def _worth(token: str) -> bool:
    """Whether a run in JSON is a key, or would be without the letter of an escape in a text quoted in a text."""
    run = _ESCAPE.sub("", token, count=1) if token[0] == "\\" else token
    return looks_random(run) or looks_random(run[1:])


RANDOM = Kind(
    "secret", _MIXED, _PATTERN, _random, tokens=rf"(?:{_ESCAPE.pattern})?{_RUN}={{0,2}}", worth=_worth, local=False
)
