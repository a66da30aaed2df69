"""The plugin: a policy answers questions in the world of the sample logs, its calls executed for real.

Cases are the held-out questions of the logs and the questions that no log ever asked. `executed_success` is 1 when the
answer the policy gives is the true one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flywheel.extensions import CaseScore
from flywheel.records import content_id
from flywheel_worlds.evaluate import Executed
from flywheel_worlds.talk import Deed, Rule, Talk, Task, Verdict

from flywheel_warehouse.generate import logged_questions
from flywheel_warehouse.world import SYSTEM, TOOLS, Question, World, questions

if TYPE_CHECKING:
    from flywheel.extensions import Holdout
    from flywheel_worlds.users import Character

__all__ = ["executed"]


class _Asked:
    """A question of the sample logs, whose user leaves in silence."""

    def __init__(self, world: World, question: Question) -> None:
        self.deeds: list[Deed] = []
        self._world, self._question, self._answer = world, question, ""

    def call(self, name: str, arguments: dict[str, Any] | None) -> tuple[str, bool]:
        """Execute a call, and keep the answer."""
        text, ok = self._world.call(name, arguments)
        if name == "answer" and ok and arguments is not None:
            self._answer = str(arguments["value"]).strip()
        return text, ok

    def hears(self, text: str) -> None:
        """Leave."""

    def verdict(self) -> Verdict:
        """Return whether the answer is the true one."""
        right = bool(self._answer) and self._answer == self._world.truth(self._question)
        return Verdict(right, right)


class SampleQuestions:
    """The questions of the sample logs, as a world."""

    name = "warehouse"
    system = SYSTEM
    tools = TOOLS
    last = frozenset({"answer"})
    policies: Mapping[str, Rule] = {}

    @cached_property
    def _world(self) -> World:
        return World()

    def tasks(self) -> Sequence[Task]:
        """Return every question."""
        return [Task(question.text, question.family, question) for question in questions().values()]

    def open(self, task: Task, rng: random.Random, character: Character) -> _Asked:
        """Let a user ask."""
        del rng, character
        return _Asked(self._world, task.about)


class _OfSampleLogs(Executed):
    """The evaluator of the sample logs' world; nothing serves there, so no task is kept apart."""

    def _cases(self, holdout: Holdout) -> dict[str, Task]:
        import polars as pl

        tasks = {task.text: task for task in self._world.tasks()}
        cases: dict[str, str] = {}
        first = holdout.steps.filter(pl.col("index") == 0).sort("episode_id").select("task_id", "observation")
        for row in first.iter_rows(named=True):
            asked = next((m["content"] for m in json.loads(row["observation"]) if m["role"] == "user"), None)
            if asked in tasks:
                cases.setdefault(str(asked), row["task_id"])
        logged = {question.text for question in logged_questions()}
        cases |= {text: content_id("warehouse", text) for text in tasks if text not in logged}
        return {cases[text]: tasks[text] for text in sorted(cases, key=content_id)}

    def _scores(self, case: str, talk: Talk) -> list[CaseScore]:
        success, *others = super()._scores(case, talk)
        return [success, CaseScore(case, case, "first_call_ok", float(talk.first_ok)), *others]


executed = _OfSampleLogs(SampleQuestions())
