"""Progress bars: shown after two seconds, and only where stderr is a terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

    from flywheel.cli.session import Output

_DELAY_S = 2.0


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
def working(out: Output, text: str) -> Iterator[None]:
    """Show a spinner with the elapsed time while the block runs."""
    if not out.live:
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(text, total=None)
    with _shown(bar):
        yield


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

    def show(metrics: dict[str, Any]) -> None:
        words = [f"{k} {metrics[k]:.3g}" for k in ("loss", "rewards/margins", "tokens_per_s") if k in metrics]
        bar.update(task, completed=metrics.get("step", 0), total=metrics.get("of"), description="  ".join(words))

    with _shown(bar):
        yield show
