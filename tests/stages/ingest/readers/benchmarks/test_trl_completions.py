"""TRL's completion logs: what its trainer wrote, with Arrow's nulls, errors as Python wrote them, and repeated rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.benchmarks.trl_completions import READER

RUN = Path(__file__).parents[4] / "fixtures" / "trl"
ROW: dict[str, Any] = {"step": 3, "prompt": "Name a prime.", "completion": "7", "check": 1.0, "advantage": 0.5}


def read(record: Any, line: int = 1) -> list[dict[str, Any]]:
    return list(READER.read(record, line))


def test_what_the_trainer_wrote(take: Callable[..., Any]) -> None:
    taken = take(RUN / "shop-grpo" / "completions" / "completions_00010.parquet", root=RUN)
    assert (taken.read, dict(taken.ignored), taken.quarantined.height) == (4, {}, 0)
    assert taken.adds_up()
    assert set(taken.events["source_format"]) == {"trl_completions"}
    assert set(taken.events["policy"]) == {"shop-grpo@10"}
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert (episodes.height, episodes["task_id"].n_unique(), steps.height) == (4, 1, 6)
    statuses = {tuple(zip(n, s, strict=True)) for n, s in steps.select("tool_names", "tool_status").iter_rows()}
    assert statuses == {(("get_order", "failed"),), (("get_stock", "unknown"),), ()}
    calls = [c for p in taken.payloads() for c in p.get("message", {}).get("tool_calls", ())]
    assert [c["arguments"] for c in calls] == [{"id": 7}, {"item": "lamp"}], "Arrow's nulls are no arguments"


def test_rewards_are_told_from_what_was_logged_beside_them(take: Callable[..., Any]) -> None:
    taken = take(RUN / "shop-grpo" / "completions" / "completions_00010.parquet", root=RUN)
    outcomes = [p for p in taken.payloads() if p.get("source") == "recorded"]
    assert sorted((p["name"], p["value"]) for p in outcomes) == [
        ("polite_reward", 0.5), ("polite_reward", 1.0),
        ("solved_reward", 0.0), ("solved_reward", 0.0), ("solved_reward", 1.0), ("solved_reward", 1.0),
    ]  # fmt: skip
    assert {p["name"] for p in taken.payloads() if p.get("annotator") == "code"} == {"length", "advantage"}


def test_the_same_completions_under_a_later_step_are_the_same(take: Callable[..., Any]) -> None:
    both = [RUN / "shop-grpo" / "completions" / f"completions_000{step}.parquet" for step in (10, 11)]
    once, twice = take(both[0], root=RUN), take(*both, root=RUN)
    assert set(twice.events["event_id"]) == set(once.events["event_id"])
    assert once.events["conversation_id"].n_unique() == 4, "equal answers in one file are two attempts"


def test_plain_prompts(take: Callable[..., Any]) -> None:
    taken = take(RUN / "shop-grpo" / "completions" / "completions_00020.parquet", root=RUN)
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert (episodes.height, episodes["task_id"].n_unique(), steps.height) == (4, 2, 4)


def test_a_prompt_as_a_templates_text() -> None:
    prompt = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    told = read({**ROW, "prompt": prompt})[0]["payload"]["messages"]
    assert told == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]


def test_examples_in_the_prompt_are_no_acts() -> None:
    shown = [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "Prime."}]
    events = read({**ROW, "prompt": [*shown, {"role": "user", "content": "4?"}]})
    assert [(e["kind"], e["seq"]) for e in events][:2] == [("model_call", 3), ("outcome", 4)]


def test_the_only_column_of_numbers_is_the_reward() -> None:
    assert [(e["kind"], e["payload"]["name"]) for e in read(ROW)[2:]] == [
        ("outcome", "check"),
        ("feedback", "advantage"),
    ]
    assert [e["kind"] for e in read({**ROW, "check": None, "advantage": None})] == ["request", "model_call"]


def test_a_task_that_the_row_names() -> None:
    assert read({**ROW, "task_id": 7})[0]["task_key"] == "trl/7"
    assert read(ROW)[0]["task_key"] == read({**ROW, "completion": "8"})[0]["task_key"]


@pytest.mark.parametrize(
    ("path", "policy"),
    [
        ("runs/a/completions/completions_00010.parquet", "a@10"),
        ("a/completions_00010.parquet", "a@10"),
        ("completions/completions_00010.parquet", "completions@10"),
        ("completions_00010.parquet", "trl@10"),
        ("a/rows.parquet", None),
    ],
)
def test_the_policy_is_where_the_file_lies(path: str, policy: str | None) -> None:
    assert READER.from_path(PurePosixPath(path)).get("policy") == policy


def test_an_empty_completion_is_an_attempt_and_what_is_no_row_is_refused() -> None:
    nothing: Any
    for nothing in ([], None):
        events = read({**ROW, "completion": nothing})
        assert [e["kind"] for e in events[:2]] == ["request", "outcome"]
    refused: list[Any] = [[], {"prompt": "a"}, {**ROW, "completion": [{"role": "wizard"}]}]
    for record in refused:
        with pytest.raises(BadRecordError):
            read(record)


def test_detection() -> None:
    assert READER.sniff(Sample("x", [ROW])) == 1
    assert READER.sniff(Sample("x", [{"step": "3", "prompt": "a", "completion": "b"}])) == 0.8
    assert READER.sniff(Sample("x", [{"prompt": "a", "completion": "b", "reward": 1, "answer": "c"}, []])) == 0
