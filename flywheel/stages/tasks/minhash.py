"""Near-duplicate requests: shingles of masked words, MinHash signatures, candidates by bands, verified Jaccard.

In: request texts. Out: pairs that are alike. Broder, "On the resemblance and containment of documents" (1997); banding
as in Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", ch. 3. All constants are fixed, so that equal texts
give equal bytes on any machine and with any version of numpy.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from flywheel.reading.messages import MARK
from flywheel.stages.common.canonical import normal_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

PERMUTATIONS, BANDS, ROWS = 128, 16, 8  # the S-curve's middle lies at (1/16)^(1/8) = 0.707
ALIKE = 0.7
DIFFER_AT_MOST = 12  # shingles, about two words: a long shared template must not make two questions one
SAYS_ENOUGH = 12  # shingles in common, about 14 words; shorter requests must be equal but for their slots
SHINGLE = 3  # words
NEIGHBOURS = 4  # members of a bucket that each further one is compared with, besides the first: keeps it linear
_BATCH = 4096
_MASK = (1 << 64) - 1
_SLOT = re.compile(r"https?://\S+|[\w.+-]+@[\w-]+\.[\w.-]+|<[a-z]+_[0-9a-z]+>|(?=[\w./:,-]*\d)\w+(?:[-./:,]\w+)*")
_ANY_CASE = re.compile(_SLOT.pattern, re.IGNORECASE)
_MASKED = re.compile(f"{MARK.pattern}|{_SLOT.pattern}")
_FILE = re.compile(r"file_[0-9a-f]{12}")
_WORD = re.compile(r"\w+|#")


def masked_words(text: str) -> list[str]:
    """Return the words of a text in normal form, with `#` for each number, id, date, address and pseudonym.

    What is asked about another image or file is another question, so each of them is a word of its own.
    """
    return _WORD.findall(_MASKED.sub(_masked, normal_text(text)))


def files_in(words: Sequence[str]) -> frozenset[str]:
    """Return the masked words of a text that name images and files."""
    return frozenset(word for word in words if _FILE.fullmatch(word))


def _masked(slot: re.Match[str]) -> str:
    return f" file_{slot[0][-13:-1]} " if slot[0].startswith("[") else " # "


def slots_of(text: str) -> list[str]:
    """Return the numbers, ids, dates, addresses and pseudonyms of a text, in order: what `masked_words` masks."""
    return [match[0] for match in _ANY_CASE.finditer(MARK.sub(" ", text))]


def as_asked(text: str, slots: Sequence[str]) -> str:
    """Return a text with what a request named (its slots) as placeholders, by their places in it."""
    names = {normal_text(slot): f"#{place}" for place, slot in reversed(list(enumerate(slots)))}
    return _ANY_CASE.sub(lambda slot: names.get(normal_text(slot[0]), slot[0]), text) if names else text


def _mix(value: int) -> int:
    """Return the next number of SplitMix64 (Steele, Lea and Flood, 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


@lru_cache(maxsize=200_000)
def _word_hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def shingles(words: Sequence[str]) -> NDArray[np.uint64]:
    """Return the distinct word 3-shingles as sorted hashes; fewer than three words are one shingle."""
    hashes = np.fromiter(map(_word_hash, words or [""]), dtype=np.uint64, count=max(len(words), 1))
    width = min(SHINGLE, len(hashes))
    hashed = np.zeros(len(hashes) - width + 1, dtype=np.uint64)
    for place in range(width):
        hashed = (hashed ^ hashes[place : place + len(hashed)]) * np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(29)
    return np.unique(hashed)


def signatures(sets: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """Return one key for each set (row) and band (column): equal keys mean eight equal minima."""
    keys = np.zeros((len(sets), BANDS), dtype=np.uint64)
    for start in range(0, len(sets), _BATCH):
        batch = sets[start : start + _BATCH]
        keys[start : start + len(batch)] = _batch_keys(batch)
    return keys


def _batch_keys(sets: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    values = np.concatenate(sets)
    starts = np.cumsum([0, *(len(s) for s in sets[:-1])])
    keys = np.zeros((len(sets), BANDS), dtype=np.uint64)
    seed = 0
    for number in range(PERMUTATIONS):
        seed = _mix(seed)
        factor, seed = np.uint64(seed | 1), _mix(seed)
        hashed = (values * factor + np.uint64(seed)) >> np.uint64(32)
        band = number // ROWS
        least = np.minimum.reduceat(hashed, starts)
        keys[:, band] = (keys[:, band] ^ least) * np.uint64(0x9E3779B97F4A7C15)
    return keys


def candidates(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return (later, earlier) rows that share a bucket: each with the bucket's first and its last few before it.

    Sorted, each pair once.
    """
    rows, place = len(keys), np.arange(len(keys))
    coded = [np.zeros(0, dtype=np.int64)]  # later * rows + earlier
    for band in range(keys.shape[1]):
        order = np.argsort(keys[:, band], kind="stable")
        column = keys[order, band]
        begins = np.maximum.accumulate(np.where(np.append(True, column[1:] != column[:-1])[:rows], place, 0))
        for lag in range(1, NEIGHBOURS + 1):
            later = place[place - begins >= lag]
            coded.append(order[later] * rows + order[later - lag])
        later = place[place - begins > NEIGHBOURS]
        coded.append(order[later] * rows + order[begins[later]])
        coded = [np.unique(np.concatenate(coded))]
    return np.stack(np.divmod(coded[0], max(rows, 1)), axis=1)


def may_be_alike(sizes: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether requests with so many shingles can be near-duplicates at all, see `alike`."""
    less, more = np.minimum(sizes, others), np.maximum(sizes, others)
    return (less >= np.maximum(ALIKE * more, SAYS_ENOUGH)) & (more - less <= DIFFER_AT_MOST)


def alike(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> bool:
    """Return whether two requests are near-duplicates: Jaccard 0.7 or more, and at most two words' difference."""
    common = len(np.intersect1d(one, other, assume_unique=True))
    union = len(one) + len(other) - common
    return common >= max(ALIKE * union, SAYS_ENOUGH) and union - common <= DIFFER_AT_MOST
