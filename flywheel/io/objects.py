"""Objects below an address in a bucket, by their names below it; what is there is listed once a command.

In: names and bytes. Out: documents that are created and never written over, files by their hash. A create that finds
another machine's object is refused: that is what commits of stores, rounds and ledgers rest on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flywheel.errors import BusyError, StoreError
from flywheel.io import files
from flywheel.io.bucket import Address, Bucket, Object

AGAIN = "nothing was overwritten; type the command again, which goes on from what is there now"


class Objects:
    """What is below an address.

    Args:
        where: the bucket, and the beginning of all names.
    """

    def __init__(self, where: Address) -> None:
        self.address = where
        self._bucket = Bucket(where)
        self._listed: dict[str, Object] | None = None

    def shown(self, name: str = "") -> str:
        """Return where something is, for messages."""
        return self._bucket.at(self._key(name)).url

    def _key(self, name: str) -> str:
        return f"{self.address.key.rstrip('/')}/{name}".strip("/")

    @property
    def there(self) -> dict[str, Object]:
        """What is in the bucket, by name."""
        if self._listed is None:
            self._listed = self.now("")
        return self._listed

    def now(self, folder: str) -> dict[str, Object]:
        """Return what is in a folder at this moment, by name."""
        skipped = len(self._key("x")) - 1
        return {found.key[skipped:]: found for found in self._bucket.below(self._key(folder))}

    def look_again(self) -> None:
        """List what is there again, when it is asked for next."""
        self._listed = None

    def numbered(self, folder: str) -> dict[int, Object]:
        """Return the objects `folder/<n>.json`, by number."""
        return _numbered(folder, self.there)

    def newest(self, folder: str) -> int:
        """Return the highest number in a folder at this moment; 0 where there is none."""
        return max(_numbered(folder, self.now(folder)), default=0)

    def find(self, name: str) -> Object | None:
        """Return an object, asking for one that is not listed: another process of this command may have made it."""
        if name not in self.there and (found := self._bucket.find(self._key(name))) is not None:
            self.there[name] = found
        return self.there.get(name)

    def read(self, name: str) -> bytes:
        """Return an object's bytes.

        Raises:
            FileNotFoundError: there is none.
        """
        return self._bucket.read(self._key(name))

    def document(self, name: str) -> Any:
        """Return the JSON document of an object.

        Raises:
            StoreError: it is missing or damaged.
        """
        return self._parsed(name, json.loads)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of an object with JSON lines.

        Raises:
            StoreError: it is missing or damaged.
        """
        rows: list[dict[str, Any]] = self._parsed(name, lambda text: [json.loads(line) for line in text.splitlines()])
        return rows

    def _parsed(self, name: str, parse: Callable[[bytes], Any]) -> Any:
        where = f"`{self.shown(name)}` is"
        try:
            return parse(self.read(name))
        except FileNotFoundError:
            raise StoreError(
                f"{where} missing", hint="it was removed since this command began; type it again"
            ) from None
        except ValueError:
            raise StoreError(f"{where} damaged: not valid JSON", hint="restore it from a backup") from None

    def save(self, name: str, path: Path, sha256: str) -> None:
        """Write an object to a file, whole or not at all.

        Raises:
            StoreError: it is missing, or has another hash.
        """
        where = f"`{self.shown(name)}` is"
        try:
            found = self.find(name)
            pieces = self._bucket.pieces(found.key, 0, found.etag) if found is not None and found.size else ()
            sound = found is not None and files.write_pieces(path, pieces, sha256)
        except FileNotFoundError:
            raise StoreError(f"{where} missing", hint="it was removed meanwhile; type the command again") from None
        if not sound:
            problem = "not what was written" if found is not None else "missing"
            raise StoreError(f"{where} {problem}", hint="restore it from a backup")

    def put(self, name: str, content: bytes | memoryview | Path) -> None:
        """Write an object, in place of what is there."""
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        self._bucket.put(self._key(name), content)
        self.there[name] = Object(self._key(name), size, "", datetime.now(UTC))

    def probe(self, name: str, content: bytes) -> bool:
        """Whether the server creates an object a second time, which it has been asked not to."""
        return all(self._bucket.create(self._key(name), content) for _ in range(2))

    def create(self, name: str, document: Any, what: str) -> None:
        """Create a JSON document.

        Raises:
            BusyError: another machine has.
        """
        self.create_text(name, files.json_text(document), what)

    def create_text(self, name: str, text: str, what: str) -> None:
        """Create a text.

        Raises:
            BusyError: another machine has.
        """
        content = text.encode()
        if not self._bucket.create(self._key(name), content):
            raise BusyError(f"another machine has written {what} since this command began", hint=AGAIN)
        self.there[name] = Object(self._key(name), len(content), "", datetime.now(UTC))

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects; one that is gone is not an error."""
        self._bucket.remove([self._key(name) for name in names])
        for name in names:
            self.there.pop(name, None)


def _numbered(folder: str, there: dict[str, Object]) -> dict[int, Object]:
    stems = {name.removeprefix(f"{folder}/").removesuffix(".json"): name for name in there}
    return {
        int(stem): there[name] for stem, name in stems.items() if stem.isdigit() and name == f"{folder}/{stem}.json"
    }
