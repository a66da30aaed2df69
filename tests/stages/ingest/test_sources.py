"""Which files there are and which are known."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from flywheel.errors import IngestError
from flywheel.stages.ingest.sources import SourceState, discover, prefix_hash, shown_path, start_of


def state(path: str, content: bytes, *, offset: int = 0) -> SourceState:
    prefix = hashlib.sha256(content[:offset]).hexdigest() if offset else ""
    return SourceState(path, "native", len(content), hashlib.sha256(content).hexdigest(), 1, offset, 1, prefix)


def test_folders_files_and_globs_each_file_once(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a/deep/c.json", ".hidden.jsonl", ".git/x.jsonl", "a/.part.partial"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = discover([tmp_path, tmp_path / "b.jsonl", tmp_path / "*.jsonl"])
    assert [shown_path(f, tmp_path) for f in found] == ["a/deep/c.json", "b.jsonl"]
    assert discover([tmp_path / ".hidden.jsonl"]) == [tmp_path / ".hidden.jsonl"]


def test_links_do_not_lead_out(tmp_path: Path) -> None:
    logs, outside = tmp_path / "logs", tmp_path / "outside"
    logs.mkdir()
    outside.mkdir()
    (outside / "x.jsonl").write_text("{}")
    (logs / "in.jsonl").write_text("{}")
    (logs / "out.jsonl").symlink_to(outside / "x.jsonl")
    (logs / "folder").symlink_to(outside)
    (logs / "loop").symlink_to(logs)
    assert [f.name for f in discover([logs])] == ["in.jsonl"]


@pytest.mark.parametrize(
    ("path", "message"), [("missing", "does not exist"), ("empty", "nothing to read"), ("*.none", "nothing to read")]
)
def test_nothing_to_read_is_an_error_with_a_hint(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(IngestError, match=message) as caught:
        discover([tmp_path / path])
    assert caught.value.hint


def test_paths_outside_the_project_stay_whole(tmp_path: Path) -> None:
    assert shown_path(tmp_path / "p" / "x", tmp_path / "p") == "x"
    assert shown_path(tmp_path / "x", tmp_path / "p") == (tmp_path / "x").as_posix()


def test_a_known_content_is_unchanged_under_any_name(tmp_path: Path) -> None:
    file = tmp_path / "renamed.jsonl"
    file.write_bytes(b"one\n")
    assert start_of(file, "renamed.jsonl", {"old.jsonl": state("old.jsonl", b"one\n")}).unchanged
    assert not start_of(file, "renamed.jsonl", {"old.jsonl": state("old.jsonl", b"two\n")}).unchanged


def test_a_log_that_only_grew_goes_on(tmp_path: Path) -> None:
    file, known = tmp_path / "x.jsonl", {"x.jsonl": state("x.jsonl", b"one\n", offset=4)}
    file.write_bytes(b"one\ntwo\n")
    assert start_of(file, "x.jsonl", known).before == known["x.jsonl"]
    file.write_bytes(b"ONE\ntwo\n")
    assert start_of(file, "x.jsonl", known).before is None
    file.write_bytes(b"on")
    assert start_of(file, "x.jsonl", known).before is None


def test_a_state_survives_json_and_later_fields(tmp_path: Path) -> None:
    one = state("x", b"abc", offset=2)
    assert SourceState.from_dict(one.to_dict()) == one
    assert SourceState.from_dict({**one.to_dict(), "later": 1}) == one
    (tmp_path / "x").write_bytes(b"abc")
    assert prefix_hash(tmp_path / "x", 2) == one.prefix_sha256
