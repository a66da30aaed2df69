"""Conversations put in order: both ways of telling, and their mixtures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flywheel.stages.conversations.fragments import Event
from flywheel.stages.conversations.transcript import Transcript, read_transcript
from tests.stages.talks import Talk, call, user

SYSTEM = {"role": "system", "content": "Help."}


def read(talk: Talk) -> Transcript:
    names = [name for name in Event._fields if name not in {"payload", "record"}]
    rows = [{name: row[name] for name in names} | {"payload": json.loads(row["payload"])} for row in talk.rows]
    return read_transcript([Event(**row) for row in rows])


def said(content: str | None, calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"role": "assistant"} | ({"content": content} if content else {}) | ({"tool_calls": calls} if calls else {})


def answer(content: str, call_id: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call_id, **more}


FIND = call("find", {"id": 7}, "c1")


def incremental() -> Talk:
    talk = Talk("t").ask(SYSTEM, "where is order 7?").act(calls=[FIND]).result("shipped", call_id="c1", name="find")
    return talk.act("It is shipped.").ask("thanks")


def repeated() -> Talk:
    history = [SYSTEM, user("where is order 7?")]
    later = [*history, said(None, [FIND]), answer("shipped", "c1", name="find", status="ok")]
    talk = Talk("t").act(calls=[FIND], input=history).act("It is shipped.", input=later)
    return talk.ask(*later, said("It is shipped."), "thanks")


@pytest.mark.parametrize("talk", [incremental(), repeated()], ids=["incremental", "repeated"])
def test_both_ways_of_telling_give_the_same_transcript(talk: Talk) -> None:
    transcript = read(talk)
    first, second = transcript.actions
    assert first.observation == [SYSTEM, user("where is order 7?")]
    assert second.observation == [answer("shipped", "c1", name="find", status="ok")]
    assert [c.status for c in first.calls] == ["ok"]
    assert (second.message["content"], transcript.tail) == ("It is shipped.", [user("thanks")])
    assert not any(a.resets_context for a in transcript.actions)
    assert not transcript.tags


TIER = call("tier", {"id": 3}, "c2")


def one_by_one(*calls: dict[str, Any]) -> list[dict[str, Any]]:
    return [m for made in calls for m in (said(None, [made]), answer("x", made["id"], name=made["name"]))]


def test_calls_made_at_once_may_be_repeated_one_by_one() -> None:
    """Koog gives a model its calls as call, result, call, result, also those that it made side by side."""
    asked = [SYSTEM, user("hi")]
    both = Talk("t").act(calls=[FIND, TIER], input=asked).act("done", input=[*asked, *one_by_one(FIND, TIER)])
    first, second = read(both).actions
    assert [m["tool_call_id"] for m in second.observation] == ["c1", "c2"]
    assert [len(first.calls), second.resets_context] == [2, False]


def test_a_history_that_lacks_one_of_the_calls_is_another() -> None:
    asked = [SYSTEM, user("hi")]
    half = Talk("t").act(calls=[FIND, TIER], input=asked).act("done", input=[*asked, *one_by_one(FIND)])
    assert read(half).actions[1].resets_context


def test_a_repeated_history_may_leave_out_ids_names_and_blanks() -> None:
    talk = Talk("t").act(calls=[FIND], input=[user("hi")])
    talk.act("done", input=[user("hi "), said("", [call("find", {"id": 7.0})]), answer("x", "")])
    first, second = read(talk).actions
    assert [m["role"] for m in second.observation] == ["tool"]
    assert (second.resets_context, first.calls[0].answered) == (False, True)


def test_a_rewritten_history_replaces_the_context() -> None:
    talk = Talk("t").act("one", input=[user("a")]).act("two", input=[user("summary of a"), user("b")])
    talk.act("three", input=[user("summary of a"), user("b"), said("two"), user("c")])
    actions = read(talk).actions
    assert [a.resets_context for a in actions] == [False, True, False]
    assert [a.observation for a in actions] == [[user("a")], [user("summary of a"), user("b")], [user("c")]]


def test_a_replaced_context_is_replaced_also_by_what_begins_like_it() -> None:
    talk = Talk("t").ask("a").act("one")
    actions = read(talk.ask(user("a"), said("one"), "b", replaces_context=True).act("two")).actions
    assert actions[1].resets_context
    assert actions[1].observation == [user("a"), said("one"), user("b")]


def test_requests_that_repeat_the_history_add_only_what_is_new() -> None:
    talk = Talk("t").ask(SYSTEM, "a").ask(SYSTEM, "a").act("one").ask(SYSTEM, user("a"), said("one"), "b").act("two")
    transcript = read(talk)
    assert [a.observation for a in transcript.actions] == [[SYSTEM, user("a")], [user("b")]]
    talk.ask(SYSTEM, user("short"), said("other"), "c").act("three")
    last = read(talk).actions[-1]
    assert (last.resets_context, len(last.observation)) == (True, 4)


def test_results_of_spans_join_the_calls_of_a_repeated_history() -> None:
    talk = Talk("t").act(calls=[FIND], input=[user("a")])
    talk.event("tool_call", {"arguments": {"id": 7}}, tool_name="find", tool_call_id="c1")
    talk.result("db timeout", "failed", call_id="c1", name="find")
    talk.act("sorry", input=[user("a"), said(None, [FIND]), answer("db timeout", "c1", status="unknown")])
    first, second = read(talk).actions
    assert (first.calls[0].status, first.calls[0].events) == ("failed", [talk.rows[2]["event_id"]])
    assert second.observation == [answer("db timeout", "c1", status="unknown", name="find")]


def test_a_result_in_a_later_input_is_proved_by_that_call() -> None:
    talk = repeated()
    first = read(talk).actions[0]
    assert first.calls[0].events == [talk.rows[1]["event_id"]]


def test_a_result_after_the_last_action_is_its_status_and_the_tail() -> None:
    talk = Talk("t").ask("a").act(calls=[FIND]).result("gone", "failed", call_id="c1").ask("hm")
    transcript = read(talk)
    assert transcript.actions[0].calls[0].status == "failed"
    assert [m["role"] for m in transcript.tail] == ["tool", "user"]


def test_a_result_told_twice_is_seen_once() -> None:
    talk = Talk("t").ask("a").act(calls=[FIND]).result("x", "unknown", call_id="c1").result("x", "ok", call_id="c1")
    transcript = read(talk.act("b"))
    assert len(transcript.actions[1].observation) == 1
    assert transcript.actions[0].calls[0].status == "ok"


def test_a_call_told_by_two_spans_is_one_step() -> None:
    talk = Talk("t").act("one", input=[user("a")], columns={"span_id": "outer"}, input_tokens=3)
    talk.act("one", input=[user("a")], columns={"span_id": "inner", "parent_id": "outer"}, input_tokens=3)
    talk.act("two", input=[user("a"), said("one"), user("b")], response_id="r", input_tokens=4)
    talk.act("two", input=[user("a"), said("one"), user("b")], response_id="r", input_tokens=4)
    transcript = read(talk)
    assert [a.message["content"] for a in transcript.actions] == ["one", "two"]
    assert (transcript.repeated_calls, transcript.usage) == (2, {"input_tokens": 7})


def test_a_call_seen_only_as_a_span_is_an_action() -> None:
    talk = Talk("t").ask("a").event("tool_call", {"arguments": {"id": 7}}, tool_name="find", tool_call_id="c1")
    transcript = read(talk.result("x", call_id="c1"))
    (action,) = transcript.actions
    assert (action.calls[0].name, action.calls[0].status, action.calls[0].malformed) == ("find", "ok", False)
    assert transcript.tags == {"call_without_message"}


def test_results_without_ids_or_without_calls() -> None:
    talk = (
        Talk("t")
        .ask("a")
        .act(calls=[call("f", {}), call("g", None, raw="{")])
        .result("x", "unknown", name="g")
        .result("y", name="f")
    )
    transcript = read(talk.result("who?", call_id="nobody").act("b"))
    assert [c.answered for c in transcript.actions[0].calls] == [True, True]
    assert [m["content"] for m in transcript.actions[1].observation] == ["x", "y"]
    assert transcript.tags == {"paired_by_order", "orphan_result", "malformed_call"}


def test_a_call_that_ran_did_parse() -> None:
    talk = Talk("t").ask("a").act(calls=[call("g", None, "c1", raw="order 7")]).result("shipped", call_id="c1")
    assert "malformed_call" not in read(talk).tags
    failed = Talk("t").ask("a").act(calls=[call("g", None, "c1", raw="order 7")]).result("?", "failed", call_id="c1")
    assert "malformed_call" in read(failed).tags


def test_a_result_before_its_call_comes_after_it_in_the_transcript() -> None:
    transcript = read(Talk("t").ask("a").result("x", call_id="c1").act(calls=[FIND]).act("b"))
    assert [[m["role"] for m in a.observation] for a in transcript.actions] == [["user"], ["tool"]]


def test_tags_of_the_reader_are_kept() -> None:
    talk = Talk("t").ask("a", tags=["suspect"]).act("b", tags=["truncated", 3]).ask("c", tags="no list")
    assert read(talk).tags == {"suspect", "truncated"}


def test_tools_are_joined_by_name() -> None:
    schema = {"type": "function", "function": {"name": "f", "description": "old"}}
    talk = Talk("t").ask("a", tools=[schema]).act("b", tools=[{"name": "g"}, {"name": "f", "description": "new"}])
    assert list(read(talk).tools.values()) == [{"name": "f", "description": "new"}, {"name": "g"}]


@pytest.mark.parametrize("payload", [{}, {"message": "text"}, {"message": None, "input": 3}, {"messages": [1, {}]}])
def test_what_is_no_message_is_no_action(payload: dict[str, Any]) -> None:
    transcript = read(Talk("t").event("model_call", payload).event("request", payload))
    assert (transcript.actions, transcript.tail) == ([], [])


def test_an_input_of_nothing_but_results_continues_the_conversation() -> None:
    talk = Talk("t").act(calls=[FIND], input=[SYSTEM, user("where is order 7?")])
    talk.act("It is shipped.", input=[answer("shipped", "c1", name="find", status="ok")])
    transcript = read(talk)
    assert [a.resets_context for a in transcript.actions] == [False, False]
    assert [m["content"] for m in transcript.actions[1].observation] == ["shipped"]
    other = Talk("t").act(calls=[FIND], input=[user("a")]).act("b", input=[answer("shipped", "c9")])
    assert read(other).actions[1].resets_context, "the answer to another call is another conversation's"


def test_results_that_inputs_leave_out_reached_the_agent_all_the_same() -> None:
    asked, made = [SYSTEM, user("where is order 7?")], said(None, [FIND])
    talk = Talk("t").act(calls=[FIND], input=asked).result("shipped", call_id="c1", name="find")
    talk.act("It is shipped.", input=[*asked, made])
    talk.act("You are welcome.", input=[*asked, made, said("It is shipped."), user("thanks")])
    transcript = read(talk)
    assert [[m["content"] for m in a.observation] for a in transcript.actions[1:]] == [["shipped"], ["thanks"]]
    assert not any(a.resets_context for a in transcript.actions)


@pytest.mark.parametrize(
    "shown", [user("Observation: shipped"), said("Observation: shipped"), answer("it is shipped", "c1")]
)
def test_a_result_that_an_input_holds_in_other_words_is_not_told_twice(shown: dict[str, Any]) -> None:
    asked = [user("where is order 7?")]
    talk = Talk("t").act(calls=[FIND], input=asked).result("shipped", call_id="c1", name="find")
    transcript = read(talk.act("Done.", input=[*asked, said(None, [FIND]), shown]))
    assert transcript.actions[1].observation == [shown | ({"name": "find"} if shown["role"] == "tool" else {})]


def test_a_copy_of_a_call_that_another_conversation_holds_is_paid_for_there() -> None:
    talk = Talk("t").ask("a").act("b", output_tokens=5, copied=True).act("c", output_tokens=7)
    assert read(talk).usage == {"output_tokens": 7}


def spans(*more: dict[str, Any]) -> Talk:
    """Return a talk whose calls only spans show, all of the same tool with the same arguments."""
    talk = Talk("t").ask("a")
    for n, columns in enumerate(more):
        talk.event("tool_call", {"arguments": {"id": 7}}, tool_name="find", tool_call_id=f"k{n}", **columns)
        talk.result("x", call_id=f"k{n}", name="find")
    return talk


def test_equal_calls_that_only_spans_show_are_as_many() -> None:
    """Each was taken for the span of the one before: of three calls one stayed."""
    transcript = read(spans({"span_id": "s0"}, {"span_id": "s1"}, {"span_id": "s2"}))
    assert [len(action.calls) for action in transcript.actions] == [1, 1, 1]
    assert not transcript.uncounted.total()


def test_a_span_of_a_call_within_that_call_is_no_other() -> None:
    transcript = read(spans({"span_id": "s0"}, {"span_id": "s1", "parent_id": "s0"}))
    assert [len(action.calls) for action in transcript.actions] == [1]
    assert +transcript.uncounted == {"spans of calls in messages": 1}


def test_a_result_under_the_id_of_its_span_answers_the_call_of_the_message() -> None:
    talk = Talk("t").ask("a").act(calls=[FIND])
    talk.event("tool_call", {"arguments": {"id": 7}}, tool_name="find", tool_call_id="log-9")
    transcript = read(talk.result("shipped", call_id="log-9", name="find").act("It is shipped."))
    assert transcript.actions[0].calls[0].status == "ok"
    assert [message["content"] for message in transcript.actions[1].observation] == ["shipped"]


LOOK = [call("find", {"id": 7}, "call_0123456789ab"), call("find", {"id": 8}, "call_ba9876543210")]
SEEN = [answer("shipped", "call_0123456789ab"), answer("no order 8", "call_ba9876543210")]
RETOLD = {  # how programs write the act that said "I look both up." and made two calls
    "Responses API": [said("I look"), said(" both up."), said(None, LOOK[:1]), said(None, LOOK[1:])],
    "thoughts apart": [{"role": "assistant", "reasoning": "Two."}, said("I look both up."), said(None, LOOK)],
    "without words": [said(None, LOOK)],
    "without calls": [said("I look both up.")],
    "calls as text": [said(f"Calling tools: {json.dumps(LOOK)}")],
}


@pytest.mark.parametrize("told", RETOLD.values(), ids=RETOLD)
def test_a_history_that_tells_an_act_in_other_words_continues_it(told: list[dict[str, Any]]) -> None:
    asked = [SYSTEM, user("orders 7 and 8?")]
    talk = Talk("t").act("I look both up.", LOOK, input=asked).act("done", input=[*asked, *told, *SEEN])
    first, second = read(talk).actions
    assert [m["content"] for m in second.observation] == ["shipped", "no order 8"]
    assert [len(first.calls), second.resets_context] == [2, False]


def test_an_act_of_calls_alone_may_be_missing_from_the_history() -> None:
    asked = [SYSTEM, user("orders 7 and 8?")]
    talk = Talk("t").act(calls=LOOK, input=asked).act("done", input=[*asked, *SEEN])
    second = read(talk).actions[1]
    assert ([m["content"] for m in second.observation], second.resets_context) == (["shipped", "no order 8"], False)


@pytest.mark.parametrize("told", [said("I look one up."), said("I look both up.", [FIND])], ids=["words", "calls"])
def test_another_act_is_another_history(told: dict[str, Any]) -> None:
    asked = [SYSTEM, user("orders 7 and 8?")]
    talk = Talk("t").act("I look both up.", LOOK, input=asked).act("done", input=[*asked, told, *SEEN])
    assert read(talk).actions[1].resets_context


def test_spans_without_ids_are_of_the_calls_with_their_arguments() -> None:
    """Of calls made at once the second may begin, and end, first."""
    talk = Talk("t").ask("orders 7 and 8?").act("I look both up.", LOOK)
    for made, content, status in ((LOOK[1], "ValueError: 8", "failed"), (LOOK[0], "shipped", "ok")):
        span = {"span_id": f"s-{made['id']}", "tool_name": "find"}
        talk.event("tool_call", {"arguments": made["arguments"]}, **span)
        talk.event("tool_result", {"content": content, "status": status}, **span)
    history = [user("orders 7 and 8?"), said("I look both up.", LOOK), *SEEN]
    transcript = read(talk.act("done", input=history))
    assert [c.status for c in transcript.actions[0].calls] == ["ok", "failed"]
    assert [m["content"] for m in transcript.actions[1].observation] == ["shipped", "no order 8"]
    assert not transcript.tags


def test_calls_that_follow_an_act_without_content_are_its_own() -> None:
    """A tracer that keeps no content has a model call with nothing in it, and the calls as spans."""
    talk = Talk("t").ask("orders 7 and 8?").act(tags=["content_missing"])
    for number, status in enumerate(("ok", "failed")):
        span = {"span_id": f"s{number}", "tool_name": "find", "tool_call_id": f"c{number}"}
        talk.event("tool_call", {}, **span)
        talk.event("tool_result", {"content": "", "status": status}, **span)
    transcript = read(talk.act(tags=["content_missing"]))
    assert [[c.status for c in action.calls] for action in transcript.actions] == [["ok", "failed"], []]
    assert [m["role"] for m in transcript.actions[1].observation] == ["tool", "tool"]


PARTS: dict[str, tuple[dict[str, Any], str | None]] = {  # what an instrument kept of an answer, and of its words
    "words alone": ({"content": "I look both up."}, "I look both up."),
    "one of the calls": ({"calls": LOOK[1:]}, "I look both up."),
    "calls without the words": ({"calls": LOOK}, "I look both up."),
    "nothing": ({"tags": ["content_missing"]}, "I look both up."),
}


@pytest.mark.parametrize("kept", PARTS, ids=PARTS)
def test_an_act_that_was_logged_in_part_gets_the_rest_from_the_next_input(kept: str) -> None:
    given, words = PARTS[kept]
    asked = [SYSTEM, user("orders 7 and 8?")]
    talk = Talk("t").act(**given, input=asked)
    transcript = read(talk.act("done", input=[*asked, said("I look both up.", LOOK), *SEEN]))
    first, second = transcript.actions
    assert (first.message.get("content"), [c["id"] for c in first.message["tool_calls"]]) in [
        (words, [made["id"] for made in order]) for order in (LOOK, LOOK[::-1])
    ]
    assert [m["content"] for m in second.observation] == ["shipped", "no order 8"]
    assert not second.resets_context
    assert transcript.shown_calls == len(LOOK) - len(given.get("calls", ()))
    assert transcript.made_calls == transcript.logged_calls + transcript.shown_calls


def test_a_call_after_the_next_request_is_not_of_the_act_before_it() -> None:
    talk = Talk("t").ask("a").act(tags=["content_missing"]).ask("b")
    transcript = read(talk.event("tool_call", {}, tool_name="find", tool_call_id="c1"))
    assert [len(action.calls) for action in transcript.actions] == [0, 1]


def test_calls_that_follow_an_act_which_ended_in_calls_are_its_own_in_the_order_of_the_next_input() -> None:
    """As Braintrust logs LangChain's answers: words and why they ended, and no call. Spans begin in any order."""
    asked = [SYSTEM, user("orders 7 and 8?")]
    talk = Talk("t").act("I look both up.", input=asked, finish_reason="tool_calls")
    for made, name in ((LOOK[1], None), (LOOK[0], LOOK[0]["id"])):
        span = {"span_id": f"s-{made['id']}", "tool_name": "find", "tool_call_id": name}
        talk.event("tool_call", {"arguments": made["arguments"]}, **span)
        talk.event("tool_result", {"content": "seen", "status": "ok"}, **span)
    transcript = read(talk.act("done", input=[*asked, said("I look both up.", LOOK), *SEEN]))
    first, second = transcript.actions
    assert first.message["tool_calls"] == LOOK
    assert ([c.call_id for c in first.calls], second.resets_context) == ([made["id"] for made in LOOK], False)


def test_a_history_without_any_act_shows_what_came_in() -> None:
    asked = [SYSTEM, user("orders 7 and 8?")]
    talk = Talk("t").act("I look both up.", calls=LOOK, input=asked).act("done", input=[*asked, *SEEN])
    transcript = read(talk.act("fine", input=[*asked, *SEEN, user("thanks")]))
    assert [len(action.observation) for action in transcript.actions] == [2, 2, 1]
    assert not any(action.resets_context for action in transcript.actions)
    again = read(Talk("t").act("A", input=asked).act("B", input=asked))
    assert again.actions[1].resets_context, "another try, not the same talk going on"


def test_a_history_that_shows_no_more_than_that_a_tool_gave_something_leaves_the_spans_result() -> None:
    """AutoGen's messages, as OpenInference writes them, and two spans a call, of which the outer has the result."""
    asked, blank = [SYSTEM, user("orders 7 and 8?")], {"role": "tool", "content": ""}
    talk = Talk("t").act(calls=LOOK, input=asked)
    for made, status, content in zip(LOOK, ("ok", "failed"), ("shipped", "no order 8"), strict=True):
        outer = {"span_id": f"o-{made['id']}", "tool_name": "find"}
        inner = {"span_id": f"i-{made['id']}", "tool_name": "find", "tool_call_id": made["id"]}
        talk.event("tool_call", {"arguments": made["arguments"]}, **outer)
        talk.event("tool_call", {}, **inner)
        talk.event("tool_result", {"content": "", "status": status}, **inner)
        talk.event("tool_result", {"content": content, "status": "ok"}, **outer)
    talk.act("one", input=[*asked, said(None, LOOK), blank])
    transcript = read(talk.act("two", input=[*asked, said(None, LOOK), blank, said("one"), user("more")]))
    first, second, third = transcript.actions
    assert [c.status for c in first.calls] == ["ok", "failed"]
    assert [m["content"] for m in second.observation] == ["shipped", "no order 8"]
    assert (third.observation, third.resets_context) == ([user("more")], False)
