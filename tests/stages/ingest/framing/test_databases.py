"""SQLite databases: their tables are logs, hostile and damaged ones stop nothing, and nothing is written there."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.stages.ingest.framing.joined_tables import unflattened
from tests.stages.ingest.conftest import COUNTING

Take = Callable[..., Any]
SAID = [
    ("user", "Where is order 7?"),
    ("assistant", "In Lima."),
    ("user", "Thanks."),
    ("assistant", "You are welcome."),
]


def database(path: Path, *statements: str) -> sqlite3.Connection:
    made = sqlite3.connect(path)
    made.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, meta TEXT)")
    made.executemany(
        "INSERT INTO messages (session_id, role, content, meta) VALUES ('s', ?, ?, ?)",
        [(role, said, json.dumps({"model": "m"})) for role, said in SAID],
    )
    for statement in statements:
        made.execute(statement)
    made.commit()
    return made


def kinds(taken: Any) -> dict[str, int]:
    return dict(sorted((str(kind), count) for kind, count in taken.events["kind"].value_counts().iter_rows()))


def test_a_table_of_messages_is_a_log(tmp_path: Path, take: Take) -> None:
    database(
        tmp_path / "chat.db", "CREATE TABLE empty (id INTEGER)", "CREATE TABLE llm_cache (q TEXT)",
        "INSERT INTO llm_cache VALUES ('x')", "CREATE VIEW all_messages AS SELECT * FROM messages",
        "CREATE VIRTUAL TABLE found USING fts5(content)", "INSERT INTO found VALUES ('Lima')",
    ).close()  # fmt: skip
    taken = take(cfg=COUNTING)
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (4, 0, True)
    assert kinds(taken) == {"model_call": 2, "request": 2}
    assert set(taken.events["source_file"]) == {"chat.db!/messages.jsonl"}
    assert [path.name for path in tmp_path.iterdir()] == ["chat.db"]


def test_rows_that_only_the_log_of_changes_has_are_read(tmp_path: Path, take: Take) -> None:
    writing = database(tmp_path / "chat.db")
    writing.execute("PRAGMA journal_mode = WAL")
    writing.execute("INSERT INTO messages (session_id, role, content) VALUES ('t', 'user', 'Hello?')")
    writing.commit()
    taken = take(tmp_path / "chat.db", cfg=COUNTING)
    assert (taken.read, set(taken.events["conversation_id"])) == (5, {"s", "t"})
    writing.close()


def test_bytes_that_are_no_text_are_counted(tmp_path: Path, take: Take) -> None:
    made = database(tmp_path / "chat.db")
    made.execute("UPDATE messages SET content = ? WHERE id = 2", (b"\xff\xfe\x00",))
    made.execute("UPDATE messages SET content = ? WHERE id = 4", (b"It is text.",))
    made.commit()
    made.close()
    said = [payload["message"]["content"] for payload in take(cfg=COUNTING).payloads() if "message" in payload]
    assert sorted(said) == ["<3 bytes>", "It is text."]


@pytest.mark.parametrize("cut", [17, 100, 5_000])
def test_a_damaged_database_stops_nothing(cut: int, tmp_path: Path, take: Take, write: Callable[..., Path]) -> None:
    made = database(tmp_path / "chat.db", *(f"CREATE TABLE t{n} AS SELECT * FROM messages" for n in range(5)))
    made.close()
    path = tmp_path / "chat.db"
    path.write_bytes(path.read_bytes()[:cut])
    write("fine.jsonl", [{"role": role, "content": said} for role, said in SAID])
    taken = take(cfg=COUNTING)
    assert taken.adds_up()
    assert "cannot be read" in str(taken.quarantined["detail"].to_list())
    assert "fine.jsonl" in set(taken.events["source_file"])


def test_a_column_that_makes_gigabytes_is_refused(tmp_path: Path, take: Take) -> None:
    made = database(tmp_path / "chat.db")
    made.execute("CREATE TABLE bomb (id INTEGER, role TEXT, content TEXT AS (hex(zeroblob(id * 100000000))))")
    made.execute("INSERT INTO bomb (id, role) VALUES (1, 'user')")
    made.commit()
    made.close()
    taken = take(cfg=COUNTING)
    assert taken.adds_up()
    assert not taken.quarantined.is_empty()
    assert kinds(taken) == {"model_call": 2, "request": 2}


SPAN = {
    "openinference": {"span": {"kind": "LLM"}},
    "llm": {
        "model_name": "qwen3-8b",
        "input_messages": [{"message": {"role": "user", "content": "Where is order 7?"}}],
        "output_messages": [{"message": {"role": "assistant", "content": "In Lima."}}],
    },
    "session": {"id": "conv-42"},
}


def test_phoenixs_own_database_has_its_spans_and_what_people_thought_of_them(tmp_path: Path, take: Take) -> None:
    """It has an index of a value within JSON, which SQLite refuses to open where a schema is not trusted."""
    made = sqlite3.connect(tmp_path / "phoenix.db")
    made.executescript("""
        CREATE TABLE traces (id INTEGER PRIMARY KEY, project_rowid INTEGER, trace_id TEXT);
        CREATE TABLE spans (id INTEGER PRIMARY KEY, trace_rowid INTEGER, span_id TEXT, parent_id TEXT, name TEXT,
            span_kind TEXT, start_time TIMESTAMP, end_time TIMESTAMP, attributes TEXT, events TEXT, status_code TEXT,
            status_message TEXT);
        CREATE INDEX ix_spans_session_id ON spans (JSON_EXTRACT(attributes, '$.session.id'));
        CREATE TABLE span_annotations (id INTEGER PRIMARY KEY, span_rowid INTEGER, name TEXT, label TEXT, score FLOAT,
            explanation TEXT, metadata TEXT, annotator_kind TEXT, created_at TIMESTAMP, updated_at TIMESTAMP);
        INSERT INTO traces VALUES (1, 1, '7dbaeba682933bd2484f9fd16655bde5');
        INSERT INTO span_annotations VALUES (1, 1, 'user_feedback', 'thumbs-down', 0, 'no date', '{}', 'HUMAN',
            '2026-10-01 09:05:00', '2026-10-01 09:06:00');
    """)
    row = (1, 1, "1" * 16, None, "llm", "LLM", "2026-10-01 09:00:01", "2026-10-01 09:00:02", json.dumps(SPAN), "[]")
    made.execute("INSERT INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'OK', '')", row)
    made.commit()
    made.close()
    taken = take(cfg=COUNTING)
    assert (taken.quarantined.height, kinds(taken)) == (0, {"feedback": 1, "model_call": 1})
    (call,) = [row for row in taken.events.to_dicts() if row["kind"] == "model_call"]
    assert (call["conversation_id"], call["source_file"]) == ("conv-42", "phoenix.db!/spans.jsonl")
    assert "trace:7dbaeba682933bd2484f9fd16655bde5" in call["ids"]


def test_an_index_of_a_function_that_does_more_than_compute_is_refused(tmp_path: Path, take: Take) -> None:
    made = database(tmp_path / "chat.db")
    made.execute("PRAGMA writable_schema = ON")
    index = "CREATE INDEX i ON messages (load_extension(role))"
    made.execute("INSERT INTO sqlite_schema VALUES ('index', 'i', 'messages', 4, ?)", (index,))
    made.commit()
    made.close()
    taken = take(cfg=COUNTING)
    assert taken.events.height == 0
    assert taken.quarantined["reason"].to_list() == ["truncated"]


def flat(value: Any) -> list[Any]:
    """Return a value as `flatted` writes it: each text, list and object at a place of its own, named by its number."""
    places: list[Any] = [None]

    def put(held: Any, place: int) -> None:
        if isinstance(held, dict):
            places[place] = {name: name_of(inner) for name, inner in held.items()}
        elif isinstance(held, list):
            places[place] = [name_of(inner) for inner in held]
        else:
            places[place] = held

    def name_of(held: Any) -> Any:
        if not isinstance(held, str | dict | list):
            return held
        places.append(None)
        place = len(places) - 1
        put(held, place)
        return str(place)

    put(value, 0)
    return places


def test_n8ns_own_database_has_its_executions(tmp_path: Path, take: Take) -> None:
    run = {"Chat": [{"startTime": 1, "data": {"main": [[{"json": {"chatInput": "Hi there", "sessionId": "s-1"}}]]}}],
           "Model": [{"startTime": 2, "data": {"ai_languageModel": [[{"json": {"response": {"generations": [[
               {"text": "Hello."}]]}}}]]}}]}  # fmt: skip
    made = sqlite3.connect(tmp_path / "database.sqlite")
    made.executescript("""
        CREATE TABLE execution_entity (id INTEGER PRIMARY KEY, workflowId TEXT, status TEXT, startedAt TEXT);
        CREATE TABLE execution_data (executionId INTEGER, workflowData TEXT, data TEXT);
        INSERT INTO execution_entity VALUES (1, 'w', 'success', '2025-10-20 13:20:50.489');
    """)
    made.execute(
        "INSERT INTO execution_data VALUES (1, '{}', ?)", (json.dumps(flat({"resultData": {"runData": run}})),)
    )
    made.commit()
    made.close()
    taken = take(cfg=COUNTING)
    assert (taken.quarantined.height, set(taken.events["conversation_id"])) == (0, {"s-1"})
    assert kinds(taken) == {"model_call": 1, "request": 1}


def test_a_flat_list_that_is_none_or_would_grow_without_end_stays_as_it_is() -> None:
    value = {"a": ["x", {"b": "y"}], "n": 7}
    assert unflattened(flat(value)) == value
    bomb: list[Any] = [{"a": "1", "b": "1"}, *([str(n + 1)] * 10 for n in range(1, 20)), "x"]
    for other in ([{"a": "0"}], [{"a": "9"}], [{"a": "-1"}], [{"a": "word"}], ["text"], bomb, "text", []):
        assert unflattened(other) == other


def test_what_a_database_tells_of_its_rows_once_more_is_no_second_talk(tmp_path: Path, take: Take) -> None:
    """Of messages and parts, next to these: events of opencode."""
    session, told = "ses_1", {"role": "user", "time": {"created": 1790000000000}}
    rows = [("msg_1", told, {"type": "text", "text": "Where is order 7?"}),
            ("msg_2", {"role": "assistant", "modelID": "m"}, {"type": "text", "text": "In Lima."})]  # fmt: skip
    made = sqlite3.connect(tmp_path / "opencode.db")
    made.execute("CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT)")
    made.execute("CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, time_created INTEGER, data TEXT)")
    made.execute("CREATE TABLE event (id TEXT, aggregate_id TEXT, seq INTEGER, type TEXT, data TEXT)")
    for n, (name, about, part) in enumerate(rows):
        made.execute("INSERT INTO message VALUES (?, ?, ?, ?)", (name, session, 1790000000000 + n, json.dumps(about)))
        row = (f"prt_{n}", name, session, 1790000000000 + n, json.dumps(part))
        made.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?)", row)
        once_more = {"sessionID": session, "part": {**part, "id": f"prt_{n}", "sessionID": session, "messageID": name}}
        event = (f"evt_{n}", session, n, "message.part.updated.1", json.dumps(once_more))
        made.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?)", event)
    made.commit()
    made.close()
    taken = take(cfg=COUNTING)
    assert set(taken.events["source_file"]) == {"opencode.db!/message.jsonl", "opencode.db!/part.jsonl"}
    assert taken.adds_up()
