"""STAR dialogues: one record is one dialogue of two people; the agent is the wizard, who acts on a knowledge base.

In: events of user, wizard, knowledge base and the guide that instructs the user. Out: the wizard's messages and
queries are actions, the base's answers are results. Drafts, selections on his screen and the guide's words were
not part of the dialogue. Questionnaires are feedback; the user's word that the task was done is an outcome only where
the scenario could be met (`Happy`) and the question asks for this task: elsewhere a no is not the agent's failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event, Source, request, tool_result
from flywheel.reading.feedback import feedback, outcome
from flywheel.reading.messages import flat_text, result_message
from flywheel.reading.reader import has, reader
from flywheel.reading.status import FAILED, OK
from flywheel.reading.values import as_dict, as_list, ident, text, when
from flywheel.records import EventKind, content_id

_DIALOGUE = has("DialogueID", "Events", "Scenario")
_API = has("db", "function", "input", "output")
_SPOKEN = ("utter", "pick_suggestion")
_REFUSED = "You must provide"
_ABOUT_THE_AGENT = "calm and helpful"
_ABOUT_THE_USER = {
    "change his/her mind": "user_changed_mind",
    "aggressive or annoyed": "user_annoyed",
    "seem confused": "user_confused",
    "unsure": "agent_unsure",
}


def _read(record: Any) -> Iterator[Event]:
    """Yield the dialogue and its questionnaires; one that was left before it began has no events."""
    if _API(record):
        return
    if not _DIALOGUE(record):
        raise BadRecordError("bad_record", "no dialogue with events and a scenario")
    scenario = as_dict(record["Scenario"])
    events = list(_dialogue(as_list(record["Events"]), _source(record, scenario)))
    if not events:
        return
    source = {**events[0], "ts": None}
    yield request(_rules(scenario), source, 0, _tags(record))
    yield from events
    yield from _questionnaires(record, scenario, source, len(as_list(record["Events"])) + 1)


def _source(record: Mapping[str, Any], scenario: Mapping[str, Any]) -> Source:
    guide = (as_dict(event) for event in as_list(record["Events"]))
    instruction = next((event.get("Text") for event in guide if event.get("Agent") == "UserGuide"), None)
    asked = [scenario.get("UserTask"), instruction, scenario.get("WizardTask")]  # some tasks only refer to the guide
    return {
        "conversation_id": f"star/{ident(record['DialogueID']) or content_id(record['Events'])}",
        "task_key": f"star/{_task(scenario)}/{content_id(asked)}",
        "policy": "human",
        "user": ident(record.get("AnonymizedUserWorkerID")),
        "ts": None,
    }


def _task(scenario: Mapping[str, Any]) -> str:
    """Return the name of what the wizard was to do."""
    abilities = [text(as_dict(one).get("Task")) for one in as_list(scenario.get("WizardCapabilities"))]
    return "+".join(sorted(name for name in abilities if name)) or "?"


def _rules(scenario: Mapping[str, Any]) -> list[dict[str, Any]]:
    rules = text(scenario.get("WizardTask"))
    return [{"role": "system", "content": rules}] if rules else []


def _tags(record: Mapping[str, Any]) -> dict[str, Any]:
    level = text(record.get("CompletionLevel")) or ""
    return {"tags": ["disconnected"]} if "DisconnectDuringDialogue" in level else {}


def _dialogue(events: list[Any], source: Source) -> Iterator[Event]:
    """Yield what both sides saw; a result follows its query."""
    asked = ""
    for seq, given in enumerate(events, 1):
        event = as_dict(given)
        who, did, content = event.get("Agent"), event.get("Action"), flat_text(event.get("Text"))
        here = {**source, "ts": when(event.get("UnixTime"))}
        if who == "User" and did == "utter" and content:
            yield request([{"role": "user", "content": content}], here, seq, {})
        elif who == "Wizard" and did in _SPOKEN and content:
            yield _call({"role": "assistant", "content": content}, here, seq)
        elif who == "Wizard" and did == "query" and text(event.get("APIName")):
            asked = f"call-{seq}"
            call = {"id": asked, "name": event["APIName"], "arguments": _constraints(event.get("Constraints"))}
            yield _call({"role": "assistant", "tool_calls": [call]}, here, seq)
        elif who == "KnowledgeBase":
            yield _result(event, asked, here, seq)


def _call(message: dict[str, Any], source: Source, seq: int) -> Event:
    return {**source, "kind": EventKind.MODEL_CALL, "seq": seq, "payload": {"message": message}}


def _constraints(item: Any) -> dict[str, Any]:
    """Return a query's arguments: each constraint is an object with one field; one named twice is a list."""
    fields: dict[str, list[Any]] = {}
    for constraint in as_list(item):
        for name, value in as_dict(constraint).items():
            fields.setdefault(name, []).append(_value(value))
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _value(value: Any) -> Any:
    """Return what a quoted text holds; conditions like `api.is_one_of(...)` stay as they were written."""
    if isinstance(value, str) and value.startswith('"'):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def _result(event: Mapping[str, Any], call_id: str, source: Source, seq: int) -> Event:
    item = as_dict(event.get("Item"))
    content = flat_text({"Item": event.get("Item"), "TotalItems": event.get("TotalItems")})
    refused = (text(item.get("Message")) or "").startswith(_REFUSED)
    fields = {"tool_call_id": call_id, "name": event.get("APIName")}
    return tool_result(result_message(content, fields, status=FAILED if refused else OK), source, seq)


def _questionnaires(
    record: Mapping[str, Any], scenario: Mapping[str, Any], source: Source, seq: int
) -> Iterator[Event]:
    for name in ("UserQuestionnaire", "WizardQuestionnaire"):
        for item in as_list(record.get(name)):
            question, answer = text(as_dict(item).get("Question")), as_dict(item).get("Answer")
            if question and isinstance(answer, bool):
                yield {**source, **_judgement(name, question, scenario, answer=answer), "seq": seq}
                seq += 1


def _judgement(who: str, question: str, scenario: Mapping[str, Any], *, answer: bool) -> Event:
    fields = {"value": float(answer), "label": "yes" if answer else "no", "comment": question, "annotator": "human"}
    if who == "UserQuestionnaire" and _ABOUT_THE_AGENT in question:
        return feedback({}, {"name": "user_feedback", **fields})
    if who == "UserQuestionnaire" and scenario.get("Happy") is True and _asks_for(question, _task(scenario)):
        return outcome({}, "task_done", float(answer), scale=(0, 1))
    about = next((name for words, name in _ABOUT_THE_USER.items() if words in question), "task_done")
    return feedback({}, {"name": about, **fields})


def _asks_for(question: str, task: str) -> bool:
    """Whether a question fits the task: who was only to search was asked, all the same, whether he had booked."""
    return not (task.endswith("_search") and any(word in question for word in ("reserve", "book")))


READER = reader("star", 1, "STAR dialogues", marks=_DIALOGUE | _API, read=_read)
