"""Harbor's results: a trial's rewards find the trial by its name, and what was not the agent's fault judges nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import BadRecordError, Sample
from flywheel.stages.ingest.readers.harbor import READER

JOB = Path(__file__).parents[3] / "fixtures" / "harbor"
TRIAL: dict[str, Any] = {
    "task_name": "order-eta", "trial_name": "order-eta__a1", "agent_info": {"name": "shop", "version": "1"},
    "verifier_result": {"rewards": {"reward": 1.0, "note": "x"}}, "exception_info": None,
    "started_at": "2026-10-01T09:00:00Z", "finished_at": "2026-10-01T09:00:05Z",
}  # fmt: skip


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_a_job_folder(take: Callable[..., Any]) -> None:
    taken = take(JOB, root=JOB)
    assert taken.quarantined.height == 0
    assert dict(taken.ignored) == {"nothing of an agent in it": 3}, "the job's counts and two configurations"
    assert taken.adds_up()
    assert set(taken.events["source_format"]) == {"atif", "harbor"}
    outcomes = taken.events.filter(kind="outcome")
    assert set(outcomes["target"]) == {"session:order-eta__a1"}, "a trial that the provider failed has no reward"
    assert set(outcomes["task_key"]) == {"harbor/shop/order-eta"}
    assert [p["name"] for p in taken.payloads() if p.get("source") == "verifier"] == ["reward", "polite"]


def test_a_trial_is_known_by_its_name() -> None:
    task, outcome = read(TRIAL)
    assert (task["conversation_id"], task["payload"]) == ("order-eta__a1", {"messages": []})
    assert outcome["conversation_id"] == outcome["target"] == "session:order-eta__a1"
    assert outcome["ts"].isoformat() == "2026-10-01T09:00:05+00:00"


@pytest.mark.parametrize(("kind", "judged"), [("AgentTimeoutError", True), ("SSHAccessError", False), ("New", False)])
def test_whose_failure_it_was(kind: str, judged: bool) -> None:  # noqa: FBT001 - a table's column
    assert len(read({**TRIAL, "exception_info": {"exception_type": kind}})) == 1 + judged
    step = {"step_name": "first", "exception_info": {"exception_type": kind}}
    assert len(read({**TRIAL, "step_results": [step]})) == 1 + judged


def test_steps_have_rewards_of_their_own() -> None:
    step = {"step_name": "first", "verifier_result": {"rewards": {"reward": 0.5}}}
    names = [e["payload"]["name"] for e in read({**TRIAL, "verifier_result": None, "step_results": [step]})[1:]]
    assert names == ["first/reward"]


def test_a_job_that_holds_its_trials() -> None:
    job = {"n_total_trials": 1, "stats": {}, "trial_results": [TRIAL, {"other": 1}]}
    assert [e["kind"] for e in read(job)] == ["request", "outcome"]
    assert read({"n_total_trials": 0, "stats": {}}) == []


def test_what_is_no_result_is_refused() -> None:
    refused: list[Any] = [[], {"task_name": "x"}, {**TRIAL, "trial_name": None}]
    for record in refused:
        with pytest.raises(BadRecordError):
            read(record)


def test_detection() -> None:
    assert READER.sniff(Sample("x", [TRIAL])) == 1
    assert READER.sniff(Sample("x", [{"task_name": "x", "reward": 1}, []])) == 0
