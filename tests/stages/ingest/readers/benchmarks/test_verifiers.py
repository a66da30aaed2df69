"""verifiers rollouts: calls as JSON strings, results without ids, colliding ids, the policy in a file beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import BadRecordError, Sample
from flywheel.stages.ingest.readers.benchmarks.verifiers import READER

QUESTION = {"role": "user", "content": "Who isolated tungsten?"}
SCHEMA = {"type": "function", "function": {"name": "search", "parameters": {"properties": {"q": {}, "page": None}}}}


def call(name: str, number: int) -> str:
    function = {"name": name, "arguments": json.dumps({"q": name})}
    return json.dumps({"id": f"c{number}", "type": "function", "function": function})


RUN: dict[str, Any] = {
    "example_id": 6,
    "task": "default",
    "prompt": [{"role": "system", "content": "Search first."}, QUESTION],
    "completion": [
        {"role": "assistant", "content": "", "tool_calls": [call("search", 1), call("read", 2)]},
        {"role": "tool", "content": "found", "tool_calls": None},
        {"role": "tool", "content": "Error: no such page", "tool_calls": None},
        {"role": "assistant", "content": "Two brothers.", "tool_calls": None},
    ],
    "info": {"oai_tools": [SCHEMA]},
    "answer": "two brothers",
    "reward": 1.0,
    "total_ms": 12.5,
}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_a_rollout_is_a_conversation_with_its_reward() -> None:
    events = read(RUN)
    assert [e["kind"] for e in events] == [
        "request", "model_call", "tool_result", "tool_result", "model_call", "outcome",
    ]  # fmt: skip
    assert [c["arguments"] for c in events[1]["payload"]["message"]["tool_calls"]] == [{"q": "search"}, {"q": "read"}]
    assert [(e["tool_call_id"], e["tool_name"], e["payload"]["status"]) for e in events[2:4]] == [
        ("c1", "search", "unknown"),
        ("c2", "read", "failed"),
    ]
    assert events[-1]["payload"] == {"name": "reward", "value": 1.0, "scale": [0, 1], "source": "recorded"}


def test_nulls_that_arrow_filled_in_are_no_schema() -> None:
    (tool,) = read(RUN)[0]["payload"]["tools"]
    assert tool["function"]["parameters"] == {"properties": {"q": {}}}


def test_a_task_is_its_question_and_a_rollout_all_that_its_record_holds() -> None:
    other_system = {**RUN, "prompt": [{"role": "system", "content": "Be brief."}, QUESTION]}
    other_question = {**RUN, "prompt": [{"role": "user", "content": "Who found radium?"}]}
    later = {**RUN, "total_ms": 99.0}
    tasks = [read(r)[0]["task_key"] for r in (RUN, other_system, other_question, later)]
    assert tasks[0] == tasks[1] == tasks[3] != tasks[2]
    assert len({read(r)[0]["conversation_id"] for r in (RUN, other_system, other_question, later)}) == 4


def test_plain_text_environments() -> None:
    events = read({**RUN, "prompt": "1 + 1?", "completion": "2", "info": {}})
    assert [e["kind"] for e in events] == ["request", "model_call", "outcome"]
    assert events[1]["payload"]["message"]["content"] == "2"


def test_tasks_with_equal_prompts_are_told_apart_by_what_the_log_says_of_them() -> None:
    def task(**changed: Any) -> str:
        return str(read({**RUN, "info": {}, "answer": "", **changed})[0]["task_key"])

    answers = {task(answer=word) for word in ("crane", "slate")}
    described = {task(info={"seed": seed, "oai_tools": []}) for seed in (1, 2)}
    numbered = {task(example_id=number) for number in (1, 2)}
    assert [len(names) for names in (answers, described, numbered)] == [2, 2, 2]
    assert task(answer="crane", example_id=1) == task(answer="crane", example_id=2), "a number of a row, in each run"
    assert task(info='{"seed": 1, "oai_tools": []}') in described, "as JSON text too"


def test_what_never_began_is_an_attempt_and_what_is_no_rollout_is_refused() -> None:
    assert [e["kind"] for e in read({**RUN, "completion": []})] == ["request", "outcome"]
    others: list[Any] = [[], {"prompt": []}, {**RUN, "completion": [{"role": "wizard"}]}]
    for other in others:
        with pytest.raises(BadRecordError):
            read(other)


def test_detection() -> None:
    assert READER.sniff(Sample("results.jsonl", [RUN])) == 1
    assert READER.sniff(Sample("x.jsonl", [{"prompt": "a", "completion": "b"}])) == 0


@pytest.mark.parametrize(
    ("beside", "policy"),
    [
        ('{"env_id": "wiki", "model": "gpt-5"}', "gpt-5"),
        ('{"model": "gpt-5"}', None),
        ('{"env_id": "wiki", "model"', None),
        ("[]", None),
        (None, None),
    ],
    ids=["of the run", "of something else", "cut", "no object", "none"],
)
def test_the_policy_stands_beside_the_results(
    beside: str | None, policy: str | None, tmp_path: Path, take: Callable[..., Any]
) -> None:
    (tmp_path / "results.jsonl").write_text(json.dumps(RUN) + "\n")
    if beside is not None:
        (tmp_path / "metadata.json").write_text(beside)
    taken = take(tmp_path / "results.jsonl", root=tmp_path)
    assert set(taken.events["policy"]) == set(taken.events["model"]) == {policy}


def test_the_file_beside_is_counted_not_quarantined(tmp_path: Path, take: Callable[..., Any]) -> None:
    (tmp_path / "results.jsonl").write_text(json.dumps(RUN) + "\n")
    (tmp_path / "metadata.json").write_text('{"env_id": "wiki", "model": "gpt-5"}')
    taken = take(tmp_path, root=tmp_path)
    assert (taken.read, dict(taken.ignored), taken.quarantined.height) == (2, {"metadata of a run": 1}, 0)
    assert taken.adds_up()


@pytest.mark.parametrize(
    ("folder", "counts"),
    [
        ("verifiers-wiki-search", {"runs": 579, "tasks": 74, "policies": 9}),
        ("prime-environments", {"runs": 150, "tasks": 10, "policies": 2}),
    ],
)
def test_the_real_runs_have_their_known_counts(folder: str, counts: dict[str, int], real: Callable[[str], Any]) -> None:
    taken = real(folder)
    assert taken.quarantined.height == 0
    assert taken.adds_up()
    events = taken.events
    assert events["conversation_id"].n_unique() == counts["runs"]
    assert events["task_key"].n_unique() == counts["tasks"]
    assert events["policy"].n_unique() == counts["policies"]
    named = events.filter(kind="tool_result")["tool_name"]
    assert named.null_count() == 0, "every result found its call"
