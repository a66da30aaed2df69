"""How far an account had come when an episode began: on how many other tasks it had worked before.

In: episodes with their task, account, source and start. Out: a number an episode, or nothing where it would mean
nothing: where hardly any account of a source ever returns, a first visit is what visits are.
"""

from __future__ import annotations

from datetime import timedelta

import polars as pl

SETTLED = timedelta(hours=1)  # what began within the last hour does not count
RETURNS = 3  # tasks of an account that came back
MOST = 32  # tasks of an account that are counted; so a tenant with a million episodes costs no more than others
ENOUGH_RETURN = 10  # such accounts of a source, from which histories are counted


def with_history(episodes: pl.DataFrame) -> pl.DataFrame:
    """Return the episodes with `history`; in a source whose accounts return, an episode without account has 0.

    Args:
        episodes: episode_id, task_id, user, source_format and started. Without times all other tasks count.
    """
    named = episodes.filter(pl.col("user").is_not_null())
    tasks = named.group_by("user", "task_id").agg(first=pl.col("started").min())
    returned = tasks.group_by("user").len().filter(pl.col("len") >= RETURNS)
    accounts = named.select("source_format", "user").unique().join(returned, on="user")
    counted = accounts.group_by("source_format").len().filter(pl.col("len") >= ENOUGH_RETURN)["source_format"]
    earliest = tasks.sort("user", "first", "task_id", nulls_last=False).group_by("user").head(MOST)
    before = (
        named.select("episode_id", "user", "started", own="task_id")
        .join(earliest, on="user")
        .filter(pl.col("task_id") != pl.col("own"))
        .filter((pl.col("first") <= pl.col("started") - SETTLED) | pl.col("started").is_null())
        .group_by("episode_id")
        .agg(history=pl.len().cast(pl.Int64))
    )
    means_something = pl.col("source_format").is_in(counted.implode())
    return episodes.join(before, on="episode_id", how="left", maintain_order="left").with_columns(
        history=pl.when(means_something).then(pl.col("history").fill_null(0))
    )
