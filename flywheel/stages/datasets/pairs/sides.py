"""What every builder needs: both sides of a pair as messages, and rows with the columns of `PreferencePair`.

A pair of two logged steps needs no texts of its own: `pointed` makes candidates that only point to both actions, and
`written` adds the texts of those that pass the filters.

Both sides are single assistant messages, each word for word what its policy wrote: its calls with the words next to
them. Only call ids are numbered on from the prompt. Thoughts that were logged apart go with both sides or with none:
both must have one, and the chosen one must be a thought about the prompt that it is shown after.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import polars as pl

from flywheel.contracts import frame_of, polars_schema
from flywheel.errors import ExtensionError
from flywheel.records import PreferencePair, Split, content_id
from flywheel.stages.common.canonical import as_canonical
from flywheel.stages.datasets.context import StepContext, call_id, contexts


def sure(p_success: float | None, most: float) -> tuple[float, float]:
    """Return (p_better, margin) of evidence within one episode.

    Where the worse action is certainly worse, that the better one is right is as likely as the episode's success (one
    half when unknown): `most` in an episode that succeeded with certainty, a coin's toss in one that failed. The margin
    is the expected sign of the preference.
    """
    p_better = 0.5 + (most - 0.5) * (0.5 if p_success is None else p_success)
    return p_better, 2 * p_better - 1


def sides(chosen: StepContext, rejected: StepContext, *, at_chosen: bool) -> dict[str, str]:
    """Return prompt, chosen and rejected, both at the state of one of them, whose calls they are numbered on from."""
    here = chosen if at_chosen else rejected
    thoughts = at_chosen and _thinks(chosen.completion) and _thinks(rejected.completion)
    kept = ("content", "reasoning", "tool_calls") if thoughts else ("content", "tool_calls")
    chosen_, rejected_ = (_numbered(side.completion, kept, here.n_calls) for side in (chosen, rejected))
    return {"prompt": here.prompt, "chosen": chosen_, "rejected": rejected_}


def _thinks(completion: str) -> bool:
    """Whether an action has a thought that was logged apart."""
    return '"reasoning"' in completion and bool(json.loads(completion)[0].get("reasoning"))


@lru_cache(maxsize=256)  # an action of a state is compared with several others
def _numbered(completion: str, kept: tuple[str, ...], first_call: int) -> str:
    """Return the kept fields of an action, word for word, with its calls numbered from `first_call`."""

    def numbered(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        action = {"role": "assistant"} | {k: messages[0][k] for k in kept if messages[0].get(k) is not None}
        for n, call in enumerate(action.get("tool_calls") or []):
            if call.get("id"):
                call["id"] = call_id(first_call + n)
        return [action]

    return as_canonical(completion, numbered)


def finish(rows: list[dict[str, Any]], episodes: pl.DataFrame) -> pl.DataFrame:
    """Return the rows as a frame of pairs: with ids, the chosen side's tools and user, and the split of both sides."""
    facts = {row[0]: row[1:] for row in episodes.select("episode_id", "split", "tools", "user").iter_rows()}
    for row in rows:
        split, row["tools"], user = facts[row["chosen_episode"]]
        other, _, other_user = facts[row["rejected_episode"]]
        row["split"] = split if split == other else Split.BETWEEN.value
        row["users"] = sorted({name for name in (user, other_user, row.get("editor")) if name})
        row["pair_id"] = _id(row)
    return frame_of(rows, PreferencePair)


def _id(row: dict[str, Any]) -> str:
    return content_id(row["task_id"], row["prompt"], row["chosen"], row["rejected"])


def pointed(table: pl.DataFrame, episodes: pl.DataFrame, builder: str) -> pl.DataFrame:
    """Return candidates whose sides are steps of the log, as pairs without texts and ids.

    Args:
        table: both actions' episode and step, and the result of the comparison.
        episodes: rows of the episodes table.
        builder: the builder's name.
    """
    schema = polars_schema(PreferencePair)
    facts = episodes.select("episode_id", "split", "user")
    for side in ("chosen", "rejected"):
        of_side = facts.select(pl.all().name.prefix(f"_{side}_"))
        table = table.join(
            of_side, left_on=f"{side}_episode", right_on=f"_{side}_episode_id", how="left", maintain_order="left"
        )
    one, other = pl.col("_chosen_split"), pl.col("_rejected_split")
    table = table.with_columns(
        split=pl.when(one == other).then(one).otherwise(pl.lit(Split.BETWEEN.value)),
        users=_both(*(pl.col(f"_{side}_user").replace("", None) for side in ("chosen", "rejected"))),
        builder=pl.lit(builder),
    )
    return table.select(
        (pl.col(name) if name in table.columns else pl.lit(None).alias(name)).cast(kind)
        for name, kind in schema.items()
    )


def _both(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Return a sorted list of two names, each once and without nulls; lists are slow where they are made of many."""
    low, high = pl.min_horizontal(one, other), pl.max_horizontal(one, other)
    none = pl.lit([], dtype=pl.List(pl.String))
    return (
        pl.when(low.is_null())
        .then(none)
        .when(low == high)
        .then(pl.concat_list(low))
        .otherwise(pl.concat_list(low, high))
    )


def steps_of(pairs: pl.DataFrame) -> set[tuple[str, int]]:
    """Return the (episode, step) of both sides of pairs."""
    return {
        (row[0], row[1])
        for side in ("chosen", "rejected")
        for row in pairs.select(f"{side}_episode", f"{side}_step").iter_rows()
    }


def written(
    pairs: pl.DataFrame,
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    context_of: Mapping[tuple[str, int], StepContext] | None = None,
) -> pl.DataFrame:
    """Return pairs with the texts, tools and ids of those that lack them; `context_of` holds both sides' contexts."""
    bare = pairs.filter(pl.col("prompt").is_null())
    if bare.is_empty():
        return pairs
    context_of = contexts(steps, steps_of(bare)) if context_of is None else context_of
    tools = dict(episodes.select("episode_id", "tools").iter_rows())
    names = ("prompt", "chosen", "rejected", "tools", "pair_id")
    texts: dict[str, list[str | None]] = {name: [] for name in names}
    ends = ("chosen_episode", "chosen_step", "rejected_episode", "rejected_step", "task_id")
    for pair in pairs.select(*ends, *names).iter_rows(named=True):
        row = pair if pair["prompt"] is not None else _with_texts(pair, context_of, tools)
        for name in names:
            texts[name].append(row[name])
    return pairs.with_columns(pl.Series(name, values, dtype=pl.String) for name, values in texts.items())


def _with_texts(
    row: dict[str, Any], context_of: Mapping[tuple[str, int], StepContext], tools: Mapping[str, str | None]
) -> dict[str, Any]:
    keys = [(row[f"{side}_episode"], row[f"{side}_step"]) for side in ("chosen", "rejected")]
    if not all(key in context_of for key in keys):
        raise ExtensionError(
            "a pair builder named a step that is not in the log",
            hint="it must return prompt, chosen and rejected itself",
        )
    here, there = (context_of[key] for key in keys)
    texts = row | sides(here, there, at_chosen=True) | {"tools": tools[row["chosen_episode"]]}
    return texts | {"pair_id": _id(texts)}
