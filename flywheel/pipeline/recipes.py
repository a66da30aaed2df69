"""Running a pipeline file: the nightly job as one process under one lock, one line a stage."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from flywheel import files
from flywheel.answers import RunAnswer, RunStage
from flywheel.config import Pipeline, load_pipeline, merge_overrides
from flywheel.errors import ConfigError, ExitCode, TrainError, UsageError
from flywheel.pipeline.build import build, select_stages
from flywheel.pipeline.context import Context
from flywheel.pipeline.deciding import judge
from flywheel.pipeline.intake import default_sources, ingest_logs
from flywheel.pipeline.judging import evaluate
from flywheel.pipeline.page import write_page
from flywheel.pipeline.planning import make_plan
from flywheel.pipeline.stages import check_order
from flywheel.pipeline.training import train_round
from flywheel.records import Promotion

__all__ = ["find_recipe", "recipe_names", "run_recipe"]

UNJUDGED = {"trained", "evaluated"}

# What a bare name means when the project has no file of that name.
_DEFAULTS = {"nightly": "dpo_nightly"}


def recipe_names(project: Path) -> list[str]:
    """Return the names that `flywheel run` knows here."""
    folders = (project / "pipelines", files.shipped("pipelines"))
    return sorted({*_DEFAULTS, *(p.stem for f in folders if f.is_dir() for p in f.glob("*.toml"))})


def find_recipe(project: Path, name: str) -> Pipeline:
    """Return a pipeline by name: the project's file, else the shipped one; checked for order.

    Raises:
        ConfigError: there is none, or it does not fit.
    """
    shipped = files.shipped("pipelines")
    candidates = (
        project / "pipelines" / f"{name}.toml",
        shipped / f"{name}.toml",
        shipped / f"{_DEFAULTS.get(name)}.toml",
    )
    path = next((p for p in candidates if p.is_file()), None)
    if path is None:
        raise ConfigError(f"no pipeline named `{name}`", hint=f"known here: {', '.join(recipe_names(project))}")
    pipeline = load_pipeline(path.read_text(encoding="utf-8"), path.name)
    check_order(pipeline.stages, path.name)
    return pipeline


class _Run:
    """One run of a recipe: what each stage needs from the ones before it."""

    def __init__(self, ctx: Context, key: bytes) -> None:
        self.ctx = ctx
        self.key = key
        self.round: int | None = None
        self.promotion: Promotion | None = None
        self.page = ""
        self.waiting = False

    def stage(self, name: str) -> str:
        """Run one stage and return its outcome in a few words."""
        action = {
            "ingest": self._ingest,
            "train": self._train,
            "eval": self._eval,
            "gate": self._gate,
            "report": self._report,
        }
        if name in action:
            return "skipped: nothing new to train on" if self.waiting else action[name]()
        (status,) = build(self.ctx.store, self.ctx.config, self.ctx.project, stages=select_stages(name))
        rows = ", ".join(f"{count:,} {table}" for table, count in status.rows.items())
        return f"{status.state}: {rows}"

    def _ingest(self) -> str:
        paths = default_sources(self.ctx.config, self.ctx.project)
        found = ingest_logs(self.ctx.store, self.ctx.config, self.ctx.project, paths, key=self.key)
        bad = sum(found.quarantined.values())
        return (
            f"{found.read:,} records, {found.events:,} new events, {found.duplicate:,} duplicate, {bad:,} quarantined"
        )

    def _train(self) -> str:
        waiting = [n for n in self.ctx.registry.trained() if self.ctx.registry.manifest(n).state in UNJUDGED]
        if waiting:  # an earlier night was cut off between training and the gate
            self.round = waiting[-1]
            return f"round {self.round} is trained and not judged yet"
        number = self.ctx.registry.next_number()
        if number not in self.ctx.registry.numbers():
            try:
                plan = make_plan(self.ctx, number).plan
            except TrainError as error:
                self.waiting = True
                return f"waiting: {error.message}"
            if plan.same_as is not None:
                self.waiting = True
                return f"nothing new since round {plan.same_as}"
        manifest = train_round(self.ctx, number)
        self.round = number
        return f"round {number}: {manifest.method}, {sum(1 for _ in manifest.outputs)} files"

    def _eval(self) -> str:
        report = evaluate(self.ctx, self.round)
        self.round = report.round
        return f"round {report.round} beside {report.baseline}: {report.n_cases} cases"

    def _gate(self) -> str:
        if self.round is None:
            self.round = self.ctx.registry.resolve("latest")
        self.promotion = judge(self.ctx, self.round or 0, by="run")
        return f"{self.promotion.decision}: {self.promotion.verdict}"

    def _report(self) -> str:
        if self.round is None:
            self.round = self.ctx.registry.resolve("latest")
        self.page = str(write_page(self.ctx, self.round or 0))
        return self.page

    def exit_code(self) -> ExitCode:
        """Return what the run's end means."""
        if self.waiting:
            return ExitCode.NOTHING
        held = self.promotion is not None and self.promotion.decision == "held"
        return ExitCode.HELD if held else ExitCode.DONE


def _between(names: list[str], since: str | None, until: str | None) -> list[str]:
    for name in (since, until):
        if name is not None and name not in names:
            raise UsageError(f"the pipeline has no stage `{name}`", hint=f"stages: {', '.join(names)}")
    first = names.index(since) if since else 0
    last = names.index(until) if until else len(names) - 1
    return names[first : last + 1]


def run_recipe(
    ctx: Context,
    name: str,
    *,
    key: bytes,
    since: str | None = None,
    until: str | None = None,
    on_stage: Callable[[str, str], None] = lambda _name, _outcome: None,
) -> RunAnswer:
    """Run a pipeline's stages in order.

    Args:
        ctx: the project, locked.
        name: pipeline name.
        key: the redaction key.
        since: first stage to run (--from).
        until: last stage to run.
        on_stage: gets each stage's name and outcome.

    Raises:
        ConfigError: there is no such pipeline, or it does not fit.
        FlywheelError: a stage failed; what was finished stays, and the same command goes on from there.
    """
    pipeline = find_recipe(ctx.project, name)
    run = _Run(replace(ctx, config=merge_overrides(ctx.config, pipeline.overrides)), key)
    done = []
    for stage in _between(pipeline.stages, since, until):
        started = time.monotonic()
        outcome = run.stage(stage)
        on_stage(stage, outcome)
        done.append(RunStage(stage=stage, outcome=outcome, seconds=round(time.monotonic() - started, 3)))
    return RunAnswer(pipeline=pipeline.name, stages=done, exit_code=int(run.exit_code()), page=run.page)
