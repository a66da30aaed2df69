"""Transcripts of any program: one record is a chat, whatever its messages are called and shaped like.

ShareGPT's `conversations`, trajectories of data sets, states and checkpoints of LangGraph, chats of the Vercel AI SDK,
sessions of Gemini CLI, opencode and Continue, LlamaIndex's chat stores, exports of ChatGPT and Claude.ai, threads of
the Assistants API. Plain lists of `messages` as Chat Completions has them are `openai`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from flywheel.extensions import BadRecordError, Sample
from flywheel.reading.events import Event, Source, attempt_of, own_names, request, source_of
from flywheel.reading.feedback import judgements, name_of, opinions_in
from flywheel.reading.messages import Message, flat_text
from flywheel.reading.outcomes import results
from flywheel.reading.reader import reader, share
from flywheel.reading.rollout import Rollout, rollout_events
from flywheel.reading.shapes import schemas
from flywheel.reading.shapes.actions import ACTION, answer_of, are_steps, conclusion_of, earned, goal_of
from flywheel.reading.shapes.before import behind, with_past
from flywheel.reading.shapes.chats import chat, has_calls, is_begun, is_chat, is_common, speaks
from flywheel.reading.shapes.heard import by_speaker
from flywheel.reading.shapes.items import item_messages
from flywheel.reading.shapes.notices import is_shown
from flywheel.reading.shapes.places import Found, chats_within, silent_run
from flywheel.reading.shapes.series import chat_of_calls
from flywheel.reading.shapes.spelling import exchanged
from flywheel.reading.shapes.spoken import answered_field, asked_field
from flywheel.reading.shapes.trajectories import acted, numbered
from flywheel.reading.shapes.whole import whole
from flywheel.reading.shapes.wrapped import is_sdk_step
from flywheel.reading.shapes.written import with_written_calls
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, number, present, text, when, words_of
from flywheel.stages.common.tools import is_answer
from flywheel.stages.ingest.framing.texts.plain_text import ATTEMPTS, attempt_in, talk_in
from flywheel.stages.ingest.readers._tagged import with_tagged

_LISTS = (
    "messages", "conversations", "conversation", "trajectory", "history", "turns", "chat_messages", "message_list",
    "message_history", "chat_history", "dialogue", "dialog", "transcript", "chat", "steps", "chatbot",
    "log_entries",
)  # fmt: skip
_TEXTS = ("text", "content", "conversation_text", "transcript_text", "chat_log", "messages_display", "body")
_BESIDE_A_TALK = {  # of which a record has one that holds a text for another purpose
    "role", "sender", "from", "author", "completion", "output", "target", "label", "labels", "category", "intent",
    "summary", "choices", "messages",
}  # fmt: skip
_HUNG_UP = ("endedReason", "ended_reason", "disconnection_reason")
_WORD, _MOST = re.compile(r"\w{3,}"), 0.8
_Chat = tuple[str, list[Any]]
_CHANNELS, _BEGUN = "channel_values", "__start__"
_HOLDERS = ("values", _CHANNELS, "state", "checkpoint", "chat", "thread", "session", "info")
# Objects where its ids may be; those where its model may be are more.
_NAMING = (
    "metadata", "checkpoint", "config", "configurable", "info", "session", "runSettings", "settings", "model_info",
    "model_config",
)  # fmt: skip
_SET = ("args", "params", "run_config", "agent_config", "llm_config", "agent", "llm")
_TASKS = ("task", "challenge", "problem", "scenario", "instance", "test_case", "puzzle")
_MODELS = ("model", "model_name", "modelId", "model_id", "chatModelTitle")
_WHOLE = ("usage", "token_usage", "total_usage", "usage_metadata", "costBreakdown", "metrics")  # tokens of a whole chat
_COSTS = ("cost_usd", "costUsd", "total_cost_usd", "usd_cost", "total_cost", "cost")
_TELLING = {"message", "reply", "respond", "response", "conclude", "return", "report", "say", "tell", "answer"}
_WAITING = "tool_approval_item"  # repeats a call for which somebody was asked
_ACCUMULATED = "accumulated_"  # goose's names of the tokens of a whole chat; those of its last call are next to them
_ERRORS = ("exception_info", "exception", "error", "traceback")
_SHARED = 0.55  # confidence in a list that Chat Completions could have, below `openai`'s
_OWN = 0.85
_MIXED = 0.5  # of records with and without a chat: less than of any reader that knows them all
Facts = dict[int, dict[str, Any]]


def _chats(record: Any) -> list[Found]:
    """Return the chats of a record."""
    outer = as_dict(record)
    near = [Found((name, ""), items, (outer,)) for name, items in _near(outer, is_chat)]
    if near and (_calls(near) or not _has_more(outer, near)):
        return near
    deep = chats_within(outer)
    return deep if deep and (not near or _calls(deep)) else near or _by_id(outer)


def _by_id(outer: Mapping[str, Any]) -> list[Found]:
    """Return the runs of a map by id, each with its attempt as one text; [] where one of them has none."""
    runs = [(name, as_dict(run), _written_talk(as_dict(run))) for name, run in outer.items()]
    written = [Found((name, field), items, (run,)) for name, run, talk in runs for field, items in talk.items()]
    return written if len(written) == len(runs) > 1 else []


def _calls(chats: list[Found]) -> bool:
    """Whether an agent calls tools in one of some chats."""
    return any(has_calls(found.items) for found in chats)


def _has_more(outer: Mapping[str, Any], near: list[Found]) -> bool:
    """Whether a record has other lists than its chat, or objects, in which the same may be with calls."""
    return any(isinstance(held, list | dict) and held and held is not near[0].items for held in outer.values())


def _near(outer: Mapping[str, Any], fits: Callable[[Any], bool]) -> list[_Chat]:
    """Return the lists of messages at the usual places of a record, each with its name among several, else ''."""
    if made := with_past(outer, acted(outer)) or _stepped(outer) or numbered(outer) or _paused(outer):
        return [("", made)]
    for place in (outer, *_held(outer)):
        for name in _LISTS:
            if isinstance(place.get(name), list | str) and fits(items := exchanged(embedded(place[name]))):
                return [("", [*by_speaker(items, is_heard="human_input" in outer), *behind(place, name, items)])]
    if outer.get("object") == "list" and fits(outer.get("data")):  # a page of a thread, the newest first
        items = [as_dict(item) for item in outer["data"]]
        return [("", sorted(items, key=lambda item: str(when(item.get("created_at")))))]
    if (path := _path(outer)) and fits(path):
        return [("", path)]
    store = as_dict(outer.get("store"))
    stored = [(name, items) for name, items in store.items() if fits(items)]
    return (
        stored or [("", items) for items in (chat_of_calls(outer), *_written_talk(outer).values()) if fits(items)][:1]
    )


def _held(outer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a record in which its chat may be; in a checkpoint of LangGraph it is one deeper."""
    for name in _HOLDERS:
        held = as_dict(embedded(outer[name])) if outer.get(name) else {}
        channels = as_dict(held.get(_CHANNELS))
        yield from filter(None, (held, channels, as_dict(channels.get(_BEGUN))))


def _written_talk(outer: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the field in which a talk is one text, each speaker at the beginning of a line, with its messages."""
    attempts = {
        name: made for name in ATTEMPTS if isinstance(held := outer.get(name), str) and (made := attempt_in(held))
    }
    if len(attempts) == 1:
        return attempts
    texts = [(name, held) for name in (*_LISTS, *_TEXTS) if isinstance(held := outer.get(name), str)]
    if len(texts) != 1 or not _BESIDE_A_TALK.isdisjoint(outer) or asked_field(outer) or answered_field(outer):
        return {}
    ((name, words),) = texts
    items = talk_in(words, is_talk=name == "transcript")
    is_sure = name not in _TEXTS or any(item.get("tool_calls") for item in items)
    return {name: items} if items and is_sure else {}


def _stepped(outer: Mapping[str, Any]) -> list[Any]:
    """Return what was asked and the steps of the AI SDK that answered it, where a record has such steps."""
    steps = as_list(embedded(outer.get("steps")))
    if not steps or not all(map(is_sdk_step, steps)):
        return []
    held = embedded(outer.get("messages"))
    return [*held, *({**step, "request": None} for step in steps)] if is_begun(held) else steps


def _paused(outer: Mapping[str, Any]) -> list[Any]:
    """Return what was asked, and the items that a run made of it, of a state of the OpenAI Agents SDK.

    That of its JavaScript is next to nothing in a run's result, or alone; a call's items have other names there.
    """
    state = held if "generatedItems" in (held := as_dict(embedded(outer.get("state")))) else outer
    if {"originalInput", "generatedItems", "currentTurn"} <= state.keys():
        held, kept, raw = state["originalInput"], as_list(state["generatedItems"]), "rawItem"
    elif {"original_input", "generated_items", "current_turn"} <= state.keys():
        kept = max((as_list(state.get(name)) for name in ("session_items", "generated_items")), key=len)
        held, raw = state["original_input"], "raw_item"
    else:
        return []
    items = [_in_one_way(as_dict(as_dict(item).get(raw))) for item in kept if as_dict(item).get("type") != _WAITING]
    made = {ident(item.get("id")) for item in items} - {None}
    asked = held if isinstance(held, list) else [{"role": "user", "content": held}]
    return item_messages([*(item for item in asked if ident(as_dict(item).get("id")) not in made), *items])


def _in_one_way(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an item of the Agents SDK in JavaScript as its API has it."""
    if "callId" not in item:
        return item
    gave = item.get("output")
    named = {**item, "call_id": item["callId"], "type": str(item.get("type")).replace("call_result", "call_output")}
    return {**named, "output": text(as_dict(gave).get("text")) or gave} if gave is not None else named


def _path(outer: Mapping[str, Any]) -> list[Any]:
    """Return the messages from the beginning of a chat of ChatGPT, which is a tree, to the current one."""
    nodes, name = as_dict(outer.get("mapping")), outer.get("current_node")
    path: list[Any] = []
    for _ in nodes:
        node = as_dict(nodes.get(name)) if isinstance(name, str) else {}
        held = as_dict(node.get("message"))
        path += [held] if any(as_list(as_dict(held.get("content")).get("parts"))) else []
        name = node.get("parent")
    return path[::-1]


def _read(record: Mapping[str, Any]) -> Iterator[Event]:
    """Yield the events of a record's chats, or of one in which none has answered yet.

    Raises:
        BadRecordError: the answer is next to the chat, or a part of the record would not be read.
    """
    if _is_empty_state(record):
        return
    if _is_answered(record):
        raise BadRecordError("bad_record", "response answers the last message, outside of the chat")
    begun = [Found((name, ""), items, (record,)) for name, items in _near(record, is_begun)]
    chats = _chats(record) or begun or _silent_runs(record)
    own = {source_of(found.around[0])["conversation_id"] for found in chats}
    is_named = len(own) == len(chats) and None not in own  # each has a name of its own
    named = ((found, found.name if len(chats) > 1 and not is_named else "") for found in chats)
    said = [item for item in as_list(record.get("messages")) if not is_shown(item)]
    made = (event for found, name in named for event in _chat(record, found, name))
    yield from whole({**record, "messages": said} if said else {**record, **_written_talk(record)}, made)


def _is_state(record: Any) -> bool:
    """Whether a record is a state of a LangGraph thread, as its history has them."""
    return {"next", "values", "checkpoint", "created_at"} <= as_dict(record).keys()


def _is_empty_state(record: Any) -> bool:
    """Whether a record is the state of a thread before its first message."""
    return _is_state(record) and as_dict(record["values"]).get("messages", 0) == []


def _silent_runs(record: Mapping[str, Any]) -> list[Found]:
    return [run] if (run := silent_run(record)) is not None else []


def _chat(record: Mapping[str, Any], found: Found, name: str) -> Iterator[Event]:
    """Yield the events of a chat; the objects around it, the innermost first, say what is known of it."""
    around = {key: value for place in reversed(found.around) for key, value in place.items()}
    history, facts = _with_results(*chat(found.items))
    prompt = flat_text(as_list(around.get("system")) or text(first(around, ("system", "systemPrompt"))))
    if prompt and not any(message["role"] == "system" for message in history):
        history, facts = _after({"role": "system", "content": prompt}, history, facts)
    if not any(message["role"] == "user" for message in history) and (goal := goal_of(around)):
        history, facts = _after({"role": "user", "content": goal}, history, facts)
    _end(history, around)
    source = _source(found, around)
    source["model"] = _model(around) or source["model"]
    started = next((facts[place]["ts"] for place in sorted(facts) if "ts" in facts[place]), source["ts"])
    held = (as_dict(embedded(record.get(place))).get("id") for place in ("info", "trace"))
    named = source["conversation_id"] or (None if name else next(filter(None, map(ident, held)), None))
    rollout = Rollout(
        conversation="/".join(filter(None, (named or attempt_of(around, history, source), name))),
        messages=history,
        ids=() if named or name else own_names(around),
        task=source["task_key"] or _task(around),
        policy=source["policy"],
        model=source["model"],
        facts=facts,
        tools=schemas(around.get("tools") or around.get("functions") or around.get("function")),
        started=started,
    )
    for event in rollout_events(rollout):
        yield {**event, "user": source["user"]}
    about = {"conversation_id": rollout.conversation, "user": source["user"], "ts": source["ts"] or started}
    totals = _totals(around)
    if totals and not any("output_tokens" in told for told in facts.values()):
        yield request([], {**rollout.columns(), **about}, len(history), {"usage_so_far": totals})
    judged = {**_judged(around), **_scored(found)}
    if are_steps(found.items) and not results({name: value for name, value in judged.items() if name != "score"}):
        score = number(judged.pop("score", None))  # of a benchmark, not a rating
        judged |= present(reward=earned(found.items, whole=True) if score is None else score)
    yield from judgements(judged, {**rollout.columns(), **about}, None)
    yield from _rated(found.items, {**rollout.columns(), **about})


def _end(history: list[Message], around: Mapping[str, Any]) -> None:
    """Add the answer with which a run ended, where an object around it has it."""
    idle, answer = _idle_end(history), answer_of(around)
    is_new = answer is not None and not _is_given(answer, history)
    if idle is not None and is_new:
        history[idle] = {"role": "assistant", "content": answer, "reasoning": history[idle].get("content")}
    elif history[-1]["role"] == "tool" and is_new:
        history.append({"role": "assistant", "content": answer})
    elif history[-1]["role"] == "assistant" and (end := conclusion_of(around)) and not _is_said(end, history):
        history.append({"role": "assistant", "content": end})


def _idle_end(history: Sequence[Message]) -> int | None:
    """Return where the last step of a run is that did nothing: what it wrote is why, and the answer is next to it."""
    place = next((n for n in reversed(range(len(history))) if history[n]["role"] != "context"), 0)
    is_idle = (
        place < len(history) - 1 and history[place]["role"] == "assistant" and not history[place].get("tool_calls")
    )
    return place if is_idle else None


def _rated(items: Iterable[Any], source: Source) -> Iterator[Event]:
    """Yield what users thought of single messages of the agent."""
    for item in items:
        given = opinions_in(as_dict(item))
        if given and speaks(item) == "assistant":
            yield from judgements(given, source, name_of(item))


def _totals(around: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens and the cost of a whole chat: in an object for them, or in fields next to it."""
    used = as_dict(embedded(first({**as_dict(around.get("context")), **around}, _WHOLE)))
    counted = present(token_counts(used)) or present(token_counts(_accumulated(around) or around))
    return counted | present(
        cost_usd=next(
            (cost for place in (around, used) for name in _COSTS if (cost := number(place.get(name))) is not None), None
        )
    )


def _accumulated(around: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens of a whole chat that are fields of their own."""
    return {name.removeprefix(_ACCUMULATED): held for name, held in around.items() if name.startswith(_ACCUMULATED)}


def _is_given(answer: str, history: list[Message]) -> bool:
    """Whether the agent's last act has an answer in it already: in words, or as `Finish[Paris]`."""
    act = next((message for message in reversed(history) if message["role"] == "assistant"), {})
    ends = (call for call in act.get("tool_calls", ()) if call["name"] == ACTION or _tells(call["name"]))
    texts = (str(act.get("content") or ""), *(flat_text(call.get("arguments")) or "" for call in ends))
    return any(answer.strip() in text for text in texts)


def _tells(tool: str) -> bool:
    """Whether a call is how the agent answers, or writes to somebody."""
    return is_answer(tool) or not words_of(tool).isdisjoint(_TELLING)


def _is_said(words: str, history: list[Message]) -> bool:
    """Whether most words of a text are in a chat already: it repeats an answer, perhaps without its marks."""
    said = set(_WORD.findall(str([(message.get("content"), message.get("tool_calls")) for message in history])))
    tried = _WORD.findall(words)
    return sum(word in said for word in tried) >= _MOST * len(tried)


def _scored(found: Found) -> dict[str, Any]:
    """Return the score of a chat of several, which is in a list next to theirs."""
    place = int(found.path[-1]) if found.path and found.path[-1].isdecimal() else None
    scores = next((held for name in ("scores", "rewards") if (held := as_list(found.around[0].get(name)))), [])
    return present(reward=number(scores[place])) if place is not None and place < len(scores) else {}


def _after(message: Message, history: list[Message], facts: Facts) -> tuple[list[Message], Facts]:
    """Return a chat behind one more message."""
    return [message, *history], {position + 1: told for position, told in facts.items()}


def _model(around: Mapping[str, Any]) -> str | None:
    """Return the model that the objects around a chat name, or the one that Vapi bills."""
    billed = next((cost for cost in map(as_dict, as_list(around.get("costs"))) if cost.get("type") == "model"), {})
    held = (as_dict(embedded(around.get(name))) for name in (*_NAMING, "model", *_SET))
    places = (around, *held, as_dict(billed.get("model")))
    return next((named for place in places if (named := text(first(place, _MODELS)))), None)


def _source(found: Found, around: Mapping[str, Any]) -> Source:
    """Return the columns that the places around a chat give, and its last message."""
    held = [as_dict(embedded(around.get(place))) for place in _NAMING]
    configured = (as_dict(place.get("configurable")) for place in held)
    source = source_of(*held, *configured, *found.around, as_dict(found.items[-1]))
    if _is_state(around) or any(_CHANNELS in place for place in (around, *held)):
        source["ts"] = None  # of the checkpoint: the next one has the same messages
    if source["conversation_id"] is None and found.path[-1]:
        source["conversation_id"] = ident(around.get("call_id"))  # of a telephone
    return source


def _with_results(history: list[Message], facts: Facts) -> tuple[list[Message], Facts]:
    """Return a chat in which the calls in its text, and their results, are calls and results.

    A result without any call is named context: the agent saw it.
    """
    history, places = with_tagged(history)
    facts = {n: facts[place] for n, place in enumerate(places) if place in facts}
    history = with_written_calls(history)
    made_before = False
    for n, message in enumerate(history):
        made_before = made_before or bool(message.get("tool_calls"))
        if message["role"] == "tool" and not made_before:
            history[n] = {"role": "context", "name": message.get("name", "tool"), "content": message["content"]}
    return history, facts


def _task(record: Mapping[str, Any]) -> str | None:
    """Return what a data set calls a task, where that is an id and not its text; an object may have a name for it."""
    named = text(record.get("task")) or ident(record.get("item_id"))
    objects = (as_dict(record.get(name)) for name in _TASKS)
    ids = [*filter(None, (ident(first(held, ("task_id", "id"))) for held in objects)), named]
    plain = next((one for one in ids if one and not any(map(str.isspace, one))), None)
    return plain or next(filter(None, (text(as_dict(record.get(name)).get("name")) for name in _TASKS)), None)


def _judged(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record that say how the attempt ended; `target` is what Nebius calls it."""
    solved = record.get("target") if "exit_status" in record else record.get("result")
    verdict = {"resolved": solved} if isinstance(solved, bool) else {}
    return {**{name: value for name, value in record.items() if name not in _LISTS}, **verdict,
            "messages": [{"role": "assistant"}]}  # fmt: skip


def _is_own(record: Any) -> bool:
    """Whether a record has a chat that no other reader knows: of another name, or of another shape."""
    try:
        chats = _near(as_dict(record), is_chat)
    except BadRecordError:
        return False
    return bool(chats) and not (chats[0][1] == as_dict(record).get("messages") and is_common(chats[0][1]))


def _is_any(record: Any) -> bool:
    fields = as_dict(record)
    return bool(_near(fields, is_begun) or _chats(record) or silent_run(fields)) or _is_silent(record)


def _is_silent(record: Any) -> bool:
    """Whether a record is a chat without a message: an empty one, or a call without a word."""
    fields = as_dict(record)
    hung_up = first(fields, _HUNG_UP) is not None and not any(fields.get(name) for name in _LISTS)
    return hung_up or any(fields.get(name) == [] for name in (*_LISTS, "chats"))


def _is_read(record: Any) -> bool:
    """Whether a record has a chat, and all of its chats can be read."""
    try:
        return bool(_chats(record))
    except BadRecordError:
        return False


def _is_crashed(record: Any) -> bool:
    """Whether a record is a run that ended before its agent spoke: what it was asked, an error and an outcome."""
    fields = as_dict(record)
    try:
        return bool(_near(fields, is_begun) and first(fields, _ERRORS) and results(fields))
    except BadRecordError:
        return False


def _is_ours(record: Any) -> bool:
    """Whether a record has a chat, be it one that cannot be read."""
    try:
        return _is_any(record)
    except BadRecordError:
        return True


def _is_answered(record: Any) -> bool:
    """Whether a record is a call of a model: messages of which the last asks, and what was answered in an object."""
    fields = as_dict(record)
    items, answer = fields.get("messages"), as_dict(fields.get("response"))
    return bool(answer.get("content")) and isinstance(items, list) and is_begun(items) and speaks(items[-1]) == "user"


def _sniff(sample: Sample) -> float:
    """A file of chats is sure to be ours if one has what no other reader knows; where some have none, any other is."""
    is_known = any(_is_read(record) or _is_crashed(record) for record in sample.records)
    if not is_known or any(map(_is_answered, sample.records)):
        return 0.0
    chats = share(sample.records, _is_ours)
    if chats < 1:
        return _MIXED * (chats >= _MIXED)
    return _OWN if any(map(_is_own, sample.records)) else _SHARED


READER = reader(
    "transcripts",
    29,
    "chats of any program, one a record",
    sniff=_sniff,
    surest=_OWN,
    needs=lambda record: _is_any(record) or _is_empty_state(record),
    refusal="no list of messages in which an agent speaks",
    read=_read,
)
