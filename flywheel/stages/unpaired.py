"""KTO's rows: labelled actions that found no partner to make a pair with.

In: the examples and pairs tables. Out: JSON-ready rows {prompt, completion, label, tools, weight, id, task_id}, in an
order that depends on nothing but their content.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flywheel.records import Split, content_id

if TYPE_CHECKING:
    import polars as pl

    from flywheel.funnel import Funnel

__all__ = ["balanced_weights", "kto_rows"]

CLEAR = 0.4  # of |2p - 1|
MOST_DESIRED = 4 / 3  # weight of desirable rows beside that of undesirable ones: KTO's authors advise 1 to 4/3


def balanced_weights(desirable: float, undesirable: float) -> tuple[float, float]:
    """Return factors for both labels such that the sum of desirable weights is 1 to 4/3 times that of the others.

    Only the heavier side is scaled, and only down: no row counts more than its confidence. With one label only, (1, 1).
    """
    if desirable <= 0 or undesirable <= 0:
        return 1.0, 1.0
    ratio = desirable / undesirable
    if ratio > MOST_DESIRED:
        return MOST_DESIRED / ratio, 1.0
    return 1.0, min(ratio, 1.0)


def kto_rows(examples: pl.DataFrame, pairs: pl.DataFrame, funnel: Funnel) -> list[dict[str, Any]]:
    """Return the rows of the training split whose outcome is clear and whose action is no side of a pair."""
    import polars as pl

    funnel.considered += examples.height
    rows = funnel.drop(examples, pl.col("split") != Split.TRAIN.value, "held out")
    sides = pl.concat(
        pairs.select(episode_id=f"{side}_episode", step=f"{side}_step", paired=pl.lit(value=True))
        for side in ("chosen", "rejected")
    ).unique()
    rows = rows.join(sides, on=["episode_id", "step"], how="left", maintain_order="left")
    rows = funnel.drop(rows, pl.col("paired"), "has a partner")
    clear = ((2 * pl.col("p_success") - 1).abs() >= CLEAR - 1e-9) | ~pl.col("label")  # a failed call is surely bad
    rows = funnel.drop(rows, ~clear, "unclear outcome")
    rows = funnel.drop(rows, pl.col("weight") <= 0, "no weight")
    funnel.kept += rows.height
    good, bad = balanced_weights(*(float(rows.filter(pl.col("label") == y)["weight"].sum()) for y in (True, False)))
    return sorted((_row(row, good if row["label"] else bad) for row in rows.iter_rows(named=True)), key=content_id)


def _row(row: dict[str, Any], factor: float) -> dict[str, Any]:
    return {
        "prompt": json.loads(row["prompt"]),
        "completion": json.loads(row["completion"]),
        "label": row["label"],
        "tools": json.loads(row["tools"]) if row["tools"] is not None else None,
        "weight": row["weight"] * factor,
        "id": row["example_id"],
        "task_id": row["task_id"],
    }
