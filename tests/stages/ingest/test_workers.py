"""The number of processes changes nothing but the time."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.config import IngestConfig
from flywheel.errors import IngestError
from flywheel.stages.ingest.discovery import STDIN, discover
from flywheel.stages.ingest.events import ingest

if TYPE_CHECKING:
    from flywheel.extensions import Reader
    from flywheel.stages.ingest.batches import Batch


def test_processes_give_the_same_batches_in_the_same_order(
    write: Callable[..., Path], tmp_path: Path, readers: Mapping[str, Reader], pairs: Callable[..., Any]
) -> None:
    write("a.jsonl", [*pairs(2200, 4), {"request": {"messages": 7}, "response": {"choices": [{"message": {}}]}}])
    write("b.jsonl", pairs(2, 2))
    write("unknown.jsonl", [{"order": 7}])
    found: list[list[Batch]] = []
    for workers in (1, 2):
        cfg = IngestConfig(workers=workers)
        found.append(list(ingest(discover([tmp_path]), root=tmp_path, known={}, cfg=cfg, key=b"k", readers=readers)))
    alone, together = found
    assert len(alone) > 1
    for one, other in zip(alone, together, strict=True):
        assert one.events.equals(other.events)
        assert one.quarantined.equals(other.quarantined)
        assert (one.read, one.ignored, one.redacted, one.lost, one.states) == (
            other.read, other.ignored, other.redacted, other.lost, other.states,
        )  # fmt: skip


def test_standard_input_of_a_few_records_starts_no_process(
    tmp_path: Path, readers: Mapping[str, Reader], pairs: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(json.dumps(pair) + "\n" for pair in pairs(3, 2))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    before = os.times()
    (batch,) = ingest([STDIN], root=tmp_path, known={}, cfg=IngestConfig(), key=b"k", readers=readers)
    after = os.times()
    assert batch.events.height > 0
    assert (after.children_user, after.children_system) == (before.children_user, before.children_system)


class Deadly:
    """A plugin that takes its process with it, unless that is the first one."""

    name = "deadly"
    version = 1

    def sniff(self, sample: object) -> float:
        return float(bool(sample))

    def read(self, record: object, line: int) -> list[dict[str, Any]]:
        assert line
        if parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
        return [{"record": record}]


def test_a_worker_that_dies_is_an_error_with_a_hint(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flywheel.stages.ingest.batches._RECORDS", 10)  # blocks until the other process has started
    paths = [write(f"{file}.jsonl", [{"a": [file, n]} for n in range(10)]) for file in range(300)]
    cfg = IngestConfig(workers=2)
    with pytest.raises(IngestError, match="a process that reads logs died"):
        list(ingest(paths, root=tmp_path, known={}, cfg=cfg, key=b"k", readers={"deadly": Deadly()}))


PARENT = """
import sys, time
from pathlib import Path
from flywheel.config import IngestConfig
from flywheel.stages.ingest.events import ingest
from flywheel.extensions import load_extension
if __name__ == "__main__":
    readers = {"openai": load_extension("readers", "openai")}
    file = Path(sys.argv[1])
    batches = ingest([file], root=file.parent, known={}, cfg=IngestConfig(workers=2), key=b"k", readers=readers)
    next(batches)
    print("reading", flush=True)
    time.sleep(600)
"""


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are listed in /proc")
@pytest.mark.e2e
def test_workers_end_with_their_parent(write: Callable[..., Path], tmp_path: Path, pairs: Callable[..., Any]) -> None:
    path = write("a.jsonl", pairs(2200, 4))
    (tmp_path / "parent.py").write_text(PARENT)
    command = [sys.executable, str(tmp_path / "parent.py"), str(path)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "reading\n"
    workers = _children(parent.pid)
    assert len(workers) >= 2
    with parent:
        parent.kill()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.1)
    assert json.loads(path.read_text().splitlines()[0])
