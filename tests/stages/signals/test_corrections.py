"""Edits find the step that they edited."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from flywheel.config import EpisodesConfig
from flywheel.contracts import conform, polars_schema
from flywheel.funnel import Funnel
from flywheel.records import Correction, LogEvent, canonical_json
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.signals.corrections import build_corrections


def event(seq: int, kind: str, payload: dict[str, Any], user: str | None = None) -> dict[str, Any]:
    return {
        "event_id": f"e{seq}", "seq": seq, "conversation_id": "c", "kind": kind, "payload": canonical_json(payload),
        "user": user, "ids": [], "source_format": "hand", "source_file": "f", "source_line": 1,
    }  # fmt: skip


TALK = [
    event(0, "request", {"messages": [{"role": "user", "content": "write"}]}),
    event(1, "model_call", {"message": {"role": "assistant", "content": "first"}, "response_id": "r1"}),
    event(2, "request", {"messages": [{"role": "user", "content": "more"}]}),
    event(3, "model_call", {"message": {"role": "assistant", "content": "second"}}),
]


def corrections(*feedback: dict[str, Any]) -> list[dict[str, Any]]:
    events = [*TALK, *(event(9 + n, "feedback", payload, "ann") for n, payload in enumerate(feedback))]
    frame = pl.DataFrame(events, schema=polars_schema(LogEvent))
    episodes, steps = build_episodes(frame, EpisodesConfig(), Funnel())
    return conform(build_corrections(episodes, steps, frame), Correction).collect().to_dicts()


@pytest.mark.parametrize(
    ("feedback", "expected"),
    [
        ({"name": "edit", "text": "FIRST", "target": "response", "target_id": "r1"}, (0, "FIRST")),
        ({"name": "edit", "text": "SECOND"}, (1, "SECOND")),
    ],
)
def test_an_edit_means_the_step_it_names_or_the_last_answer(
    feedback: dict[str, Any], expected: tuple[int, str]
) -> None:
    (row,) = corrections(feedback)
    assert (row["step"], row["text"], row["user"]) == (*expected, "ann")


def test_the_last_edit_counts_and_other_feedback_does_not() -> None:
    (row,) = corrections({"name": "edit", "text": "a"}, {"name": "edit", "text": "b"}, {"name": "copy", "text": "c"})
    assert row["text"] == "b"
    assert corrections({"name": "edit", "text": " "}) == corrections() == []
