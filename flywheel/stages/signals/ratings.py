"""The signal from ratings that users gave: thumbs, stars and scores, under whatever name the logger writes them.

In: feedback events. Out: rows of `Reward`. A name is a rating by its words (`user_score`, `star_rating`, `wasHelpful`);
any other name, scale or direction is set in `[rewards.score_names]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flywheel.config import RewardsConfig
from flywheel.config.rewards import ScoreNames
from flywheel.reading.feedback import is_rating, plain_name
from flywheel.stages.signals.evidence import Targets
from flywheel.stages.signals.rows import Evidence, SignalRows, human_feedback, scaled

if TYPE_CHECKING:
    import polars as pl

# Words of questions that are answered with yes or no. Under any other name a bare 1 may be one star of five.
_YES_OR_NO = frozenset({
    "thumb", "thumbs", "like", "liked", "helpful", "satisfied", "happy", "up", "is", "was", "vote", "reaction",
    "binary",
})  # fmt: skip
_STARS = frozenset({"star", "stars", "csat"})
_BEST_STARS, _BEST_NPS = 5, 10
_GOOD = {
    "up", "thumbs_up", "positive", "good", "like", "true", "yes", "correct", "helpful", "satisfied",
    "\U0001f44d", "\u8d5e", "\u6ee1\u610f", "\u597d\u8bc4",
}  # fmt: skip
_BAD = {
    "down", "thumbs_down", "negative", "bad", "dislike", "false", "no", "incorrect", "unhelpful", "unsatisfied",
    "dissatisfied", "\U0001f44e", "\u8e29", "\u4e0d\u6ee1\u610f", "\u5dee\u8bc4",
}  # fmt: skip
_AGAINST = frozenset({"thumbs_down", "thumb_down", "dislike", "disliked", "unhelpful", "was_unhelpful"})


def thumbs(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """Thumbs, stars and scores that users gave, scaled to [-1, 1]; the latest one about each thing counts.

    Good and bad ratings are two families: praise is cheap and can be farmed, a thumb down is not.
    """
    names = cfg.score_names
    rows, targets = SignalRows("thumbs", "sentiment_pos", version=4), Targets(steps, events)
    for episode, feedback in human_feedback(episodes, events, lambda name: is_rating(name) or name in names):
        latest: dict[int | None, tuple[float, Evidence]] = {}
        for name, event in feedback:
            score = _rating(name, event.payload, names)
            if score is not None:
                latest[targets.step(episode, event.payload)] = score, event
        for step, (score, event) in latest.items():
            if score:
                rows.add(episode, score, [event], step=step, family="sentiment_pos" if score > 0 else "sentiment_neg")
    return rows.frame()


def _rating(name: str, payload: Mapping[str, Any], names: ScoreNames) -> float | None:
    if name in names:
        return scaled(payload, ends=names[name])
    given = str(payload.get("label") or "").strip()
    label = plain_name(given) or given  # an emoji has no letters
    value = payload.get("value")
    if name in _AGAINST:
        return None if value == 0 or label in _BAD else -1.0  # "dislike: no" is not praise
    if label in _GOOD or label in _BAD:
        return 1.0 if label in _GOOD else -1.0
    if payload.get("scale") or not isinstance(value, int | float):
        return 1.0 if value is None and name in {"thumbs_up", "like"} else scaled(payload)
    return _unscaled(name, value)


def _unscaled(name: str, value: float) -> float | None:
    """Read a bare number: -1 to 1 around zero, 0 to 1, or one to five stars; a score of 1 could be either end."""
    words = set(name.split("_"))
    if value < 0:
        return float(value) if value >= -1 else None
    if "nps" in words:
        return value / _BEST_NPS * 2 - 1 if value <= _BEST_NPS else None
    if words & _STARS or value > 1:
        return (max(value, 1.0) - 3) / 2 if value <= _BEST_STARS else None
    return None if value == 1 and not words & _YES_OR_NO else 2.0 * value - 1
