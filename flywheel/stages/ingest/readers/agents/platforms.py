"""Conversations as platforms for bots and workflows export them: a record is a conversation, a turn or a message.

Dify, Flowise, n8n, Rasa, Botpress, Copilot Studio, the Bot Framework, Bedrock Agents, Voiceflow, Intercom, and the
evaluations of Azure AI Foundry. Each has a function from its record to a `Talk`; turns then become events in one way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from flywheel.reading.events import Event, attempt_of, source_of
from flywheel.reading.feedback import Opinion, judgement
from flywheel.reading.messages import flat_text, with_origins
from flywheel.reading.reader import has, reader
from flywheel.reading.rollout import Rollout, rollout_events
from flywheel.reading.shapes import answered, schemas, unread
from flywheel.reading.shapes.whole import all_called
from flywheel.reading.status import FAILED, OK
from flywheel.reading.values import as_dict, as_list, count, embedded, first, ident, number, present, text, when
from flywheel.stages.ingest.readers.apis._dialects.calls import LINE

_RATED = {"like": 1.0, "dislike": 0.0, "THUMBS_UP": 1.0, "THUMBS_DOWN": 0.0}
_CONFIDENCE = 0.9  # above what reads any question and answer
_OWN_ACTIONS = (  # of Rasa: what its engine does by itself
    "action_listen", "action_restart", "action_session_start", "action_default_fallback", "action_deactivate_loop",
    "action_revert_fallback_events", "action_default_ask_affirmation", "action_default_ask_rephrase",
    "action_two_stage_fallback", "action_unlikely_intent", "action_back", "action_extract_slots",
    "action_run_slot_rejections", "action_clean_stack", "action_cancel_flow", "action_correct_flow_slot",
    "action_clarify_flows", "action_trigger_search", "action_trigger_chitchat",
)  # fmt: skip
_STARS = (1, 5)
_IN_PART = re.compile(r"\A\[\{(?:'text': ['\"]|text=)(?P<words>.*?)(?:['\"]|, type=text)\}\]\Z", re.DOTALL)  # Bedrock's
_OF_ACTIONS = re.compile(r"tool_?result|tool_?use_?id|function_results?", re.IGNORECASE)

Turn = dict[str, Any]  # a message of Chat Completions; `facts` are those of `Rollout.facts`


class Talk(NamedTuple):
    """What a record holds of a conversation; one without a name is an attempt of its own."""

    turns: Sequence[Turn]
    conversation: str | None = None
    user: str | None = None
    opinions: Sequence[Opinion] = ()
    tools: Any = None
    is_piece: bool = False  # whether other records go on with the conversation


def _said(role: str, words: Any, at: Any = None, **counts: Any) -> list[Turn]:
    """Return the words of a speaker as a turn; nothing where there are none."""
    content = flat_text(words)
    return [{"role": role, "content": content, "facts": present(ts=when(at), **counts)}] if content else []


def _ran(own: str, tool: Any, given: Any, result: Any, at: Any = None, *, failed: bool | None = None) -> list[Turn]:
    """Return a call and its result; without one, where neither a result nor a failure is known."""
    facts = present(ts=when(at))
    call = {"id": own, "name": str(tool or ""), "arguments": embedded(given) if given is not None else {}}
    turns: list[Turn] = [{"role": "assistant", "tool_calls": [call], "facts": facts}]
    if result is not None or failed:
        status = {True: {"status": FAILED}, False: {"status": OK}, None: {}}[failed]
        turns.append(
            {"role": "tool", "tool_call_id": own, "content": flat_text(result) or "", "facts": facts, **status}
        )
    return turns


def _rating(value: Any, comment: Any = None) -> list[Opinion]:
    value = _RATED.get(value) if isinstance(value, str) else None
    return (
        [Opinion("rating", value=value, comment=text(comment), annotator="human", scale=(0, 1))]
        if value is not None
        else []
    )


def _dify(record: Mapping[str, Any]) -> Talk:
    """Return one message of Dify: a question, the thoughts and tools of the agent, the answer."""
    at, own = record.get("created_at"), str(record.get("id"))
    turns = _said("user", record.get("query"), at)
    for n, thought in enumerate(map(as_dict, as_list(embedded(record.get("agent_thoughts"))))):
        given, seen = embedded(thought.get("tool_input")), embedded(thought.get("observation"))
        for tool in filter(None, str(thought.get("tool") or "").split(";")):
            result = seen.get(tool) if isinstance(seen, dict) and tool in seen else seen
            failed = True if isinstance(result, str) and result.startswith("tool invoke error") else None
            arguments = given.get(tool) if isinstance(given, dict) and tool in given else given
            turns += _ran(f"{own}-{n}-{tool}", tool, arguments, result, thought.get("created_at"), failed=failed)
    counted = present(
        input_tokens=count(record.get("message_tokens")), output_tokens=count(record.get("answer_tokens"))
    )
    turns += _said("assistant", record.get("answer"), None, cost_usd=number(record.get("total_price")), **counted)
    rated = [as_dict(record.get("feedback")), *map(as_dict, as_list(record.get("feedbacks")))]
    opinions = [opinion for one in rated for opinion in _rating(one.get("rating"), one.get("content"))]
    user = ident(first(record, ("from_end_user_id", "user")))
    return Talk(turns, ident(record.get("conversation_id")), user, opinions, is_piece=True)


def _flowise(message: Mapping[str, Any], own: str) -> list[Turn]:
    """Return a message of Flowise, after the tools that were used for it."""
    at, turns = first(message, ("time", "createdDate")), []
    if message.get("role") in ("user", "userMessage"):
        return _said("user", message.get("content"), at)
    for n, used in enumerate(map(as_dict, as_list(embedded(message.get("usedTools"))))):
        failed = True if used.get("error") else None
        seen = first(used, ("error", "toolOutput")) if failed else used.get("toolOutput")
        turns += _ran(f"{own}-{n}", used.get("tool"), used.get("toolInput"), seen, at, failed=failed)
    return turns + _said("assistant", message.get("content"), at)


def _flowise_chat(record: Mapping[str, Any]) -> Talk:
    messages = list(map(as_dict, as_list(record.get("messages"))))
    turns = [turn for n, message in enumerate(messages) for turn in _flowise(message, f"{record.get('id')}-{n}")]
    opinions = [opinion for message in messages for opinion in _rating(message.get("feedback"))]
    return Talk(turns, ident(first(record, ("sessionId", "chatId", "id"))), opinions=opinions)


def _flowise_row(record: Mapping[str, Any]) -> Talk:
    turns = _flowise(record, str(record.get("id")))
    return Talk(turns, ident(first(record, ("sessionId", "chatId"))), is_piece=True)


def _n8n(record: Mapping[str, Any]) -> Talk:
    """Return an execution of n8n: what models and tools did under an agent, in the order of their time."""
    ran = as_dict(as_dict(as_dict(embedded(record.get("data"))).get("resultData")).get("runData"))
    runs = [(node, as_dict(run)) for node, all_runs in ran.items() for run in as_list(all_runs)]
    asked = next((item for _, run in runs if "chatInput" in (item := _item(run, "main"))), {})
    nodes = map(as_dict, as_list(as_dict(record.get("workflowData")).get("nodes")))
    prompts = (as_dict(as_dict(node.get("parameters")).get("options")).get("systemMessage") for node in nodes)
    turns = [
        *_said("system", next(filter(None, prompts), None)),
        *_said("user", asked.get("chatInput"), record.get("startedAt")),
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
            turns += _ran(f"{record.get('id')}-{n}", node, given.get("query", given), result, at, failed=failed)
    turns = _merged(turns)
    if not any(turn["role"] == "assistant" and turn.get("content") for turn in turns):
        done = next((item for _, run in reversed(runs) if (item := _item(run, "main")).get("output")), {})
        turns += _said("assistant", done.get("output"), record.get("stoppedAt"))
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


def _rasa(record: Mapping[str, Any]) -> Talk:
    """Return a tracker of Rasa: an action of its own is a call, and the slots that it set are its result."""
    turns: list[Turn] = []
    sets = False
    for n, event in enumerate(map(as_dict, as_list(record.get("events")))):
        kind, at, name = event.get("event"), event.get("timestamp"), text(event.get("name")) or ""
        if kind in ("user", "bot"):
            turns += _said("user" if kind == "user" else "assistant", event.get("text"), at)
        elif kind == "action" and (not name or name.startswith("action_")) and name not in _OWN_ACTIONS:
            turns += _ran(f"{record.get('sender_id')}-{n}", name, None, None, at)
        elif kind == "action_execution_rejected" and sets:
            turns.append(_result(turns[-1], "rejected", at, FAILED))
        elif kind == "slot" and sets:
            told = {name: event.get("value")}
            if turns[-1]["role"] == "tool":
                turns[-1]["content"] = flat_text({**as_dict(embedded(turns[-1]["content"])), **told})
            else:
                turns.append(_result(turns[-1], flat_text(told), at, OK))
        sets = (
            bool(turns)
            and (bool(turns[-1].get("tool_calls")) or turns[-1]["role"] == "tool")
            and kind in ("action", "slot")
        )
    return Talk(turns, ident(record.get("sender_id")))


def _result(called: Turn, content: Any, at: Any, status: str) -> Turn:
    own = called["tool_calls"][0]["id"] if called.get("tool_calls") else called.get("tool_call_id")
    return {"role": "tool", "tool_call_id": own, "content": content, "status": status, "facts": present(ts=when(at))}


def _botpress(record: Mapping[str, Any]) -> Talk:
    role = "user" if record.get("direction") == "incoming" else "assistant"
    words = first(as_dict(embedded(record.get("payload"))), ("text", "markdown", "title"))
    turns = _said(role, words, record.get("createdAt"))
    return Talk(
        turns,
        ident(record.get("conversationId")),
        ident(record.get("userId")) if role == "user" else None,
        is_piece=True,
    )


def _activity(record: Mapping[str, Any]) -> Talk:
    by = as_dict(record.get("from"))
    turns = _spoken(record) if record.get("type") == "message" else []
    user = ident(by.get("id")) if turns and turns[0]["role"] == "user" else None
    return Talk(turns, ident(as_dict(record.get("conversation")).get("id")), user, is_piece=True)


def _spoken(activity: Mapping[str, Any]) -> list[Turn]:
    role = as_dict(activity.get("from")).get("role")
    speaker = {0: "assistant", "bot": "assistant", 1: "user", "user": "user"}.get(role, "")
    return _said(speaker, activity.get("text"), activity.get("timestamp")) if speaker else []


def _copilot(record: Mapping[str, Any]) -> Talk:
    """Return a transcript of Copilot Studio, with the steps of its plans as calls."""
    activities = [as_dict(a) for a in as_list(as_dict(embedded(record.get("content"))).get("activities"))]
    turns: list[Turn] = []
    opinions: list[Opinion] = []
    given: dict[Any, Any] = {}
    for activity in sorted(activities, key=lambda a: str(when(a.get("timestamp")) or "")):
        kind, value = activity.get("valueType"), as_dict(activity.get("value"))
        if activity.get("type") == "message":
            turns += _spoken(activity)
        elif kind == "DynamicPlanStepBindUpdate":
            given[value.get("stepId")] = value.get("arguments")
        elif kind == "DynamicPlanStepFinished":
            step, failed = value.get("stepId"), bool(value.get("error")) or value.get("state") == "failed"
            seen = as_dict(value.get("error")).get("message") if failed else value.get("observation")
            turns += _ran(
                str(step), value.get("taskDialogId"), given.get(step), seen, activity.get("timestamp"), failed=failed
            )
        elif kind == "CSATSurveyResponse" and (score := number(value.get("score"))) is not None:
            opinions.append(Opinion("csat", value=score, annotator="human", scale=_STARS))
        elif kind == "SessionInfo" and text(value.get("outcome")):
            opinions.append(Opinion("session_outcome", label=value["outcome"]))
    return Talk(turns, ident(first(record, ("name", "conversationtranscriptid"))), opinions=opinions)


def _bedrock(record: Mapping[str, Any]) -> Talk:
    """Return a part of the trace of a Bedrock agent: what was new to the model, its answer, or what an action gave."""
    trace, at = as_dict(as_dict(record["trace"]).get("orchestrationTrace")), record.get("eventTime")
    answer, seen = as_dict(trace.get("modelInvocationOutput")), as_dict(trace.get("observation"))
    turns: list[Turn] = []
    if asked := embedded(as_dict(trace.get("modelInvocationInput")).get("text")):
        turns += _asked_of(as_dict(asked), at)
    if raw := as_dict(answer.get("rawResponse")).get("content"):
        usage = as_dict(as_dict(answer.get("metadata")).get("usage"))
        counts = {"input_tokens": count(usage.get("inputTokens")), "output_tokens": count(usage.get("outputTokens"))}
        answers = answered(embedded(raw))[:1]
        hidden = (
            ["unreadable_content"] if "<invoke" in str(raw) else unread(embedded(raw), answers)
        )  # the oldest agents'
        turns += [{**one, "facts": present(ts=when(at), **counts, tags=hidden or None)} for one in answers]
    for name in ("actionGroupInvocationOutput", "knowledgeBaseLookupOutput"):
        if given := as_dict(seen.get(name)):
            turns.append(
                {"role": "tool", "content": text(given.get("text")) or flat_text(given), "facts": {"ts": when(at)}}
            )
    return Talk(turns, ident(record.get("sessionId")), is_piece=True)


def _asked_of(asked: Mapping[str, Any], at: Any) -> list[Turn]:
    """Return the message that is new in a model's input, the user's unless it is the result of an action."""
    messages = list(map(as_dict, as_list(asked.get("messages"))))
    words = str(messages[-1].get("content")) if messages else ""
    if not messages or messages[-1].get("role") != "user" or _OF_ACTIONS.search(words):
        return []
    said = _IN_PART.search(words)
    system = _said("system", asked.get("system")) if len(messages) == 1 else []
    return system + _said("user", said["words"] if said else words, at)


def _voiceflow(record: Mapping[str, Any]) -> Talk:
    transcript = as_dict(record["transcript"])
    logs = map(as_dict, as_list(transcript.get("logs")))
    turns = [
        turn
        for log in logs
        for turn in _traced(as_dict(log.get("data")), log.get("type") == "action", log.get("createdAt"))
    ]
    return Talk(turns, ident(first(transcript, ("sessionID", "id"))))


def _traced(data: Mapping[str, Any], is_users: bool, at: Any) -> list[Turn]:  # noqa: FBT001 - whose it is
    """Return what an action of the user or a trace of Voiceflow has in words."""
    payload = data.get("payload")
    inner = as_dict(payload)
    if is_users:
        return _said("user", payload if isinstance(payload, str) else first(inner, ("query", "label", "text")), at)
    return _said("assistant", inner.get("message"), at) if data.get("type") in ("text", "speak") else []


def _intercom(record: Mapping[str, Any]) -> Talk:
    """Return a conversation of Intercom in which its bot answers; a colleague's words are named context."""
    opening = {**as_dict(record.get("source")), "created_at": record.get("created_at")}
    parts = map(as_dict, as_list(as_dict(record["conversation_parts"]).get("conversation_parts")))
    turns: list[Turn] = []
    for part in (opening, *parts):
        by = as_dict(part.get("author"))
        role = {"bot": "assistant", "user": "user", "lead": "user", "contact": "user", "admin": "colleague"}.get(
            str(by.get("type"))
        )
        turns += _said(role, part.get("body"), part.get("created_at")) if role else []
    rated = as_dict(record.get("conversation_rating"))
    stars = number(rated.get("rating"))
    opinion = Opinion("rating", value=stars, comment=text(rated.get("remark")), annotator="human", scale=_STARS)
    by_bot = any(turn["role"] == "assistant" for turn in turns)
    return Talk(turns if by_bot else [], ident(record.get("id")), opinions=[opinion] if stars is not None else [])


def _azure(record: Mapping[str, Any]) -> Talk:
    """Return a row of an evaluation of Azure AI Foundry: messages of query and response, scores by evaluator."""
    row = {**{name.removeprefix("inputs."): value for name, value in record.items()}}
    turns = [as_dict(m) for part in ("query", "response") for m in _messages(row.get(part), part)]
    opinions = []
    for name, value in record.items():
        where, _, measure = name.removeprefix("outputs.").partition(".")
        if name.startswith("outputs.") and measure in (where, "score") and (score := number(value)) is not None:
            verdict = text(record.get(f"{name}_result"))
            opinions.append(Opinion(where, value=score, label=verdict, annotator="llm"))
    dated = [{**turn, "facts": present(ts=when(turn.get("createdAt")))} for turn in turns]
    return Talk(dated, opinions=opinions, tools=row.get("tool_definitions"))


def _messages(value: Any, part: str) -> list[Any]:
    opened = embedded(value)
    return (
        opened if isinstance(opened, list) else [{"role": "user" if part == "query" else "assistant", "content": value}]
    )


def _is_azure(record: Any) -> bool:
    row = {name.removeprefix("inputs."): embedded(value) for name, value in as_dict(record).items()}
    response = row.get("response")
    return (
        "query" in row and isinstance(response, list) and bool(response) and all("role" in as_dict(m) for m in response)
    )


def _is_flowise(record: Any) -> bool:
    fields = as_dict(record)
    return "memoryType" in fields and any(as_dict(m).get("role") == "bot" for m in as_list(fields.get("messages")))


def _is_n8n(record: Any) -> bool:
    return "runData" in as_dict(as_dict(as_dict(embedded(as_dict(record).get("data"))).get("resultData")))


def _is_rasa(record: Any) -> bool:
    fields = as_dict(record)
    return "sender_id" in fields and any("event" in as_dict(event) for event in as_list(fields.get("events")))


def _is_activity(record: Any) -> bool:
    fields = as_dict(record)
    return (
        "channelId" in fields and "role" in as_dict(fields.get("from")) and "id" in as_dict(fields.get("conversation"))
    )


def _is_copilot(record: Any) -> bool:
    return "conversationtranscriptid" in as_dict(record) and "activities" in as_dict(embedded(record.get("content")))


def _is_bedrock(record: Any) -> bool:
    fields = as_dict(record)
    return "sessionId" in fields and "orchestrationTrace" in as_dict(fields.get("trace"))


def _is_voiceflow(record: Any) -> bool:
    return isinstance(as_dict(as_dict(record).get("transcript")).get("logs"), list)


def _is_intercom(record: Any) -> bool:
    return "conversation_parts" in as_dict(as_dict(record).get("conversation_parts")) and "source" in record


_SHAPES: Sequence[tuple[Callable[[Any], object], Callable[[Mapping[str, Any]], Talk]]] = (
    (has("query", "answer", "conversation_id", agent_thoughts=list), _dify),
    (_is_flowise, _flowise_chat),
    (has("chatflowid", "role", "content", "chatId"), _flowise_row),
    (_is_n8n, _n8n),
    (_is_rasa, _rasa),
    (has("conversationId", "direction", payload=dict), _botpress),
    (_is_copilot, _copilot),
    (_is_activity, _activity),
    (_is_bedrock, _bedrock),
    (_is_voiceflow, _voiceflow),
    (_is_intercom, _intercom),
    (_is_azure, _azure),
)


def _talk_of(record: Any) -> Callable[[Mapping[str, Any]], Talk] | None:
    return next((told for fits, told in _SHAPES if fits(record)), None)


def _read(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of a record, or of each row of a page."""
    for n, row in enumerate(_rows(record)):
        told = _talk_of(row)
        if told is not None:
            yield from all_called(row, _events(told(row), row, (line + n) * LINE))


def _events(talk: Talk, record: Mapping[str, Any], position: int) -> Iterator[Event]:
    history, origins = with_origins(_joined(talk.turns), lambda turn: [turn])
    if not history:
        return
    facts = {place: _facts(turn, history[place]["role"]) for place, turn in origins.items()}
    started: datetime | None = next((told["ts"] for told in facts.values() if "ts" in told), None)
    conversation = talk.conversation or attempt_of(record, history, source_of(record))
    rollout = Rollout(
        conversation=conversation,
        messages=history,
        facts=facts,
        first=position if talk.is_piece else 0,
        tools=schemas(talk.tools),
        started=started,
    )
    for event in rollout_events(rollout):
        yield {**event, "user": talk.user}
    last = max((told["ts"] for told in facts.values() if "ts" in told), default=None)
    for opinion in talk.opinions:
        yield from judgement(opinion, {**rollout.columns(), "user": talk.user, "ts": last})


def _joined(turns: Sequence[Turn]) -> list[Turn]:
    """Return turns in which messages of the agent in a row are one answer."""
    joined: list[Turn] = []
    for turn in turns:
        plain = turn.get("role") == "assistant" and isinstance(turn.get("content"), str) and not turn.get("tool_calls")
        before = joined[-1] if joined else {}
        if (
            plain
            and before.get("role") == "assistant"
            and isinstance(before.get("content"), str)
            and not before.get("tool_calls")
        ):
            joined[-1] = {**before, "content": f"{before['content']}\n{turn['content']}"}
        else:
            joined.append(turn)
    return joined


def _facts(turn: Turn, role: str) -> dict[str, Any]:
    told = turn.get("facts", {})
    return told if role == "assistant" else present(ts=told.get("ts"))


def _rows(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    page = list(map(as_dict, as_list(record.get("data"))))
    return page if page and all(_talk_of(row) for row in page) else [record]


def _is_known(record: Any) -> bool:
    return isinstance(record, dict) and all(_talk_of(row) for row in _rows(record))


READER = reader(
    "platforms",
    2,
    "conversations of platforms for bots and workflows",
    marks=[(_CONFIDENCE, _is_known)],
    needs=_is_known,
    refusal="no conversation of a platform that is known",
    read=_read,
)
