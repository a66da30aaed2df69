"""What every builder needs: both sides of a pair as messages, and rows with the columns of `PreferencePair`.

A pair of two logged steps needs no texts of its own: `pointed` makes candidates that only point to both actions, and
`written` adds the texts of those that pass the filters.

Both sides are single assistant messages. Where both call tools they differ in their calls only: the text next to the
calls is that of the side whose context is the prompt. Reasoning is left out, since it would give the answer away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from flywheel.contracts import polars_schema
from flywheel.errors import ExtensionError
from flywheel.records import PreferencePair, Split, canonical_json, content_id
from flywheel.stages.datasets.context import StepContext, call_id, contexts


def sure(p_success: float | None, most: float) -> tuple[float, float]:
    """Return (p_better, margin) of evidence within one episode.

    Where the worse action is certainly worse, that the better one is right is as likely as the episode's success (one
    half when unknown): `most` in an episode that succeeded with certainty, a coin's toss in one that failed. The margin
    is the expected sign of the preference.
    """
    p_better = 0.5 + (most - 0.5) * (0.5 if p_success is None else p_success)
    return p_better, 2 * p_better - 1


def sides(chosen: StepContext, rejected: StepContext, *, text_of_chosen: bool) -> dict[str, str]:
    """Return prompt, chosen and rejected; the prompt's side lends its text, and calls are numbered on from it."""
    here = chosen if text_of_chosen else rejected
    messages = {"chosen": json.loads(chosen.completion)[0], "rejected": json.loads(rejected.completion)[0]}
    own = json.loads(here.completion)[0]
    lent = own.get("content") if own.get("tool_calls") else None
    shown = {name: canonical_json([_only_action(message, lent, here.n_calls)]) for name, message in messages.items()}
    return {"prompt": here.prompt, **shown}


def _only_action(message: dict[str, Any], lent: str | None, first_call: int) -> dict[str, Any]:
    if not message.get("tool_calls"):
        return {"role": "assistant", "content": message.get("content")}
    calls = [
        {**call, "id": call_id(first_call + n)} if call.get("id") else call
        for n, call in enumerate(message["tool_calls"])
    ]
    return {"role": "assistant", "tool_calls": calls} | ({"content": lent} if lent is not None else {})


def finish(rows: list[dict[str, Any]], episodes: pl.DataFrame) -> pl.DataFrame:
    """Return the rows as a frame of pairs: with ids, the chosen side's tools and user, and the split of both sides."""
    schema = polars_schema(PreferencePair)
    facts = {row[0]: row[1:] for row in episodes.select("episode_id", "split", "tools", "user").iter_rows()}
    for row in rows:
        split, row["tools"], user = facts[row["chosen_episode"]]
        other, _, other_user = facts[row["rejected_episode"]]
        row["split"] = split if split == other else Split.BETWEEN.value
        row["users"] = sorted({name for name in (user, other_user, row.get("editor")) if name})
        row["pair_id"] = _id(row)
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)


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
    users = pl.concat_list("_chosen_user", "_rejected_user").list.drop_nulls().list.unique().list.sort()
    table = table.with_columns(
        split=pl.when(one == other).then(one).otherwise(pl.lit(Split.BETWEEN.value)),
        users=users.list.eval(pl.element().filter(pl.element() != "")),
        builder=pl.lit(builder),
    )
    return table.select(
        (pl.col(name) if name in table.columns else pl.lit(None).alias(name)).cast(kind)
        for name, kind in schema.items()
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
    texts = row | sides(here, there, text_of_chosen=True) | {"tools": tools[row["chosen_episode"]]}
    return texts | {"pair_id": _id(texts)}
