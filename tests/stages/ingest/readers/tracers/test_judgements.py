"""Judgements in spans: inline, of a trace or a session, in spans that link to what they judge, and rewards."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flywheel.stages.ingest.readers.tracers.otel import READER
from tests.stages.ingest.otlp import START, TRACE, attributes, logs, span, spans

CHAT = {"openinference.span.kind": "LLM", "output.value": "Monday.", "session.id": "conv"}
SPAN, OTHER_TRACE = f"{1:016x}", "ab" * 16


def annotation(form: str = "annotations.0.annotation", **more: Any) -> dict[str, Any]:
    said = {"name": "correctness", "score": 0, "label": "wrong", "explanation": "no date", "annotator_kind": "HUMAN"}
    return {f"{form}.{name}": value for name, value in {**said, **more}.items() if value is not None}


def read(*items: dict[str, Any]) -> list[dict[str, Any]]:
    return [e for e in READER.read(spans(*items), 1) if e["kind"] in {"feedback", "outcome"}]


@pytest.mark.parametrize("form", ["annotations.0.annotation", "evaluations.0.evaluation"])
def test_an_inline_annotation_judges_its_span(form: str) -> None:
    (event,) = read(span(1, CHAT | annotation(form)))
    assert (event["target"], event["conversation_id"], event["span_id"]) == (f"span:{SPAN}", "conv", None)
    assert str(event["ts"]) == "2026-10-01 09:00:01.500000+00:00"
    assert event["payload"] == {
        "name": "correctness", "value": 0.0, "label": "wrong", "comment": "no date", "annotator": "human",
        "target": "call", "target_id": SPAN,
    }  # fmt: skip


def test_one_result_in_both_forms_is_one_opinion_and_two_results_are_two() -> None:
    both = annotation() | annotation("evaluations.0.evaluation")
    assert len(read(span(1, CHAT | both))) == 1
    two = annotation() | annotation("annotations.3.annotation", name="tone", annotator_kind="LLM")
    assert [e["payload"]["annotator"] for e in read(span(1, CHAT | two))] == ["human", "llm"]


def test_traces_and_sessions_are_judged_once_and_as_such() -> None:
    given = annotation("trace.annotations.0.annotation") | annotation("session.evaluations.0.evaluation")
    trace, session = read(span(1, CHAT | given))
    assert (trace["target"], trace["payload"]["target"]) == (f"trace:{TRACE}", "trace")
    assert (session["target"], session["payload"]["target"], session["conversation_id"]) == (
        "session:conv", "session", "conv",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("form", "target"),
    [("evaluations.0.evaluation", f"span:{SPAN}"), ("trace.annotations.0.annotation", f"trace:{OTHER_TRACE}")],
)
def test_a_span_of_its_own_judges_what_it_links_to(form: str, target: str) -> None:
    link = {"traceId": OTHER_TRACE, "spanId": SPAN}
    carrier = span(7, {"openinference.span.kind": "EVALUATOR"} | annotation(form), links=[link])
    (event,) = read(carrier)
    assert (event["target"], event["conversation_id"]) == (target, target)


def test_a_links_target_is_not_the_carriers_session() -> None:
    carrier = {"openinference.span.kind": "EVALUATOR", "session.id": "judges"} | annotation(
        "session.annotations.0.annotation"
    )
    (event,) = read(span(7, carrier, links=[{"traceId": OTHER_TRACE, "spanId": SPAN}]))
    assert event["target"] == "session:judges"


def test_an_opinion_that_says_nothing_is_none() -> None:
    assert read(span(1, CHAT | annotation(score=None, label=None, explanation=None))) == []
    empty = {"name": "gen_ai.evaluation.result", "attributes": attributes({"gen_ai.evaluation.name": "x"})}
    assert read(span(1, CHAT, events=[empty])) == []


def test_an_evaluation_of_the_root_is_one_of_the_trace() -> None:
    result = {"gen_ai.evaluation.name": "solved", "gen_ai.evaluation.score.value": 1}
    record = {"eventName": "gen_ai.evaluation.result", "traceId": TRACE, "attributes": attributes(result)}
    (event,) = READER.read(logs(record), 1)
    assert (event["target"], event["conversation_id"]) == (f"trace:{TRACE}", TRACE)
    happened = {"name": "gen_ai.evaluation.result", "attributes": attributes(result)}
    (event,) = read(span(1, {"gen_ai.operation.name": "invoke_agent"}, parentSpanId="", events=[happened]))
    assert event["target"] == f"trace:{TRACE}"


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ({}, f"trace:{TRACE}"),
        ({"key_match": "gen_ai.response.id", "value_match": "r1"}, "response:r1"),
        ({"key_match": "span_id", "value_match": SPAN}, f"span:{SPAN}"),
        ({"key_match": "anything", "value_match": "x"}, f"trace:{TRACE}"),
    ],
)
def test_rewards_of_agent_lightning(link: dict[str, str], target: str) -> None:
    given: dict[str, Any] = {f"agentlightning.link.0.{k}": v for k, v in link.items()}
    given |= {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": 0.5}
    given |= {"agentlightning.reward.1.name": "format", "agentlightning.reward.1.value": 1}
    found = read(span(1, given, name="agentlightning.annotation"))
    assert [(e["kind"], e["target"], e["payload"]["name"], e["payload"]["value"]) for e in found] == [
        ("outcome", target, "reward", 0.5),
        ("outcome", target, "format", 1.0),
    ]
    assert len({json.dumps([e["seq"], e["payload"]]) for e in found}) == 2
    (alone,) = read(span(1, {"agentlightning.reward": 0.25}))
    assert alone["payload"]["value"] == 0.25
    assert START
