"""Signals from what users did with the answer and from what they felt: adoption, edits, undoing, complaints, thanks.

In: episodes, steps, events. Out: rows of `Reward`, one signal a function (see `extensions.Signal`). Silence never
votes: a user who leaves after an answer may be content or not. A judgement that names a step judges that step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from flywheel.stages.signals.dialogue import user_turns
from flywheel.stages.signals.evidence import Targets, by_episode
from flywheel.stages.signals.lexicon import fold, says
from flywheel.stages.signals.likeness import edit_share
from flywheel.stages.signals.ratings import is_rating
from flywheel.stages.signals.rows import Opinions, people_said

if TYPE_CHECKING:
    import polars as pl

    from flywheel.config import RewardsConfig

RETAINED = 0.2  # an accepted text changed by no more than this share was kept
COURTESY = 0.5  # what bare thanks are worth
HEAVY = 0.6  # changed by this share or more, it was replaced

ADOPTIONS = frozenset({"export", "copy", "apply", "download", "merge", "send", "accept", "insert", "save"})
_RETENTIONS = frozenset({"retained", "retention", "kept", "persisted"})
_REVERTS = frozenset({"undo", "revert", "reject", "discard", "rollback", "rewind"})
_COMPLAINTS = frozenset({"complaint", "report", "ticket"})


def adopted(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The user exported, copied, applied, sent or otherwise took what the agent made."""
    del cfg
    found, targets = Opinions("adopted", "adoption"), Targets(steps, events)
    for episode, said in people_said(episodes, events, ADOPTIONS.__contains__):
        for _, one in said:
            found.add(episode, 1.0, [one], step=targets.step(episode, one.payload))
    return found.frame()


def undo(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The user took back what the agent made: undid, reverted, rejected or discarded it, or said to undo it."""
    del cfg
    found, targets, answers = Opinions("undo", "adoption"), Targets(steps, events), _answers(steps)
    for episode, said in people_said(episodes, events, _REVERTS.__contains__):
        for _, one in said:
            target = targets.step(episode, one.payload)
            last = max(answers.get(episode[0], {}), default=None)
            found.add(episode, -1.0, [one], step=target if target is not None else last)
    for episode, turns in user_turns(episodes, steps, events).items():
        for turn in turns:
            if turn.reaction and says("undo", turn.text):
                found.add(episode, -1.0, [turn.said], step=max(turn.before_step - 1, 0))
    return found.frame()


def user_edit(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """What became of an accepted text: kept (at most 0.2 of it changed) is +1, replaced (0.6 or more) -1.

    Anything between abstains. The text is compared with the step that the feedback names, else with the last answer
    that the agent gave. `retained` with the share that was still there later says the same without the text.
    """
    del cfg
    found, targets = Opinions("user_edit", "adoption", version=2), Targets(steps, events)
    answers = _answers(steps)
    for episode, said in people_said(episodes, events, lambda name: name == "edit" or name in _RETENTIONS):
        written = answers.get(episode[0], {})
        for name, one in said:
            target = targets.step(episode, one.payload)
            step = target if target is not None else max(written, default=None)
            before = "" if step is None else written.get(step, "")
            score = (
                _still_there(one.payload.get("value"))
                if name in _RETENTIONS
                else _kept(before, one.payload.get("text"))
            )
            if score is not None:
                found.add(episode, score, [one], step=step)
    return found.frame()


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


def _answers(steps: pl.DataFrame) -> dict[str, dict[int, str]]:
    """Return what each step wrote, by episode and step: its text, or else the arguments of its call."""
    found: dict[str, dict[int, str]] = {}
    for episode_id, index, action in steps.select("episode_id", "index", "action").iter_rows():
        message = orjson.loads(action)
        calls = message.get("tool_calls") or []
        text = message.get("content") or (orjson.dumps(calls[0].get("arguments")).decode() if calls else "")
        if isinstance(text, str) and text.strip():
            found.setdefault(episode_id, {})[index] = text
    return found


def complaint(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The user complained, in a turn, in a comment or by a report."""
    told = cfg.score_names
    found = Opinions("complaint", "sentiment_neg", version=2)
    for episode, turns in user_turns(episodes, steps, events).items():
        for turn in turns:
            if turn.reaction and says("complaint", turn.text):
                found.add(episode, -1.0, [turn.said])
    by_name = _COMPLAINTS | {"comment", *told}
    for episode, said in people_said(episodes, events, lambda name: name in by_name or is_rating(name)):
        for name, one in said:
            words = fold(" ".join(str(one.payload.get(key) or "") for key in ("comment", "text")))
            if name in _COMPLAINTS or says("complaint", words):
                found.add(episode, -1.0, [one])
    return found.frame()


def thanks(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The user praised (+1) or thanked (+0.5) when the work was over: no call came after it, and it was no complaint.

    Bare thanks are how people say goodbye, so they are half a vote.
    """
    del cfg
    found = Opinions("thanks", "sentiment_pos", version=2)
    over = {key: max((s.step for s in path if s.tool_names), default=-1) for key, path in by_episode(steps)}
    for episode, turns in user_turns(episodes, steps, events).items():
        for turn in turns:
            sour = says("complaint", turn.text) or says("correction", turn.text)
            if turn.reaction and turn.before_step > over.get(episode, -1) and says("thanks", turn.text) and not sour:
                found.add(episode, 1.0 if says("praise", turn.text) else COURTESY, [turn.said])
    return found.frame()
