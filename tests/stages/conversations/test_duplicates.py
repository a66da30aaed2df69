"""What is told twice counts once; what only has the same id does not."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.stages.conversations.duplicates import merge_duplicates
from flywheel.stages.conversations.fragments import Event

ASKED = [{"role": "user", "content": "hi"}]


def model(
    content: str = "", *, span: str = "", parent: str = "", response: str = "", event: str = "e", **payload: Any
) -> Event:
    message = {"role": "assistant"} | ({"content": content} if content else {})
    named = {"response_id": response} if response else {}
    return Event(
        event, "model_call", span or None, parent or None, None, None, {"message": message, **named, **payload}
    )


def result(content: str, status: str, span: str = "t") -> Event:
    return Event("e", "tool_result", span, None, "find", None, {"content": content, "status": status})


def test_two_results_in_one_message_are_two() -> None:
    """A line of Claude Code holds the results of calls that were made at once, under one id of its own."""
    both = [result(content, "ok")._replace(tool_call_id=own) for own, content in (("c1", "a"), ("c2", "b"))]
    assert merge_duplicates([*both, both[0]])[0] == both


TWICE = {
    "delivered again": (model("a", span="s"), model("a", span="s")),
    "the same response": (model("a", response="r", input=ASKED), model("a", response="r", span="s")),
    "a framework around the SDK": (model("a", span="f"), model("a", span="s", parent="f")),
    "children come first": (model("a", span="s", parent="f"), model("a", span="f")),
    "a span and its content": (model(span="s", tags=["content_missing"]), model("a", span="s")),
    "an empty wrapper": (model(span="f"), model("a", span="s", parent="f")),
}


@pytest.mark.parametrize("name", TWICE)
def test_two_tellings_of_a_call_are_one(name: str) -> None:
    (call,), repeated = merge_duplicates(TWICE[name])
    assert repeated == 1
    assert call.payload["message"]["content"] == "a"
    assert "tags" not in call.payload


def test_a_framework_that_leaves_out_the_words_next_to_calls_is_around_the_same_call() -> None:
    """As AutoGen's client does; its input has the results without their content."""
    seen = [*ASKED, {"role": "tool", "content": "Monday", "tool_call_id": "c0"}]
    blank = [*ASKED, {"role": "tool", "content": ""}]
    made = {"role": "assistant", "tool_calls": [{"id": "c1", "name": "find", "arguments": {}}]}
    outer = model(span="f", input=blank)._replace(payload={"message": made, "input": blank})
    inner = model(span="s", parent="f")._replace(payload={"message": {**made, "content": "I look."}, "input": seen})
    for pair in ((outer, inner), (inner, outer)):
        (call,), repeated = merge_duplicates(pair)
        assert repeated == 1
        assert (call.payload["message"], call.payload["input"]) == ({**made, "content": "I look."}, seen)


OTHER = {
    "another answer": (model("a", response="r"), model("b", response="r")),
    "another question": (model("a", response="r", input=ASKED), model("a", response="r", input=[*ASKED, *ASKED])),
    "calls of one parent": (model("a", span="1", parent="p"), model("a", span="2", parent="p")),
    "no ids": (model("a"), model("a")),
    "a nested call of its own": (model("a", span="f"), model("b", span="s", parent="f")),
}


@pytest.mark.parametrize("name", OTHER)
def test_two_calls_are_two(name: str) -> None:
    told, repeated = merge_duplicates(OTHER[name])
    assert (len(told), repeated) == (2, 0)


def test_what_both_tellings_say_is_kept() -> None:
    one = model(span="s", event="1", tags=["content_missing", "streamed"], input_tokens=7)
    two = model("a", span="s", event="2", input=ASKED, response="r", finish_reason="stop")
    (call,), _ = merge_duplicates([one, two])
    assert call.event_id == "1"
    assert call.payload == {
        "message": {"role": "assistant", "content": "a"}, "input": ASKED, "input_tokens": 7, "response_id": "r",
        "finish_reason": "stop", "tags": ["streamed"],
    }  # fmt: skip


def test_a_tool_span_is_told_once_by_its_fuller_telling() -> None:
    (told,), repeated = merge_duplicates([result("", "unknown"), result("no", "failed")])
    assert (told.payload, repeated) == ({"content": "no", "status": "failed"}, 0)
    assert len(merge_duplicates([result("a", "ok", "1"), result("a", "ok", "2")])[0]) == 2


def test_a_summary_gives_way_to_a_call() -> None:
    summary = model("all in all", summary=True)
    assert [e.payload["message"]["content"] for e in merge_duplicates([summary, model("a")])[0]] == ["a"]
    assert len(merge_duplicates([summary])[0]) == 1


def test_a_summary_gives_way_only_to_calls_of_its_own_trace() -> None:
    def of(trace: str, content: str, **payload: Any) -> Event:
        return model(content, **payload)._replace(ids=[f"trace:{trace}", "span:s"])

    one, two = of("t1", "one", summary=True), of("t2", "two", summary=True)
    asked = Event("e", "request", None, None, None, None, {"messages": ASKED, "summary": True}, ["trace:t1"])
    assert merge_duplicates([asked, one, two])[0] == [asked, one, two]
    assert merge_duplicates([asked, one, of("t1", "call"), two])[0] == [of("t1", "call"), two]
    unknown = model("a call of nobody knows which trace")
    assert merge_duplicates([one, unknown, two])[0][0].payload.get("summary") is None
    assert len(merge_duplicates([one, one, of("t1", "other", summary=True)])[0]) == 2, "told again, and something else"


def calling(file: str, *ids: str, **payload: Any) -> Event:
    calls = [{"id": name, "name": "find", "arguments": {"id": name[-1:]}} for name in ids]
    message = {"role": "assistant", "tool_calls": calls}
    return Event("e", "model_call", None, None, None, None, {"message": message, **payload}, (), f"{file}:1")


def test_of_two_files_that_tell_the_same_calls_the_one_that_counts_them_is_kept() -> None:
    session = [
        calling("session", "toolu_000000_1", "toolu_000000_2", output_tokens=3),
        calling("session", "toolu_000000_3"),
    ]
    trace = [calling("trace", f"toolu_000000_{n}") for n in (1, 2, 3)]
    asked, again = (Event("e", "request", None, None, None, None, {"messages": ASKED}, (), f"{file}:1")
                    for file in ("session", "trace"))  # fmt: skip
    result = Event("r", "tool_result", None, None, "find", "toolu_000000_1", {"content": "x"}, (), "session:2")
    copy = result._replace(record="trace:2")
    events = [again, trace[0], copy, asked, session[0], result, *trace[1:], session[1]]
    assert merge_duplicates(events)[0] == [asked, session[0], result, session[1]]
    assert copy in merge_duplicates([event for event in events if event != result])[0]


def test_words_that_only_the_smaller_file_has_stay() -> None:
    calls = [calling("calls", "toolu_000000_1", "toolu_000000_2")]
    said = model("It is in Lima.")._replace(record="chat:3")
    asked = Event("e", "request", None, None, None, None, {"messages": ASKED}, (), "chat:1")
    chat = [asked, calling("chat", "toolu_000000_1", "toolu_000000_2"), said]
    assert merge_duplicates([*calls, *chat])[0] == chat
    worker = [asked, calling("worker", "toolu_000000_1"), said._replace(record="worker:3")]
    left = merge_duplicates([*worker, *calls])[0]
    assert (said._replace(record="worker:3") in left, len(left)) == (True, 3)


@pytest.mark.parametrize(
    "events",
    [
        [calling("one", "call_0"), calling("other", "call_0")],  # a turn a file, each with its own numbers
        [calling("one", "toolu_000000_00000_1"), calling("other", "toolu_000000_00000_2")],
        [calling("one", "", ""), calling("other", "", "")],
        [calling("one", "toolu_000000_00000_1"), calling("one", "toolu_000000_00000_1")],
    ],
)
def test_other_calls_of_two_files_stay(events: list[Event]) -> None:
    assert merge_duplicates(events)[0] == events


def talk(file: str, turns: int, words: str) -> list[Event]:
    made = []
    for n in range(turns):
        asked = {"messages": [{"role": "user", "content": f"{words} {n}?"}]}
        made.append(Event(f"{n}", "request", None, None, None, None, asked, (), f"{file}:{n}"))
        made.append(model(f"The answer to {words} number {n} is {n}.")._replace(record=f"{file}:{n}"))
    return made


def test_a_talk_that_a_table_has_too_counts_once() -> None:
    sessions = [
        calling("sessions", "toolu_000000_1"),
        *talk("sessions", 4, "How many orders came from Lima on the day"),
    ]
    table = talk("table", 4, "How many orders came from Lima on the day")
    assert merge_duplicates([*table, *sessions])[0] == sessions


def test_short_words_that_two_files_have_are_two() -> None:
    days = [*talk("monday", 1, "Hi"), *talk("tuesday", 1, "Hi"), *talk("tuesday", 1, "Ho")]
    assert merge_duplicates(days)[0] == days
