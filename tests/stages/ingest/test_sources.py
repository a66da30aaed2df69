"""Which files there are and which are known."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import pytest
import zstandard
from flywheel.errors import IngestError
from flywheel.stages.ingest.discovery import discover, discovery
from flywheel.stages.ingest.sources import Known, SourceState, Start, placed, shown_path, start_of


def state(path: str, content: bytes, *, offset: int = 0) -> SourceState:
    prefix = hashlib.sha256(content[:offset]).hexdigest() if offset else ""
    whole = hashlib.sha256(content).hexdigest()
    return SourceState(path, "native", len(content), whole, 1, offset, 1, prefix, whole)


def test_folders_files_and_globs_each_file_once(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a/deep/c.json", ".hidden.jsonl", ".git/x.jsonl", "a/.part.partial"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = discover([tmp_path, tmp_path / "b.jsonl", tmp_path / "*.jsonl"])
    assert [shown_path(f, tmp_path) for f in found] == ["a/deep/c.json", "b.jsonl"]
    assert discover([tmp_path / ".hidden.jsonl"]) == [tmp_path / ".hidden.jsonl"]


def test_hidden_folders_are_named_and_those_within_a_session_are_read(tmp_path: Path) -> None:
    for name in (".claude/projects/s.jsonl", ".git/x.jsonl", "brain/.system_generated/logs/t.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = discovery([tmp_path])
    assert [file.name for file in found.files] == ["t.jsonl"]
    assert [(skipped.path.name, "hidden" in skipped.why) for skipped in found.skipped] == [(".claude", True)]


def test_links_do_not_lead_out(tmp_path: Path) -> None:
    logs, outside = tmp_path / "logs", tmp_path / "outside"
    logs.mkdir()
    outside.mkdir()
    (outside / "x.jsonl").write_text("{}")
    (logs / "in.jsonl").write_text("{}")
    (logs / "out.jsonl").symlink_to(outside / "x.jsonl")
    (logs / "folder").symlink_to(outside)
    (logs / "loop").symlink_to(logs)
    links = {"out.jsonl", "folder", "loop"}
    for path, passed in ((logs, links), (tmp_path / "l*", links), (logs / "**" / "*.jsonl", {"out.jsonl"})):
        found = discovery([path])
        assert [f.name for f in found.files] == ["in.jsonl"]
        assert {skipped.path.name for skipped in found.skipped} == passed


def test_a_glob_of_any_depth_ends_in_folders_that_are_links_to_one_another(tmp_path: Path) -> None:
    for name in "abcdef":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.jsonl").write_text("{}")
        for other in "abcdef":
            (tmp_path / name / f"to-{other}").symlink_to(tmp_path / other)
    names = [f"{name}/x.jsonl" for name in "abcdef"]
    for pattern in ("**/*.jsonl", "**/**/x.jsonl", "?/x.jsonl", "[a-f]", "**"):
        assert [shown_path(file, tmp_path) for file in discover([tmp_path / pattern])] == names


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


def test_a_name_that_is_no_text_is_legible_and_leads_back(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9.jsonl")
    odd.write_text("{}")
    assert shown_path(odd, tmp_path) == "caf\\xe9.jsonl"
    assert placed("caf\\xe9.jsonl", tmp_path) == odd
    literal = tmp_path / "caf\\xe9.jsonl"
    literal.write_text("{}")
    assert placed("caf\\xe9.jsonl", tmp_path) == literal


def begin(file: Path, *states: SourceState) -> Start:
    return start_of(file, file.name, Known(states, file.parent), 500)


def test_a_known_content_is_the_same_under_any_name_and_in_any_packing(tmp_path: Path) -> None:
    old, file = state("old.jsonl", b"one\n"), tmp_path / "renamed.jsonl"
    for content in (b"one\n", gzip.compress(b"one\n"), zstandard.compress(b"one\n")):
        file.write_bytes(content)
        assert begin(file, old).same == old
    for content in (b"two\n", gzip.compress(b"two\n"), b""):
        file.write_bytes(content)
        assert begin(file, old).same is None


def test_of_equal_files_each_is_known_by_its_own_name(tmp_path: Path) -> None:
    """What is read of them may differ: a policy that is named by its file, say."""
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(b"one\n")
    known = Known([state("a.jsonl", b"one\n"), state("b.jsonl", b"one\n")], tmp_path)
    for name in ("a.jsonl", "b.jsonl"):
        start = start_of(tmp_path / name, name, known, 100)
        assert start.same is not None
        assert start.same.path == name


def test_a_log_that_only_grew_goes_on(tmp_path: Path) -> None:
    file, known = tmp_path / "x.jsonl", state("x.jsonl", b"one\n", offset=4)
    file.write_bytes(b"one\ntwo\n")
    start = begin(file, known)
    assert (start.before, start.hash_before and start.hash_before.hexdigest()) == (known, known.prefix_sha256)
    for content in (b"ONE\ntwo\n", b"on", b""):
        file.write_bytes(content)
        assert begin(file, known).before is None


def test_a_log_that_was_rotated_goes_on_under_its_new_name(tmp_path: Path) -> None:
    known, (live, rotated) = state("app.log", b"one\n", offset=4), (tmp_path / "app.log", tmp_path / "app.log.1")
    for content in (b"one\ntwo\n", gzip.compress(b"one\ntwo\n")):
        rotated.write_bytes(content)
        assert begin(rotated, known).before == known
    live.write_bytes(b"")
    assert begin(rotated, known).before == known
    live.write_bytes(b"one\nother\n")
    assert begin(rotated, known).before is None, "what the live log holds is not another's beginning"
    assert begin(live, known).before == known


def test_a_state_survives_json_and_later_fields() -> None:
    one = state("x", b"abc", offset=2)
    assert SourceState.from_dict(one.to_dict()) == one
    assert SourceState.from_dict({**one.to_dict(), "later": 1}) == one
