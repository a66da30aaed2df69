"""YAML: recordings of HTTP, and what programs write as YAML."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from flywheel.stages.ingest.framing.yaml_documents import YamlError, yaml_values
from tests.stages.ingest.conftest import Take, calls

MOST = 100_000
ASKED = {"role": "user", "content": "Where is order 7?"}
CALL = {"type": "tool_use", "id": "t1", "name": "find_order", "input": {"order": 7}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "in Turin"}


def message(content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": f"msg_{len(str(content))}", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 3}}  # fmt: skip


EXCHANGES = [
    ({"model": "m", "max_tokens": 9, "messages": [ASKED]}, message([CALL])),
    (
        {
            "model": "m",
            "max_tokens": 9,
            "messages": [ASKED, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT]}],
        },
        message([{"type": "text", "text": "It is in Turin."}]),
    ),
]


def parsed(body: dict[str, Any]) -> dict[str, Any]:
    return {"parsed_body": body}


def as_text(body: dict[str, Any]) -> dict[str, Any]:
    return {"body": {"string": json.dumps(body)}}


def packed(body: dict[str, Any]) -> dict[str, Any]:
    return {"body": {"string": gzip.compress(json.dumps(body).encode(), mtime=0)}}


def rubys(body: dict[str, Any]) -> dict[str, Any]:
    return {"body": {"encoding": "UTF-8", "string": json.dumps(body)}}


@pytest.mark.parametrize(("field", "form"), [
    ("interactions", parsed), ("interactions", as_text), ("interactions", packed), ("http_interactions", rubys),
])  # fmt: skip
def test_a_cassette_is_the_calls_that_it_recorded(tmp_path: Path, take: Take, field: str, form: Any) -> None:
    recorded = [
        {
            "request": {"method": "POST", "uri": "https://api.anthropic.com/v1/messages", "headers": {}, **form(asked)},
            "response": {"status": {"code": 200, "message": "OK"}, "headers": {}, **form(answered)},
        }
        for asked, answered in EXCHANGES
    ]
    path = tmp_path / "cassette"  # known by how it begins
    path.write_text(yaml.safe_dump({field: recorded, "version": 1}), encoding="utf-8")
    taken = take(path)
    assert calls(taken) == [("find_order", {"order": 7})]
    assert taken.events["conversation_id"].n_unique() == 1
    assert taken.payloads()[-1]["message"]["content"] == "It is in Turin."
    assert taken.adds_up()


def test_talks_in_yaml_are_read_as_talks_in_json_are(tmp_path: Path, take: Take) -> None:
    talks = [
        {"id": str(n), "messages": [ASKED, {"role": "assistant", "content": f"In Turin, shelf {n}."}]} for n in range(3)
    ]
    (tmp_path / "talks.json").write_text(json.dumps(talks), encoding="utf-8")
    (tmp_path / "talks.yml").write_text(yaml.safe_dump_all(talks), encoding="utf-8")
    (tmp_path / "list.yaml").write_text(yaml.safe_dump(talks), encoding="utf-8")
    payloads = [take(tmp_path / name).payloads() for name in ("talks.json", "talks.yml", "list.yaml")]
    assert payloads[0]
    assert payloads[0] == payloads[1] == payloads[2]


def test_a_recording_in_yaml_is_no_log_of_a_program(tmp_path: Path, take: Take) -> None:
    """Its streamed answers are JSON behind a word in each line, as a program's log has them."""
    piece = {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
    body = "\n\n        ".join([f"data: {json.dumps(piece)}"] * 3)
    path = tmp_path / "cassette.yaml"
    path.write_text(f"interactions:\n- response:\n    body:\n      string: '{body}\n'\n", encoding="utf-8")
    assert take(path).events.is_empty()


def test_only_what_json_has_is_understood() -> None:
    text = """
a: !!python/object/apply:os.system ["true"]
b: yes
c: 2026-01-01
d: 012
e: 1.5e3
f: "1"
g: ~
h:
i: 7
j: .inf
? [1, 2]
: list
"""
    assert list(yaml_values(text.encode(), MOST)) == [{
        "a": ["true"], "b": "yes", "c": "2026-01-01", "d": "012", "e": 1500.0, "f": "1", "g": None, "h": None, "i": 7,
        "j": ".inf", "[1, 2]": "list",
    }]  # fmt: skip


def test_bytes_that_are_no_text_stay_as_they_are_written() -> None:
    broken, words = (base64.b64encode(held).decode() for held in (b"\x1f\x8b broken", b"words"))
    text = f"a: !!binary {broken}\nb: !!binary {words}"
    assert list(yaml_values(text.encode(), MOST)) == [{"a": broken, "b": "words"}]


def packed_bytes(size: int, *, cut: int = 0) -> bytes:
    held = gzip.compress(b"x" * size, mtime=0)
    return b"a: !!binary " + base64.b64encode(held[: len(held) - cut])


def test_packed_bytes_that_are_cut_stay_as_they_are_written() -> None:
    ((name, value),) = next(iter(yaml_values(packed_bytes(5000, cut=9), MOST))).items()
    assert (name, value[:4]) == ("a", "H4sI")


BOMB = b"a: &a [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + n, 98 + n, b", ".join([b"*%c" % (97 + n)] * 10)) for n in range(9)
)


@pytest.mark.parametrize(("text", "why"), [
    (BOMB, "more than ingest.max_record_mb allows"),
    (b"a: &a [*a]", "refers to itself"),
    (packed_bytes(MOST + 1), "once they are unpacked"),
    (packed_bytes(MOST // 2) + b"\n" + packed_bytes(MOST // 2).replace(b"a:", b"b:"), "ingest.max_record_mb"),
    (b"[" * 10_000, "nested deeper|not YAML"),
    (b"".join(b" " * n + b"a:\n" for n in range(300)), "nested deeper"),
    (b"key: value: secret\n", "not YAML from line 1 on"),
    (b"a: \x00", "characters that YAML does not allow"),
    (b"a: \xff\xfe", "characters that YAML does not allow"),
])  # fmt: skip
def test_what_is_hostile_or_broken_is_refused_without_its_words(text: bytes, why: str) -> None:
    with pytest.raises(YamlError, match=why) as refusal:
        list(yaml_values(text, MOST))
    assert "secret" not in str(refusal.value)


def test_a_setting_file_among_logs_is_set_aside_with_its_fields(tmp_path: Path, take: Take) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("model: m\nworkers: 4\n", encoding="utf-8")
    taken = take(path)
    assert taken.events.is_empty()
    assert taken.quarantined["reason"].to_list() == ["unknown_format"]


def test_a_streamed_answer_of_gemini_in_a_cassette_is_put_together(tmp_path: Path, take: Take) -> None:
    address = "https://generativelanguage.googleapis.com/v1beta/models/gemini-3:streamGenerateContent?alt=sse"
    call = {"functionCall": {"name": "find_order", "args": {"order": 7}}}
    chunks = [{"candidates": [{"content": {"role": "model", "parts": [part]}}], "modelVersion": "gemini-3"}
              for part in (call, {"text": "I look "}, {"text": "it up."})]  # fmt: skip
    recorded = {
        "request": {
            "body": json.dumps({"contents": [{"role": "user", "parts": [{"text": "Where?"}]}]}),
            "url": address,
        },
        "response": {"body": "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks), "code": 200},
    }
    path = tmp_path / "cassette.yaml"
    path.write_text(yaml.safe_dump({"version": 2, "interactions": [recorded]}), encoding="utf-8")
    taken = take(path)
    assert calls(taken) == [("find_order", {"order": 7})]
    assert taken.payloads()[-1]["message"]["content"] == "I look it up."
    assert set(taken.events["model"]) == {"gemini-3"}
