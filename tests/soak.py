"""Thirty nights as an operator lives them: the driver of the soak, which runs real processes and notes each night.

In: a folder and a model that can learn. Out: one `Record` a night. What must hold at the end is checked by the test.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.nights import flood, poison, write_night
from tests.projects import REAL, flywheel

NIGHTS = 30
EVENTS = {
    4: "no logs",
    10: "poisoned log",
    12: "one user floods",
    14: "full disk",
    17: "rolled back before it",
    20: "a round that learns nothing",
    23: "hooks fail",
}
KILLED, KILLED_FROM = "killed while training", 7  # the first night that trains, from this one on
_LIMIT = 16_384  # bytes a file may have on the night of the full disk
_PATIENCE_S = 600

_CONFIG = """
name = "shop"
[model]
base = "{model}"
dtype = "float32"
[episodes]
holdout_share = 0.4
[train]
method = "sft"
max_steps = 60
checkpoint_every = 1
batch_size = 4
threads = 1
sft_learning_rate = {rate}
[eval]
suites = ["scorer:likely"]
max_cases = 24
[gate]
min_cases = 12
[notify]
command = "{hook}"
on = ["promoted", "held", "waiting", "failed", "done"]
"""

_SCORER = '''"""How likely the policy finds a good action of a held-out state: 1 - nats a token / 10."""

from flywheel.extensions import CaseScore
from flywheel.stages.evaluate.cases import state_cases


def likely(policy, holdout, cfg):
    """Score every case."""
    cases = state_cases(holdout, 10_000)
    cases = sorted(cases, key=lambda c: (c.task_id in holdout.known, c.case_id))[: cfg.max_cases]
    done = [{"role": "assistant", "tool_calls": next(iter(c.good.values()))[0]} for c in cases]
    found = policy.log_prob([c.prompt for c in cases], [c.tools for c in cases], done)
    return [
        CaseScore(c.case_id, c.task_id, "likely", max(0.0, 1 + s / n / 10), binary=False, primary=True)
        for c, (s, n) in zip(cases, found, strict=True)
    ]
'''


@dataclass
class Record:
    """One night: what it was, how each process ended, and what stood on the disk after it."""

    night: int
    event: str
    codes: list[int] = field(default_factory=list)
    outcome: str = ""
    text: str = ""
    seconds: float = 0.0
    log_bytes: int = 0
    live_bytes: int = 0  # parts that the newest snapshots name
    store_bytes: int = 0
    rounds_bytes: int = 0
    rounds: int = 0  # that were trained


def _size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


class Soak:
    """A project that lives through its nights."""

    def __init__(self, project: Path, model: Path) -> None:
        self.project, self.model = project, model
        self.records: list[Record] = []
        self.lines = 0  # written to logs that were read
        (project / "logs").mkdir(parents=True)
        (project / "scorer.py").write_text(_SCORER, encoding="utf-8")
        self.configure()

    def configure(self, *, rate: float = 1e-2, hook: str = "tee -a told.jsonl") -> None:
        """Write flywheel.toml."""
        text = _CONFIG.format(model=self.model, rate=rate, hook=hook)
        (self.project / "flywheel.toml").write_text(text, encoding="utf-8")

    def live(self, night: int) -> Record:
        """Let one night happen, with what goes wrong in it, and write it down."""
        record = Record(night, EVENTS.get(night, ""))
        started = time.monotonic()
        if night != 4:
            self.lines += write_night(self.project / "logs", night)
        before = {10: self._poisoned, 12: self._flooded, 14: self._full, 17: self._rolled_back}
        if night in before:
            before[night](record)
        if night in {20, 23}:
            self.configure(rate=1e-9) if night == 20 else self.configure(hook="false")
        if night >= KILLED_FROM and not record.event and not any(r.event == KILLED for r in self.records):
            self._killed(record)
        if not record.codes or record.event:
            record.codes.append(self._run())
        self.configure()
        record.seconds = time.monotonic() - started
        self._measure(record)
        self.records.append(record)
        return record

    def _run(self, limit: int | None = None) -> int:
        def limited() -> None:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        command = [REAL, "-C", str(self.project), "run", "nightly", "--detailed-exitcode", "--quiet"]
        return subprocess.run(command, check=False, preexec_fn=limited, capture_output=True).returncode

    def _killed(self, record: Record) -> None:
        """Kill the night with everything it started as soon as its trainer has a first checkpoint, if it trains."""
        command = [REAL, "-C", str(self.project), "run", "nightly", "--quiet"]
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and process.poll() is None:
            if any((self.project / "rounds").glob("*/work/checkpoints/checkpoint-*")):
                os.killpg(process.pid, signal.SIGKILL)
                record.event = KILLED
                break
            time.sleep(0.05)
        record.codes.append(process.wait())

    def _poisoned(self, record: Record) -> None:
        """A night whose only log cannot be read: it fails; somebody moves the log away and brings the others back."""
        logs, away = self.project / "logs", self.project / "logs.away"
        logs.rename(away)
        logs.mkdir()
        poison(logs / "poisoned.jsonl")
        record.codes.append(self._run())
        (logs / "poisoned.jsonl").unlink()
        logs.rmdir()
        away.rename(logs)

    def _flooded(self, record: Record) -> None:
        del record
        self.lines += flood(self.project / "logs", 12, 12)

    def _full(self, record: Record) -> None:
        record.codes.append(self._run(_LIMIT))

    def _rolled_back(self, record: Record) -> None:
        del record
        flywheel(self.project, "rollback", "--yes", "--reason", "rehearsal")

    def _measure(self, record: Record) -> None:
        from flywheel.store import Store

        root = self.project / ".flywheel"
        night = json.loads((root / "night.json").read_text())
        record.outcome, record.text = night["outcome"], night["text"].partition(": ")[2]
        store = Store(root)
        stages = [p.name for p in (root / "snapshots").iterdir()]
        record.live_bytes = sum(p.size_bytes for s in stages if (now := store.current(s)) for p in now.parts)
        record.store_bytes, record.rounds_bytes = _size(root), _size(self.project / "rounds")
        record.rounds = len(list((self.project / "rounds").glob("[0-9]*/adapter")))
        record.log_bytes = _size(self.project / "logs")
