"""What guessing the next tokens saves where a model writes (`flywheel.models.drafts`).

`python benchmarks/guesses.py [--project demo] [--policy champion] [--talks 1 6 12 40 80] [--temperature 0]
[--dtype auto] [--runs 3]`: a round of a project (`make demo` leaves two) serves so many talks in the demo's world side
by side, in one process, with guesses and without in turns. Seconds (least of `--runs`), their ratio, passes that write,
the share of guesses that were right, and how many talks are the same both ways: all of them in float32, where no
rounding decides between two tokens.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Written:
    """What some talks took, and their messages."""

    seconds: float = 0.0
    passes: int = 0
    guessed: int = 0
    right: int = 0
    messages: list[list[dict[str, Any]]] = field(default_factory=list)


@contextmanager
def counted(found: Written, *, guesses: bool) -> Iterator[None]:
    """Count passes and guesses; without guesses, let nothing be guessed."""
    from flywheel.models.batch import Batch
    from flywheel.models.drafts import Drafts
    from flywheel.models.writing import Writer

    write, chosen = Batch.write, Writer._chosen  # noqa: SLF001 - looked at, not used

    def counting(batch: Batch, tokens: Any) -> Any:
        found.passes += 1
        return write(batch, tokens)

    def looking(writer: Writer, rows: Any, written: Any, read: Any, *given: Any) -> Any:
        new = chosen(writer, rows, written, read, *given)
        found.guessed += sum(map(len, read.values()))
        found.right += sum(len(tokens) - 1 for tokens in new.values())
        return new

    with patch.object(Batch, "write", counting), patch.object(Writer, "_chosen", looking):
        if guesses:
            yield
        else:
            with patch.object(Drafts, "guess", lambda *_: []):
                yield


def talks(given: argparse.Namespace, count: int, *, guesses: bool) -> Written:
    """Let the policy serve some talks."""
    from flywheel import Project
    from flywheel_warehouse.serve import SAMPLE
    from flywheel_worlds.sampling import ModelServer
    from flywheel_worlds.talk import Talk, play, seed_of

    project = Project(given.project)
    dtype = project.config.model.model_copy(update={"dtype": given.dtype})
    project = Project(given.project, config=project.config.model_copy(update={"model": dtype}))
    server = ModelServer(project, given.policy, given.temperature)
    tasks = SAMPLE.tasks()
    asked = [tasks[number % len(tasks)] for number in range(count)]
    served = [Talk(SAMPLE, task, seed_of(task.text, n), "silent", f"{n:04d}") for n, task in enumerate(asked)]
    found = Written()
    with counted(found, guesses=guesses):
        started = time.perf_counter()
        play(served, server, SAMPLE.tools)
        found.seconds = time.perf_counter() - started
    found.messages = [talk.messages for talk in served]
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, default=ROOT / "demo")
    parser.add_argument("--policy", default="champion")
    parser.add_argument("--talks", nargs="+", type=int, default=[1, 6, 12, 40, 80])
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    os.environ.setdefault("FLYWHEEL_KEY", "demo")
    print(f"{'talks':>5}{'without s':>11}{'with s':>8}{'ratio':>7}{'passes':>8}{'with':>6}{'right':>7}{'same':>6}")
    for count in given.talks:
        runs = [(talks(given, count, guesses=False), talks(given, count, guesses=True)) for _ in range(given.runs)]
        plain, guessing = (min(side, key=lambda one: one.seconds) for side in zip(*runs, strict=True))
        same = sum(one == other for one, other in zip(plain.messages, guessing.messages, strict=True))
        print(
            f"{count:5}{plain.seconds:11.1f}{guessing.seconds:8.1f}{plain.seconds / guessing.seconds:7.2f}"
            f"{plain.passes:8}{guessing.passes:6}{guessing.right / max(1, guessing.guessed):7.2f}{same:6}",
            flush=True,
        )


if __name__ == "__main__":
    main()
