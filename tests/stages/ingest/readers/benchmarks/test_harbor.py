"""Harbor's results: a trial's rewards find the trial by its name, and what was not the agent's fault judges nobody."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import RewardsConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.pipeline.build.registry import LINK_COLUMNS
from flywheel.stages.conversations.link import build_links, follow_links
from flywheel.stages.ingest.readers.benchmarks.harbor import READER
from flywheel.stages.signals.outcome import outcome

JOB = Path(__file__).parents[4] / "fixtures" / "harbor"
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


def test_a_trials_rewards_are_its_trajectorys(take: Callable[..., Any]) -> None:
    taken = take(JOB, root=JOB)
    episodes, steps = taken.built()
    links = build_links(taken.events.select(LINK_COLUMNS), Funnel())
    events = follow_links(taken.events.lazy(), links).collect()
    cfg = RewardsConfig()
    judged = outcome(episodes, steps, events, cfg).join(episodes, on="episode_id")
    assert judged["conversation_id"].to_list() == ["atif/run-1"], "its agent's, no helper's"
    tasks = dict(episodes.select("conversation_id", "task_rule").iter_rows())
    assert tasks == {"atif/run-1": "task_key", "atif/run-1/helper": "first_request", "atif/run-2": "task_key"}
    assert (links["state"] == "joined").all()


def test_a_simulated_users_run_is_not_the_agents(tmp_path: Path, take: Callable[..., Any]) -> None:
    shutil.copytree(JOB / "order-eta__a1", tmp_path / "order-eta__a1")
    before = take()
    shutil.copytree(tmp_path / "order-eta__a1" / "agent", tmp_path / "order-eta__a1" / "user-agent")
    taken = take()
    assert taken.ignored["a simulated user's own run"] == 1
    assert taken.adds_up()
    assert taken.events.drop("source_file").equals(before.events.drop("source_file"))


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
