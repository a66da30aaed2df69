"""Traces of Bedrock Agents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flywheel.reading.messages import flat_text
from flywheel.reading.shapes import answered, unread
from flywheel.reading.values import as_dict, as_list, count, embedded, ident, present, text, when
from flywheel.stages.ingest.readers.agents._platforms.talk import Shapes, Talk, Turn, words_said

_IN_PART = re.compile(r"\A\[\{(?:'text': ['\"]|text=)(?P<words>.*?)(?:['\"]|, type=text)\}\]\Z", re.DOTALL)  # Bedrock's
_OF_ACTIONS = re.compile(r"tool_?result|tool_?use_?id|function_results?", re.IGNORECASE)


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
    system = words_said("system", asked.get("system")) if len(messages) == 1 else []
    return system + words_said("user", said["words"] if said else words, at)


def _is_bedrock(record: Any) -> bool:
    fields = as_dict(record)
    return "sessionId" in fields and "orchestrationTrace" in as_dict(fields.get("trace"))


SHAPES: Shapes = ((_is_bedrock, _bedrock),)
