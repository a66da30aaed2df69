"""Assessments of MLflow traces: opinions of people, judges and code, and texts that were expected.

In: the assessments of one trace. Out: feedback and outcome events. One that another replaced does not count; code is
named as a source by default, so code without a name is nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from flywheel.reading.events import Event, Source
from flywheel.reading.feedback import Opinion, corrected_text, judgement
from flywheel.reading.messages import flat_text
from flywheel.reading.values import as_dict, embedded, first, hex_id, ident, number, present, text, when
from flywheel.records import EventKind

__all__ = ["assessments", "mapping_of"]

_ANNOTATORS = {"HUMAN": "human", "LLM_JUDGE": "llm", "AI_JUDGE": "llm", "CODE": "code"}
_VERDICTS = {"yes": 1.0, "no": 0.0, "pass": 1.0, "fail": 0.0, "true": 1.0, "false": 0.0}


def mapping_of(given: Any) -> dict[str, Any]:
    """Return a map, which Parquet may give as pairs, or as a struct with nulls for what other rows have."""
    found = embedded(given)
    if isinstance(found, list):
        found = {p[0]: p[1] for p in found if isinstance(p, list | tuple) and len(p) == 2 and isinstance(p[0], str)}  # noqa: PLR2004 - a pair
    return present(as_dict(found))


def assessments(given: list[Any], source: Source, known: Collection[str]) -> Iterator[Event]:
    """Yield what a trace's assessments say.

    Args:
        given: the assessments.
        source: columns of the trace.
        known: the spans that have events.
    """
    found = [as_dict(embedded(item)) for item in given]
    replaced = {item.get("overrides") for item in found if isinstance(item.get("overrides"), str)}
    for item in found:
        if item.get("valid") is not False and ident(item.get("assessment_id")) not in replaced:
            at = when(first(item, ("create_time", "last_update_time")))
            yield from _assessment(item, {**source, "ts": at}, _aim(item, source, known))


def _aim(item: Mapping[str, Any], source: Source, known: Collection[str]) -> str:
    """Return what is judged; a span that is no call and no tool stands for its trace."""
    span = hex_id(item.get("span_id"))
    session = ident(mapping_of(item.get("metadata")).get("mlflow.assessment.onlineScoringSessionId"))
    if span in known:
        return f"span:{span}"
    return f"session:{session}" if session else str(source["ids"][0])


def _assessment(item: Mapping[str, Any], source: Source, aim: str) -> Iterator[Event]:
    """Yield one assessment: an opinion, a verdict of code, or an expectation, which is a text to compare with."""
    expected = as_dict(item.get("expectation"))
    value = embedded(as_dict(item.get("feedback")).get("value"))
    opinion = _opinion(item, value, aim)
    if expected:
        serialized = as_dict(expected.get("serialized_value"))
        wanted = corrected_text(first(expected, ("value",)) or serialized.get("value"))
        yield from judgement(opinion._replace(comment=None, correction=wanted, corrected=opinion.name), source)
    elif opinion.annotator == "code" and isinstance(value, bool):
        payload = {"name": opinion.name, "value": float(value), "scale": [0, 1], "source": "verifier"}
        yield {**source, "kind": EventKind.OUTCOME, "seq": 0, "target": opinion.aim, "payload": payload}
    else:
        yield from judgement(opinion, source)


def _opinion(item: Mapping[str, Any], value: Any, aim: str) -> Opinion:
    by = as_dict(item.get("source"))
    kind = str(by.get("source_type")).upper()
    unnamed = kind == "CODE" and by.get("source_id") in (None, "", "default")  # what stands there if nobody says
    said = value if isinstance(value, str) else flat_text(value) if isinstance(value, list | dict) else None
    verdict = _VERDICTS.get(value.lower()) if isinstance(value, str) else None
    return Opinion(
        name=text(first(item, ("assessment_name", "name"))) or "feedback",
        aim=aim,
        value=verdict if verdict is not None else number(value),
        label=said or text(as_dict(item.get("issue")).get("issue_name")),
        comment=text(item.get("rationale")),
        annotator=None if unnamed else _ANNOTATORS.get(kind),
    )
