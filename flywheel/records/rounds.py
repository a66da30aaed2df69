"""What a round is: its plan, its manifest, its evaluation, and the decision on it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Literal

from pydantic import AliasChoices, Field, field_validator

from flywheel.records.base import Document, Record
from flywheel.records.candidates import GateEvidence
from flywheel.records.estimates import OffPolicyEstimate
from flywheel.records.methods import Method
from flywheel.records.race import Race

FRESH = "fresh"  # the slice of the primary metric's cases on which no candidate before this one was looked at


class FileHash(Record):
    """A file of a round, by content."""

    path: str = Field(description="Path relative to the round's folder.")
    sha256: str = Field(description="Hash of its bytes.")
    size_bytes: int = Field(ge=0, description="Its size.")

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        """Refuse a path that leads out of the round's folder."""
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError("the path leads out of the round's folder")
        return path


class MonitorRow(Record):
    """The level of one monitor against reward hacking in the newest window of the logs."""

    monitor: str = Field(description="What is watched.")
    level: Literal["green", "amber", "red", "unknown"] = Field(
        description="red blocks training; unknown: too few units to measure it, which does not count as green."
    )
    value: float | None = Field(default=None, description="What was measured; null when unknown.")
    amber: float | None = Field(default=None, description="Threshold of amber.")
    red: float | None = Field(default=None, description="Threshold of red; null where it never is.")
    low: float | None = Field(default=None, description="Lower end of the 95% interval, where there is one.")
    high: float | None = Field(default=None, description="Upper end of it.")
    n: int = Field(default=0, ge=0, description="Units it rests on: episodes, tasks or users, named in the sentence.")
    sentence: str = Field(description="One sentence with the numbers.")


class KlPoint(Record):
    """How far the policy was from the round's start after some optimiser steps."""

    step: int = Field(ge=0, description="Optimiser steps.")
    kl: float = Field(ge=0, description="KL divergence from the parent to the policy, nats a token of training rows.")


class BackendRun(Record):
    """The other system in which a round is trained."""

    name: str = Field(description="Under [train.backends].")
    title: str = Field(description="The system.")
    command: list[str] = Field(description="What starts it, without arguments.")
    versions: dict[str, str] = Field(default_factory=dict, description="Of its packages, as its interpreter has them.")
    lost: list[str] = Field(
        default_factory=list, description="What rows have and the system has no place for, with their number."
    )
    arguments: dict[str, Any] = Field(default_factory=dict, description="What it was given, once it was trained.")


class RoundManifest(Document):
    """Everything that made a training round, and what it made."""

    document: ClassVar[str] = "round_manifest"

    schema_version: int = 1
    round: int = Field(ge=1, description="Number of the round.")
    state: Literal["planned", "built", "trained", "evaluated", "promoted", "held", "failed", "retired"]
    method: Method = Field(description="What was trained.")
    method_reason: str = Field(description="Why this method, with the numbers that decided.")
    race: Race | None = Field(default=None, description="How `auto` chose the method; null where it was asked for.")
    parent: int | None = Field(default=None, description="Round whose adapter this one starts from; null = base.")
    reference: Literal["parent", "base", "none"] = Field(description="Reference policy of the loss.")
    base_model: str = Field(description="Base model as configured.")
    base_model_sha256: str = Field(
        description="Hash over the base model: weights, tokenizer, chat template, configuration."
    )
    inputs: dict[str, dict[str, str]] = Field(description="Stage → {snapshot, sha256} of every table read.")
    counts: dict[str, int] = Field(description="Funnel of the rows: considered, kept, dropped by reason.")
    dataset: list[FileHash] = Field(default_factory=list, description="Files trained on.")
    train_tasks_sha256: str = Field(default="", description="Hash over the sorted task ids trained on.")
    config: dict[str, Any] = Field(description="Resolved configuration of the round.")
    seed: int = Field(description="Seed of data order, initialisation and dropout.")
    backend: BackendRun | None = Field(default=None, description="The other system that trained it; null = TRL, here.")
    versions: dict[str, str] = Field(default_factory=dict, description="Library versions that matter.")
    outputs: list[FileHash] = Field(default_factory=list, description="Adapter files.")
    adapter_sha256: str = Field(default="", description="Hash over the adapter's weight file.")
    learning_rate: float = Field(default=0.0, ge=0, description="Peak learning rate; 0 in older rounds.")
    steps_taken: int = Field(default=0, ge=0, description="Optimiser steps that the adapter has taken.")
    stopped: Literal["", "kl", "steps"] = Field(
        default="",
        description="What ended training: kl (the last point of kl_curve is past max_kl, so the adapter of the point "
        "before is kept), steps (all were taken); '' where the trainer does not say.",
    )
    max_kl: float = Field(default=0.0, ge=0, description="The limit of kl_curve.")
    kl_curve: list[KlPoint] = Field(default_factory=list, description="The distance from the parent as measured.")
    checks: dict[str, float] = Field(default_factory=dict, description="Self-checks, e.g. the DPO loss at step 0.")
    timings_s: dict[str, float] = Field(default_factory=dict, description="Seconds by phase (not hashed).")
    error: str = Field(default="", description="Why the round failed, if it did.")
    monitors: list[MonitorRow] = Field(default_factory=list, description="The monitors when the round was begun.")
    erased: str = Field(default="", description="Why the adapter's files were removed; '' while they are there.")
    protocol: dict[str, Any] = Field(
        default_factory=dict, description="Suites, slices and [gate] that it will be evaluated and decided by."
    )
    forced: str = Field(default="", description="Why it was trained although a monitor was red; '' where none was.")

    @property
    def kl(self) -> float | None:
        """How far the adapter is from the round's start, in nats a token; None where that was not measured."""
        return next((point.kl for point in self.kl_curve if point.step == self.steps_taken), None)


class DataCard(Record):
    """What a round's rows are: where they come from, how long they are, and what of them fits."""

    rendering: str = Field(description="How messages and tools become text.")
    tokens: int = Field(ge=0, description="Tokens of all rows, the longer side of each.")
    trained_tokens: int = Field(ge=0, description="Tokens in the loss: actions only, all sides.")
    median_tokens: int = Field(ge=0, description="Tokens of the median row.")
    longest_tokens: int = Field(ge=0, description="Tokens of the longest row.")
    max_length: int = Field(ge=0, description="train.max_length.")
    fitting: int = Field(ge=0, description="Rows that fit into it, as they are or as a window.")
    windowed: int = Field(
        default=0, ge=0, description="Rows of which only the newest turns fit: the prompt notes what is left out."
    )
    too_long: int = Field(ge=0, description="Rows that do not fit either way: they are refused, never cut.")
    cut_in_evaluation: int = Field(
        default=0,
        ge=0,
        description="Actions to learn that are longer than eval.max_new_tokens: an evaluation would cut them off.",
    )
    max_new_tokens: int = Field(default=0, ge=0, description="eval.max_new_tokens.")
    mean_trained: list[float] = Field(description="Mean trained tokens of each side: chosen, rejected.")
    longer_wins: float | None = Field(description="Share of pairs whose longer side is the chosen one, ties as halves.")
    mix: dict[str, int] = Field(
        default={},
        description="Rows that are new; older (an earlier round was trained on them); replayed (older, with the start "
        "policy's own good action); attempted (of attempts that the champion made again); golden (the user's own).",
    )
    unseen: str = Field(default="", description="Steps refused because they need an image, and why; '' for none.")
    sources: dict[str, int] = Field(description="Rows by format of their log.")
    policies: dict[str, int] = Field(description="Rows by the policy that acted.")
    builders: dict[str, int] = Field(description="Pairs by builder.")
    users: int = Field(ge=0, description="Distinct users behind the rows, as far as the log names them.")
    largest_user_share: float | None = Field(description="Share of the rows that the most frequent user is behind.")


class MemoryEstimate(Record):
    """What the largest pass of a round is estimated to hold in the memory of a device, in bytes."""

    device: Literal["cpu", "cuda"] = Field(description="What trains.")
    processes: int = Field(ge=1, description="That train together; on CPUs they share the machine's memory.")
    rows: int = Field(ge=1, description="Rows of a pass.")
    tokens: int = Field(ge=0, description="Tokens of the longest row, all its sides.")
    checkpointing: bool = Field(description="Whether activations are computed again on the way back.")
    weights: int = Field(ge=0, description="The base model.")
    adapter: int = Field(ge=0, description="The adapter, its gradients, the optimiser's state and a copy.")
    activations: int = Field(ge=0, description="What the way back needs of the way forward, and its gradients.")
    head: int = Field(ge=0, description="Logits, and the distributions that a round's distance is measured by.")
    runtime: int = Field(ge=0, description="Libraries, before a model is loaded.")
    needed: int = Field(ge=0, description="All of these.")
    available: int = Field(ge=0, description="What a process may have of the device.")


class Plan(Document):
    """What the next round will contain, as a value: `plan` prints it, `train` executes it."""

    document: ClassVar[str] = "plan"

    schema_version: int = 1
    round: int = Field(ge=1, description="Number of the round.")
    method: Method = Field(description="What will be trained.")
    method_reason: str = Field(description="Why this method, with the numbers that decided.")
    race: Race | None = Field(default=None, description="How `auto` chose the method; null where it was asked for.")
    parent: int | None = Field(description="Round whose adapter it starts from; null = base.")
    start_reason: str = Field(description="Why it starts there.")
    reference: Literal["parent", "base", "none"] = Field(description="Reference policy of the loss.")
    base_model: str = Field(description="Base model as configured.")
    base_model_sha256: str = Field(
        description="Hash over the base model: weights, tokenizer, chat template, configuration."
    )
    inputs: dict[str, dict[str, str]] = Field(description="Stage → {snapshot, sha256} of every table read.")
    counts: dict[str, int] = Field(description="Funnel of the rows: considered, kept, dropped by reason.")
    rows: int = Field(ge=0, description="Rows to train on.")
    tasks: int = Field(ge=0, description="Distinct tasks among them.")
    steps: int = Field(ge=0, description="Most optimiser steps.")
    learning_rate: float = Field(default=0.0, ge=0, description="Peak learning rate.")
    max_kl: float = Field(default=0.0, ge=0, description="Nats a token from the parent at which training ends.")
    characters: int = Field(ge=0, description="Characters in all rows; about four make a token in English.")
    card: DataCard = Field(description="What the rows are.")
    dataset_sha256: str = Field(description="Hash of the dataset that will be written.")
    train_tasks_sha256: str = Field(description="Hash over the sorted task ids.")
    config: dict[str, Any] = Field(description="Resolved model and train sections.")
    backend: BackendRun | None = Field(default=None, description="The other system that trains it; null = TRL, here.")
    memory: MemoryEstimate | None = Field(
        default=None, description="Estimate for this machine; null where another trainer plans its passes."
    )
    same_as: int | None = Field(default=None, description="A trained round that this one would only repeat.")
    monitors: list[MonitorRow] = Field(default=[], description="What the monitors say; red blocks training.")
    unclear: int = Field(
        default=0,
        ge=0,
        description="Episodes of the training split without a clear outcome: they teach next to nothing. 0 where "
        "enough outcomes are known to learn what the signals are worth.",
    )


class MetricRow(Record):
    """One metric of a round compared with the baseline's, on the same cases."""

    suite: str
    metric: str
    slice: str = Field(
        default="all", description="'all', name=value, or 'fresh': cases on which no candidate before was looked at."
    )
    standing: Literal["found", "declared", "unguarded"] = Field(
        default="found", description="Of a slice: found, declared, or declared and not part of the decision."
    )
    n: int = Field(ge=0, description="Paired cases.")
    baseline: float | None = Field(default=None, description="Baseline's mean; null when there are no cases.")
    value: float | None = Field(default=None, description="Candidate's mean.")
    delta: float | None = Field(default=None, description="value - baseline.")
    low: float | None = Field(default=None, description="Lower end of the 95% interval of delta.")
    high: float | None = Field(default=None, description="Upper end of the 95% interval of delta.")
    method: str = Field(default="", description="How the interval was made.")
    wins: int = Field(default=0, ge=0, description="Cases only the candidate got right (binary metrics).")
    losses: int = Field(default=0, ge=0, description="Cases only the baseline got right (binary metrics).")
    binary: bool = Field(default=True, description="Whether each case scores 0 or 1.")
    primary: bool = Field(default=False, description="Whether superiority is tested on this row.")
    n_tasks: int = Field(default=0, ge=0, description="Distinct units among the paired cases; 0 when not counted.")
    unit: str = Field(default="task", description="What is resampled as one: task, or user.")
    design_effect: float = Field(
        default=1.0, ge=1, description="Cases that are worth one independent case, because tasks have several."
    )
    p_better: float | None = Field(
        default=None, ge=0, le=1, description="One-sided p-value of 'the candidate is not better', tasks as units."
    )
    p_worse: float | None = Field(
        default=None, ge=0, le=1, description="One-sided p-value of 'the candidate is not worse', tasks as units."
    )


class MeasureRow(Record):
    """Something measured of a round and the baseline on the same cases; not a score, so lower is not always better."""

    suite: str
    measure: str
    unit: str = Field(description="What its numbers are in.")
    n: int = Field(ge=0, description="Cases on which both were measured.")
    baseline: float | None = Field(default=None, description="Baseline's mean; null when there are no cases.")
    value: float | None = Field(default=None, description="Candidate's mean.")
    ratio: float | None = Field(default=None, description="value / baseline; null where the baseline's is 0.")
    low: float | None = Field(default=None, description="Lower end of the 95% interval of the ratio.")
    high: float | None = Field(default=None, description="Upper end of it.")


class BaselineRow(Record):
    """One metric of a baseline for reference, on the cases of the round's row; it has no part in the decision."""

    rival: str = Field(description="Its name: 'base', or 'base + N examples' that were shown to it as earlier turns.")
    suite: str
    metric: str
    n: int = Field(ge=0, description="Cases that candidate and baseline were both scored on.")
    value: float | None = Field(default=None, description="The baseline's mean on them; null when there are none.")
    candidate: float | None = Field(default=None, description="The candidate's mean on them.")


class CaseGap(Record):
    """Cases that the old policy has and the new one lacks."""

    slice: str = Field(description="'all', or a slice that lost more than half of its cases.")
    lacking: int = Field(ge=0)
    of: int = Field(ge=0)
    names: list[str] = Field(description="The first of them, by the source's name of the task or the case's id.")


class Agreement(Record):
    """Greedy answers of the server and of transformers in this process, the candidate's, on the same prompts."""

    prompts: int = Field(ge=0)
    same: int = Field(ge=0, description="Of them those with the same answer: text and calls.")
    same_calls: int = Field(ge=0, description="Of them those with the same tool calls, whatever the text.")


class ServedBy(Record):
    """The server that answered for the policies."""

    kind: str = Field(description="vllm, sglang, llama.cpp, transformers or openai.")
    version: str = Field(default="", description="As the server gives it; '' where it does not.")
    endpoint: str = Field(description="Its address.")
    model: str = Field(description="The base model's name there.")
    api: str = Field(description="completions: rendered and parsed here; chat: by the server.")
    candidate: str = Field(description="The candidate's name there; of an adapter that was loaded, by its hash.")
    baseline: str = Field(description="The baseline's.")
    base_sha256: str = Field(description="Weights, tokenizer and chat template here, by which prompts were rendered.")
    samples: int = Field(ge=1, description="Attempts at a case; 1 is the greedy one.")
    temperature: float = Field(description="Of sampled attempts; 0 where answers are greedy.")
    max_new_tokens: int = Field(ge=1)
    other_rendering: bool = Field(
        default=False,
        description="Whether its template made other tokens of a prompt than the base model's here; chat only.",
    )
    agreement: Agreement | None = Field(default=None, description="null where it was not measured.")


class EvalReport(Document):
    """One round compared with another on cases that no training row touched; or two policies, from their logs."""

    document: ClassVar[str] = "eval_report"

    schema_version: int = 1
    round: int = Field(ge=0, description="0 where two policies are compared from their logs.")
    baseline: str = Field(description="'base' or a round number; of logs, the old policy.")
    candidate_adapter_sha256: str = Field(description="Adapter that was evaluated.")
    baseline_adapter_sha256: str = Field(description="'' for the base model.")
    cases_sha256: str = Field(description="Hash over the cases: a repeated evaluation of the same is the same.")
    n_cases: int = Field(ge=0)
    n_tasks: int = Field(ge=0, description="Distinct held-out tasks among the cases.")
    leaked_tasks: int = Field(ge=0, description="Cases whose task was trained on; must be 0.")
    metrics: list[MetricRow]
    measures: list[MeasureRow] = Field(default_factory=list, description="Tokens written, distance from the base.")
    rivals: list[BaselineRow] = Field(
        default_factory=list, description="Baselines for reference: the base model, and the base with examples."
    )
    coverage: dict[str, int] = Field(description="Cases by suite: offered, scored, missing by reason.")
    gaps: list[CaseGap] = Field(
        default_factory=list, description="Cases of the primary suite that the baseline has and the candidate lacks."
    )
    off_policy: list[OffPolicyEstimate] = Field(
        default_factory=list,
        description="What both policies would have earned in held-out attempts; they may veto, never promote.",
    )
    failed: dict[str, list[str]] = Field(
        default_factory=dict, description="Own cases that the candidate failed, by suite: their ids."
    )
    wins: list[str] = Field(default_factory=list, description="Case ids that only the candidate got right.")
    regressions: list[str] = Field(default_factory=list, description="Case ids that only the baseline got right.")
    titles: dict[str, str] = Field(
        default_factory=dict, description="What wins and regressions ask, of an evaluator's own cases: case id → title."
    )
    evidence: GateEvidence | None = Field(
        default=None, description="All looks at this candidate on the primary metric; null where nothing was paired."
    )
    protocol_sha256: str = Field(default="", description="Suites, slices and rules that it was evaluated by.")
    served: ServedBy | None = Field(
        default=None, description="The server that answered; null for the model in flywheel's own process."
    )
    seed: int = 0
    timings_s: dict[str, float] = Field(default_factory=dict)


class Verdict(StrEnum):
    """The gate's verdict."""

    PROMOTE = "PROMOTE"
    REJECT = "REJECT"
    INCONCLUSIVE = "INCONCLUSIVE"
    BLOCKED = "BLOCKED"


class RuleResult(Record):
    """One rule of the gate, with its numbers."""

    rule: str
    passed: bool
    verdict: Verdict = Field(description="What this rule alone implies; PROMOTE when it passed.")
    message: str = Field(description="One sentence with the numbers.")
    numbers: dict[str, float] = Field(default_factory=dict)
    details: list[str] = Field(default=[], description="What the sentence only counts, by name, a line each.")


class Promotion(Document):
    """One decision, appended to promotions.jsonl; `previous_sha256` chains the entries."""

    document: ClassVar[str] = "promotion"

    schema_version: int = 1
    round: int = Field(ge=1)
    decision: Literal["promoted", "held", "forced", "rolled_back", "forgotten"] = Field(
        description="forgotten: the champion was trained on data of a user who was forgotten."
    )
    verdict: Verdict | None = Field(default=None, description="null for forced moves and rollbacks.")
    champion_before: int | None = Field(default=None)
    champion_after: int | None = Field(default=None)
    rules: list[RuleResult] = Field(default_factory=list)
    report_sha256: str = Field(default="", description="Hash of the evaluation report that was decided on.")
    adapter_sha256: str = Field(default="", description="Adapter that the champion alias now names.")
    files_sha256: str = Field(default="", description="Hash over all its files and their names; '' in older decisions.")
    by: str = Field(description="Command that decided.")
    at: datetime
    log_end: datetime | None = Field(
        default=None, description="When the log ended that was built by then; null in older decisions."
    )
    reason: str = ""
    ledger_sha256: str = Field(
        default="",
        validation_alias=AliasChoices("ledger_sha256", "spent_sha256"),
        description="Hash of the line of candidates.jsonl that this decision rests on.",
    )
    previous_sha256: str = Field(default="", description="Hash of the line before; '' for the first.")
