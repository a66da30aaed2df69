"""What an agent did, and how well: episodes and their steps, rewards, reliability of signals, and returns."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import Field

from flywheel.records.base import Json, Row


class StopReason(StrEnum):
    """Why an episode ended."""

    ANSWERED = "answered"  # the last action is a message to the user
    TOOL_PENDING = "tool_pending"  # the last action's tool call has no logged result
    TOOL_RESULT = "tool_result"  # a tool result is the last thing in the log (a closing tool, or a cut log)
    USER_LEFT = "user_left"  # the user spoke last and the agent did not answer
    NO_ACTION = "no_action"  # the agent did nothing at all


class Split(StrEnum):
    """Which side of the holdout an episode lies on; its task's side is decided by hash, for ever."""

    TRAIN = "train"
    HOLDOUT = "holdout"
    BETWEEN = "between"  # its task, user and time lie on different sides: neither trained on nor used for evaluation


class Episode(Row):
    """One attempt at one task: a conversation, from its first request to the end of the log."""

    table: ClassVar[str] = "episodes"
    key: ClassVar[tuple[str, ...]] = ("episode_id",)

    episode_id: str = Field(description="Content id of the conversation id.")
    conversation_id: str = Field(description="As in the events.")
    task_id: str = Field(description="Hash of the task; equal for attempts at the same task.")
    task_rule: Literal["task_key", "first_request"] = Field(description="What the task id was derived from.")
    request: str | None = Field(
        default=None,
        description="What was asked first; attempts at a task that the source does not name are matched by it.",
    )
    tool_signature: str = Field(default="", description="Hash of the names of the available tools.")
    policy: str = Field(
        description="Policy that acted: as the log or --policy names it, else by the table `policies`, else 'unknown'."
    )
    policy_rule: Literal["log", "model", "settings", "file", "folder", "none"] = Field(
        default="log", description="What names the policy; log: the log itself, or --policy."
    )
    model: str | None = Field(default=None, description="Model, as the log names it.")
    user: str | None = Field(default=None, description="Pseudonym of the user.")
    started: datetime | None = Field(default=None, description="First event's time.")
    ended: datetime | None = Field(default=None, description="Last event's time, feedback excluded.")
    stop_reason: StopReason = Field(description="Why it ended.")
    split: Split = Field(description="Side of the holdout: by the task's hash; by user and time too where configured.")
    n_steps: int = Field(ge=0, description="Model actions.")
    n_tool_calls: int = Field(ge=0, description="Tool calls over all actions.")
    n_tool_errors: int = Field(ge=0, description="Tool results with status failed.")
    input_tokens: int | None = Field(default=None, description="Sum over calls; null when never logged.")
    output_tokens: int | None = Field(default=None, description="Sum over calls; null when never logged.")
    cost_usd: float | None = Field(default=None, description="Sum over calls; null when never logged.")
    latency_s: float | None = Field(default=None, description="Sum over calls; null when never logged.")
    tools: Json | None = Field(default=None, description="JSON list of tool schemas; null when unknown, never [].")
    tail: Json = Field(description="JSON list of messages after the last action: the user's next messages.")
    tags: list[str] = Field(default_factory=list, description="Flags: suspect, truncated, redacted, ...")
    source_format: str = Field(description="Reader that produced the events.")


class Step(Row):
    """One model action in an episode, with what it saw since its last action and how its calls ended.

    The context of step t is observation_0, action_0, observation_1, ..., observation_t; where `resets_context` is true
    the observation replaces everything before it (a log that rewrote its history).
    """

    table: ClassVar[str] = "steps"
    key: ClassVar[tuple[str, ...]] = ("episode_id", "index")

    episode_id: str = Field(description="Episode it belongs to.")
    task_id: str = Field(description="Task of the episode.")
    index: int = Field(ge=0, description="0-based position of the action.")
    observation: Json = Field(description="JSON list of messages seen since the previous action.")
    resets_context: bool = Field(description="Whether the observation replaces the context instead of extending it.")
    action: Json = Field(description="The assistant message, JSON.")
    state_key: str = Field(description="Anchor state: task and canonical tool calls so far.")
    action_key: str | None = Field(default=None, description="Canonical tool calls of the action; null for plain text.")
    tool_names: list[str] = Field(default_factory=list, description="Called tools, in order.")
    tool_status: list[str] = Field(default_factory=list, description="Status of each call, in order.")
    malformed: bool = Field(description="A call did not parse and did not run: evidence, never a reason to drop.")
    event_id: str = Field(description="The model_call event.")
    result_event_ids: list[str] = Field(default_factory=list, description="Events of the calls' results.")
    served: Json | None = Field(
        default=None,
        description="How the action's tokens were sampled, as logged, JSON: sampling, ids, log_probs.",
    )


class Reward(Row):
    """One signal's vote, cost or risk of one episode or step."""

    table: ClassVar[str] = "rewards"
    key: ClassVar[tuple[str, ...]] = ("episode_id", "step", "signal")

    episode_id: str = Field(description="Episode it is about.")
    task_id: str = Field(description="Task of the episode.")
    step: int | None = Field(default=None, description="Step it is about; null for the whole episode.")
    signal: str = Field(description="Name of the signal.")
    family: str = Field(description="Signals of one family are dependent and share one vote.")
    kind: Literal["outcome", "implicit", "cost", "risk"] = Field(description="How the value enters the return.")
    score: float = Field(description="Vote in [-1, 1] (outcome, implicit), or a severity in [0, 1] (cost, risk).")
    weight: float = Field(ge=0, description="Confidence in [0, 1].")
    evidence: list[str] = Field(description="Event ids that it rests on.")
    arrived: datetime | None = Field(default=None, description="When the evidence arrived.")
    signal_version: int = Field(ge=1, description="Bumped when the signal's meaning changes.")
    inclusion: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Of an audit's answer: the probability with which the episode was sampled.",
    )


class Reliability(Row):
    """One fact of the reliability of signals, learned from the whole log or from audits.

    By kind:
    - vote: rates of a signal's vote of one sign within a scope; `tpr` P(+ or silent | success), `tnr` P(- or silent |
      failure), the vote being the one that is not silent.
    - class: `value` is P(success) of an episode of the scope, before its votes; `note` is how it was found (audit,
      verdicts, by outcome, by pattern, unknown), `low` is the least that it can be whoever was verified.
    - delay: `x` seconds after the end of an episode, `y` P(the signal has voted by then); `value` its horizon in s.
    - calibration: `x` scores, `y` probabilities; `value` the cross-fitted ECE, `low` its Brier score. Named
      "no vote": `value` is P(success) of an episode on which no signal votes.
    - user: `value` the trust in a user's votes, `low` that by habits alone; `note` is the reason.
    - time: `value` the time against which ages are measured, in seconds since 1970.
    - warning: `note` is a sentence.
    """

    table: ClassVar[str] = "reliability"
    key: ClassVar[tuple[str, ...]] = ("kind", "scope", "name", "sign")

    kind: Literal["vote", "class", "delay", "calibration", "user", "time", "warning"]
    scope: str = Field(description="'all', a source, a month or policy, or one of these in a source.")
    name: str = Field(description="Signal, user or warning; '' where there is none.")
    sign: int = Field(description="Of a vote: 1 or -1; otherwise 0.")
    family: str = Field(description="Family of the signal.")
    tpr: float | None = Field(default=None, description="See the kinds.")
    tnr: float | None = Field(default=None, description="See the kinds.")
    value: float | None = Field(default=None, description="See the kinds.")
    low: float | None = Field(default=None, description="See the kinds.")
    n: int = Field(ge=0, description="Votes, episodes or answers that it rests on.")
    source: str = Field(description="prior, fitted, or fitted with gold; '' where it does not apply.")
    x: list[float] = Field(description="Knots of a curve.")
    y: list[float] = Field(description="Its values.")
    note: str = Field(description="A sentence, without log text.")


class Opinion(Reward):
    """A reward from one conversation, before attempts at its task were compared."""

    table: ClassVar[str] = "opinions"


class CrowdMember(Row):
    """An attempt of a crowd: accounts that came to an action at once, and like it as those before and after do not."""

    table: ClassVar[str] = "crowds"
    key: ClassVar[tuple[str, ...]] = ("episode_id",)

    episode_id: str = Field(description="The attempt.")
    task_id: str = Field(description="Task of the episode.")
    crowd: int = Field(ge=1, description="Number of the crowd.")
    aside: bool = Field(description="Whether the crowd is beyond chance, so that its votes are set aside.")
    accounts: int = Field(ge=1, description="Accounts of the crowd.")
    tasks: int = Field(ge=1, description="Tasks at which they came.")
    likes: int = Field(ge=0, description="How many of their opinions are likes.")
    opinions: int = Field(ge=0, description="Opinions of theirs.")
    others_like: int = Field(ge=0, description="How many of the others' opinions are likes.")
    others: int = Field(ge=0, description="Opinions of those who came to the same actions before and after them.")
    p: float = Field(ge=0, le=1, description="P(so many likes by chance).")


class Task(Row):
    """Which task an episode is an attempt at, and on which side of the holdout it lies."""

    table: ClassVar[str] = "tasks"
    key: ClassVar[tuple[str, ...]] = ("episode_id",)

    episode_id: str = Field(description="The episode.")
    request_id: str = Field(
        description="Task id as in the episodes table: by the source's name, or by its own request."
    )
    cluster_id: str = Field(description="Near-duplicate requests, tools aside; the holdout goes by it.")
    text_id: str | None = Field(
        default=None, description="Of a named task too: requests that are alike. It joins nothing; tasks may share it."
    )
    task_id: str = Field(description="The task: a cluster with one set of tools, or what the source names.")
    split: Split = Field(description="Side of the holdout: by cluster; by user and time too where configured.")
    history: int | None = Field(
        default=None,
        description="Other tasks that its account had worked on an hour before; null where no account has a history.",
    )
    formerly: list[str] = Field(
        default_factory=list, description="Task ids that the episode had in earlier builds: clusters that were joined."
    )


class Correction(Row):
    """A user's edit of an output: the step as they wanted it."""

    table: ClassVar[str] = "corrections"
    key: ClassVar[tuple[str, ...]] = ("episode_id", "step")

    episode_id: str = Field(description="Episode corrected.")
    task_id: str = Field(description="Task of the episode.")
    step: int = Field(ge=0, description="Step corrected.")
    text: str = Field(description="The edited text; of a call, its arguments as JSON.")
    user: str | None = Field(default=None, description="Pseudonym of who edited it.")
    event_id: str = Field(description="The feedback event.")


class Return(Row):
    """The label and its return: R = alpha*success - beta*cost - gamma*risk for an episode, credit for its steps."""

    table: ClassVar[str] = "returns"
    key: ClassVar[tuple[str, ...]] = ("episode_id", "step")

    episode_id: str = Field(description="Episode it is about.")
    task_id: str = Field(description="Task of the episode.")
    step: int | None = Field(default=None, description="Step; null for the whole episode.")
    p_success: float = Field(
        ge=0,
        le=1,
        description="Probability that the episode succeeded; .5 at most for a step of a turn that its user rejected.",
    )
    cost: float = Field(ge=0, le=1, description="Normalised cost.")
    risk: float = Field(ge=0, le=1, description="Highest severity of a risk; for a step, of its own.")
    value: float = Field(description="R of the episode; for a step, its credit (skill): the posterior mean.")
    low: float | None = Field(default=None, description="For a step, the credit's 90 % interval.")
    high: float | None = Field(default=None, description="For a step, the credit's 90 % interval.")
    p_better: float | None = Field(
        default=None, ge=0, le=1, description="For a step, P(better than what else is done in its state)."
    )
    p_worse: float | None = Field(
        default=None, ge=0, le=1, description="For a step, P(worse than that); the rest: no difference."
    )
    luck: float = Field(description="For a step, the environment's share: reported, never trained on. 0 for episodes.")
    weight: float = Field(ge=0, le=1, description="Confidence; 0 means nothing is known.")
    known: bool = Field(description="Whether any outcome or implicit signal voted.")
    n_support: int = Field(ge=0, description="Signals that voted; for a step, episodes through its action.")
    level: int | None = Field(
        default=None,
        description="For a step, where most evidence on its credit is: 0 same task and history, 1 same intent and "
        "position, 2 same tool in any intent; null where no other attempt did the like.",
    )
    p_raw: float = Field(ge=0, le=1, description="P(success) by the signals alone: before calibration and audit.")
    basis: Literal["audit", "verifier", "signals", "suspect", "none"] = Field(description="What p_success rests on.")
    maturity: float = Field(ge=0, le=1, description="Share of the expected late evidence that has had time to arrive.")
    provisional: bool = Field(description="Not mature yet: visible, not trained on.")
    trust: float = Field(ge=0, le=1, description="Trust in the user, which is in the weight.")


class Labelled(Return):
    """The label of one episode, before its steps get their credit: the rows of `returns` for whole episodes."""

    table: ClassVar[str] = "labels"


class Evidence(Row):
    """Sums over the attempts at a task that took an action in a state; they add up over tasks.

    Levels: 0 the same task and history, 1 the same intent and position, 2 any intent. Of users' attempts there is a row
    a user, because each counts once; those without a user are one row.
    """

    table: ClassVar[str] = "evidence"
    key: ClassVar[tuple[str, ...]] = ("level", "state", "action", "task_id", "voter")

    level: int = Field(ge=0, le=2, description="How alike the states are.")
    state: str = Field(description="Hash of the state.")
    action: str = Field(description="Hash of the action.")
    task_id: str = Field(description="Task of the attempts.")
    parent_state: str | None = Field(default=None, description="The same state at the next level.")
    parent_action: str | None = Field(default=None, description="The same action at the next level.")
    voter: str | None = Field(default=None, description="Pseudonym of the user; null for all attempts without one.")
    count: int = Field(ge=1, description="Attempts.")
    weight: float = Field(ge=0, description="Sum of their weights.")
    total: float = Field(description="Sum of weight times outcome; an outcome is a return, in units of rewards.alpha.")
    squares: float = Field(ge=0, description="Sum of weight times squared outcome.")
    policy: str | None = Field(default=None, description="Who made all of them; null where several policies did.")
    sample_episode: str = Field(description="One of the attempts.")
    sample_step: int = Field(ge=0, description="Its step.")


class ActionValue(Row):
    """What the whole log shows about an action in a state, and how far it may be trusted.

    By kind:
    - cell: sums of a state and action over all partitions, in which a user counts once; of level 1 `x` holds the weight
      and total of the same attempts as they count at level 2, where the user may have more of them.
    - voter: how many attempts (`count`) a user made there whose attempts are one of a cell.
    - noise: `x` holds the mean square of attempts' outcomes, the largest variance that a state's can have.
    - relation: how a level is related to the level below: `x` is [slope, variance], of level 1 with the mean square of
      true differences; see `stages/values/model.py`.
    - prior: `x` how likely each hypothesis is, `y` under each in turn the shares of sizes of true differences.
    """

    table: ClassVar[str] = "values"
    key: ClassVar[tuple[str, ...]] = ("kind", "level", "state", "action", "voter")

    kind: Literal["cell", "voter", "noise", "relation", "prior"]
    level: int = Field(ge=0, le=2, description="Level of the state, see the table `evidence`.")
    state: str = Field(description="Hash of the state; '' where the row is not about one.")
    action: str = Field(description="Hash of the action; '' where the row is not about one.")
    parent_state: str | None = Field(default=None, description="The same state at the next level.")
    parent_action: str | None = Field(default=None, description="The same action at the next level.")
    voter: str | None = Field(default=None, description="Pseudonym of the user.")
    count: int = Field(ge=0, description="Users, and attempts without one; of other kinds what they were fitted on.")
    weight: float = Field(ge=0, description="Attempts, by their weights.")
    total: float = Field(description="Sum of weight times outcome.")
    policy: str | None = Field(default=None, description="Of a cell: who made all of them; null where several did.")
    sample_episode: str | None = Field(default=None, description="One of the attempts.")
    sample_step: int | None = Field(default=None, description="Its step.")
    x: list[float] = Field(default_factory=list, description="See the kinds.")
    y: list[float] = Field(default_factory=list, description="See the kinds.")


class Alternative(Row):
    """An action that attempts at other tasks of an intent took, as one of them took it: a side of a pooled pair."""

    table: ClassVar[str] = "alternatives"
    key: ClassVar[tuple[str, ...]] = ("state", "action")

    state: str = Field(description="State of level 1, see the table `values`.")
    action: str = Field(description="Action of level 1.")
    episode_id: str = Field(description="The attempt.")
    step: int = Field(ge=0, description="Its step.")
    user: str | None = Field(default=None, description="Pseudonym of its user.")
    message: Json = Field(description="JSON of the assistant message.")
    slots: list[str] = Field(description="Numbers, ids and names in the attempt's request, in order.")
    shown: str = Field(
        default="", description="Hash of what tools had shown it before, but for numbers, ids and names."
    )
