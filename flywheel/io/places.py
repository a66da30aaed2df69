"""Where a store's documents and parts are: in a folder, or in a bucket with a folder as its cache.

In: documents by stage and number, parts by name. Out: the same, from either place. Parts are named by content; a
snapshot is one new file, or one object that is created and never written over.

    store/<n>.json                in a bucket: the header; the highest n holds
    snapshots/<stage>/<n>.json    a stage's snapshots; in a bucket `null` where a stage has none any more
    tables/<table>/p<NN>/part-<sha>.parquet
    locks/<n>.json                in a bucket: who may remove something, until when; n is the fencing number
    probe                         in a bucket: which a server that keeps its word refuses to create again

Nothing is removed from a bucket without the lease. Its holder first takes the next number of every stage, so that a
commit that another machine is about to make is refused: it was built on what the holder is about to remove.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from flywheel.errors import BucketError, BusyError, StoreError
from flywheel.io import files
from flywheel.io.bucket import Address
from flywheel.io.objects import AGAIN, Objects

_NONE = b"null\n"
_AT_ONCE = 8  # parts that are fetched at once
_HELD = timedelta(hours=1)  # a lease whose holder died; a living one extends it
_YOUNG = timedelta(days=1)  # a part that no snapshot names yet may be about to get one


class Folder:
    """A store in a folder of this machine.

    Args:
        root: the folder; made on the first write.
    """

    shared = False

    def __init__(self, root: Path) -> None:
        self.root = root

    def resolved(self) -> Folder:
        """Return the same place for another process, whose current folder may differ."""
        return Folder(self.root.resolve())

    def shown(self, name: str = "") -> str:
        """Return where something is, for messages."""
        return str(self.root / name)

    def header(self) -> Any | None:
        """Return the store's header; None where there is no store yet."""
        path = self.root / "store.json"
        return files.read_json(path) if path.exists() else None

    def write_header(self, header: Any) -> None:
        """Replace the store's header."""
        files.write_json(self.root / "store.json", header)

    def settle(self) -> None:
        """Begin a command that writes: look again at what is there, and remove halves of files."""
        files.remove_partials(self.root)

    def numbers(self, stage: str) -> list[int]:
        """Return the numbers of a stage's snapshots, oldest first."""
        folder = self.root / "snapshots" / stage
        if not folder.exists():
            return []
        return sorted(int(p.stem) for p in folder.iterdir() if p.suffix == ".json" and p.stem.isdigit())

    def next(self, stage: str) -> int:
        """Return the number that a stage's next snapshot has."""
        return (self.numbers(stage) or [0])[-1] + 1

    def stages(self) -> list[str]:
        """Return the stages that have a snapshot."""
        folder = self.root / "snapshots"
        return sorted(p.name for p in folder.iterdir() if self.numbers(p.name)) if folder.exists() else []

    def document(self, stage: str, number: int) -> Any:
        """Return a snapshot's document.

        Raises:
            StoreError: it is missing or damaged.
        """
        return files.read_json(self.root / snapshot_name(stage, number))

    def create(self, stage: str, number: int, document: Any) -> None:
        """Write a snapshot's document: the one write that changes what readers see.

        Raises:
            BusyError: another machine was first.
        """
        files.write_json(self.root / snapshot_name(stage, number), document)

    def write(self, folder: str, content: memoryview) -> tuple[str, str]:
        """Write a part; return its name and its hash."""
        path, sha256 = files.write_by_content(self.root / folder, ".parquet", content)
        return path.relative_to(self.root).as_posix(), sha256

    def size(self, name: str) -> int | None:
        """Return the size of a part in bytes; None where it is missing.

        Raises:
            StoreError: its folder may not be read.
        """
        try:
            return (self.root / name).stat().st_size
        except PermissionError:
            hint = "flywheel has to run as the user who owns the store: chown or chmod its folder"
            raise StoreError(f"`{self.root / name}` cannot be read: Permission denied", hint=hint) from None
        except OSError:
            return None

    def sound(self, name: str, sha256: str) -> bool:
        """Whether a part that is there has this hash; then its bytes are in its file under the root."""
        return files.hash_file(self.root / name) == sha256

    def fetch(self, parts: Iterable[tuple[str, str]]) -> None:
        """Bring parts, by name and hash, to this machine."""

    def parts(self) -> list[str]:
        """Return the names of all parts but those that may be about to be committed elsewhere."""
        there = (self.root / "tables").glob("*/p*/part-*.parquet")
        return sorted(path.relative_to(self.root).as_posix() for path in there)

    def published(self, folder: str) -> list[str]:
        """Return the names of the documents in a folder that other programs read, in order."""
        return sorted(p.relative_to(self.root).as_posix() for p in (self.root / folder).glob("*.json"))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of such a document."""
        return files.read_rows(self.root / name)

    def publish(self, name: str, text: str) -> None:
        """Write such a document.

        Raises:
            BusyError: another machine was first.
        """
        files.atomic_write(self.root / name, text)

    def clear(self, stage: str) -> bool:
        """Make a stage have no snapshot, where that takes no removal; return whether it was done."""
        return not self.numbers(stage)

    def may_remove(self) -> bool:
        """Whether something may be removed now."""
        return True

    def remove(self, names: Iterable[str]) -> None:
        """Remove snapshots or parts, by name, in this order."""
        for name in names:
            (self.root / name).unlink(missing_ok=True)

    @contextmanager
    def alone(self, command: str, stages: Sequence[str], *, all_parts: bool = False) -> Iterator[None]:  # noqa: ARG002
        """Hold off all other machines.

        Args:
            command: who does, for messages.
            stages: all that there are.
            all_parts: whether parts that no snapshot names are to go however young they are.

        Raises:
            BusyError: another machine is writing.
        """
        yield


def snapshot_name(stage: str, number: int) -> str:
    """Return the name of a snapshot's document."""
    return f"snapshots/{stage}/{number}.json"


class InBucket(Folder):
    """A store in a bucket, with the folder for parts that were read or written here.

    What is there is listed once, when a command begins: a commit takes the number after the last that was listed, so
    that it is refused where another machine has committed since.

    Args:
        root: the folder.
        where: the bucket, and the beginning of all names.
    """

    shared = True

    def __init__(self, root: Path, where: Address) -> None:
        super().__init__(root)
        self.objects = Objects(where)
        self._lease = 0
        self._spared = _YOUNG

    def resolved(self) -> InBucket:
        """Return the same place for another process, which lists it again."""
        return InBucket(self.root.resolve(), self.objects.address)

    def shown(self, name: str = "") -> str:
        """Return where something is, for messages."""
        return self.objects.shown(name)

    def header(self) -> Any | None:
        """Return the store's header; None where there is no store yet."""
        numbers = self.objects.numbered("store")
        return self.objects.document(f"store/{max(numbers)}.json") if numbers else None

    def write_header(self, header: Any) -> None:
        """Create the next header.

        Raises:
            BusyError: another machine has.
        """
        number = max(self.objects.numbered("store"), default=0) + 1
        self.objects.create(f"store/{number}.json", header, "the store's header")

    def settle(self) -> None:
        """Begin a command that writes: list what is there, ask the server to keep its word, tidy the cache.

        Raises:
            BucketError: the server overwrites what it was asked to create.
            BusyError: another machine holds the lease.
        """
        super().settle()
        self.objects.look_again()
        if self.objects.probe("probe", b"flywheel\n"):
            raise BucketError(
                f"the server of `{self.shown()}` overwrites what it was asked only to create (If-None-Match: *)",
                hint="two machines would overwrite each other's commits there; use a bucket of a server that refuses",
            )
        there = (
            self.objects.there
        )  # listed before the lease is looked at: numbers that its holder takes now refuse our commit
        self._refuse_held()
        for path in (self.root / "tables").glob("*/p*/part-*.parquet"):
            if path.relative_to(self.root).as_posix() not in there:
                path.unlink(missing_ok=True)

    def numbers(self, stage: str) -> list[int]:
        """Return the numbers of a stage's snapshots, oldest first; of none that are before a `null`."""
        listed = sorted(self.objects.numbered(f"snapshots/{stage}").items(), reverse=True)
        emptied = next((place for place, (_, found) in enumerate(listed) if found.size == len(_NONE)), len(listed))
        return [number for number, _ in reversed(listed[:emptied])]

    def next(self, stage: str) -> int:
        """Return the number that a stage's next snapshot has."""
        return max(self.objects.numbered(f"snapshots/{stage}"), default=0) + 1

    def stages(self) -> list[str]:
        """Return the stages that have a snapshot."""
        folders = {name.split("/")[1] for name in self.objects.there if name.startswith("snapshots/")}
        return sorted(stage for stage in folders if self.numbers(stage))

    def document(self, stage: str, number: int) -> Any:
        """Return a snapshot's document.

        Raises:
            StoreError: it is missing or damaged.
        """
        return self.objects.document(snapshot_name(stage, number))

    def create(self, stage: str, number: int, document: Any) -> None:
        """Create a snapshot's document: the one request that changes what readers see.

        Raises:
            BusyError: another machine was first.
        """
        self._hold()
        self.objects.create(snapshot_name(stage, number), document, f"a snapshot of `{stage}`")

    def write(self, folder: str, content: memoryview) -> tuple[str, str]:
        """Write a part here and in the bucket; return its name and its hash."""
        name, sha256 = super().write(folder, content)
        self.objects.put(name, content)
        return name, sha256

    def size(self, name: str) -> int | None:
        """Return the size of a part in bytes; None where it is missing."""
        found = self.objects.find(name)
        return found.size if found is not None else None

    def sound(self, name: str, sha256: str) -> bool:
        """Whether a part has this hash; it is fetched where it is not here, or damaged here."""
        path = self.root / name
        if path.is_file() and files.hash_file(path) == sha256:
            return True
        try:
            content = self.objects.read(name)
        except FileNotFoundError:
            return False
        if hashlib.sha256(content).hexdigest() != sha256:
            return False
        files.write_by_content(path.parent, path.suffix, content)
        return True

    def fetch(self, parts: Iterable[tuple[str, str]]) -> None:
        """Bring parts, by name and hash, to this machine, some at once."""
        missing = [part for part in parts if not (self.root / part[0]).is_file()]
        if missing:
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                list(threads.map(lambda part: self.sound(*part), missing))

    def parts(self) -> list[str]:
        """Return the names of all parts but those that may be about to be committed elsewhere."""
        before = datetime.now(UTC) - self._spared
        there = [name for name in self.objects.there if name.startswith("tables/") and name.endswith(".parquet")]
        return sorted(name for name in there if self.objects.there[name].modified <= before)

    def published(self, folder: str) -> list[str]:
        """Return the names of the documents in a folder that other programs read, in order."""
        there = (name for name in self.objects.there if name.rpartition("/")[0] == folder)
        return sorted(name for name in there if name.endswith(".json"))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of such a document.

        Raises:
            StoreError: it is missing or damaged.
        """
        return self.objects.rows(name)

    def publish(self, name: str, text: str) -> None:
        """Create such a document.

        Raises:
            BusyError: another machine has.
        """
        self.objects.create_text(name, text, f"`{name}`")

    def clear(self, stage: str) -> bool:
        """Make a stage have no snapshot by a `null`; the rest is removed by `gc`."""
        if self.numbers(stage):
            self.create(stage, self.next(stage), None)
        return not self._lease

    # --- the lease ------------------------------------------------------------------------------------------------

    def may_remove(self) -> bool:
        """Whether this process holds the lease."""
        return bool(self._lease)

    def remove(self, names: Iterable[str]) -> None:
        """Remove snapshots, and then parts, by name.

        Raises:
            BusyError: the lease went to another machine.
        """
        if not self._lease:
            raise RuntimeError("nothing is removed from a bucket without the lease")
        self._hold()
        documents, parts = list[str](), list[str]()
        for name in names:
            (documents if name.startswith("snapshots/") else parts).append(name)
        for some in filter(None, (documents, parts)):  # after a kill a part is named by no snapshot, never the reverse
            self.objects.remove(some)
            for name in some:
                (self.root / name).unlink(missing_ok=True)

    @property
    def spared(self) -> timedelta:
        """The age from which on this process removes what nothing names."""
        return self._spared

    @contextmanager
    def alone(self, command: str, stages: Sequence[str], *, all_parts: bool = False) -> Iterator[None]:
        """Take the lease, and the next number of every stage.

        Raises:
            BusyError: another machine holds the lease, or has just committed.
        """
        if self._lease:
            yield
            return
        self._refuse_held()
        older = self.objects.numbered("locks")
        number = max(older, default=0) + 1
        self.objects.create(f"locks/{number}.json", self._claim(command, _HELD), "a lock")
        self._lease, self._spared = number, timedelta() if all_parts else _YOUNG
        try:
            self.objects.remove([f"locks/{before}.json" for before in older])
            for stage in sorted({*stages, *self.stages()}):
                latest, taken = self.numbers(stage), self.next(stage)
                document = {**self.document(stage, latest[-1]), "number": taken} if latest else None
                self.objects.create(snapshot_name(stage, taken), document, f"a snapshot of `{stage}`")
            self.objects.look_again()
            self.remove(self._before_null())
            yield
        finally:
            self._lease, self._spared = 0, _YOUNG
            if self.objects.newest("locks") == number:
                content = files.json_text(self._claim(command, timedelta())).encode()
                self.objects.put(f"locks/{number}.json", content)

    def _before_null(self) -> list[str]:
        """Return the documents of snapshots that a stage has no more."""
        folders = {name.rpartition("/")[0] for name in self.objects.there if name.startswith("snapshots/")}
        documents = [(folder, number) for folder in folders for number in self.objects.numbered(folder)]
        listed = {folder: self.numbers(folder.removeprefix("snapshots/")) for folder in folders}
        newest = {folder: self.next(folder.removeprefix("snapshots/")) - 1 for folder in folders}
        return sorted(
            f"{folder}/{number}.json"
            for folder, number in documents
            if number not in listed[folder] and number != newest[folder]
        )

    def _claim(self, command: str, length: timedelta) -> dict[str, str]:
        until = (datetime.now(UTC) + length).isoformat(timespec="seconds")
        return {"command": command, "host": socket.gethostname(), "machine": self.machine(), "until": until}

    def machine(self) -> str:
        """Return a token of this machine's copy of the project: a lease that a killed process left here is its own."""
        path = self.root / "machine"
        if not path.exists():
            files.atomic_write(path, secrets.token_hex(16) + "\n")
        return path.read_text(encoding="ascii").strip()

    def _refuse_held(self) -> None:
        number = self.objects.newest("locks")
        if not number or number == self._lease:
            return
        claim, until = self._claimed(number)
        if until > datetime.now(UTC) and claim["machine"] != self.machine():
            raise BusyError(
                f"busy: `{claim['command']}` on {claim['host']} holds the lease of `{self.shown()}`",
                hint=f"wait for it to end; if it died, the lease ends at {until:%H:%M} UTC",
            )

    def _claimed(self, number: int) -> tuple[dict[str, str], datetime]:
        """Return who took a lease, and until when.

        Raises:
            StoreError: its document is damaged.
        """
        name = f"locks/{number}.json"
        try:
            found = self.objects.document(name)
            claim = {key: str(found[key]) for key in ("command", "host", "machine", "until")}
            return claim, datetime.fromisoformat(claim["until"]).astimezone(UTC)
        except (KeyError, TypeError, ValueError):
            raise StoreError(f"`{self.shown(name)}` is damaged: not a lease", hint="remove it") from None

    def _hold(self) -> None:
        """Make sure that the lease is still ours, and goes on; nothing where this command has none."""
        if not self._lease:
            return
        if self.objects.newest("locks") != self._lease:
            raise BusyError("the lease ended, and another machine has taken it over", hint=AGAIN)
        claim, until = self._claimed(self._lease)
        if until - datetime.now(UTC) < _HELD / 2:
            content = files.json_text(self._claim(claim["command"], _HELD)).encode()
            self.objects.put(f"locks/{self._lease}.json", content)
