"""Codex rollouts: the file is the session, the screen repeats the items, exit codes stand in three places."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from flywheel.extensions import BadRecordError, Sample
from flywheel.stages.ingest.readers.agents.codex import READER

SESSION = "0b4e7d1e-0000-4000-8000-00000000000d"


def line(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-10-01T09:00:00.000Z", "type": kind, "payload": payload}


def item(kind: str, **payload: Any) -> dict[str, Any]:
    return line("response_item", type=kind, **payload)


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 6))


def made(record: Any) -> dict[str, Any]:
    (event,) = read(record)
    assert (event["kind"], event["payload"]["fragment"], event["seq"]) == ("model_call", "block", 6)
    message: dict[str, Any] = event["payload"]["message"]
    return message


def test_what_the_model_made_an_item_a_piece() -> None:
    said = item("message", role="assistant", content=[{"type": "output_text", "text": "Monday."}])
    assert made(said) == {"role": "assistant", "content": "Monday."}
    thought = item("reasoning", summary=[{"type": "summary_text", "text": "Hm."}], encrypted_content="x")
    assert made(thought) == {"role": "assistant", "reasoning": "Hm."}
    assert read(item("reasoning", summary=[], encrypted_content="x")) == []
    assert read(item("ghost_snapshot", ghost_commit={})) == []


@pytest.mark.parametrize(
    ("record", "call"),
    [
        (
            item("function_call", call_id="c1", name="exec_command", arguments='{"cmd":"ls"}'),
            {"id": "c1", "name": "exec_command", "arguments": {"cmd": "ls"}},
        ),
        (
            item("function_call", call_id="c1", name="exec_command", arguments='{"cmd":'),
            {"id": "c1", "name": "exec_command", "arguments": None, "arguments_raw": '{"cmd":'},
        ),
        (
            item("custom_tool_call", call_id="c1", name="apply_patch", input="*** Begin Patch"),
            {"id": "c1", "name": "apply_patch", "arguments": {"input": "*** Begin Patch"}},
        ),
        (
            item("local_shell_call", call_id="c1", status="completed", action={"type": "exec", "command": ["ls"]}),
            {"id": "c1", "name": "local_shell", "arguments": {"command": ["ls"]}},
        ),
    ],
)
def test_calls_of_every_kind(record: dict[str, Any], call: dict[str, Any]) -> None:
    assert made(record)["tool_calls"] == [call]


def test_a_search_on_the_servers_side_has_no_logged_result_but_an_end() -> None:
    call, result = read(item("web_search_call", status="completed", action={"type": "search", "query": "tungsten"}))
    assert call["payload"]["message"]["tool_calls"][0]["arguments"] == {"type": "search", "query": "tungsten"}
    assert (result["tool_call_id"], result["payload"]["status"]) == ("call-6", "ok")


@pytest.mark.parametrize(
    ("output", "content", "status"),
    [
        (json.dumps({"output": "none", "metadata": {"exit_code": 1, "duration_seconds": 0.1}}), "none", "failed"),
        (json.dumps({"output": "a", "metadata": {"exit_code": 0}}), "a", "ok"),
        ({"content": "denied", "success": False}, "denied", "failed"),
        ([{"type": "output_text", "text": "Done!"}], "Done!", "unknown"),
        ("Exit code: 2\nWall time: 0 s\nOutput:\nx", "Exit code: 2\nWall time: 0 s\nOutput:\nx", "failed"),
        ("Process exited with code 0\nOutput:\nx", "Process exited with code 0\nOutput:\nx", "ok"),
        ("plain", "plain", "unknown"),
    ],
)
def test_an_exit_code_stands_in_one_of_three_places(output: Any, content: str, status: str) -> None:
    (event,) = read(item("function_call_output", call_id="c1", output=output))
    assert (event["tool_call_id"], event["payload"]["content"], event["payload"]["status"]) == ("c1", content, status)


def test_what_the_program_says_is_not_the_users() -> None:
    asked = item("message", role="user", content=[{"type": "input_text", "text": "where is order 7?"}])
    assert read(asked)[0]["payload"]["messages"] == [{"role": "user", "content": "where is order 7?"}]
    asked = item("message", role="user", content=[{"type": "input_text", "text": "<b>where</b> is order 7?"}])
    assert read(asked)[0]["payload"]["messages"][0]["role"] == "user"
    program = (
        "<environment_context>\n</environment_context>", "# AGENTS.md instructions",
        '<codex_internal_context source="goal">Go on.</codex_internal_context>',
        "<subagent_notification>\nDone.\n</subagent_notification>", "<app-context>\n# Desktop",
    )  # fmt: skip
    for words in program:
        given = item("message", role="user", content=[{"type": "input_text", "text": words}])
        assert read(given)[0]["payload"]["messages"][0]["role"] == "system"


def test_the_screen_counts_only_where_it_says_something_new() -> None:
    assert read(line("event_msg", type="user_message", message="where is order 7?")) == []
    assert read(line("event_msg", type="agent_message", message="Monday.")) == []
    (stopped,) = read(line("event_msg", type="turn_aborted", reason="interrupted"))
    assert (stopped["kind"], stopped["payload"]["name"]) == ("feedback", "interrupt")
    usage = {"input_tokens": 10, "cached_input_tokens": 2, "output_tokens": 4, "total_tokens": 14}
    (counted,) = read(line("event_msg", type="token_count", info={"total_token_usage": usage}))
    assert counted["payload"] == {"messages": [], "usage_so_far": {"input_tokens": 10, "output_tokens": 4}}
    assert read(line("event_msg", type="token_count", info=None)) == []


def test_the_first_line_names_the_session_and_a_turn_its_model() -> None:
    first = line("session_meta", id=SESSION, cwd="/app", base_instructions={"text": "Be brief."})
    (begun,) = READER.read(first, 1)
    assert begun["ids"] == [f"session:{SESSION}"]
    assert begun["payload"]["messages"] == [{"role": "system", "content": "Be brief."}]
    (turn,) = read(line("turn_context", model="gpt-x", cwd="/app"))
    assert (turn["model"], turn["policy"], turn["payload"]["messages"]) == ("gpt-x", "codex/gpt-x", [])


def test_a_compacted_history_replaces_what_was() -> None:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Begin."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Begun."}]},
    ]
    (event,) = read(line("compacted", message="Summary.", replacement_history=items))
    assert [m["role"] for m in event["payload"]["messages"]] == ["user", "assistant"]
    assert (event["payload"]["tags"], event["payload"]["replaces_context"]) == (["compacted"], True)
    assert read(line("compacted", message="Summary."))[0]["payload"]["messages"][0]["content"] == "Summary."


def test_the_file_is_the_session() -> None:
    path = PurePosixPath(f"sessions/2026/10/01/rollout-2026-10-01T09-00-00-{SESSION}.jsonl")
    assert READER.from_path(path) == {"scope": SESSION, "id": f"session:{SESSION}"}
    assert READER.from_path(PurePosixPath("run.jsonl")) == {"scope": "run"}


def test_detection_and_refusal(take: Callable[..., Any], write: Callable[..., Path]) -> None:
    assert READER.sniff(Sample("x.jsonl", [{"type": "event_msg"}, []])) == 0
    with pytest.raises(BadRecordError):
        read([])
    records = [
        line("session_meta", id=SESSION, cwd="/app"),
        item("message", role="user", content=[{"type": "input_text", "text": "where is order 7?"}]),
        line("event_msg", type="user_message", message="where is order 7?"),
        item("function_call", call_id="c1", name="exec_command", arguments='{"cmd":"orders 7"}'),
        item("function_call_output", call_id="c1", output="Exit code: 1\nOutput:\nnone"),
        line("future_record", safe="ignored"),
    ]
    write(f"rollout-{SESSION}.jsonl", records)
    taken = take()
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (6, 0, True)
    assert set(taken.events["conversation_id"]) == {f"{SESSION}/codex"}
    assert sorted(taken.events["kind"]) == ["model_call", "request", "request", "tool_result"]


def rollout(*records: dict[str, Any]) -> list[dict[str, Any]]:
    """Give each line a second of its own."""
    return [{**r, "timestamp": f"2026-10-01T09:00:{n:02}.000Z"} for n, r in enumerate(records)]


def heard(words: str) -> dict[str, Any]:
    return item("message", role="user", content=[{"type": "input_text", "text": words}])


def said(words: str) -> dict[str, Any]:
    return item("message", role="assistant", content=[{"type": "output_text", "text": words}])


def thought(words: str) -> dict[str, Any]:
    return item("reasoning", summary=[{"type": "summary_text", "text": words}], encrypted_content="x")


def counted(given: int, made: int) -> dict[str, Any]:
    usage = {"input_tokens": given, "cached_input_tokens": 2, "output_tokens": made, "total_tokens": given + made}
    return line("event_msg", type="token_count", info={"total_token_usage": usage, "last_token_usage": usage})


def test_a_session_from_its_file_to_its_steps(take: Callable[..., Any], write: Callable[..., Path]) -> None:
    call = item("function_call", call_id="c1", name="exec_command", arguments='{"cmd":"orders 7"}')
    history = [heard("where is order 7?")["payload"], said("There is none.")["payload"]]
    records = rollout(
        line("session_meta", id=SESSION, cwd="/app", base_instructions={"text": "Be brief."}),
        heard("<environment_context>/app</environment_context>"),
        line("turn_context", model="gpt-x", cwd="/app"),
        heard("where is order 7?"), line("event_msg", type="user_message", message="where is order 7?"),
        thought("I look it up."), said("Looking."), call, counted(10, 4),
        item("function_call_output", call_id="c1", output="Exit code: 1\nOutput:\nnone"),
        thought("Nothing."), said("There is none."), counted(30, 9),
        line("compacted", message="", replacement_history=history),
        heard("and order 8?"), said("Neither."), counted(55, 12),
    )  # fmt: skip
    write(f"rollout-2026-10-01T09-00-00-{SESSION}.jsonl", records)
    taken = take()
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    episodes, steps = taken.built()
    shown = ("policy", "model", "input_tokens", "output_tokens", "n_tool_errors", "stop_reason")
    assert episodes.select(shown).rows() == [("codex/gpt-x", "gpt-x", 55, 12, 1, "answered")]
    first, second, third = (json.loads(action) for action in steps["action"])
    assert (first["reasoning"], first["content"], first["tool_calls"]) == (
        "I look it up.", "Looking.", [{"id": "c1", "name": "exec_command", "arguments": {"cmd": "orders 7"}}]
    )  # fmt: skip
    assert (second["reasoning"], second["content"], third["content"]) == ("Nothing.", "There is none.", "Neither.")
    assert (steps["tool_status"].to_list(), steps["resets_context"].to_list()) == (
        [["failed"], [], []], [False, False, True]
    )  # fmt: skip
    seen = [[m["role"] for m in json.loads(text)] for text in steps["observation"]]
    assert seen == [["system", "system", "user"], ["tool"], ["user", "assistant", "user"]]
