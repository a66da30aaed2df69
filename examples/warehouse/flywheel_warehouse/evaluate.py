"""The plugin: a policy answers questions in the world, its calls executed for real.

Cases are the held-out questions of the logs and the questions that no log ever asked. `executed_success` is 1 when the
answer the policy gives is the true one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flywheel.extensions import CaseScore, Generation
from flywheel.records import content_id

from flywheel_warehouse.generate import logged_questions
from flywheel_warehouse.world import SYSTEM, TOOLS, Question, World, questions

if TYPE_CHECKING:
    from flywheel.config import EvalConfig
    from flywheel.extensions import Holdout, Policy

__all__ = ["executed"]

MOST_ACTIONS = 5


@dataclass
class _Run:
    """One question being answered."""

    question: Question
    task_id: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    answer: str | None = None
    over: bool = False
    actions: int = 0
    well_formed: int = 0
    first_ok: bool = False

    def take(self, made: Generation, world: World) -> None:
        """Execute what the policy did."""
        calls = made.message.get("tool_calls") or []
        self.actions += 1
        self.well_formed += made.well_formed
        numbered = [{**call, "id": f"call{self.actions:03d}{n:02d}"} for n, call in enumerate(calls)]
        self.messages.append({**made.message, "tool_calls": numbered} if numbered else made.message)
        self.over = not calls
        for call in numbered:
            text, ok = world.call(call["name"], call["arguments"])
            if self.actions == 1:
                self.first_ok = ok
            if call["name"] == "answer" and ok:
                self.answer, self.over = str(call["arguments"]["value"]).strip(), True
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": text})


def _cases(holdout: Holdout) -> dict[str, str]:
    """Return question → task id: the held-out questions of the logs, and those that were never logged."""
    import polars as pl

    found: dict[str, str] = {}
    first = holdout.steps.filter(pl.col("index") == 0).sort("episode_id").select("task_id", "observation")
    for row in first.iter_rows(named=True):
        asked = next((m["content"] for m in json.loads(row["observation"]) if m["role"] == "user"), None)
        if asked in questions():
            found.setdefault(str(asked), row["task_id"])
    logged = {q.text for q in logged_questions()}
    return found | {text: content_id("warehouse", text) for text in questions() if text not in logged}


def executed(policy: Policy, holdout: Holdout, cfg: EvalConfig) -> Sequence[CaseScore]:
    """Run the policy on every case, all of them together, at most five actions each."""
    world, cases = World(), _cases(holdout)
    chosen = sorted(cases, key=content_id)[: cfg.max_cases]
    runs = [
        _Run(questions()[text], cases[text], [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}])
        for text in chosen
    ]
    for _ in range(MOST_ACTIONS):
        running = [run for run in runs if not run.over]
        if not running:
            break
        made = policy.generate([r.messages for r in running], [TOOLS] * len(running), max_new_tokens=cfg.max_new_tokens)
        for run, generation in zip(running, made, strict=True):
            run.take(generation, world)
    return [score for run in runs for score in _scores(run, world)]


def _texts(holdout: Holdout, cfg: EvalConfig) -> list[str]:
    """Return the questions, so that no round is trained on an answer to one."""
    del cfg
    return sorted(_cases(holdout))


executed.texts = _texts  # type: ignore[attr-defined]


def _scores(run: _Run, world: World) -> list[CaseScore]:
    success = run.answer is not None and run.answer == world.truth(run.question)
    slices = {"family": run.question.family}
    share = run.well_formed / max(1, run.actions)
    return [
        CaseScore(run.task_id, run.task_id, "executed_success", float(success), primary=True, slices=slices),
        CaseScore(run.task_id, run.task_id, "first_call_ok", float(run.first_ok)),
        CaseScore(run.task_id, run.task_id, "well_formed", share, binary=False),
    ]
