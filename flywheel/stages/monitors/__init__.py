"""Has a policy learned to please the signals? Monitors over the newest window of the logs and what came before it.

In: episodes, steps, rewards and returns of the whole log. Out: one `MonitorRow` a monitor: green, amber, red, or
unknown with the reason. Red blocks training. A threshold that is crossed by chance is amber at most: red needs
significance too. The thresholds are engineering choices, not published constants.

    window       which episodes are compared, what is set aside, and one row each with all that monitors read
    signals      decoupling, praise, goodhart: do the signals still measure success?
    behaviour    action_mix, broken_calls, questions, thinking, length, lists, emoji, flattery: what does it do more?
    people       users, credit, crowds: for whom is it better, what is the credit based on, who steers it?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from flywheel.config import MonitorsConfig
from flywheel.records import MonitorRow
from flywheel.stages.monitors.behaviour import action_mix, rates, style, thinking
from flywheel.stages.monitors.people import credit, crowds, users
from flywheel.stages.monitors.signals import decoupling, goodhart, praise
from flywheel.stages.monitors.window import Serving, Windows, compare_windows, not_ahead, unknown, worst

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Serving", "watch"]


def watch(  # noqa: PLR0913 - four tables and their context
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    rewards: pl.DataFrame,
    returns: pl.DataFrame,
    cfg: MonitorsConfig,
    *,
    odds: Callable[[str, float], float],
    serving: Serving = Serving(),  # noqa: B008 - a constant
    audit: str | None = None,
    now: datetime | None = None,
    crowd_members: pl.DataFrame | None = None,
) -> list[MonitorRow]:
    """Return the row of every monitor, always all of them and in the same order; each is the worst of all windows.

    Args:
        episodes: all of them.
        steps: their steps.
        rewards: the votes of the signals.
        returns: one row an episode and one a step.
        cfg: window and margins.
        odds: log-odds that a vote of a signal adds: `labelling.priors.log_odds`.
        serving: the champion; its episodes are a window where the logs have any.
        audit: the transport audit's verdict, PASS, FAIL or INCONCLUSIVE; None where there was none.
        now: the present: what is dated behind it is set aside. None: nothing is.
        crowd_members: the table `crowds`; None: there is none.
    """
    present = not_ahead(episodes, now)
    looks = compare_windows(present, steps, rewards, returns, cfg, odds=odds, serving=serving)
    rows = [_rows(windows, cfg, audit) for windows in looks]
    window = _window(episodes.height, episodes.height - present.height, looks)
    together = unknown("crowds", "not looked for") if crowd_members is None else crowds(crowd_members)
    return [window, *(worst(same) for same in zip(*rows, strict=True)), together]


def _rows(windows: Windows, cfg: MonitorsConfig, audit: str | None) -> list[MonitorRow]:
    """Return the rows of one way of looking."""
    return [
        decoupling(windows, cfg, audit),
        praise(windows, cfg),
        goodhart(windows, cfg),
        action_mix(windows, cfg),
        *rates(windows, cfg),
        thinking(windows, cfg),
        *style(windows, cfg),
        users(windows, cfg),
        credit(windows, cfg),
    ]


def _window(n: int, ahead: int, looks: Sequence[Windows]) -> MonitorRow:
    """Return what is compared with what, and the episodes of which one cannot say when, or by whom, they were."""
    measured = [windows for windows in looks if not windows.why_not]
    aside = [windows.aside for windows in looks if windows.aside]
    notes = ([f"{ahead:,} dated after today"] if ahead else []) + aside
    sentence = "; ".join(windows.label for windows in measured) if measured else looks[0].why_not
    return MonitorRow(
        monitor="window",
        level="unknown" if not measured else "amber" if notes else "green",
        n=n,
        sentence=sentence + (f"; set aside: {', '.join(notes)}" if notes else ""),
    )
