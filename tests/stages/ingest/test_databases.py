"""SQLite databases: their tables are logs, hostile and damaged ones stop nothing, and nothing is written there."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
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
