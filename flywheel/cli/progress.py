"""Progress bars: shown after two seconds, and only where stderr is a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from flywheel import present

if TYPE_CHECKING:
    from rich.progress import Progress

    from flywheel.cli.session import Output

_DELAY_S = 2.0
_EVERY_S = 30.0
_TRAINING = {"loss": "loss", "rewards/margins": "margin", "kl_parent": "KL"}  # metrics at the bar, and their names


@contextmanager
def _shown(bar: Progress) -> Iterator[None]:
    """Show a bar after two seconds, so that quick commands show none."""
    later = threading.Timer(_DELAY_S, bar.start)
    later.daemon = True
    later.start()
    try:
        yield
    finally:
        later.cancel()
        later.join()
        bar.stop()


@contextmanager
def working(out: Output, text: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner with the elapsed time while the block runs; yield what adds to its text how far the work is."""
    if not out.live:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(text, total=None)
    with _shown(bar):
        yield lambda far: bar.update(task, description=f"{text}: {far}")


class Show(Protocol):
    """Takes how far counted work is: what is done, how much of how much, and a note."""

    def __call__(self, what: str, done: int, of: int, note: str = "") -> None:
        """Show it."""
        ...


@contextmanager
def counted(out: Output, text: str, unit: str = "") -> Iterator[Show]:
    """Yield a callback for counted work: on a terminal, a bar with what is done, the rate and the time left.

    Elsewhere a line now and then, so that the log of a job shows that it lives. What was done when the first call came
    has no part in the rate; where less is done than before, another part of the work begins, with its own rate.
    """
    if not out.live:
        yield _Lines(out, unit)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(text, total=None, rate="")
    began: dict[str, tuple[float, int]] = {}
    reached: dict[str, int] = {}

    def show(what: str, done: int, of: int, note: str = "") -> None:
        if done < reached.get(what, done + 1):
            began[what] = time.monotonic(), done
            bar.reset(task, description=what, total=of, completed=done, rate="")
        reached[what] = done
        at, first = began[what]
        rate = present.speed(done - first, time.monotonic() - at, unit) or unit
        bar.update(task, description=what + note, completed=done, total=of, rate=rate)

    with _shown(bar):
        yield show


class _Lines:
    """Prints how far counted work is, at most every half minute."""

    def __init__(self, out: Output, unit: str) -> None:
        self._out, self._unit, self._what, self._first, self._reached = out, unit, "", 0, 0
        self._began = self._printed = time.monotonic()

    def __call__(self, what: str, done: int, of: int, note: str = "") -> None:
        now = time.monotonic()
        if what != self._what or done < self._reached:
            self._what, self._began, self._first = what, now, done
        self._reached = done
        if now - self._printed < _EVERY_S or done >= of:
            return
        self._printed = now
        seconds, since = now - self._began, done - self._first
        left = f"{present.duration((of - done) * seconds / since)} left" if since > 0 else ""
        far = f"{done:,} of {of:,}{f' {self._unit}' if self._unit else ''}"
        parts = [far, present.speed(since, seconds, self._unit), left]
        self._out.say(f"{what}{note}: {', '.join(part for part in parts if part)}")


@contextmanager
def training(out: Output) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a callback for training metrics: on a terminal, a bar with loss, margin, speed and time left."""
    if not out.live:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}")
    bar = Progress(text, BarColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    task = bar.add_task("loading the model", total=None)

    newest: dict[str, float] = {}  # a line of metrics has not all of them

    def show(metrics: dict[str, Any]) -> None:
        newest.update((name, value) for name, value in metrics.items() if isinstance(value, int | float))
        words = [f"{text} {newest[name]:.3g}" for name, text in _TRAINING.items() if name in newest]
        words += [f"step {newest['step']:,.0f} of {newest['of']:,.0f}"] if {"step", "of"} <= newest.keys() else []
        words += [f"{newest['tokens_per_s']:,.0f} tokens/s"] if "tokens_per_s" in newest else []
        bar.update(task, completed=newest.get("step", 0), total=newest.get("of"), description="  ".join(words))

    with _shown(bar):
        yield show
