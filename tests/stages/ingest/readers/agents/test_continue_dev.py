"""Continue's development data: a thumb is about the call that it repeats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Take

TALK = {"timestamp": "2026-10-01T09:00:00.000Z", "schema": "0.2.0", "sessionId": "s1",
        "prompt": "<user>\nWhere is order 7?", "completion": "In Turin.", "modelTitle": "m"}  # fmt: skip
EVENTS: dict[str, dict[str, Any]] = {
    "chatInteraction": {**TALK, "eventName": "chatInteraction"},
    "chatFeedback": {**TALK, "eventName": "chatFeedback", "feedback": False, "timestamp": "2026-10-01T09:00:07.000Z"},
}


@pytest.mark.parametrize("files", [["chatFeedback"], ["chatFeedback", "chatInteraction"]])
def test_a_thumb_has_its_call_with_it_and_with_the_talks_file_it_counts_once(
    files: list[str], tmp_path: Path, take: Take
) -> None:
    for name in files:
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(EVENTS[name]) + "\n", encoding="utf-8")
    episodes, steps = take().built()
    assert (episodes.height, steps.height) == (1, 1)
    (rating,) = [json.loads(p) for p in take().events.filter(kind="feedback")["payload"]]
    assert (rating["name"], rating["value"]) == ("thumbs", 0.0)
