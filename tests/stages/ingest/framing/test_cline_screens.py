"""What Cline and Roo show on the screen: the talk of a task, and what is none of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Take


def entry(number: int, kind: str, text: Any = "", *, asks: bool = False, **more: Any) -> dict[str, Any]:
    way = "ask" if asks else "say"
    words = text if isinstance(text, str) else json.dumps(text)
    return {"ts": 1767644899093 + number * 1000, "type": way, way: kind, "text": words, **more}


MODEL: dict[str, Any] = {"modelInfo": {"providerId": "vllm", "modelId": "qwen3-coder", "mode": "act"}}
MCP = {"type": "use_mcp_tool", "serverName": "shop", "toolName": "find", "arguments": '{"id": 7}'}
TASK = [
    entry(0, "text", "Fix the build."),
    entry(1, "checkpoint_created"),
    entry(2, "api_req_started", {"request": "<task>", "tokensIn": 100, "tokensOut": 10, "cost": 0.5}, **MODEL),
    entry(3, "reasoning", "Look first."),
    entry(4, "text", "I look", partial=True),
    entry(4, "text", "I look."),
    entry(5, "tool", {"tool": "listFilesTopLevel", "path": ".", "content": "a.py\nb.py"}),
    entry(6, "command", "make", asks=True),
    entry(7, "command_output", "error: a.py:1", asks=True),
    entry(8, "command_output", "make: *** [all] Error 1", asks=True),
    entry(9, "api_req_started", {"request": "[execute_command]", "tokensIn": 120, "tokensOut": 5}),
    entry(10, "tool", {"tool": "newFileCreated", "path": "a.py", "content": "x = 1"}, asks=True),
    entry(11, "use_mcp_server", MCP, asks=True),
    entry(12, "mcp_server_response", "shipped"),
    entry(13, "api_req_started", {"request": "[find]"}),
    entry(14, "followup", {"question": "Shall I go on?", "options": ["yes"]}, asks=True),
    entry(15, "user_feedback", "Yes, please."),
    entry(16, "api_req_started", {"request": "<feedback>"}),
    entry(17, "completion_result", "It builds."),
    entry(18, "completion_result", "", asks=True),
]


def test_a_task_is_its_talk(tmp_path: Path, take: Take) -> None:
    (tmp_path / "ui_messages.json").write_text(json.dumps(TASK, indent=1))
    taken = take(tmp_path)
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    assert sum(taken.ignored.values()) == 3, "a checkpoint, what was replaced, and an empty entry"
    episodes, steps = taken.built()
    (made,) = episodes.to_dicts()
    assert (made["n_steps"], made["n_tool_calls"], made["model"]) == (4, 4, "qwen3-coder")
    assert (made["input_tokens"], made["output_tokens"], made["cost_usd"]) == (220, 15, 0.5)
    acts = [json.loads(step["action"]) for step in steps.sort("index").to_dicts()]
    assert [act.get("content") for act in acts] == ["I look.", None, "Shall I go on?", "It builds."]
    assert [(c["name"], c["arguments"]) for act in acts for c in act.get("tool_calls", ())] == [
        ("listFilesTopLevel", {"path": "."}), ("execute_command", {"command": "make"}),
        ("newFileCreated", {"path": "a.py", "content": "x = 1"}), ("find", {"id": 7}),
    ]  # fmt: skip
    seen = [json.loads(step["observation"]) for step in steps.sort("index").to_dicts()]
    assert [message["content"] for message in seen[1]] == ["a.py\nb.py", "error: a.py:1\nmake: *** [all] Error 1"]
    assert seen[3] == [{"role": "user", "content": "Yes, please."}]


def test_a_truncated_file_has_a_refusal(tmp_path: Path, take: Take) -> None:
    (tmp_path / "ui_messages.json").write_text(json.dumps(TASK * 10)[:-100])
    taken = take(tmp_path)
    assert taken.quarantined["reason"].to_list() == ["truncated"]
