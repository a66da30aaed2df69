"""What a system gets and leaves: its folder, the tokens of the round's rows, the process that trains.

The process ends with the worker, however that ends: `python -m flywheel.stages.train.backends.job PARENT COMMAND...`
asks the kernel for that and becomes the command.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from flywheel.config import BackendConfig, Config
from flywheel.errors import TrainError
from flywheel.extensions import TrainSpec
from flywheel.io.files import atomic_write, lines
from flywheel.records import METHODS, TokenRow, canonical_json
from flywheel.records.backends import BACKENDS, FORM_OF, OWN, Backend
from flywheel.stages.train.process.distributed import die_with

FILES, TOKENS = "backend", "tokens.jsonl"
_TOO_FAR = "too_far"  # how far an adapter is that was refused for it
_POLL_S = 0.2
_NOT_INHERITED = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}  # of our own interpreter


@dataclass(frozen=True)
class Item:
    """One mined row: the tokens of its sides, and whether a single action is desirable."""

    sides: tuple[TokenRow, ...]
    label: bool | None


@dataclass(frozen=True)
class Job:
    """A round, as another system is given it."""

    spec: TrainSpec
    items: list[Item]  # in the order in which they are trained
    model: Path

    @property
    def folder(self) -> Path:
        """Where its files are, and where the process runs."""
        return self.spec.work_dir / FILES

    @property
    def form(self) -> str:
        """Of the rows: preference, unpaired or sft."""
        return FORM_OF[METHODS[self.spec.method].dataset.name]

    @property
    def backend(self) -> Backend:
        """The system."""
        return BACKENDS.get(self.spec.config.train.backend, OWN)

    @property
    def own(self) -> BackendConfig:
        """Its table of the configuration."""
        train = self.spec.config.train
        return train.backends[train.backend]

    def placed(self, word: str) -> str:
        """Return a word of the user's as a path that holds from any folder, where it names a file of the project's."""
        return placed(self.spec.project_dir or Path.cwd(), word)

    @property
    def reference(self) -> Path | None:
        """The adapter of the reference policy; None for the base."""
        return self.spec.start_adapter if self.spec.reference == "parent" else None

    @property
    def limit(self) -> float:
        """Nats a token from its start at which its adapter is refused."""
        return self.spec.config.train.kl_limit(self.spec.method)

    def refused(self, kl: float) -> None:
        """Take down how far its adapter is, which is whole: under a higher limit it needs no training."""
        atomic_write(self.folder / _TOO_FAR, repr(kl))

    @property
    def within_now(self) -> bool:
        """Whether its adapter was refused for its distance alone, and would not be today."""
        path = self.folder / _TOO_FAR
        return path.is_file() and float(path.read_text(encoding="ascii")) <= self.limit

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and the longest action together: nothing that a system combines is cut."""
        rows = [row for item in self.items for row in item.sides]
        return max(len(row.prompt_ids) for row in rows) + max(len(row.completion_ids) for row in rows)

    @property
    def desirable(self) -> float:
        """How much more a good action weighs than a bad one, so that both labels count alike; 1 without labels."""
        good = sum(item.label is True for item in self.items)
        bad = sum(item.label is False for item in self.items)
        return round(max(1.0, bad / good), 6) if good and bad else 1.0

    @property
    def undesirable(self) -> float:
        """The same of a bad action, down to a third more for good ones."""
        good = sum(item.label is True for item in self.items)
        bad = sum(item.label is False for item in self.items)
        return round(max(1.0, good / bad * 3 / 4), 6) if good and bad else 1.0


class System(Protocol):
    """What differs between systems."""

    def begin(self, job: Job) -> tuple[list[str], dict[str, Any]]:
        """Write its own files; return the command that trains, from where a killed one was, and its arguments."""
        ...

    def metrics(self, job: Job) -> Path:
        """Return the JSON Lines file with a line a step."""
        ...

    def row(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Return one line of it as numbers by name, with `step` and `of`; {} where it is of no step."""
        ...

    def finished(self, job: Job) -> Path | None:
        """Return the folder with the adapter after the last step; None while there is none."""
        ...


def read_items(folder: Path) -> list[Item]:
    """Return a round's rows in their order."""
    by_row: dict[str, list[TokenRow]] = {}
    for line in lines((folder / TOKENS).read_text(encoding="utf-8")):
        row = TokenRow.model_validate_json(line)
        by_row.setdefault(row.row, []).append(row)
    return [Item(tuple(sides), sides[0].label) for sides in by_row.values()]


def placed(project: Path, word: str) -> str:
    """Return the user's word of a command as a path that holds from any folder, where it names a file of theirs."""
    try:
        path = project / Path(word).expanduser()
        return str(path.absolute()) if path.is_file() else word
    except (OSError, RuntimeError):  # too long for a name, a script's text say; or the home of no user
        return word


def environment(config: Config) -> dict[str, str]:
    """Return the environment of a system's processes: without flywheel's own variables and the keys of services."""
    left_out = _NOT_INHERITED | config.secret_variables
    kept = {k: v for k, v in os.environ.items() if k not in left_out and not k.startswith("FLYWHEEL_")}
    return kept | ({"OMP_NUM_THREADS": str(config.train.threads)} if config.train.threads else {})


def run(job: Job, command: Sequence[str], watch: Callable[[], None]) -> None:
    """Run a system's command to its end; `watch` is called meanwhile, and what it raises ends the process.

    Raises:
        TrainError: it failed; names the log, never what is in it.
    """
    launcher = [sys.executable, "-P", "-m", "flywheel.stages.train.backends.job", str(os.getpid())]
    variables = environment(job.spec.config)
    with subprocess.Popen([*launcher, *command], cwd=job.folder, env=variables, stdin=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                time.sleep(_POLL_S)
                watch()
        finally:
            if process.poll() is None:
                process.terminate()
    if process.returncode:
        log = job.spec.out_dir.parent / "train.log"
        raise TrainError(
            f"{job.backend.title} ended with status {process.returncode}",
            hint=f"see `{log}`; the same command goes on from its last checkpoint",
        )
    watch()


def guard(parent: int, command: Sequence[str]) -> int:
    """Run a command that ends with the process `parent`, and with it whatever it started; return its exit status.

    A script or a launcher of several processes leaves them behind when it is killed alone: they are one group, and the
    group is killed. This process is in neither group, so that a signal to all of flywheel's does not end it first.
    """
    if os.getpgrp() != os.getpid():
        os.setsid()
    started: list[subprocess.Popen[bytes]] = []
    asked_to_end = False

    def end(*_: object) -> None:
        nonlocal asked_to_end
        asked_to_end = True
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    die_with(parent, signal.SIGTERM)
    with subprocess.Popen(list(command), start_new_session=True) as process:
        started.append(process)
        if asked_to_end:  # while it was started
            end()
        status = process.wait()
    return status if status >= 0 else -status


class Follower:
    """Brings a system's metrics into the round's, a line a step, as they are written.

    Args:
        path: of the system's file.
        row: how one of its lines is read.
        into: the round's `metrics.jsonl`.
    """

    def __init__(self, path: Path, row: Callable[[Mapping[str, Any]], dict[str, Any]], into: Path) -> None:
        self._path, self._row, self._into = path, row, into
        self._offset = 0
        self.rows: dict[int, dict[str, Any]] = {}

    def news(self) -> Iterator[dict[str, Any]]:
        """Append the steps that are new, and yield them."""
        if not self._path.exists():
            return
        if self._path.stat().st_size < self._offset:
            self._offset = 0  # a system that goes on may write it again; a step counts once
        with self._path.open("rb") as handle:
            handle.seek(self._offset)
            written = handle.read()
        complete = written[: written.rfind(b"\n") + 1]
        self._offset += len(complete)
        for row in self._rows(complete.decode("utf-8", "replace")):
            if row.get("step", 0) > 0 and row["step"] not in self.rows:
                self.rows[row["step"]] = row
                with self._into.open("a", encoding="utf-8") as handle:
                    handle.write(canonical_json(row) + "\n")
                yield row

    def _rows(self, text: str) -> Iterator[dict[str, Any]]:
        for line in lines(text):
            try:
                yield self._row(json.loads(line))
            except (ValueError, TypeError, AttributeError, KeyError):  # a line of another kind
                continue


if __name__ == "__main__":
    sys.exit(guard(int(sys.argv[1]), sys.argv[2:]))
