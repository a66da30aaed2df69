"""What a round's report is made of: plain values, gathered by the caller, so that the page is a pure function of them.

Everything but the project's name and the round's manifest may be missing; the page then shows that. Texts from logs
(messages, ids, task names) may hold anything at all: the page escapes them, the caller need not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

from flywheel.present import the_round
from flywheel.records import EvalReport, Promotion, RoundManifest

SCORE_EDGES = (-1.0, -0.6, -0.2, 0.2, 0.6, 1.0)  # of the bins in which a signal's scores are counted


@dataclass(frozen=True)
class SignalRow:
    """One signal's opinions in summary.

    Args:
        mean: mean score, in [-1, 1] for votes, in [0, 1] for risks, in the family's unit for costs; None without
            opinions.
        share_positive: share of opinions with a score above 0.
        counts: opinions by score, a number for each bin of `SCORE_EDGES`; () where that is not known.
    """

    signal: str
    family: str
    kind: str
    n: int
    mean: float | None
    share_positive: float | None
    counts: Sequence[int] = ()


@dataclass(frozen=True)
class Agreement:
    """How often two signals that both voted on an episode voted the same way, with its 95 % interval."""

    first: str
    second: str
    n: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Histogram:
    """Counts of episode returns: `edges` has one entry more than each split's counts."""

    edges: Sequence[float]
    counts: Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class CaseRow:
    """A held-out case that only one side got right: the logged episodes it comes from, what was asked, what they did.

    `acts` are the baseline's and the candidate's, by their names; none where their evaluator has none.
    """

    case_id: str
    episodes: Sequence[str] = ()
    request: str = ""
    acts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PastRound:
    """A round's primary metric; `low` and `high` are the interval of `value` itself, not of the difference."""

    round: int
    method: str
    verdict: str
    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    binary: bool = True


class SignalView(TypedDict):
    """A reward chip: one signal's opinion, the events that it rests on, and what they say, a sentence each."""

    signal: str
    score: float
    weight: NotRequired[float]
    kind: NotRequired[str]
    family: NotRequired[str]
    evidence: NotRequired[Sequence[str]]
    says: NotRequired[Sequence[str]]


class TrainedView(TypedDict):
    """What a round trained of an action: the text with its control tokens, as the side of one of its rows."""

    side: str
    row: str
    text: str
    tokens: int


class StepView(TypedDict):
    """One action with what it saw; messages are in the normal form of `records.Message`."""

    observation: Sequence[Mapping[str, Any]]
    action: Mapping[str, Any]
    status: NotRequired[Sequence[str]]
    credit: NotRequired[float | None]
    signals: NotRequired[Sequence[SignalView]]
    trained: NotRequired[Sequence[TrainedView]]


class PairView(TypedDict):
    """A preference pair: the last messages of the prompt and the two actions, in the form of `records.Message`.

    `asked` is what a user asked last, `chosen_context` and `rejected_context` are what each action's own episode saw
    just before it. `chosen_tokens` and `rejected_tokens` are the trained texts token by token; without them words are
    compared.
    """

    chosen: Sequence[Mapping[str, Any]]
    rejected: Sequence[Mapping[str, Any]]
    id: NotRequired[str]
    prompt_tail: NotRequired[Sequence[Mapping[str, Any]]]
    margin: NotRequired[float | None]
    builder: NotRequired[str]
    task: NotRequired[str]
    asked: NotRequired[str]
    chosen_episode: NotRequired[str]
    rejected_episode: NotRequired[str]
    chosen_step: NotRequired[int]
    rejected_step: NotRequired[int]
    chosen_context: NotRequired[Sequence[Mapping[str, Any]]]
    rejected_context: NotRequired[Sequence[Mapping[str, Any]]]
    chosen_tokens: NotRequired[Sequence[str]]
    rejected_tokens: NotRequired[Sequence[str]]
    trained: NotRequired[bool]


class EpisodeView(TypedDict):
    """An episode for the viewer; `tail` holds the messages after the last action.

    `outcome` is a recorded outcome in [0, 1], None where there is none; `p_success` is then an estimate. `task_name` is
    what the log calls the task, `alike` the names of other tasks with the same request.
    """

    id: str
    task: NotRequired[str]
    task_name: NotRequired[str]
    alike: NotRequired[Sequence[str]]
    intent: NotRequired[str]
    outcome: NotRequired[float | None]
    policy: NotRequired[str]
    split: NotRequired[str]
    p_success: NotRequired[float | None]
    value: NotRequired[float | None]
    signals: NotRequired[Sequence[SignalView]]
    started: NotRequired[str]
    pairs: NotRequired[Sequence[PairView]]
    steps: NotRequired[Sequence[StepView]]
    tail: NotRequired[Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class ReportData:
    """One round, ready to be written up.

    Args:
        project: the project's name.
        manifest: the round's manifest.
        report: its evaluation, if there is one.
        promotion: the newest decision on it, if there is one.
        baseline: what the baseline is called ("base", "round 3"); '' takes the evaluation's word.
        funnels: stage → counts in the form of `Funnel.as_dict`, in the order of the stages.
        signals: a row for each signal.
        agreements: a row for every two signals that voted on the same episodes.
        returns: histogram of the episodes' returns.
        training: the lines of metrics.jsonl.
        wins: cases that only this round got right; when empty, the evaluation's ids are shown.
        regressions: cases that only the baseline got right; likewise.
        episodes: episodes for the embedded viewer, in the order of the list.
        pairs: some preference pairs.
        history: rounds with their primary metric, oldest first, this one included.
    """

    project: str
    manifest: RoundManifest
    report: EvalReport | None = None
    promotion: Promotion | None = None
    baseline: str = ""
    funnels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    signals: Sequence[SignalRow] = ()
    agreements: Sequence[Agreement] = ()
    returns: Histogram | None = None
    training: Sequence[Mapping[str, Any]] = ()
    wins: Sequence[CaseRow] = ()
    regressions: Sequence[CaseRow] = ()
    episodes: Sequence[EpisodeView] = ()
    pairs: Sequence[PairView] = ()
    history: Sequence[PastRound] = ()

    @property
    def round(self) -> int:
        """The round's number."""
        return self.manifest.round

    @property
    def baseline_name(self) -> str:
        """What the round is compared with, in words."""
        return the_round(self.baseline or (self.report.baseline if self.report else "the baseline"))
