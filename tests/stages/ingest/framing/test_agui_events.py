"""AG-UI's events: deltas are put together to messages, and what a run is given again counts once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Take

ASKED = {"id": "m1", "role": "user", "content": "Where is order 7?"}
LOOKED = {"id": "a1", "role": "assistant", "content": "I look.", "toolCalls": [
    {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id":7}'}}]}  # fmt: skip
CAME = {"id": "r1", "role": "tool", "content": "on its way", "toolCallId": "c1"}
TOLD = {"id": "a2", "role": "assistant", "content": "On its way."}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def started(run: str, *messages: dict[str, Any]) -> dict[str, Any]:
    given = {"threadId": "t-1", "runId": run, "messages": list(messages), "tools": [], "state": {}}
    return event("RUN_STARTED", threadId="t-1", runId=run, input=given, timestamp=1767644899093)


RUNS = [
    started("r-1", ASKED),
    event("STEP_STARTED", stepName="look"),
    event("THINKING_TEXT_MESSAGE_CONTENT", delta="It is an order."),
    event("TEXT_MESSAGE_START", messageId="a1", role="assistant"),
    event("TEXT_MESSAGE_CONTENT", messageId="a1", delta="I "),
    event("TEXT_MESSAGE_CONTENT", messageId="a1", delta="look."),
    event("TEXT_MESSAGE_END", messageId="a1"),
    event("TOOL_CALL_START", toolCallId="c1", toolCallName="get_order", parentMessageId="a1"),
    event("TOOL_CALL_ARGS", toolCallId="c1", delta='{"id"'),
    event("TOOL_CALL_ARGS", toolCallId="c1", delta=":7}"),
    event("TOOL_CALL_END", toolCallId="c1"),
    event("TOOL_CALL_RESULT", messageId="r1", toolCallId="c1", content="on its way", role="tool"),
    event("TEXT_MESSAGE_CHUNK", messageId="a2", role="assistant", delta="On its way."),
    event("MESSAGES_SNAPSHOT", messages=[ASKED, LOOKED, CAME, TOLD]),
    event("RUN_FINISHED", threadId="t-1", runId="r-1"),
    started("r-2", ASKED, LOOKED, CAME, TOLD, {"id": "m2", "role": "user", "content": "And order 8?"}),
    event("TOOL_CALL_CHUNK", toolCallId="c2", toolCallName="get_order", delta='{"id":8}'),
    event("TOOL_CALL_CHUNK", toolCallId="c3", toolCallName="get_bill", delta='{"id":8}'),
    event("TOOL_CALL_RESULT", messageId="r2", toolCallId="c2", content="Error: no such order"),
    event("RUN_ERROR", message="gave up"),
]


def in_snake(value: Any) -> Any:
    """Return events as Python's models write them."""
    if isinstance(value, list):
        return [in_snake(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {"threadId": "thread_id", "runId": "run_id", "messageId": "message_id", "toolCallId": "tool_call_id",
             "toolCallName": "tool_call_name", "parentMessageId": "parent_message_id",
             "toolCalls": "tool_calls"}  # fmt: skip
    return {names.get(name, name): in_snake(item) for name, item in value.items()}


@pytest.mark.parametrize("way", ["lines", "stream", "list", "snake"])
def test_two_runs_of_a_thread_are_one_talk(way: str, tmp_path: Path, take: Take) -> None:
    events = in_snake(RUNS) if way == "snake" else RUNS
    lines = [json.dumps(one) for one in events]
    text = {"list": json.dumps(events, indent=1), "stream": "".join(f"data: {line}\n\n" for line in lines)}
    (tmp_path / "run.jsonl").write_text(text.get(way, "\n".join(lines) + "\n"))
    taken = take(tmp_path)
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    assert sum(taken.ignored.values()) == 3, "a step, and how the runs ended"
    episodes, steps = taken.built()
    (made,) = episodes.to_dicts()
    assert (made["conversation_id"], made["n_tool_calls"], made["n_tool_errors"]) == ("t-1", 3, 1)
    acts = [json.loads(step["action"]) for step in steps.sort("index").to_dicts()]
    assert [act.get("content") for act in acts] == ["I look.", "On its way.", None]
    assert [[(c["name"], c["arguments"]) for c in act.get("tool_calls", ())] for act in acts] == [
        [("get_order", {"id": 7})], [], [("get_order", {"id": 8}), ("get_bill", {"id": 8})]
    ]  # fmt: skip
    assert acts[0]["reasoning"] == "It is an order."
    asked = [m["content"] for step in steps.to_dicts() for m in json.loads(step["observation"]) if m["role"] == "user"]
    assert asked == ["Where is order 7?", "And order 8?"]


def test_a_file_that_grows_is_read_as_a_whole(tmp_path: Path, take: Take) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in RUNS[:10]))
    first = take(tmp_path)
    path.write_text("".join(json.dumps(one) + "\n" for one in RUNS))
    again = take(tmp_path, known=first.states)
    assert again.events["kind"].to_list().count("tool_result") == 2
    assert len(again.built()[1]) == 3


def test_a_line_that_is_broken_is_set_aside_alone(tmp_path: Path, take: Take) -> None:
    lines = [json.dumps(one) for one in RUNS]
    (tmp_path / "run.jsonl").write_text("\n".join([*lines[:1], '{"type": "TEXT_', *lines[1:]]) + "\n")
    taken = take(tmp_path)
    assert (taken.quarantined.height, taken.adds_up()) == (1, True)
    assert taken.quarantined["source_line"][0] == 2
    assert len(taken.built()[1]) == 3
