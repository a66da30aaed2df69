"""A fifth set, written after logs that public repositories hold and that were read by eye, where a cause was mended."""

from __future__ import annotations

from typing import Any

from benchmarks.exports.story import (
    SERIAL,
    TALKS,
    Act,
    Export,
    Says,
    Talk,
    Told,
    answered,
    at,
    export,
    openai,
    quiet,
    told,
)


@export(5, "Exchanges with their calls")
def exchanges() -> Export:
    """What a user wrote and what was answered are fields of one object, with the calls in between next to them."""
    return Export({f"{talk.id}_chat_history.json": _exchanges(talk) for talk in TALKS}, told(quiet(TALKS)))


def _exchanges(talk: Talk) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for turn in talk.turns:
        if isinstance(turn, str):
            rows.append({"user": turn, "assistant": "", "tool_calls": []})
        elif turn.calls:
            rows[-1]["tool_calls"] += [
                {"tool_name": c.name, "args": c.args, "result": c.result, "tool_call_id": c.id} for c in turn.calls
            ]
        else:
            rows[-1]["assistant"] = turn.text
    return rows


@export(5, "Trace of thoughts, actions and their inputs")
def trace() -> Export:
    """A step names a tool as its action and has what the tool was given in a field of its own; no request is logged."""
    files = {}
    for talk in SERIAL:
        acts = [(act.text, act.calls[0]) for act in talk.acts if act.calls]
        files[f"{talk.id}/agent_trace.json"] = [
            {"step": n, "thought": text, "action": call.name, "action_input": call.args, "result": call.result}
            for n, (text, call) in enumerate(acts, 1)
        ]
    return Export(
        files,
        [
            *told([_unfinished(SERIAL[0])], asked="", steps=3),
            *told([_unfinished(SERIAL[1])], asked="", steps=1),
        ],
    )


def _unfinished(talk: Talk) -> Talk:
    """Return a talk without its last answer, which such traces do not hold."""
    return Talk(talk.id, talk.task, talk.turns[:-1], talk.solved)


@export(5, "Conversations of one session")
def conversations() -> Export:
    """A client keeps its conversations in one list; all of them are of the session `main`, empty ones among them."""
    chats = [
        {"id": f"conv-{n}", "title": "New conversation", "sessionId": "main", "createdAt": at(n),
         "messages": openai(talk) if talk else []}
        for n, talk in enumerate((TALKS[0], None, TALKS[1]))
    ]  # fmt: skip
    return Export({"data/conversations.json": {"conversations": chats}}, told(TALKS, Says()))


@export(5, "Conversations by user and id")
def by_user() -> Export:
    """A map of users holds maps of their conversations; two of these begin alike, and are two all the same."""
    short = Talk("talk-c", "task-b", TALKS[1].turns[:3], solved=True)
    long = Talk("talk-d", "task-b", (*TALKS[1].turns, "Thanks.", Act("You are welcome.")), solved=True)
    users = {
        f"u-{user}": {talk.id: {"id": talk.id, "userId": f"u-{user}", "title": "New", "messages": openai(talk)}}
        for user, talk in (("one", short), ("two", long))
    }
    return Export({"data/conversations.json": users}, told([short, long]))


@export(5, "Rows of unrelated interactions")
def interactions() -> Export:
    """A help desk's rows, each with an id of its own and an `action` that names no tool: a conversation each."""
    rows = [
        {
            "interaction_id": f"i{n}",
            "timestamp": at(n),
            "user_message": asked,
            "response": answer,
            "action": "Answered.",
        }
        for n, (asked, answer) in enumerate(answered(TALKS))
    ]
    told_ = [Told(asked=asked, answered=answer, steps=1) for asked, answer in answered(TALKS)]
    return Export({"agent_logs.json": rows}, told_)
