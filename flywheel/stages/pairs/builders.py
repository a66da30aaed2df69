"""The built-in pair builders: two readings of a log that say "this action is better than that one here".

In: episodes, steps and returns of whole tasks. Out: candidates with the columns of `PreferencePair`, unfiltered.
Both sides of a pair are single assistant messages which differ in their calls only: text beside the calls is that of
the side whose context is the prompt, and reasoning is left out, since it would give the answer away.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flywheel.contracts import polars_schema
from flywheel.records import PreferencePair, ToolStatus, canonical_json, content_id
from flywheel.stages._context import StepContext, call_id, contexts

if TYPE_CHECKING:
    import polars as pl

    from flywheel.config import PairsConfig

__all__ = ["probability_better", "retry_fixed", "sibling"]

PRIOR_EPISODES = 1.0  # the state's mean counts as one more episode through each action: 1 against 1 is no certainty
ACTIONS_PER_END = 8  # best and worst actions of a state that are compared: keeps a busy state linear
FIXED_IS_BETTER = 0.9  # in an episode that surely succeeded; a coin's toss in one that surely failed


def probability_better(p_chosen: float, p_rejected: float) -> float:
    """Return P(chosen is right and rejected wrong), given that exactly one of them is right."""
    ahead, behind = p_chosen * (1 - p_rejected), p_rejected * (1 - p_chosen)
    return ahead / (ahead + behind) if ahead + behind > 0 else 0.5


def sibling(episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, cfg: PairsConfig) -> pl.DataFrame:
    """Pair different calls that attempts at one task made from the same anchor state, better mean return first.

    The anchor state is the sequence of calls so far and which of them failed, not the wording around them: the prompt
    is the context of the chosen side, and the rejected call was made after a conversation of the same course. Plain
    text actions have no canonical form, so only calls are compared. margin = V(chosen) - V(rejected), the means of R
    over the known episodes through each action; p_better weighs their mean p_success, each drawn towards the state's
    mean by one episode.
    """
    del cfg
    actions = _actions(steps, returns)
    table = _rivals(actions)
    sides = [
        *table.select("chosen_episode", "chosen_step").rows(),
        *table.select("rejected_episode", "rejected_step").rows(),
    ]
    found = contexts(steps, set(sides))
    rows = []
    for pair in table.iter_rows(named=True):
        here = found[pair["chosen_episode"], pair["chosen_step"]]
        there = found[pair["rejected_episode"], pair["rejected_step"]]
        p_better = probability_better(pair.pop("p_chosen"), pair.pop("p_rejected"))
        sides_json = _sides(here, there, text_of_chosen=True)
        rows.append({**pair, **sides_json, "p_better": p_better, "builder": "sibling"})
    return _finish(rows, episodes)


def _actions(steps: pl.DataFrame, returns: pl.DataFrame) -> pl.DataFrame:
    """Return the tool-calling steps of episodes with a known outcome, with the episode's return beside them.

    `failures` has a bit for each earlier call that failed (bits repeat after 62 calls): after an error, an agent is in
    another state than after a result.
    """
    import polars as pl

    known = returns.filter(pl.col("step").is_null() & pl.col("known"))
    calling = steps.sort("episode_id", "index").filter(pl.col("action_key").is_not_null())
    bit = pl.lit(2).pow(pl.col("same_prefix_until") % 62)
    return (
        calling.with_columns(
            same_prefix_until=pl.int_range(pl.len()).over("episode_id").cast(pl.Int64),
            failed=pl.col("tool_status").list.contains(ToolStatus.FAILED.value) | pl.col("malformed"),
        )
        .with_columns(failures=(pl.col("failed") * bit).cast(pl.Int64))
        .with_columns(failures=(pl.col("failures").cum_sum() - pl.col("failures")).over("episode_id"))
        .join(known.select("episode_id", "p_success", "value", "weight"), on="episode_id", maintain_order="left")
        .unique(["state_key", "failures", "action_key", "episode_id"], keep="first", maintain_order=True)
        .sort("state_key", "failures", "action_key", "episode_id")
    )


def _rivals(actions: pl.DataFrame) -> pl.DataFrame:
    """Return one row per (better, worse) pair of actions of a state, with a representative step for each."""
    import polars as pl

    state, by = ["state_key", "failures"], ["state_key", "failures", "action_key"]
    judged = (
        actions.with_columns(p_state=pl.col("p_success").mean().over(state))
        .group_by(by, maintain_order=True)
        .agg(
            pl.col("value").mean().round(12),
            pl.col("weight").mean().round(12),
            p=(pl.col("p_success").sum() + PRIOR_EPISODES * pl.col("p_state").first()) / (pl.len() + PRIOR_EPISODES),
        )
        .with_columns(pl.col("p").round(12))
        .with_columns(
            best=pl.col("value").rank("ordinal", descending=True).over(state),
            worst=pl.col("value").rank("ordinal").over(state),
        )
    )
    chosen = judged.filter(pl.col("best") <= ACTIONS_PER_END).join(_typical(actions, best=True), on=by)
    rejected = judged.filter(pl.col("worst") <= ACTIONS_PER_END).join(_typical(actions, best=False), on=by)
    return (
        chosen.join(rejected, on=state, suffix="_rejected")
        .filter(pl.col("value") > pl.col("value_rejected"))
        .select(
            "task_id",
            "state_key",
            margin=pl.col("value") - pl.col("value_rejected"),
            weight=pl.min_horizontal("weight", "weight_rejected"),
            p_chosen="p",
            p_rejected="p_rejected",
            chosen_episode="episode_id",
            chosen_step="index",
            rejected_episode="episode_id_rejected",
            rejected_step="index_rejected",
            same_prefix_until="same_prefix_until",
        )
    )


def _typical(actions: pl.DataFrame, *, best: bool) -> pl.DataFrame:
    """Return the step that stands for each action: of its most (or least) successful episode, ties by id."""
    order = ["failed", "p_success", "value", "episode_id"] if best else ["p_success", "value", "episode_id"]
    down = [False, True, True, False] if best else [False, False, False]
    kept = ["state_key", "failures", "action_key", "task_id", "episode_id", "index", "same_prefix_until"]
    return actions.sort(order, descending=down).unique(kept[:3], keep="first", maintain_order=True).select(kept)


def retry_fixed(episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, cfg: PairsConfig) -> pl.DataFrame:
    """Pair a failed call with the call of the same tool that worked at once afterwards, at the state before both.

    That the first call failed is certain; that the second was right is as likely as the episode's success (one half
    when unknown). So p_better = 0.5 + 0.4 * p_success, and margin = 2 * p_better - 1, the expected sign of the
    preference. Only the tools' results may stand between both calls: what a user added would be new information.
    """
    import polars as pl

    del cfg
    judged = returns.filter(pl.col("step").is_null())
    p_success = dict(judged.filter("known").select("episode_id", "p_success").iter_rows())
    table = _retries(steps)
    keys = table.select("episode_id", "index").rows()
    found = contexts(steps, {*keys, *((episode, index + 1) for episode, index in keys)})
    rows = []
    for row in table.iter_rows(named=True):
        episode, index = row["episode_id"], row["index"]
        if any(m["role"] != "tool" for m in json.loads(row["next_observation"])):
            continue
        p_better = 0.5 + (FIXED_IS_BETTER - 0.5) * p_success.get(episode, 0.5)
        rows.append(
            {
                **_sides(found[episode, index + 1], found[episode, index], text_of_chosen=False),
                "task_id": row["task_id"],
                "state_key": row["state_key"],
                "margin": 2 * p_better - 1,
                "p_better": p_better,
                "weight": 1.0,
                "builder": "retry_fixed",
                "chosen_episode": episode,
                "chosen_step": index + 1,
                "rejected_episode": episode,
                "rejected_step": index,
                "same_prefix_until": index,
            }
        )
    return _finish(rows, episodes)


def _retries(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the failing steps whose next step calls the same tools with other arguments and succeeds throughout."""
    import polars as pl

    following = {
        f"next_{name}": pl.col(name).shift(-1).over("episode_id")
        for name in ("index", "action_key", "tool_names", "tool_status", "malformed", "resets_context", "observation")
    }
    ok = pl.col("next_tool_status").list.eval(pl.element() == ToolStatus.OK.value).list.all()
    return (
        steps.sort("episode_id", "index")
        .with_columns(**following)
        .filter(
            pl.col("tool_status").list.contains(ToolStatus.FAILED.value) | pl.col("malformed"),
            pl.col("next_index") == pl.col("index") + 1,
            pl.col("next_action_key").is_not_null() & pl.col("next_action_key").ne_missing(pl.col("action_key")),
            pl.col("tool_names").list.sort() == pl.col("next_tool_names").list.sort(),
            (pl.col("next_tool_status").list.len() > 0) & ok,
            ~pl.col("next_malformed") & ~pl.col("next_resets_context"),
        )
    )


def _sides(chosen: StepContext, rejected: StepContext, *, text_of_chosen: bool) -> dict[str, str]:
    """Return prompt, chosen and rejected; the prompt's side lends its text, and calls are numbered on from it."""
    here = chosen if text_of_chosen else rejected
    text = json.loads(here.completion)[0].get("content")
    sides = {
        name: canonical_json([_only_calls(json.loads(side.completion)[0], text, here.n_calls)])
        for name, side in (("chosen", chosen), ("rejected", rejected))
    }
    return {"prompt": here.prompt, **sides}


def _only_calls(message: dict[str, Any], text: str | None, first_call: int) -> dict[str, Any]:
    calls = [
        {**call, "id": call_id(first_call + n)} if call.get("id") else call
        for n, call in enumerate(message.get("tool_calls") or [])
    ]
    return {"role": "assistant", "tool_calls": calls} | ({"content": text} if text is not None else {})


def _finish(rows: list[dict[str, Any]], episodes: pl.DataFrame) -> pl.DataFrame:
    """Return the rows as a frame of pairs, with ids, and the split and tools of the chosen side's episode."""
    import polars as pl

    schema = polars_schema(PreferencePair)
    facts = {row[0]: row[1:] for row in episodes.select("episode_id", "split", "tools").iter_rows()}
    for row in rows:
        row["split"], row["tools"] = facts[row["chosen_episode"]]
        row["pair_id"] = content_id(row["prompt"], row["chosen"], row["rejected"])
    return pl.DataFrame(rows, schema=schema)
