"""Detection: by content alone, with words for what nobody knows."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.extensions import Reader, Sample
from flywheel.stages.ingest.detect import confidences, detect, is_text_document

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Take

CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
BLOCKS = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}]
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "x"}}]}
MESSAGE = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "x"}],
    "stop_reason": "end_turn",
}

RECORDS: list[tuple[str, dict[str, Any]]] = [
    ("native", {"kind": "request", "conversation_id": "c", "payload": {"messages": CHAT}}),
    ("native", {"conversation_id": "c", "name": "thumbs", "value": 1}),
    ("openai", {"request": {"messages": CHAT}, "response": ANSWER}),
    ("openai", {"messages": CHAT, "response": ANSWER}),
    ("openai", {"messages": CHAT, **ANSWER}),
    ("openai", {"messages": CHAT}),
    ("openai", {"messages": CHAT[:1], "response": "ho"}),
    ("openai", {"request": {"messages": CHAT[:1]}, "response": {"role": "assistant", "content": "ho"}}),
    ("openai", {"prompt": "hi", "completion": "ho"}),
    ("openai", {"object": "chat.completion", **ANSWER}),
    ("openai", {"object": "chat.completion.chunk", "choices": []}),
    ("openai", {"request": {"messages": CHAT}, "response": 'data: {"choices":[{"delta":{"content":"x"}}]}'}),
    ("openai", {"input": {"messages": CHAT}, "preferred_output": CHAT[1:], "non_preferred_output": CHAT[1:]}),
    ("batch", {"custom_id": "a", "response": {"body": {"object": "chat.completion", **ANSWER}}}),
    ("batch", {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": CHAT}}),
    ("batch", {"custom_id": "a", "result": {"type": "succeeded", "message": MESSAGE}}),
    ("batch", {"custom_id": "a", "params": {"messages": CHAT}}),
    ("responses", {"request": {"input": "hi"}, "response": {"object": "response", "output": []}}),
    ("responses", {"object": "response", "output": []}),
    ("responses", {"type": "response.completed", "response": {"object": "response", "output": []}}),
    (
        "litellm",
        {"litellm_call_id": "l", "call_type": "acompletion", "model_parameters": {}, "messages": CHAT, **ANSWER},
    ),
    (
        "helicone",
        {
            "request_id": "q",
            "request_created_at": "",
            "response_created_at": "",
            "response_status": 200,
            "request_body": {"messages": CHAT},
            "response_body": ANSWER,
            "request_path": "",
        },
    ),
    ("litellm", {"request_id": "r", "call_type": "acompletion", "api_key": "", "startTime": "2026-10-01", **ANSWER}),
    ("anthropic", {"request": {"messages": CHAT}, "response": MESSAGE}),
    ("anthropic", {"messages": BLOCKS}),
    ("anthropic", {"system": "s", "messages": CHAT}),
    ("anthropic", {"system": "s", "messages": CHAT[:1], "response": "ho"}),
    ("anthropic", {"request": {"messages": BLOCKS}, "response": "ho"}),
    ("anthropic", MESSAGE),
    ("anthropic", {"request": {"messages": CHAT}, "response": [{"type": "message_start", "message": MESSAGE}]}),
    ("otel", {"resourceSpans": []}),
    ("otel", {"resource_logs": []}),
    ("tau_bench", {"task_id": 1, "trial": 0, "reward": 1.0, "traj": CHAT, "info": {}}),
    ("exchanges", {"request": {"system": [{"text": "s"}], "messages": CHAT}, "response": {"output": {"message": {}}}}),
    (
        "data_set",
        {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "f", "_format_type": None},
    ),
    ("data_set", {"builder_name": "parquet", "citation": "", "features": {"messages": {}}, "splits": {}}),
    ("data_set", {"splits": ["train", "test"]}),
    ("tool_schemas", {"type": "function", "function": {"name": "f", "parameters": {}}}),
]


@pytest.mark.parametrize(("format_", "record"), RECORDS)
def test_each_format_is_known_by_its_records(
    readers: Mapping[str, Reader], format_: str, record: dict[str, Any]
) -> None:
    assert detect(Sample("misleading.tau.otel.json", [record]), readers).format == format_


def test_a_few_strange_records_do_not_hide_the_format(readers: Mapping[str, Reader]) -> None:
    records = [{"request": {"messages": CHAT}, "response": ANSWER}] * 7 + [{"x": 1}, None, [3]]
    assert detect(Sample("x", records), readers).format == "openai"


def test_an_unknown_file_is_described_without_values(readers: Mapping[str, Reader]) -> None:
    fields = {"title": "geheim", "joe@example.com": 1, "DE89370400440532013000": 2, "body": {"k": 2}}
    found = detect(Sample("x", [fields]), readers)
    assert found.format == "unknown"
    assert "body, title" in found.reason
    assert "geheim" not in found.reason
    assert not [name for name in ("joe", "DE89") if name in found.reason]
    assert "lists, not objects" in detect(Sample("x", [[1], [2]]), readers).reason


def test_the_nearest_reader_is_named(readers: Mapping[str, Reader]) -> None:
    records = [{"messages": CHAT}, *[{"x": n} for n in range(5)]]
    assert "nearest: openai" in detect(Sample("x", records), readers).reason


def test_the_users_word_is_final(readers: Mapping[str, Reader]) -> None:
    assert detect(Sample("x", [{"x": 1}]), readers, chosen="native").format == "native"


@pytest.mark.parametrize(
    ("name", "content", "prose"),
    [
        ("README.md", b"# Logs", True),
        ("LICENSE", b"MIT License", True),
        ("notes.md", b'{"a": 1}', False),
        ("license.jsonl", b'{"a": 1}', False),
        ("log.txt", b"prose", False),
        ("source.md.gz", b"\x1f\x8b\x08", False),
    ],
)
def test_prose_beside_logs(tmp_path: Path, name: str, content: bytes, *, prose: bool) -> None:
    (tmp_path / name).write_bytes(content)
    assert is_text_document(name, lambda _: FileIO(tmp_path / name)) is prose


class Stumbling:
    """A plugin that trusts every record to be its own."""

    name = "stumbling"
    version = 1

    def sniff(self, sample: Sample) -> float:
        return float(sample.records[0]["mine"])

    def read(self, record: Any, line: int) -> list[dict[str, Any]]:
        return [record[line]]


def test_a_plugin_that_stumbles_over_a_foreign_file_does_not_know_it(readers: Mapping[str, Reader]) -> None:
    found = detect(Sample("x", [{"messages": CHAT}]), {**readers, "stumbling": Stumbling()})
    assert found.format == "openai"


HEADERS = ("conversation_id", "name", "text", "annotator_kind", "span_id", "result", "role", "content",
           "prompt_tokens", "completion_tokens", "uuid", "chat_messages")  # fmt: skip


@pytest.mark.parametrize(("reader", "rows"), [
    ("phoenix", [{"span_id": "1111111111111111", "name": "thumbs", "annotator_kind": "HUMAN", "result": {"score": 0}}]),
    ("transcripts", [{"uuid": "c", "name": "a chat", "chat_messages": [{"sender": "human", "text": "u"},
                                                                       {"sender": "assistant", "text": "a"}]}]),
    ("message_rows", [{"conversation_id": "c", "role": "user", "content": "u"},
                      {"conversation_id": "c", "role": "assistant", "content": "a", "prompt_tokens": 11,
                       "completion_tokens": 7}]),
])  # fmt: skip
def test_a_table_with_columns_of_other_rows_is_what_its_cells_are(
    tmp_path: Path, take: Take, reader: str, rows: list[dict[str, Any]]
) -> None:
    path = tmp_path / "log.csv"
    cells = [[json.dumps(v) if isinstance(v := row.get(name), dict | list) else v for name in HEADERS] for row in rows]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([HEADERS, *cells])
    taken = take(path, root=tmp_path)
    assert [state.format for state in taken.states.values()] == [reader]
    assert ("outcome" in taken.events["kind"], taken.quarantined.height) == (False, 0)
    counted = [n for payload in taken.payloads() if (n := payload.get("input_tokens"))]
    assert counted == [row["prompt_tokens"] for row in rows if "prompt_tokens" in row]


@pytest.mark.parametrize("records", [[], [{}], [None, [], ""]])
def test_a_sample_without_a_record_is_evidence_for_nobody(records: list[Any], readers: Mapping[str, Reader]) -> None:
    class Sure:
        name, version = "sure", 1

        def sniff(self, sample: Sample) -> float:
            return float(all(isinstance(record, dict | list | str | None) for record in sample.records))

        def read(self, record: Any, line: int) -> list[Any]:
            raise NotImplementedError

    assert not any(confidences(Sample("x.jsonl", records), {**readers, "sure": Sure()}).values())
