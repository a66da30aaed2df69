"""Signed files: a detached HMAC next to a log, as `openssl dgst -sha256 -hmac KEY -r FILE > FILE.sig` writes it.

In: a log file. Out: the fingerprint of the key that signed it, which `[trust]` may ask for. A signature covers the
whole file; a file that has grown needs a new one.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from pathlib import Path

from flywheel.errors import IngestError

SUFFIX = ".sig"
KEY, KEY_FILE = "FLYWHEEL_SIGNING_KEY", "FLYWHEEL_SIGNING_KEY_FILE"  # environment variables: the key, or where it is
_HEX = re.compile(r"\b[0-9a-f]{64}\b")
_MOST_BYTES = 10_000  # of a signature
_PRINT_HEX = 8


def is_signature(file: Path) -> bool:
    """Whether a file is the signature of the file next to it."""
    return file.suffix == SUFFIX and file.with_suffix("").is_file()


def signed_by(file: Path) -> str | None:
    """Return the fingerprint of the key that signed a file; None where no signature fits.

    Raises:
        IngestError: the key's file cannot be read.
    """
    signature = file.with_name(file.name + SUFFIX)
    key = _key() if signature.is_file() and signature.stat().st_size <= _MOST_BYTES else b""
    if not key:
        return None
    found = _HEX.search(signature.read_text("ascii", errors="replace").lower())
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hmac.new(key, digestmod="sha256")).hexdigest()
    fits = found is not None and hmac.compare_digest(found[0], digest)
    return hashlib.sha256(key).hexdigest()[:_PRINT_HEX] if fits else None


def _key() -> bytes:
    name = os.environ.get(KEY_FILE, "")
    if not name:
        return os.environ.get(KEY, "").encode()
    try:
        return Path(name).read_bytes().strip()
    except OSError as error:
        hint = f"mend the path in {KEY_FILE}, or put the key in {KEY}"
        raise IngestError(f"the signing key in `{name}` cannot be read", hint=hint) from error
