"""Images and files in logs: kept as references by every reader, never as bytes, and signed addresses never as such."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.config import IngestConfig
from flywheel.stages.ingest.attachments import may_hold, without_contents
from flywheel.stages.ingest.batches import Segment
from flywheel.stages.ingest.framing.framed import Record
from flywheel.stages.ingest.workers import Worker
from tests.stages.ingest.formats import samples

if TYPE_CHECKING:
    from flywheel.extensions import Reader
    from tests.stages.ingest.conftest import Take

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
PDF = b"%PDF-1.7\n" + bytes(range(200))
IMAGE, FILE = b64encode(PNG).decode(), b64encode(PDF).decode()
SIGNED = "https://alice:pw@files.example.org:8443/a/cat.png?X-Amz-Signature=deadbeef#top"
PLAIN = "https://files.example.org:8443/a/cat.png"
INLINE = {
    "kind": "image", "media_type": "image/png", "source": "inline", "sha256": sha256(PNG).hexdigest(),
    "size_bytes": len(PNG),
}  # fmt: skip
PAGES = {
    "kind": "file", "media_type": "application/pdf", "source": "inline", "sha256": sha256(PDF).hexdigest(),
    "size_bytes": len(PDF),
}  # fmt: skip
LINKED = {"kind": "image", "source": PLAIN}
PNG_URL, PDF_URL = f"data:image/png;base64,{IMAGE}", f"data:application/pdf;base64,{FILE}"
PARTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("openai", {"type": "image_url", "image_url": {"url": PNG_URL}}, INLINE),
    ("openai", {"type": "image_url", "image_url": {"url": SIGNED, "detail": "low"}}, LINKED),
    ("openai", {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URL}}, PAGES),
    ("openai", {"type": "file", "file": {"file_id": "file-abc"}}, {"kind": "file", "source": "id:file-abc"}),
    ("openai", {"type": "input_audio", "input_audio": {"data": IMAGE, "format": "wav"}},
     {**INLINE, "kind": "audio", "media_type": "audio/wav"}),
    ("anthropic", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}, INLINE),
    ("anthropic", {"type": "image", "source": {"type": "url", "url": SIGNED}}, LINKED),
    ("anthropic",
     {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": FILE}}, PAGES),
    ("anthropic", {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
     {"kind": "file", "source": "id:file_1"}),
    ("responses", {"type": "input_image", "image_url": SIGNED}, LINKED),
    ("responses", {"type": "input_file", "file_data": PDF_URL}, PAGES),
    ("langsmith", {"type": "image", "source_type": "base64", "data": IMAGE, "mime_type": "image/png"}, INLINE),
    ("langsmith", {"type": "image", "base64": IMAGE, "mime_type": "image/png"}, INLINE),
    ("langsmith", {"type": "media", "mime_type": "application/pdf", "data": FILE}, PAGES),
    ("adk", {"inline_data": {"mime_type": "image/png", "data": IMAGE}}, INLINE),
    ("adk", {"fileData": {"mimeType": "image/png", "fileUri": SIGNED}}, {**LINKED, "media_type": "image/png"}),
    ("otel", {"type": "blob", "modality": "image", "mime_type": "image/png", "content": IMAGE}, INLINE),
    ("otel", {"type": "uri", "modality": "image", "mime_type": "image/png", "uri": SIGNED},
     {**LINKED, "media_type": "image/png"}),
    ("bedrock", {"image": {"format": "png", "source": {"bytes": IMAGE}}}, INLINE),
    ("bedrock", {"image": {"format": "png", "source": {"bytes": list(PNG)}}}, INLINE),
    ("bedrock", {"document": {"format": "pdf", "name": "a", "source": {"s3Location": {"uri": "s3://bucket/a.pdf"}}}},
     {"kind": "file", "media_type": "application/pdf", "source": "s3://bucket/a.pdf"}),
    ("vercel", {"type": "image", "image": IMAGE, "mediaType": "image/png"}, INLINE),
    ("vercel", {"type": "file", "url": SIGNED, "mediaType": "image/png"}, {**LINKED, "media_type": "image/png"}),
    ("mcp", {"type": "image", "data": IMAGE, "mimeType": "image/png"}, INLINE),
    ("mcp", {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "application/pdf", "blob": FILE}}, PAGES),
    ("pydantic_ai", {"kind": "image-url", "url": SIGNED}, LINKED),
    ("pydantic_ai", {"kind": "binary", "data": IMAGE, "media_type": "image/png"}, INLINE),
]  # fmt: skip


@pytest.mark.parametrize(("api", "part", "reference"), PARTS)
def test_a_part_is_kept_as_a_reference(api: str, part: dict[str, Any], reference: dict[str, Any]) -> None:
    record = {"messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, part]}]}
    assert may_hold([json.dumps(record).encode()]) == [True]
    value, references = without_contents(record)
    assert list(references.values()) == [reference], api
    text = json.dumps(value)
    assert IMAGE[:40] not in text
    assert "deadbeef" not in text
    assert "alice" not in text
    assert next(iter(references)) in text


def shown(value: Any, part: dict[str, Any]) -> Any:
    """Return a record whose users also show a part, in whatever its format calls a user."""
    if isinstance(value, str):
        return json.dumps(shown(json.loads(value), part)) if value[:1] in "[{" and '"user"' in value else value
    if isinstance(value, list):
        return [shown(item, part) for item in value]
    if not isinstance(value, dict):
        return value
    for name in ("content", "parts"):
        held = value.get(name) if value.get("role") == "user" or value.get("type") in THEIRS else None
        if held and isinstance(held, str | list):
            said = held if isinstance(held, list) else [{"type": "text", "text": held}]
            return {**value, name: [*said, part]}
    return {name: shown(item, part) for name, item in value.items()}


THEIRS = ("human", "user.message")  # types of a user's messages without a role
# Readers of benchmarks and dumps whose messages are texts, and of logs without users: they have no parts.
TEXTS = {"antigravity", "areal", "atif", "chainlit", "continue_dev", "harbor", "intercode", "lm_eval", "opencode",
         "run_result", "skyrl", "star", "swebench_report", "swift", "tool_call_files", "tool_calls",
         "verl"}  # fmt: skip


@pytest.mark.slow
def test_no_reader_lets_bytes_through_and_each_keeps_the_reference(readers: Mapping[str, Reader]) -> None:
    worker = Worker(IngestConfig(), b"k" * 32, readers)
    kept: set[str] = set()
    parts = [PARTS[0][1], {"inline_data": {"mime_type": "image/png", "data": IMAGE}}]
    for name, logs in samples().items():
        held = 0
        for n, log in enumerate(logs):
            records = [shown(record, parts[n % 2]) for record in log.records]
            framed = [Record(i, value, json.dumps(value).encode(), (), i) for i, value in enumerate(records, 1)]
            payloads = worker.work([Segment("f", name, records=[*framed])]).events["payload"].to_list()
            assert not [text for text in payloads if IMAGE[:40] in text], name
            held += sum(f'"sha256":"{INLINE["sha256"]}"' in text for text in payloads)
        kept |= {name} if held else set()
    assert samples().keys() - kept == TEXTS


def test_a_screenshot_goes_from_a_log_to_its_step_as_a_reference(take: Take, tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "screenshot", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "what is on the screen?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "image_url", "image_url": {"url": SIGNED}}]},
        {"role": "assistant", "content": "a cat"},
        {"role": "user", "content": [{"type": "text", "text": "and here?"}, PARTS[0][1]]},
        {"role": "assistant", "content": "a dog"},
    ]
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"messages": history}) + "\n", encoding="utf-8")
    plain = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
    assert may_hold([json.dumps(plain).encode()]) == [False]
    assert may_hold([json.dumps(plain).encode(), b"\xff"]) == [True, True]
    _, steps = take(log).built()
    observed = [json.loads(text)[-1].get("attachments") for text in steps["observation"]]
    assert observed == [None, [LINKED], [INLINE]]
    assert "deadbeef" not in str(steps.rows())


def test_what_ollama_and_openinference_keep_beside_the_text_is_a_reference() -> None:
    place = "llm.input_messages.0.message.contents.1.message_content.image.image.url"
    for record in (
        {"messages": [{"role": "user", "content": "look", "images": [IMAGE]}]},
        {"attributes": {place: f"data:image/png;base64,{IMAGE}"}},
        {"attributes": [{"key": place, "value": {"stringValue": f"data:image/png;base64,{IMAGE}"}}]},
    ):
        value, references = without_contents(record)
        assert list(references.values()) == [INLINE]
        assert next(iter(references)) in json.dumps(value)


def test_the_type_of_a_spans_text_is_no_image_by_itself() -> None:
    typed = {"input.mime_type": "text/plain", "output.mime_type": "application/json"}
    pictured = [{"mime_type": "image/png"}, {"image.mime_type": "image/png"}, {"mimeType": "image/png"}]
    records = [typed, *({**typed, **more} for more in pictured), {"input": json.dumps(pictured[0])}]
    assert may_hold([json.dumps(record).encode() for record in records]) == [False, True, True, True, True]


def test_the_agents_own_objects_and_texts_are_left_as_they_are() -> None:
    listing = {"role": "tool", "content": json.dumps([{"type": "file", "name": "a.py", "url": "https://x.org/a.py"}])}
    page = {"type": "image", "image": {"type": "external", "external": {"url": "https://x.org/a.png"}}}
    call = {"function": {"name": "create_page", "arguments": {"children": [page]}}}
    style = "p { background: url(data:text/css;base64," + b64encode(b"body { color: red }" * 9).decode() + ") }"
    document = {"type": "document", "text": "words", "url": "https://x.org/a"}
    record = {"messages": [listing, {"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": style},
                           {"role": "user", "content": [document, {"type": "text", "text": "mime"}]}]}  # fmt: skip
    value, references = without_contents(record)
    assert value is record
    assert references == {}


def test_an_icon_in_a_page_is_a_mark_and_a_whole_value_a_reference() -> None:
    icon = f'<p>hi <img src="data:image/png;base64,{IMAGE}"></p>'
    value, references = without_contents({"content": icon})
    assert (references, IMAGE[:40] in str(value), "<p>hi <img src=" in str(value)) == ({}, False, True)
    for text in (IMAGE, f"data:image/png;base64,{IMAGE}", f"data:image/png;base64,{IMAGE}\n"):
        value, references = without_contents({"screenshot": text})
        assert list(references.values()) == [INLINE]
        assert value["screenshot"].startswith("[image ")


def test_of_messages_whose_json_was_cut_off_no_bytes_are_kept() -> None:
    cut = json.dumps([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG_URL}}]}])[:-4]
    value, _ = without_contents({"attributes": {"gen_ai.prompt": cut}})
    assert IMAGE[:64] not in json.dumps(value)


def test_a_record_that_is_nested_too_deeply_is_quarantined(take: Take, tmp_path: Path) -> None:
    event = {"conversation_id": "c", "kind": "request", "seq": 0, "payload": {"messages": []}}
    deep = f'{json.dumps(event)[:-1]}, "image": {"[" * 495}{"]" * 495}}}\n'
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(event)}\n{deep}")
    taken = take(cfg=IngestConfig(max_quarantine=1.0))
    assert taken.adds_up()
    assert taken.quarantined.height >= 1
