"""A dataset's card: who and what its rows come from, how long they are in tokens, what fits, and what does not.

In: the rows of a round, fitted into its longest row, and the tables they come from. Out: one `DataCard`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import polars as pl

from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.train.length import Fitted
from flywheel.pipeline.train.mix import mix_of
from flywheel.records import DataCard

__all__ = ["make_card"]

_ORIGIN = {
    "sft": ("examples", "example_id", "episode_id"),
    "dpo": ("pairs", "pair_id", "chosen_episode"),
    "kto": ("examples", "example_id", "episode_id"),
    "grpo": ("groups", "group_id", "episodes_G"),
    "grpo-replay": ("scenarios", "scenario_id", "episode_id"),
}


def make_card(ctx: Context, fitted: Fitted, method: str) -> DataCard:
    """Return the card of the rows that a round trains."""
    whole = [prompt + max(sides) for prompt, *sides in fitted.tokens]
    trained = [sum(sides) for _, *sides in fitted.tokens]
    limit = ctx.config.train.max_length
    return DataCard(
        rendering=fitted.rendering,
        tokens=sum(whole),
        trained_tokens=sum(trained),
        median_tokens=_quantile(whole, 0.5),
        longest_tokens=max(whole),
        fitting=sum(n <= limit for n in whole),
        windowed=fitted.windowed,
        too_long=fitted.refused + sum(n > limit for n in whole),
        max_length=limit,
        mean_trained=_means([sides for _, *sides in fitted.tokens]),
        longer_wins=_longer_wins([sides for _, *sides in fitted.tokens]),
        mix=mix_of(fitted.rows),
        **_origins(ctx, fitted.rows, method),
    )


def _origins(ctx: Context, rows: Sequence[dict[str, Any]], method: str) -> dict[str, Any]:
    """Return where the rows come from: formats, policies, builders, and how many users are behind them."""
    table, key, episode = _ORIGIN[method]
    ids = [row["id"] for row in rows]
    made = read_table(ctx.store, table).filter(pl.col(key).is_in(ids)).collect()
    if method == "dpo":  # beside pairs there are demonstrations
        alone = read_table(ctx.store, "examples").filter(pl.col("example_id").is_in(ids))
        beside = alone.select(pl.col("episode_id").alias(episode)).collect()
        made = pl.concat([made, beside], how="diagonal")
    who = read_table(ctx.store, "episodes").select("episode_id", "source_format", "policy", "user")
    made = made.explode(episode) if method == "grpo" else made
    joined = made.rename({episode: "_episode"}).join(
        who.collect(), left_on="_episode", right_on="episode_id", how="left"
    )
    users = _counts(joined.filter(pl.col("user").is_not_null()), "user")
    return {
        "sources": _counts(joined, "source_format"),
        "policies": _counts(joined, "policy"),
        "builders": _counts(made.drop_nulls("builder"), "builder") if "builder" in made.columns else {},
        "users": len(users),
        "largest_user_share": round(max(users.values()) / made.height, 4) if users else None,
    }


def _means(rows: Sequence[Sequence[int]]) -> list[float]:
    """Return the mean tokens of each side of the rows that have as many sides as any."""
    most = max(len(sides) for sides in rows)
    whole = [sides for sides in rows if len(sides) == most]
    return [round(sum(side) / len(whole), 1) for side in zip(*whole, strict=True)]


def _counts(frame: pl.DataFrame, column: str) -> dict[str, int]:
    counts = Counter(str(value) for value in frame[column])
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _longer_wins(sides: Sequence[Sequence[int]]) -> float | None:
    """Return the share of pairs whose chosen side is the longer one, ties as halves; None without pairs."""
    pairs = [pair for pair in sides if len(pair) == 2]  # noqa: PLR2004 - chosen and rejected
    if not pairs:
        return None
    wins = sum((chosen > rejected) + 0.5 * (chosen == rejected) for chosen, rejected in pairs)
    return round(wins / len(pairs), 4)


def _quantile(values: Sequence[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
