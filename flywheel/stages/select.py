"""Which rows make a round, and by which method it is trained.

In: the examples and pairs tables. Out: JSON-ready rows for the trainer, in an order that depends on nothing but their
content, and a choice of method with the numbers that decided.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flywheel.errors import TrainError
from flywheel.records import Split, canonical_json, content_id

if TYPE_CHECKING:
    import polars as pl

    from flywheel.config import TrainConfig
    from flywheel.funnel import Funnel

__all__ = ["MethodChoice", "choose_method", "select_rows"]

Method = Literal["sft", "dpo", "grpo", "kto"]

SAME_ACTION_ROWS = (
    3  # demonstrations of one action in one state: some wordings of a prompt help, fifty crowd out others
)


@dataclass(frozen=True)
class MethodChoice:
    """What a round trains, and a sentence that says why."""

    method: Method
    reason: str


def choose_method(
    n_examples: int,
    n_pairs: int,
    well_formed_rate: float | None,
    cfg: TrainConfig,
    *,
    n_actions: int = 0,
    n_groups: int = 0,
) -> MethodChoice:
    """Choose SFT or DPO; KTO and GRPO only where they are asked for.

    DPO cannot teach a format that the start policy never produces, so a low rate of well-formed calls means SFT first.

    Args:
        n_examples: demonstrations that would be trained on.
        n_pairs: preference pairs that would be trained on.
        well_formed_rate: of the start policy; None when it was not measured, which does not argue for a cold start.
        cfg: the method asked for and the thresholds.
        n_actions: single actions, good and bad, that KTO would train on.
        n_groups: groups of attempts that GRPO would train on.

    Raises:
        TrainError: too few rows for any method that fits.
    """
    rows = {"sft": (n_examples, "examples"), "dpo": (n_pairs, "pairs")}
    rows |= {"kto": (n_actions, "actions"), "grpo": (n_groups, "groups")}
    cold = well_formed_rate is not None and well_formed_rate < cfg.cold_start_below
    wishes: list[Method] = [cfg.method] if cfg.method != "auto" else ["sft"] if cold else ["dpo", "sft"]
    rate = _rate(well_formed_rate, cfg)
    for method in wishes:
        have, name = rows[method]
        if have >= cfg.min_rows:
            why = "train.method asks for it" if cfg.method != "auto" else rate
            other = f"; pairs: {n_pairs:,}, too few" if wishes[0] != method else ""
            return MethodChoice(method, f"{why}; {name}: {have:,}, train.min_rows {cfg.min_rows:,}{other}")
    found = " and ".join(f"{rows[m][0]:,} {rows[m][1]}" for m in wishes)
    raise TrainError(
        f"too little to train on: {found}, train.min_rows is {cfg.min_rows:,} ({rate})",
        hint="ingest more logs or feedback; `flywheel explain examples` and `... pairs` say what was dropped",
    )


def _rate(rate: float | None, cfg: TrainConfig) -> str:
    if rate is None:
        return "rate of well-formed calls not measured"
    side = "under" if rate < cfg.cold_start_below else "not under"
    return (
        f"the start policy makes {rate:.0%} well-formed calls, {side} train.cold_start_below {cfg.cold_start_below:.0%}"
    )


def select_rows(
    examples: pl.DataFrame, pairs: pl.DataFrame, cfg: TrainConfig, method: Method, funnel: Funnel
) -> list[dict[str, Any]]:
    """Return a round's rows, sorted by the hash of their content; of the training split only.

    SFT gets {prompt, completion, tools, weight, id, task_id}: successes, one for each prompt. DPO gets {prompt, chosen,
    rejected, tools, p_better, weight, id, task_id}.
    """
    import polars as pl

    table, key = (examples, "example_id") if method == "sft" else (pairs, "pair_id")
    funnel.considered += table.height
    table = funnel.drop(table, pl.col("split") != Split.TRAIN.value, "held out")
    table = funnel.drop(table, pl.col("weight") <= 0, "no weight")
    if method == "sft":
        table = _demonstrations(table, funnel)
    columns = ("completion",) if method == "sft" else ("chosen", "rejected")
    numbers = ("weight",) if method == "sft" else ("p_better", "weight")
    table = _fairly(table, "episode_id" if method == "sft" else key)
    table = funnel.drop(table, pl.int_range(pl.len()) >= cfg.max_rows, "over train.max_rows")
    funnel.kept += table.height
    rows = [_row(row, columns, numbers, row[key]) for row in table.iter_rows(named=True)]
    return sorted(rows, key=content_id)


def _fairly(table: pl.DataFrame, unit: str) -> pl.DataFrame:
    """Sort rows for the cap: one conversation (or pair) of every task before a second of any, the surest first.

    A conversation's steps stay together, since they continue one another and are one sequence to train on.
    """
    import polars as pl

    order = [unit, "step"] if "step" in table.columns else [unit]
    weighed = table.with_columns(_weight=pl.col("weight").max().over(unit))
    units = weighed.select("task_id", unit, "_weight").unique().sort("_weight", unit, descending=[True, False])
    turns = units.select("task_id", unit, _turn=pl.int_range(pl.len()).over("task_id"))
    return table.join(turns, on=["task_id", unit]).sort("_turn", *order).drop("_turn")


def _demonstrations(table: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Keep what teaches a small model best: successes, one answer to a question, no action over and over."""
    import polars as pl

    table = funnel.drop(table, ~pl.col("label"), "undesirable")
    actions = pl.Series("_action", [_action(text) for text in table["completion"]], dtype=pl.String)
    table = table.with_columns(actions).sort("weight", "example_id", descending=[True, False])
    asked = pl.struct("prompt", "tools").is_first_distinct()
    table = funnel.drop(table, asked.not_(), "prompt has another answer")
    place = pl.int_range(pl.len()).over("state_key", "_action")
    return funnel.drop(table, place >= SAME_ACTION_ROWS, "action often shown").drop("_action")


def _action(completion: str) -> str:
    """Return an action's identity: its calls without ids, or its text."""
    message = json.loads(completion)[0]
    calls = [(call["name"], call.get("arguments")) for call in message.get("tool_calls") or []]
    return canonical_json(calls or message.get("content"))


def _row(row: dict[str, Any], columns: tuple[str, ...], numbers: tuple[str, ...], key: str) -> dict[str, Any]:
    texts = {name: json.loads(row[name]) for name in ("prompt", *columns)}
    tools = json.loads(row["tools"]) if row["tools"] is not None else None
    return {**texts, "tools": tools, **{n: row[n] for n in numbers}, "id": key, "task_id": row["task_id"]}
