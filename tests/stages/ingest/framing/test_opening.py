"""Compressed files: found by their magic bytes, read to where they are whole, bounded."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
import zstandard
from flywheel.stages.ingest.framing.opening import Content, Opened, Stream, compression, file_content

TEXT = b"".join(b'{"n":%d}\n' % n for n in range(20_000))


def read(path: Path, *, ratio: int = 500) -> tuple[bytes, str]:
    with Opened(file_content(path, path.stat().st_size), max_ratio=ratio) as stream:
        return stream.read(), stream.fault


PACKED = {
    "gzip": gzip.compress(TEXT),
    "two members": gzip.compress(TEXT[:9000]) + gzip.compress(TEXT[9000:]),
    "padded": gzip.compress(TEXT) + b"\0" * 512,
    "zstd": zstandard.compress(TEXT),
    "two frames": zstandard.compress(TEXT[:9000]) + zstandard.compress(TEXT[9000:]),
    "plain": TEXT,
}


@pytest.mark.parametrize("name", PACKED)
def test_content_is_the_same_however_it_is_packed(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(PACKED[name])
    assert read(path) == (TEXT, "")


@pytest.mark.parametrize("name", ["gzip", "zstd", "two members"])
def test_a_cut_stream_gives_its_beginning_and_says_so(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(PACKED[name][:-200])
    content, fault = read(path)
    assert TEXT.startswith(content)
    assert "ends before its end" in fault


def test_a_damaged_stream_says_so(tmp_path: Path) -> None:
    packed = bytearray(PACKED["gzip"])
    packed[len(packed) // 2] ^= 0xFF
    path = tmp_path / "log"
    path.write_bytes(bytes(packed))
    assert "damaged" in read(path)[1]


def test_foreign_bytes_behind_a_stream_are_said(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(PACKED["gzip"] + b"no gzip")
    assert read(path) == (TEXT, "other bytes follow the gzip stream")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_bomb_is_stopped_and_the_setting_named(tmp_path: Path, pack: object) -> None:
    path = tmp_path / "bomb"
    assert callable(pack)
    path.write_bytes(pack(b"\n" * 60_000_000))
    content, fault = read(path)
    assert len(content) < 40_000_000
    assert "ingest.max_expand_ratio = 500" in fault


def test_only_the_window_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(TEXT)
    with Opened(file_content(path, 24), start=8, max_ratio=500) as stream:
        assert stream.read() == TEXT[8:24]


@pytest.mark.parametrize("name", PACKED)
def test_reading_begins_anywhere_in_the_content(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(PACKED[name])
    with Opened(file_content(path, len(PACKED[name])), start=9_001, max_ratio=500) as stream:
        assert stream.read() == TEXT[9_001:]


def test_a_stream_that_fails_ends_and_says_so() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            found = super().read(min(size or 0, 5))
            if not found:
                raise EOFError
            return found

    with Opened(Content("x", -1, lambda _: Stream(Failing(b"0123456789"), (EOFError,))), max_ratio=500) as stream:
        assert stream.read() == b"0123456789"
        assert stream.fault == "the archive is damaged here (EOFError)"


def test_the_kind_is_in_the_first_bytes() -> None:
    assert [compression(b[:4]) for b in (PACKED["gzip"], PACKED["zstd"], TEXT)] == ["gzip", "zstd", ""]
