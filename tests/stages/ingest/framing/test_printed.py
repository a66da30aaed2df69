"""Logs that hold objects as Python prints them: read as the same in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stages.ingest.conftest import COUNTING

Take = Callable[..., Any]
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "How many units of 'vase' were sold?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "run_sql", "arguments": '{"sql": "SELECT 1"}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "12\nrows"},
    {"role": "assistant", "content": "Twelve · 12."},
]  # fmt: skip
WRITTEN = {
    "one line": repr(CHAT),
    "several lines": repr(CHAT).replace("}, {", "},\n {"),
    "a message a line": "".join(f"{message!r}\n" for message in CHAT),
    "spread": "{\n    'messages': " + repr(CHAT) + "\n}",
}


def read(path: Path, text: str, take: Take) -> Any:
    path.write_text(text, encoding="utf-8")
    return take(path, cfg=COUNTING)


@pytest.mark.parametrize("way", WRITTEN)
def test_a_chat_that_python_printed_is_read_as_in_json(way: str, tmp_path: Path, take: Take) -> None:
    expected, taken = read(tmp_path / "a.json", json.dumps(CHAT), take), read(tmp_path / "b.json", WRITTEN[way], take)
    assert taken.events["kind"].sort().to_list() == ["model_call", "model_call", "request", "tool_result"]
    assert sorted(map(json.dumps, taken.payloads())) == sorted(map(json.dumps, expected.payloads()))


@pytest.mark.parametrize(
    "text", ["[{'role': open('x')}]", "[{'role': 'user', 'content': 'a secret", "[{'a': {1, 2}}]", "[{'a': 1}] more"]
)
def test_what_is_no_literal_is_refused_and_never_run(text: str, tmp_path: Path, take: Take) -> None:
    refused = read(tmp_path / "chat.json", text, take).quarantined
    assert refused["reason"].to_list() == ["unknown_format"]
    assert "as Python prints objects" in refused["detail"][0]
    assert "secret" not in refused["detail"][0]


def test_what_no_table_holds_is_kept_or_named_as_in_json(tmp_path: Path, take: Take) -> None:
    chat = [{"role": "user", "content": "Hi", "n": 10**30}, {"role": "assistant", "content": "\ud83d"}]
    printed, written = repr(chat), json.dumps(chat)
    taken, expected = read(tmp_path / "b.json", printed, take), read(tmp_path / "a.json", written, take)
    assert taken.quarantined.is_empty()
    assert sorted(map(json.dumps, taken.payloads())) == sorted(map(json.dumps, expected.payloads()))
    assert "broken_text" in str(taken.payloads())
