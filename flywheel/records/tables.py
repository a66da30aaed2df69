"""Every table by its name."""

from __future__ import annotations

from flywheel.records.base import Row
from flywheel.records.datasets import Example, Group, PreferencePair
from flywheel.records.episodes import Correction, Episode, Opinion, Reliability, Return, Reward, Step, Task
from flywheel.records.events import Link, LogEvent, Quarantined
from flywheel.records.replay import Fixture, ReplayScenario

TABLES: dict[str, type[Row]] = {
    row.table: row
    for row in (
        LogEvent,
        Quarantined,
        Link,
        Episode,
        Step,
        Task,
        Opinion,
        Correction,
        Reward,
        Reliability,
        Return,
        PreferencePair,
        Example,
        Group,
        Fixture,
        ReplayScenario,
    )
}
