"""Run a pipeline file: the nightly job as one process under one lock, one line a stage; or a stage a process."""

from __future__ import annotations

import time
from collections.abc import Callable

from flywheel.config import merge_overrides
from flywheel.config.approval import refuse_unapproved
from flywheel.errors import EvidenceError, ExitCode, UsageError
from flywheel.pipeline.build.run import build, select_stages
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.run import evaluate, has_news
from flywheel.pipeline.ingest.run import default_sources, ingest_logs
from flywheel.pipeline.nightly.journal import Journal
from flywheel.pipeline.nightly.notify import notify
from flywheel.pipeline.nightly.pipelines import find_recipe
from flywheel.pipeline.pages.round_page import write_page
from flywheel.pipeline.promote.promotion import decide_round
from flywheel.pipeline.train.monitors import refuse_before_attempts
from flywheel.pipeline.train.plan import make_plan
from flywheel.pipeline.train.readiness import lacks_better, lacks_rows, lacks_tasks, rebuild_is_due
from flywheel.pipeline.train.run import after_race, train_round
from flywheel.present import count, table_counts, the_round
from flywheel.records import Need, Promotion
from flywheel.results.operations import RunAnswer, RunStage

_UNDECIDED = {"trained", "evaluated"}
_AFTER_TRAINING = {"eval", "gate", "report"}


class _Run:
    """One run of a pipeline or a part of it: what each stage needs from the ones before it, in this process or not."""

    def __init__(self, ctx: Context, key: bytes, journal: Journal, *, trains: bool) -> None:
        self.ctx = ctx
        self.key = key
        self.journal = journal
        self.round = journal.night.round if journal.unfinished else None
        self.missing: list[Need] = [] if trains else list(journal.night.missing)
        self.promotion: Promotion | None = None
        self.page = ""
        self.changed = False  # whether a stage has done something

    def step(self, name: str) -> RunStage:
        """Run one stage, and record it in the journal."""
        started, skipped = time.monotonic(), bool(self.missing) and name in _AFTER_TRAINING
        self.journal.begin(name)
        try:
            outcome = "skipped: waiting for more evidence" if skipped else self._stage(name)
        except Exception as error:
            self.journal.failed(name, error, time.monotonic() - started)
            raise
        seconds = time.monotonic() - started
        self.journal.update(number=self.round, missing=self.missing, page=self.page)
        self.journal.done(name, outcome, seconds, skipped=skipped)
        return RunStage(stage=name, outcome=outcome, seconds=round(seconds, 3))

    def _stage(self, name: str) -> str:
        action = {
            "ingest": self._ingest,
            "train": self._train,
            "eval": self._eval,
            "gate": self._gate,
            "report": self._report,
            "notify": self.notify,
        }
        self.changed |= name in action and name != "ingest"
        if name in action:
            return action[name]()
        (status,) = build(self.ctx.store, self.ctx.config, self.ctx.project, stages=select_stages(name))
        self.changed |= status.state == "built"
        return f"{status.state}: {table_counts(name, status.rows, status.funnel)}"

    def notify(self) -> str:
        """Run the hooks of [notify] and return their outcome."""
        return notify(self.journal.conclude(), self.ctx.config.notify, self.ctx.project)

    def _ingest(self) -> str:
        paths = default_sources(self.ctx.config, self.ctx.project)
        read = ingest_logs(self.ctx.store, self.ctx.config, self.ctx.project, paths, key=self.key)
        self.changed |= bool(read.events or read.replaced)
        bad = sum(read.quarantined.values())
        aside = f", {count(len(read.set_aside), 'file')} set aside" if read.set_aside else ""
        aside += "".join(f", nothing of {source.source} stored" for source in read.refused)
        counts = f"{read.read:,} records, {read.events:,} new events, {read.duplicate:,} duplicate"
        self.journal.refused(f"{bad:,} quarantined{aside}" if bad or aside else "")
        return f"{counts}, {bad:,} quarantined{aside}"

    def _train(self) -> str:
        registry = self.ctx.registry
        trained = registry.trained()
        undecided = [n for n in trained if registry.manifest(n).state in _UNDECIDED]
        if undecided:  # an earlier night was cut off between training and the gate
            self.round = undecided[-1]
            return f"round {self.round} is trained and not decided yet"
        if self.round in trained:  # or between the gate and the end
            return f"round {self.round} is decided; the later stages are still to run"
        waiting = registry.waiting(self.ctx.config.gate.horizon)
        if waiting is not None and has_news(self.ctx, waiting):
            self.round = waiting.registered.round
            return f"round {self.round} is the challenger and not decided yet: tonight adds to its evidence"
        number = registry.next_number()
        self.missing = [] if number in registry.numbers() else self._lacks(number)
        if self.missing:
            self.round = None
            return f"waiting: {' and '.join(map(str, self.missing))}"
        manifest = train_round(self.ctx, number)
        self.round = number
        return f"round {number}: {manifest.method} on {count(manifest.counts.get('kept'), 'row')}"

    def _lacks(self, number: int) -> list[Need]:
        due = rebuild_is_due(self.ctx, number)
        lacking_tasks = [] if due else lacks_tasks(self.ctx)
        if lacking_tasks:
            return lacking_tasks
        refuse_before_attempts(self.ctx, number)
        try:
            planned = make_plan(self.ctx, number)
        except EvidenceError as error:
            return [Need(what="rows to train on", have=error.have, need=error.need)]
        lacking_rows = [] if due else lacks_rows(self.ctx, planned)
        if not lacking_rows and planned.plan.same_as is None:
            planned = after_race(self.ctx, planned)
            lacking_rows = lacks_better(planned)
        if not lacking_rows and planned.plan.same_as is not None:  # min_new_rows is 0
            return [Need(what=f"rows that differ from round {planned.plan.same_as}'s", have=0, need=1)]
        return lacking_rows

    def _eval(self) -> str:
        number = self._night_round()
        if self._decision(number) is not None and not self._waits(number):
            return f"round {number} is decided already"
        report = evaluate(self.ctx, number)
        return f"round {report.round} compared with {the_round(report.baseline)}: {count(report.n_cases, 'case')}"

    def _gate(self) -> str:
        number = self._night_round()
        decided = None if self._waits(number) else self._decision(number)
        self.promotion = decided or decide_round(self.ctx, number, by="run")
        return f"{self.promotion.decision}: {self.promotion.verdict}"

    def _report(self) -> str:
        page = write_page(self.ctx, self._night_round())
        self.page = str(page)
        return page.relative_to(self.ctx.project).as_posix() if page.is_relative_to(self.ctx.project) else self.page

    def _decision(self, number: int) -> Promotion | None:
        """Return the gate's decision on a round that is not waiting for one."""
        if self.ctx.registry.manifest(number).state in _UNDECIDED:
            return None
        return next((p for p in reversed(self.ctx.registry.promotions()) if p.round == number), None)

    def _waits(self, number: int) -> bool:
        """Return whether a round waits for another look."""
        waiting = self.ctx.registry.waiting(self.ctx.config.gate.horizon)
        return waiting is not None and waiting.registered.round == number

    def _night_round(self) -> int:
        """Return the night's round; the newest where a part of the pipeline runs alone."""
        if self.round is None:
            self.round = self.ctx.registry.resolve("latest")
        return self.round or 0

    def exit_code(self) -> ExitCode:
        """Return what the run's end means."""
        if self.missing or not self.changed:
            return ExitCode.NOTHING
        held = self.promotion is not None and self.promotion.decision == "held"
        return ExitCode.HELD if held else ExitCode.DONE


def stages_between(names: list[str], since: str | None, until: str | None) -> list[str]:
    """Return the stages from one to another, both included.

    Raises:
        UsageError: there is no stage of that name, or none between them.
    """
    for name in (since, until):
        if name is not None and name not in names:
            raise UsageError(f"the pipeline has no stage `{name}`", hint=f"stages: {', '.join(names)}")
    first = names.index(since) if since else 0
    last = names.index(until) if until else len(names) - 1
    if first > last:
        raise UsageError(f"stage `{since}` comes after `{until}`", hint=f"stages: {', '.join(names)}")
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
    """Run a pipeline's stages in order; a stage that fails ends the run, but the hooks still run.

    Args:
        ctx: the project, locked.
        name: pipeline name.
        key: the redaction key.
        since: first stage to run (--from).
        until: last stage to run.
        on_stage: gets each stage's name and outcome.

    Raises:
        ConfigError: there is no such pipeline, or its stages are not in order.
        UsageError: the pipeline has no stage of that name.
        FlywheelError: a stage failed; what was finished stays, and the same command resumes from there.
    """
    pipeline = find_recipe(ctx.project, name)
    ctx = ctx.with_config(merge_overrides(ctx.config, pipeline.overrides))
    refuse_unapproved(ctx.project, ctx.config)
    names = stages_between(pipeline.stages, since, until)
    journal = Journal(ctx, pipeline.name, trains="train" in names)
    run = _Run(ctx, key, journal, trains="train" in names)
    if names[0] == pipeline.stages[0]:
        ctx.store.remove_orphans()  # parts of killed stages, to which other rows came before they ran again
    done = _each(run, names, on_stage, last=pipeline.stages[-1])
    code = int(run.exit_code())
    if names == ["notify"]:  # alone, it fails with the night: a scheduler takes its last task's state for the run's
        code = int(ExitCode.FAILED if journal.night.outcome == "failed" else ExitCode.DONE)
    return RunAnswer(
        pipeline=pipeline.name, stages=done, exit_code=code, page=run.page, text=journal.night.text,
        why=journal.why(), next=journal.night.next, missing=run.missing,
    )  # fmt: skip


def _each(run: _Run, names: list[str], on_stage: Callable[[str, str], None], *, last: str) -> list[RunStage]:
    """Run the stages in turn; a run up to the pipeline's last stage ends the night, even if a stage fails."""
    done: list[RunStage] = []
    for stage in names:
        try:
            done.append(run.step(stage))
        except Exception:
            on_stage(stage, "failed")
            if "notify" in names and stage != "notify":
                on_stage("notify", run.notify())
            run.journal.end(over=names[-1] == last)
            raise
        on_stage(stage, done[-1].outcome)
    run.journal.end(over=names[-1] == last)
    return done
