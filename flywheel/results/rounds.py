"""Results of rounds: evaluations, comparisons and history. Plans, manifests and promotions are records."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from flywheel.records import Document, EvalReport, OffPolicyEstimate, Promotion, Record, RuleResult, Verdict


class EvalAnswer(Document):
    """`flywheel eval` and `flywheel promote`."""

    document: ClassVar[str] = "cli/eval"

    report: EvalReport
    promotion: Promotion | None = Field(description="The gate's decision, with --promote.")
    page: str = Field(description="The report page.")


class CoverageGap(Record):
    """Cases that the old policy's log has and the new one's lacks."""

    slice: str = Field(description="'all', or name=value of a slice that lost more than half of its cases.")
    lacking: int
    of: int = Field(description="Cases that the old policy has.")
    names: list[str] = Field(description="The first of them: the source's names of the tasks, or task ids.")


class LogsEvalAnswer(Document):
    """`flywheel eval --logs`: two policies compared from what they served."""

    document: ClassVar[str] = "cli/eval_logs"

    verdict: Verdict
    reasons: list[str] = Field(description="Why, one sentence a rule; first those that decided.")
    needed_n: int | None = Field(description="Cases still needed in all, where more of them could decide.")
    old: str = Field(description="The policy or the files of the baseline.")
    new: str = Field(description="The policy or the files that are evaluated.")
    outcome: str = Field(description="recorded: outcomes in the log; p_success: estimated from the reward signals.")
    unit: str = Field(description="Unit of resampling: task, or user where every case has one.")
    cases: int = Field(description="Paired cases.")
    paired_by: dict[str, int] = Field(description="Cases paired by task id and by the text of the request.")
    numbers: dict[str, float] = Field(
        description="n, old, new, wins, losses, delta, low, high, p, alpha_t, power, mde."
    )
    report: EvalReport = Field(description="Every metric and slice with n, interval and p-values.")
    rules: list[RuleResult]
    worse: list[str] = Field(description="Metrics and slices that are significantly worse.")
    suspect: list[str] = Field(description="Metrics and slices that look worse, but not significantly.")
    gaps: list[CoverageGap]
    only_new: int = Field(description="Cases that only the new policy has; they are not compared.")
    colliding: list[str] = Field(description="Task ids that both logs use for different requests; not paired.")
    pass_k: dict[str, dict[str, float]] = Field(description="k → old, new, tasks: all of k attempts succeed.")
    amounts: dict[str, dict[str, float]] = Field(
        description="Cost, latency, tokens, steps: old, new, n; no rule reads them."
    )
    off_policy: list[OffPolicyEstimate] = Field(description="Estimates may veto a promotion; they never cause one.")
    notes: list[str]


class LogRow(Record):
    """One round in `log`."""

    round: int
    state: str
    method: str
    raced: int = Field(default=0, description="Methods of which it was the best in a race; 0 where none was held.")
    parent: int | None
    rows: int
    steps: int = Field(default=0, description="Optimiser steps that the adapter has taken; 0 where not recorded.")
    kl: float | None = Field(default=None, description="Nats a token from the parent; null where not measured.")
    metric: str = Field(description="Primary metric with its interval as text; '' when not evaluated.")
    aliases: list[str]


class LogAnswer(Document):
    """`flywheel log`."""

    document: ClassVar[str] = "cli/log"

    rounds: list[LogRow]
    decisions: list[Promotion]
    next: str | None = Field(default=None, description="The command to run next, where there is no round yet.")


class DiffMetric(Record):
    """A metric of two rounds, each on the cases of its own evaluation."""

    suite: str
    metric: str
    before: float | None = Field(description="The first round's value; null where it was not evaluated on it.")
    n_before: int
    now: float | None = Field(description="The second round's value.")
    n_now: int


class DiffAnswer(Document):
    """`flywheel diff`: the differences between two rounds."""

    document: ClassVar[str] = "cli/diff"

    before: int
    now: int
    made: list[str] = Field(description="Method, start, reference, base model, seed, versions: 'key old → new'.")
    config: list[str] = Field(description="Settings: 'key old → new'.")
    inputs: list[str] = Field(description="Tables that differed when the rounds were made.")
    rows_added: int = Field(description="Rows that only the second round was trained on.")
    rows_dropped: int = Field(description="Rows that only the first round was trained on.")
    rows_kept: int = Field(description="Rows of both.")
    tasks_added: int
    tasks_dropped: int
    funnel: list[str] = Field(description="Counts of the rows' funnel: 'name old → new'.")
    metrics: list[DiffMetric]
