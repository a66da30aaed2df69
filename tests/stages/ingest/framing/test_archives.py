"""Archives are read as they are: no member on the disk, none lost, none that leads anywhere."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import zstandard
from flywheel.stages.ingest.framing.archives import archive_kind, members
from flywheel.stages.ingest.framing.opening import Opened

Take = Callable[..., Any]
Pairs = Callable[..., list[dict[str, Any]]]


def tar_of(files: dict[str, bytes], mode: Literal["w", "w:gz"] = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("link.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return buffer.getvalue()


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def logs(pairs: Pairs) -> dict[str, bytes]:
    one, two, three, *_ = pairs(3, 1)
    return {
        "day/one.json": json.dumps(one, indent=1).encode(),
        "../../two.jsonl": json.dumps(two).encode() + b"\n",
        "three.jsonl.gz": gzip.compress(json.dumps(three).encode()),
        "README.md": b"# Logs",
        ".hidden": b"{}",
        "photo.jpg": bytes(range(256)),
    }


PACKS: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "logs.tar": lambda files: tar_of(files, "w"),
    "logs.tgz": tar_of,
    "logs.tar.zst": lambda files: zstandard.compress(tar_of(files, "w")),
    "logs.zip": zip_of,
}


@pytest.mark.parametrize("name", PACKS)
def test_members_are_files(name: str, tmp_path: Path, take: Take, pairs: Pairs) -> None:
    (tmp_path / name).write_bytes(PACKS[name](logs(pairs)))
    taken = take()
    assert taken.adds_up()
    assert set(taken.events["source_file"]) == {f"{name}!/{m}" for m in list(logs(pairs))[:3]}
    assert taken.quarantined["source_file"].to_list() == [f"{name}!/photo.jpg"]
    assert taken.ignored == {"text document": 1}
    assert taken.states[name].format.endswith(" of openai")
    assert take(known=taken.states).read == 0


def test_a_damaged_archive_gives_what_it_holds_and_says_so(tmp_path: Path, take: Take, pairs: Pairs) -> None:
    whole = tar_of({f"{n}.json": json.dumps(r).encode() for n, r in enumerate(pairs(9, 3))})
    (tmp_path / "cut.tgz").write_bytes(whole[: len(whole) * 2 // 3])
    taken = take()
    assert taken.adds_up()
    assert 0 < taken.events.height < 27
    assert set(taken.quarantined["reason"]) == {"truncated"}


def test_a_broken_zip_is_one_refusal(tmp_path: Path, take: Take, pairs: Pairs) -> None:
    (tmp_path / "x.zip").write_bytes(zip_of(logs(pairs))[:-30])
    taken = take()
    assert (taken.read, taken.quarantined["reason"].to_list()) == (1, ["truncated"])


def test_a_zip_member_without_a_name_is_passed_over(tmp_path: Path, take: Take, pairs: Pairs) -> None:
    packed = zip_of({"a.json": json.dumps(pairs(1, 1)[0]).encode(), "X": b"{}"})
    (tmp_path / "x.zip").write_bytes(packed.replace(b"X", b"\0"))  # zipfile cuts names at the first null
    taken = take()
    assert (taken.events.height, taken.adds_up()) == (1, True)


def test_a_bomb_in_a_zip_is_refused_unread(tmp_path: Path, take: Take, pairs: Pairs) -> None:
    files = {"bomb.json": b" " * 60_000_000, **{k: v for k, v in logs(pairs).items() if k.endswith("one.json")}}
    (tmp_path / "x.zip").write_bytes(zip_of(files))
    taken = take()
    assert taken.events.height == 1
    assert "ingest.max_expand_ratio" in taken.quarantined["detail"][0]


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(zip_of({"a.json": b"{}"}, zipfile.ZIP_STORED).replace(_header(0), _header(0, flags=1)))
    (member,) = members(path, path.stat().st_size, "zip", 500)
    assert "cannot be unpacked" in member.problem


def test_a_member_packed_by_zstd_is_read(tmp_path: Path) -> None:
    content = b'{"a":1}' * 50
    packed = zstandard.compress(content)
    path = tmp_path / "x.zip"
    path.write_bytes(zip_of({"a.json": packed}, zipfile.ZIP_STORED).replace(_header(0), _header(93)))
    (text,) = [Opened(m.content, max_ratio=500).read() for m in members(path, path.stat().st_size, "zip", 500)]
    assert text == content


def _header(method: int, flags: int = 0) -> bytes:
    """A zip header's version, flags and method."""
    return bytes([20, 0, flags, 0, method, 0])


def test_a_log_is_no_archive(tmp_path: Path) -> None:
    for content in (b"", b'{"a":1}\n' * 200, gzip.compress(b'{"a":1}\n' * 200), b"PK"):
        (tmp_path / "x").write_bytes(content)
        assert not archive_kind(tmp_path / "x", len(content), 500)


def test_an_office_document_is_refused_by_its_name(tmp_path: Path, take: Take) -> None:
    with zipfile.ZipFile(tmp_path / "calls.xlsx", "w") as book:
        for name in ("docProps/app.xml", "xl/worksheets/sheet1.xml", "[Content_Types].xml"):
            book.writestr(name, "<x/>")
    taken = take()
    assert (taken.read, taken.adds_up()) == (1, True)
    assert taken.quarantined["detail"].to_list() == [
        "an Office document, such as an Excel sheet; save the sheet as CSV (UTF-8)"
    ]
