"""Signals from the next turns: the user asked again, corrected, retried or wanted a person, or the log just ends.

In: episodes, steps, events. Out: rows of `Reward`, one signal a function (see `extensions.Signal`). A turn that comes
back to an earlier one is one of three things: the same words are a retry, another value in them is a correction, other
words are a rephrasing.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Literal

import polars as pl

from flywheel.config import RewardsConfig
from flywheel.records import EventKind, StopReason, ToolStatus
from flywheel.stages.common.tools import is_answer, is_handoff
from flywheel.stages.signals.dialogue import Turn, user_turns
from flywheel.stages.signals.evidence import by_episode, proof, times_of
from flywheel.stages.signals.feedback import ADOPTIONS
from flywheel.stages.signals.lexicon import expresses
from flywheel.stages.signals.likeness import trigram_cosine
from flywheel.stages.signals.rows import ReactionRows, SignalRows, human_feedback

REPHRASED = 0.6  # cosine of 3-grams from which two requests are one
REPHRASE_WITHIN = timedelta(minutes=10)
REPHRASE_LETTERS = 12  # shorter turns ("yes please") are alike by chance; a Chinese character counts as two
REPHRASE_OF_LAST = 5  # earlier turns that a turn is compared with
CHANGED_VALUE = -0.5  # half a vote: the user may have changed their mind
ASKED_FOR_A_PERSON = -0.5  # half a vote: users ask for a person after a correct refusal as well as after a failure

_RETRIES = frozenset({"retry", "regenerate", "rerun", "try_again"})
_HANDOFFS = frozenset({"escalation", "escalate", "escalated", "handoff", "handover", "human_takeover"})
_VALUE = re.compile(r"[^\s,;:!?()\u3002\uff0c\uff01\uff1f]*\d[^\s,;:!?()\u3002\uff0c\uff01\uff1f]*")

Again = Literal["retry", "correction", "rephrase"]


def retry(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The same request was made again in the same words, or the application recorded that an answer was regenerated."""
    del cfg
    rows = _asked_again("retry", episodes, steps, events)
    for episode, feedback in human_feedback(episodes, events, _RETRIES.__contains__):
        rows.add(episode, -1.0, [event for _, event in feedback])
    return rows.frame()


def rephrase(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The user repeated the request in other words.

    Two turns are one request if their 3-grams' cosine is 0.6 or more, the agent acted between them, they lie within
    ten minutes (where the log has times), and nothing was adopted between them.
    """
    del cfg
    return _asked_again("rephrase", episodes, steps, events).frame()


def correction(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The user rejected or corrected the answer, or made the same request with another value in it."""
    del cfg
    return _asked_again("correction", episodes, steps, events).frame()


def _asked_again(kind: Again, episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame) -> ReactionRows:
    rows = ReactionRows(kind, "followup", version=4 if kind == "rephrase" else 3)
    adoptions = human_feedback(episodes, events, ADOPTIONS.__contains__)
    adopted_at = {episode: [event.ts for _, event in feedback if event.ts] for episode, feedback in adoptions}
    for episode, turns in user_turns(episodes, steps, events).items():
        for n, turn in enumerate(turns):
            if not turn.reaction:
                continue
            rejecting, score = _again(turns[max(0, n - REPHRASE_OF_LAST) : n + 1], kind, adopted_at.get(episode, []))
            if rejecting is not None:
                rows.add(episode, score, [turn.evidence], step=rejecting.after_step, answered=turn.answered)
    return rows


def _again(turns: list[Turn], kind: Again, adopted_at: list[datetime]) -> tuple[Turn | None, float]:
    """Return the turn after the answer that the last turn comes back to, if it does in this way, and the vote on it."""
    *earlier, turn = turns
    if expresses("correction", turn.text):
        return (turn if kind == "correction" else None), -1.0
    for before in earlier:
        if _way(before.text, turn.text) == kind and _repeats(before, turn, adopted_at):
            following = next(later for later in turns if later.before_step > before.before_step)
            return following, CHANGED_VALUE if kind == "correction" else -1.0
    return None, 0.0


def _way(before: str, after: str) -> Again:
    one, other = before.split(), after.split()
    if one == other:
        return "retry"
    values, others = set(_VALUE.findall(before)), set(_VALUE.findall(after))
    return "correction" if values - others and others - values else "rephrase"


def _repeats(before: Turn, turn: Turn, adopted_at: list[datetime]) -> bool:
    if before.before_step == turn.before_step or _is_short(before.text) or _is_short(turn.text):
        return False
    start, end = before.evidence.ts, turn.evidence.ts
    if start and end and (end - start > REPHRASE_WITHIN or any(start <= at <= end for at in adopted_at)):
        return False
    return trigram_cosine(before.text, turn.text) >= REPHRASED


@lru_cache(maxsize=64)  # each turn is compared with several others in a row
def _is_short(text: str) -> bool:
    letters = (1 if letter.isascii() else 2 for letter in text[: 4 * REPHRASE_LETTERS] if letter.isalnum())
    return sum(letters) < REPHRASE_LETTERS


def escalate(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The application recorded a handover to a person (-1), or the user asked for one and got none (-0.5).

    A handover by the agent, asked for or not, is not a vote: its rules may demand it.
    """
    del cfg
    rows = SignalRows("escalate", "followup", version=2)
    handed = {key for key, path in by_episode(steps) for step in path if any(map(is_handoff, step.tool_names))}
    recorded = dict(human_feedback(episodes, events, _HANDOFFS.__contains__))
    for episode, feedback in recorded.items():
        rows.add(episode, -1.0, [event for _, event in feedback])
    for episode, turns in user_turns(episodes, steps, events).items():
        asked = [turn.evidence for turn in turns if turn.reaction and expresses("human", turn.text)]
        if asked and episode not in handed and episode not in recorded:
            rows.add(episode, ASKED_FOR_A_PERSON, asked)
    return rows.frame()


def abandon(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The log ends in the middle of a plan: a call was never answered, or failed and nothing came after it.

    A call without a result counts only where results are events of their own: a log of requests and responses never
    holds the last call's result. A call that is the answer (`final_result`, `finish`) waits for none.
    """
    del cfg
    rows, times = SignalRows("abandon", "exit", version=2), times_of(events)
    formats = events.filter(pl.col("kind") == EventKind.TOOL_RESULT)["source_format"].unique()
    visible = set(episodes.filter(pl.col("source_format").is_in(formats.implode()))["episode_id"].to_list())
    stopped = dict(episodes.select("episode_id", "stop_reason").iter_rows())
    for episode, path in by_episode(steps):
        last, reason = path[-1], stopped.get(episode[0])
        failed = reason == StopReason.TOOL_RESULT and ToolStatus.FAILED.value in last.tool_status
        pending = reason == StopReason.TOOL_PENDING and not all(map(is_answer, last.tool_names))
        if failed or (pending and episode[0] in visible):
            rows.add(episode, -1.0, proof(last, times))
    return rows.frame()
