"""How well success is inferred from signals: with priors, an audit, chosen verdicts; and how fast a large log is fit.

python benchmarks/belief.py [--large EPISODES]

Worlds are simulated with known truth: ten signals of six families as agents' logs have them, mostly silent and mostly
one-sided; in the second world half of the users speak much more than the others, whatever they got. The second table
has a verifier that looks at some episodes only: at random, by outcome, or where somebody complained.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from flywheel.config import RewardsConfig
from flywheel.funnel import Funnel
from flywheel.stages.labelling.build import build_reliability
from flywheel.stages.labelling.posterior import Posterior, Vote
from flywheel.stats.calibration import expected_calibration_error

# signal, family, vote, P(votes | success), P(votes | failure), whether talkative users vote more
SIGNALS = (
    ("adopted", "adoption", 1, 0.45, 0.06, True),
    ("user_edit", "adoption", -1, 0.01, 0.08, True),
    ("complaint", "sentiment_neg", -1, 0.01, 0.20, True),
    ("thumbs", "sentiment_neg", -1, 0.005, 0.06, True),
    ("thanks", "sentiment_pos", 1, 0.20, 0.08, True),
    ("rephrase", "followup", -1, 0.08, 0.35, True),
    ("escalate", "followup", -1, 0.01, 0.10, True),
    ("tool_error", "exec", -1, 0.03, 0.20, False),
    ("loop", "exec", -1, 0.02, 0.10, False),
    ("abandon", "exit", -1, 0.02, 0.06, False),
)
SUCCESSES = 0.7
AUDITED = 200
EVEN = 0.5

Bools = npt.NDArray[np.bool_]


def world(n: int, *, talkative: bool, seed: int = 0) -> tuple[Bools, Bools]:
    """Return the truth of n episodes and who voted (n, signals)."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < SUCCESSES
    loud = np.where(rng.random(n) < EVEN, 0.3, 1.7) if talkative else np.ones(n)
    votes = [
        rng.random(n) < np.where(truth, good, bad) * (loud if moved else 1.0) for _, _, _, good, bad, moved in SIGNALS
    ]
    return truth, np.stack(votes, axis=1)


def tables(
    truth: Bools, voted: Bools, audited: int, verified: Bools | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return episodes and rewards; the first `audited` have a reviewer's answer, the verified ones a verdict."""
    n = len(truth)
    empty = {"user": None, "started": None, "ended": None}
    episodes = pl.select(episode_id=pl.int_range(n).cast(pl.String).str.zfill(32)).with_columns(
        policy=pl.lit("p"),
        source_format=pl.lit("native"),
        tags=pl.lit([], dtype=pl.List(pl.String)),
        **{k: pl.lit(v) for k, v in empty.items()},
    )
    episodes = episodes.with_columns(
        pl.col("started", "ended").cast(pl.Datetime("us", "UTC")), pl.col("user").cast(str)
    )
    parts = [
        _rewards(episodes["episode_id"].filter(pl.Series(voted[:, j])), name, family, "implicit", float(sign))
        for j, (name, family, sign, *_) in enumerate(SIGNALS)
    ]
    for value in (True, False):
        told = episodes["episode_id"][:audited].filter(pl.Series(truth[:audited] == value))
        parts.append(_rewards(told, "audit", "audit", "outcome", 1.0 if value else -1.0, audited / n))
        if verified is not None:
            seen = episodes["episode_id"].filter(pl.Series(verified & (truth == value)))
            parts.append(_rewards(seen, "outcome", "verifier", "outcome", 1.0 if value else -1.0))
    return episodes, pl.concat(parts)


def _rewards(ids: pl.Series, *said: Any) -> pl.DataFrame:
    signal, family, kind, score, *inclusion = said
    return pl.DataFrame({"episode_id": ids}).with_columns(
        step=pl.lit(None, dtype=pl.Int64),
        signal=pl.lit(signal),
        family=pl.lit(family),
        kind=pl.lit(kind),
        score=pl.lit(score),
        weight=pl.lit(1.0),
        arrived=pl.lit(None, dtype=pl.Datetime("us", "UTC")),
        inclusion=pl.lit(inclusion[0] if inclusion else None, dtype=pl.Float64),
    )


def learned(truth: Bools, voted: Bools, audited: int, fit: str, verified: Bools | None = None) -> Posterior:
    """Return what the stage learns from the tables."""
    episodes, rewards = tables(truth, voted, audited, verified)
    cfg = RewardsConfig.model_validate({"fit": fit})
    return Posterior.read(build_reliability(episodes, rewards, cfg, None, Funnel()))


def scored(belief: Posterior, voted: Bools) -> npt.NDArray[np.float64]:
    """Return P(success) of each episode, by its pattern."""
    patterns, where = np.unique(voted, axis=0, return_inverse=True)
    votes = [[Vote(s[0], s[1], float(s[2]), 1.0) for s, on in zip(SIGNALS, row, strict=True) if on] for row in patterns]
    return np.array([belief.success(given) for given in votes])[where.reshape(-1)]


def errors(n: int) -> Iterator[str]:
    """Yield a line for each world and way of learning: ECE and accuracy on episodes with a vote."""
    for talkative in (False, True):
        truth, voted = world(n, talkative=talkative)
        ways = (("priors", 0, "never"), ("fit without truth", 0, "always"), (f"{AUDITED} audited", AUDITED, "gold"))
        for name, audited, fit in ways:
            p = scored(learned(truth, voted, audited, fit), voted)
            rest = voted.any(axis=1) & (np.arange(n) >= audited)
            error = expected_calibration_error(p[rest].tolist(), truth[rest].tolist())
            right = float(((p[rest] > EVEN) == truth[rest]).mean())
            yield f"{'talkative users' if talkative else 'users alike':16} {name:18} ECE {error:.3f}  right {right:.3f}"


# name, P(a verdict | success), P(a verdict | failure), audited; None: only where a complaint is, and 2 % of the rest
VERIFIERS = (
    ("no verdict", 0.0, 0.0, 0),
    ("10 % at random", 0.1, 0.1, 0),
    ("5 % / 15 %", 0.05, 0.15, 0),
    ("2 % / 30 %", 0.02, 0.3, 0),
    ("30 % / 2 %", 0.3, 0.02, 0),
    ("complaints and 2 %", None, None, 0),
    ("2 % / 30 %, audit", 0.02, 0.3, AUDITED),
    ("30 % / 2 %, audit", 0.3, 0.02, AUDITED),
    ("complaints and 2 %, audit", None, None, AUDITED),
)


def verdicts(truth: Bools, voted: Bools, good: float | None, bad: float | None, seed: int) -> Bools:
    """Return which episodes a verifier looks at."""
    rng = np.random.default_rng([seed, 1])
    if good is None or bad is None:
        complaint = [name for name, *_ in SIGNALS].index("complaint")
        return rng.random(len(truth)) < np.where(voted[:, complaint], 0.8, 0.02)
    return rng.random(len(truth)) < np.where(truth, good, bad)


def auc(p: npt.NDArray[np.float64], truth: Bools) -> float:
    """Return the share of (success, failure) pairs in the right order, ties counted half."""
    _, place, count = np.unique(p, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    n, m = int(truth.sum()), int((~truth).sum())
    return float((ranks[truth].sum() - n * (n + 1) / 2) / (n * m))


def chosen_verdicts(n: int, seeds: int = 3) -> Iterator[str]:
    """Yield a line for each way of choosing whom to verify: the class prior, AUC and ECE on the other episodes."""
    for talkative in (False, True):
        for name, good, bad, audited in VERIFIERS:
            rows = []
            for seed in range(seeds):
                truth, voted = world(n, talkative=talkative, seed=seed)
                seen = verdicts(truth, voted, good, bad, seed)
                belief = learned(truth, voted, audited, "gold", seen)
                p = scored(belief, voted)
                rest = ~seen & (np.arange(n) >= audited)
                loud = rest & voted.any(axis=1)
                ece = [expected_calibration_error(p[m].tolist(), truth[m].tolist()) for m in (loud, rest)]
                rows.append((belief.prior("all"), auc(p[rest], truth[rest]), *ece))
            prior, area, voting, everyone = np.mean(rows, axis=0)
            yield (
                f"{'talkative users' if talkative else 'users alike':16} {name:26} prior {prior:.2f}  AUC {area:.3f}  "
                f"ECE {voting:.3f} with a vote, {everyone:.3f} on all"
            )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", type=int, default=1_000_000)
    large = parser.parse_args().large
    for line in (*errors(20_000), *chosen_verdicts(20_000)):
        print(line, flush=True)
    truth, voted = world(large, talkative=True)
    episodes, rewards = tables(truth, voted, AUDITED)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    build_reliability(episodes, rewards, RewardsConfig(), None, Funnel())
    took = time.monotonic() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{large:,} episodes, {rewards.height:,} votes: learned in {took:.1f} s, {grown:.0f} MB more memory")


if __name__ == "__main__":
    main()
