"""Which accounts count as one: crowds of new accounts, grown accounts that come together, one that repeats itself."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import polars as pl
import pytest
from flywheel.config import TrustConfig
from flywheel.stages.signals.cohorts import Attempt, bursts, by_action, repeated

START = datetime(2026, 9, 1, tzinfo=UTC)
SPAN = timedelta(hours=24)
OLD, NEW = 5, 0  # tasks that an account worked on before


class Visit(NamedTuple):
    user: str
    hours: float  # after the start
    history: int
    deed: str = ""  # family, with a sign in front
    action: str = "refund"


def visits(n: int, *, every: float, history: int, deed: str = "", share: float = 1.0, at: float = 0) -> list[Visit]:
    """Return visits of n accounts, `every` so many hours; of every ten, the first few do the deed."""
    return [
        Visit(f"{history}-{at}-{k}", at + every * k, history, deed if k % 10 < 10 * share else "") for k in range(n)
    ]


def frames(rows: Iterable[Visit]) -> tuple[list[list[Attempt]], pl.DataFrame]:
    every = list(rows)
    ids = [f"e{number:04d}" for number in range(len(every))]
    episodes = pl.DataFrame({
        "task_id": "t", "episode_id": ids, "user": [v.user for v in every], "history": [v.history for v in every],
        "started": [START + timedelta(hours=v.hours) for v in every],
    })  # fmt: skip
    steps = pl.DataFrame({"episode_id": ids, "tool_names": [[v.action] for v in every]})
    opinions = pl.DataFrame(
        [(i, v.deed[1:], 1.0 if v.deed[0] == "+" else -1.0, 1.0) for i, v in zip(ids, every, strict=True) if v.deed],
        schema={"episode_id": pl.String, "family": pl.String, "score": pl.Float64, "weight": pl.Float64}, orient="row",
    )  # fmt: skip
    return by_action(episodes, steps, TrustConfig()), opinions


DAILY = visits(60, every=36, history=OLD, deed="+adoption", share=0.3)  # three months of one or two in two days


@pytest.mark.parametrize(
    ("rows", "members"),
    [
        (visits(40, every=0.1, history=NEW, deed="+adoption"), 40),
        (visits(400, every=0.1, history=NEW, deed="+sentiment_pos"), 400),
        (visits(4000, every=0.01, history=NEW, deed="-followup"), 4000),
        (visits(400, every=0.1, history=NEW, deed="+adoption", share=0.6), 0),  # an honest launch day
        (DAILY, 0),
        (
            [*DAILY, *visits(40, every=0.1, history=OLD, deed="+adoption", at=400)],
            41,
        ),  # one of the others is among them
        ([*DAILY, *visits(40, every=0.1, history=OLD, deed="+adoption", at=400, share=0.6)], 0),  # a busy honest day
        ([*DAILY, *visits(40, every=0.1, history=OLD, deed="-sentiment_neg", at=400)], 0),  # an outage
        ([*DAILY, *visits(40, every=18, history=OLD, deed="+adoption")], 0),  # as slow as others: not told apart
    ],
)
def test_which_crowds_are_bursts(rows: list[Visit], members: int) -> None:
    assert len(bursts(*frames(rows), SPAN)) == members


def test_an_account_that_likes_the_same_again_and_again_has_liked_it_once() -> None:
    again = [Visit("one", hour, OLD, "+adoption") for hour in range(8)]
    others = [
        Visit("one", 3, OLD, "+sentiment_pos"),  # another deed
        Visit("one", 4, OLD, "+adoption", action="cancel"),  # another action
        Visit("one", 40, OLD, "+adoption"),  # a day later
        Visit("two", 5, OLD, "+adoption"),
        *(Visit("one", hour, OLD, "-sentiment_neg") for hour in range(3)),  # who complains again is not answered yet
    ]
    repeats = repeated(*frames([*again, *others]), SPAN)
    assert sorted(repeats.rows()) == [(f"e{number:04d}", "adoption") for number in range(1, 8)]
