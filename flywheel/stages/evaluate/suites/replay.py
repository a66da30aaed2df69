"""Replay success: the policy acts in held-out turns, and recorded results answer its calls (`flywheel.replay`).

In: one policy, the held-out scenarios and fixtures. Out, a case being a turn from a user's message until the agent
speaks: `replay_success`, the probability of success of the recorded attempts that ended as this one did. What the log
does not know (a call that was never made, an end that was never reached) counts as a failure: the worst case, and the
same for every policy. Two measures for reference: success where the log knew the end, and why it did not.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from flywheel.config import EvalConfig, ReplayConfig
from flywheel.extensions import CaseScore, Holdout, Policy
from flywheel.records import Split
from flywheel.replay import ReplayEnvironment, Scenario, scenarios
from flywheel.stages.evaluate.cases import capped
from flywheel.stages.evaluate.play import Played, play

_SHARE = "share of cases"


def replay(policy: Policy, holdout: Holdout, cfg: EvalConfig) -> list[CaseScore]:
    """Score the policy's attempts at held-out turns, all of them together, action by action.

    Args:
        policy: who acts; greedy, so that an attempt is the same every time.
        holdout: `scenarios` and `fixtures`; without them there is no case.
        cfg: at most eval.replay_cases turns in which recorded attempts made a call.
    """
    attempts = [
        _Attempt(ReplayEnvironment(scenario, holdout.replay or ReplayConfig()))
        for scenario in _scenarios(holdout, min(cfg.replay_cases, cfg.max_cases))
    ]
    play(policy, attempts, cfg.max_new_tokens, (holdout.replay or ReplayConfig()).max_calls + 1)
    return [score for attempt in attempts for score in attempt.scores()]


def _scenarios(holdout: Holdout, most: int) -> list[Scenario]:
    if holdout.scenarios is None or holdout.fixtures is None or holdout.scenarios.height == 0:
        return []
    rows = holdout.scenarios.filter((pl.col("split") == Split.HOLDOUT.value) & (pl.col("n_calls") > 0))
    tasks = dict(rows.select("scenario_id", "task_id").iter_rows())
    kept = capped(tasks, most, {case for case, task in tasks.items() if task in holdout.known})
    chosen = rows.filter(pl.col("scenario_id").is_in(kept))
    known = holdout.fixtures.filter(pl.col("task_id").is_in(chosen["task_id"].unique().to_list()))
    return scenarios(chosen.iter_rows(named=True), known.iter_rows(named=True))


class _Attempt(Played):
    """One attempt at a held-out turn."""

    def __init__(self, environment: ReplayEnvironment) -> None:
        super().__init__(environment, environment.scenario.prompt, environment.scenario.tools)
        self.environment = environment

    def scores(self) -> Iterator[CaseScore]:
        """Yield the score and the measures of an attempt that has ended."""
        scenario, outcome = self.environment.scenario, self.environment.outcome
        if outcome is None:
            return
        case, task, success = scenario.scenario_id, scenario.task_id, outcome.success
        slices = {"judged_by": scenario.judged_by}
        yield CaseScore(case, task, "replay_success", _bounded(success), binary=False, primary=True, slices=slices)
        if success is not None:
            unit = "of cases that both ended"
            yield CaseScore(case, task, "success_matched", _bounded(success), binary=False, unit=unit)
        for name, value in {
            "missed_call": float(outcome.why == "missed"),
            "missed_end": float(outcome.why == "new end"),
            "malformed": float(outcome.why == "malformed"),
            "over_budget": float(outcome.why == "over budget"),
        }.items():
            yield CaseScore(case, task, name, value, binary=False, unit=_SHARE)
        if self.tokens:
            yield CaseScore(case, task, "tokens", float(self.tokens), binary=False, unit="tokens an attempt")


def _bounded(success: float | None) -> float:
    return 0.0 if success is None else min(1.0, max(0.0, success))
