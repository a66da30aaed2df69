"""What ingest makes: events as production logged them, refused lines, and links between events."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Literal

from pydantic import Field

from flywheel.records.base import Json, Record, Row


class EventKind(StrEnum):
    """What kind of thing happened in production."""

    REQUEST = "request"
    MODEL_CALL = "model_call"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    FEEDBACK = "feedback"
    OUTCOME = "outcome"


class ToolStatus(StrEnum):
    """How a tool call ended; `unknown`: no result was logged, or it does not show how it ended."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class ToolCall(Record):
    """One call in an assistant message."""

    id: str = Field(default="", description="Call id that the tool result refers to; '' when the log has none.")
    name: str = Field(description="Tool name.")
    arguments: dict[str, Any] | None = Field(description="Parsed arguments; null when the model's text did not parse.")
    arguments_raw: str | None = Field(
        default=None,
        description="The model's text, where it is not a JSON object; arguments may still be known from it.",
    )


class Attachment(Record):
    """An image, a recording or a file that a message holds: what is kept of it, never its bytes."""

    kind: Literal["image", "audio", "video", "file"] = Field(description="What it is.")
    media_type: str | None = Field(default=None, description="Its MIME type, as logged or by its first bytes.")
    source: str = Field(
        description="inline: its bytes were in the log; else its URL without query and user, or PROVIDER:ID."
    )
    sha256: str | None = Field(default=None, description="Of the bytes; null where the log does not have them.")
    size_bytes: int | None = Field(default=None, ge=0, description="Of the bytes; null where the log has none.")


class Message(Record):
    """One chat message in the normal form that every reader produces and every trainer consumes.

    In tables it is canonical JSON with absent fields left out.
    """

    role: Literal["system", "user", "assistant", "tool", "context"] = Field(
        description="`developer` is stored as system; whoever else speaks is `context`, named as in the log."
    )
    content: str | None = Field(default=None, description="Text; null is normal with tool calls.")
    reasoning: str | None = Field(default=None, description="Thinking text, kept apart from the content.")
    tool_calls: list[ToolCall] | None = Field(default=None, description="Calls of an assistant message, in order.")
    tool_call_id: str | None = Field(default=None, description="On role=tool: the call this answers.")
    name: str | None = Field(
        default=None, description="On role=tool: the tool's name (joined by call id); on role=context: who speaks."
    )
    status: ToolStatus | None = Field(default=None, description="On role=tool: how the call ended.")
    attachments: list[Attachment] | None = Field(
        default=None,
        description="Images and files that it holds; its text has a mark for each, as `[image 3f2a09c4b51e]`.",
    )


class LogEvent(Row):
    """One thing that happened in production, as read from a log.

    Payload by kind (all keys optional unless named):
    - request: {"messages": [Message, ...] (required; [] where the event only names things), "tools": [OpenAI function
      schema, ...], "replaces_context": true where they replace all messages before (a compacted history),
      "usage_so_far": {"input_tokens", "output_tokens", "cost_usd"} a running total, "forked_from": the session that
      this one repeats, "opens": the session that begins here in a file of several, "pieces" and "summary": true as with
      model_call}
      messages that reached the agent from outside: system prompt, user turns, injected history.
    - model_call: {"message": Message (required), "input": [Message, ...] the full input where the log repeats it,
      "tools": [...], "response_id", "finish_reason", "input_tokens", "output_tokens", "cost_usd", "latency_s",
      "prompt_token_ids", "completion_token_ids", "completion_logprobs", "sampling": {...},
      "propensity": the probability with which the policy chose this action, for off-policy estimates,
      "fragment": "block" or "delta" where the message is a piece of one (pieces with one response_id, or a run of
      pieces without any, are joined in order), "copied": true where another conversation holds the same call (a fork):
      its tokens and cost count there, "attempt_step": its number, where an attempt has no name but its task's
      (with "attempt_done": true for its last),
      "pieces": true where what it was asked may be in requests of its span, a message a record,
      "summary": true where it is of a whole trace's own input and output, used only if the trace (by its id; without
      one the conversation) has no other call}
    - tool_call: {"arguments": {...}, "attachments"} a call seen apart from a model message (a span).
    - tool_result: {"content": str, "status": ToolStatus (required), "error_type", "latency_s", "attachments",
      "summary": true as with model_call}
    - feedback: {"name": str (required; thumbs, rating, edit, retry, export, copy, apply, undo, comment, escalation,
      ...), "value": float, "label": str, "comment": str, "text": the accepted or edited output, "target": "call" |
      "step" | "trace" | "session" | "response", "target_id": str, "annotator": "human" | "llm" | "code" | "implicit"}
    - outcome: {"name": str (required; reward, test, check, ...), "value": float (required), "scale": [min, max],
      "source": "verifier" | "callback" | "recorded" | "field" (of a record of something else) | "feedback" (a flat
      line), "adds": true where the values of this name add up (what a step has earned)}
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
        description="Other ids by which a log or feedback may refer to this event, as kind:id; kinds: trace, session, "
        "span, call, response, request, message.",
    )
    target: str | None = Field(
        default=None, description="On feedback and outcome: its target, as kind:id; joined when it arrives."
    )
    payload: Json = Field(description="Canonical JSON; its shape by kind is in the schema's description.")
    source_format: str = Field(description="Reader that produced the event.")
    source_file: str = Field(description="Path as given to ingest, relative to the project where possible.")
    source_line: int = Field(ge=0, description="1-based line, or 1-based record of a JSON document; 0 when unknown.")
    signed: str | None = Field(default=None, description="Fingerprint of the key that signed the file; null: none did.")


class Feedback(Record):
    """A line of a feedback file: later feedback of users or checks, from an application's own database.

    `target` and `target_id` name the target by any id that the log has; the line may come before or after it.
    """

    target: Literal["call", "step", "trace", "session", "response_id", "request_id", "message"] = Field(
        description="The target: a tool call, a step (by span id), a trace, a session, a response (by its id), ..."
    )
    target_id: str = Field(description="Its id, as the log writes it.")
    name: str = Field(
        description="Kind of feedback: thumbs, rating, edit, retry, export, copy, apply, undo, comment, ..."
    )
    value: float | None = Field(default=None, description="Number; thumbs: 0 or 1 (or -1 and 1), rating: 1 to 5.")
    label: str | None = Field(default=None, description="Category, where there is no number.")
    comment: str | None = Field(default=None, description="What the user wrote about it.")
    correction: str | None = Field(default=None, description="The output as the user wanted or left it.")
    annotator: Literal["human", "llm", "code", "implicit"] | None = Field(
        default=None, description="Who gave the feedback."
    )
    user: str | None = Field(default=None, description="Who gave it; stored as a pseudonym.")
    created_at: datetime | None = Field(default=None, description="When it was given; a time without zone is UTC.")


class Quarantined(Row):
    """One line or record that could not be read, with its reason; the text itself is never stored."""

    table: ClassVar[str] = "quarantine"
    key: ClassVar[tuple[str, ...]] = ("source_file", "source_line", "reason")

    source_file: str = Field(description="File it is in.")
    source_line: int = Field(ge=0, description="1-based line or record; 0 for the whole file.")
    source_format: str | None = Field(default=None, description="Reader that refused it; null when none was found.")
    reason: str = Field(
        description="Stable reason code: bad_json, bad_record, bad_encoding, truncated, unknown_format, bad_file, "
        "unreadable_file."
    )
    detail: str = Field(description="What was wrong, without log text.")
    size_bytes: int = Field(ge=0, description="Length of the refused line.")
    content_hash: str = Field(description="SHA-256 of the refused bytes, so that a retry can recognise them.")


ATTEMPT_STEP, ATTEMPT_DONE = "attempt_step", "attempt_done"  # in an act's payload: see `LogEvent`
OPENS = "opens"  # in a request's payload: see `LogEvent`
PART = "part:"  # begins an id that all events of a series of files have: which part of it they are
THREAD = "thread-"  # begins the name of a series that a program's own id names: equal files of it are copies
SETTINGS = "settings "  # begins the policy of an event that holds the settings of a run, as `name=value name=value`


class PolicyName(Row):
    """The policy that acted in a file, where the log names at most its model, or agent and model."""

    table: ClassVar[str] = "policies"
    key: ClassVar[tuple[str, ...]] = ("source_file", "actor")

    source_file: str = Field(description="File as recorded.")
    actor: str = Field(description="Model, or AGENT/MODEL, as the log names it; '' where it names none.")
    policy: str = Field(description="Name of the policy; 'unknown' where nothing distinguishes runs.")
    rule: Literal["log", "model", "settings", "file", "folder", "none"] = Field(
        description="What names it: the model, or what distinguishes runs, behind the model if there is one."
    )
    conversations: int = Field(ge=0, description="Conversations in the file under the actor.")


class Link(Row):
    """The conversation of events recorded under another id: a trace of a session, feedback in a file of its own."""

    table: ClassVar[str] = "links"
    key: ClassVar[tuple[str, ...]] = ("source", "event_id")

    source: str = Field(description="Conversation id under which the events were recorded.")
    event_id: str | None = Field(default=None, description="The only event of the link; null for all of the source's.")
    conversation_id: str | None = Field(default=None, description="Where they belong; null while that is not known.")
    via: str = Field(description="The kind:id that joins them, or that has no match yet.")
    state: Literal["joined", "pending", "ambiguous", "copied"] = Field(
        description="pending: the target has not been read yet; ambiguous: it is in several conversations; copied: a "
        "reply that a shorter conversation holds too, where its tokens count."
    )
