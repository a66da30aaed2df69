"""Which rows make a round of GRPO or KTO.

In: the groups table (GRPO) or the examples table (KTO). Out: JSON-ready rows for the trainer, in an order that depends
on nothing but their content.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flywheel.records import Split, content_id

if TYPE_CHECKING:
    import polars as pl

    from flywheel.config import TrainConfig
    from flywheel.funnel import Funnel

__all__ = ["select_actions", "select_groups"]


def select_groups(groups: pl.DataFrame, cfg: TrainConfig, funnel: Funnel) -> list[dict[str, Any]]:
    """Return a round's groups of the training split: {prompt, tools, completions, rewards, advantages, policies, ...}.

    One group of every task before a second of any, as far as `train.max_rows` goes.
    """
    import polars as pl

    funnel.considered += groups.height
    table = funnel.drop(groups, pl.col("split") != Split.TRAIN.value, "held out").sort("group_id")
    turns = table.with_columns(_turn=pl.int_range(pl.len()).over("task_id")).sort("_turn", "group_id").drop("_turn")
    table = funnel.drop(turns, pl.int_range(pl.len()) >= cfg.max_rows, "over train.max_rows")
    funnel.kept += table.height
    return sorted((_group(row) for row in table.iter_rows(named=True)), key=content_id)


def _group(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "prompt": json.loads(row["prompt"]),
        "tools": json.loads(row["tools"]) if row["tools"] is not None else None,
        "completions": [json.loads(text) for text in row["completions_G"]],
        "rewards": row["rewards_G"],
        "advantages": row["advantages_G"],
        "policies": row["policies_G"],
        "behaviours": row["behaviour_G"],
        "log_probs": [json.loads(text) if text is not None else None for text in row["log_probs_G"] or ()],
        "temperatures": row["temperatures_G"],
        "id": row["group_id"],
        "task_id": row["task_id"],
    }


def select_actions(examples: pl.DataFrame, cfg: TrainConfig, funnel: Funnel) -> list[dict[str, Any]]:
    """Return a round's single actions of the training split: {prompt, completion, tools, label, weight, ...}."""
    import polars as pl

    funnel.considered += examples.height
    table = funnel.drop(examples, pl.col("split") != Split.TRAIN.value, "held out")
    table = funnel.drop(table, pl.col("weight") <= 0, "no weight")
    turns = table.sort("example_id").with_columns(_turn=pl.int_range(pl.len()).over("task_id", "label"))
    turns = turns.sort("_turn", "example_id").drop("_turn")
    table = funnel.drop(turns, pl.int_range(pl.len()) >= cfg.max_rows, "over train.max_rows")
    funnel.kept += table.height
    return sorted((_action(row) for row in table.iter_rows(named=True)), key=content_id)


def _action(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "prompt": json.loads(row["prompt"]),
        "completion": json.loads(row["completion"]),
        "tools": json.loads(row["tools"]) if row["tools"] is not None else None,
        "label": row["label"],
        "weight": row["weight"],
        "id": row["example_id"],
        "task_id": row["task_id"],
    }
