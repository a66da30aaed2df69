"""200 real attempts at 50 airline tasks: what the held-out fifth gives to judge on, and what it may prove."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from flywheel.config import EvalConfig, GateConfig
from flywheel.extensions import Holdout, load_extensions
from flywheel.pipeline.build.registry import stage_of
from flywheel.project import Project
from flywheel.records import Split, Verdict, canonical_json
from flywheel.stages.evaluate.cases import state_cases
from flywheel.stages.evaluate.compare import build_report
from flywheel.stages.evaluate.suites.next_action import next_action
from flywheel.stages.gate import decide
from tests.policies import LogReplay
from tests.reports import given_input


@pytest.fixture(scope="module")
def holdout(tau_airline: Path, tmp_path_factory: pytest.TempPathFactory) -> Holdout:
    project = Project(tmp_path_factory.mktemp("airline"))
    project.ingest([tau_airline])
    project.build()
    tables = {t: project.store.table(t, stage_of(t)).collect() for t in ("episodes", "steps", "returns", "pairs")}
    episodes = tables["episodes"].filter(pl.col("split") == Split.HOLDOUT.value)
    held = {name: frame.join(episodes, on="task_id", how="semi") for name, frame in tables.items()}
    return Holdout(episodes, held["steps"], held["returns"], held["pairs"], project.folder)


@pytest.mark.e2e
def test_the_cases(holdout: Holdout) -> None:
    calling = holdout.steps.filter(pl.col("action_key").is_not_null())
    cases = state_cases(holdout, 1_000)

    assert (holdout.episodes["task_id"].n_unique(), holdout.episodes.height) == (12, 48)
    assert calling["state_key"].n_unique() == 119
    assert (len(cases), len({c.task_id for c in cases})) == (30, 7)  # no attempt at the other five succeeded
    assert sum(len(c.good) > 1 for c in cases) == 7
    assert sum(bool(c.bad) for c in cases) == 3


@pytest.mark.e2e
def test_thirty_won_cases_of_seven_tasks_are_seven_wins(holdout: Holdout) -> None:
    shown = {
        canonical_json(case.prompt): {"role": "assistant", "tool_calls": next(iter(case.good.values()))[0]}
        for case in state_cases(holdout, 1_000)
    }
    replay, silent = (next_action(LogReplay(actions), holdout, EvalConfig()) for actions in (shown, {}))
    report = build_report(
        candidate={"next_action": replay},
        baseline={"next_action": silent},
        round_number=2,
        baseline_name="base",
        candidate_sha256="adapter 2",
        baseline_sha256="",
        cases_sha256="c",
        trained_tasks=(),
    )
    head = report.metrics[0]
    gate = GateConfig()
    decision = decide(given_input(report), load_extensions("gates", gate.rules), gate)

    assert (head.metric, head.n, head.n_tasks, head.wins, head.losses) == ("next_action_good", 30, 7, 30, 0)
    assert head.p_better == 2.0**-7
    assert decision.verdict == Verdict.INCONCLUSIVE
    assert json.loads(report.model_dump_json())["leaked_tasks"] == 0
