"""The ledger of promotion tests: which nights were tests, which of them promoted, and so what tonight may spend.

LORD++ gives each test a level such that in the long run at most a share alpha of the promotions is false. A test is a
decision that could have promoted: a superiority test with a p-value, not blocked. Forced moves and rollbacks are none.
Only a promotion earns wealth back; counting a test that passed but was held for another reason as not rejected is the
conservative reading.

The same evaluation judged again is the same test: it keeps its place and its level. It is recognised by round, champion
and statistic, so that a repeated command spends nothing, while the same round on more cases is a new look and pays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from flywheel.errors import ConfigError
from flywheel.records import Verdict
from flywheel.stats.online import lord_level

if TYPE_CHECKING:
    from flywheel.config import GateConfig
    from flywheel.records import Promotion

__all__ = ["RULE", "Level", "Look", "level_of", "look_of"]

RULE = "superiority"


class Look(NamedTuple):
    """One look at one candidate: what makes a test the same test."""

    round: int
    baseline: str
    n: float
    wins: float
    losses: float
    delta: float
    p: float


def look_of(number: int, baseline: str, numbers: Mapping[str, float]) -> Look:
    """Return the look behind a superiority rule's numbers."""
    n, wins, losses, delta, p = (numbers.get(name, 0.0) for name in ("n", "wins", "losses", "delta", "p"))
    return Look(number, baseline, n, wins, losses, delta, p)


class Level(NamedTuple):
    """The place of a test in the ledger and the level that it may be rejected at."""

    place: int
    alpha: float


def _tests(history: Sequence[Promotion]) -> Iterator[tuple[Look, bool]]:
    """Yield (test, whether it promoted) for every decision that was one, oldest first."""
    for entry in history:
        found = next((r.numbers for r in entry.rules if r.rule == RULE), {})
        if entry.decision in {"promoted", "held"} and entry.verdict != Verdict.BLOCKED and "p" in found:
            baseline = "base" if entry.champion_before is None else str(entry.champion_before)
            yield look_of(entry.round, baseline, found), entry.decision == "promoted"


def level_of(look: Look, history: Sequence[Promotion], cfg: GateConfig) -> Level:
    """Return the level at which this test may reject.

    Raises:
        ConfigError: the initial wealth exceeds alpha.
    """
    if cfg.initial_wealth > cfg.alpha:
        raise ConfigError(
            f"gate.initial_wealth {cfg.initial_wealth} exceeds gate.alpha {cfg.alpha}",
            hint="lower gate.initial_wealth; half of gate.alpha is usual",
        )
    places: dict[Look, int] = {}
    promoted: list[int] = []
    for earlier, moved in _tests(history):
        if earlier == look:
            break
        place = places.setdefault(earlier, len(places) + 1)
        if moved:
            promoted.append(place)
    place = len(places) + 1
    return Level(place, lord_level(place, sorted(set(promoted)), alpha=cfg.alpha, initial_wealth=cfg.initial_wealth))
