"""From events to episodes and steps: one conversation is one attempt at one task.

In: all events of a set of conversations, in any order. Out: the tables `episodes` and `steps`. Tasks are named by the
source or derived from the first request; the holdout is decided here, by the task's hash, for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import polars as pl

from flywheel.config import EpisodesConfig
from flywheel.contracts import conform, frame_of
from flywheel.funnel import Funnel
from flywheel.records import SETTINGS, Episode, EventKind, Split, Step, StopReason, ToolStatus, content_id
from flywheel.stages.common.canonical import (
    action_key,
    dump,
    first_state,
    in_holdout,
    is_round,
    next_state,
    parse,
    task_of_key,
    task_of_request,
    tools_of,
)
from flywheel.stages.conversations.fragments import Event
from flywheel.stages.conversations.policies import UNKNOWN, actor_of
from flywheel.stages.conversations.transcript import UNSTEPPED, Transcript, read_transcript

REQUEST_WORDS, REQUEST_MESSAGES = 10, 4  # words that make a request, within so many messages
_LOGPROBS = '"completion_logprobs":['  # as canonical JSON writes a list that is there
_LATER = ("feedback", "outcome")  # not part of the conversation itself
_PLACE = ("seq", "source_file", "source_line", "event_id")  # what orders events of one time
_BIG_INTEGER = r"[:,\[]\s*-?\d{19,}"


class _Row(NamedTuple):
    """The columns of an event that an episode is made from."""

    conversation_id: str
    event_id: str
    ts: datetime | None
    span_id: str | None
    parent_id: str | None
    kind: str
    model: str | None
    policy: str | None
    task_key: str | None
    user: str | None
    tool_name: str | None
    tool_call_id: str | None
    ids: list[str]
    payload: str
    exact: bool
    source_format: str
    source_file: str
    source_line: int


class _Log(NamedTuple):
    """One conversation's events, in order."""

    conversation_id: str
    rows: list[_Row]


def build_episodes(
    events: pl.DataFrame, cfg: EpisodesConfig, funnel: Funnel, policies: pl.DataFrame | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return (episodes, steps) of the conversations; counts conversations.

    `policies` names the policy where the log does not; without the table its model does.

    Events are ordered by time, then by their position in the source; an event without a time is placed by its position.
    A conversation with feedback only, or without any message, gives no episode and is counted; an attempt at a named
    task whose outcome is known is an episode even if it ended before its first message. The results of an
    episode's last calls are both in that step's status and, as messages, in the episode's tail: the tail is everything
    after the last action, in order.
    """
    episodes: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    names = _policy_names(policies)
    for log in _conversations(events):
        funnel.considered += 1
        transcript = read_transcript([_event(row) for row in log.rows if row.kind not in _LATER])
        _count_calls(transcript, funnel)
        if not transcript.actions and not transcript.tail and not _failed_early(log):
            only_feedback = all(row.kind in _LATER for row in log.rows)
            funnel.dropped["feedback without conversation" if only_feedback else "no messages"] += 1
            continue
        funnel.kept += 1
        episode = _episode(log, transcript, cfg, names)
        episodes.append(episode)
        steps += _steps(episode, transcript)
    return conform(frame_of(episodes, Episode), Episode).collect(), conform(frame_of(steps, Step), Step).collect()


def _failed_early(log: _Log) -> bool:
    """Whether a log without messages is an attempt: the source names its task and knows its outcome."""
    named = any(row.task_key for row in log.rows if row.kind not in _LATER)
    return named and any(row.kind == EventKind.OUTCOME.value for row in log.rows)


def _count_calls(transcript: Transcript, funnel: Funnel) -> None:
    """Count a conversation's tool calls: those of its events are those of its steps, or have a reason not to be.

    An episode without a step although its log has calls or results was not understood: an error.
    """
    funnel.note("duplicate model calls", transcript.repeated_calls)
    funnel.note("tool results without a call", transcript.orphan_results)
    funnel.note("tool calls of events", transcript.logged_calls)
    funnel.note("tool calls of steps", transcript.made_calls)
    for reason, count in transcript.uncounted.items():
        funnel.note(f"tool calls {reason}", count)
    if transcript.shown_calls:
        funnel.note("tool calls that a later input alone shows", transcript.shown_calls)
    logged = transcript.logged_calls + transcript.shown_calls
    lost = logged - transcript.made_calls - transcript.uncounted.total()
    funnel.error("tool calls of events that are in no step", abs(lost))
    funnel.error(f"episodes with tool calls and no step (tagged {UNSTEPPED})", UNSTEPPED in transcript.tags)


def _conversations(events: pl.DataFrame) -> Iterator[_Log]:
    happened = pl.when(~pl.col("kind").is_in(_LATER)).then(pl.col("ts"))
    in_turns = _in_turns()
    ordered = (
        events.unique(["conversation_id", "event_id"], keep="first")
        .with_columns(exact=pl.col("payload").str.contains(_BIG_INTEGER))
        .with_columns(file=pl.when(in_turns).then("source_file"), line=pl.when(in_turns).then("source_line"))
        .sort("conversation_id", "file", "line", *_PLACE)
        .with_columns(order=pl.coalesce("ts", happened.forward_fill().over("conversation_id")))
        .sort("conversation_id", "order", "file", "line", *_PLACE, nulls_last=False)
        .select(_Row._fields)
    )
    rows: list[_Row] = []
    for row in map(_Row._make, ordered.iter_rows()):
        if rows and rows[0].conversation_id != row.conversation_id:
            yield _Log(rows[0].conversation_id, rows)
            rows = []
        rows.append(row)
    if rows:
        yield _Log(rows[0].conversation_id, rows)


def _in_turns() -> pl.Expr:
    """Whether an event is of a file whose records hold whole turns of a conversation: a request and what was done.

    Each of them counts its messages from 0, so the order of such a file's records comes before that of their messages.
    """
    record, file = ("conversation_id", "source_file", "source_line"), ("conversation_id", "source_file")
    of_no_span = pl.col("span_id").is_null()
    parts = (((pl.col("kind") == kind.value) & of_no_span).any() for kind in (EventKind.REQUEST, EventKind.MODEL_CALL))
    return pl.all_horizontal(part.over(record) for part in parts).any().over(file)


def _event(row: _Row) -> Event:
    payload = parse(row.payload, exact=row.exact)
    return Event(
        row.event_id,
        row.kind,
        row.span_id,
        row.parent_id,
        row.tool_name,
        row.tool_call_id,
        payload if isinstance(payload, dict) else {},
        row.ids,
        f"{row.source_file}:{row.source_line}",
    )


def _served(rows: Sequence[_Row]) -> list[_Row]:
    """Return the acts; one that names no model has that of an event before it: some logs name it once a turn."""
    acts: list[_Row] = []
    told: _Row | None = None
    for row in rows:
        if row.kind == "model_call":
            unnamed = told is not None and row.model is None and row.policy is None
            acts.append(row._replace(model=told.model, policy=told.policy) if told is not None and unnamed else row)
        elif row.kind not in _LATER and (row.model or row.policy):
            told = row
    return acts


def _episode(
    log: _Log, transcript: Transcript, cfg: EpisodesConfig, names: Mapping[tuple[str, str], tuple[str, str]]
) -> dict[str, Any]:
    task_id, task_rule, request = _task(log, transcript)
    calls = [call for action in transcript.actions for call in action.calls]
    naming = [row for row in log.rows if not (row.policy or "").startswith(SETTINGS)]  # those are of the whole folder
    acting = _served(log.rows) or naming
    model = _commonest(row.model for row in acting) or _commonest(row.model for row in naming)
    policy, policy_rule = _policy(naming, acting, model, names)
    times = [row.ts for row in log.rows if row.ts is not None and row.kind not in _LATER]
    policies = {row.policy or row.model for row in acting} - {None}
    tags = transcript.tags | ({"mixed_policies"} if len(policies) > 1 else set())
    tags |= {"logprobs"} if all(row.kind == "model_call" and _LOGPROBS in row.payload for row in acting) else set()
    usage = transcript.usage
    return {
        "episode_id": content_id("episode", log.conversation_id),
        "conversation_id": log.conversation_id,
        "task_id": task_id,
        "task_rule": task_rule,
        "request": request,
        "tool_signature": tools_of(list(transcript.tools) or None),
        "policy": policy,
        "policy_rule": policy_rule,
        "model": model or _commonest(row.model for row in log.rows),
        "user": _commonest(row.user for row in log.rows),
        "started": min(times, default=None),
        "ended": max(times, default=None),
        "stop_reason": _stop_reason(transcript).value,
        "split": (Split.HOLDOUT if in_holdout(task_id, cfg.holdout_share) else Split.TRAIN).value,
        "n_steps": len(transcript.actions),
        "n_tool_calls": len(calls),
        "n_tool_errors": sum(call.status == ToolStatus.FAILED.value for call in calls),
        "input_tokens": _whole(usage.get("input_tokens")),
        "output_tokens": _whole(usage.get("output_tokens")),
        "cost_usd": usage.get("cost_usd"),
        "latency_s": usage.get("latency_s"),
        "tools": dump(list(transcript.tools.values())) if transcript.tools else None,
        "tail": dump(transcript.tail),
        "tags": sorted(tags),
        "source_format": log.rows[0].source_format,
    }


def _policy(
    naming: Sequence[_Row], acting: Sequence[_Row], model: str | None, names: Mapping[tuple[str, str], tuple[str, str]]
) -> tuple[str, str]:
    """Return the policy that acted and what names it: the log, else the table `policies`, else the model."""
    policy = _commonest(row.policy for row in acting) or _commonest(row.policy for row in naming)
    actor = actor_of(policy, model)
    if actor is None:
        return str(policy), "log"
    if model is not None and policy is None and is_round(model):  # a server lists an adapter as a model of its own
        return model, "model"
    file = _commonest(row.source_file for row in acting) or ""
    otherwise = (actor, "model" if actor == model else "log") if actor else (UNKNOWN, "none")
    return names.get((file, actor), otherwise)


def _policy_names(policies: pl.DataFrame | None) -> dict[tuple[str, str], tuple[str, str]]:
    if policies is None:
        return {}
    rows = policies.select("source_file", "actor", "policy", "rule").iter_rows()
    return {(file, actor): (policy, rule) for file, actor, policy, rule in rows}


def _whole(amount: float | None) -> int | None:
    return None if amount is None else int(amount)


def _commonest(values: Iterable[str | None]) -> str | None:
    counts = Counter(value for value in values if value)
    return min(counts, key=lambda value: (-counts[value], value), default=None)


def _task(log: _Log, transcript: Transcript) -> tuple[str, str, str | None]:
    """Return the task id, the rule that it was made by, and the request."""
    named, asked = next((row.task_key for row in log.rows if row.task_key), None), _request(transcript)
    if named is not None:
        return task_of_key(named), "task_key", asked or None
    request = asked or log.conversation_id  # no request: a task of its own
    return task_of_request(request, sorted(transcript.tools) or None), "first_request", request


def _request(transcript: Transcript) -> str:
    """Return what the user asked for first.

    A greeting alone is not one: while the user wrote few words and the agent only asks back, the user's answers belong
    to the request; of a turn that is logged with the talk before it, the last words. Messages after the agent did or
    answered something are reactions, and never part of it.
    """
    request: list[str] = []
    for action in transcript.actions:
        for text in _asked_now(action.observation):
            request.append(text)
            if len(request) == REQUEST_MESSAGES or sum(len(part.split()) for part in request) >= REQUEST_WORDS:
                return "\n".join(request)
        if action.calls or not _asks(action.message):
            break
    return "\n".join(request if transcript.actions else _user_texts(transcript.tail)[:1])


def _asked_now(observation: list[dict[str, Any]]) -> list[str]:
    """Return the user's words behind those of the agent that are in an observation, if there are any."""
    last = max((n for n, message in enumerate(observation) if message["role"] == "assistant"), default=-1)
    return _user_texts(observation[last + 1 :]) or _user_texts(observation)


def _user_texts(messages: Iterable[dict[str, Any]]) -> list[str]:
    contents = (m["content"] for m in messages if m["role"] == "user" and isinstance(m.get("content"), str))
    return [content for content in contents if content.strip()]


def _asks(message: dict[str, Any]) -> bool:
    """Whether an assistant's message is a question: its last sentence is one."""
    return str(message.get("content") or "").rstrip().endswith(("?", "\uff1f"))


def _stop_reason(transcript: Transcript) -> StopReason:
    if not transcript.actions:
        return StopReason.NO_ACTION
    last = [m["role"] for m in transcript.tail if m["role"] in {"user", "tool"}][-1:]
    if last == ["user"]:
        return StopReason.USER_LEFT
    calls = transcript.actions[-1].calls
    if not calls:
        return StopReason.TOOL_RESULT if last else StopReason.ANSWERED
    return StopReason.TOOL_RESULT if all(call.answered for call in calls) else StopReason.TOOL_PENDING


def _steps(episode: dict[str, Any], transcript: Transcript) -> Iterator[dict[str, Any]]:
    state = first_state(episode["task_id"])
    for index, action in enumerate(transcript.actions):
        keys = [call.key for call in action.calls]
        yield {
            "episode_id": episode["episode_id"],
            "task_id": episode["task_id"],
            "index": index,
            "observation": dump(action.observation),
            "resets_context": action.resets_context,
            "action": dump(action.message),
            "state_key": state,
            "action_key": action_key(keys),
            "tool_names": [call.name for call in action.calls],
            "tool_status": [call.status for call in action.calls],
            "malformed": any(call.unparsed for call in action.calls),
            "event_id": action.event_id,
            "result_event_ids": [event for call in action.calls for event in call.events],
            "served": action.served,
        }
        state = next_state(state, keys)
