"""How far an account had come when an episode began: on how many other tasks it had worked before.

In: episodes with their task, account, source and start; all those of a task lie in one piece. Out: a number an episode,
or nothing where it would mean nothing: where hardly any account of a source ever returns, a first visit is what visits
are.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import polars as pl

SETTLED = timedelta(hours=1)  # what began within the last hour does not count
RETURNS = 3  # tasks of an account that came back
MOST = 32  # tasks of an account that are counted; so a tenant with a million episodes costs no more than others
ENOUGH_RETURN = 10  # such accounts of a source, from which histories are counted


class Accounts(NamedTuple):
    """What the accounts of a piece worked on: their earliest tasks, and their sources."""

    earliest: pl.DataFrame  # user, task_id, first
    sources: pl.DataFrame  # source_format, user


class Histories(NamedTuple):
    """The earliest tasks of accounts, and the sources in which their number means something."""

    earliest: pl.DataFrame
    counted: pl.Series

    def of(self, accounts: Accounts) -> Histories:
        """Return those of a piece's accounts."""
        return self._replace(earliest=self.earliest.join(accounts.earliest, on="user", how="semi"))


def accounts_of(named: pl.DataFrame) -> Accounts:
    """Return what the accounts of a piece worked on.

    Args:
        named: user, task_id, started and source_format of the episodes with an account.
    """
    tasks = named.group_by("user", "task_id").agg(first=pl.col("started").min())
    return Accounts(_earliest(tasks), named.select("source_format", "user").unique())


def _earliest(tasks: pl.DataFrame) -> pl.DataFrame:
    return tasks.sort("user", "first", "task_id", nulls_last=False).group_by("user", maintain_order=True).head(MOST)


def histories(pieces: Sequence[Accounts]) -> Histories:
    """Return what all pieces' accounts worked on; of those in sources where enough of them returned."""
    earliest = _earliest(pl.concat([piece.earliest for piece in pieces]))
    returned = earliest.group_by("user").len().filter(pl.col("len") >= RETURNS)
    accounts = pl.concat([piece.sources for piece in pieces]).unique()
    several = accounts.join(returned, on="user").group_by("source_format").len().filter(pl.col("len") >= ENOUGH_RETURN)
    counted = several["source_format"]
    users = accounts.filter(pl.col("source_format").is_in(counted.implode()))
    return Histories(earliest.join(users, on="user", how="semi"), counted)


def with_history(episodes: pl.DataFrame, histories: Histories) -> pl.DataFrame:
    """Return the episodes with `history`; in a source whose accounts return, an episode without account has 0.

    Args:
        episodes: episode_id, task_id, user, source_format and started. Without times all other tasks count.
        histories: of their accounts at least.
    """
    before = (
        episodes.select("episode_id", "user", "started", own="task_id")
        .join(histories.earliest, on="user")
        .filter(pl.col("task_id") != pl.col("own"))
        .filter((pl.col("first") <= pl.col("started") - SETTLED) | pl.col("started").is_null())
        .group_by("episode_id")
        .agg(history=pl.len().cast(pl.Int64))
    )
    means_something = pl.col("source_format").is_in(histories.counted.implode())
    return episodes.join(before, on="episode_id", how="left", maintain_order="left").with_columns(
        history=pl.when(means_something).then(pl.col("history").fill_null(0))
    )
