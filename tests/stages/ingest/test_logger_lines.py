"""Lines of structured loggers that tell what an agent did: the same two talks, whatever wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from flywheel.stages.ingest.framing.logfmt import as_json
from flywheel.stages.ingest.logger_lines import as_typed, events_of
from hypothesis import given
from hypothesis import strategies as st
from tests.stages.ingest.conftest import COUNTING

Write = Callable[..., Path]
Take = Callable[..., Any]
Fields = dict[str, Any]
Line = Callable[[int, str, str, Fields], Fields]  # second, session, event and what it holds → a line

CITIES = {"s1": ("Rome", True), "s2": ("Oslo", False)}
START = 1_793_527_200  # 2026-11-01 10:00 UTC


def _at(second: int) -> str:
    return f"2026-11-01T10:{second // 60:02d}:{second % 60:02d}Z"


def _pino(second: int, session: str, event: str, held: Fields) -> Fields:
    own = {"level": 30, "time": (START + second) * 1000, "pid": 7, "hostname": "a1", "name": "support"}
    return {**own, "sessionId": session, **held, "msg": event}


def _winston(second: int, session: str, event: str, held: Fields) -> Fields:
    return {"level": "info", "message": event, "timestamp": _at(second), "runId": session, **held}


def _json_logger(second: int, session: str, event: str, held: Fields) -> Fields:
    own = {"asctime": f"2026-11-01 10:{second // 60:02d}:{second % 60:02d},120", "levelname": "INFO", "name": "agent"}
    return {**own, "message": event, "session_id": session, **held}


def _structlog(second: int, session: str, event: str, held: Fields) -> Fields:
    return {"event": event, "level": "info", "timestamp": _at(second), "session_id": session, **held}


def _zap(second: int, session: str, event: str, held: Fields) -> Fields:
    own = {"level": "info", "ts": START + second + 0.5, "caller": "agent/loop.go:10", "msg": event}
    return {**own, "conversationId": session, **held}


def _loguru(second: int, session: str, event: str, held: Fields) -> Fields:
    record = {
        "extra": {"session_id": session, **held}, "message": event, "name": "a", "line": 3, "exception": None,
        "level": {"name": "INFO", "no": 20}, "time": {"repr": _at(second), "timestamp": START + second},
    }  # fmt: skip
    return {"text": f"{_at(second)} | INFO | {event}\n", "record": record}


def _tracing(second: int, session: str, event: str, held: Fields) -> Fields:
    fields = {"message": event, "session_id": session, **held}
    return {"timestamp": _at(second), "level": "INFO", "fields": fields, "target": "agent::loop"}


def _serilog(second: int, session: str, event: str, held: Fields) -> Fields:
    capitals = {name.title().replace("_", ""): value for name, value in held.items()}
    return {"@t": _at(second), "@mt": event, "@l": "Information", "SessionId": session, **capitals}


def _in_container(second: int, session: str, event: str, held: Fields) -> Fields:
    return {"log": json.dumps(_pino(second, session, event, held)) + "\n", "stream": "stdout", "time": _at(second)}


LOGGERS: dict[str, Line] = {
    "pino": _pino, "winston": _winston, "python-json-logger": _json_logger, "structlog": _structlog, "zap": _zap,
    "loguru": _loguru, "tracing": _tracing, "serilog": _serilog, "docker": _in_container,
}  # fmt: skip
# How programs name what happens: a question, a call, its result, an answer; and in which fields they put them.
NAMES = [
    ("user_message", "tool_call", "tool_result", "assistant_message"),
    ("User message received", "Calling tool", "Tool returned", "Agent replied"),
    ("UserMessageReceived", "ToolCallStarted", "ToolCallFinished", "AssistantMessageSent"),
    ("agent.run.started", "tool.invoked", "tool.completed", "agent.run.finished"),
]
FIELDS = [
    ("content", "tool", "args", "result", "content"),
    ("text", "tool_name", "tool_input", "tool_output", "answer"),
]


def talks(line: Line, names: tuple[str, ...], fields: tuple[str, ...]) -> list[Fields]:
    """Return the two talks as a logger's lines."""
    asks, calls, gives, says = names
    asked, tool, given_to, gave, spoken = fields
    lines = []
    for n, (session, (city, good)) in enumerate(CITIES.items()):
        ended = {gave: "21 degrees", "success": True} if good else {"error": "it broke", "success": False}
        lines += [
            line(60 * n, session, asks, {asked: f"Weather in {city}?"}),
            line(60 * n + 1, session, calls, {tool: "weather", given_to: {"city": city}, "call_id": f"{session}-1"}),
            line(60 * n + 2, session, gives, {tool: "weather", "call_id": f"{session}-1", **ended}),
            line(60 * n + 3, session, says, {spoken: "It is 21." if good else "No luck."}),
        ]
    return lines


def told(taken: Any) -> dict[str, list[Any]]:
    """Return what each conversation's events tell, in order."""
    events = taken.events.sort("conversation_id", "ts", "seq")
    found: dict[str, list[Any]] = {}
    for kind, conversation, tool, text in events.select("kind", "conversation_id", "tool_name", "payload").iter_rows():
        payload = json.loads(text)
        message = payload.get("message") or (payload.get("messages") or [{}])[0]
        calls = [(call["name"], call["arguments"]) for call in message.get("tool_calls") or ()]
        what = calls or message.get("content") or (tool, payload.get("content"), payload.get("status"))
        found.setdefault(conversation, []).append((kind, what))
    return found


EXPECTED = {
    session: [
        ("request", f"Weather in {city}?"),
        ("model_call", [("weather", {"city": city})]),
        ("tool_result", ("weather", "21 degrees", "ok") if good else ("weather", "it broke", "failed")),
        ("model_call", "It is 21." if good else "No luck."),
    ]
    for session, (city, good) in CITIES.items()
}


@pytest.mark.parametrize("logger", LOGGERS)
@pytest.mark.parametrize("names", NAMES, ids=lambda names: names[0])
def test_what_loggers_tell_of_an_agent_is_its_talks(
    logger: str, names: tuple[str, ...], write: Write, take: Take
) -> None:
    for n, fields in enumerate(FIELDS):
        taken = take(write(f"{n}.jsonl", talks(LOGGERS[logger], names, fields)), cfg=COUNTING)
        assert told(taken) == EXPECTED
        assert taken.events["ts"].null_count() == 0
        assert taken.quarantined.height == 0


def _logfmt(line: Fields) -> str:
    return " ".join(f"{name}={_as_value(held)}" for name, held in line.items())


def _as_value(held: Any) -> str:
    if isinstance(held, str) and held.replace("_", "").isalnum():
        return held
    return (
        json.dumps(held if isinstance(held, str) else json.dumps(held))
        if held not in (True, False)
        else str(held).lower()
    )


@pytest.mark.parametrize("names", NAMES, ids=lambda names: names[0])
def test_lines_of_logfmt_are_lines_of_a_logger(names: tuple[str, ...], tmp_path: Path, take: Take) -> None:
    rows = [_logfmt(line) for line in talks(_winston, names, FIELDS[1])]
    rows[2:2] = [
        "goroutine 1 [running]:",
        'level=info msg="server started" timestamp=2026-11-01T10:00:00Z port=8080',
        "",
    ]
    path = tmp_path / "agent.log"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    taken = take(path, cfg=COUNTING)

    assert told(taken) == EXPECTED
    assert dict(taken.ignored) == {"other lines of a program's log": 2}


@pytest.mark.parametrize(
    "text", ["a=1 b=2\n", "x = 1\ny = 2\nz = 3\n", "export A=1 B=2 and=more\n", "a=1 b=2 c=3 level\n"]
)
def test_other_text_with_equals_signs_is_no_logfmt(text: str, tmp_path: Path, take: Take) -> None:
    path = tmp_path / "a.log"
    path.write_text(text * 9, encoding="utf-8")
    assert take(path, cfg=COUNTING).quarantined["reason"].to_list() == ["unknown_format"]


@given(st.lists(st.text(alphabet='ab="\\ \n1.{}', max_size=40), max_size=4))
def test_every_line_is_json_or_empty(lines: list[str]) -> None:
    for line in lines:
        written = as_json(line.strip().encode())
        assert written == b"" if not line.strip() else isinstance(json.loads(written), dict)


def test_other_lines_of_the_program_are_passed_over_and_counted(write: Write, take: Take) -> None:
    rows: list[Fields] = []
    for n, line in enumerate(talks(_zap, NAMES[2], FIELDS[1])):
        more = {"path": "/chat", "status": 200, "model": "qwen3"}
        rows += [line, _zap(n, "s1", "request completed", more), _zap(n, "s1", "LLM response", {**more, "text": "21"})]
        rows.append(_zap(n, "s1", "tool registry loaded", {"count": 4}))
    taken = take(write("a.jsonl", rows), cfg=COUNTING)

    assert told(taken) == EXPECTED
    assert dict(taken.ignored) == {"other lines of a program's log": 3 * 8}


def test_runs_show_no_words_where_messages_do(write: Write, take: Take) -> None:
    rows = []
    for line in talks(_structlog, NAMES[0], FIELDS[0]):
        said = {"user_message": "agent.run.started", "assistant_message": "agent.run.finished"}.get(line["event"])
        again = [{**line, "event": said, "input": line.get("content"), "content": None}] if said else []
        rows += [*again, line] if said == "agent.run.started" else [line, *again]
    assert told(take(write("a.jsonl", rows), cfg=COUNTING)) == EXPECTED


def test_what_an_event_is_about_may_be_in_an_object_or_behind_its_name(write: Write, take: Take) -> None:
    kept = ("level", "time", "pid", "msg")
    inner = [
        {**{k: v for k, v in line.items() if k in kept}, "data": {k: v for k, v in line.items() if k not in kept}}
        for line in talks(_pino, NAMES[0], FIELDS[0])
    ]
    assert told(take(write("a.jsonl", inner), cfg=COUNTING)) == EXPECTED
    behind = talks(_pino, NAMES[0], FIELDS[0])
    for line in behind:
        if tool := line.pop("tool", None):
            line["msg"] += f": {tool}"
    assert told(take(write("b.jsonl", behind), cfg=COUNTING)) == EXPECTED


def test_ratings_are_feedback(write: Write, take: Take) -> None:
    rows = talks(_pino, NAMES[0], FIELDS[0])
    rows.append(_pino(30, "s1", "user feedback", {"rating": "up"}))
    rated = take(write("a.jsonl", rows), cfg=COUNTING).events.filter(kind="feedback")
    assert rated["conversation_id"].to_list() == ["s1"]


@pytest.mark.parametrize("event", ["request completed", "Task started", "tools loaded", "model response"])
def test_a_log_without_an_agent_is_none(event: str, write: Write, take: Take) -> None:
    taken = take(write("a.jsonl", [_pino(n, f"s{n}", event, {"took": n}) for n in range(9)]), cfg=COUNTING)
    assert (taken.events.height, taken.quarantined["reason"].to_list()) == (0, ["unknown_format"])


LINES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["level", "msg", "event", "tool", "args", "extra", "record", "id", "time", "text", "error"]
            ),
            inner | st.sampled_from(["tool_call", "tool result", "user message", "run started", "feedback"]),
            max_size=5,
        )
    ),
    max_leaves=9,
)


@given(st.lists(LINES, max_size=4))
def test_no_line_breaks_it_and_none_is_changed(items: list[Any]) -> None:
    before = json.dumps(items)
    events = events_of(items)
    typed = [as_typed(item, events) for item in items] if events is not None else []
    assert all(line is None or isinstance(line["type"], str) for line in typed)
    assert json.dumps(items) == before


def test_fields_within_fields_without_end_are_left() -> None:
    line: Mapping[str, Any] = {"msg": "tool_call", "level": 30}
    for _ in range(2_000):
        line = {"extra": line}
    assert events_of([line]) is None
