"""Exports of traces alone: what a trace was asked and answered, unless its calls are logged, also in another file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

TURNS = {"t1": ("Where is order 7?", "On its way."), "t2": ("And order 8?", "It arrives on Monday.")}
CLASSES = {"system": "SystemMessage", "human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}
MINUTES = {"t1": "00", "t2": "10"}


def at(trace: str, second: int) -> str:
    return f"2026-10-01T09:{MINUTES[trace]}:{second:02}Z"


def langfuse(trace: str) -> dict[str, Any]:
    given, said = TURNS[trace]
    return {
        "id": trace, "timestamp": at(trace, 0), "name": "support", "user_id": "u1", "session_id": "conv-1",
        "release": "r1", "public": False, "tags": [], "input": given, "output": said, "environment": "production",
    }  # fmt: skip


def langsmith(trace: str) -> dict[str, Any]:
    given, said = TURNS[trace]
    return {
        "id": trace, "trace_id": trace, "parent_run_id": None, "dotted_order": f"20261001T090000Z{trace}",
        "name": "agent", "run_type": "chain", "start_time": at(trace, 0), "end_time": at(trace, 9), "status": "success",
        "inputs": {"question": given}, "outputs": {"output": said}, "prompt_tokens": 10, "completion_tokens": 4,
        "extra": {"metadata": {"thread_id": "conv-1"}},
    }  # fmt: skip


def weave(trace: str) -> dict[str, Any]:
    given, said = TURNS[trace]
    return {
        "id": f"c-{trace}", "op_name": "weave:///team/proj/op/answer:v1", "trace_id": trace, "parent_id": None,
        "thread_id": "conv-1", "started_at": at(trace, 0), "ended_at": at(trace, 9), "exception": None,
        "attributes": {}, "inputs": {"question": given}, "output": said,
        "summary": {"usage": {"m": {"prompt_tokens": 10, "completion_tokens": 4}}},
    }  # fmt: skip


def opik(trace: str) -> dict[str, Any]:
    given, said = TURNS[trace]
    return {
        "id": trace, "name": "agent", "start_time": at(trace, 0), "end_time": at(trace, 9), "thread_id": "conv-1",
        "input": {"question": given}, "output": {"output": said}, "metadata": {}, "error_info": None,
        "feedback_scores": None, "total_estimated_cost": 0.1, "span_count": 3, "llm_span_count": 2,
        "usage": {"prompt_tokens": 10, "completion_tokens": 4},
    }  # fmt: skip


def mlflow(trace: str) -> dict[str, Any]:
    given, said = TURNS[trace]
    return {
        "trace_id": f"tr-{trace}", "request_time": at(trace, 0), "state": "OK", "tags": {},
        "trace_metadata": {"mlflow.trace.session": "conv-1"}, "request": json.dumps({"question": given}),
        "response": json.dumps(said), "request_preview": "Where",
    }  # fmt: skip


def call_of(make: Callable[[str], dict[str, Any]], trace: str) -> dict[str, Any]:
    """A model call of a trace, as the same system logs it."""
    given, said = TURNS[trace]
    messages, times = [{"role": "user", "content": given}], (at(trace, 2), at(trace, 4))
    whole = {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": said}}]}
    row = {**make(trace), "id": f"m-{trace}", "trace_id": trace, "start_time": times[0], "end_time": times[1]}
    calls: dict[Any, dict[str, Any]] = {
        langfuse: {"type": "GENERATION", "input": messages, "output": whole["choices"][0]["message"]},
        langsmith: {"run_type": "llm", "parent_run_id": trace, "inputs": {"messages": messages}, "outputs": whole},
        weave: {"parent_id": f"c-{trace}", "attributes": {"weave": {"kind": "llm"}}, "inputs": {"messages": messages},
                "output": whole, "started_at": times[0], "ended_at": times[1]},
        opik: {"type": "llm", "input": {"messages": messages}, "output": whole},
        mlflow: {"spans": [{
            "span_id": "00000000000000aa", "parent_id": None, "name": "chat", "start_time_ns": 1790845202 * 10**9,
            "end_time_ns": 1790845204 * 10**9, "status_code": "OK",
            "attributes": {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": json.dumps({"messages": messages}),
                           "mlflow.spanOutputs": json.dumps(whole)},
        }]},
    }  # fmt: skip
    return row | calls[make] | ({"trace_id": f"tr-{trace}"} if make is mlflow else {})


def said_in(steps: pl.DataFrame) -> list[tuple[str, str | None]]:
    """Return what each step heard last, and said."""
    rows = steps.sort("index").select("observation", "action").iter_rows()
    return [(json.loads(seen)[-1]["content"], json.loads(action).get("content")) for seen, action in rows]


SYSTEMS = [langfuse, langsmith, weave, opik, mlflow]


@pytest.mark.parametrize("make", SYSTEMS)
def test_a_session_of_traces_alone(
    make: Callable[[str], dict[str, Any]], take: Callable[..., Any], write: Callable[..., Path]
) -> None:
    write("traces.jsonl", [make("t2"), make("t1")])
    taken = take()
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    episodes, steps = taken.built()
    assert episodes["conversation_id"].to_list() == ["conv-1"]
    assert said_in(steps) == list(TURNS.values())
    assert not steps["resets_context"].any()
    assert episodes["output_tokens"].to_list() == [None if make in (langfuse, mlflow) else 8]


@pytest.mark.parametrize("make", SYSTEMS)
@pytest.mark.parametrize("logged", ["t1", "t2"])
def test_a_trace_whose_calls_stand_in_another_file_is_told_once(
    make: Callable[[str], dict[str, Any]], logged: str, take: Callable[..., Any], write: Callable[..., Path]
) -> None:
    write("traces.jsonl", [make("t1"), make("t2")])
    write("calls.jsonl", [call_of(make, logged)])
    taken = take()
    episodes, steps = taken.built()
    assert episodes["conversation_id"].to_list() == ["conv-1"]
    assert said_in(steps)[0][0] == TURNS["t1"][0]
    assert [answer for _, answer in said_in(steps)] == [answer for _, answer in TURNS.values()]
    called = taken.events.filter(~pl.col("payload").str.contains('"summary":true'), pl.col("kind") == "model_call")
    assert called["event_id"].item() in steps["event_id"].to_list()


def test_what_a_program_hands_to_another_is_no_conversation(
    take: Callable[..., Any], write: Callable[..., Path]
) -> None:
    write("traces.jsonl", [{**make("t1"), "input": {"rows": 3}, "inputs": {"rows": 3}} for make in (langsmith,)])
    assert take().built()[1].is_empty()


def otel(trace: str) -> dict[str, Any]:
    given, said = TURNS[trace]
    return {
        "name": "LangGraph", "context": {"trace_id": f"0x{trace[1:]:0>32}", "span_id": f"0x{trace[1:]:0>16}"},
        "parent_id": None, "start_time": at(trace, 0), "end_time": at(trace, 9), "status": {"status_code": "UNSET"},
        "attributes": {"openinference.span.kind": "CHAIN", "input.value": given, "output.value": said,
                       "session.id": "conv-1"},
        "events": [], "links": [], "resource": {"attributes": {}},
    }  # fmt: skip


def state_of(trace: str) -> list[dict[str, Any]]:
    """Return the messages of an agent's state after a trace: those of its thread's earlier runs are in it, too."""
    messages: list[dict[str, Any]] = [{"type": "system", "content": "Be kind."}]
    for n, (given, said) in enumerate(list(TURNS.values())[: int(trace[1:])], 7):
        called = {"name": "get_order", "args": {"id": n}, "id": f"call_{n}", "type": "tool_call"}
        usage = {"input_tokens": 30, "output_tokens": 5, "total_tokens": 35}
        messages += [
            {"type": "human", "content": given},
            {"type": "ai", "content": "", "tool_calls": [called], "usage_metadata": usage},
            {"type": "tool", "name": "get_order", "content": f"row {n}", "tool_call_id": f"call_{n}",
             "status": "success"},
            {"type": "ai", "content": said, "tool_calls": [], "usage_metadata": usage},
        ]  # fmt: skip
    return messages


def constructed(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", name], "kwargs": fields}


def with_state(make: Callable[[str], dict[str, Any]], trace: str) -> dict[str, Any]:
    """Return a trace alone whose output is its agent's state, each message as the class and the fields it had."""
    kept = [constructed(CLASSES[message["type"]], message) for message in state_of(trace)]
    row, given, output = make(trace), {"messages": [{"role": "user", "content": TURNS[trace][0]}]}, {"messages": kept}
    if make is otel:
        values = {"input.value": json.dumps(given), "output.value": json.dumps(output)}
        return row | {"attributes": row["attributes"] | values}
    if make is mlflow:
        return row | {"request": json.dumps(given), "response": json.dumps(output)}
    places: dict[Any, tuple[str, str]] = {
        langfuse: ("input", "output"),
        langsmith: ("inputs", "outputs"),
        weave: ("inputs", "output"),
    }
    asked, answered = places[make]
    return row | {asked: given, answered: output}


STATES = [langfuse, langsmith, weave, mlflow, otel]


@pytest.mark.parametrize("make", STATES)
def test_the_state_of_an_agent_is_its_talk_step_by_step(
    make: Callable[[str], dict[str, Any]], take: Callable[..., Any], write: Callable[..., Path]
) -> None:
    """A second run's state repeats the first run's messages, whose acts are not counted again."""
    write("traces.jsonl", [with_state(make, "t2"), with_state(make, "t1")])
    taken = take()
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    episodes, steps = taken.built()
    assert episodes["conversation_id"].to_list() == ["conv-1"]
    actions = [json.loads(action) for action in steps.sort("index")["action"]]
    assert [[call["arguments"] for call in action.get("tool_calls", ())] for action in actions] == [
        [{"id": 7}], [], [{"id": 8}], [],
    ]  # fmt: skip
    assert [action.get("content") for action in actions[1::2]] == [said for _, said in TURNS.values()]
    assert steps.sort("index")["tool_status"].to_list() == [["ok"], [], ["ok"], []]
    assert [json.loads(seen)[-1]["content"] for seen in steps.sort("index")["observation"]] == [
        TURNS["t1"][0], "row 7", TURNS["t2"][0], "row 8",
    ]  # fmt: skip
    assert json.loads(steps.sort("index")["observation"][0])[0] == {"role": "system", "content": "Be kind."}
    assert not steps["resets_context"].any()
    assert episodes["output_tokens"].to_list() == [20]


@pytest.mark.parametrize("make", [langfuse, langsmith, weave])
@pytest.mark.parametrize("logged", ["t1", "t2"])
def test_a_state_gives_way_to_the_calls_of_its_trace(
    make: Callable[[str], dict[str, Any]], logged: str, take: Callable[..., Any], write: Callable[..., Path]
) -> None:
    write("traces.jsonl", [with_state(make, "t1"), with_state(make, "t2")])
    write("calls.jsonl", [call_of(make, logged)])
    episodes, steps = take().built()
    assert episodes["conversation_id"].to_list() == ["conv-1"]
    assert [answer for _, answer in said_in(steps) if answer] == [answer for _, answer in TURNS.values()]
    assert steps.height == 3


def test_tools_that_are_traced_too_count_once(take: Callable[..., Any], write: Callable[..., Path]) -> None:
    tool = {
        **langsmith("t1"), "id": "tool-1", "parent_run_id": "t1", "run_type": "tool", "name": "get_order",
        "start_time": at("t1", 3), "end_time": at("t1", 4), "inputs": {"id": 7}, "outputs": {"output": "row 7"},
    }  # fmt: skip
    write("traces.jsonl", [with_state(langsmith, "t1"), tool])
    _, steps = take().built()
    assert steps.sort("index")["tool_status"].to_list() == [["ok"], []]
    assert [len(json.loads(seen)) for seen in steps.sort("index")["observation"]] == [2, 1]


def test_of_two_talks_of_a_trace_the_first_is_told(take: Callable[..., Any], write: Callable[..., Path]) -> None:
    """A helper's run lies in its agent's; its span is a record of its own, as a query for runs gives it."""
    outer = with_state(otel, "t1")
    inner = with_state(otel, "t2") | {
        "context": {**outer["context"], "span_id": "0x00000000000000ff"}, "parent_id": "0x00000000000000fe",
        "start_time": at("t1", 2), "end_time": at("t1", 5),
    }  # fmt: skip
    inner["attributes"] = inner["attributes"] | {"openinference.span.kind": "AGENT"}
    write("runs.jsonl", [inner, outer])
    _, steps = take().built()
    assert said_in(steps.filter(index=1)) == [("row 7", TURNS["t1"][1])]
    assert steps.height == 2


def test_steps_that_a_result_keeps_apart_are_acts(take: Callable[..., Any], write: Callable[..., Path]) -> None:
    action = {"tool": "get_order", "tool_input": {"id": 7}, "log": "\nInvoking: `get_order`", "tool_call_id": "call_7"}
    for n, step in enumerate((action, constructed("ToolAgentAction", action))):
        row = langsmith("t1") | {"outputs": {"output": "On its way.", "intermediate_steps": [[step, "row 7"]]}}
        write(f"traces{n}.jsonl", [row | {"extra": {"metadata": {"thread_id": f"conv-{n}"}}, "id": f"t{n}",
                                          "trace_id": f"t{n}"}])  # fmt: skip
    episodes, steps = take().built()
    assert episodes["n_tool_calls"].to_list() == [1, 1]
    assert {seen for seen, _ in said_in(steps.filter(index=1).with_columns(action=pl.lit('{"content": ""}')))} == {
        "row 7"
    }


def test_traces_of_one_call_each_are_the_talks_that_they_repeat(
    take: Callable[..., Any], write: Callable[..., Path]
) -> None:
    """Where no more than the client of a model is traced, every call is a trace of its own."""
    rows = []
    for person, question in enumerate(("Where is order 7?", "And order 8?")):
        talk = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": question}]
        for turn in range(2):
            number, said = 2 * person + turn + 1, {"role": "assistant", "content": f"Answer {turn} to {person}."}
            attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(talk),
                          "gen_ai.output.messages": json.dumps([said])}  # fmt: skip
            context = {"trace_id": f"{number:032x}", "span_id": f"{number:016x}"}
            rows.append(otel("t1") | {"attributes": attributes, "start_time": at("t1", number), "context": context})
            talk = [*talk, said, {"role": "user", "content": "Are you sure?"}]
    write("calls.jsonl", rows)
    episodes, steps = take().built()
    assert sorted(episodes["n_steps"]) == [2, 2]
    assert not steps["resets_context"].any()


def test_talks_of_a_trace_one_after_another_are_all_told(take: Callable[..., Any], write: Callable[..., Path]) -> None:
    """Two agents of a crew: the second used no tool, so that its answer is next to its messages."""
    rows = []
    for number, (question, answer) in enumerate(TURNS.values(), 1):
        held = {"raw": answer, "messages": [{"role": "system", "content": f"You are {number}."},
                                            {"role": "user", "content": question}]}  # fmt: skip
        row = otel("t1") | {"parent_id": "0x00000000000000fe", "start_time": at("t1", 3 * number),
                            "end_time": at("t1", 3 * number + 2)}  # fmt: skip
        row["context"] = {**row["context"], "span_id": f"0x{number:016x}"}
        row["attributes"] = {"openinference.span.kind": "AGENT", "output.value": json.dumps(held)}
        rows.append(row)
    write("runs.jsonl", rows)
    _, steps = take().built()
    assert said_in(steps) == list(TURNS.values())
