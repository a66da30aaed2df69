"""Sessions of Kimi Code: an act a step, whose pieces are lines of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flywheel.extensions import Sample
from flywheel.stages.ingest.readers.agents.kimi_code import READER
from tests.stages.ingest.formats import samples

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Take


def test_a_session_is_an_episode(tmp_path: Path, take: Take) -> None:
    (sample,) = samples()["kimi_code"]
    taken = take(sample.write(tmp_path))
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    episodes, steps = taken.built()
    (made,) = episodes.to_dicts()
    assert (made["n_steps"], made["n_tool_errors"], made["model"]) == (2, 1, "kimi-k2.5")
    assert (made["input_tokens"], made["output_tokens"]) == (100 + 130, 12 + 8)
    assert json.loads(made["tools"])[0]["function"]["name"] == "Find"
    first, second = steps.sort("index").to_dicts()
    assert json.loads(first["action"]) == {
        "role": "assistant", "content": "I look it up.", "reasoning": "Look it up.",
        "tool_calls": [{"id": "call_1", "name": "Find", "arguments": {"id": 7}}],
    }  # fmt: skip
    seen = json.loads(first["observation"])
    assert [message["role"] for message in seen] == ["system", "system", "user"], "once, and no words of a user's"
    assert [message["content"] for message in json.loads(second["observation"])] == ["no order 7"]


def test_what_a_session_goes_on_from_is_read() -> None:
    earlier = {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}
    (event,) = READER.read({"type": "context.append_message", "message": earlier, "time": 1785116249478}, 3)
    assert event["payload"]["message"]["content"] == "Done."


@pytest.mark.parametrize("line", [{"type": "metadata"}, {"type": "message", "message": {}}, {"type": "turn.prompt"}])
def test_lines_of_other_programs_are_none(line: dict[str, object]) -> None:
    assert READER.sniff(Sample("x.jsonl", [line])) == 0
