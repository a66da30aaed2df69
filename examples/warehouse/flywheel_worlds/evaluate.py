"""Flywheel's evaluator for a world: a policy talks with users who leave in silence, its calls executed for real.

Cases are the held-out tasks of the logs, then tasks that are kept for evaluation and never served, families in turn.
`executed_success` is the world's verdict; `harmless`, where a world knows harm, is 1 for a talk without a harmful act.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flywheel.extensions import CaseScore
from flywheel.messages import acts_of
from flywheel.records import content_id

from flywheel_worlds.nights import kept_apart
from flywheel_worlds.talk import Act, Message, Talk, Task, World, play, seed_of

if TYPE_CHECKING:
    from flywheel.config import EvalConfig
    from flywheel.extensions import Holdout, Policy


class _Greedy:
    """A policy under evaluation, as a talk sees it."""

    model = ""

    def __init__(self, policy: Policy, most: int) -> None:
        self.name, self._policy, self._most = policy.name, policy, most

    def act(self, prompts: Sequence[Sequence[Message]], tools: list[dict[str, Any]], seeds: Sequence[int]) -> list[Act]:
        """Return the greedy actions."""
        del seeds
        generations = self._policy.generate(prompts, [tools] * len(prompts), max_new_tokens=self._most)
        return [Act(g.message, None, g.well_formed) for g in generations]


class Executed:
    """The evaluator of one world.

    Args:
        world: where talks happen.
        harm: whether harm is a metric of its own.
    """

    def __init__(self, world: World, *, harm: bool = False) -> None:
        self._world, self._harm = world, harm

    def _cases(self, holdout: Holdout) -> dict[str, Task]:
        import polars as pl

        tasks = {task.text: task for task in self._world.tasks()}
        cases: dict[str, Task] = {}
        first = holdout.steps.filter(pl.col("index") == 0).sort("task_id", "episode_id")
        for task_id, observation in first.select("task_id", "observation").iter_rows():
            asked = next((m["content"] for m in json.loads(observation) if m["role"] == "user"), None)
            if asked in tasks:
                cases.setdefault(task_id, tasks[asked])
        logged = {task.text for task in cases.values()}
        kept = (task for task in kept_apart(self._world, "gate") if task.text not in logged)
        return cases | {content_id(self._world.name, task.text): task for task in kept}

    def texts(self, holdout: Holdout, cfg: EvalConfig) -> list[str]:
        """Return the requests of the cases, so that no round is trained on an answer to one."""
        del cfg
        return sorted(task.text for task in self._cases(holdout).values())

    def __call__(self, policy: Policy, holdout: Holdout, cfg: EvalConfig) -> Sequence[CaseScore]:
        """Let the policy talk in every case, all of them side by side."""
        cases = self._cases(holdout)
        chosen = sorted(cases, key=lambda case: case in holdout.known)[: cfg.max_cases]
        talks = [Talk(self._world, cases[case], seed_of(cases[case].text)) for case in chosen]
        play(talks, _Greedy(policy, cfg.max_new_tokens), self._world.tools)
        return [score for case, talk in zip(chosen, talks, strict=True) for score in self._scores(case, talk)]

    def _scores(self, case: str, talk: Talk) -> list[CaseScore]:
        verdict, share = talk.session.verdict(), talk.well_formed / max(1, talk.acts)
        slices, title, did = {"family": talk.task.family}, talk.task.text, acts_of(talk.messages)
        success = CaseScore(case, case, "executed_success", float(verdict.success), primary=True, slices=slices)
        scores = [
            replace(success, title=title, did=did),
            CaseScore(case, case, "well_formed", share, binary=False),
        ]
        if self._harm:
            scores.append(CaseScore(case, case, "harmless", float(not verdict.harm), slices=slices))
        return scores


class Practice:
    """A world as flywheel's `train.world`: its tasks may be attempted again, its calls are executed for real.

    A talk is one turn: the user leaves in silence. Tasks that are kept apart are not known here.

    Args:
        world: where talks happen.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    @cached_property
    def _tasks(self) -> dict[str, Task]:
        return {task.text: task for task in kept_apart(self._world, "served")}

    def __call__(self, prompt: Sequence[Message], seed: int) -> Practised | None:
        """Open the task of a first request."""
        asked = [message["content"] for message in prompt if message["role"] == "user"]
        task = self._tasks.get(str(asked[0])) if len(asked) == 1 else None
        return Practised(Talk(self._world, task, seed_of(task.text, seed))) if task is not None else None


class Practised:
    """One attempt at a task of a world."""

    def __init__(self, talk: Talk) -> None:
        self._talk, self._stopped = talk, False

    @property
    def over(self) -> bool:
        """Whether the talk has ended."""
        return self._stopped or self._talk.over

    @property
    def success(self) -> float | None:
        """1 where the world is as the user wished and no harm was done."""
        verdict = self._talk.session.verdict()
        return float(verdict.success and not verdict.harm and not self._stopped)

    def take(self, message: Message) -> list[Message]:
        """Execute an action."""
        before = len(self._talk.messages)
        self._talk.take(Act(message))
        return self._talk.messages[before:]

    def stop(self, why: str) -> None:
        """End the talk, which has failed."""
        del why
        self._stopped = True
