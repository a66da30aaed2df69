"""What is known of a candidate for champion: the ledger of all that were ever evaluated, and the evidence of one."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from flywheel.records.base import Record

Outcome = Literal["promoted", "rejected", "replaced"]


class LedgerEntry(Record):
    """A line of candidates.jsonl: a round is trained, registered, looked at, reported on, ended; chained by hash."""

    event: Literal["trained", "registered", "look", "report", "ended"]
    candidate: int = Field(
        default=0, ge=0, description="Its place among all that were ever evaluated against a champion; 0 when trained."
    )
    round: int = Field(ge=1)
    baseline: str = Field(default="", description="Registered: 'base' or the round that it is compared with.")
    candidate_sha256: str = Field(default="", description="Trained, registered: its adapter.")
    files_sha256: str = Field(default="", description="Trained: hash over all files of its adapter and their names.")
    baseline_sha256: str = Field(default="", description="Registered: the baseline's adapter; '' for the base model.")
    protocol_sha256: str = Field(default="", description="Trained, registered: suites, slices and rules.")
    level: float = Field(default=0.0, ge=0, le=1, description="Registered: it is promoted when E reaches 1 / level.")
    holdout_sha256: str = Field(default="", description="Look: the held-out tasks and attempts that there were.")
    tasks: dict[str, str] = Field(default_factory=dict, description="Look: held-out task → hash of its rows.")
    units: dict[str, tuple[float, int]] = Field(
        default_factory=dict,
        description="Look: unit → (sum of its cases' differences, cases); a user by a hash, else a task.",
    )
    scores_sha256: str = Field(default="", description="Look: hash of the file with both policies' scores.")
    report_sha256: str = Field(default="", description="Report: hash of the evaluation report's file.")
    outcome: Outcome | None = Field(default=None, description="Ended: how.")
    previous_sha256: str = Field(default="", description="Hash of the line before; '' for the first.")


class GateEvidence(Record):
    """What all looks at a candidate have shown so far; its unit is a user where users are known, else a task."""

    candidate: int = Field(ge=1, description="Its place among all candidates ever evaluated.")
    level: float = Field(gt=0, le=1, description="Promoted when E reaches 1 / level.")
    looks: int = Field(ge=0, description="Looks with new units or new cases.")
    units: int = Field(ge=0, description="Units with a paired case.")
    fresh: int = Field(ge=0, description="Units that no candidate before this one was looked at on.")
    returning: int = Field(ge=0, description="Units that came in more than one look.")
    mean: float = Field(description="Mean difference of the units, candidate minus baseline.")
    low: float = Field(description="Lower end of the mean's 95% interval, valid at all looks together.")
    high: float = Field(description="Upper end of it.")
    discordance: float = Field(ge=0, description="Mean square of the units' differences.")
    log_e: float = Field(description="Log E of 'not better' now: evidence of units known before counts less.")
    log_e_best: float = Field(description="The largest log E of any look; it decides.")
    log_e_worse: float = Field(description="The largest log E of 'not worse' of any look.")
    log_e_fresh: float = Field(description="Log E of the fresh units alone, now.")
    bits: float = Field(ge=0, description="What earlier outcomes made known: units known before count 2^-bits.")
    recent: float = Field(ge=0, description="New units a look, mean of the last seven looks.")
