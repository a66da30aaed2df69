"""Signals from what users did and said: ratings, adoption, edits, complaints, thanks, rephrasing, escalation, leaving.

In: episodes, steps, events. Out: rows of `Reward`, one signal a function (see `extensions.Signal`). Silence never
votes: a user who leaves after an answer may be content or not. A judgement that names a step judges that step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from flywheel.records import EventKind, StopReason, ToolStatus
from flywheel.stages.rewards.dialogue import EpisodeKey, Turn, user_turns
from flywheel.stages.rewards.lexicon import fold, says
from flywheel.stages.rewards.likeness import edit_share, trigram_cosine
from flywheel.stages.rewards.opinions import Opinions, Said, judgements, scaled
from flywheel.stages.rewards.targets import Targets, by_episode, is_handoff, proof, times_of

if TYPE_CHECKING:
    import polars as pl

    from flywheel.config import RewardsConfig

__all__ = ["abandon", "adopted", "complaint", "escalate", "rephrase", "thanks", "thumbs", "user_edit"]

RETAINED = 0.2  # an accepted text changed by no more than this share was kept
HEAVY = 0.6  # changed by this share or more, it was replaced
REPHRASED = 0.6  # cosine of 3-grams from which two requests are one
REPHRASE_WITHIN = timedelta(minutes=10)
REPHRASE_LETTERS = 12  # shorter turns ("yes please") are alike by chance; a Chinese character counts as two
REPHRASE_OF_LAST = 5  # earlier turns that a turn is compared with
BEST_STARS = 5

_RATINGS = {
    "thumbs",
    "thumbs_up",
    "thumbs_down",
    "rating",
    "score",
    "like",
    "dislike",
    "user_feedback",
    "csat",
    "stars",
}
_STARS = {"stars", "csat"}
_ADOPTIONS = {"export", "copy", "apply", "download", "merge", "send", "accept", "insert", "save"}
_REVERTS = {"undo", "revert", "reject", "discard"}
_RETRIES = {"retry", "regenerate", "rerun"}
_COMPLAINTS = {"complaint", "report", "ticket"}
_HANDOFFS = {"escalation", "escalate", "handoff", "handover", "human_takeover"}
_GOOD = {"up", "thumbs_up", "positive", "good", "like", "true", "yes", "correct", "helpful"}
_BAD = {"down", "thumbs_down", "negative", "bad", "dislike", "false", "no", "incorrect", "unhelpful"}


def _given(
    episodes: pl.DataFrame, events: pl.DataFrame, names: set[str]
) -> Iterator[tuple[EpisodeKey, list[tuple[str, Said]]]]:
    """Yield each episode's feedback of these names that people gave, oldest first; judges and code do not count."""
    for episode, said in sorted(judgements(episodes, events, "feedback").items()):
        named = [(str(one.payload.get("name") or "").lower().replace("-", "_"), one) for one in said]
        wanted = [
            (name, one) for name, one in named if name in names and one.payload.get("annotator") not in {"llm", "code"}
        ]
        if wanted:
            yield episode, wanted


def thumbs(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """Thumbs, stars and scores that users gave, scaled to [-1, 1]; the latest one about each thing counts.

    Good and bad ratings are two families: praise is cheap and can be farmed, a thumb down is not.
    """
    del cfg
    found, targets = Opinions("thumbs", "sentiment_pos"), Targets(steps, events)
    for episode, said in _given(episodes, events, _RATINGS | _STARS):
        latest: dict[int | None, tuple[float, Said]] = {}
        for name, one in said:
            score = _rating(name, one.payload)
            if score is not None:
                latest[targets.step(episode, one.payload)] = score, one
        for step, (score, one) in latest.items():
            if score:
                found.add(episode, score, [one], step=step, family="sentiment_pos" if score > 0 else "sentiment_neg")
    return found.frame()


def _rating(name: str, payload: Mapping[str, Any]) -> float | None:
    if name in {"thumbs_down", "dislike"}:
        return -1.0
    value, label = payload.get("value"), str(payload.get("label") or "").strip().lower()
    if label in _GOOD or label in _BAD:
        return 1.0 if label in _GOOD else -1.0
    if payload.get("scale") or not isinstance(value, int | float):
        return 1.0 if value is None and name in {"thumbs_up", "like"} else scaled(payload)
    return _unscaled(name, value)


def _unscaled(name: str, value: float) -> float | None:
    """Read a bare number: -1 to 1 around zero, 0 to 1, or one to five stars; a rating of 1 could be either end."""
    if value < 0:
        return float(value) if value >= -1 else None
    if name in _STARS or value > 1:
        return (max(value, 1.0) - 3) / 2 if value <= BEST_STARS else None
    return None if name == "rating" and value == 1 else 2.0 * value - 1


def adopted(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The user exported, copied, applied, sent or otherwise took what the agent made."""
    del cfg
    found, targets = Opinions("adopted", "adoption"), Targets(steps, events)
    for episode, said in _given(episodes, events, _ADOPTIONS):
        for _, one in said:
            found.add(episode, 1.0, [one], step=targets.step(episode, one.payload))
    return found.frame()


def user_edit(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """What became of an accepted text: kept (at most 0.2 of it changed) is +1, replaced (0.6 or more) or undone -1.

    Anything between abstains. The text is compared with the step that the feedback names, else with the last answer
    that the agent gave.
    """
    del cfg
    found, targets = Opinions("user_edit", "adoption"), Targets(steps, events)
    answers = _answers(steps)
    for episode, said in _given(episodes, events, {"edit", *_REVERTS}):
        written = answers.get(episode[0], {})
        for name, one in said:
            target = targets.step(episode, one.payload)
            step = target if target is not None else max(written, default=None)
            before = "" if step is None else written.get(step, "")
            score = -1.0 if name in _REVERTS else _kept(before, one.payload.get("text"))
            if score is not None:
                found.add(episode, score, [one], step=step)
    return found.frame()


def _kept(before: str, after: Any) -> float | None:
    if not isinstance(after, str) or not before.strip():
        return None
    share = edit_share(before, after)
    if share <= RETAINED:
        return 1.0
    return -1.0 if share >= HEAVY else None


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
    del cfg
    found = Opinions("complaint", "sentiment_neg")
    for episode, turns in user_turns(episodes, steps, events).items():
        for turn in turns:
            if turn.reaction and says("complaint", turn.text):
                found.add(episode, -1.0, [turn.said])
    for episode, said in _given(episodes, events, _COMPLAINTS | _RATINGS | _STARS | {"comment"}):
        for name, one in said:
            words = fold(" ".join(str(one.payload.get(key) or "") for key in ("comment", "text")))
            if name in _COMPLAINTS or says("complaint", words):
                found.add(episode, -1.0, [one])
    return found.frame()


def thanks(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The user thanked or praised when the work was over: no call came after it, nor was it a complaint as well."""
    del cfg
    found = Opinions("thanks", "sentiment_pos")
    over = {key: max((s.step for s in path if s.tool_names), default=-1) for key, path in by_episode(steps)}
    for episode, turns in user_turns(episodes, steps, events).items():
        for turn in turns:
            sour = says("complaint", turn.text) or says("correction", turn.text)
            if turn.reaction and turn.before_step > over.get(episode, -1) and says("thanks", turn.text) and not sour:
                found.add(episode, 1.0, [turn.said])
    return found.frame()


def rephrase(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The user said it again in other words, corrected the agent, or asked for another try.

    Two turns are one request if their 3-grams' cosine is 0.6 or more, the agent acted between them, they lie within
    ten minutes (where the log has times), and nothing was adopted between them.
    """
    del cfg
    found = Opinions("rephrase", "followup")
    taken = {e: [one.ts for _, one in said if one.ts] for e, said in _given(episodes, events, _ADOPTIONS)}
    for episode, turns in user_turns(episodes, steps, events).items():
        for n, turn in enumerate(turns):
            earlier = turns[max(0, n - REPHRASE_OF_LAST) : n]
            again = any(_says_again(before, turn, taken.get(episode, [])) for before in earlier)
            if turn.reaction and (again or says("correction", turn.text)):
                found.add(episode, -1.0, [turn.said])
    for episode, said in _given(episodes, events, _RETRIES):
        found.add(episode, -1.0, [one for _, one in said])
    return found.frame()


def _says_again(before: Turn, turn: Turn, taken: list[datetime]) -> bool:
    if before.before_step == turn.before_step or _is_short(before.text) or _is_short(turn.text):
        return False
    start, end = before.said.ts, turn.said.ts
    if start and end and (end - start > REPHRASE_WITHIN or any(start <= at <= end for at in taken)):
        return False
    return trigram_cosine(before.text, turn.text) >= REPHRASED


@lru_cache(maxsize=64)  # each turn is compared with several others in a row
def _is_short(text: str) -> bool:
    letters = (1 if letter.isascii() else 2 for letter in text[: 4 * REPHRASE_LETTERS] if letter.isalnum())
    return sum(letters) < REPHRASE_LETTERS


def escalate(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The matter went to a human: the user asked for one, the agent handed over, or the application says so."""
    del cfg
    found, times = Opinions("escalate", "followup"), times_of(events)
    for episode, path in by_episode(steps):
        for step in path:
            if any(map(is_handoff, step.tool_names)):
                found.add(episode, -1.0, proof(step, times))
    for episode, turns in user_turns(episodes, steps, events).items():
        for turn in turns:
            if turn.reaction and says("human", turn.text):
                found.add(episode, -1.0, [turn.said])
    for episode, said in _given(episodes, events, _HANDOFFS):
        found.add(episode, -1.0, [one for _, one in said])
    return found.frame()


def abandon(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The log ends in the middle of a plan: a call was never answered, or failed and nothing came after it.

    A call without a result says so only where results are events of their own: a log of requests and responses can
    never show what the last call gave.
    """
    import polars as pl

    del cfg
    found, times = Opinions("abandon", "exit"), times_of(events)
    shown = events.filter(pl.col("kind") == EventKind.TOOL_RESULT)["source_format"].unique()
    visible = set(episodes.filter(pl.col("source_format").is_in(shown.implode()))["episode_id"].to_list())
    stopped = dict(episodes.select("episode_id", "stop_reason").iter_rows())
    for episode, path in by_episode(steps):
        last, reason = path[-1], stopped.get(episode[0])
        failed = reason == StopReason.TOOL_RESULT and ToolStatus.FAILED.value in last.tool_status
        if failed or (reason == StopReason.TOOL_PENDING and episode[0] in visible):
            found.add(episode, -1.0, proof(last, times))
    return found.frame()
