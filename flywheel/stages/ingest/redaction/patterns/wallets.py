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

from flywheel.stages.ingest.redaction.patterns.kinds import Find, Scan

_COUNTS = (24, 21, 18, 15, 12)
_RUN = re.compile(
    r"(?<![A-Za-z-])[A-Za-z]{3,8}(?:(?:[ ,]{1,3}|\s?[0-9]{1,2}[.):]\s?|\n|\\n)[A-Za-z]{3,8}){11,80}(?![A-Za-z-])"
)
_WORD = re.compile(r"[A-Za-z]{3,8}")
_ANNOUNCED = re.compile(r"(?i)(?:seed|recovery|mnemonic|backup|wallet|secret|wiederherstellungs)[^\n]{0,60}\Z")

_EXPLAINED = re.compile(r"(?i)[^\n]{0,48}\b(?:seed|mnemonic|wallet)\b")
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
    before, after = text[max(0, start - 80) : start], text[start : start + 320].rpartition(words[-1])[2]
    return bool(_ANNOUNCED.search(before) or _EXPLAINED.match(after)) or _checks(words)


def _checks(words: list[str]) -> bool:
    """Whether the last bits are those of SHA-256 over the others."""
    bits = "".join(f"{_numbers()[word]:011b}" for word in words)
    size = len(bits) * 32 // 33
    digest = hashlib.sha256(int(bits[:size], 2).to_bytes(size // 8, "big")).digest()
    return f"{digest[0]:08b}"[: len(bits) - size] == bits[size:]


# Seeds of Stellar and of NATS: base32 of a version, 32 bytes and a sum; keys of Solana: 64 numbers of a byte.
_BASE32 = re.compile(r"(?<![A-Za-z0-9])(?:S[A-Z2-7]{55}|S[ANOUCX][A-Z2-7]{56})(?![A-Za-z0-9])")
_NUMBERS = re.compile(r"(?<=\[)\s?(?:[0-9]{1,3},\s?){63}[0-9]{1,3}\s?(?=\])")
_OF_SOLANA = re.compile(r"(?i)solana|id\.json|keypair|wallet|secret|private")
_BYTE = 256


_OTHER_WORDS = re.compile(
    r"(?i)(?:frase (?:semilla|di recupero|de recuperaci[óo]n)|phrase de récupération|リカバリーフレーズ|助记词|니모닉)\s?[:：]?\s{0,3}"  # noqa: RUF001 - as people write it
    r"(?P<phrase>[^\W\d_]{1,16}(?:[ \u3000]{1,2}[^\W\d_]{1,16}){11,23})"
)


def keys(text: str, name: str) -> Iterator[Find]:
    """Yield seeds in base32, keys as lists of numbers, and phrases of words that no English list has."""
    for match in _OTHER_WORDS.finditer(text):
        yield Find(match["phrase"], *match.span("phrase"))
    for match in _BASE32.finditer(text):
        if any(map(str.isdigit, match[0])):
            yield Find(match[0], *match.span())
    for match in _NUMBERS.finditer(text):
        is_key = all(int(number) < _BYTE for number in match[0].split(","))
        alone = text[: match.start()].strip() == "[" and text[match.end() :].strip() == "]"
        if is_key and (alone or _OF_SOLANA.search(f"{name} {text[max(0, match.start() - 120) : match.end() + 80]}")):
            yield Find(match[0].strip(), match.start(), match.end())


_TRIGGER = r"[^a-z](?:[a-z]{3,8} ){11}[a-z]{3,8}|[a-z] ??(?:(?: |\\n)?[0-9]{1,2}[.):] ?[a-z]{3,8}){5}|(?i:seed|mnemonic|recovery)[^\n]{0,40}[a-z]{3,8}[ ,][^\n]{0,8}[a-z]{3,8}"
SEED = Scan("secret", _TRIGGER, seeds, local=False)
PRINTED = Scan(
    "secret",
    r"(?i:frase |récupération)|フレーズ|助记词|니모닉|(?:[^A-Za-z0-9]|\\[nrt])S[A-Z2-7]{12}|\[ ?[0-9]{1,3}(?:, ?[0-9]{1,3}){20}",
    keys,
    local=False,
)
