"""Rewound conversations: the last path stands, what was given up is an attempt of its own that was undone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
from flywheel.contracts import polars_schema
from flywheel.project import Project
from flywheel.records import LogEvent
from flywheel.stages.conversations.thread import follow_threads
from hypothesis import given
from hypothesis import strategies as st

SESSION = "0b4e7d1e-0000-4000-8000-00000000000d"


class Session:
    """A Claude Code session that is written line by line."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def say(self, uuid: str, parent: str | None, kind: str, message: dict[str, Any] | None, **more: Any) -> None:
        at = f"2026-10-01T09:{len(self.lines):02}:00.000Z"
        self.lines.append(
            {"parentUuid": parent, "sessionId": SESSION, "type": kind, "uuid": uuid, "timestamp": at}
            | ({"message": message} if message else {})
            | more
        )

    def user(self, uuid: str, parent: str | None, text: str) -> None:
        self.say(uuid, parent, "user", {"role": "user", "content": text})

    def reply(self, uuid: str, parent: str, text: str, *calls: str, response: str | None = None) -> None:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        blocks += [{"type": "tool_use", "id": c, "name": "Bash", "input": {"command": f"run {c}"}} for c in calls]
        named = response or f"msg-{uuid}"
        message = {
            "id": named,
            "role": "assistant",
            "model": "claude-x",
            "content": blocks,
            "usage": {"output_tokens": 1},
        }
        self.say(uuid, parent, "assistant", message)

    def result(self, uuid: str, parent: str, call: str) -> None:
        block = {"type": "tool_result", "tool_use_id": call, "content": "done", "is_error": False}
        self.say(uuid, parent, "user", {"role": "user", "content": [block]})

    def built(self, folder: Path) -> Project:
        path = folder / "logs" / f"{SESSION}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines), encoding="utf-8")
        (folder / "flywheel.toml").touch()
        project = Project(folder)
        project.ingest([path.parent])
        project.build()
        return project


def rewound() -> Session:
    """Two calls side by side, then two attempts given up, one with a branch of its own, and one that stands."""
    log = Session()
    log.user("u1", None, "where are orders 7 and 8?")
    log.reply("a1", "u1", "", "t1", response="r1")
    log.reply("a2", "a1", "", "t2", response="r1")
    log.result("t1r", "a1", "t1")
    log.result("t2r", "a2", "t2")
    log.reply("a3", "t2r", "Both are lost.")
    log.say("s1", "a3", "system", None, subtype="turn_duration")
    log.user("u2", "s1", "cancel order 7 for me")
    log.reply("a4", "u2", "", "t3")
    log.result("t3r", "a4", "t3")
    log.reply("a5", "t3r", "Order 8 is cancelled.")
    log.user("u3", "t3r", "no, seven")
    log.reply("a6", "u3", "Order 9 is cancelled.")
    log.user("u4", "s1", "please cance")
    log.user("u5", "s1", "please cancel order number seven")
    log.reply("a7", "u5", "Order 7 is cancelled.")
    return log


def texts(project: Project, conversation: str) -> list[str]:
    """What the agent said in a conversation, in order."""
    episodes = project.store.table("episodes", "episodes").collect()
    steps = project.store.table("steps", "episodes").collect()
    mine = episodes.filter(pl.col("conversation_id") == conversation)["episode_id"]
    rows = steps.filter(pl.col("episode_id").is_in(mine.implode())).sort("index")
    return [json.loads(action).get("content") or "" for action in rows["action"]]


def test_the_last_path_stands_and_what_was_given_up_is_undone(tmp_path: Path) -> None:
    project = rewound().built(tmp_path)
    episodes = project.store.table("episodes", "episodes").collect()

    assert sorted(episodes["conversation_id"]) == [SESSION, f"{SESSION}/a5", f"{SESSION}/a6"]
    assert texts(project, SESSION) == ["", "Both are lost.", "Order 7 is cancelled."]
    assert texts(project, f"{SESSION}/a6") == ["", "Both are lost.", "", "Order 9 is cancelled."]
    assert texts(project, f"{SESSION}/a5") == ["", "Both are lost.", "", "Order 8 is cancelled."]
    assert episodes["task_id"].n_unique() == 1
    assert episodes["n_tool_errors"].to_list() == [0, 0, 0]
    tokens = dict(episodes.select("conversation_id", "output_tokens").iter_rows())
    assert tokens == {SESSION: 3, f"{SESSION}/a6": 2, f"{SESSION}/a5": 1}, "six replies, each counted once"

    undone = project.store.table("rewards", "rewards").filter(pl.col("signal") == "undo").collect()
    events = project.store.table("events", "ingest").collect()
    lines = dict(events.select("event_id", "source_line").iter_rows())
    named = dict(episodes.select("episode_id", "conversation_id").iter_rows())
    found = {named[episode]: lines[evidence[0]] for episode, evidence in undone["episode_id", "evidence"].iter_rows()}
    # The line that shows it is the one which the user wrote instead; an attempt within an attempt too.
    assert found == {f"{SESSION}/a6": 15, f"{SESSION}/a5": 12}


def test_calls_side_by_side_are_no_attempts(tmp_path: Path) -> None:
    log = rewound()
    del log.lines[6:]
    assert texts(log.built(tmp_path), SESSION) == ["", "Both are lost."]


def test_a_thought_alone_is_no_attempt(tmp_path: Path) -> None:
    log = Session()
    log.user("u1", None, "where is order 7?")
    log.reply("a1", "u1", "", "t1")
    log.result("t1r", "a1", "t1")
    log.user("u2", "t1r", "go on")
    log.reply("a2", "u2", "")
    log.user("u3", "t1r", "where is it?")
    log.reply("a3", "u3", "It is lost.")
    project = log.built(tmp_path)
    assert project.store.table("episodes", "episodes").collect()["conversation_id"].to_list() == [SESSION]
    assert texts(project, SESSION)[-1] == "It is lost."


def test_a_broken_chain_takes_nothing_apart(tmp_path: Path) -> None:
    log = rewound()
    del log.lines[7:13]  # what was given up is not there
    log.lines = [line for line in log.lines if line["uuid"] not in {"a3", "s1"}]
    assert texts(log.built(tmp_path), SESSION) == ["", "Order 7 is cancelled."]


def threaded(parents: list[int | None]) -> pl.DataFrame:
    """One conversation in which message i follows message parents[i]; replies and words in turn."""
    rows = []
    for i, parent in enumerate(parents):
        kind = "model_call" if i % 2 else "request"
        payload: dict[str, Any] = {"message": {"content": "Yes."}} if i % 2 else {"messages": [{"role": "user"}]}
        rows.append(
            {
                "event_id": f"e{i}", "conversation_id": "c", "seq": i, "kind": kind, "span_id": f"m{i}",
                "parent_id": None if parent is None else f"m{parent}",
                "payload": json.dumps(payload | {"threaded": True}, separators=(",", ":")),
            }
        )  # fmt: skip
    schema = {name: kind for name, kind in polars_schema(LogEvent).items() if name in rows[0]}
    return pl.DataFrame(rows, schema=schema).with_columns(ts=pl.lit(None, pl.Datetime("us", "UTC")))


@given(st.data())
def test_a_message_is_given_up_once_or_stands(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 14))
    parents = [data.draw(st.none() | st.integers(0, i - 1)) if i else None for i in range(count)]
    events = threaded(parents)
    found = follow_threads(events)
    again = follow_threads(events.sample(fraction=1.0, shuffle=True, seed=count))

    def rows(frame: pl.DataFrame) -> list[Any]:
        return sorted(frame.select("conversation_id", "event_id", "kind").iter_rows())

    main = set(found.filter(pl.col("conversation_id") == "c")["span_id"])
    spoken = found.filter(pl.col("kind") == "model_call")
    assert rows(found) == rows(again)
    assert f"m{count - 1}" in main
    assert set(spoken["span_id"]) == {f"m{i}" for i in range(1, count, 2)}  # no reply is lost
    for conversation in set(found["conversation_id"]) - {"c"}:
        attempt = found.filter(pl.col("conversation_id") == conversation)
        told = set(attempt.filter(pl.col("kind") != "feedback")["span_id"])
        assert conversation.removeprefix("c/") in told - main
        assert attempt.filter(pl.col("kind") == "feedback").height == 1
        # From the beginning: whoever speaks follows somebody who is there too.
        assert all(parents[int(m[1:])] is None or f"m{parents[int(m[1:])]}" in told for m in told)


def test_a_chain_that_bites_its_tail_stays_as_it_is() -> None:
    events = threaded([None, 0, 1, 2]).with_columns(parent_id=pl.Series(["m3", "m0", "m1", "m2"]))
    assert follow_threads(events).sort("seq").equals(events)


CODEX = "0b4e7d1e-0000-4000-8000-00000000000"


def codex_line(at: float, kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-10-01T09:{int(at) // 60:02}:{at % 60:06.3f}Z", "type": kind, "payload": payload}


def codex_turns(begin: float, *requests: str, total: int = 0) -> list[dict[str, Any]]:
    lines = []
    for n, asked in enumerate(requests):
        at, said = (
            begin + 60 * n,
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": asked}]},
        )
        call = {"type": "function_call", "call_id": f"c-{asked}", "name": "sh", "arguments": "{}"}
        done = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"did {asked}"}]}
        usage = {"input_tokens": total + 10 * (n + 1), "output_tokens": total // 10 + n + 1}
        lines += [
            codex_line(at, "response_item", **said),
            codex_line(at + 3, "response_item", **call),
            codex_line(at + 4, "response_item", type="function_call_output", call_id=f"c-{asked}", output="ok"),
            codex_line(at + 7, "response_item", **done),
            codex_line(at + 7, "event_msg", type="token_count", info={"total_token_usage": usage}),
        ]
    return lines


def built(folder: Path, **files: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the episodes of sessions, by conversation."""
    (folder / "logs").mkdir()
    for name, lines in files.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "logs" / f"{name.replace('_', '-')}.jsonl").write_text(text, encoding="utf-8")
    (folder / "flywheel.toml").touch()
    project = Project(folder)
    project.ingest([folder / "logs"])
    project.build(select="links")
    project.build(select="episodes")
    return {row["conversation_id"]: row for row in project.query("SELECT * FROM episodes").to_pylist()}


def test_a_codex_fork_counts_what_it_repeats_once(tmp_path: Path) -> None:
    meta = codex_line(0, "session_meta", id=f"{CODEX}1")
    first = [meta, *codex_turns(1, "a", "b")]
    own = codex_line(300, "session_meta", id=f"{CODEX}2", forked_from_id=f"{CODEX}1")
    copies = [{**line, "timestamp": own["timestamp"]} for line in first]
    kept_times = [codex_line(400, "session_meta", id=f"{CODEX}3", forked_from_id=f"{CODEX}1"), *first]
    sessions = [first, [own, *copies, *codex_turns(330, "c", total=20)], [*kept_times, *codex_turns(500, "d")]]
    files = {f"rollout-2026-{CODEX}{n}": lines for n, lines in enumerate(sessions, 1)}
    found = [row for _, row in sorted(built(tmp_path, **files).items())]
    columns = ("n_steps", "n_tool_calls", "input_tokens", "output_tokens")
    assert [tuple(row[name] for name in columns) for row in found] == [(4, 2, 20, 2), (6, 3, 10, 1), (6, 3, 10, 1)]


def test_a_fork_whose_copies_are_written_later_counts_them_once(tmp_path: Path) -> None:
    first = [codex_line(0, "session_meta", id=f"{CODEX}1"), *codex_turns(1, "a", "b")]
    copies = [{**line, "timestamp": codex_line(304, "x")["timestamp"]} for line in first]
    fork = [codex_line(300, "session_meta", id=f"{CODEX}2"), *copies, *codex_turns(330, "c", total=20)]
    files = {f"rollout-2026-{CODEX}1": first, f"rollout-2026-{CODEX}2": fork}
    found = [row for _, row in sorted(built(tmp_path, **files).items())]
    assert [(row["n_steps"], row["input_tokens"]) for row in found] == [(4, 20), (6, 10)]


def test_totals_that_begin_again_are_added(tmp_path: Path) -> None:
    lines = [codex_line(0, "session_meta", id=f"{CODEX}1"), *codex_turns(1, "a", "b"), *codex_turns(100, "c")]
    (row,) = built(tmp_path, **{f"rollout-2026-{CODEX}1": lines}).values()
    assert (row["n_steps"], row["input_tokens"]) == (6, 30)


def test_an_answer_has_the_model_of_its_turn(tmp_path: Path) -> None:
    served = [codex_line(at, "turn_context", model=f"gpt-{n}") for n, at in ((1, 0.5), (2, 99))]
    lines = [codex_line(0, "session_meta", id=f"{CODEX}1"), served[0], *codex_turns(1, "a"), served[1]]
    (row,) = built(tmp_path, **{f"rollout-2026-{CODEX}1": [*lines, *codex_turns(100, "b")]}).values()
    assert "mixed_policies" in row["tags"]


def test_a_resumed_session_counts_what_it_repeats_once(tmp_path: Path) -> None:
    past, again = rewound(), Session()
    del past.lines[6:]
    again.lines = list(past.lines)
    again.user("n1", "a3", "and order 9?")
    again.reply("n2", "n1", "Lost too.")
    lines = [{**line, "sessionId": "resumed"} for line in again.lines]
    found = built(tmp_path, past=past.lines, again=lines)
    assert {name: row["output_tokens"] for name, row in found.items()} == {SESSION: 2, "resumed": 1}
    assert {name: row["n_steps"] for name, row in found.items()} == {SESSION: 2, "resumed": 3}


def test_a_question_aside_counts_what_it_repeats_once(tmp_path: Path) -> None:
    past, aside = rewound(), Session()
    del past.lines[6:]
    aside.lines = list(past.lines)
    aside.user("n1", "a3", "<system-reminder>This is a side question from the user.</system-reminder>\n\nWhy?")
    aside.reply("n2", "n1", "It rained.")
    lines = [{**line, "isSidechain": True, "agentId": "aside_question-1"} for line in aside.lines]
    found = built(tmp_path, past=past.lines, aside=lines)
    tokens = {name: row["output_tokens"] for name, row in found.items()}
    assert tokens == {SESSION: 2, f"{SESSION}/agent-aside_question-1": 1}
