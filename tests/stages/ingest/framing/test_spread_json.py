"""JSON over several lines between the lines of a program's log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Take

ASKED = {"role": "user", "content": "Where is order 7?\n}\nIt was sent on Monday."}
ANSWERED = {"role": "assistant", "content": "In Turin: {it} waits there."}


def call(n: int) -> dict[str, Any]:
    response = {
        "id": f"c{n}",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"message": ANSWERED, "index": 0}],
    }
    return {"request": {"model": "m", "messages": [{**ASKED, "content": f"{n}: {ASKED['content']}"}]},
            "response": response}  # fmt: skip


def shown(*values: dict[str, Any]) -> str:
    around = 'INFO:     127.0.0.1:57405 - "POST /chat HTTP/1.1" 200 OK\n'
    return around + "".join(f"INFO:app:Call: {json.dumps(value, indent=2)}\n{around}" for value in values)


def test_objects_that_a_logger_prints_with_an_indent_are_records(tmp_path: Path, take: Take) -> None:
    (tmp_path / "app.log").write_text(shown(call(1), call(2)), encoding="utf-8")
    taken = take(tmp_path / "app.log")
    assert [payload["message"]["content"] for payload in taken.payloads()] == [ANSWERED["content"]] * 2
    assert dict(taken.ignored) == {"other lines of a program's log": 3}
    assert taken.adds_up()


def test_an_object_that_is_cut_or_no_json_is_refused(tmp_path: Path, take: Take) -> None:
    cut = shown(*map(call, range(40)), call(40)).rsplit("\n}\n", 1)[0]
    broken = cut.replace('"7: Where', "7: Where")
    (tmp_path / "app.log").write_text(broken, encoding="utf-8")
    taken = take(tmp_path / "app.log")
    assert taken.events.height == 39
    assert sorted(taken.quarantined["reason"].to_list()) == ["bad_json", "truncated"]


def test_a_program_is_no_log(tmp_path: Path, take: Take) -> None:
    """Its blocks open and close as objects do, and are no JSON."""
    (tmp_path / "app.log").write_text("export function main() {\n  run({ messages: [] });\n}\n", encoding="utf-8")
    taken = take(tmp_path / "app.log")
    assert taken.quarantined["reason"].to_list() == ["unknown_format"]
