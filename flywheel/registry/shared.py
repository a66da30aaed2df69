"""The rounds and ledgers of a store in a bucket, of which a machine's rounds folder is a copy.

    ledgers/<name>/000017.json    a ledger's line, created once; it has the hash of the line before
    rounds/0003/<n>.json          what round 3 consists of: manifest, files by hash; the highest n holds
    rounds/0003/files/<sha256>    one of its files

A line is created there before it is written here: of two machines that decide at once one is refused. A round's number
is taken when it is begun (`claimed`); it goes up when it is trained and after each command that changes it, with its
document last. Manifests come down when a command begins, files when they are read, adapters when they are needed. A
round that was being trained while a user was forgotten elsewhere is `withdrawn`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from flywheel.errors import BusyError, StoreError
from flywheel.io import files, hash_chain
from flywheel.io.places import InBucket
from flywheel.records import FileHash, RoundManifest

_LINE = re.compile(r"ledgers/((?:canary/)?[a-z0-9_-]+)/(\d{6})\.json")
_DOCUMENT = re.compile(r"rounds/(\d{4,})/(\d{1,9})\.json")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_STAYS = ("manifest.json", "report.html", "train.log", "work", "tracking")  # the manifest is in the document itself
_ADAPTER = "adapter/"
_AT_ONCE = 8
_OTHERS = "move the rounds folder away: what is in the bucket comes down again"

Copy = dict[str, Any]  # number and sha256 of a document, its files, whether those but the adapter are here, their times


class RoundsHere:
    """Rounds that no other machine has: nothing to bring or to send."""

    elsewhere = False

    def bring(self, *, alone: bool) -> bool:  # noqa: ARG002
        """Bring what is new elsewhere; return whether there may be something."""
        return False

    def add(self, ledger: str, line: str) -> None:
        """Write a ledger's next line elsewhere, before it is written here."""

    def claim(self, number: int) -> None:
        """Take a round's number, before anything is done for it."""

    def taken(self) -> set[int]:
        """Return the numbers of rounds that other machines have begun."""
        return set()

    def fetch(self, number: int, *, adapter: bool) -> None:
        """Bring a round's files that are not here yet, those of its adapter or the others."""

    def send(self, manifests: Iterable[RoundManifest], lines: Mapping[str, int]) -> None:
        """Bring what is elsewhere up to what is here."""

    def tidy(self, *, forgetting: bool) -> None:
        """Remove what is elsewhere and not needed."""


class SharedRounds(RoundsHere):
    """The bucket's side of a rounds folder.

    Args:
        root: the rounds folder.
        place: the store, which has been listed.
    """

    elsewhere = True

    def __init__(self, root: Path, place: InBucket) -> None:
        self._root, self._place, self._objects = root, place, place.objects
        self._state = place.root / "rounds.json"  # what is known here of the bucket's rounds and ledgers
        self._known: dict[str, Any] | None = None

    @property
    def _copies(self) -> dict[str, Copy]:
        """What is known of each round's newest document, by the name of its folder."""
        if self._known is None:
            self._known = files.read_json(self._state) if self._state.exists() else {"rounds": {}, "ledgers": {}}
        copies: dict[str, Copy] = self._known["rounds"]
        return copies

    def _keep(self) -> None:
        files.write_json(self._state, self._known)

    # --- what comes down --------------------------------------------------------------------------------------------

    def bring(self, *, alone: bool) -> bool:
        """Bring lines of ledgers and manifests that are new in the bucket; return that there may be some.

        Args:
            alone: whether this process holds the project's lock. Otherwise a round that was changed here stays.

        Raises:
            StoreError: the bucket's ledgers are broken, or not those of this rounds folder.
        """
        self._known = None
        copies, before = self._copies, repr(self._known)
        self._bring_lines()
        for name, numbers in self._documents().items():
            copy = copies.get(name, {})
            if copy.get("number") != numbers[-1] and (alone or not self._changed(name, copy)):
                copies[name] = self._taken_over(name, numbers[-1])
        if repr(self._known) != before:
            self._keep()
        return True

    def _documents(self) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {}
        for found in filter(None, map(_DOCUMENT.fullmatch, self._objects.there)):
            numbers.setdefault(found[1], []).append(int(found[2]))
        return {name: sorted(numbers[name]) for name in sorted(numbers)}

    def _lines(self) -> dict[str, int]:
        """Return the number of lines of each ledger in the bucket.

        Raises:
            StoreError: one is missing between others.
        """
        numbers: dict[str, list[int]] = {}
        for found in filter(None, map(_LINE.fullmatch, self._objects.there)):
            numbers.setdefault(found[1], []).append(int(found[2]))
        for ledger, there in numbers.items():
            if sorted(there) != [*range(1, len(there) + 1)]:
                where = self._objects.shown(f"ledgers/{ledger}")
                raise StoreError(f"`{where}` lacks a line", hint="restore it from a backup")
        return {ledger: len(numbers[ledger]) for ledger in sorted(numbers)}

    def _bring_lines(self) -> None:
        checked: dict[str, int] = (self._known or {})["ledgers"]
        for ledger, count in self._lines().items():
            here = hash_chain.lines_of(self._path(ledger))
            first = min(checked.get(ledger, 0), len(here))
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                names = [_line_name(ledger, number) for number in range(first + 1, count + 1)]
                new = [
                    text.decode(errors="replace").removesuffix("\n") for text in threads.map(self._objects.read, names)
                ]
            before = files.hash_text(here[first - 1]) if first else ""
            for number, line in enumerate(new, first + 1):
                if hash_chain.previous(line) != before or line != (here[number - 1 : number] or [line])[0]:
                    where = self._objects.shown(_line_name(ledger, number))
                    raise StoreError(
                        f"`{where}` does not follow from the line before it here, or is another than here",
                        hint=f"was the bucket changed by hand? Else this machine's rounds are others: {_OTHERS}",
                    )
                before = files.hash_text(line)
            if first + len(new) > len(here):
                files.atomic_write(self._path(ledger), "".join(f"{line}\n" for line in [*here[:first], *new]))
            checked[ledger] = max(count, first)

    def _path(self, ledger: str) -> Path:
        return self._root / f"{ledger}.jsonl"

    def _taken_over(self, name: str, number: int) -> Copy:
        """Make a round here what a document has, but for files that are to come down; return what is known of it."""
        document, folder = self._objects.document(f"rounds/{name}/{number}.json"), self._root / name
        if not isinstance(document, dict) or "manifest" not in document:
            claim = document.get("claimed") if isinstance(document, dict) else None
            if claim is None and folder.exists():
                (folder / "manifest.json").unlink(missing_ok=True)
                shutil.rmtree(folder)
            return {"number": number, "claimed": claim or "withdrawn"}
        manifest, there = self._checked(name, number, document)
        path = folder / "manifest.json"
        before = files.read_json(path) if path.exists() else None
        if before is not None and before.get("adapter_sha256") not in {"", manifest.adapter_sha256}:
            raise StoreError(f"`{folder}` is not round {manifest.round} of the bucket", hint=_OTHERS)
        wanted = {file.path: file.sha256 for file in there}
        for file in self._files(folder, {}):
            if wanted.get(file.path) != file.sha256:
                (folder / file.path).unlink()
        for inside in [p for p in (folder / _ADAPTER).rglob("*") if p.is_file()]:
            if inside.relative_to(folder).as_posix() not in wanted:
                inside.unlink()
        if before != document["manifest"]:
            files.write_json(path, document["manifest"])
        return self._copy(number, document, whole=False)

    def _checked(self, name: str, number: int, document: Any) -> tuple[RoundManifest, list[FileHash]]:
        """Return a document's manifest and files.

        Raises:
            StoreError: it is damaged, or names what does not lie in the round's folder.
        """
        try:
            manifest = RoundManifest.model_validate(document["manifest"])
            there = [FileHash.model_validate(file) for file in document["files"]]
        except (ValidationError, KeyError, TypeError):
            there, manifest = [], None
        sound = manifest is not None and manifest.round == int(name) and bool(manifest.adapter_sha256)
        if manifest is None or not sound or not all(_goes_up(f.path) and _SHA256.fullmatch(f.sha256) for f in there):
            where = self._objects.shown(f"rounds/{name}/{number}.json")
            raise StoreError(f"`{where}` is damaged: not a round", hint="restore it from a backup")
        return manifest, there

    def _copy(self, number: int, document: Mapping[str, Any], *, whole: bool) -> Copy:
        sha256 = files.hash_text(files.json_text(document))
        return {"number": number, "sha256": sha256, "files": document["files"], "whole": whole, "times": {}}

    def fetch(self, number: int, *, adapter: bool) -> None:
        """Bring a round's files that are not here yet, those of its adapter or the others.

        Raises:
            StoreError: one is missing in the bucket, or is not what was written.
        """
        name = f"{number:04d}"
        copy = self._copies.get(name, {})
        if "files" not in copy or (copy["whole"] and not adapter):
            return
        missing = [
            file
            for file in map(FileHash.model_validate, copy["files"])
            if file.path.startswith(_ADAPTER) == adapter and not (self._root / name / file.path).is_file()
        ]

        def save(file: FileHash) -> None:
            self._objects.save(f"rounds/{name}/files/{file.sha256}", self._root / name / file.path, file.sha256)

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(save, missing))
        if not adapter:
            copy["whole"] = True
            self._keep()

    # --- what goes up -----------------------------------------------------------------------------------------------

    def add(self, ledger: str, line: str) -> None:
        """Create the next line of a ledger, which is then written here.

        Raises:
            BusyError: another machine has.
        """
        number = len(hash_chain.lines_of(self._path(ledger))) + 1
        self._objects.create_text(_line_name(ledger, number), f"{line}\n", f"to the ledger `{ledger}`")

    def claim(self, number: int) -> None:
        """Take a round's number.

        Raises:
            BusyError: another machine has.
        """
        if number in self.taken():
            raise BusyError(f"another machine has begun round {number}", hint="`flywheel train` takes the next number")
        name = f"{number:04d}"
        if name not in self._documents():
            claim = {"claimed": self._place.machine()}
            self._objects.create(f"rounds/{name}/1.json", claim, f"round {number}")
            self._copies[name] = {"number": 1, **claim}
            self._keep()

    def taken(self) -> set[int]:
        """Return the rounds that other machines have begun, or that were withdrawn."""
        mine = {self._place.machine(), None}
        return {int(name) for name, copy in self._copies.items() if copy.get("claimed") not in mine}

    def send(self, manifests: Iterable[RoundManifest], lines: Mapping[str, int]) -> None:
        """Bring the bucket up to what is here: rounds that were changed, and ledgers that it does not have yet.

        Args:
            manifests: of finished rounds.
            lines: how many of a ledger's lines count, where that is not all.

        Raises:
            BusyError: another machine has changed the same round.
        """
        there = self._lines()
        for path in sorted([*self._root.glob("*.jsonl"), *self._root.glob("canary/*.jsonl")]):
            ledger, here = path.relative_to(self._root).as_posix().removesuffix(".jsonl"), hash_chain.lines_of(path)
            for number in range(there.get(ledger, 0) + 1, min(lines.get(ledger, len(here)), len(here)) + 1):
                self._objects.create_text(
                    _line_name(ledger, number), f"{here[number - 1]}\n", f"to the ledger `{ledger}`"
                )
        for manifest in manifests:
            self._send_round(f"{manifest.round:04d}", manifest)
        if self._known is not None:
            self._keep()

    def _send_round(self, name: str, manifest: RoundManifest) -> None:
        copy, folder = self._copies.get(name, {}), self._root / name
        number = copy.get("number", 0) + 1  # refused where another machine has taken it
        if manifest.round in self.taken():
            raise BusyError(f"another machine has begun round {manifest.round}", hint=_OTHERS)
        known = [FileHash.model_validate(file) for file in copy.get("files", [])]
        sent = [file for file in known if not file.path.startswith(_ADAPTER)]
        times = copy.get("times", {})
        wanted = self._files(folder, times) if copy.get("whole", True) else sent
        adapter = manifest.outputs or [
            file for file in known if file.path.startswith(_ADAPTER)
        ]  # none: of an old version
        wanted += [] if manifest.erased else adapter or [*_hashed(folder, (folder / _ADAPTER).rglob("*"))]
        document = {
            "manifest": manifest.model_dump(mode="json"),
            "files": [file.model_dump(mode="json") for file in sorted(wanted, key=lambda file: file.path)],
        }
        if copy.get("sha256") == files.hash_text(files.json_text(document)):
            return
        for file in wanted:
            blob = f"rounds/{name}/files/{file.sha256}"
            if blob not in self._objects.there:
                path = folder / file.path
                if not path.is_file() or files.hash_file(path) != file.sha256:
                    return  # damaged here, which `doctor` reports; the bucket keeps what it has
                self._objects.put(blob, path)
        self._objects.create(f"rounds/{name}/{number}.json", document, f"round {manifest.round}")
        self._copies[name] = {**self._copy(number, document, whole=copy.get("whole", True)), "times": times}

    def _changed(self, name: str, copy: Copy) -> bool:
        """Whether a round is here that is not what its document has."""
        if not (self._root / name / "manifest.json").exists():
            return False
        known = {file["path"]: file["sha256"] for file in copy.get("files", [])}
        here = self._files(self._root / name, copy.get("times", {}))
        return "files" not in copy or any(known.get(file.path) != file.sha256 for file in here)

    def _files(self, folder: Path, times: dict[str, Any]) -> list[FileHash]:
        """Return a round's files but the adapter's; `times` knows the hashes of those that were not changed since."""
        inside = [path for path in folder.rglob("*") if not path.relative_to(folder).as_posix().startswith(_ADAPTER)]
        return [*_hashed(folder, inside, times)]

    # --- what is removed --------------------------------------------------------------------------------------------

    def tidy(self, *, forgetting: bool) -> None:
        """Remove documents and files of rounds that no newest document names; nothing without the lease.

        Args:
            forgetting: also withdraw the rounds that other machines have begun: they may rest on a forgotten user.
        """
        if not self._place.may_remove():
            return
        before = datetime.now(UTC) - self._place.spared
        for name, numbers in self._documents().items():
            copy, newest = self._copies.get(name, {}), numbers[-1]
            if copy.get("number") != newest:
                continue  # another machine's, since this command began
            if forgetting and int(name) in self.taken() and copy["claimed"] != "withdrawn":
                newest += 1
                self._objects.create(
                    f"rounds/{name}/{newest}.json", {"withdrawn": "a user was forgotten"}, f"round {name}"
                )
                self._copies[name] = {"number": newest, "claimed": "withdrawn"}
            named = {f"rounds/{name}/files/{file['sha256']}" for file in copy.get("files", ())}
            there = {n: o for n, o in self._objects.there.items() if n.startswith(f"rounds/{name}/files/")}
            unnamed = sorted(blob for blob, found in there.items() if blob not in named and found.modified <= before)
            if (
                unnamed and "files" in copy
            ):  # a document that another machine is about to create is refused from here on
                document = self._objects.document(f"rounds/{name}/{newest}.json")
                newest += 1
                self._objects.create(f"rounds/{name}/{newest}.json", document, f"round {name}")
                copy["number"] = newest
            if gone := [*(f"rounds/{name}/{number}.json" for number in numbers if number < newest), *unnamed]:
                self._place.remove(gone)
        self._keep()


def _line_name(ledger: str, number: int) -> str:
    return f"ledgers/{ledger}/{number:06d}.json"


def _goes_up(name: str) -> bool:
    """Whether a file of a round's folder belongs to it on every machine."""
    parts = PurePosixPath(name).parts
    inside = bool(parts) and not name.startswith("/") and not any(part.startswith(".") for part in parts)
    return inside and parts[0] not in _STAYS and "\\" not in name


def _hashed(folder: Path, paths: Iterable[Path], times: dict[str, Any] | None = None) -> Iterator[FileHash]:
    times = {} if times is None else times
    for path in sorted(paths):
        name = path.relative_to(folder).as_posix()
        if _goes_up(name) and path.is_file() and not path.is_symlink():
            stat = path.stat()
            stamp = [stat.st_size, stat.st_mtime_ns]
            if times.get(name, [None])[0] != stamp:
                times[name] = [stamp, files.hash_file(path)]
            yield FileHash(path=name, sha256=times[name][1], size_bytes=stat.st_size)
