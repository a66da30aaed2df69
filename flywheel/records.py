"""The records that flow through flywheel: what one row of each table, and each JSON document, means.

LogEvent → Episode + Step → Reward → Return → PreferencePair / Example / Group → RoundManifest → EvalReport → Promotion

Names follow the OpenTelemetry GenAI conventions where one exists. Nested values (messages, tool calls, payloads) are
canonical JSON text in a table's column, because a log's nesting has no fixed schema; `Message` and `ToolCall` say what
stands in them. Ids are lower-case hex prefixes of SHA-256 over canonical JSON, so the same content has the same id
everywhere. The field descriptions here are the JSON Schemas' descriptions.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "FRESH",
    "ID_HEX",
    "ID_KINDS",
    "TABLES",
    "Correction",
    "Document",
    "Episode",
    "EvalReport",
    "EventKind",
    "Example",
    "Feedback",
    "FileHash",
    "Group",
    "Link",
    "LogEvent",
    "Message",
    "MetricRow",
    "MonitorRow",
    "Opinion",
    "Plan",
    "PreferencePair",
    "Promotion",
    "Quarantined",
    "Reliability",
    "Return",
    "Reward",
    "RoundManifest",
    "Row",
    "RuleResult",
    "Split",
    "Step",
    "StopReason",
    "Task",
    "ToolCall",
    "ToolStatus",
    "Verdict",
    "canonical_json",
    "content_id",
    "is_name",
]

ID_HEX = 32
FRESH = "fresh"  # the slice of the primary metric's cases whose tasks no earlier decision has spent
ID_KINDS = frozenset({"trace", "session", "span", "call", "response", "request", "message"})  # of ids and targets

Json = Annotated[str, Field(json_schema_extra={"contentMediaType": "application/json"})]


def canonical_json(value: object) -> str:
    """Return `value` as JSON text with sorted keys, no spaces and no NaN: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_id(*parts: object) -> str:
    """Return a 32-hex-digit id of the given JSON-able parts (SHA-256 of their canonical JSON, truncated)."""
    text = canonical_json(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:ID_HEX]


def is_name(value: object) -> bool:
    """Whether a value is a kind:id, as in `LogEvent.ids`."""
    kind, _, rest = value.partition(":") if isinstance(value, str) else ("", "", "")
    return kind in ID_KINDS and bool(rest)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Row(_Frozen):
    """A row of a stored table; `table` and `version` name its schema."""

    table: ClassVar[str]
    version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]]


class Document(_Frozen):
    """A JSON document that a command or a round writes; `document` and `version` name its schema."""

    document: ClassVar[str]
    version: ClassVar[int] = 1


class EventKind(StrEnum):
    """What kind of thing happened in production."""

    REQUEST = "request"
    MODEL_CALL = "model_call"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    FEEDBACK = "feedback"
    OUTCOME = "outcome"


class ToolStatus(StrEnum):
    """How a tool call ended; `unknown` is an honest answer (no result was logged, or it says nothing)."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


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
    BETWEEN = "between"  # its task, user and time lie on different sides: neither trained on nor judged by


class ToolCall(_Frozen):
    """One call in an assistant message."""

    id: str = Field(default="", description="Call id that the tool result refers to; '' when the log has none.")
    name: str = Field(description="Tool name.")
    arguments: dict[str, Any] | None = Field(description="Parsed arguments; null when the model's text did not parse.")
    arguments_raw: str | None = Field(default=None, description="The model's text, kept only when it did not parse.")


class Message(_Frozen):
    """One chat message in the normal form that every reader produces and every trainer consumes.

    In tables it is canonical JSON with absent fields left out.
    """

    role: Literal["system", "user", "assistant", "tool"] = Field(description="`developer` is stored as system.")
    content: str | None = Field(default=None, description="Text; null is normal beside tool calls.")
    reasoning: str | None = Field(default=None, description="Thinking text, kept apart from the content.")
    tool_calls: list[ToolCall] | None = Field(default=None, description="Calls of an assistant message, in order.")
    tool_call_id: str | None = Field(default=None, description="On role=tool: the call this answers.")
    name: str | None = Field(default=None, description="On role=tool: the tool's name (joined by call id).")
    status: ToolStatus | None = Field(default=None, description="On role=tool: how the call ended.")


class LogEvent(Row):
    """One thing that happened in production, as read from a log.

    Payload by kind (all keys optional unless named):
    - request: {"messages": [Message, ...] (required; [] where the event only names things), "tools": [OpenAI function
      schema, ...], "replaces_context": true where they stand for all that was said before (a compacted history),
      "usage_so_far": {"input_tokens", "output_tokens"} a running total, "summary": true as with model_call}
      messages that reached the agent from outside: system prompt, user turns, injected history.
    - model_call: {"message": Message (required), "input": [Message, ...] the full input where the log repeats it,
      "tools": [...], "response_id", "finish_reason", "input_tokens", "output_tokens", "cost_usd", "latency_s",
      "prompt_token_ids", "completion_token_ids", "completion_logprobs", "sampling": {...},
      "fragment": "block" or "delta" where the message is a piece of one (pieces with one response_id, or a run of
      pieces without any, are joined in order), "summary": true where it is a whole trace's own input and output,
      used only if the trace (by its id; without one the conversation) has no other call}
    - tool_call: {"arguments": {...}} a call seen apart from a model message (a span).
    - tool_result: {"content": str, "status": ToolStatus (required), "error_type", "latency_s"}
    - feedback: {"name": str (required; thumbs, rating, edit, retry, export, copy, apply, undo, comment, escalation,
      ...), "value": float, "label": str, "comment": str, "text": the accepted or edited output, "target": "call" |
      "step" | "trace" | "session" | "response", "target_id": str, "annotator": "human" | "llm" | "code" | "implicit"}
    - outcome: {"name": str (required; reward, test, check, ...), "value": float (required), "scale": [min, max],
      "source": "verifier" | "callback" | "recorded"}
    """

    table: ClassVar[str] = "events"
    key: ClassVar[tuple[str, ...]] = ("event_id",)

    event_id: str = Field(description="Content hash of conversation, kind, position or span, time and payload.")
    ts: datetime | None = Field(description="When it happened (UTC); null when the log has no time. Never invented.")
    seq: int = Field(ge=0, description="Position inside its conversation or source record; orders events without time.")
    conversation_id: str = Field(description="Session or trace; unique across sources (readers prefix colliding ids).")
    span_id: str | None = Field(default=None, description="Span, run or observation id, lower-case.")
    parent_id: str | None = Field(default=None, description="Parent span id.")
    kind: EventKind = Field(description="What kind of thing happened.")
    model: str | None = Field(default=None, description="Model that served it, as the log names it.")
    policy: str | None = Field(default=None, description="Round or release that served it; null when unknown.")
    task_key: str | None = Field(default=None, description="Task id given by the source (dataset item), if any.")
    user: str | None = Field(default=None, description="Pseudonym of the user or tenant.")
    tool_name: str | None = Field(default=None, description="On tool_call and tool_result.")
    tool_call_id: str | None = Field(default=None, description="Joins a tool result to its call.")
    ids: list[str] = Field(
        default_factory=list,
        description="Other names by which a log or a feedback may mean this event, as kind:id; kinds: trace, session, "
        "span, call, response, request, message.",
    )
    target: str | None = Field(
        default=None, description="On feedback and outcome: what is judged, as kind:id; joined when it arrives."
    )
    payload: Json = Field(description="Canonical JSON; its shape by kind is in the schema's description.")
    source_format: str = Field(description="Reader that produced the event.")
    source_file: str = Field(description="Path as given to ingest, relative to the project where possible.")
    source_line: int = Field(ge=0, description="1-based line, or 1-based record of a JSON document; 0 when unknown.")


class Feedback(_Frozen):
    """A line of a feedback file: what users or checks said later, from an application's own database.

    `target` and `target_id` name what is judged by any id that the log has; the line may come before or after it.
    """

    target: Literal["call", "step", "trace", "session", "response_id", "request_id", "message"] = Field(
        description="What is judged: a tool call, a step (by span id), a trace, a session, a response (by its id), ..."
    )
    target_id: str = Field(description="Its id, as the log writes it.")
    name: str = Field(description="What is said: thumbs, rating, edit, retry, export, copy, apply, undo, comment, ...")
    value: float | None = Field(default=None, description="Number; thumbs: 0 or 1 (or -1 and 1), rating: 1 to 5.")
    label: str | None = Field(default=None, description="Category, where there is no number.")
    comment: str | None = Field(default=None, description="What the user wrote about it.")
    correction: str | None = Field(default=None, description="The output as the user wanted or left it.")
    annotator: Literal["human", "llm", "code", "implicit"] | None = Field(default=None, description="Who judged.")
    user: str | None = Field(default=None, description="Who gave it; stored as a pseudonym.")
    created_at: datetime | None = Field(default=None, description="When it was given; a time without zone is UTC.")


class Quarantined(Row):
    """One line or record that could not be read, with its reason; the text itself is never stored."""

    table: ClassVar[str] = "quarantine"
    key: ClassVar[tuple[str, ...]] = ("source_file", "source_line", "reason")

    source_file: str = Field(description="File it stands in.")
    source_line: int = Field(ge=0, description="1-based line or record; 0 for the whole file.")
    source_format: str | None = Field(default=None, description="Reader that refused it; null when none was found.")
    reason: str = Field(
        description="Stable reason code: bad_json, bad_record, bad_encoding, truncated, unknown_format."
    )
    detail: str = Field(description="What was wrong, without log text.")
    size_bytes: int = Field(ge=0, description="Length of the refused line.")
    content_hash: str = Field(description="SHA-256 of the refused bytes, so that a retry can recognise them.")


class Link(Row):
    """Where events belong that were recorded under another name: a trace of a session, feedback that came by itself."""

    table: ClassVar[str] = "links"
    key: ClassVar[tuple[str, ...]] = ("source", "event_id")

    source: str = Field(description="Conversation id under which the events were recorded.")
    event_id: str | None = Field(default=None, description="The only event meant; null for all of the source's.")
    conversation_id: str | None = Field(default=None, description="Where they belong; null while that is not known.")
    via: str = Field(description="The kind:id that joins them, or that nothing has answered to yet.")
    state: Literal["joined", "pending", "ambiguous"] = Field(
        description="pending: what is meant has not been read yet; ambiguous: it is found in several conversations."
    )


class Episode(Row):
    """One attempt at one task: a conversation, from its first request to the end of the log."""

    table: ClassVar[str] = "episodes"
    key: ClassVar[tuple[str, ...]] = ("episode_id",)

    episode_id: str = Field(description="Content id of the conversation id.")
    conversation_id: str = Field(description="As in the events.")
    task_id: str = Field(description="Hash of the task; equal for attempts at the same task.")
    task_rule: Literal["task_key", "first_request"] = Field(description="What the task id was derived from.")
    request: str | None = Field(
        default=None, description="What was asked first, where the source names no task; attempts are recognised by it."
    )
    tool_signature: str = Field(default="", description="Hash of the names of the tools at hand.")
    policy: str = Field(description="Policy that acted; 'unknown' when no event names one.")
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
    tail: Json = Field(description="JSON list of messages after the last action: what the user said next.")
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
    malformed: bool = Field(description="A call whose arguments did not parse: evidence, never a reason to drop.")
    event_id: str = Field(description="The model_call event.")
    result_event_ids: list[str] = Field(default_factory=list, description="Events of the calls' results.")


class Reward(Row):
    """One signal's opinion of one episode or step."""

    table: ClassVar[str] = "rewards"
    key: ClassVar[tuple[str, ...]] = ("episode_id", "step", "signal")

    episode_id: str = Field(description="Episode judged.")
    task_id: str = Field(description="Task of the episode.")
    step: int | None = Field(default=None, description="Step judged; null for the whole episode.")
    signal: str = Field(description="Name of the signal.")
    family: str = Field(description="Signals of one family are dependent and share one vote.")
    kind: Literal["outcome", "implicit", "cost", "risk"] = Field(description="How the value enters the return.")
    score: float = Field(description="Vote in [-1, 1] (outcome, implicit), or a severity in [0, 1] (cost, risk).")
    weight: float = Field(ge=0, description="Confidence in [0, 1].")
    evidence: list[str] = Field(description="Event ids that this opinion rests on.")
    arrived: datetime | None = Field(default=None, description="When the evidence arrived.")
    signal_version: int = Field(ge=1, description="Bumped when the signal's meaning changes.")
    inclusion: float | None = Field(
        default=None, gt=0, le=1, description="Of an audit's answer: the probability with which the episode was drawn."
    )


class Reliability(Row):
    """One fact of how far signals are believed: what the log as a whole, or an audit of it, says of them.

    By kind:
    - vote: rates of a signal's vote of one sign within a scope; `tpr` P(+ or silent | success), `tnr` P(- or silent |
      failure), whichever is not silent being the vote.
    - class: `value` is P(success) of an episode of the scope, before its votes.
    - delay: `x` seconds after the end of an episode, `y` P(the signal has spoken by then); `value` its horizon in s.
    - calibration: `x` scores, `y` probabilities; `value` the cross-fitted ECE, `low` its Brier score.
    - user: `value` the trust in a user's votes.
    - time: `value` the time against which ages are measured, in seconds since 1970.
    - warning: `note` is a sentence.
    """

    table: ClassVar[str] = "reliability"
    key: ClassVar[tuple[str, ...]] = ("kind", "scope", "name", "sign")

    kind: Literal["vote", "class", "delay", "calibration", "user", "time", "warning"]
    scope: str = Field(description="'all', a month, or a policy.")
    name: str = Field(description="Signal, user or warning; '' where there is none.")
    sign: int = Field(description="Of a vote: 1 or -1; otherwise 0.")
    family: str = Field(description="Family of the signal.")
    tpr: float | None = Field(default=None, description="See the kinds.")
    tnr: float | None = Field(default=None, description="See the kinds.")
    value: float | None = Field(default=None, description="See the kinds.")
    low: float | None = Field(default=None, description="See the kinds.")
    n: int = Field(ge=0, description="Votes, episodes or answers that it rests on.")
    source: str = Field(description="prior, fitted, or fitted with gold; '' where that means nothing.")
    x: list[float] = Field(description="Knots of a curve.")
    y: list[float] = Field(description="Its values.")
    note: str = Field(description="A sentence, without log text.")


class Opinion(Reward):
    """A reward as found in one conversation, before attempts at its task were compared."""

    table: ClassVar[str] = "opinions"


class Task(Row):
    """Which task an episode is an attempt at, and on which side of the holdout it lies."""

    table: ClassVar[str] = "tasks"
    key: ClassVar[tuple[str, ...]] = ("episode_id",)

    episode_id: str = Field(description="The episode.")
    request_id: str = Field(
        description="Task id as in the episodes table: by the source's name, or by its own request."
    )
    cluster_id: str = Field(description="Near-duplicate requests, tools aside; the holdout goes by it.")
    task_id: str = Field(description="The task: a cluster with one set of tools, or what the source names.")
    split: Split = Field(description="Side of the holdout: by cluster; by user and time too where configured.")
    formerly: list[str] = Field(
        default_factory=list, description="Task ids that the episode had in earlier builds: clusters that were joined."
    )


class Correction(Row):
    """What a user made of an output: the step as they would have had it."""

    table: ClassVar[str] = "corrections"
    key: ClassVar[tuple[str, ...]] = ("episode_id", "step")

    episode_id: str = Field(description="Episode corrected.")
    task_id: str = Field(description="Task of the episode.")
    step: int = Field(ge=0, description="Step corrected.")
    text: str = Field(description="The edited text; of a call, its arguments as JSON.")
    user: str | None = Field(default=None, description="Pseudonym of who edited it.")
    event_id: str = Field(description="The feedback event.")


class Return(Row):
    """The combined judgement: R = alpha*success - beta*cost - gamma*risk for an episode, credit for its steps."""

    table: ClassVar[str] = "returns"
    key: ClassVar[tuple[str, ...]] = ("episode_id", "step")

    episode_id: str = Field(description="Episode judged.")
    task_id: str = Field(description="Task of the episode.")
    step: int | None = Field(default=None, description="Step; null for the whole episode.")
    p_success: float = Field(ge=0, le=1, description="Probability that the episode succeeded.")
    cost: float = Field(ge=0, le=1, description="Normalised cost.")
    risk: float = Field(ge=0, le=1, description="Highest severity of a risk.")
    value: float = Field(description="R of the episode; for a step, its credit (skill).")
    luck: float = Field(description="For a step, the environment's share: reported, never trained on. 0 for episodes.")
    weight: float = Field(ge=0, le=1, description="Confidence; 0 means nothing is known.")
    known: bool = Field(description="Whether any outcome or implicit signal voted.")
    n_support: int = Field(ge=0, description="Signals that voted; for a step, episodes through its action.")
    level: int | None = Field(
        default=None,
        description="For a step, where its credit was measured: 0 same history, 1 same calls so far, 2 same place and "
        "tool; null where nobody else did the like.",
    )
    p_raw: float = Field(ge=0, le=1, description="P(success) by the signals alone: before calibration and audit.")
    basis: Literal["audit", "verifier", "signals", "suspect", "none"] = Field(description="What p_success rests on.")
    maturity: float = Field(ge=0, le=1, description="Share of the late evidence expected that has had time to come.")
    provisional: bool = Field(description="Too young to learn from: visible, not trained on.")
    trust: float = Field(ge=0, le=1, description="Trust in the user, which is in the weight.")


class PreferencePair(Row):
    """A prompt with a better and a worse next action."""

    table: ClassVar[str] = "pairs"
    key: ClassVar[tuple[str, ...]] = ("pair_id",)

    pair_id: str = Field(description="Content id of prompt, chosen and rejected.")
    task_id: str = Field(description="Task of both sides.")
    split: Split = Field(description="Split of the task; only train pairs are trained on.")
    state_key: str = Field(description="Anchor state both sides leave from.")
    prompt: Json = Field(description="JSON list of messages before the action (the chosen side's context).")
    tools: Json | None = Field(default=None, description="JSON list of tool schemas.")
    chosen: Json = Field(description="JSON list with the better assistant message.")
    rejected: Json = Field(description="JSON list with the worse assistant message.")
    margin: float = Field(description="Return of the chosen side minus that of the rejected one.")
    p_chosen: float | None = Field(
        default=None, ge=0, le=1, description="Probability that the chosen action's episodes succeed."
    )
    p_better: float = Field(ge=0, le=1, description="Probability that chosen is truly better.")
    weight: float = Field(ge=0, description="Training weight.")
    builder: str = Field(description="Builder that made it.")
    chosen_episode: str = Field(description="Episode of the chosen action.")
    chosen_step: int = Field(ge=0, description="Step of the chosen action.")
    rejected_episode: str = Field(description="Episode of the rejected action.")
    rejected_step: int = Field(ge=0, description="Step of the rejected action.")
    same_prefix_until: int = Field(ge=0, description="Steps for which both sides made the same calls.")
    users: list[str] = Field(default_factory=list, description="Pseudonyms of the users it comes from, sorted.")


class Example(Row):
    """One labelled action: a demonstration for SFT when the label is true, an unpaired row for KTO either way."""

    table: ClassVar[str] = "examples"
    key: ClassVar[tuple[str, ...]] = ("example_id",)

    example_id: str = Field(description="Content id of task, prompt, completion and tools.")
    task_id: str = Field(description="Task of the episode.")
    split: Split = Field(description="Split of the task; only train examples are trained on.")
    state_key: str = Field(description="Anchor state the action leaves from.")
    prompt: Json = Field(description="JSON list of messages before the action.")
    tools: Json | None = Field(default=None, description="JSON list of tool schemas.")
    completion: Json = Field(description="JSON list with the assistant message.")
    label: bool = Field(description="Desirable (true) or undesirable (false).")
    p_success: float = Field(ge=0, le=1, description="Probability that its episode succeeded.")
    weight: float = Field(ge=0, description="Training weight.")
    episode_id: str = Field(description="Episode it comes from.")
    step: int = Field(ge=0, description="Step it comes from.")
    source: Literal["outcome", "correction"] = Field(
        default="outcome", description="What the label rests on: how the episode ended, or a user's edit."
    )
    user: str | None = Field(default=None, description="Pseudonym of the episode's user, or of who edited it.")


class Group(Row):
    """G logged attempts at one task, with group-relative advantages (suffix _G: one entry a member)."""

    table: ClassVar[str] = "groups"
    key: ClassVar[tuple[str, ...]] = ("group_id",)

    group_id: str = Field(description="Content id of the task, the prompt's signature and the members.")
    task_id: str = Field(description="Task of all members.")
    split: Split = Field(description="Split of the task.")
    prompt: Json = Field(description="JSON list of messages before the first action (first member's).")
    tools: Json | None = Field(default=None, description="JSON list of tool schemas.")
    mixed_policies: bool = Field(description="Whether more than one policy produced the members.")
    episodes_G: list[str] = Field(description="Episode ids.")
    completions_G: list[str] = Field(description="Each member's messages after the prompt, JSON.")
    rewards_G: list[float] = Field(description="Returns.")
    advantages_G: list[float] = Field(description="Leave-one-out advantages; they sum to 0.")
    policies_G: list[str] = Field(description="Policy of each member.")
    prompts_G: list[str] = Field(
        default_factory=list,
        description="Each member's own messages before its first action, JSON.",
    )
    behaviour_G: list[str] = Field(
        default_factory=list,
        description="Where each member's log-probabilities under the policy that acted come from: logged; rescore (a "
        "round of this project acted: its adapter can say); unknown.",
    )
    gradient_G: list[float] = Field(
        default_factory=list,
        description="What multiplies each member's log-probability off policy: its advantage plus groups.shift; 0 "
        "where that is negative and the behaviour unknown, because nothing would hold it back.",
    )
    step_advantages_G: list[list[float]] = Field(
        default=[],
        description="Each member's training signal by step: its advantage, discounted, plus rewards.omega times the "
        "step's credit; or the credit alone where rewards.credit is a whole advantage itself.",
    )


class FileHash(_Frozen):
    """A file of a round, by content."""

    path: str = Field(description="Path relative to the round's folder.")
    sha256: str = Field(description="Hash of its bytes.")
    size_bytes: int = Field(ge=0, description="Its size.")


class MonitorRow(_Frozen):
    """What one monitor against gaming says of the newest window of the logs."""

    monitor: str = Field(description="What is watched.")
    level: Literal["green", "amber", "red", "unknown"] = Field(
        description="red blocks training; unknown is no green: there was not enough to tell."
    )
    value: float | None = Field(default=None, description="What was measured; null when unknown.")
    amber: float | None = Field(default=None, description="Threshold of amber.")
    red: float | None = Field(default=None, description="Threshold of red; null where it never is.")
    low: float | None = Field(default=None, description="Lower end of the 95 % interval, where there is one.")
    high: float | None = Field(default=None, description="Upper end of it.")
    n: int = Field(default=0, ge=0, description="Units it rests on: episodes, tasks or users, as the sentence says.")
    sentence: str = Field(description="One sentence with the numbers.")


class RoundManifest(Document):
    """Everything that made a training round, and what it made."""

    document: ClassVar[str] = "round_manifest"

    schema_version: int = 1
    round: int = Field(ge=1, description="Number of the round.")
    state: Literal["planned", "built", "trained", "evaluated", "promoted", "held", "failed", "retired"]
    method: Literal["sft", "dpo", "grpo", "kto"] = Field(description="What was trained.")
    method_reason: str = Field(description="Why this method, with the numbers that decided.")
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
    versions: dict[str, str] = Field(default_factory=dict, description="Library versions that matter.")
    outputs: list[FileHash] = Field(default_factory=list, description="Adapter files.")
    adapter_sha256: str = Field(default="", description="Hash over the adapter's weight file.")
    checks: dict[str, float] = Field(default_factory=dict, description="Self-checks, e.g. the DPO loss at step 0.")
    timings_s: dict[str, float] = Field(default_factory=dict, description="Seconds by phase (not hashed).")
    error: str = Field(default="", description="Why the round failed, if it did.")
    monitors: list[MonitorRow] = Field(default_factory=list, description="The monitors when the round was begun.")
    forced: str = Field(default="", description="Why it was trained although a monitor was red; '' where none was.")


class DataCard(_Frozen):
    """What a round's rows are: where they come from, how long they are, and what of them fits."""

    rendering: str = Field(description="How messages and tools become text.")
    tokens: int = Field(ge=0, description="Tokens of all rows, the longer side of each.")
    trained_tokens: int = Field(ge=0, description="Tokens in the loss: actions only, all sides.")
    median_tokens: int = Field(ge=0, description="Tokens of the median row.")
    longest_tokens: int = Field(ge=0, description="Tokens of the longest row.")
    max_length: int = Field(ge=0, description="train.max_length.")
    fitting: int = Field(ge=0, description="Rows that fit into it.")
    too_long: int = Field(ge=0, description="Rows that do not: they are refused whole, never cut.")
    mean_trained: list[float] = Field(description="Mean trained tokens of each side: chosen, rejected.")
    longer_wins: float | None = Field(description="Share of pairs whose longer side is the chosen one, ties as halves.")
    sources: dict[str, int] = Field(description="Rows by format of their log.")
    policies: dict[str, int] = Field(description="Rows by the policy that acted.")
    builders: dict[str, int] = Field(description="Pairs by builder.")
    users: int = Field(ge=0, description="Distinct users behind the rows, as far as the log names them.")
    largest_user_share: float | None = Field(description="Share of the rows that the most frequent user is behind.")


class Plan(Document):
    """What the next round will contain, as a value: `plan` prints it, `train` executes it."""

    document: ClassVar[str] = "plan"

    schema_version: int = 1
    round: int = Field(ge=1, description="Number of the round.")
    method: Literal["sft", "dpo", "grpo", "kto"] = Field(description="What will be trained.")
    method_reason: str = Field(description="Why this method, with the numbers that decided.")
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
    steps: int = Field(ge=0, description="Optimiser steps.")
    characters: int = Field(ge=0, description="Characters in all rows; about four make a token in English.")
    card: DataCard = Field(description="What the rows are.")
    dataset_sha256: str = Field(description="Hash of the dataset that will be written.")
    train_tasks_sha256: str = Field(description="Hash over the sorted task ids.")
    config: dict[str, Any] = Field(description="Resolved model and train sections.")
    same_as: int | None = Field(default=None, description="A trained round that this one would only repeat.")
    monitors: list[MonitorRow] = Field(default=[], description="What the monitors say; red blocks training.")


class MetricRow(_Frozen):
    """One metric of a round beside the baseline's, on the same cases."""

    suite: str
    metric: str
    slice: str = Field(
        default="all", description="'all', name=value, or 'fresh': cases of tasks that no earlier decision has spent."
    )
    n: int = Field(ge=0, description="Paired cases.")
    baseline: float | None = Field(default=None, description="Baseline's mean; null when there are no cases.")
    value: float | None = Field(default=None, description="Candidate's mean.")
    delta: float | None = Field(default=None, description="value - baseline.")
    low: float | None = Field(default=None, description="Lower end of the 95 % interval of delta.")
    high: float | None = Field(default=None, description="Upper end of the 95 % interval of delta.")
    method: str = Field(default="", description="How the interval was made.")
    wins: int = Field(default=0, ge=0, description="Cases only the candidate got right (binary metrics).")
    losses: int = Field(default=0, ge=0, description="Cases only the baseline got right (binary metrics).")
    binary: bool = Field(default=True, description="Whether each case scores 0 or 1.")
    primary: bool = Field(default=False, description="Whether superiority is judged on this row.")
    n_tasks: int = Field(default=0, ge=0, description="Distinct units among the paired cases; 0 when not counted.")
    unit: str = Field(default="task", description="What is drawn as a whole: task, or user.")
    design_effect: float = Field(
        default=1.0, ge=1, description="Cases that are worth one independent case, because tasks have several."
    )
    p_better: float | None = Field(
        default=None, ge=0, le=1, description="One-sided p-value of 'the candidate is no better', tasks as units."
    )
    p_worse: float | None = Field(
        default=None, ge=0, le=1, description="One-sided p-value of 'the candidate is no worse', tasks as units."
    )


class EvalReport(Document):
    """One round judged beside another on cases that no training row touched; or two policies, from their logs."""

    document: ClassVar[str] = "eval_report"

    schema_version: int = 1
    round: int = Field(ge=0, description="0 where two policies are compared from their logs.")
    baseline: str = Field(description="'base' or a round number; of logs, the old policy.")
    candidate_adapter_sha256: str = Field(description="Adapter that was judged.")
    baseline_adapter_sha256: str = Field(description="'' for the base model.")
    cases_sha256: str = Field(description="Hash over the cases: a repeated evaluation of the same is the same.")
    n_cases: int = Field(ge=0)
    n_tasks: int = Field(ge=0, description="Distinct held-out tasks among the cases.")
    leaked_tasks: int = Field(ge=0, description="Cases whose task was trained on; must be 0.")
    metrics: list[MetricRow]
    coverage: dict[str, int] = Field(description="Cases by suite: offered, scored, missing by reason.")
    wins: list[str] = Field(default_factory=list, description="Case ids that only the candidate got right.")
    regressions: list[str] = Field(default_factory=list, description="Case ids that only the baseline got right.")
    spends: list[str] = Field(default_factory=list, description="Tasks of the primary metric not spent before.")
    spent: int = Field(default=0, ge=0, description="Its tasks that earlier decisions have spent.")
    seed: int = 0
    timings_s: dict[str, float] = Field(default_factory=dict)


class Verdict(StrEnum):
    """What the gate says."""

    PROMOTE = "PROMOTE"
    REJECT = "REJECT"
    INCONCLUSIVE = "INCONCLUSIVE"
    BLOCKED = "BLOCKED"


class RuleResult(_Frozen):
    """One rule of the gate, with its numbers."""

    rule: str
    passed: bool
    verdict: Verdict = Field(description="What this rule alone implies; PROMOTE when it passed.")
    message: str = Field(description="One sentence with the numbers.")
    numbers: dict[str, float] = Field(default_factory=dict)


class Promotion(Document):
    """One decision, appended to promotions.jsonl; `previous_sha256` chains the entries."""

    document: ClassVar[str] = "promotion"

    schema_version: int = 1
    round: int = Field(ge=1)
    decision: Literal["promoted", "held", "forced", "rolled_back"]
    verdict: Verdict | None = Field(default=None, description="null for forced moves and rollbacks.")
    champion_before: int | None = Field(default=None)
    champion_after: int | None = Field(default=None)
    rules: list[RuleResult] = Field(default_factory=list)
    report_sha256: str = Field(default="", description="Hash of the evaluation report that was judged.")
    adapter_sha256: str = Field(default="", description="Adapter that the champion alias now names.")
    by: str = Field(description="Command that decided.")
    at: datetime
    reason: str = ""
    spent_sha256: str = Field(default="", description="Hash of the line of spent.jsonl that this decision rests on.")
    previous_sha256: str = Field(default="", description="Hash of the line before; '' for the first.")


TABLES: dict[str, type[Row]] = {
    row.table: row
    for row in (
        LogEvent,
        Quarantined,
        Link,
        Episode,
        Step,
        Task,
        Opinion,
        Correction,
        Reward,
        Reliability,
        Return,
        PreferencePair,
        Example,
        Group,
    )
}
