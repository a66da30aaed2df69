"""The sample of an audit: episodes by strata, each with its inclusion probability.

In: the current tables. Out: `audits/.draws/NNNN.json`; the answers are in `audits/NNNN.answers.jsonl`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from flywheel.errors import UsageError
from flywheel.io import files
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.stages.signals.audit import AUDITS
from flywheel.stats.sampling import draw

P_BINS = 5
TALK = "(no tool)"


@dataclass(frozen=True)
class Draw:
    """A sample: episode id → conversation id and inclusion probability, in the order of questions."""

    number: int
    rows: Mapping[str, tuple[str, float]]
    strata: int
    eligible: int
    answered: frozenset[str]

    @property
    def waiting(self) -> list[str]:
        """Episodes without an answer."""
        return [episode for episode in self.rows if episode not in self.answered]


def open_draw(ctx: Context, n: int, *, new: bool = False) -> Draw:
    """Return the newest sample if it is unfinished, else a new one of n episodes.

    Raises:
        UsageError: no episode was built, or all have been sampled.
    """
    numbers = _numbers(ctx)
    if numbers and not new:
        newest = _stored(ctx, numbers[-1])
        if newest.waiting:
            return newest
    return _new(ctx, n, (numbers or [0])[-1] + 1, numbers)


def latest_draw(ctx: Context) -> Draw:
    """Return the newest sample; there must be one."""
    return _stored(ctx, _numbers(ctx)[-1])


def draws(ctx: Context) -> list[Draw]:
    """Return every sample, oldest first."""
    return [_stored(ctx, number) for number in _numbers(ctx)]


def _numbers(ctx: Context) -> list[int]:
    return sorted(int(p.stem) for p in (ctx.project / AUDITS / ".draws").glob("*.json"))


def _path(ctx: Context, number: int) -> Path:
    return ctx.project / AUDITS / ".draws" / f"{number:04d}.json"


def answers_path(ctx: Context, number: int) -> Path:
    """Return the file of a sample's answers, which ingest reads like any log."""
    return ctx.project / AUDITS / f"{number:04d}.answers.jsonl"


def _stored(ctx: Context, number: int) -> Draw:
    raw = files.read_json(_path(ctx, number))
    rows = {row["episode_id"]: (row["conversation_id"], float(row["inclusion"])) for row in raw["rows"]}
    by_conversation = {conversation: episode for episode, (conversation, _) in rows.items()}
    answers = files.read_rows(answers_path(ctx, number), optional=True)
    done = frozenset(by_conversation.get(row["conversation_id"], "") for row in answers)
    return Draw(number, rows, raw["strata"], raw["eligible"], done)


def _new(ctx: Context, n: int, number: int, before: list[int]) -> Draw:
    asked = {episode for earlier in before for episode in _stored(ctx, earlier).rows}
    frame = _eligible(ctx).filter(~pl.col("episode_id").is_in(sorted(asked)))
    if frame.is_empty():
        hint = "every episode is already in a sample" if asked else "flywheel ingest, then flywheel build"
        raise UsageError("there is no episode to audit", hint=hint)
    strata = _strata(frame, n)
    chosen = draw(strata, n, seed=f"audit {number}")
    conversation = dict(frame.select("episode_id", "conversation_id").iter_rows())
    order = sorted(chosen, key=lambda episode: files.hash_text(f"{number} {episode}"))
    rows = [{"episode_id": e, "conversation_id": conversation[e], "inclusion": chosen[e]} for e in order]
    files.write_json(
        _path(ctx, number), {"draw": number, "eligible": frame.height, "strata": len(strata), "rows": rows}
    )
    return _stored(ctx, number)


def _eligible(ctx: Context) -> pl.DataFrame:
    """Return the episodes that may be sampled, with the columns of the strata."""
    returns = read_table(ctx.store, "returns").filter(pl.col("step").is_null())
    spoken = (
        read_table(ctx.store, "rewards")
        .filter(pl.col("kind").is_in(["outcome", "implicit"]) & (pl.col("weight") > 0))
        .group_by("episode_id")
        .agg(pattern=pl.col("family").unique().sort().str.join("+"))
    )
    return (
        read_table(ctx.store, "episodes")
        .filter(pl.col("n_steps") > 0)
        .select("episode_id", "conversation_id")
        .join(returns.select("episode_id", "p_raw", "basis"), on="episode_id")
        .filter(~pl.col("basis").is_in(["suspect", "audit"]))
        .join(spoken, on="episode_id", how="left")
        .join(intents(ctx), on="episode_id", how="left")
        .with_columns(pl.col("pattern").fill_null("silent"), pl.col("intent").fill_null(TALK))
        .sort("episode_id")
        .collect()
    )


def intents(ctx: Context) -> pl.LazyFrame:
    """Return (episode_id, intent): the last tool an episode called, mostly the one that completes the request."""
    return (
        read_table(ctx.store, "steps")
        .select("episode_id", "index", "tool_names")
        .filter(pl.col("tool_names").list.len() > 0)
        .group_by("episode_id")
        .agg(intent=pl.col("tool_names").sort_by("index").last().list.last())
    )


def _strata(frame: pl.DataFrame, n: int) -> dict[str, list[str]]:
    """Return the episodes by score, intent and pattern of signals; by fewer of these where n cannot cover them."""
    rows = frame.with_columns(score=(frame["p_raw"] * P_BINS).floor().clip(0, P_BINS - 1).cast(int))
    for by in (("score", "intent", "pattern"), ("score", "pattern"), ("score",)):
        strata: dict[str, list[str]] = {}
        for episode, *key in rows.select("episode_id", *by).iter_rows():
            strata.setdefault(" | ".join(map(str, key)), []).append(episode)
        if 2 * len(strata) <= n:
            return strata
    return {"all": frame["episode_id"].to_list()}
