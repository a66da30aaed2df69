"""A race of training methods: what was tried on which tasks, what each candidate scored, and what follows from it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from flywheel.records.base import Record
from flywheel.records.methods import Method


class RaceHeat(Record):
    """What a candidate did in one rung of a race."""

    rung: int = Field(ge=1, description="Number of the rung.")
    rows: int = Field(ge=0, description="Rows that it was trained on.")
    tokens: int = Field(ge=0, description="Trained tokens of all passes.")
    score: float | None = Field(default=None, description="Mean score on the development cases; null if it failed.")
    delta: float | None = Field(default=None, description="Score minus the parent's, on the same cases.")
    low: float | None = Field(default=None, description="Lower end of the 95% interval of delta.")
    high: float | None = Field(default=None, description="Upper end of it; neither allows for the choice of the best.")
    error: str = Field(default="", description="Why it could not be trained; '' where it was.")


class RaceCandidate(Record):
    """A method that a round could be trained by."""

    method: Method
    rows: int = Field(ge=0, description="Rows from the logs that a round of it would hold.")
    why: str = Field(default="", description="Why it is not raced; '' where it is.")
    heats: list[RaceHeat] = Field(default=[], description="One a rung, as far as it came.")


class Race(Record):
    """How `auto` chose a round's method, or will: by what candidates score on development tasks."""

    state: Literal["none", "planned", "won", "lost", "failed"] = Field(
        description="none: not held; planned: not finished; won; lost: no candidate scored as much as the parent; "
        "failed: no candidate could be trained."
    )
    reason: str = Field(description="One sentence with the numbers.")
    tasks: int = Field(default=0, ge=0, description="Development tasks: of the training split, and not trained on.")
    known: int = Field(default=0, ge=0, description="Of these, tasks that an ancestor of the round was trained on.")
    suite: str = Field(default="", description="What scores them.")
    metric: str = Field(default="", description="Its primary metric.")
    cases: int = Field(default=0, ge=0, description="Cases that are scored.")
    binary: bool = Field(default=True, description="Whether each case scores 0 or 1.")
    tokens: int = Field(default=0, ge=0, description="Most trained tokens of all candidates and rungs.")
    rungs: int = Field(default=0, ge=0, description="Rungs: after each the better half goes on.")
    parent_score: float | None = Field(default=None, description="Mean score of the policy that the round starts from.")
    candidates: list[RaceCandidate] = Field(default=[], description="Simpler methods first.")
    winner: Method | None = Field(default=None, description="The best candidate; also where the race is lost.")

    @property
    def raced(self) -> int:
        """How many methods were compared; 0 where no race was held."""
        return sum(bool(candidate.heats) for candidate in self.candidates) if self.winner is not None else 0
