"""The redaction key: where it is, and that it is the one by which a store's pseudonyms were made.

In: the key file's path and the store. Out: the key, or an error with the way out. The store keeps a fingerprint of its
key, taken at first use: with another key no user of the store would be recognised, and `forget` would find nothing.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from flywheel.errors import StoreError
from flywheel.io import files
from flywheel.store import Store

VARIABLE = "FLYWHEEL_KEY"
_WHAT = b"fingerprint of a flywheel store's redaction key"


def fingerprint(key: bytes) -> str:
    """Return what a store keeps of its key; as with a pseudonym, only a guess of the key can be tested by it."""
    return hmac.digest(key, _WHAT, "sha256").hex()


def given(path: Path) -> bytes | None:
    """Return the key of the environment, else of the key file; None where there is neither.

    Raises:
        StoreError: the file has no key in it.
    """
    if key := os.environ.get(VARIABLE):
        return key.encode()
    try:
        written = path.read_bytes().strip()
    except FileNotFoundError:
        return None
    if not written:
        raise StoreError(f"`{path.name}` is empty", hint=f"restore it from a backup, or set {VARIABLE}")
    return written


def made(path: Path) -> bytes:
    """Write a new key file, which only its owner can read, and return the key."""
    key = secrets.token_hex(32)
    with files.atomic_path(path) as partial:
        partial.touch(mode=0o600)
        partial.write_text(key + "\n", encoding="ascii")
    return key.encode()


def refuse_other(key: bytes | None, store: Store, path: Path) -> None:
    """Refuse a key by which the store's pseudonyms were not made, and a missing one where there are pseudonyms.

    Raises:
        StoreError: the key is another, or missing.
    """
    hint = (
        f"restore `{path.name}` from a backup, or set {VARIABLE}. Without the key no user of this store can be "
        "recognised: to go on with another, move the store's folder away, ingest the logs again, and forget again whom "
        "`rounds/forgotten.jsonl` counts. If the store took down a wrong key at first use, remove `key` from store.json"
    )
    if key is None and (store.key_fingerprint or store.numbers("ingest")):
        raise StoreError("the redaction key of this store is missing", hint=hint)
    if key is not None and store.key_fingerprint and not hmac.compare_digest(fingerprint(key), store.key_fingerprint):
        where = VARIABLE if os.environ.get(VARIABLE) else f"`{path.name}`"
        raise StoreError(f"{where} is not the redaction key of this store", hint=hint)
