"""Chats as databases and data sets keep them: rows whose columns were opened, a thread's history, branches, lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from flywheel.extensions import BadRecordError
from flywheel.stages.ingest.readers.agents._platforms.talk import ways
from tests.stages.ingest.formats import FIXTURES, Sample, samples

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Take

COUNTS = {  # episodes, steps, calls, failed calls, opinions
    "message_rows/openai_agents_session": (1, 2, 1, 0, 0),
    "message_rows/crush": (1, 2, 1, 0, 0),
    "message_rows/llama_index_memory": (2, 2, 0, 0, 0),
    "transcripts/langgraph_history": (1, 2, 1, 0, 0),
    "transcripts/toolace": (1, 2, 2, 1, 0),
    "transcripts/hermes_python": (1, 2, 1, 0, 0),
    "platforms/chat_ui_again": (2, 3, 1, 0, 2),
    "platforms/libre_chat": (3, 5, 2, 1, 2),  # an answer asked for again, and a question put otherwise
    "message_files/ai_sdk_steps": (1, 3, 2, 1, 0),
    "message_files/letta_messages": (1, 4, 2, 1, 0),  # newest first, as its API lists them
    "message_files/autogen_stream": (1, 2, 1, 0, 0),
}


def sample_of(reader: str, shape: str) -> Sample:
    stored = json.loads((FIXTURES / "stored_chats.json").read_text(encoding="utf-8"))
    if shape in stored:
        return Sample(reader, shape, f"{reader}/{shape}.jsonl", stored[shape])
    return next(one for one in samples()[reader] if one.shape == shape)


@pytest.mark.parametrize("name", COUNTS)
def test_a_stored_chat_is_counted_exactly(name: str, tmp_path: Path, take: Take) -> None:
    reader, _, shape = name.partition("/")
    taken = take(sample_of(reader, shape).write(tmp_path))
    episodes, steps = taken.built()
    ends = [status for all_calls in steps["tool_status"].to_list() for status in all_calls or ()]
    opinions = taken.events.filter(pl.col("kind") == "feedback").height

    assert taken.quarantined.height == 0
    assert (episodes.height, steps.height, len(ends), ends.count("failed"), opinions) == COUNTS[name]
    assert int(episodes["n_tool_calls"].sum()) == len(ends)
    assert not any('"content":"I look' in action for action in steps["action"]), "a thought is read as words"


def test_the_states_of_a_thread_have_each_event_once(tmp_path: Path, take: Take) -> None:
    """Each state has the messages of those before it once more: a request, a call, its result and an answer in all."""
    events = take(sample_of("transcripts", "langgraph_history").write(tmp_path)).events
    assert events.height == 10
    assert events["event_id"].n_unique() == 4


def test_an_answer_that_was_asked_for_again_is_an_attempt_of_its_own(tmp_path: Path, take: Take) -> None:
    """Both answers follow the same question, and each has its own thumb."""
    events = take(sample_of("platforms", "chat_ui_again").write(tmp_path)).events
    rated = events.filter(pl.col("kind") == "feedback").select("conversation_id", "target").sort("target").rows()

    whole = "a" * 24
    assert rated == [(f"{whole}/ax", "response:ax"), (whole, "response:ay")]


def test_messages_that_follow_one_another_in_a_circle_are_refused() -> None:
    with pytest.raises(BadRecordError, match="circle"):
        ways({"a": "", "b": "c", "c": "b"}, "talk", lambda _: ([], []))


def test_a_long_chat_is_one_way_and_an_unnamed_one_stays_unnamed() -> None:
    long = {str(n): str(n - 1) for n in range(1, 20_000)}
    (talk,) = ways(long, None, lambda own: ([{"role": "user", "content": own}], []))
    assert (len(talk.turns), talk.conversation) == (19_999, None)
    assert [talk.conversation for talk in ways({"a": "", "b": "a", "c": "a"}, None, lambda _: ([], []))] == [None, None]
