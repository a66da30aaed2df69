"""LangGraph's checkpoints in SQLite: a thread is one conversation, whose messages and tokens count once.

The tables and the packed messages are as `langgraph-checkpoint-sqlite` 3.1 writes them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from flywheel.stages.ingest.framing.packed import FAULTS, unpacked
from tests.stages.ingest.conftest import COUNTING

Take = Callable[..., Any]
PYDANTIC = 5  # LangGraph's number for a packed object of Pydantic's
USER, ASKS, FOUND, SAYS = "u1", "a1", "t1", "a2"
USED = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
MESSAGES: dict[str, dict[str, Any]] = {
    USER: {"type": "human", "content": "Where is order 7?"},
    ASKS: {
        "type": "ai", "content": "", "tool_calls": [{"name": "find", "args": {"order": 7}, "id": "c1"}],
        "usage_metadata": USED, "response_metadata": {"model_name": "qwen3-4b"},
    },
    FOUND: {"type": "tool", "content": "no such order", "tool_call_id": "c1", "status": "error"},
    SAYS: {"type": "ai", "content": "In Lima.", "usage_metadata": USED},
    "u2": {"type": "human", "content": "And 8?"},
    "a3": {"type": "ai", "content": "In Quito.", "usage_metadata": USED},
    "a4": {"type": "ai", "content": "In Oslo.", "usage_metadata": USED},
    "s1": {"type": "ai", "content": "Found by the helper.", "usage_metadata": USED},
}  # fmt: skip


def packed(name: str) -> msgpack.ExtType:
    made = {**MESSAGES[name], "id": name}
    data = msgpack.packb(["langchain_core.messages", "Message", made, "model_validate_json"])
    return msgpack.ExtType(PYDANTIC, data)


def store(path: Path, *checkpoints: tuple[str, str | None, str, tuple[str, ...]], inputs: tuple[str, ...] = ()) -> None:
    """Write checkpoints (name, the one before, namespace, ids of its messages), a second after each other."""
    made = sqlite3.connect(path)
    made.execute(
        "CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, parent_checkpoint_id TEXT,"
        " type TEXT, checkpoint BLOB, metadata BLOB)"
    )
    made.execute(
        "CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, channel TEXT, type TEXT,"
        " value BLOB)"
    )
    made.execute("INSERT INTO writes VALUES ('t', '', '1', 'messages', 'msgpack', ?)", [msgpack.packb([packed(USER)])])
    for second, (name, before, namespace, ids) in enumerate(checkpoints):
        state = {
            "v": 4, "id": name, "ts": f"2026-11-29T10:00:{second:02}+00:00",
            "channel_values": {
                "inputs": [packed(one) for one in inputs], "messages": [packed(one) for one in ids],
                "branch:to:agent": None,
            },
        }  # fmt: skip
        row = ("t", namespace, name, before, "msgpack", msgpack.packb(state), json.dumps({"step": second}).encode())
        made.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    made.commit()
    made.close()


LINE = (
    ("1", None, "", (USER,)),
    ("2", "1", "", (USER, ASKS)),
    ("3", "2", "", (USER, ASKS, FOUND)),
    ("4", "3", "", (USER, ASKS, FOUND, SAYS)),
)


def told(taken: Any) -> list[tuple[str, str, int]]:
    """Return conversation, kind and second of each event."""
    columns = taken.events.sort("conversation_id", "seq").select("conversation_id", "kind", "ts")
    return [(conversation, kind, ts.second) for conversation, kind, ts in columns.iter_rows()]


def test_a_thread_is_read_once_with_the_time_of_each_message(tmp_path: Path, take: Take) -> None:
    store(tmp_path / "graph.db", *LINE)
    taken = take(cfg=COUNTING)
    assert told(taken) == [
        ("t", "request", 0), ("t", "model_call", 1), ("t", "tool_result", 2), ("t", "model_call", 3),
    ]  # fmt: skip
    calls = [json.loads(call) for call in taken.events.filter(taken.events["kind"] == "model_call")["payload"]]
    assert [call["input_tokens"] for call in calls] == [10, 10]
    results = taken.events.filter(taken.events["kind"] == "tool_result")["payload"]
    assert json.loads(results[0])["status"] == "failed"
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (1, 0, True)


def test_messages_that_were_removed_from_the_state_stay(tmp_path: Path, take: Take) -> None:
    store(tmp_path / "graph.db", *LINE, ("5", "4", "", (SAYS, "u2")), ("6", "5", "", (SAYS, "u2", "a3")))
    assert [kind for _, kind, _ in told(take(cfg=COUNTING))] == [
        "request", "model_call", "tool_result", "model_call", "request", "model_call",
    ]  # fmt: skip


def test_each_way_from_a_checkpoint_is_a_thread_whose_beginning_costs_nothing_more(tmp_path: Path, take: Take) -> None:
    whole = (USER, ASKS, FOUND, SAYS, "u2")
    store(tmp_path / "graph.db", *LINE, ("5", "4", "", (*whole, "a3")), ("6", "4", "", (*whole, "a4")))
    taken = take(cfg=COUNTING)
    by_thread = {name: [kind for other, kind, _ in told(taken) if other == name] for name, _, _ in told(taken)}
    assert {name: len(kinds) for name, kinds in by_thread.items()} == {"t": 6, "t/6": 6}
    calls = taken.events.filter(taken.events["kind"] == "model_call").sort("conversation_id", "seq")["payload"]
    assert [bool(json.loads(call).get("copied")) for call in calls] == [False, False, False, True, True, False]


@pytest.mark.parametrize(("inner", "names"), [((USER, ASKS), {"t"}), ((USER, "s1"), {"t", "t/helper"})])
def test_a_graph_within_the_graph_is_a_thread_unless_its_messages_are_the_threads(
    tmp_path: Path, take: Take, inner: tuple[str, ...], names: set[str]
) -> None:
    store(tmp_path / "graph.db", *LINE, ("7", None, "helper", inner))
    assert {name for name, _, _ in told(take(cfg=COUNTING))} == names


def test_checkpoints_as_lines_are_counted_once_too(tmp_path: Path, take: Take) -> None:
    rows = [
        {
            "thread_id": "t", "checkpoint_id": name,
            "checkpoint": {
                "ts": f"2026-11-29T10:00:{name}0+00:00",
                "channel_values": {"messages": [{**MESSAGES[one], "id": one} for one in ids]},
            },
        }
        for name, _, _, ids in LINE
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    taken = take(cfg=COUNTING)
    assert (taken.read, taken.quarantined.height, taken.events["event_id"].n_unique()) == (4, 0, 4)


def test_a_thread_whose_older_checkpoints_were_deleted_is_one(tmp_path: Path, take: Take) -> None:
    store(tmp_path / "graph.db", LINE[1], LINE[3])
    assert [kind for _, kind, _ in told(take(cfg=COUNTING))] == ["request", "model_call", "tool_result", "model_call"]


def test_a_message_may_be_in_two_channels(tmp_path: Path, take: Take) -> None:
    store(tmp_path / "graph.db", *LINE, inputs=(USER,))
    taken = take(cfg=COUNTING)
    assert [kind for _, kind, _ in told(taken)] == ["request", "model_call", "tool_result", "model_call"]


def test_what_is_nested_too_deep_for_json_is_left_out(tmp_path: Path, take: Take) -> None:
    store(tmp_path / "graph.db", *LINE)
    deep: list[Any] = []
    for _ in range(240):
        deep = [deep]
    made = sqlite3.connect(tmp_path / "graph.db")
    made.execute("UPDATE checkpoints SET metadata = ?", [msgpack.packb(deep)])
    made.commit()
    made.close()
    assert take(cfg=COUNTING).events.height == 4


def nested(depth: int) -> bytes:
    data = msgpack.packb("x")
    for _ in range(depth):
        data = msgpack.packb(msgpack.ExtType(PYDANTIC, data))
    return bytes(data)


@pytest.mark.parametrize("data", [nested(60), b"\x91" * 5_000, b"\xd9\xff", b"\x81\xa1", b"\x81\x80\x01"])
def test_what_is_damaged_or_too_deep_is_refused(data: bytes) -> None:
    with pytest.raises(FAULTS):
        unpacked(data)


def test_no_class_is_looked_up() -> None:
    called = msgpack.packb(["os", "system", "touch /tmp/never", "__call__"])
    assert unpacked(msgpack.packb({"a": msgpack.ExtType(PYDANTIC, called), "b": b"\xff\x00"})) == {
        "a": "touch /tmp/never", "b": "<2 bytes>",
    }  # fmt: skip


def test_states_of_langgraphs_first_databases_are_a_thread_too(tmp_path: Path, take: Take) -> None:
    """Until 2024 a checkpoint was known by its time; the first one is of an input that no agent has answered."""
    made = sqlite3.connect(tmp_path / "graph.db")
    made.execute("CREATE TABLE checkpoints (thread_id TEXT, thread_ts TEXT, parent_ts TEXT, checkpoint BLOB)")
    before = None
    for second, ids in enumerate(((), (USER,), (USER, ASKS), (USER, ASKS, FOUND, SAYS))):
        at = f"2024-06-04T10:00:{second:02}+00:00"
        held = [{"lc": 1, "type": "constructor", "id": ["langchain", MESSAGES[one]["type"]],
                 "kwargs": {**MESSAGES[one], "id": one}} for one in ids]  # fmt: skip
        channels = {"messages": held} if ids else {"__start__": {"messages": ["user", "Where is order 7?"]}}
        state = json.dumps({"v": 1, "ts": at, "channel_values": channels}).encode()
        made.execute("INSERT INTO checkpoints VALUES ('t', ?, ?, ?)", (at, before, state))
        before = at
    made.commit()
    made.close()
    taken = take(cfg=COUNTING)
    assert told(taken) == [
        ("t", "request", 1), ("t", "model_call", 2), ("t", "tool_result", 3), ("t", "model_call", 3),
    ]  # fmt: skip
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
