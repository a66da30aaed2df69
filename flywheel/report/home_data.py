"""What the home page is made of: plain values, gathered by the caller, so that the page is a pure function of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from flywheel.present import Headline, Step
from flywheel.records import Night


@dataclass(frozen=True)
class Rate:
    """A success rate: `n` episodes with a known outcome, `recorded` of them by a recorded one; a 95 % interval."""

    n: int
    recorded: int
    rate: float | None = None
    low: float | None = None
    high: float | None = None
    graded: bool = False  # whether outcomes are scores, so that it is a mean and not a rate


@dataclass(frozen=True)
class Point:
    """The success of a policy in the span of time that begins with `at`."""

    at: datetime
    success: Rate


@dataclass(frozen=True)
class PolicyLine:
    """One policy: its episodes, its success over all of them, and over time."""

    policy: str
    episodes: int
    success: Rate
    points: Sequence[Point] = ()


@dataclass(frozen=True)
class Mark:
    """A decision that moved the champion."""

    at: datetime
    label: str


@dataclass(frozen=True)
class Waiting:
    """Something that waits for a person or a command."""

    count: int
    what: str
    command: str


@dataclass(frozen=True)
class Verdict:
    """The newest decision, or the newest round before one: its state, why, and what next."""

    round: int
    headline: Headline
    reasons: Sequence[str]
    steps: Sequence[Step]
    page: str = ""


@dataclass(frozen=True)
class RoundRow:
    """A round in the list of rounds."""

    round: int
    label: str
    tone: str
    method: str
    rows: int | None
    metric: str
    page: str = ""
    champion: bool = False


@dataclass(frozen=True)
class HomeData:
    """What the home page shows.

    Args:
        project: the project's name.
        until: the newest event's time; None for logs without times.
        span: what a point of a line sums up: 'day', 'week' or 'month'.
        lines: policies, those with times first, and the one with most episodes first.
        left_out: policies that are not among them.
        without_time: episodes without a time.
        marks: promotions and rollbacks, oldest first.
        week: success in the last seven days of the logs; None without times.
        week_before: in the seven days before these.
        all_time: success over all episodes.
        episodes: all episodes.
        cost_usd: mean cost of an episode in the last seven days; None where it is not logged.
        champion: the champion's name.
        waiting: what waits, the most urgent first.
        night: the last night.
        tables: names of its stages that only bring tables up to date.
        verdict: of the newest round.
        rounds: newest first.
        links: name and address of other pages.
    """

    project: str
    until: datetime | None = None
    span: str = "week"
    lines: Sequence[PolicyLine] = ()
    left_out: int = 0
    without_time: int = 0
    marks: Sequence[Mark] = ()
    week: Rate | None = None
    week_before: Rate | None = None
    all_time: Rate = Rate(0, 0)
    episodes: int = 0
    cost_usd: float | None = None
    champion: str = "base model"
    waiting: Sequence[Waiting] = ()
    night: Night | None = None
    tables: Sequence[str] = ()
    verdict: Verdict | None = None
    rounds: Sequence[RoundRow] = ()
    links: Sequence[tuple[str, str]] = field(default_factory=tuple)
