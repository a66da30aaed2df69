"""A dataset's card: where its rows come from, how long they are in tokens, and what does not fit.

In: the rows of a round, cut to its longest row, and the tables they come from. Out: one `DataCard`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import polars as pl

from flywheel.models.load import sees
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.train.length import Fitted
from flywheel.pipeline.train.mix import mix_of
from flywheel.present import count
from flywheel.records import DataCard
from flywheel.records.methods import EXAMPLES, GROUPS, PAIRS, SCENARIOS, Dataset
from flywheel.stages.datasets.context import NEEDS_IMAGE


def make_card(ctx: Context, fitted: Fitted, dataset: Dataset) -> DataCard:
    """Return the card of the rows that a round trains."""
    lengths = [prompt + max(sides) for prompt, *sides in fitted.tokens]
    sides = [sides for _, *sides in fitted.tokens]
    limit, written = ctx.config.train.max_length, ctx.config.eval.max_new_tokens
    single = dataset not in {GROUPS, SCENARIOS}  # others are of several actions
    return DataCard(
        rendering=fitted.rendering,
        tokens=sum(lengths),
        trained_tokens=sum(sum(tokens) for tokens in sides),
        median_tokens=_quantile(lengths, 0.5),
        longest_tokens=max(lengths),
        fitting=sum(n <= limit for n in lengths),
        windowed=fitted.windowed,
        too_long=fitted.refused + sum(n > limit for n in lengths),
        max_length=limit,
        cut_in_evaluation=sum(tokens[0] > written for tokens in sides) if single else 0,
        max_new_tokens=written,
        mean_trained=_means(sides),
        longer_wins=longer_wins(sides),
        mix=mix_of(fitted.rows),
        unseen=_unseen(ctx),
        **_origins(ctx, fitted.rows, dataset),
    )


def _unseen(ctx: Context) -> str:
    """Return how many steps are in no row because they need an image, and why that is so with this base model."""
    snapshot = ctx.store.current("examples")  # which counts every step
    refused = snapshot.funnel.get(f"dropped: {NEEDS_IMAGE}", 0) if snapshot is not None else 0
    if not refused:
        return ""
    why = (
        "the base model sees, but of a log's images only hash and size are kept, so no prompt could show them"
        if sees(ctx.config.model)
        else "the base model reads text alone"
    )
    return f"{count(refused, 'step')} with images refused: {why}"


def _origins(ctx: Context, rows: Sequence[dict[str, Any]], dataset: Dataset) -> dict[str, Any]:
    """Return where the rows come from: formats, policies, builders, and how many users are behind them."""
    ids = [row["id"] for row in rows]
    table, episode = dataset.table, dataset.table.episodes[0]
    sources = read_table(ctx.store, table.name).filter(pl.col(table.key).is_in(ids)).collect()
    if other := {PAIRS: EXAMPLES, EXAMPLES: PAIRS}.get(dataset):  # a round of one has rows of the other
        held = read_table(ctx.store, other.table.name).filter(pl.col(other.table.key).is_in(ids))
        others = held.select(pl.col(other.table.episodes[0]).alias(episode)).collect()
        sources = pl.concat([sources, others], how="diagonal")
    if isinstance(sources.schema[episode], pl.List):
        sources = sources.explode(episode)
    episodes = read_table(ctx.store, "episodes").select("episode_id", "source_format", "policy", "user").collect()
    joined = sources.rename({episode: "_episode"}).join(episodes, left_on="_episode", right_on="episode_id", how="left")
    users = _counts(joined.filter(pl.col("user").is_not_null()), "user")
    return {
        "sources": _counts(joined, "source_format"),
        "policies": _counts(joined, "policy"),
        "builders": _counts(sources.drop_nulls("builder"), "builder") if "builder" in sources.columns else {},
        "users": len(users),
        "largest_user_share": round(max(users.values()) / sources.height, 4) if users else None,
    }


def _means(rows: Sequence[Sequence[int]]) -> list[float]:
    """Return the mean tokens of each side, over the rows with the most sides."""
    most = max(len(sides) for sides in rows)
    full = [sides for sides in rows if len(sides) == most]
    return [round(sum(side) / len(full), 1) for side in zip(*full, strict=True)]


def _counts(frame: pl.DataFrame, column: str) -> dict[str, int]:
    counts = Counter(str(value) for value in frame[column])
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def longer_wins(sides: Sequence[Sequence[int]]) -> float | None:
    """Return the share of pairs whose chosen side is the longer one, ties as halves; None without pairs."""
    pairs = [pair for pair in sides if len(pair) == 2]  # noqa: PLR2004 - chosen and rejected
    if not pairs:
        return None
    wins = sum((chosen > rejected) + 0.5 * (chosen == rejected) for chosen, rejected in pairs)
    return round(wins / len(pairs), 4)


def _quantile(values: Sequence[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
