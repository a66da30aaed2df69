"""Users' pseudonyms: of a name's normal form, so that one person is one user however a program writes the name.

In: a user's name as a log has it. Out: `user_` and 16 hex digits of an HMAC under the project's key. Case,
compatibility characters and characters without a glyph make no other user (Unicode, NFKC_Casefold); neither does `+tag`
before an @ where `ingest.redact.plus_addressing` is set.
"""

from __future__ import annotations

import hmac
import re
import unicodedata

_HEX = 16
_PSEUDONYM = re.compile(rf"user_[0-9a-f]{{{_HEX}}}\Z")
_MOST_KNOWN = 1 << 16
# Default ignorable code points that are not of the category Cf: fillers, joiners of glyphs, selectors of variants.
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def normal_form(user: str, *, plus_addressing: bool = False) -> str:
    """Return a user's name without what people and programs write differently; never empty where the name is not."""
    name = unicodedata.normalize("NFKC", user).casefold()
    if not name.isascii():
        seen = "".join(char for char in _UNSEEN.sub("", name) if unicodedata.category(char) != "Cf")
        name = unicodedata.normalize("NFKC", seen)
    local, at, host = name.strip().rpartition("@")
    if plus_addressing and at:
        local = local.partition("+")[0] or local
    return f"{local}{at}{host}" or user


class Users:
    """Makes pseudonyms.

    Args:
        key: the project's secret key.
        plus_addressing: whether `name+tag@host` is the user `name@host`.
    """

    def __init__(self, key: bytes, *, plus_addressing: bool) -> None:
        self._key, self._plus_addressing = key, plus_addressing
        self._known: dict[str, str] = {}

    def pseudonym(self, user: str) -> str:
        """Return a user's pseudonym; a pseudonym stays as it is."""
        name = user.strip()
        if _PSEUDONYM.match(name):
            return name
        known = self._known.get(name)
        if known is None:
            known = self._of(normal_form(name, plus_addressing=self._plus_addressing))
            if len(self._known) < _MOST_KNOWN:
                self._known[name] = known
        return known

    def pseudonyms(self, user: str) -> list[str]:
        """Return every pseudonym that a store may have of a user: an earlier version made it of the name as written."""
        name = user.strip()
        return list(dict.fromkeys([self.pseudonym(name), name if _PSEUDONYM.match(name) else self._of(name)]))

    def _of(self, name: str) -> str:
        return f"user_{hmac.digest(self._key, f'user:{name}'.encode('utf-8', 'surrogatepass'), 'sha256').hex()[:_HEX]}"
