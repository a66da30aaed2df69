"""Which fields of a record hold what a user wrote and what was answered, by the words of their names.

In: a record. Out: the names, and the calls that are listed next to the words. `user_message`, `customerQuery` and
`question` are what was asked, `assistant_reply`, `aiResponse` and `final_answer` what was answered; `user_id`,
`answer_id` and `response_time` are neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.shapes.acts import call_in, made_in, result_in
from flywheel.reading.shapes.turns import Turn, result_of
from flywheel.reading.values import as_dict, as_list, first, text, words_of

_ASKS = {"user", "human", "customer", "client", "visitor", "caller"}
_ASKED = {
    "message", "msg", "input", "query", "prompt", "question", "text", "utterance", "request", "said", "problem",
}  # fmt: skip
# The surest first: a prompt may be a template.
_ASKED_ALONE = ("question", "query", "prompt", "message", "input", "task", "objective")
_ANSWERS = {"assistant", "agent", "bot", "chatbot", "ai", "llm", "model", "gpt", "final", "generated"}
_MODELS = {"llm", "model", "gpt", "generated"}
_ANSWERED = {"message", "msg", "response", "reply", "answer", "output", "text", "completion", "generation"}
_ANSWERED_ALONE = ("response", "answer", "reply", "result", "output", "actual_output", "actualOutput")
_WRITES = {"sql", "generated", "final", "predicted", "refined", "query", "code"}  # of an answer that is a program
_FORM = {"text", "content", "body", "raw", "used"}  # words that add nothing to a name: `response_text`, `prompt_used`
_TESTS = {"reference", "ground_truth", "retrieved_contexts", "expected_output", "expectedOutput", "expected_answer"}
_PAST = {"history", "conversation", "chat", "message", "messages", "dialogue", "dialog", "previous", "context"}
_THINKS = {"reasoning", "thinking", "thought", "thoughts", "scratchpad"}
_THOUGHT_OF = {"correct", "is_correct", "notes", "feedback", "rating"}
_DOTS = re.compile(r"[\s.…]*")
_WORDS = ("message", "text", "content", "answer", "reply", "response")  # of an answer that is an object


def asked_field(record: Mapping[str, Any]) -> str | None:
    """Return the field with what a user wrote, in words."""
    return _field(record, _ASKS, _ASKED, _ASKED_ALONE)


def answered_field(record: Mapping[str, Any]) -> str | None:
    """Return the field with what was answered, in words or as an object that has them.

    Three dots next to what somebody thought of an answer are none, but are in its place.
    """
    is_thought_of = not _THOUGHT_OF.isdisjoint(record)
    said = {
        name: held for name, held in record.items() if not (is_thought_of and _DOTS.fullmatch(words_in(held) or "."))
    }
    return _field(said, _ANSWERS, _ANSWERED, _ANSWERED_ALONE) or next(
        (name for name, held in said.items() if _is_program(name) and text(held)), None
    )


def _is_program(name: str) -> bool:
    """Whether a field is for SQL or code that a model wrote: `generated_sql`."""
    words = words_of(name)
    return words <= _WRITES and ("sql" in words or words == {"generated", "code"})


def unanswered_field(record: Mapping[str, Any]) -> str | None:
    """Return the field in which an answer would be, where it is empty: none came."""
    empty = {name: name for name, value in record.items() if value is None or value == ""}
    return _field(empty, _ANSWERS, _ANSWERED, _ANSWERED_ALONE)


def words_in(value: Any) -> str | None:
    """Return the words of an answer: a text, or the text of an object under a usual name."""
    fields = as_dict(value)
    return text(value) or next((said for name in _WORDS if (said := text(fields.get(name)))), None)


def is_tested(record: Mapping[str, Any]) -> bool:
    """Whether a record is one of a test: what was answered is next to what should have been."""
    return not _TESTS.isdisjoint(record)


def thoughts_in(record: Mapping[str, Any]) -> str | None:
    """Return what the agent thought before it answered, in words, where a record has it next to the answer."""
    named = (name for name in record if words_of(name) & _THINKS and words_of(name) <= _THINKS | _ANSWERS)
    return next((said for name in named if (said := text(record[name]))), None)


def is_named_by_whom(record: Mapping[str, Any]) -> bool:
    """Whether a record's fields state who wrote what was asked, and who what was answered."""
    asked, answered = asked_field(record), answered_field(record)
    return bool(asked and answered and words_of(asked) & _ASKS and words_of(answered) & _ANSWERS)


def is_written_by_model(record: Mapping[str, Any]) -> bool:
    """Whether a record has a question, and an answer whose name states that a model wrote it: `llm_completion_raw`."""
    answered = answered_field(record)
    return answered is not None and asked_field(record) is not None and bool(words_of(answered) & _MODELS)


def made_between(record: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[Turn]:
    """Yield the calls in a list next to the words of a record, under any name, and what they gave.

    Each is a step of its own, but for those under the name that APIs give calls which are made at once.

    Args:
        record: with the words.
        about: fields that each message gets.
    """
    at_once = as_list(record.get("tool_calls"))
    made = at_once or made_in(record)
    own = [first(as_dict(call), ("tool_call_id", "id")) or f"between_{n}" for n, call in enumerate(made)]
    calls = [{**as_dict(call), "id": name} for call, name in zip(made, own, strict=True)]
    answered = [(_without_result(call), result_in(call)) for call in calls]
    if at_once:
        yield {"role": "assistant", "content": None, "tool_calls": [call for call, _ in answered], **about}
    for call, gave in answered:
        if not at_once:
            yield {"role": "assistant", "content": None, "tool_calls": [call], **about}
        if gave is not None:
            yield {"role": "tool", "content": [result_of({**gave, "tool_call_id": call["id"]})], **about}


def _without_result(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a call alone: what it gave is a message of its own."""
    made = call_in(call)
    return {**made, "id": call["id"]} if made is not None else call


def is_past(name: str) -> bool:
    """Whether a field is for what was spoken before: `conversationHistory`, `chat_history`."""
    words = words_of(name)
    return "history" in words and words <= _PAST


def _field(record: Mapping[str, Any], by: set[str], what: set[str], alone: tuple[str, ...]) -> str | None:
    """Return the field that is named by whom and what; else the one that is named by what alone."""
    named = [(name, words_of(name)) for name, value in record.items() if words_in(value) is not None]
    whole = [name for name, words in named if words & by and words & what and words <= by | what | _FORM]
    plain = {name: name for name, _ in named}
    plain |= {next(iter(rest)): name for name, words in named if len(rest := words - _FORM) == 1 and name not in alone}
    return next(iter(whole or (plain[name] for name in alone if name in plain)), None)
