"""From opinions to returns: one judgement of each episode, and its credit step by step.

In: episodes, steps and rewards of a set of tasks. Out: the table `returns`: R = alpha * (2p - 1) - beta * cost -
gamma * risk for each episode, skill and luck for each of its steps. Tasks are judged apart from each other, but for
the cost scale of a task with few attempts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import orjson

from flywheel.contracts import arrow_schema, conform
from flywheel.records import Return
from flywheel.stages._belief import Belief
from flywheel.stages.returns.combine import Judgement, judge
from flywheel.stages.returns.credit import Attempt, Move, prefix_credit

if TYPE_CHECKING:
    import polars as pl

    from flywheel.config import RewardsConfig
    from flywheel.funnel import Funnel

__all__ = ["build_returns"]

_BY_USER = '"role":"user"'  # as canonical JSON writes it; inside a text the quotes would be escaped


def build_returns(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    rewards: pl.DataFrame,
    cfg: RewardsConfig,
    funnel: Funnel,
    *,
    reliability: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return one row per episode and one per step; counts episodes, all of which are kept.

    An episode that nobody judged has p_success 0.5, known false and weight 0. A step's weight is the confidence in its
    credit; a step that no other attempt at the task took has credit 0 and weight 0. Without `reliability` the priors
    hold.
    """
    import polars as pl
    import pyarrow as pa

    judged = judge(episodes, rewards, cfg, Belief.read(reliability))
    rows = [_row(episode_id, task_id, judged[episode_id]) for episode_id, task_id in _ids(episodes)]
    funnel.considered += len(rows)
    funnel.kept += len(rows)
    funnel.note("episodes nobody judged", sum(not row["known"] for row in rows))
    funnel.note("episodes too young to learn from", sum(row["provisional"] for row in rows))
    funnel.note("episodes with a suspect reward", sum(row["basis"] == "suspect" for row in rows))
    funnel.note("steps", steps.height)
    for task_id, paths in _paths(episodes, steps):
        attempts = {e: Attempt(p, judged[e].value if judged[e].known else None) for e, p in paths.items()}
        for episode_id, path in prefix_credit(attempts, shrinkage=cfg.shrinkage).items():
            funnel.note("steps with credit", sum(credit.weight > 0 for credit in path))
            rows += [
                _row(episode_id, task_id, judged[episode_id])
                | {"step": number, "value": c.skill, "luck": c.luck, "weight": c.weight, "n_support": c.n_support}
                for number, c in enumerate(path)
            ]
    frame = pl.from_arrow(pa.Table.from_pylist(rows, schema=arrow_schema(Return)))
    if not isinstance(frame, pl.DataFrame):  # pragma: no cover - a table always gives a frame
        raise TypeError
    return conform(frame, Return).collect()


def _ids(episodes: pl.DataFrame) -> list[tuple[str, str]]:
    return episodes.select("episode_id", "task_id").sort("task_id", "episode_id").rows()


def _row(episode_id: str, task_id: str, judgement: Judgement) -> dict[str, Any]:
    return {
        "episode_id": episode_id,
        "task_id": task_id,
        "step": None,
        **judgement._asdict(),
        "luck": 0.0,
        "weight": judgement.weight,
    }


def _paths(episodes: pl.DataFrame, steps: pl.DataFrame) -> Iterator[tuple[str, dict[str, list[Move]]]]:
    """Yield each task with its episodes' paths."""
    import polars as pl

    spoke = pl.col("observation").str.contains(_BY_USER, literal=True)
    left = episodes.select("episode_id", left=pl.col("tail").str.contains(_BY_USER, literal=True))
    rows = (
        steps.sort("task_id", "episode_id", "index")
        .with_columns(spoke=spoke.shift(-1).over("episode_id"))
        .join(left, on="episode_id", how="left", maintain_order="left")
        .select(
            "task_id",
            "episode_id",
            "action_key",
            "action",
            "tool_names",
            "tool_status",
            pl.coalesce("spoke", "left", pl.lit(False)),
        )
    )
    for task_id, attempts in groupby(rows.iter_rows(), key=lambda row: row[0]):
        paths: dict[str, list[Move]] = {}
        for _, episode_id, *rest in attempts:
            paths.setdefault(episode_id, []).append(_move(*rest))
        yield task_id, paths


def _move(action_key: str | None, action: str, tools: list[str], status: list[str], spoke: bool) -> Move:  # noqa: FBT001
    """Return an action's key and the class of what came back: how each tool ended, and whether the user spoke."""
    back = sorted(f"{name} {end}" for name, end in zip(tools, status, strict=True))
    return action_key or _text_class(action), "\n".join([*back, "user"] if spoke else back)


def _text_class(action: str) -> str:
    """Return what kind of text an action is: an answer or a question; wording never repeats."""
    content = orjson.loads(action).get("content")
    asks = isinstance(content, str) and ("?" in content or "\uff1f" in content)
    return "ASK" if asks else "FINAL"
