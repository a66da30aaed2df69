"""A dataset's card: who and what its rows come from, how long they are in tokens, what fits, and what is wrong.

In: the rows chosen for a round and the tables they come from. Out: one `DataCard`. Every row is rendered by the base
model's template and checked on the way (`models.lint`): a row that the template garbles stops the round.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flywheel.errors import TrainError
from flywheel.pipeline.context import Context
from flywheel.pipeline.tables import read_table
from flywheel.records import DataCard, content_id

if TYPE_CHECKING:
    import polars as pl

    from flywheel.models.lint import Measured

__all__ = ["SIDES", "make_card"]

SIDES: dict[str, tuple[str, ...]] = {"sft": ("completion",), "dpo": ("chosen", "rejected"), "kto": ("completion",)}
_ORIGIN = {
    "sft": ("examples", "example_id", "episode_id"),
    "dpo": ("pairs", "pair_id", "chosen_episode"),
    "kto": ("examples", "example_id", "episode_id"),
    "grpo": ("groups", "group_id", "episodes_G"),
    "grpo-replay": ("scenarios", "scenario_id", "episode_id"),
}
_SHOWN = 3  # findings told in an error


def make_card(ctx: Context, rows: Sequence[dict[str, Any]], method: str, dataset_sha256: str) -> DataCard:
    """Return the card of a round's rows.

    Raises:
        TrainError: the base model's template garbles a row; names the row and what to do.
    """
    sizes = _sizes(ctx, rows, method, dataset_sha256)
    whole = [prompt + max(sides) for prompt, *sides in sizes["tokens"]]
    trained = [sum(sides) for _, *sides in sizes["tokens"]]
    limit = ctx.config.train.max_length
    return DataCard(
        rendering=sizes["rendering"],
        tokens=sum(whole),
        trained_tokens=sum(trained),
        median_tokens=_quantile(whole, 0.5),
        longest_tokens=max(whole),
        fitting=sum(n <= limit for n in whole),
        too_long=sum(n > limit for n in whole),
        max_length=limit,
        mean_trained=[round(sum(side) / len(side), 1) for side in list(zip(*sizes["tokens"], strict=True))[1:]],
        longer_wins=_longer_wins([sides for _, *sides in sizes["tokens"]]),
        **_origins(ctx, rows, method),
    )


def _sizes(ctx: Context, rows: Sequence[dict[str, Any]], method: str, dataset_sha256: str) -> dict[str, Any]:
    """Return the tokens of every row, [prompt, side, ...]; rendered once for a dataset and a base model."""
    from flywheel.models.chat import ChatFormat
    from flywheel.models.lint import lint_row, rendering
    from flywheel.models.load import base_identity, load_tokenizer

    key = content_id("tokens", 1, dataset_sha256, base_identity(ctx.config.model).sha256, method, _room(ctx, method))
    known = ctx.store.cached("tokens", key)
    if known is None:
        chat = ChatFormat(load_tokenizer(ctx.config.model))
        if method == "grpo":
            attempts = [[lint_row(chat, row, ("completion",)) for row in _actions(one)] for one in _attempts(rows)]
            _refuse([action for actions in attempts for action in actions])
            tokens = [_whole(actions) for actions in attempts if actions]
        elif method == "grpo-replay":
            measured = [lint_row(chat, _first_call(row), ("completion",)) for row in rows]
            _refuse(measured)
            tokens = [[m.prompt, ctx.config.train.replay_tokens] for m in measured]
        else:
            measured = [lint_row(chat, row, SIDES[method]) for row in rows]
            _refuse(measured)
            tokens = [[m.prompt, *m.sides] for m in measured]
        known = {"rendering": rendering(chat), "tokens": tokens}
        ctx.store.cache("tokens", key, known)
    return dict(known)


def _room(ctx: Context, method: str) -> int:
    """Return the tokens that an attempt may have; 0 where rows are as long as they are."""
    return ctx.config.train.replay_tokens if method == "grpo-replay" else 0


def _first_call(scenario: dict[str, Any]) -> dict[str, Any]:
    """Return a scenario as a row whose action is a recorded call: what an attempt will look like."""
    first = next((call[1] for call in scenario["calls"] if call[0] == scenario["state"]), "")
    tool, _, arguments = first.partition(" ")
    given = json.loads(arguments or "{}")
    call = {"id": "call00000", "name": tool or "none", "arguments": given if isinstance(given, dict) else {}}
    return {**scenario, "completion": [{"role": "assistant", "tool_calls": [call]}]}


def _attempts(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the logged attempts of all groups."""
    return [{**row, "messages": messages} for row in rows for messages in row["completions"]]


def _actions(attempt: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each action of an attempt as a row with the messages before it as its prompt."""
    messages, base = attempt["messages"], {"id": attempt["id"], "tools": attempt["tools"]}
    return [
        {**base, "prompt": [*attempt["prompt"], *messages[:i]], "completion": [message]}
        for i, message in enumerate(messages)
        if message["role"] == "assistant"
    ]


def _whole(actions: Sequence[Measured]) -> list[int]:
    """Return an attempt's tokens that are context, and those that are trained."""
    trained = sum(sum(action.sides) for action in actions)
    return [max(actions[-1].prompt + sum(actions[-1].sides) - trained, 0), trained]


def _refuse(measured: Sequence[Measured]) -> None:
    found = [finding for one in measured for finding in one.findings]
    if found:
        told = "; ".join(f"row {f.row[:12]}: {f.problem}" for f in found[:_SHOWN])
        rows = len({f.row for f in found})
        raise TrainError(
            f"the base model's chat template garbles {rows:,} of {len(measured):,} rows: {told}",
            hint=f"{found[0].fix}; `flywheel show {found[0].row[:12]}` shows what would be trained",
        )


def _origins(ctx: Context, rows: Sequence[dict[str, Any]], method: str) -> dict[str, Any]:
    """Return where the rows come from: formats, policies, builders, and how many users are behind them."""
    import polars as pl

    table, key, episode = _ORIGIN[method]
    made = read_table(ctx.store, table).filter(pl.col(key).is_in([row["id"] for row in rows])).collect()
    who = read_table(ctx.store, "episodes").select("episode_id", "source_format", "policy", "user")
    made = made.explode(episode) if method == "grpo" else made
    joined = made.rename({episode: "_episode"}).join(
        who.collect(), left_on="_episode", right_on="episode_id", how="left"
    )
    users = _counts(joined.filter(pl.col("user").is_not_null()), "user")
    return {
        "sources": _counts(joined, "source_format"),
        "policies": _counts(joined, "policy"),
        "builders": _counts(made, "builder") if "builder" in made.columns else {},
        "users": len(users),
        "largest_user_share": round(max(users.values()) / made.height, 4) if users else None,
    }


def _counts(frame: pl.DataFrame, column: str) -> dict[str, int]:
    counts = Counter(str(value) for value in frame[column])
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _longer_wins(sides: Sequence[Sequence[int]]) -> float | None:
    """Return the share of pairs whose chosen side is the longer one, ties as halves; None without pairs."""
    if not sides or len(sides[0]) != 2:  # noqa: PLR2004 - chosen and rejected
        return None
    wins = sum((chosen > rejected) + 0.5 * (chosen == rejected) for chosen, rejected in sides)
    return round(wins / len(sides), 4)


def _quantile(values: Sequence[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
