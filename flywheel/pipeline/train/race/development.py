"""The development tasks: training tasks that no round of `auto` trains on, for methods to be compared on.

In: the tables. Out: which tasks, the suite that scores them and its cases. A task belongs to them by the hash of its
id, as it belongs to the holdout; held-out tasks never do. What is set apart is hidden from a round as held-out tasks
are: rows, attempts and texts of both are refused alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from flywheel.config.evaluation import ASKED_BY
from flywheel.extensions import CaseScore, Generation, Holdout
from flywheel.models.load import weights_type
from flywheel.models.served.servers import LOADING
from flywheel.pipeline.answering import answerer
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.holdout import read_holdout
from flywheel.pipeline.evaluate.leakage import trained_tasks
from flywheel.pipeline.evaluate.protocol import code_of
from flywheel.pipeline.evaluate.suites import Suite, chosen_suites
from flywheel.records import Split, content_id
from flywheel.records.backends import TRL
from flywheel.stages.evaluate.cases import holdout_sha256
from flywheel.stages.evaluate.compare import headline_metric
from flywheel.stages.selection.mix import chance
from flywheel.store import Store

if TYPE_CHECKING:
    from flywheel.config import EvalConfig

LEAST_TASKS = 12  # with fewer their rows are worth more than the choice (decision 0047)
MOST_CASES = 60  # a race asks for 2 n + 1 answers a case; beyond, another case hardly changes who wins


class Development(NamedTuple):
    """What a race is scored on."""

    tasks: frozenset[str]  # all that are set apart
    known: frozenset[str]  # those of them that an ancestor of the round was trained on
    suite: Suite
    metric: str
    cases: dict[str, str]  # of the suite's cases those of development tasks, with their tasks
    holdout: Holdout
    cfg: EvalConfig  # of the suite
    sha256: str  # of all that scores depend on, besides the policy

    @property
    def scored(self) -> set[str]:
        """The tasks that have a case."""
        return set(self.cases.values())

    def of(self, scores: Sequence[CaseScore]) -> dict[str, CaseScore]:
        """Return the scores on the cases, as far as they could be scored."""
        known = (s for s in scores if s.metric == self.metric and s.case_id in self.cases and not s.unit)
        return {s.case_id: s for s in known if not math.isnan(s.score)}


class _OtherSplit(Store):
    """A project's store in which other tasks are held out: some more, or these alone."""

    def __init__(self, store: Store, tasks: frozenset[str], *, alone: bool = False) -> None:
        super().__init__(store.place)
        self._tasks, self._alone = sorted(tasks), alone

    def table(self, table: str, stage: str) -> pl.LazyFrame:
        """Return a table as the current snapshot of its stage has it, under the other split."""
        frame = super().table(table, stage)
        schema = frame.collect_schema()
        if not {"task_id", "split"} <= schema.keys():
            return frame
        others = pl.lit(Split.TRAIN.value) if self._alone else pl.col("split")
        apart = pl.when(pl.col("task_id").is_in(self._tasks)).then(pl.lit(Split.HOLDOUT.value)).otherwise(others)
        return frame.with_columns(split=apart.cast(schema["split"]))


def development_tasks(ctx: Context) -> frozenset[str]:
    """Return the training tasks that are set apart, by the hash of their ids."""
    training = read_table(ctx.store, "episodes").filter(pl.col("split") == Split.TRAIN.value)
    ids = training.select(pl.col("task_id").unique()).collect()["task_id"]
    return frozenset(task for task in ids if chance(task, "development") < ctx.config.train.race)


def without(ctx: Context, tasks: frozenset[str]) -> Context:
    """Return the project as a round sees it: development tasks are held out, too."""
    return replace(ctx, store=_OtherSplit(ctx.store, tasks))


def find_development(ctx: Context, parent: int | None) -> Development | str:
    """Return what a race can be scored on, or why there is none.

    The suite is the first of `eval.suites` that scores enough development tasks: the gate's own measure, if it can.
    """
    train = ctx.config.train
    none = {
        "train.method asks for one": train.method != "auto",
        "train.race is 0": not train.race,
        "train.trainer trains every method": bool(train.trainer),
        "train.backend trains in another system": train.backend != TRL,
    }
    if why := next((reason for reason, holds in none.items() if holds), ""):
        return why
    tasks = development_tasks(ctx)
    few = f"{len(tasks):,} development tasks, a race needs {LEAST_TASKS}"
    if len(tasks) < LEAST_TASKS:
        return few
    known = tasks & trained_tasks(ctx, parent) if parent is not None else frozenset()
    who = answerer(ctx)
    if who and who[0]["kind"] not in LOADING:
        return f"{who[0]['kind']} loads no adapters, and methods are compared by theirs"
    apart = replace(ctx, store=_OtherSplit(ctx.store, tasks, alone=True))
    holdout = read_holdout(apart)
    held_out_sha256 = holdout_sha256(holdout)
    failed = ""
    for suite in chosen_suites(ctx, None):
        if suite.fixed:
            continue
        asked = _Asked(suite, holdout, held_out_sha256, tasks, who)
        try:
            metric, cfg, cases = _cases(ctx, asked)
        except Exception as error:  # noqa: BLE001 - a plugin's: it may need a real policy, and another suite may do
            failed += f"; `{suite.name}` does not show its cases to a policy that does nothing ({type(error).__name__})"
            continue
        if len(set(cases.values())) >= LEAST_TASKS:
            sha256 = _sha256(ctx, asked, cfg)
            return Development(tasks, known & set(cases.values()), suite, metric, cases, holdout, cfg, sha256)
    return f"no suite of eval.suites scores {LEAST_TASKS} of the {len(tasks):,} development tasks{failed}"


class _Asked(NamedTuple):
    """A suite that may score development tasks."""

    suite: Suite
    holdout: Holdout
    holdout_sha256: str
    tasks: frozenset[str]
    answerer: list[dict[str, str]]


def _sha256(ctx: Context, asked: _Asked, cfg: EvalConfig) -> str:
    suite = asked.suite
    unread = {"suites", "slices", "user_tiers", "baselines", "few_shot", *ASKED_BY}
    settings = cfg.model_dump(mode="json", exclude=unread)
    replayed = ctx.config.replay.model_dump(mode="json")
    parts = (suite.name, suite.version, suite.depends_on, settings, replayed, weights_type(ctx.config.model))
    code = code_of(ctx, [suite.name])
    return content_id("development", 1, asked.holdout_sha256, code, *parts, *asked.answerer)


def _cases(ctx: Context, asked: _Asked) -> tuple[str, EvalConfig, dict[str, str]]:
    """Return a suite's primary metric, the section [eval] for it, and its cases of development tasks.

    Which cases a suite has shows when a policy that does nothing is scored. Cases of its own, which it may add where
    there is room, are kept out: they are the gate's.
    """
    cfg = ctx.config.eval
    cfg = cfg.model_copy(update={"max_cases": min(cfg.max_cases, MOST_CASES)})
    metric, cases, others = _scored_in_silence(ctx, asked, cfg)
    if others and cases:
        fewer = cfg.model_copy(update={"max_cases": len(cases)})
        same_metric, same, _ = _scored_in_silence(ctx, asked, fewer)
        if (same_metric, same) == (metric, cases):
            cfg = fewer
    return metric, cfg, cases


def _scored_in_silence(ctx: Context, asked: _Asked, cfg: EvalConfig) -> tuple[str, dict[str, str], int]:
    """Return the primary metric, the cases of development tasks with their tasks, and how many others there are."""
    key = content_id("silent", _sha256(ctx, asked, cfg))
    cached = ctx.store.cached("race", key)
    if cached is None:
        scores = [s for s in asked.suite.evaluator(_Silent(), asked.holdout, cfg) if not s.unit]
        metric = headline_metric(scores, scores)
        cached = [metric, [[s.case_id, s.task_id] for s in scores if s.metric == metric]]
        ctx.store.cache("race", key, cached)
    metric, every = cached
    cases = {case: task for case, task in every if task in asked.tasks}
    return metric, cases, len(every) - len(cases)


class _Silent:
    """A policy that does nothing, and finds every action equally likely."""

    name, sha256 = "silent", ""

    def generate(self, prompts: Sequence[Any], tools: Sequence[Any], *, max_new_tokens: int) -> list[Generation]:
        """Return empty actions."""
        del tools, max_new_tokens
        return [Generation("", {"role": "assistant", "content": ""}, well_formed=True) for _ in prompts]

    def log_prob(
        self, prompts: Sequence[Any], tools: Sequence[Any], completions: Sequence[Any]
    ) -> list[tuple[float, int]]:
        """Return the same for each action."""
        del prompts, tools
        return [(0.0, 1) for _ in completions]


def stored(scores: dict[str, CaseScore]) -> list[dict[str, Any]]:
    """Return scores as they are remembered, without slices and what policies wrote, which may be a user's words."""
    return [{**asdict(score), "slices": {}, "did": ""} for _, score in sorted(scores.items())]
