"""Signals from users' reactions to an answer: adoption, edits, undoing, complaints, thanks.

In: episodes, steps, events. Out: rows of `Reward`, one signal a function (see `extensions.Signal`). Silence never
votes: a user who leaves after an answer may be content or not. Feedback that names a step is a vote on that step.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import orjson

from flywheel.config import RewardsConfig
from flywheel.reading.feedback import is_rating
from flywheel.stages.signals.dialogue import EpisodeKey, user_turns
from flywheel.stages.signals.evidence import Targets, by_episode
from flywheel.stages.signals.lexicon import expresses, fold
from flywheel.stages.signals.likeness import edit_share
from flywheel.stages.signals.rows import ReactionRows, SignalRows, human_feedback

if TYPE_CHECKING:
    import polars as pl

RETAINED = 0.2  # an accepted text changed by no more than this share was kept
COURTESY = 0.5  # the vote of bare thanks
HEAVY = 0.6  # changed by this share or more, it was replaced

ADOPTIONS = frozenset({"export", "copy", "apply", "download", "merge", "send", "accept", "insert", "save"})
_RETENTIONS = frozenset({"retained", "retention", "kept", "persisted"})
_REVERTS = frozenset({"undo", "revert", "reject", "discard", "rollback", "rewind"})
_REFUSALS = frozenset({"reject", "discard"})  # of a call that is proposed, before it runs
_COMPLAINTS = frozenset({"complaint", "report", "ticket"})


def adopted(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The user exported, copied, applied, sent or otherwise took the agent's output."""
    del cfg
    rows, targets = SignalRows("adopted", "adoption"), Targets(steps, events)
    for episode, feedback in human_feedback(episodes, events, ADOPTIONS.__contains__):
        for _, event in feedback:
            rows.add(episode, 1.0, [event], step=targets.step(episode, event.payload))
    return rows.frame()


def undo(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The user took back the agent's output: undid, reverted, rejected or discarded it, or asked to undo it.

    One refused call among many does not undo a session that went on: its vote weighs as much as the refused calls are a
    share of all steps with calls. A refusal of the last of them weighs fully.
    """
    del cfg
    rows, targets = SignalRows("undo", "adoption", version=2), Targets(steps, events)
    reverts = list(human_feedback(episodes, events, _REVERTS.__contains__))
    reverted = {episode for episode, _ in reverts}
    answers = _answers(steps, reverted)
    paths = by_episode(steps) if reverted else []
    calling = {key: [step.step for step in path if step.tool_names] for key, path in paths if key in reverted}
    for episode, feedback in reverts:
        refused = {targets.step(episode, event.payload) for name, event in feedback if name in _REFUSALS}
        calls = calling.get(episode, [])
        part = len(refused & set(calls)) / len(calls) if calls and calls[-1] not in refused else 1.0
        for name, event in feedback:
            target = targets.step(episode, event.payload)
            last = max(answers.get(episode[0], {}), default=None)
            one_call = name in _REFUSALS and event.payload.get("target") == "call" and target in calls
            step = target if target is not None else last
            rows.add(episode, -1.0, [event], step=step, weight=part if one_call else None)
    for episode, turns in user_turns(episodes, steps, events).items():
        for turn in turns:
            if turn.reaction and expresses("undo", turn.text):
                rows.add(episode, -1.0, [turn.evidence], step=max(turn.before_step - 1, 0))
    return rows.frame()


def user_edit(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The outcome of an accepted text: kept (at most 0.2 of it changed) is +1, replaced (0.6 or more) -1.

    Anything between abstains. The text is compared with the step that the feedback names, else with the agent's last
    answer. `retained` with the share that was still there later is the same vote without the text.
    """
    del cfg
    rows, targets = SignalRows("user_edit", "adoption", version=2), Targets(steps, events)
    edits = list(human_feedback(episodes, events, lambda name: name == "edit" or name in _RETENTIONS))
    answers = _answers(steps, {episode for episode, _ in edits})
    for episode, feedback in edits:
        written = answers.get(episode[0], {})
        for name, event in feedback:
            target = targets.step(episode, event.payload)
            step = target if target is not None else max(written, default=None)
            before = "" if step is None else written.get(step, "")
            score = (
                _still_there(event.payload.get("value"))
                if name in _RETENTIONS
                else _kept(before, event.payload.get("text"))
            )
            if score is not None:
                rows.add(episode, score, [event], step=step)
    return rows.frame()


def _still_there(share: Any) -> float | None:
    if not isinstance(share, int | float) or not 0 <= share <= 1:
        return None
    return _verdict(1.0 - share)


def _kept(before: str, after: Any) -> float | None:
    if not isinstance(after, str) or not before.strip():
        return None
    return _verdict(edit_share(before, after))


def _verdict(changed: float) -> float | None:
    if changed <= RETAINED:
        return 1.0
    return -1.0 if changed >= HEAVY else None


def _answers(steps: pl.DataFrame, wanted: Collection[EpisodeKey]) -> dict[str, dict[int, str]]:
    """Return the output of each step of some episodes, by episode and step: its text, or its call's arguments."""
    answers: dict[str, dict[int, str]] = {}
    asked = steps.filter(steps["episode_id"].is_in([episode_id for episode_id, _ in wanted]))
    for episode_id, index, action in asked.select("episode_id", "index", "action").iter_rows():
        message = orjson.loads(action)
        calls = message.get("tool_calls") or []
        text = message.get("content") or (orjson.dumps(calls[0].get("arguments")).decode() if calls else "")
        if isinstance(text, str) and text.strip():
            answers.setdefault(episode_id, {})[index] = text
    return answers


def complaint(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The user complained, in a turn, in a comment or by a report."""
    rows = ReactionRows("complaint", "sentiment_neg", version=4)
    for episode, turns in user_turns(episodes, steps, events).items():
        for turn in turns:
            if turn.reaction and expresses("complaint", turn.text):
                rows.add(episode, -1.0, [turn.evidence], step=turn.after_step, answered=turn.answered)
    by_name = _COMPLAINTS | {"comment", *cfg.score_names}
    for episode, feedback in human_feedback(episodes, events, lambda name: name in by_name or is_rating(name)):
        for name, event in feedback:
            words = fold(" ".join(str(event.payload.get(key) or "") for key in ("comment", "text")))
            if name in _COMPLAINTS or expresses("complaint", words):
                rows.add(episode, -1.0, [event])
    return rows.frame()


def thanks(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The user praised (+1) or thanked (+0.5) after the last call, without complaining.

    Bare thanks are how people say goodbye, so they are half a vote.
    """
    del cfg
    rows = SignalRows("thanks", "sentiment_pos", version=2)
    last_call = {key: max((s.step for s in path if s.tool_names), default=-1) for key, path in by_episode(steps)}
    for episode, turns in user_turns(episodes, steps, events).items():
        for turn in turns:
            complains = expresses("complaint", turn.text) or expresses("correction", turn.text)
            if (
                turn.reaction
                and turn.before_step > last_call.get(episode, -1)
                and expresses("thanks", turn.text)
                and not complains
            ):
                rows.add(episode, 1.0 if expresses("praise", turn.text) else COURTESY, [turn.evidence])
    return rows.frame()
