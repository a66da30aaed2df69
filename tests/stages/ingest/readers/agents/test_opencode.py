"""opencode's database: who speaks is in another row than the words; calls side by side, tokens, interruptions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.conversations.sessions import date_pieces
from flywheel.stages.ingest.readers.agents.opencode import READER

AT = 1_790_845_200_000  # milliseconds


def row(name: str, at: int, data: dict[str, Any], of: str | None = None) -> dict[str, Any]:
    return {"id": name, "session_id": "ses_1", "time_created": AT + at, "time_updated": AT + at, "data": data} | (
        {"message_id": of} if of else {}
    )


def tool(name: str, at: int, until: int, status: str = "completed") -> dict[str, Any]:
    state = {
        "status": status,
        "input": {"id": name},
        "output": f"found {name}",
        "time": {"start": at, "end": AT + until},
    }
    return row(f"prt_{name}", at, {"type": "tool", "tool": "find", "callID": name, "state": state}, "msg_b")


TOKENS = {"input": 10, "output": 4, "reasoning": 1, "cache": {"read": 5, "write": 0}}
MESSAGES = [
    row("msg_a", 0, {"role": "user", "time": {"created": AT}}),
    row("msg_b", 10, {"role": "assistant", "modelID": "m", "providerID": "p", "system": ["Be brief."]}),
]
PARTS = [
    row("prt_1", 0, {"type": "text", "text": "Where are orders 7 and 8?"}, "msg_a"),
    row("prt_2", 1, {"type": "text", "text": "Called the Read tool.", "synthetic": True}, "msg_a"),
    row("prt_3", 11, {"type": "step-start"}, "msg_b"),
    row("prt_4", 12, {"type": "reasoning", "text": "Two orders."}, "msg_b"),
    tool("7", 13, 30), tool("8", 14, 25, "error"),
    row("prt_7", 31, {"type": "step-finish", "tokens": TOKENS, "cost": 0.5}, "msg_b"),
    row("prt_8", 40, {"type": "text", "text": "Order 7 is in Lima."}, "msg_b"),
    row("prt_9", 41, {"type": "step-finish", "tokens": TOKENS, "cost": 0.5}, "msg_b"),
]  # fmt: skip


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    made = sqlite3.connect(tmp_path / "opencode.db")
    columns = "id TEXT, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT"
    made.execute(f"CREATE TABLE message ({columns})")
    made.execute(f"CREATE TABLE part ({columns}, message_id TEXT)")
    for table, rows in (("message", MESSAGES), ("part", PARTS)):
        for one in rows:
            values = [json.dumps(held) if isinstance(held, dict) else held for held in one.values()]
            marks = ", ".join("?" * len(values))
            made.execute(f"INSERT INTO {table} ({', '.join(one)}) VALUES ({marks})", values)
    made.commit()
    made.close()
    return tmp_path


def test_a_session_is_an_episode(database: Path, take: Callable[..., Any]) -> None:
    taken = take(database)
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert (episodes["request"].to_list(), episodes["stop_reason"].to_list()) == (
        ["Where are orders 7 and 8?"],
        ["answered"],
    )
    assert (episodes["input_tokens"].item(), episodes["output_tokens"].item(), episodes["cost_usd"].item()) == (
        30,
        10,
        1.0,
    )
    assert steps.sort("index")["tool_status"].to_list() == [["ok", "failed"], []]
    first, last = (json.loads(action) for action in steps.sort("index")["action"])
    assert (first["reasoning"], last["content"]) == ("Two orders.", "Order 7 is in Lima.")
    assert episodes["policy"].to_list() == ["m"]


def test_how_a_message_ended() -> None:
    aborted = MESSAGES[1]["data"] | {"error": {"name": "MessageAbortedError"}}
    begun, stopped = read(row("msg_b", 1, aborted))
    assert (begun["model"], stopped["payload"]["name"]) == ("m", "interrupt")
    (failed,) = read(row("msg_b", 1, MESSAGES[1]["data"] | {"error": {"name": "APIError"}}))
    assert failed["payload"]["tags"] == ["api_error"]
    (short,) = read(row("msg_b", 1, MESSAGES[1]["data"] | {"summary": True}))
    assert short["payload"]["replaces_context"] is True


def test_rows_of_other_tables_are_not_taken() -> None:
    assert READER.sniff(Sample("x.jsonl", [*MESSAGES, *PARTS])) == 1
    session = {"id": "ses_1", "project_id": "p", "time_created": AT, "title": "Orders"}
    other = {"id": 1, "session_id": "s", "time_created": AT, "data": {"x": 1}}
    assert READER.sniff(Sample("x.jsonl", [session, other])) == 0
    for record in (session, other):
        with pytest.raises(BadRecordError):
            read(record)


def test_pieces_without_their_message_are_the_agents(take: Callable[..., Any], write: Callable[..., Path]) -> None:
    write("parts.jsonl", PARTS[7:8])
    assert take().events.filter(pl.col("kind") == "model_call").height == 1


def test_before_the_database_each_row_was_a_file(tmp_path: Path, take: Callable[..., Any]) -> None:
    ran = {"status": "completed", "input": {"command": "ls"}, "output": "a.txt", "time": {"start": AT + 1500}}
    session = {"id": "ses_1", "projectID": "p", "directory": "/x", "version": "1", "time": {"created": AT}}
    files = {
        "message/ses_1/msg_1": {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": AT}},
        "message/ses_1/msg_2": {"id": "msg_2", "sessionID": "ses_1", "role": "assistant", "modelID": "m",
                                "time": {"created": AT + 1000, "completed": AT + 4000}},
        "part/msg_1/prt_1": {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1", "type": "text", "text": "List"},
        "part/msg_2/prt_2": {"id": "prt_2", "sessionID": "ses_1", "messageID": "msg_2", "type": "tool", "tool": "bash",
                             "callID": "c1", "state": ran},
        "part/msg_2/prt_3": {"id": "prt_3", "sessionID": "ses_1", "messageID": "msg_2", "type": "text", "text": "One.",
                             "time": {"start": AT + 3000}},
        "session/p/ses_1": session,
    }  # fmt: skip
    for name, fields in files.items():
        path = tmp_path / "storage" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(fields))
    taken = take(tmp_path)
    assert taken.quarantined.is_empty()
    taken.events = date_pieces(taken.events)
    assert taken.events["ts"].null_count() == 0
    episodes, steps = taken.built()
    assert episodes.select("request", "n_steps", "n_tool_calls").row(0) == ("List", 2, 1)
    assert json.loads(steps["action"][1])["content"] == "One."
