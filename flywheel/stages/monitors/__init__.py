"""Has a policy learned to please the signals? Monitors over the newest window of the logs and what came before it.

In: episodes, steps, rewards and returns of everything. Out: one `MonitorRow` a monitor: green, amber, red, or unknown
with the reason. Red blocks training. A threshold that is crossed by chance is amber at most: red needs certainty too.

    window       which episodes are compared with which, and what each says
    signals      decoupling, praise, goodhart: do the signals still mean what they meant?
    behaviour    action_mix, broken_calls, questions, length, lists, emoji, flattery: what does the policy do more?
    people       users, credit: for whom is it better, and what is the credit made of?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flywheel.stages.monitors.behaviour import action_mix, rates, style
from flywheel.stages.monitors.people import credit, users
from flywheel.stages.monitors.signals import decoupling, goodhart, praise
from flywheel.stages.monitors.window import watched

if TYPE_CHECKING:
    import polars as pl

    from flywheel.config import MonitorsConfig
    from flywheel.records import MonitorRow

__all__ = ["watch"]


def watch(  # noqa: PLR0913 - four tables and what is known besides
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    rewards: pl.DataFrame,
    returns: pl.DataFrame,
    cfg: MonitorsConfig,
    *,
    odds: Callable[[str, float], float],
    serving: Sequence[str] = (),
    audit: str | None = None,
) -> list[MonitorRow]:
    """Return what every monitor says, always all of them and in the same order.

    Args:
        episodes: all of them.
        steps: their steps.
        rewards: what the signals said.
        returns: what it came to.
        cfg: window and thresholds.
        odds: log-odds that a vote of a signal adds: `_priors.log_odds`.
        serving: names that the champion may have in the logs; the window is its episodes where it has any.
        audit: the transport audit's verdict, PASS, FAIL or INCONCLUSIVE; None where there was none.
    """
    seen = watched(episodes, steps, rewards, returns, cfg, odds=odds, serving=serving)
    return [
        decoupling(seen, cfg, audit),
        praise(seen, cfg),
        goodhart(seen, cfg),
        action_mix(seen, cfg),
        *rates(seen, cfg),
        *style(seen, cfg),
        users(seen, cfg),
        credit(seen, cfg),
    ]
