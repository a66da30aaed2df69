"""Builders that compare actions of one episode: a fixed retry, a user's edit, the answer to a question asked again.

In: episodes, steps and returns of complete tasks. Out: candidates with the columns of `PreferencePair`, unfiltered.
What shows that one action was worse is in the episode itself: an error, an edit, or the same question once more.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from flywheel.config import PairsConfig
from flywheel.records import ToolStatus, canonical_json
from flywheel.stages.common.canonical import normal_text
from flywheel.stages.datasets.context import contexts
from flywheel.stages.datasets.edits import corrected
from flywheel.stages.datasets.pairs.anchors import is_failed
from flywheel.stages.datasets.pairs.sides import finish, sides, sure

FIXED_IS_BETTER = 0.9  # in an episode that succeeded with certainty; a coin's toss in one that failed
EDIT_IS_BETTER = 0.9  # users prefer their edit; some edits only add facts that the agent could not know
ACCEPTED_IS_BETTER = 0.9  # as with a retry
STILL_THE_SAME_CALL = 0.6  # overlap of arguments below which the next call of a tool is another step, no retry
ASKED_AGAIN = 0.5  # overlap of two questions in words
ASKS = 5  # words of a question; less is a word of thanks, or a verdict
REPEATED = 2  # times; a message repeated more often is a formula, such as an evaluator's verdict
_WORD = re.compile(r"\w+")
_LONG = 4  # letters of a content word


def overlap(a: str, b: str) -> float:
    """Return the Dice coefficient of two texts' word counts: linear, unlike an edit distance."""
    ours, theirs = Counter(a.casefold().split()), Counter(b.casefold().split())
    total = ours.total() + theirs.total()
    return 2 * (ours & theirs).total() / total if total else 1.0


def retry_fixed(episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, cfg: PairsConfig) -> pl.DataFrame:
    """Pair a failed call with the call of the same tool that worked at once afterwards, at the state before both.

    p_better = 0.5 + 0.4 * p_success (see `sure`). Only the tools' results may come between both calls: a user's message
    would be new information. And it must be the same call with a mistake mended: of a tool that runs any command,
    the next command is mostly another step.
    """
    del cfg
    rows = [
        row
        for row in _retries(steps).iter_rows(named=True)
        if all(m["role"] == "tool" for m in json.loads(row["next_observation"])) and _is_retry(row)
    ]
    return _within(rows, episodes, steps, returns, FIXED_IS_BETTER, "retry_fixed")


def _is_retry(row: dict[str, Any]) -> bool:
    if row["malformed"]:
        return True
    one, other = (_values(row[name]) for name in ("action_key", "next_action_key"))
    return overlap(one, other) >= STILL_THE_SAME_CALL


def _values(key: str) -> str:
    """Return the words of a call's arguments, its keys left out: every call of a tool has those."""
    return " ".join(_WORD.findall(re.sub(r'"[^"]*":', " ", key.partition(" ")[2])))


def _within(
    rows: list[dict[str, Any]],
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    returns: pl.DataFrame,
    most: float,
    builder: str,
) -> pl.DataFrame:
    """Return pairs of each row's step (rejected) and the step after it (chosen), at the state before both."""
    known = returns.filter(pl.col("step").is_null() & pl.col("known"))
    p_success = dict(known.select("episode_id", "p_success").iter_rows())
    keys = [(row["episode_id"], row["index"]) for row in rows]
    context_of = contexts(steps, {*keys, *((episode, index + 1) for episode, index in keys)})
    pairs = []
    for row, (episode, index) in zip(rows, keys, strict=True):
        p_better, margin = sure(p_success.get(episode), most)
        both = sides(context_of[episode, index + 1], context_of[episode, index], at_chosen=False)
        pairs.append(both | _where(row, index + 1) | {"p_better": p_better, "margin": margin, "builder": builder})
        pairs[-1]["p_chosen"] = p_success.get(episode)
    return finish(pairs, episodes)


def _where(row: dict[str, Any], chosen_step: int) -> dict[str, Any]:
    return {
        "task_id": row["task_id"],
        "state_key": row["state_key"],
        "weight": 1.0,
        "chosen_episode": row["episode_id"],
        "chosen_step": chosen_step,
        "rejected_episode": row["episode_id"],
        "rejected_step": row["index"],
        "same_prefix_until": row["index"],
    }


def _retries(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the failing steps whose next step calls the same tools with other arguments and succeeds throughout."""
    following = {
        f"next_{name}": pl.col(name).shift(-1)
        for name in (
            "episode_id", "index", "action_key", "tool_names", "tool_status", "malformed", "resets_context",
            "observation",
        )
    }  # fmt: skip
    ok = pl.col("next_tool_status").list.eval(pl.element() == ToolStatus.OK.value).list.all()
    return (
        steps.sort("episode_id", "index")
        .with_columns(**following)
        .filter(
            is_failed(),
            pl.col("next_episode_id") == pl.col("episode_id"),
            pl.col("next_index") == pl.col("index") + 1,
            pl.col("next_action_key").is_not_null() & pl.col("next_action_key").ne_missing(pl.col("action_key")),
            ~pl.col("next_malformed") & ~pl.col("next_resets_context"),
        )
        .filter(  # lists are slow, so only those of the few that are left are looked at
            pl.col("tool_names").list.sort() == pl.col("next_tool_names").list.sort(),
            (pl.col("next_tool_status").list.len() > 0) & ok,
        )
    )


def user_edit(episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, cfg: PairsConfig) -> pl.DataFrame:
    """Pair an output as the user left it with the output as the agent gave it, at the state before it.

    Args:
        episodes: rows of the episodes table.
        steps: with the columns `correction` (the edited text; of a call, its arguments as JSON) and `editor`; without
            them there are no pairs.
        returns: rows of the returns table.
        cfg: the section [pairs].
    """
    del returns, cfg
    edited = steps.filter(pl.col("correction").is_not_null()) if "correction" in steps.columns else steps.clear()
    context_of = contexts(steps, set(edited.select("episode_id", "index").rows()))
    rows = []
    for row in edited.sort("episode_id", "index").iter_rows(named=True):
        context = context_of[row["episode_id"], row["index"]]
        message = corrected(json.loads(context.completion)[0], row["correction"])
        if message is not None:
            better = context._replace(completion=canonical_json([message]))
            both = sides(better, context, at_chosen=True) | _where(row, row["index"])
            p_better, margin = sure(1.0, EDIT_IS_BETTER)
            both |= {"p_better": p_better, "margin": margin, "p_chosen": EDIT_IS_BETTER, "editor": row["editor"]}
            rows.append(both | {"builder": "user_edit"})
    return finish(rows, episodes)


class _Asked(NamedTuple):
    row: dict[str, Any]
    question: str


def rephrase(episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, cfg: PairsConfig) -> pl.DataFrame:
    """Pair the answer to a question with what the agent did when the user asked it again, under the first wording.

    The first answer must be words: a call may still be under way when a user speaks. The second wording must say
    nothing new: each of its words of four letters or more occurs in the conversation up to the first. And the user must
    not have asked a third time. p_better = 0.5 + 0.4 * p_success.
    """
    del cfg
    by_user = pl.col("observation").str.contains('"role":"user"', literal=True)
    several = steps.filter(by_user).filter(pl.len().over("episode_id") > 1).sort("episode_id", "index")
    rows = [
        asked.row for _, group in several.group_by("episode_id", maintain_order=True) for asked in _asked_again(group)
    ]
    candidates = _within(rows, episodes, steps, returns, ACCEPTED_IS_BETTER, "rephrase")
    second = {(row["episode_id"], row["index"]): row["_again"] for row in rows}
    repeated = [
        _adds_nothing(second[episode, step], prompt)
        for episode, step, prompt in candidates.select("rejected_episode", "rejected_step", "prompt").iter_rows()
    ]
    return candidates.filter(pl.Series(repeated, dtype=pl.Boolean))


def _asked_again(group: pl.DataFrame) -> Iterator[_Asked]:
    """Yield the steps that answered a question which the user then asked again, once."""
    asked = [_Asked(row, _question(row["observation"])) for row in group.iter_rows(named=True)]
    times = Counter(a.question for a in asked)
    for place in range(len(asked) - 1):
        first, again = asked[place], asked[place + 1]
        third = asked[place + 2].question if place + 2 < len(asked) else ""
        at_once = again.row["index"] == first.row["index"] + 1 and not again.row["resets_context"]
        once = times[first.question] <= REPEATED and first.row["action_key"] is None
        if at_once and once and _alike(first.question, again.question) and not _alike(again.question, third):
            yield _Asked(first.row | {"_again": again.question}, first.question)


def _question(observation: str) -> str:
    texts = [m.get("content") for m in json.loads(observation) if m["role"] == "user"]
    text = normal_text(texts[-1]) if texts and isinstance(texts[-1], str) else ""
    return text if len(text.split()) >= ASKS else ""


def _alike(one: str, other: str) -> bool:
    return bool(one and other) and overlap(one, other) >= ASKED_AGAIN


def _adds_nothing(question: str, prompt: str) -> bool:
    words = {word for word in _WORD.findall(question) if len(word) >= _LONG or not word.isalpha()}
    return words <= set(_WORD.findall(normal_text(prompt)))
