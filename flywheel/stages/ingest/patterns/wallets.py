"""Seed phrases of wallets (BIP-39): twelve to twenty-four words of a list of 2,048, the last of which is a checksum.

The list is the English one of BIP-39. Without a word that announces them the checksum has to hold; with one ("seed
phrase", "mnemonic") twelve words of the list are enough.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from flywheel.stages.ingest.patterns.kinds import Find, Scan

_COUNTS = (24, 21, 18, 15, 12)
_RUN = re.compile(
    r"(?<![A-Za-z-])[A-Za-z]{3,8}(?:(?:[ ,]{1,3}|\s?[0-9]{1,2}[.):]\s?|\n|\\n)[A-Za-z]{3,8}){11,80}(?![A-Za-z-])"
)
_WORD = re.compile(r"[A-Za-z]{3,8}")
_ANNOUNCED = re.compile(r"(?i)(?:seed|recovery|mnemonic|backup|wallet|secret|wiederherstellungs)[^\n]{0,60}\Z")

_NAMED = re.compile(r"(?i)seed|mnemonic|recovery")


@lru_cache(maxsize=1)
def _numbers() -> dict[str, int]:
    words = (Path(__file__).parent / "wallet_words.txt").read_text(encoding="ascii").split()
    return {word: n for n, word in enumerate(words)}


def seeds(text: str, name: str) -> Iterator[Find]:
    """Yield seed phrases."""
    for run in _RUN.finditer(text):
        words = [
            (match[0].lower(), run.start() + match.start(), run.start() + match.end())
            for match in _WORD.finditer(run[0])
        ]
        yield from _in(words, text, announced=_NAMED.search(name) is not None)


def _in(words: list[tuple[str, int, int]], text: str, *, announced: bool) -> Iterator[Find]:
    n, known = 0, _numbers()
    while n < len(words):
        length = 0
        while n + length < len(words) and words[n + length][0] in known and length < _COUNTS[0]:
            length += 1
        count = next(
            (
                c
                for c in _COUNTS
                if c <= length and (announced or _counts([w for w, _, _ in words[n : n + c]], text, words[n][1]))
            ),
            0,
        )
        if count:
            phrase = words[n : n + count]
            yield Find(" ".join(word for word, _, _ in phrase), phrase[0][1], phrase[-1][2])
        n += count or 1


def _counts(words: list[str], text: str, start: int) -> bool:
    return bool(_ANNOUNCED.search(text, max(0, start - 80), start)) or _checks(words)


def _checks(words: list[str]) -> bool:
    """Whether the last bits are those of SHA-256 over the others."""
    bits = "".join(f"{_numbers()[word]:011b}" for word in words)
    size = len(bits) * 32 // 33
    digest = hashlib.sha256(int(bits[:size], 2).to_bytes(size // 8, "big")).digest()
    return f"{digest[0]:08b}"[: len(bits) - size] == bits[size:]


_TRIGGER = (
    r"[^a-z](?:[a-z]{3,8} ){11}[a-z]{3,8}|(?i:seed|mnemonic|recovery)[^\n]{0,40}[a-z]{3,8}[ ,][^\n]{0,8}[a-z]{3,8}"
)
SEED = Scan("secret", _TRIGGER, seeds)
