"""Which accounts are a crowd: those that come at once and think otherwise; no launch, and no tool that changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from flywheel.funnel import Funnel
from flywheel.stages.signals.crowds import Crowd, attempts_of, crowd_table, find_crowds, surges
from hypothesis import given, settings
from hypothesis import strategies as st

DAY_S, DAYS = 86_400.0, 30
GOOD, BAD = "search", "archive"
Row = dict[str, Any]


def visits(draw: random.Random, name: str, n: int, days: tuple[float, float], likes: float, **more: Any) -> list[Row]:
    """Return visits of n accounts between two days; two of three say what they think, this share that they like it."""
    rows = []
    for k in range(n):
        opinion = (1 if draw.random() < likes else -1) if draw.random() < 0.67 else 0
        rows.append({
            "task_id": "lamp", "policy": "v1", "action": BAD, "episode_id": f"{name}{k:04}", "user": f"{name}{k}",
            "at": DAY_S * draw.uniform(*days), "opinion": opinion, "known": 0,
        } | more)  # fmt: skip
    return rows


def found(rows: Sequence[Row]) -> list[Crowd]:
    schema = {"at": pl.Float64, "opinion": pl.Int8, "known": pl.Int8}
    return find_crowds([surges(pl.DataFrame(rows, schema_overrides=schema))], Funnel())


def aside(rows: Sequence[Row]) -> set[str]:
    table = crowd_table(found(rows))
    return {*table.filter("aside")["episode_id"]}


def past(draw: random.Random, likes: float = 0.1) -> list[Row]:
    """Return a month of users who come slowly, and mostly do not like what is done."""
    return visits(draw, "old", 60, (0, DAYS), likes)


def crowd(draw: random.Random, likes: float = 1.0, **more: Any) -> list[Row]:
    return visits(draw, "new", 30, (26, 29), likes, **more)


Make = Callable[[random.Random], list[Row]]
CROWDS: dict[str, Make] = {
    "a crowd": lambda draw: past(draw) + crowd(draw),
    "in one night": lambda draw: past(draw) + visits(draw, "new", 200, (28, 28.3), 1.0),
    "that is checked, and wrong": lambda draw: past(draw) + crowd(draw)[:-4] + crowd(draw, known=-1)[-4:],
}
HONEST: dict[str, Make] = {
    "a quiet log": past,
    "a launch": lambda draw: past(draw, 0.5) + crowd(draw, 0.5),
    "of what all like": lambda draw: past(draw, 0.9) + crowd(draw, 0.95),
    "of what nobody likes": lambda draw: past(draw) + crowd(draw, 0.1),
    "a tool that changed": lambda draw: visits(draw, "a", 40, (0, 20), 0.05) + visits(draw, "b", 20, (20, 30), 0.95),
    "two tastes": lambda draw: visits(draw, "a", 40, (0, 30), 0.05) + visits(draw, "b", 40, (0, 30), 0.95),
    "an outage": lambda draw: past(draw, 0.9) + crowd(draw, 0.0),
    "those who come afterwards agree": lambda draw: (
        visits(draw, "a", 40, (0, 15), 0.05) + visits(draw, "new", 40, (15, 16), 0.95)
        + visits(draw, "b", 30, (16, 30), 0.95)
    ),
    "audited, and right": lambda draw: past(draw) + crowd(draw)[:-4] + crowd(draw, known=1)[-4:],
    "a new task": lambda draw: visits(draw, "new", 60, (20, 21), 0.9) + visits(draw, "b", 20, (21, 30), 0.9),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CROWDS)
def test_accounts_that_come_at_once_and_think_otherwise_are_a_crowd(name: str, seed: int) -> None:
    rows = CROWDS[name](random.Random(f"{name} {seed}"))  # noqa: S311 - a case
    members = aside(rows)
    likes = {row["episode_id"] for row in rows if row["user"].startswith("new") and row["opinion"] >= 0}
    assert len(likes - members) <= len(likes) // 10
    assert all(row["opinion"] >= 0 for row in rows if row["episode_id"] in members)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", HONEST)
def test_honest_users_are_no_crowd_whatever_they_think(name: str, seed: int) -> None:
    assert not found(HONEST[name](random.Random(f"{name} {seed}")))  # noqa: S311 - a case


def test_a_crowd_at_several_tasks_is_one_and_speaks_once() -> None:
    draw = random.Random(1)  # noqa: S311 - a case
    rows: list[Row] = []
    for n, task in enumerate(("lamp", "chair", "table")):
        rows += [row | {"task_id": task, "episode_id": f"{task}{row['episode_id']}"} for row in [
            *visits(draw, f"old{n}-", 12, (0, DAYS), 0.0), *crowd(draw)
        ]]  # fmt: skip
    one, *others = found(rows)
    assert not others
    assert (one.aside, len(one.surges), len({s.key[0] for s in one.surges})) == (True, 3, 3)
    table = crowd_table([one])
    assert table["accounts"].unique().to_list() == [len({a for s in one.surges for a in s.accounts})]


def test_a_crowd_with_nobody_to_compare_with_is_reported_and_counts() -> None:
    draw = random.Random(2)  # noqa: S311 - a case
    elsewhere = visits(draw, "old", 60, (0, DAYS), 0.9, action=GOOD)
    (one,) = found(elsewhere + crowd(draw))
    assert not one.aside


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), pieces=st.integers(1, 4), name=st.sampled_from(sorted(CROWDS | HONEST)))
def test_neither_order_nor_pieces_nor_names_nor_the_calendar_matter(seed: int, pieces: int, name: str) -> None:
    draw = random.Random(seed)  # noqa: S311 - a case
    make = (CROWDS | HONEST)[name]
    rows = [
        row | {"task_id": f"t{k}", "episode_id": f"t{k}{row['episode_id']}", "user": f"{k}{row['user']}"}
        for k in range(pieces)
        for row in make(draw)
    ]
    expected = aside(rows)
    draw.shuffle(rows)
    moved = [row | {"at": row["at"] + 1e9, "user": row["user"] + "!"} for row in rows]
    assert aside(moved) == expected
    schema = {"at": pl.Float64, "opinion": pl.Int8, "known": pl.Int8}
    frame = pl.DataFrame(rows, schema_overrides=schema)
    parts = [surges(frame.filter(task_id=f"t{k}")) for k in range(pieces)]
    assert crowd_table(find_crowds(parts[::-1], Funnel())).equals(crowd_table(find_crowds([surges(frame)], Funnel())))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(sorted(CROWDS | HONEST)))
def test_whoever_dislikes_keeps_the_vote_and_nobody_is_in_two_crowds(seed: int, name: str) -> None:
    rows = (CROWDS | HONEST)[name](random.Random(seed))  # noqa: S311 - a case
    table = crowd_table(found(rows))
    assert table["episode_id"].is_unique().all()
    disliked = {row["episode_id"] for row in rows if row["opinion"] < 0}
    assert not disliked & {*table["episode_id"]}


def test_a_rejection_that_was_answered_does_not_hide_that_the_answer_was_liked() -> None:
    deeds = [("a", "adoption", 1.0), ("a", "answered", -1.0), ("b", "answered", -1.0), ("c", "followup", -1.0)]
    opinions = pl.DataFrame(
        [{"episode_id": e, "family": f, "score": s, "kind": "implicit", "weight": 1.0} for e, f, s in deeds]
    )
    names = ["a", "b", "c"]
    episodes = pl.DataFrame({"task_id": "lamp", "policy": "v1", "episode_id": names, "user": names}).with_columns(
        started=pl.lit(datetime(2026, 11, 2, tzinfo=UTC))
    )
    steps = pl.DataFrame({"episode_id": names, "tool_names": [["search"]] * 3})
    attempts = attempts_of(episodes, steps, opinions).sort("episode_id")
    assert attempts["opinion"].to_list() == [1, 0, -1]
