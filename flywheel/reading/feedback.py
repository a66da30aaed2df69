"""Feedback and outcomes: what people, models and programs think of an answer, in one form.

In: an `Opinion`, or a record with fields for its own quality. Out: payloads and events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flywheel.reading.events import Event, Source
from flywheel.reading.pairs import ends_answered
from flywheel.reading.values import as_dict, as_list, embedded, first, number, present, text
from flywheel.records import EventKind


class Opinion(NamedTuple):
    """One judgement; `aim` is its target as kind:id (trace:T, span:S, session:C, response:R)."""

    name: str
    aim: str | None = None
    value: float | None = None
    label: str | None = None
    comment: str | None = None
    correction: str | None = None
    annotator: str | None = None
    scale: Sequence[float] | None = None
    corrected: str = "edit"  # the name of the event that holds the correction

    def payload(self) -> dict[str, Any] | None:
        """Return a feedback event's payload; None when the opinion is empty."""
        fields = {"value": self.value, "label": self.label, "comment": self.comment, "text": self.correction}
        if all(value is None for value in fields.values()):
            return None
        kind, _, target = (self.aim or "").partition(":")
        aim = {"target": "call" if kind == "span" else kind, "target_id": target} if target else {}
        extra = {"annotator": self.annotator, "scale": list(self.scale) if self.scale else None}
        return {"name": self.name} | present(fields | extra) | aim


def feedback(source: Source, payload: Mapping[str, Any], **columns: Any) -> Event:
    """Return a feedback event."""
    return {**source, "kind": EventKind.FEEDBACK, "payload": dict(payload), **columns}


def outcome(
    source: Source,
    name: str,
    value: float,
    *,
    scale: Sequence[float] | None = None,
    by: str = "recorded",
    **columns: Any,
) -> Event:
    """Return an outcome event.

    Args:
        source: columns of the event.
        name: what was measured.
        value: the measure.
        scale: its least and greatest value, where they are known.
        by: recorded (by the log's writer), verifier (computed by a program), callback (from the application) or field
            (in a record of something else, by whoever wrote that).
        columns: further columns of the event.
    """
    payload = {"name": name, "value": value, "source": by} | ({"scale": list(scale)} if scale else {})
    return {**source, "kind": EventKind.OUTCOME, "payload": payload, **columns}


def judgement(opinion: Opinion, source: Source) -> Iterator[Event]:
    """Yield the opinion and, as an event of its own, the text that replaces the answer."""
    text_alone = Opinion(opinion.corrected, opinion.aim, correction=opinion.correction, annotator=opinion.annotator)
    for seq, part in enumerate((opinion._replace(correction=None), text_alone)):
        payload = part.payload()
        if payload is not None:
            yield feedback(source, payload, target=opinion.aim, seq=seq)


_CORRECTED = (
    "output", "text", "content", "answer", "response", "desired", "expected", "correction", "value",
    "expected_response", "expected_output", "expected_answer", "ground_truth",
)  # fmt: skip


def corrected_text(item: Any) -> str | None:
    """Return the text that a correction puts in the answer's place; None where it corrects a score."""
    value = embedded(item)
    if isinstance(value, dict):
        inner = first(value, _CORRECTED) if len(value) > 1 else next(iter(value.values()), None)
        return corrected_text(inner) if inner is not None else None
    return text(value) if isinstance(value, str) and number(value) is None else None


# What programs that check a run call its outcome, and what its writer may also have put there.
_CHECKED = ("resolved", "is_resolved", "tests_passed", "all_tests_passed", "verified", "passed")
_STATED = (
    "reward", "success", "is_success", "solved", "is_correct", "correct", "score", "outcome", "final_reward", "win",
    "won", "successful", "is_successful", "call_successful", "success_evaluation", "successEvaluation", "cum_reward",
    "cumulative_reward", "total_reward", "final_score", "task_success",
    "utility", "goal_accuracy", "agent_goal_accuracy",
)  # fmt: skip
_COUNTED = {
    *_CHECKED,
    *(name for name in _STATED if "success" in name),
    "solved",
    "is_correct",
    "correct",
    "win",
    "won",
}
# Of these a number above 1 is how many of a whole benchmark did, not how a run ended.
_HOLDERS = (
    "outcome", "result", "evaluation", "eval", "verifier_result", "verifier", "execution_result", "run_result",
    "analysis", "call_analysis", "summary_info",
)  # fmt: skip
_MEASURES = ("rewards", "scores")  # measures by name
_WORDS = {
    **dict.fromkeys(
        ("success", "succeeded", "successful", "pass", "passed", "resolved", "solved", "correct", "true"), 1.0
    ),
    **dict.fromkeys(("failure", "failed", "fail", "unresolved", "unsolved", "incorrect", "unsuccessful", "false"), 0.0),
}
_FIELD = "field"  # an outcome in a field of a record: whoever sent the request may have written it
_OUTCOMES = ("reward", "outcome")  # of a call as well: its `success` would be that of the request
_OPINIONS = ("feedback", "score", "rating", "thumbs")
_ANSWERED = ("response", "completion", "choices")
_AROUND = ("metadata", *_HOLDERS)
JUDGING = frozenset({*_OUTCOMES, *_OPINIONS, *_CHECKED, *_STATED, *_MEASURES})


class Result(NamedTuple):
    """How a run ended, by one measure; `by` is as in `outcome`."""

    name: str
    value: float
    by: str


def results(fields: Mapping[str, Any]) -> list[Result]:
    """Return the outcomes of a run: fields of its own, or those of an object that holds them."""
    found = [r for key in _CHECKED if (r := _result(key, fields.get(key), "verifier"))]
    found = found or [r for key in _STATED if (r := _result(key, fields.get(key), "recorded"))][:1]
    for key in _MEASURES:
        found += [r for name, value in as_dict(fields.get(key)).items() if (r := _result(str(name), value, "verifier"))]
    held = ((key, inner) for key in _HOLDERS if (inner := as_dict(fields.get(key))))
    return found or next(
        (several for key, inner in held if (several := results(inner) or _named_alike(key, inner))), []
    )


def _named_alike(name: str, inner: Mapping[str, Any]) -> list[Result]:
    """Return the yes or no in an object under its own name, as AgentBench writes it: `{"result": {"result": true}}`."""
    return [Result(name, float(inner[name]), "recorded")] if isinstance(inner.get(name), bool) else []


def is_unmeasured(fields: Mapping[str, Any]) -> bool:
    """Whether a run has a field for its outcome with nothing in it: it crashed before anybody looked."""
    return any(name in fields and fields[name] is None for name in (*_CHECKED, *_STATED))


def by_name(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the runs in a map by id: several objects, each with an outcome; {} for any other object."""
    runs = {name: as_dict(run) for name, run in record.items()}
    return runs if len(runs) > 1 and all(results(run) for run in runs.values()) else {}


def _result(name: str, given: Any, by: str) -> Result | None:
    value = _WORDS.get(given.strip().lower()) if isinstance(given, str) else None
    value = number(given) if value is None else value
    if value is not None and value > 1 and name in _COUNTED:
        return None
    return Result(name, value, by) if value is not None else None


def judgements(record: Mapping[str, Any], source: Source, target: str | None) -> Iterator[Event]:
    """Yield the feedback and the outcomes that a record has in fields of its own.

    Args:
        record: may have feedback, score, rating, thumbs, reward or outcome; a transcript, whose fields are about the
            whole attempt, also `resolved`, `success`, `passed`, `rewards` and the like, or its metadata.
        source: columns shared by all events of the record.
        target: id of the response that they are about.
    """
    is_whole = target is None and _is_transcript(record)
    if record.keys().isdisjoint(JUDGING) and not (is_whole and any(record.get(name) for name in _AROUND)):
        return
    aim = f"response:{target}" if target else None
    for name in _OPINIONS:
        for item in as_list(record.get(name)) or [record.get(name)]:
            payload = _opinion(name, item, aim).payload()
            if payload is not None:
                yield feedback(source, payload, seq=0)
    measured = ((name, _measure(record.get(name))) for name in _OUTCOMES)
    values = {name: value for name, value in measured if value is not None}
    if is_whole:
        places = (record, as_dict(embedded(record.get("metadata"))))
        ends = (results({k: v for k, v in place.items() if k not in _OPINIONS}) for place in places)
        values = {result.name: result.value for result in next(filter(None, ends), [])} | values
    for name, value in values.items():
        yield outcome(source, name, value, by=_FIELD, seq=0)


def _is_transcript(record: Mapping[str, Any]) -> bool:
    return "messages" in record and (ends_answered(record) or record.keys().isdisjoint(_ANSWERED))


def _measure(value: Any) -> float | None:
    """Return the number in a field, or in an object like {"value": 1}."""
    return number(first(as_dict(value), ("value", "score", "reward")) if isinstance(value, dict) else value)


def _opinion(name: str, item: Any, aim: str | None) -> Opinion:
    """Return the opinion in a number, a word, or an object."""
    fields = as_dict(item)
    if not fields:
        value = number(item)
        return Opinion(name, aim, value, text(item) if value is None else None, scale=_ends(item))
    given = first(fields, ("value", "score", "rating"))
    return Opinion(
        name=text(first(fields, ("name", "type", "key"))) or name,
        aim=aim,
        value=number(given),
        label=text(first(fields, ("label", "thumbs", "sentiment"))) or (text(given) if number(given) is None else None),
        comment=text(first(fields, ("comment", "explanation", "reason"))),
        correction=text(first(fields, ("text", "correction", "edited"))),
        scale=_ends(given),
    )


def _ends(value: Any) -> Sequence[float] | None:
    """Return the scale of a yes or no."""
    return (0, 1) if isinstance(value, bool) else None
