"""Conversations of Dify and Flowise, and executions of n8n with an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.reading.feedback import Opinion
from flywheel.reading.reader import has
from flywheel.reading.values import as_dict, as_list, count, embedded, first, ident, number, present, text, when
from flywheel.stages.ingest.readers.agents._platforms.talk import Shapes, Talk, Turn, call_ran, rating_of, words_said


def _dify(record: Mapping[str, Any]) -> Talk:
    """Return one message of Dify: a question, the thoughts and tools of the agent, the answer."""
    at, own = record.get("created_at"), str(record.get("id"))
    turns = words_said("user", record.get("query"), at)
    for n, thought in enumerate(map(as_dict, as_list(embedded(record.get("agent_thoughts"))))):
        given, seen = embedded(thought.get("tool_input")), embedded(thought.get("observation"))
        for tool in filter(None, str(thought.get("tool") or "").split(";")):
            result = seen.get(tool) if isinstance(seen, dict) and tool in seen else seen
            failed = True if isinstance(result, str) and result.startswith("tool invoke error") else None
            arguments = given.get(tool) if isinstance(given, dict) and tool in given else given
            turns += call_ran(f"{own}/{n}/{tool}", tool, arguments, result, thought.get("created_at"), failed=failed)
    counted = present(
        input_tokens=count(record.get("message_tokens")), output_tokens=count(record.get("answer_tokens"))
    )
    turns += words_said("assistant", record.get("answer"), None, cost_usd=number(record.get("total_price")), **counted)
    rated = [as_dict(record.get("feedback")), *map(as_dict, as_list(record.get("feedbacks")))]
    opinions = [opinion for one in rated for opinion in rating_of(one.get("rating"), one.get("content"))]
    user = ident(first(record, ("from_end_user_id", "user")))
    return Talk(turns, ident(record.get("conversation_id")), user, opinions, is_piece=True)


def _flowise(message: Mapping[str, Any], own: str) -> list[Turn]:
    """Return a message of Flowise, after the tools that were used for it."""
    at, turns = first(message, ("time", "createdDate")), []
    if message.get("role") in ("user", "userMessage"):
        return words_said("user", message.get("content"), at)
    agents = map(as_dict, as_list(embedded(message.get("agentReasoning"))))
    used_tools = [
        *as_list(embedded(message.get("usedTools"))),
        *(t for a in agents for t in as_list(a.get("usedTools"))),
    ]
    for n, used in enumerate(filter(None, map(as_dict, used_tools))):
        failed = True if used.get("error") else None
        seen = first(used, ("error", "toolOutput")) if failed else used.get("toolOutput")
        turns += call_ran(f"{own}/{n}", used.get("tool"), used.get("toolInput"), seen, at, failed=failed)
    return turns + words_said("assistant", message.get("content"), at, named=own)


def _flowise_opinions(message: Mapping[str, Any], own: str) -> list[Opinion]:
    """Return what a user thought of a message: with it, or as a row of its own; old exports have the thumb alone."""
    given = embedded(message.get("feedback"))
    rated = as_dict(given)
    return rating_of(rated.get("rating") if rated else given, rated.get("content"), of=own)


def _flowise_chat(record: Mapping[str, Any]) -> Talk:
    messages = list(map(as_dict, as_list(record.get("messages"))))
    named = [(str(message.get("id") or f"{record.get('id')}/{n}"), message) for n, message in enumerate(messages)]
    turns = [turn for own, message in named for turn in _flowise(message, own)]
    opinions = [opinion for own, message in named for opinion in _flowise_opinions(message, own)]
    return Talk(turns, ident(first(record, ("sessionId", "chatId", "id"))), opinions=opinions)


def _flowise_row(record: Mapping[str, Any]) -> Talk:
    own = str(record.get("id"))
    conversation = ident(first(record, ("sessionId", "chatId")))
    return Talk(_flowise(record, own), conversation, opinions=_flowise_opinions(record, own), is_piece=True)


def _flowise_rating(record: Mapping[str, Any]) -> Talk:
    """Return a row of the table of ratings."""
    opinions = rating_of(record.get("rating"), record.get("content"), of=str(record.get("messageId")))
    return Talk([], ident(record.get("chatId")), opinions=opinions, is_piece=True)


def _n8n(record: Mapping[str, Any]) -> Talk:
    """Return an execution of n8n: what models and tools did under an agent, in the order of their time."""
    ran = as_dict(as_dict(as_dict(embedded(record.get("data"))).get("resultData")).get("runData"))
    runs = [(node, as_dict(run)) for node, all_runs in ran.items() for run in as_list(all_runs)]
    asked = next((item for _, run in runs if "chatInput" in (item := _item(run, "main"))), {})
    nodes = map(as_dict, as_list(as_dict(record.get("workflowData")).get("nodes")))
    prompts = (as_dict(as_dict(node.get("parameters")).get("options")).get("systemMessage") for node in nodes)
    turns = [
        *words_said("system", next(filter(None, prompts), None)),
        *words_said("user", asked.get("chatInput"), record.get("startedAt")),
    ]
    for n, (node, run) in enumerate(sorted(runs, key=lambda pair: number(pair[1].get("startTime")) or 0)):
        if run.get("data") is None and not run.get("inputOverride"):
            continue
        at, over = run.get("startTime"), {"data": run.get("inputOverride")}
        if answer := _item(run, "ai_languageModel"):
            turns += _answered(answer, at)
        elif {"ai_tool"} & (as_dict(run.get("data")).keys() | as_dict(run.get("inputOverride")).keys()):
            seen, given = _item(run, "ai_tool"), _item(over, "ai_tool")
            failed = bool(run.get("error")) or run.get("executionStatus") == "error"
            result = as_dict(run.get("error")).get("message") if failed else first(seen, ("response", "output"))
            turns += call_ran(f"{record.get('id')}/{n}", node, given.get("query", given), result, at, failed=failed)
    turns = _merged(turns)
    if not any(turn["role"] == "assistant" and turn.get("content") for turn in turns):
        done = next((item for _, run in reversed(runs) if (item := _item(run, "main")).get("output")), {})
        turns += words_said("assistant", done.get("output"), record.get("stoppedAt"))
    return Talk(turns if asked else [], ident(asked.get("sessionId")) or ident(record.get("id")), is_piece=True)


def _item(run: Mapping[str, Any], connection: str) -> Mapping[str, Any]:
    """Return the first item of a node's data under a kind of connection."""
    items: Any = as_dict(run.get("data")).get(connection)
    while isinstance(items, list):
        items = items[0] if items else None
    return as_dict(as_dict(items).get("json"))


def _answered(answer: Mapping[str, Any], at: Any) -> list[Turn]:
    """Return a model's answer, which may be nothing but the calls that follow."""
    generated: Any = as_dict(answer.get("response")).get("generations")
    while isinstance(generated, list):
        generated = generated[0] if generated else None
    usage, about = as_dict(answer.get("tokenUsage")), as_dict(as_dict(generated).get("generationInfo"))
    counts = {"input_tokens": count(usage.get("promptTokens")), "output_tokens": count(usage.get("completionTokens"))}
    facts = present(ts=when(at), model=text(about.get("model_name")), **counts)
    return [{"role": "assistant", "content": text(as_dict(generated).get("text")), "facts": facts}]


def _merged(turns: list[Turn]) -> list[Turn]:
    """Return turns in which the calls after an answer are the answer's, before their results."""
    merged: list[Turn] = []
    model: Turn | None = None
    for turn in turns:
        calls = turn.get("tool_calls")
        if turn["role"] == "assistant" and not calls:
            model = turn
        elif calls and model is not None:
            model.setdefault("tool_calls", []).extend(calls)
            continue
        merged.append(turn)
    return [turn for turn in merged if turn["role"] != "assistant" or turn.get("content") or turn.get("tool_calls")]


def _is_flowise(record: Any) -> bool:
    fields = as_dict(record)
    return "memoryType" in fields and any(as_dict(m).get("role") == "bot" for m in as_list(fields.get("messages")))


def _is_n8n(record: Any) -> bool:
    return "runData" in as_dict(as_dict(as_dict(embedded(as_dict(record).get("data"))).get("resultData")))


SHAPES: Shapes = (
    (has("query", "answer", "conversation_id", agent_thoughts=list), _dify),
    (_is_flowise, _flowise_chat),
    (has("chatflowid", "role", "content", "chatId"), _flowise_row),
    (has("chatflowid", "chatId", "messageId", "rating"), _flowise_rating),
    (_is_n8n, _n8n),
)
