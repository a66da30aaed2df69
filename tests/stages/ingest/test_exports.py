"""What observability, analytics and workflow tools export, counted by hand: two sessions, one of which fails.

Each export has a good call, a failing call and two answers, written after the tool's published shape; the records are
in `fixtures/formats`. Counted are conversations, steps, calls, results, failures, tokens, and feedback with outcomes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from tests.stages.ingest.formats import samples

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Take, Taken

CALLS = (2, 4, 2, 2, 1)  # conversations, steps, calls, results, failed
TALK = (2, 2, 0, 0, 0)
ALL, NONE = (440, 42), (0, 0)  # tokens in and out
COUNTS = {
    "span_rows/braintrust": (*CALLS, *ALL, 2),
    "span_rows/braintrust_langchain": (*CALLS, *ALL, 2),
    "span_rows/braintrust_responses": (*CALLS, *ALL, 2),
    "span_rows/braintrust_experiment": (1, 2, 1, 1, 0, 230, 22, 1),
    "span_rows/datadog": (*CALLS, *ALL, 2),
    "span_rows/datadog_sent": (*CALLS, *ALL, 0),
    "span_rows/posthog": (*CALLS, *ALL, 2),
    "span_rows/posthog_langgraph": (*CALLS, *ALL, 2),
    "span_rows/lunary": (*CALLS, *ALL, 2),
    "span_rows/honeyhive": (*CALLS, *ALL, 4),
    "span_rows/galileo": (*CALLS, *ALL, 0),
    "span_rows/galileo_records": (*CALLS, *ALL, 0),
    "span_rows/langwatch": (*CALLS, *ALL, 0),
    "otel/logfire_events": (*CALLS, *ALL, 0),
    "otel/logfire_messages": (1, 2, 1, 1, 0, 230, 22, 0),
    "otel/langtrace_attributes": (*CALLS, *ALL, 0),
    "phoenix/arize_ax": (*CALLS, *ALL, 2),
    "weave/columns": (*CALLS, *ALL, 0),
    "adk/agent_engine": (*CALLS, *NONE, 0),
    "platforms/dify": (*CALLS, *NONE, 2),
    "platforms/dify_console": (*CALLS, *ALL, 2),
    "platforms/flowise": (*CALLS, *NONE, 2),
    "platforms/flowise_rows": (*CALLS, *NONE, 0),
    "platforms/flowise_everything": (*CALLS, *NONE, 2),
    "platforms/langflow": (*CALLS, *NONE, 2),
    "platforms/anythingllm": (*TALK, *ALL, 2),
    "platforms/fastgpt": (*CALLS, *NONE, 2),
    "platforms/ragflow": (*CALLS, *NONE, 2),
    "platforms/chat_ui": (*CALLS, *NONE, 2),
    "platforms/n8n": (*CALLS, *ALL, 0),
    "platforms/rasa": (2, 4, 2, 2, 0, *NONE, 0),
    "platforms/botpress": (*TALK, *NONE, 0),
    "platforms/copilot_studio": (*TALK, *NONE, 4),
    "platforms/copilot_studio_plan": (*CALLS, *NONE, 4),
    "platforms/bot_framework": (*TALK, *NONE, 0),
    "platforms/bedrock": (*CALLS, *ALL, 0),
    "platforms/voiceflow": (2, 4, 0, 0, 0, *NONE, 0),
    "platforms/intercom": (*TALK, *NONE, 2),
    "platforms/azure": (*CALLS, *NONE, 0),
    "platforms/azure_scored": (*CALLS, *NONE, 2),
}
TOLD = {"What is the weather in Rome today?", "Where is my order 7?"}
SAID = {"It is 21 degrees in Rome.", "I could not find order 7."}


def counted(taken: Taken) -> tuple[int, ...]:
    episodes, steps = taken.built()
    ends = [status for all_calls in steps["tool_status"].to_list() for status in all_calls or ()]
    tokens = (int(episodes[name].sum() or 0) for name in ("input_tokens", "output_tokens"))
    opinions = taken.events.filter(pl.col("kind").is_in(["feedback", "outcome"])).height
    calls = int(episodes["n_tool_calls"].sum())
    return episodes.height, steps.height, calls, len(ends), ends.count("failed"), *tokens, opinions


@pytest.mark.parametrize("name", COUNTS)
def test_an_export_is_counted_exactly(name: str, tmp_path: Path, take: Take) -> None:
    reader, _, shape = name.partition("/")
    (sample,) = (one for one in samples()[reader] if one.shape == shape)
    taken = take(sample.write(tmp_path))
    assert taken.quarantined.height == 0
    assert counted(taken) == COUNTS[name]
    _, steps = taken.built()
    acts = "".join(steps["action"])
    assert sum(words in acts for words in SAID) == COUNTS[name][0]
    assert sum(words in "".join(steps["observation"]) for words in TOLD) == COUNTS[name][0]


HUMAN = {
    "a ticket": {
        "id": 1,
        "requester_id": 1,
        "comments": [{"author_id": 1, "body": "Help"}, {"author_id": 2, "body": "Done"}],
    },
    "a channel": {"type": "message", "user": "U01", "text": "Is it open today?", "ts": "1790848800.0001"},
    "a bot in a channel": {
        "type": "message",
        "subtype": "bot_message",
        "bot_id": "B01",
        "text": "Yes.",
        "ts": "1790848801.0001",
    },
    "a guild": {
        "guild": {"id": "1"},
        "messages": [{"content": "Hi", "author": {"id": "1", "name": "kim", "isBot": False}}],
    },
    "a run of a workflow": {"data": [{"id": "l", "workflow_run": {"id": "r", "status": "failed", "total_tokens": 2}}]},
    "right answers": {"inputs.query": "2+2", "inputs.response": "4", "inputs.ground_truth": "4", "line_number": 0},
}


@pytest.mark.parametrize("name", HUMAN)
def test_what_people_wrote_to_one_another_is_set_aside(name: str, tmp_path: Path, take: Take) -> None:
    import json

    (tmp_path / "x.jsonl").write_text(json.dumps(HUMAN[name]) + "\n")
    taken = take()
    assert (taken.events.height, taken.quarantined["reason"].to_list()) == (0, ["unknown_format"])
