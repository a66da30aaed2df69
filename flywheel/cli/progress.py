"""What moves on a terminal while a command works: nothing for two seconds, nothing where stderr is no terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

    from flywheel.cli.render import Output

__all__ = ["training", "working"]

_PATIENCE_S = 2.0


@contextmanager
def _drawn(bar: Progress) -> Iterator[None]:
    """Draw a bar from the third second on, so that quick commands flash nothing."""
    later = threading.Timer(_PATIENCE_S, bar.start)
    later.daemon = True
    later.start()
    try:
        yield
    finally:
        later.cancel()
        later.join()
        bar.stop()


@contextmanager
def working(out: Output, text: str) -> Iterator[None]:
    """Show that a command is at work, and for how long, while the block runs."""
    if not out.live:
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(text, total=None)
    with _drawn(bar):
        yield


@contextmanager
def training(out: Output) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Give a callback for training metrics: a live bar with loss, margin, speed and time left on a terminal."""
    if not out.live:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}")
    bar = Progress(text, BarColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    task = bar.add_task("loading the model", total=None)

    def show(metrics: dict[str, Any]) -> None:
        words = [f"{k} {metrics[k]:.3g}" for k in ("loss", "rewards/margins", "tokens_per_s") if k in metrics]
        bar.update(task, completed=metrics.get("step", 0), total=metrics.get("of"), description="  ".join(words))

    with _drawn(bar):
        yield show
