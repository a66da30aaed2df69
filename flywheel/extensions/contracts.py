"""What an extension is called with and what it returns: a contract for each extension point, and their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from flywheel.config import Config, EvalConfig, GateConfig, PairsConfig, ReplayConfig, RewardsConfig
    from flywheel.records import EvalReport, Method, Promotion, RoundManifest, RuleResult


class BadRecordError(Exception):
    """A reader refuses one record; it goes to quarantine with this reason.

    Args:
        reason: a stable code, e.g. "bad_record".
        detail: what was wrong, in words without log text.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Sample:
    """The beginning of a file, for detection: its first parsed records (at most 20) and its name."""

    file_name: str
    records: Sequence[Any]


@runtime_checkable
class Reader(Protocol):
    """Turns one record of a log (a line, an array element, a Parquet row) into events; keeps no state.

    `sniff` returns a confidence in [0, 1] that the records are of this format. `read` yields dicts with the fields of
    `LogEvent` except event_id, source_format, source_file and source_line, which ingest fills in; `payload` may be a
    plain value. It raises `BadRecordError` for a record it cannot make sense of.

    An event may also have other names (`ids`) and name what it rates (`target`), each as "kind:id", so
    that files of one system are joined whatever their order: an event with conversation C and id trace:T brings what
    was recorded under the conversation T, or rates trace:T, to C. Feedback whose conversation is not known takes its
    target as its conversation id.

    A reader may take facts about all records of a file from its path: `from_path(path)` returns the columns (model,
    policy) for events that lack them, a `scope` where ids are unique only within a folder or a run, an `id` (kind:id)
    that all its events have, or the reason why the file is `ignored`; where a JSON file next to the logs, or above
    them, names a run's model, `sidecar` is that file's name and `from_sidecar(document)` returns the same columns; {}
    if it is another file. `from_opening(record)` returns them from a file's first record, such as a `series`, the
    thread whose messages the file begins with: files of one series may repeat each other's conversations.
    """

    name: str
    version: int

    def sniff(self, sample: Sample) -> float:
        """Return the confidence in [0, 1] that the records are of this format.

        A reader with an attribute `surest` is not asked where another one is surer than that.
        """
        ...

    def read(self, record: Any, line: int) -> Iterable[dict[str, Any]]:
        """Yield the events of one record; `line` is its number among the records of its file, from 1.

        Blank lines, byte-order marks and the lines around server-sent events make no difference to that number, so that
        the same log has the same events however its lines end.
        """
        ...


class Embedding(Protocol):
    """Vectors of requests, so that requests in other words are joined as one task; the same texts, the same vectors."""

    def __call__(self, texts: Sequence[str]) -> NDArray[np.floating]:
        """Return one vector a text, (texts, dimensions); they need no unit length."""
        ...


class Signal(Protocol):
    """Opinions on episodes or steps: a frame with the columns of `Reward`; reads nothing but its arguments.

    It is called with whole conversations. One with the attribute `by = "task"` is called with all attempts at some
    tasks, so that it can compare them, and with no events.
    """

    def __call__(
        self, episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig
    ) -> pl.DataFrame:
        """Return opinions with the columns of `Reward`."""
        ...


class PairBuilder(Protocol):
    """Candidate pairs of one partition of tasks: a frame with the columns of `PreferencePair`, unfiltered."""

    def __call__(
        self, episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, cfg: PairsConfig
    ) -> pl.DataFrame:
        """Return candidate pairs with the columns of `PreferencePair`."""
        ...


@dataclass(frozen=True)
class TrainSpec:
    """What a trainer gets: paths and values only, so that it can be written to JSON and run in another process.

    `data` is a JSONL file. For SFT each row has prompt, completion (lists of messages), tools (list or null) and
    weight; for DPO prompt, chosen, rejected, tools, p_better, weight and nll_weight, or, of a demonstration, completion
    instead of both sides; for KTO prompt, completion, tools, label and weight; for GRPO prompt, tools, completions
    (lists of messages), rewards, advantages, policies and, for each member, prompts (where members were asked
    differently; `prompt` is the first one's), behaviours (logged, rescore or unknown), temperatures (of its draw, or
    null) and log_probs (null, or {ids, log_probs} for each of its actions); for GRPO in the replay environment what
    `flywheel.replay.read_scenario` reads.
    """

    round: int
    method: Method
    data: Path
    out_dir: Path  # the adapter's folder: written whole, marker last
    work_dir: Path  # checkpoints and logs; may be deleted after the round
    base_model: str
    start_adapter: Path | None
    reference: Literal["parent", "base", "none"]
    config: Config
    seed: int
    cache_dir: Path | None = None  # what may be computed again, kept between rounds
    behaviours: Mapping[str, str] = field(default_factory=dict)  # a policy's name in logs → its adapter's folder
    project_dir: Path | None = None  # where `module:function` of train.trainer is looked for


@dataclass(frozen=True)
class TrainResult:
    """What a trainer gives back; also written as result.json in the work folder.

    Attributes:
        steps: optimiser steps that the adapter has taken.
        tokens: of one pass over the rows.
        checks: numbers by name, for the manifest.
        timings_s: seconds by phase.
        versions: of libraries.
        stopped: what ended training: "kl" (`train.max_kl`), "steps" (all were taken), "" where a trainer does not say.
        kl: measured steps and the KL divergence from the parent after them, in nats a token.
        arguments: what another system was given, where one trained.
    """

    steps: int
    tokens: int
    checks: Mapping[str, float] = field(default_factory=dict)
    timings_s: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    stopped: Literal["", "kl", "steps"] = ""
    kl: Sequence[tuple[int, float]] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Trainer(Protocol):
    """Trains one round; leaves an adapter in `spec.out_dir` and metrics in `spec.work_dir / "metrics.jsonl"`."""

    def __call__(self, spec: TrainSpec) -> TrainResult:
        """Train and return what was measured; raise `TrainError` when it cannot be done."""
        ...


@dataclass(frozen=True)
class Generation:
    """One generated action: the raw text and the parsed assistant message (normal form, `Message` as a dict)."""

    text: str
    message: dict[str, Any]
    well_formed: bool  # every tool call in it parsed and names a known tool
    tokens: int = 0  # that were written; 0 where they were not counted


class Drift(NamedTuple):
    """How far a policy is from its base on one text: means over its tokens but the first, in nats."""

    nll: float
    base_nll: float
    kl: float  # KL(base ‖ policy) over the vocabulary
    tokens: int


class Policy(Protocol):
    """A model with or without an adapter, as an evaluator sees it."""

    name: str  # "base" or "round N"
    sha256: str  # identifies the weights

    def generate(
        self,
        prompts: Sequence[Sequence[dict[str, Any]]],
        tools: Sequence[list[dict[str, Any]] | None],
        *,
        max_new_tokens: int,
    ) -> list[Generation]:
        """Return the next action after each prompt (a list of messages): greedy, or sampled with `eval.samples`."""
        ...

    def log_prob(
        self,
        prompts: Sequence[Sequence[dict[str, Any]]],
        tools: Sequence[list[dict[str, Any]] | None],
        completions: Sequence[dict[str, Any]],
    ) -> list[tuple[float, int]]:
        """Return (sum of log-probabilities in nats, number of tokens) of each completion's tokens."""
        ...


@dataclass(frozen=True)
class Holdout:
    """What an evaluator may look at: the held-out part of the tables, and the project's folder for its own cases."""

    episodes: pl.DataFrame
    steps: pl.DataFrame
    returns: pl.DataFrame
    pairs: pl.DataFrame
    project_dir: Path
    known: frozenset[str] = frozenset()  # tasks, and cases of an evaluator's own, that were looked at; capped: last
    scenarios: pl.DataFrame | None = None  # held-out turns of the replay environment, the results that it knows,
    fixtures: pl.DataFrame | None = None
    replay: ReplayConfig | None = None  # and its settings


@dataclass(frozen=True)
class CaseScore:
    """One policy's score on one case. Cases of two policies are paired by (metric, case_id).

    With a unit it is a measure (tokens written, for example) instead of a score: any number from 0, shown next to the
    other policy's, and compared with the gate's limits.
    """

    case_id: str
    task_id: str
    metric: str
    score: float  # in [0, 1]; higher is better
    binary: bool = True
    primary: bool = False  # the suite's headline metric
    slices: Mapping[str, str | tuple[str, ...]] = field(
        default_factory=dict
    )  # several values: a case in several slices
    unit: str = ""
    drawn_with: str = ""  # cases of one user are alike: what is sampled as one; '' for the task itself
    title: str = ""  # what a case of the evaluator's own asks, for a round's page; never a user's words
    did: str = ""  # what the policy did in it, by `flywheel.messages.acts_of`, for a round's page; is redacted

    @property
    def cluster(self) -> str:
        """What the case is sampled with: its user's hash where users are known, else its task."""
        return self.drawn_with or self.task_id


class Evaluator(Protocol):
    """Scores one policy on held-out cases; the same holdout and configuration give the same cases in any order.

    One policy at a time, not candidate and baseline together, so that scores can be cached by the policy's hash. An
    evaluator that reads anything but the held-out tables has the method `depends_on(project_dir, cfg)`, which returns a
    hash of it; with `offered(project_dir, cfg)` false, there is nothing to score and a suite that was not asked for by
    name is left out. One with the attribute `baselines = False` is not run on the baselines for reference; one with
    `fixed = True` has no case from the logs, and is not run again when those grow; with `lists_failures = True` the
    report names the cases that the candidate failed. One with cases of its own may have an attribute `texts`, a
    function of (holdout, cfg) that gives the texts which its scores rest on, questions or answers: no round is trained
    on rows that share 13 words with one.
    """

    def __call__(self, policy: Policy, holdout: Holdout, cfg: EvalConfig) -> Sequence[CaseScore]:
        """Return the scores; NaN where the case could not be scored, with the reason in slices["missing"]."""
        ...


class Check(Protocol):
    """Whether an answer to one of the user's own cases is right; an exception means that it is not."""

    def __call__(self, answer: Generation, case: Mapping[str, Any]) -> bool:
        """Return whether it passes; `case` has the case's fields, and what the check was `given`."""
        ...


@dataclass(frozen=True)
class GateInput:
    """What a gate rule decides on: the report, the manifest, earlier decisions, and what the registry found wrong."""

    report: EvalReport
    manifest: RoundManifest | None  # None where two policies are compared from their logs
    history: Sequence[Promotion]
    problems: Sequence[str] = ()  # integrity failures found by the registry (changed adapter, broken chain, ...)


class GateRule(Protocol):
    """One rule of the gate; pure."""

    def __call__(self, inputs: GateInput, cfg: GateConfig, /) -> RuleResult:
        """Return the rule's result with its numbers."""
        ...


class Turn(Protocol):
    """One attempt at a task; takes what a policy writes until it is over."""

    @property
    def over(self) -> bool:
        """Whether the attempt has ended."""
        ...

    @property
    def success(self) -> float | None:
        """The chance that an attempt that is over succeeded, in [0, 1]; None: not known."""
        ...

    def take(self, message: Mapping[str, Any], /) -> list[dict[str, Any]]:
        """Take an action; return the messages that it adds: itself, and a result for each of its calls."""
        ...

    def stop(self, why: Literal["over budget"], /) -> object:
        """End an attempt that its caller gives up."""
        ...


class World(Protocol):
    """A place where a policy's calls are executed, so that training tasks can be attempted again.

    It must decide success by what was really done, and by nothing that a policy claims. Equal prompts,
    seeds and actions must give equal results.
    """

    def __call__(self, prompt: Sequence[Mapping[str, Any]], seed: int, /) -> Turn | None:
        """Open a task by the messages before its first action; None where the world does not know it."""
        ...
