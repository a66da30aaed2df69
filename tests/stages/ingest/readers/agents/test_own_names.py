"""Logs of programs of one's own: fields under names that nobody agreed on, read under what they mean or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.funnel import Funnel
from flywheel.pipeline.build.registry import LINK_COLUMNS
from flywheel.stages.conversations.link import build_links
from tests.stages.ingest.conftest import COUNTING

Write = Callable[..., Path]
Take = Callable[..., Any]
ASKED, ANSWERED = "What does the basic plan cost?", "It costs ten euros a month."
AT = "2026-10-05T09:50:16Z"


def two_chats(**about: Any) -> list[dict[str, Any]]:
    """Return the rows of two chats, one after the other's; `{}` in what they are about is the chat's number."""
    rows = []
    for turn in (("user", ASKED), ("assistant", ANSWERED), ("user", "And the large one?"), ("assistant", "Thirty.")):
        for chat in (1, 2):
            named = {name: value.format(chat) if isinstance(value, str) else value for name, value in about.items()}
            rows.append({"role": turn[0], "content": turn[1], **named})
    return rows


def kinds(taken: Any) -> dict[str, int]:
    return dict(sorted((str(kind), count) for kind, count in taken.events["kind"].value_counts().iter_rows()))


@pytest.mark.parametrize(
    "name",
    [
        "conversation_uuid",
        "session",
        "chat",
        "convo",
        "conv_id",
        "dialog_id",
        "sessionUuid",
        "session_key",
        "thread_ts",
    ],
)
def test_a_chat_under_a_name_of_its_own_is_a_chat(name: str, write: Write, take: Take) -> None:
    taken = take(write("rows.jsonl", two_chats(**{name: "a-{}"})), cfg=COUNTING)
    assert taken.events["conversation_id"].n_unique() == 2
    assert kinds(taken) == {"model_call": 4, "request": 4}


@pytest.mark.parametrize("name", ["ticket_id", "room", "parent_conversation", "session_token", "user_id"])
def test_several_chats_under_a_name_that_may_mean_another_thing_are_refused(
    name: str, write: Write, take: Take
) -> None:
    assert take(write("rows.jsonl", two_chats(**{name: "a-{}"})), cfg=COUNTING).events.is_empty()


@pytest.mark.parametrize("name", ["send_at", "at", "sentAt", "message_time", "startedDateTime"])
def test_a_time_is_known_by_the_words_of_its_name(name: str, write: Write, take: Take) -> None:
    taken = take(write("rows.jsonl", two_chats(session_id="a-{}", **{name: AT})), cfg=COUNTING)
    assert taken.events["ts"].null_count() == 0


def test_a_thread_of_a_processor_and_a_title_name_no_chat(write: Write, take: Take) -> None:
    rows = two_chats(thread="MainThread", chat_title="Plans of today {}")[::2]
    assert take(write("rows.jsonl", rows), cfg=COUNTING).events["conversation_id"].n_unique() == 1


def test_what_a_browser_calls_itself_is_no_word_of_the_talk(write: Write, take: Take) -> None:
    browser = "Mozilla/5.0 (Macintosh) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36"
    taken = take(write("rows.jsonl", two_chats(session_id="a-{}", user_agent=browser)), cfg=COUNTING)
    assert kinds(taken) == {"model_call": 4, "request": 4}


@pytest.mark.parametrize("answer", ["response", "bot_response", "ai_response"])
def test_a_user_who_is_named_next_to_the_message_did_not_write_the_name(answer: str, write: Write, take: Take) -> None:
    rows = [{"timestamp": AT, "user": name, "message": ASKED, answer: ANSWERED} for name in ("alice", "bob")]
    taken = take(write("rows.jsonl", rows), cfg=COUNTING)
    assert {row["input"][0]["content"] for row in taken.payloads()} == {ASKED}
    assert taken.events["conversation_id"].n_unique() == 2
    assert taken.events["user"].n_unique() == 2


def test_each_of_several_lists_of_exchanges_is_a_talk(tmp_path: Path, take: Take) -> None:
    def pairs(name: str, count: int) -> list[dict[str, Any]]:
        return [{"timestamp": AT, "query": f"{name} asks {n}?", "response": f"Answer {n}."} for n in range(count)]

    path = tmp_path / "histories.json"
    path.write_text(json.dumps({"anonymous": [], "72": pairs("one", 3), "29": pairs("two", 5)}), encoding="utf-8")
    taken = take(path, cfg=COUNTING)
    assert sorted(taken.events["conversation_id"].value_counts()["count"]) == [3, 5]

    path.write_text(json.dumps({"train": pairs("one", 3), "test": pairs("two", 5)}), encoding="utf-8")
    assert take(path, cfg=COUNTING).events["conversation_id"].n_unique() == 8

    path.write_text(json.dumps({"session_id": "s-1", "history": pairs("one", 3)}), encoding="utf-8")
    assert take(path, cfg=COUNTING).events["conversation_id"].n_unique() == 1


@pytest.mark.parametrize(("name", "held"), [("outcome", "fail"), ("success", False), ("passed", False)])
def test_a_task_with_its_answer_and_how_it_ended_is_an_attempt(name: str, held: Any, write: Write, take: Take) -> None:
    rows = [{"task": f"Find module {n} for me.", "response": f"It is in part {n}.", name: held} for n in range(2)]
    taken = take(write("rows.jsonl", rows), cfg=COUNTING)
    assert kinds(taken) == {"model_call": 2, "outcome": 2}
    assert {row["value"] for row in taken.payloads() if "value" in row} == {0.0}


def test_success_next_to_a_prompt_is_that_of_the_request(write: Write, take: Take) -> None:
    rows = [{"timestamp": AT, "prompt": f"{ASKED} {n}", "response": ANSWERED, "success": True} for n in range(2)]
    assert kinds(take(write("rows.jsonl", rows), cfg=COUNTING)) == {"model_call": 2}


@pytest.mark.parametrize(
    "rows",
    [
        [{"run_id": "r1", "tool": "search", "success": True}, {"run_id": "r1", "tool": "send", "success": False}],
        [{"run_id": "r1", "step": n, "action": name, "success": True} for n, name in enumerate(("look", "go"))],
        [{"step": n, "task_id": "wheat", "action": [0, 1], "reward": 0, "done": False} for n in range(3)],
        [{"run_at": AT, "metrics": {"total": 1, "successful": 1, "failed": 0}}],
        [{"case": {"query": ASKED}, "result": {"response": ANSWERED}, "eval": {"passed": True}}],
    ],
)
def test_how_a_call_ended_and_how_many_did_are_no_outcome_of_a_run(rows: list[Any], write: Write, take: Take) -> None:
    assert take(write("rows.jsonl", rows), cfg=COUNTING).events.is_empty()


def test_a_session_in_which_nobody_spoke_stops_nothing(tmp_path: Path, take: Take) -> None:
    talk = [{"sender": "user", "message": ASKED}, {"sender": "bot", "message": ANSWERED}]
    path = tmp_path / "chats.json"
    path.write_text(json.dumps([{"userId": 1, "chats": talk}, {"userId": 2, "chats": []}]), encoding="utf-8")
    assert kinds(take(path, cfg=COUNTING)) == {"model_call": 1, "request": 1}


def test_a_question_without_an_answer_is_a_request(tmp_path: Path, take: Take) -> None:
    rows = [f"s-{n % 3},{ASKED},{ANSWERED if n % 4 else ''},{AT}" for n in range(12)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["session_id,user_input,ai_output,timestamp ", *rows, ""]), encoding="utf-8")
    taken = take(path, cfg=COUNTING)
    assert kinds(taken) == {"model_call": 9, "request": 3}
    assert taken.quarantined.is_empty()


def test_what_is_around_a_record_dates_it(write: Write, take: Take) -> None:
    said = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": ANSWERED}]
    rows = [
        {"timestamp": f"2026-10-05T09:5{n}:16Z", "level": "info", "event": "llm", "data": {"message": message}}
        for n, message in enumerate(said * 2)
    ]
    taken = take(write("rows.jsonl", rows), cfg=COUNTING)
    assert (taken.events.height, taken.events["ts"].n_unique()) == (4, 4)


def test_an_agent_that_speaks_twice_after_a_call_is_heard_twice(tmp_path: Path, take: Take) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "transfer", "arguments": '{"to": "desk"}'}}
    messages = [
        {"role": "user", "message": "Transfer me to the desk, please."},
        {"role": "tool_calls", "message": "", "toolCalls": [call]},
        {"role": "tool_call_result", "name": "transfer", "result": "busy", "toolCallId": "c1"},
        {"role": "bot", "message": "I could not transfer the call."},
        {"role": "bot", "message": "Are you still there?"},
        {"role": "user", "message": "Yes, I am."},
        {"role": "bot", "message": "Let me try it again."},
    ]
    path = tmp_path / "call.json"
    path.write_text(json.dumps({"id": "call-1", "messages": messages}), encoding="utf-8")
    taken = take(path, cfg=COUNTING)
    said = [row["message"].get("content") for row in taken.payloads() if "message" in row]
    assert said[1:] == ["I could not transfer the call.", "Are you still there?", "Let me try it again."]


def test_a_team_of_autogen_has_one_talk(tmp_path: Path, take: Take) -> None:
    thread = [
        {"source": "user", "models_usage": None, "content": ASKED, "type": "TextMessage"},
        {"source": "clerk", "models_usage": None, "content": ANSWERED, "type": "TextMessage"},
        {"source": "critic", "models_usage": None, "content": "Thirty for the large one.", "type": "TextMessage"},
    ]

    def context(own: str) -> dict[str, Any]:
        seen = [{"type": "AssistantMessage" if one["source"] == own else "UserMessage", **one} for one in thread]
        seen = [{**one, "type": "AssistantMessage" if one["source"] == own else "UserMessage"} for one in seen]
        return {"agent_state": {"llm_context": {"messages": seen}}}

    states = {"manager/1": {"message_thread": thread}, "clerk/1": context("clerk"), "critic/1": context("critic")}
    path = tmp_path / "team.json"
    path.write_text(json.dumps({"type": "TeamState", "agent_states": states}), encoding="utf-8")
    taken = take(path, cfg=COUNTING)
    assert taken.events["conversation_id"].n_unique() == 1
    assert kinds(taken) == {"model_call": 2, "request": 1}


_CHOICE = {"index": 0, "message": {"role": "assistant", "content": ANSWERED}, "finish_reason": "stop"}
_CANDIDATE = {"content": {"role": "model", "parts": [{"text": ANSWERED}]}, "finishReason": "STOP"}


@pytest.mark.parametrize(
    ("address", "asked", "gave"),
    [
        ("chat/completions", {"model": "m", "messages": [{"role": "user", "content": ASKED}]},
         {"id": "c", "object": "chat.completion", "model": "m", "choices": [_CHOICE]}),
        ("models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": ASKED}]}]},
         {"candidates": [_CANDIDATE], "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 2}}),
    ],
)  # fmt: skip
def test_a_har_file_has_the_calls_that_went_over_the_wire(
    tmp_path: Path, take: Take, address: str, asked: dict[str, Any], gave: dict[str, Any]
) -> None:
    entry = {
        "startedDateTime": AT,
        "request": {"method": "POST", "url": f"https://api.example/v1/{address}",
                    "postData": {"mimeType": "application/json", "text": json.dumps(asked)}},
        "response": {"status": 200, "content": {"mimeType": "application/json", "text": json.dumps(gave)}},
    }  # fmt: skip
    path = tmp_path / "calls.har"
    path.write_text(json.dumps({"log": {"version": "1.2", "entries": [entry]}}), encoding="utf-8")
    taken = take(path, cfg=COUNTING)
    (row,) = taken.payloads()
    assert (row["input"], row["message"]["content"]) == ([{"role": "user", "content": ASKED}], ANSWERED)
    assert taken.events["model"].to_list() == ["m"]


def test_a_session_of_mcp_has_its_calls_and_nothing_of_other_methods(write: Write, take: Take) -> None:
    def frames(tool: str) -> list[dict[str, Any]]:
        return [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2024-11-05"}},
            {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2024-11-05", "serverInfo": {"name": "s"}}},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": {"x": 2}}},
            {"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "done"}], "isError": False}},
        ]

    failed = {"jsonrpc": "2.0", "id": 2, "error": {"code": -32000, "message": "boom"}}
    rows = [*frames("look"), *frames("look")[:3], failed]  # of two clients, whose numbers begin anew
    for named, log in (("plain", rows), ("wrapped", [{"timestamp": AT, "message": row} for row in rows])):
        taken = take(write(f"{named}.jsonl", log), cfg=COUNTING)
        assert kinds(taken) == {"tool_call": 2, "tool_result": 2}
        assert sorted(row["status"] for row in taken.payloads() if "status" in row) == ["failed", "ok"]


def test_a_run_that_failed_before_it_acted_is_an_attempt_like_the_others(write: Write, take: Take) -> None:
    call = {"tool_name": "orders", "arguments": {"id": 7}, "result": "Lima", "error": None}
    ran = {"success": True, "final_output": "Lima", "tools_called": [call], "prompt_tokens": 9, "usd_cost": 0.5}
    failed: dict[str, Any] = {
        "success": False,
        "final_output": None,
        "tools_called": [],
        "other_error": "The task took too long.",
    }
    known = {"success": True, "final_output": "It is in Lima.", "tools_called": []}
    asked = {"id": "S1", "prompt": ASKED, "expect": "Lima"}
    runs = [{"run_id": "r", "task": asked, "execution_result": result} for result in (ran, failed, known)]
    taken = take(write("runs.jsonl", runs), cfg=COUNTING)
    assert taken.quarantined.is_empty()
    assert sorted(payload["value"] for payload in taken.payloads() if "value" in payload) == [0.0, 1.0, 1.0]
    assert kinds(taken) == {"model_call": 3, "outcome": 3, "request": 4, "tool_result": 1}
    counted = [payload["usage_so_far"] for payload in taken.payloads() if "usage_so_far" in payload]
    assert counted == [{"input_tokens": 9, "cost_usd": 0.5}]


def test_a_rating_finds_the_row_that_it_names(write: Write, take: Take) -> None:
    row = {"id": "9a855aae-e08d-4111", "question": ASKED, "answer": ANSWERED, "model": "m"}
    write("rows.jsonl", [row, row | {"id": "71bbe693-a2ac-48f6", "question": "And the large one?"}])
    write("feedback.jsonl", [{"id": 1, "conversation_id": "71bbe693-a2ac-48f6", "feedback": 1}])
    links = build_links(take(cfg=COUNTING).events.select(LINK_COLUMNS), Funnel())
    assert links["state"].to_list() == ["joined"]


def test_messages_with_times_of_their_own_keep_them(write: Write, take: Take) -> None:
    said = [{"role": "user", "content": ASKED, "timestamp": 1775582387}]
    said += [{"role": "assistant", "content": ANSWERED, "timestamp": 1775582390}]
    record = {"id": "2026-session-1", "model": "m", "started_at": 1775582336, "input_tokens": 9, "messages": said}
    events = take(write("chat.jsonl", [record]), cfg=COUNTING).events
    assert events.filter(pl.col("kind") == "model_call")["ts"].dt.epoch("s").to_list() == [1775582390]
    assert events["ids"].to_list()[0] == ["session:2026-session-1"]


@pytest.mark.parametrize("name", ["arguments", "args", "params"])
def test_an_actions_arguments_next_to_it_are_its_own(name: str, write: Write, take: Take) -> None:
    step = {"step": 1, "action": "get_customer", name: {"id": "C101"}}
    record = {"prompt": ASKED, "steps": [step | {"observation": {"name": "Ann"}}], "final_answer": ANSWERED}
    taken = take(write("runs.jsonl", [record]), cfg=COUNTING)
    plan = {"description": "Verifies the login of a customer.", "steps": [step]}
    assert take(write("plans.jsonl", [plan]), cfg=COUNTING).events.is_empty()
    calls = [call for payload in taken.payloads() for call in payload.get("message", {}).get("tool_calls", ())]
    assert [(call["name"], call["arguments"]) for call in calls] == [("get_customer", {"id": "C101"})]


def test_two_models_on_one_server_are_two_policies(write: Write, take: Take) -> None:
    turns = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": ANSWERED}]
    rows = [{"model": f"gpt-{n}", "model_version": "vllm-0.6", "messages": turns} for n in (1, 2)]
    assert set(take(write("chats.jsonl", rows), cfg=COUNTING).events["policy"]) == {"gpt-1/vllm-0.6", "gpt-2/vllm-0.6"}


def test_questions_at_their_times_are_a_talk_each(write: Write, take: Take) -> None:
    rows = [{"timestamp": f"{AT[:-3]}0{n}Z", "user_message": ASKED, "assistant_reply": ANSWERED} for n in range(3)]
    assert take(write("log.jsonl", rows), cfg=COUNTING).events["conversation_id"].n_unique() == 3


TOLD = """user: Where is order 7?

assistant: I look.

tool_call: orders({"id": 7})

tool_result: Lima

assistant: In Lima."""


def test_a_talk_in_one_text_is_read_with_its_calls(write: Write, take: Take) -> None:
    taken = take(write("chats.jsonl", [{"id": "t01", "difficulty": 2, "text": TOLD}]), cfg=COUNTING)
    assert kinds(taken) == {"model_call": 2, "request": 1, "tool_result": 1}, (
        "words and the call behind them are one act"
    )
    calls = [call for payload in taken.payloads() for call in payload.get("message", {}).get("tool_calls", ())]
    assert [(call["name"], call["arguments"]) for call in calls] == [("orders", {"id": 7})]
    one = {"id": "t01", "text": "User: Where is it?\nAssistant: In Lima."}  # an example, perhaps
    assert (
        take(write("texts.jsonl", [one]), cfg=COUNTING)
        .events.filter(pl.col("source_file").str.contains("texts"))
        .is_empty()
    )


@pytest.mark.parametrize(
    "names", [("question", "answer"), ("cliente", "agente"), ("用户", "助手"), ("Kunde", "Assistent")]
)
def test_speakers_under_words_of_other_languages_are_known(names: tuple[str, str], write: Write, take: Take) -> None:
    rows = [
        {"chat_id": "c", "sender": name, "message_text": said}
        for name, said in ((names[0], ASKED), (names[1], ANSWERED))
    ]
    assert kinds(take(write("rows.jsonl", rows), cfg=COUNTING)) == {"model_call": 1, "request": 1}


def test_the_text_of_a_task_is_what_was_asked_and_its_id_is_not(write: Write, take: Take) -> None:
    act = {"type": "tool_use", "id": "c1", "name": "orders", "input": {"id": 7}}
    turns = [{"role": "assistant", "content": [act]}, {"role": "tool", "tool_call_id": "c1", "content": "Lima"}]
    run = {"run_id": "r", "task": "task_10", "task_text": "Find out where order 7 is today.", "turns": turns}
    payloads = take(write("run.jsonl", [run]), cfg=COUNTING).payloads()
    assert payloads[0]["messages"] == [{"role": "user", "content": run["task_text"]}]


def test_a_server_of_tools_logs_what_it_was_asked_and_gave(write: Write, take: Take) -> None:
    row = {"timestamp": AT, "tool_name": "search", "request": {"q": "lamp"}, "response": [{"sku": 1}], "success": True}
    assert kinds(take(write("log.jsonl", [row, row | {"request": {"q": "desk"}}]), cfg=COUNTING)) == {
        "tool_call": 2, "tool_result": 2,
    }  # fmt: skip


def test_requests_whose_answers_were_not_kept_are_no_verdicts(write: Write, take: Take) -> None:
    row = {"session_id": "s", "prompt_id": "p", "model_id": "m", "query": ASKED, "prompt_tokens": 20, "success": True}
    row |= {"completion_tokens": 9}
    assert take(write("log.jsonl", [row, row | {"prompt_id": "q"}]), cfg=COUNTING).events.is_empty()


def test_what_was_spoken_before_is_what_an_answer_saw(write: Write, take: Take) -> None:
    before = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "How can I help?"}]
    row = {"sessionId": "s", "type": "user_message", "userMessage": ASKED, "aiResponse": {"message": ANSWERED}}
    rows = [row | {"conversationHistory": before, "model_info": {"llm_model": "m"}}]
    taken = take(write("rows.jsonl", rows), cfg=COUNTING)
    (payload,) = taken.payloads()
    assert payload["input"] == [*before, {"role": "user", "content": ASKED}]
    assert (payload["message"]["content"], taken.events["model"].item()) == (ANSWERED, "m")
