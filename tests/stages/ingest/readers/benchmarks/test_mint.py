"""MINT results: code in text is a call, a solution is an answer, an expert's words are a user's, numbers collide."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl
import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.benchmarks.mint import READER

ASKED = {"role": "user", "content": "Solve tasks.\nTask:\nWhat is 6 times 7?"}
LEFT = "You have 4 steps left and 2 chances to propose solution left.\n"


def says(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": f"Assistant:\n{content}\n"}


def hears(observation: str, feedback: str = "") -> dict[str, str]:
    expert = f"\nExpert feedback:\n{feedback}\n" if feedback else ""
    return {"role": "user", "content": f"Observation:\n{observation}\n{LEFT}{expert}"}


def attempt(*turns: dict[str, str], **state: Any) -> dict[str, Any]:
    counter = {"prompt_tokens": 90, "completion_tokens": 40, "total_tokens": 130}
    return {
        "state": {"history": [ASKED, *turns], "success": False, "token_counter": counter, "error": None, **state},
        "task": {"task_name": "reasoning", "task_id": 0, "prompt": "What is 6 times 7?", "reference": "42"},
    }


ATTEMPT = attempt(
    says("<thought> I multiply. </thought>\n<execute>\nx = 6\n</execute>\n<execute>\nprint(x * 7)\n</execute>"),
    hears("42", "This is GOOD."),
    says("The answer is <solution> 42 </solution>."),
    success=True,
)


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_code_is_a_call_and_the_text_stays() -> None:
    events = read(ATTEMPT)
    assert [e["kind"] for e in events] == ["request", "model_call", "tool_result", "request", "model_call", "outcome"]
    message = events[1]["payload"]["message"]
    assert message["content"].startswith("<thought> I multiply.")
    assert [(c["name"], c["arguments"]) for c in message["tool_calls"]] == [("python", {"code": "x = 6\nprint(x * 7)"})]
    assert (events[2]["tool_name"], events[2]["payload"]) == ("python", {"content": f"42\n{LEFT}", "status": "ok"})
    assert events[3]["payload"]["messages"] == [{"role": "user", "content": "This is GOOD."}]
    assert events[4]["payload"] == {
        "message": {"role": "assistant", "content": "The answer is <solution> 42 </solution>."},
        "input_tokens": 90, "output_tokens": 40,
    }  # fmt: skip
    assert events[5]["payload"] == {"name": "success", "value": 1, "scale": [0, 1], "source": "recorded"}


@pytest.mark.parametrize(
    ("gave", "status"),
    [
        ("[Executed Successfully with No Output]", "ok"),
        ("Traceback (most recent call last)\n  File", "failed"),
        ("  Cell In[1], line 2\n    y =\nSyntaxError: invalid syntax", "failed"),
        ("I don't understand your input. \nIf you want", "failed"),
    ],
)
def test_a_shell_that_tells_every_error_tells_success_by_silence(gave: str, status: str) -> None:
    events = read(attempt(says("```python\ny = 1\n```"), hears(gave)))
    assert events[2]["payload"]["status"] == status


def test_a_reply_with_a_solution_runs_no_code() -> None:
    events = read(attempt(says("<execute>x</execute><solution>7</solution>"), hears("Your answer is wrong.")))
    assert [e["kind"] for e in events] == ["request", "model_call", "request", "outcome"]
    assert "tool_calls" not in events[1]["payload"]["message"]


def test_an_attempt_that_an_error_ended_says_so() -> None:
    assert read(attempt(says("hm"), error="InvalidRequestError"))[0]["payload"]["tags"] == ["ended_by_error"]
    assert [e["kind"] for e in read(attempt())] == ["request", "outcome"], "it ended before it began"


def test_the_policy_stands_in_the_path() -> None:
    alone = PurePosixPath("mint/qwen-7b/F=None/max5_p2+tool+cd/reasoning/math/results.jsonl.gz")
    assert READER.from_path(alone) == {"model": "qwen-7b", "policy": "qwen-7b", "scope": "qwen-7b"}
    helped = PurePosixPath("qwen-7b/F=gpt-4/PHF=no_GT-binary/max5/math/results.jsonl")
    assert READER.from_path(helped)["policy"] == "qwen-7b/F=gpt-4/PHF=no_GT-binary"
    assert READER.from_path(PurePosixPath("results.jsonl")) == {}


def test_detection_and_refusal(tmp_path: Path, take: Callable[..., Any]) -> None:
    assert READER.sniff(Sample("results.jsonl", [{"state": {}, "task": {}}])) == 0
    others: list[Any] = [[], {"state": {"history": []}}, {**ATTEMPT, "task": "none"}]
    for other in others:
        with pytest.raises(BadRecordError):
            read(other)
    folder = tmp_path / "qwen-7b" / "F=None" / "math"
    folder.mkdir(parents=True)
    (folder / "results.jsonl").write_text(json.dumps(ATTEMPT) + "\n", encoding="utf-8")
    taken = take()
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (1, 0, True)
    assert set(taken.events["policy"]) == {"qwen-7b"}
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert (episodes["stop_reason"].item(), steps["tool_status"].to_list()) == ("answered", [["ok"], []])


@pytest.mark.e2e
def test_the_real_attempts_have_their_known_counts(real: Callable[[str], Any]) -> None:
    taken = real("mint")
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (1914, 0, True)
    events = taken.events
    assert events.select(pl.col("conversation_id", "task_key", "policy").n_unique()).row(0) == (1912, 239, 8)
    won = pl.col("payload").str.json_path_match("$.value").cast(pl.Float64) >= 1
    outcomes = events.filter(pl.col("kind") == "outcome").with_columns(won=won)
    tasks = outcomes.group_by("task_key").agg(pl.col("won").sum(), n=pl.len())
    assert (outcomes["won"].sum(), set(tasks["n"])) == (401, {8})
    assert tasks.filter((pl.col("won") > 0) & (pl.col("won") < 8)).height == 143
    statuses = events.filter(pl.col("kind") == "tool_result")["payload"].str.json_path_match("$.status").value_counts()
    assert dict(statuses.iter_rows()) == {"ok": 2808, "failed": 2041}
