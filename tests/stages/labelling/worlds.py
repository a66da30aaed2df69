"""Worlds of episodes with known truth, drawn with a seed: votes by rates, and who was verified or audited."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from flywheel.config import RewardsConfig
from flywheel.contracts import polars_schema
from flywheel.funnel import Funnel
from flywheel.records import Episode, Reward
from flywheel.stages.labelling.build import build_reliability

Bools = npt.NDArray[np.bool_]
# signal, family, sign, P(votes | success), P(votes | failure)
RATES = (
    ("adopted", "adoption", 1, 0.45, 0.06),
    ("complaint", "sentiment_neg", -1, 0.01, 0.20),
    ("rephrase", "followup", -1, 0.08, 0.35),
    ("tool_error", "exec", -1, 0.03, 0.20),
)
Rates = Sequence[tuple[str, str, int, float, float]]


class Source:
    """Episodes of one source: their truth, and who voted."""

    def __init__(self, n: int, successes: float, *, name: str = "app", rates: Rates = RATES, seed: int = 0) -> None:
        rng = np.random.default_rng([seed, n])
        self.name, self.rates, self.rng = name, rates, rng
        self.truth: Bools = rng.random(n) < successes
        self.voted: Bools = np.stack([rng.random(n) < np.where(self.truth, a, b) for *_, a, b in rates], axis=1)
        self.verified = np.zeros(n, dtype=bool)
        self.audited = np.zeros(n, dtype=bool)

    def verify(self, after_success: float, after_failure: float) -> Source:
        """Give verdicts by what became of the episodes."""
        self.verified = self.rng.random(len(self.truth)) < np.where(self.truth, after_success, after_failure)
        return self

    def verify_voted(self, signal: str, share: float, others: float) -> Source:
        """Give verdicts where a signal voted."""
        voted = self.voted[:, [name for name, *_ in self.rates].index(signal)]
        self.verified = self.rng.random(len(self.truth)) < np.where(voted, share, others)
        return self

    def audit(self, n: int) -> Source:
        """Give n reviewers' answers, to episodes drawn at random."""
        self.audited[:n] = True
        return self

    @property
    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Episodes and rewards."""
        n = len(self.truth)
        ids = [f"{self.name}{i:05d}" for i in range(n)]
        fixed = {
            "policy": "p",
            "source_format": self.name,
            "tags": [],
            "task_id": "t",
            "n_steps": 1,
            "n_tool_errors": 0,
        }
        episodes = pl.DataFrame([{"episode_id": i} | fixed for i in ids], schema=polars_schema(Episode))
        rows = []
        for j, (signal, family, sign, *_) in enumerate(self.rates):
            rows += [_row(ids[i], signal, family, "implicit", sign) for i in np.flatnonzero(self.voted[:, j])]
        for family, mask in (("verifier", self.verified), ("audit", self.audited)):
            signal, share = ("outcome", None) if family == "verifier" else ("audit", float(self.audited.mean()))
            rows += [
                _row(ids[i], signal, family, "outcome", 1 if self.truth[i] else -1) | {"inclusion": share}
                for i in np.flatnonzero(mask)
            ]
        return episodes, pl.DataFrame(rows, schema=polars_schema(Reward))


def _row(episode: str, signal: str, family: str, kind: str, score: float) -> dict[str, object]:
    return {
        "episode_id": episode, "task_id": "t", "signal": signal, "family": family, "kind": kind, "score": float(score),
        "weight": 1.0, "evidence": [], "signal_version": 1,
    }  # fmt: skip


def reliability(*sources: Source) -> pl.DataFrame:
    """Return what the stage learns of a log with these sources."""
    frames = [source.frames for source in sources]
    episodes, rewards = (pl.concat(parts) for parts in zip(*frames, strict=True))
    return build_reliability(episodes, rewards, RewardsConfig(), None, Funnel())
