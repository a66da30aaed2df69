"""Sessions of Google Antigravity: answers with calls, results in their order, what a user wrote, its longer copy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.extensions import BadRecordError, Sample
from flywheel.stages.conversations.thread import follow_threads
from flywheel.stages.ingest.readers.agents.antigravity import READER

SESSION = "0b4e7d1e-0000-4000-8000-00000000000f"
ADDED = "<USER_SETTINGS_CHANGE>\nThe user changed setting `Model Selection` from None to Gemini 3.1 Pro (High). No need"


def step(number: int, source: str, kind: str, content: str = "", **more: Any) -> dict[str, Any]:
    at = f"2026-10-01T09:00:{number:02}Z"
    return {"step_index": number, "source": source, "type": kind, "status": "DONE", "created_at": at,
            "content": content, **more}  # fmt: skip


CALL = {"name": "write_to_file", "args": {"TargetFile": '"a.md"', "Overwrite": "true", "toolSummary": "plain words"}}
RAN = "Created At: 2026-10-01T09:00:03Z\nCompleted At: 2026-10-01T09:00:04Z\n"
STEPS = [
    step(0, "USER_EXPLICIT", "USER_INPUT", f"<USER_REQUEST>\nPlan it.\n</USER_REQUEST>\n{ADDED}"),
    step(1, "SYSTEM", "CONVERSATION_HISTORY"),
    step(2, "MODEL", "PLANNER_RESPONSE", "I write a plan.", tool_calls=[CALL], thinking="A plan first."),
    step(3, "MODEL", "CODE_ACTION", f"{RAN}Created a.md"),
    step(4, "MODEL", "PLANNER_RESPONSE", "Done."),
]


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_a_session_and_its_longer_copy_are_an_episode(take: Callable[..., Any], tmp_path: Path) -> None:
    assert READER.sniff(Sample("x.jsonl", STEPS)) == 1
    logs = tmp_path / "brain" / SESSION / ".system_generated" / "logs"
    logs.mkdir(parents=True)
    for name in ("transcript.jsonl", "transcript_full.jsonl"):
        (logs / name).write_text("".join(json.dumps(one) + "\n" for one in STEPS), encoding="utf-8")
    taken = take(tmp_path / "brain")
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    episodes, steps = taken.built()
    assert (episodes["n_tool_calls"].to_list(), episodes["stop_reason"].to_list()) == ([1], ["answered"])
    assert steps.height == 2


def test_a_step_whose_number_comes_again_was_gone_back_to(take: Callable[..., Any], write: Callable[..., Path]) -> None:
    again = [step(2, "USER_EXPLICIT", "USER_INPUT", "<USER_REQUEST>Write it.</USER_REQUEST>"),
             step(3, "MODEL", "PLANNER_RESPONSE", "Written.")]  # fmt: skip
    later = [one | {"created_at": f"2026-10-01T10:00:0{n}Z"} for n, one in enumerate(again)]
    write("transcript.jsonl", [*STEPS, *later])
    said = follow_threads(take().events).filter(pl.col("kind") == "model_call")
    counts = said.group_by("conversation_id").len()["len"]
    assert sorted(counts) == [1, 2]


def test_what_a_user_wrote_is_apart_from_what_was_added() -> None:
    chosen, asked = read(STEPS[0])
    assert (chosen["model"], chosen["payload"]["messages"]) == ("Gemini 3.1 Pro (High)", [])
    assert asked["payload"]["messages"] == [
        {"role": "user", "content": "Plan it."},
        {"role": "system", "content": ADDED},
    ]


def test_arguments_are_opened_and_times_are_no_result() -> None:
    (answer,), (result,) = read(STEPS[2]), read(STEPS[3])
    (call,) = answer["payload"]["message"]["tool_calls"]
    assert call["arguments"] == {"TargetFile": "a.md", "Overwrite": True, "toolSummary": "plain words"}
    assert answer["payload"]["message"]["reasoning"] == "A plan first."
    assert result["payload"] == {"content": "Created a.md", "status": "unknown", "position": 3}
    ended = {"The command completed successfully.\nok": "ok", "The command failed with exit code: 1\nno": "failed"}
    for shown, status in ended.items():
        assert read(STEPS[3] | {"content": RAN + shown})[0]["payload"]["status"] == status
    assert read(STEPS[3] | {"status": "ERROR"})[0]["payload"]["status"] == "failed"


def test_what_is_no_step_is_refused() -> None:
    assert read(STEPS[1]) == []
    broken: list[Any] = [{}, STEPS[0] | {"step_index": None}, STEPS[0] | {"type": 3}]
    for record in broken:
        with pytest.raises(BadRecordError):
            read(record)
