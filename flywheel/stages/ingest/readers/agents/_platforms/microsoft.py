"""Transcripts of Copilot Studio, activities of the Bot Framework, and evaluations of Azure AI Foundry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.reading.feedback import Opinion
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, number, present, text, when
from flywheel.stages.ingest.readers.agents._platforms.talk import STARS, Shapes, Talk, Turn, call_ran, words_said


def _activity(record: Mapping[str, Any]) -> Talk:
    by = as_dict(record.get("from"))
    turns = _spoken(record) if record.get("type") == "message" else []
    user = ident(by.get("id")) if turns and turns[0]["role"] == "user" else None
    return Talk(turns, ident(as_dict(record.get("conversation")).get("id")), user, is_piece=True)


def _spoken(activity: Mapping[str, Any]) -> list[Turn]:
    role = as_dict(activity.get("from")).get("role")
    speaker = {"0": "assistant", "bot": "assistant", "1": "user", "user": "user"}.get(str(role), "")
    return words_said(speaker, activity.get("text"), activity.get("timestamp")) if speaker else []


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
            given[ident(value.get("stepId"))] = value.get("arguments")
        elif kind == "DynamicPlanStepFinished":
            step, failed = ident(value.get("stepId")), bool(value.get("error")) or value.get("state") == "failed"
            seen = as_dict(value.get("error")).get("message") if failed else value.get("observation")
            turns += call_ran(
                str(step),
                value.get("taskDialogId"),
                given.get(step),
                seen,
                activity.get("timestamp"),
                failed=failed,
            )
        elif kind == "CSATSurveyResponse" and (score := number(value.get("score"))) is not None:
            opinions.append(Opinion("csat", value=score, annotator="human", scale=STARS))
        elif kind == "SessionInfo" and text(value.get("outcome")):
            opinions.append(Opinion("session_outcome", label=value["outcome"]))
    return Talk(turns, ident(first(record, ("name", "conversationtranscriptid"))), opinions=opinions)


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


def _is_activity(record: Any) -> bool:
    fields = as_dict(record)
    return (
        "channelId" in fields and "role" in as_dict(fields.get("from")) and "id" in as_dict(fields.get("conversation"))
    )


def _is_copilot(record: Any) -> bool:
    return "conversationtranscriptid" in as_dict(record) and "activities" in as_dict(embedded(record.get("content")))


SHAPES: Shapes = ((_is_copilot, _copilot), (_is_activity, _activity), (_is_azure, _azure))
