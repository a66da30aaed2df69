"""What every builder needs: both sides of a pair as messages, and rows with the columns of `PreferencePair`.

Both sides are single assistant messages. Where both call tools they differ in their calls only: the text beside the
calls is that of the side whose context is the prompt. Reasoning is left out, since it would give the answer away.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flywheel.contracts import polars_schema
from flywheel.records import PreferencePair, Split, canonical_json, content_id
from flywheel.stages._context import StepContext, call_id

if TYPE_CHECKING:
    import polars as pl

__all__ = ["finish", "probability_better", "sides", "sure"]


def probability_better(p_chosen: float, p_rejected: float) -> float:
    """Return P(chosen is right and rejected wrong), given that exactly one of them is right."""
    ahead, behind = p_chosen * (1 - p_rejected), p_rejected * (1 - p_chosen)
    return ahead / (ahead + behind) if ahead + behind > 0 else 0.5


def sure(p_success: float | None, most: float) -> tuple[float, float]:
    """Return (p_better, margin) of evidence within one episode.

    Where the worse action is certainly worse, that the better one is right is as likely as the episode's success (one
    half when unknown): `most` in an episode that surely succeeded, a coin's toss in one that surely failed. The margin
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
    import polars as pl

    schema = polars_schema(PreferencePair)
    facts = {row[0]: row[1:] for row in episodes.select("episode_id", "split", "tools", "user").iter_rows()}
    for row in rows:
        split, row["tools"], user = facts[row["chosen_episode"]]
        other, _, other_user = facts[row["rejected_episode"]]
        row["split"] = split if split == other else Split.BETWEEN.value
        row["users"] = sorted({name for name in (user, other_user, row.get("editor")) if name})
        row["pair_id"] = content_id(row["task_id"], row["prompt"], row["chosen"], row["rejected"])
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)
