"""Ctrl-C while logs are read: what was read is stored, and the next reading goes on behind it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flywheel.project import Project

if TYPE_CHECKING:
    import polars as pl
    from flywheel.pipeline.ingest.counts import ReadSoFar

LINES = 420
_TEXT = "It is done. " * 600


def log(first: int = 0, lines: int = LINES) -> list[str]:
    """Return conversations of one long reply each, and one line that cannot be read."""
    message = {"message": {"role": "assistant", "content": _TEXT}}
    line = {"kind": "model_call", "seq": 1, "payload": message}
    rows = [json.dumps(line | {"conversation_id": f"c{first + n}"}) + "\n" for n in range(lines)]
    return [*rows[:7], '{"broken": \n', *rows[7:]]


def write(folder: Path, form: str) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / "a.jsonl").write_text("".join(log(10_000, 30)))
    text = "".join(log())
    if form == "gz":
        (folder / "logs" / "b.jsonl.gz").write_bytes(gzip.compress(text.encode(), 1))
    elif form == "array":
        (folder / "logs" / "b.json").write_text(f"[{','.join(line for line in log() if 'broken' not in line)}]")
    else:
        (folder / "logs" / "b.jsonl").write_text(text)


def events(project: Project) -> pl.DataFrame:
    return project.store.table("events", "ingest").collect().sort("event_id")


@pytest.mark.parametrize("form", ["lines", "gz", "array"])
def test_a_reading_that_is_stopped_goes_on_where_it_was(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flywheel.stages.ingest.batches._BYTES", 400_000)  # many blocks of a small log
    write(tmp_path, form)
    seen: list[ReadSoFar] = []

    def stop(far: ReadSoFar) -> None:
        seen.append(far)
        if len(seen) == 3:
            raise KeyboardInterrupt

    project = Project(tmp_path)
    with pytest.raises(KeyboardInterrupt, match="are stored; the same command goes on behind them"):
        project.ingest(on_read=stop)
    stored = events(project).height
    assert 30 < stored < LINES
    assert 0 == seen[0].bytes < seen[1].bytes <= seen[2].bytes <= seen[2].all_bytes
    assert project.status().new_files == 1

    answer = project.ingest(on_read=seen.append)
    assert seen[-1].bytes == seen[-1].all_bytes
    assert answer.duplicate == (0 if form != "array" else stored - 30)
    assert answer.kept == 30 + LINES - stored
    assert project.ingest().read == 0

    once = tmp_path / "once"
    once.mkdir()
    write(once, form)
    whole = Project(once)
    whole.ingest()
    assert events(whole).equals(events(project))
    assert whole.quarantine() == project.quarantine()
