"""What the simulations of the gate share: an empty report, rows of paired outcomes, their draws, a candidate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from flywheel.config import GateConfig
from flywheel.extensions import load_extensions
from flywheel.records import EvalReport, GateEvidence, MetricRow, RoundManifest
from flywheel.stages.gate.evidence import BOLD, REUSED, STARTS, over_starts
from flywheel.stats.betting import log_e, transcript_bits
from flywheel.stats.paired import mcnemar_better
from flywheel.stats.planning import candidate_level
from flywheel.stats.tango import tango_interval

if TYPE_CHECKING:
    from flywheel.extensions import GateRule

CFG = GateConfig()
RULES: dict[str, GateRule] = load_extensions("gates", CFG.rules)
EMPTY = EvalReport(
    round=1, baseline="base", candidate_adapter_sha256="", baseline_adapter_sha256="", cases_sha256="", n_cases=0,
    n_tasks=0, leaked_tasks=0, metrics=[], coverage={},
)  # fmt: skip

MANIFEST = RoundManifest(
    round=1, state="trained", method="sft", method_reason="", parent=None, reference="none", base_model="",
    base_model_sha256="", inputs={}, counts={}, config={}, seed=0,
)  # fmt: skip
LOOKED = GateEvidence(
    candidate=1, level=0.03, looks=1, units=1, fresh=1, returning=0, mean=0.0, low=-1.0, high=1.0, discordance=0.1,
    log_e=0.0, log_e_best=0.0, log_e_worse=0.0, log_e_fresh=0.0, bits=0.0, recent=40.0,
)  # fmt: skip


@lru_cache(maxsize=100_000)
def metric(
    wins: int, losses: int, n: int, slice_name: str = "all", standing: Literal["found", "declared"] = "found"
) -> MetricRow:
    """Return a row of paired outcomes."""
    low, high = tango_interval(wins, losses, n)
    return MetricRow(
        suite="s", metric="success", slice=slice_name, standing=standing, n=n, baseline=0.5,
        value=0.5 + (wins - losses) / n,
        delta=(wins - losses) / n, low=low, high=high, wins=wins, losses=losses, primary=True, n_tasks=n,
        p_better=mcnemar_better(wins, losses), p_worse=mcnemar_better(losses, wins),
    )  # fmt: skip


def outcomes(rng: np.random.Generator, n: int, discordance: float, delta: float) -> tuple[int, int]:
    """Return (wins, losses) of n paired cases."""
    wins, losses, _ = rng.multinomial(n, [(discordance + delta) / 2, (discordance - delta) / 2, 1 - discordance])
    return int(wins), int(losses)


class Rival:
    """One candidate's evidence while its nights come in; all cases are new units with differences of -1, 0 and 1."""

    def __init__(self, place: int = 1, promotions: int = 0, outcomes_before: Sequence[str] = ()) -> None:
        self.place, self.level = place, candidate_level(place, promotions, alpha=CFG.alpha)
        # a part of the stake is kept for units that were known before, of which none comes here
        weight = 2 ** -transcript_bits(outcomes_before)
        self.divided = math.log(1 - REUSED[0] + REUSED[0] * weight) if outcomes_before else 0.0
        self.looks = self.wins = self.losses = self.n = 0
        self.best = self.worst = 0.0

    def look(self, n: int, wins: int, losses: int) -> GateEvidence:
        """Add a night's units and return what all of them show."""
        self.looks, self.n = self.looks + 1, self.n + n
        self.wins, self.losses = self.wins + wins, self.losses + losses
        begun = [start for start in STARTS if start <= self.looks]  # all units are new: every start has them all
        log_e = self.divided + over_starts({s: _log_e(self.wins, self.losses, BOLD * (s > 1)) for s in begun})
        self.best = max(self.best, log_e)
        against = self.divided + over_starts({s: _log_e(self.losses, self.wins, BOLD * (s > 1)) for s in begun})
        self.worst = max(self.worst, against)
        return GateEvidence(
            candidate=self.place, level=self.level, looks=self.looks, units=self.n, fresh=self.n, returning=0,
            mean=(self.wins - self.losses) / self.n, low=-1.0, high=1.0, discordance=(self.wins + self.losses) / self.n,
            log_e=log_e, log_e_best=self.best, log_e_worse=self.worst, log_e_fresh=log_e, bits=0.0, recent=float(n),
        )  # fmt: skip


@lru_cache(maxsize=1_000_000)
def _log_e(wins: int, losses: int, bold: float) -> float:
    return log_e(np.repeat([1.0, -1.0], [wins, losses]), bold=bold)
