"""The Python API: a project, opened from its folder; one method for each command of the command line.

from flywheel import Project
project = Project(".")
project.ingest(["logs"]); project.build(); project.train(); project.evaluate(promote=True)
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel import files
from flywheel.answers import (
    AuditAnswer,
    AuditQuestion,
    BuildAnswer,
    CanaryAnswer,
    ChampionAnswer,
    ConfigAnswer,
    ConfigValue,
    DiffAnswer,
    DoctorAnswer,
    EvalAnswer,
    ExplainAnswer,
    ExportAnswer,
    IngestAnswer,
    LogAnswer,
    LogsEvalAnswer,
    LostFields,
    PluginsAnswer,
    QuarantineAnswer,
    QuarantineRetry,
    ReadersAnswer,
    RewardsAnswer,
    RunAnswer,
    ShowAnswer,
    StageAnswer,
    StatusAnswer,
)
from flywheel.config import CONFIG_FILE, Config, load_config, origins
from flywheel.errors import UsageError
from flywheel.extensions import list_extensions
from flywheel.pipeline.build import StageStatus, build, select_stages, statuses
from flywheel.pipeline.context import Context
from flywheel.records import Plan, Promotion, RoundManifest, Split
from flywheel.rounds import Registry
from flywheel.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from flywheel.pipeline.intake import IngestResult
    from flywheel.pipeline.stages import Stage

__all__ = ["Project", "find_project"]

KEY_FILE = ".flywheel.key"


def find_project(start: Path) -> Path:
    """Return the nearest folder at or above `start` that has a flywheel.toml, else `start` itself."""
    start = start.resolve()
    return next((f for f in (start, *start.parents) if (f / CONFIG_FILE).exists()), start)


class Project:
    """A folder with logs, a store and rounds.

    Args:
        folder: the project's folder; no configuration file is needed.
        config: configuration to use instead of the folder's flywheel.toml.
        say: gets progress, in sentences for people.

    Raises:
        ConfigError: flywheel.toml does not fit.
        StoreError: the store has another layout.
    """

    def __init__(
        self, folder: Path | str = ".", *, config: Config | None = None, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise UsageError(f"`{folder}` is no folder", hint="give the project's folder with -C")
        self.config = config if config is not None else load_config(self.folder / CONFIG_FILE)
        self.store = Store(self.folder / self.config.store)
        self.registry = Registry(self.folder / self.config.rounds)
        self._say = say

    @property
    def context(self) -> Context:
        """The project as pipeline actions get it."""
        return Context(self.folder, self.config, self.store, self.registry, self._say)

    @contextmanager
    def locked(self, command: str) -> Iterator[Context]:
        """Hold the project's lock; on entry, sweep what an interrupted run left and finish a cut-off alias move.

        Raises:
            BusyError: another process holds it.
        """
        with files.ProjectLock(self.store.root, command):
            self.store.create()
            files.remove_partials(self.registry.root)
            self.registry.recover()
            yield self.context

    def key(self) -> bytes:
        """Return the redaction key: FLYWHEEL_KEY, else the project's key file, made on first use outside the store."""
        given = os.environ.get("FLYWHEEL_KEY")
        if given:
            return given.encode()
        path = self.folder / KEY_FILE
        if not path.exists():
            files.atomic_write(path, secrets.token_hex(32) + "\n")
            path.chmod(0o600)
        return path.read_text(encoding="ascii").strip().encode()

    def _passing_key(self) -> bytes:
        """Return the redaction key if the project has one, else one for this time: looking leaves no file behind."""
        has_one = os.environ.get("FLYWHEEL_KEY") or (self.folder / KEY_FILE).exists()
        return self.key() if has_one else secrets.token_hex(32).encode()

    # --- data -----------------------------------------------------------------------------------------------------

    def ingest(
        self, paths: Sequence[Path | str] = (), *, log_format: str | None = None, dry_run: bool = False
    ) -> IngestAnswer:
        """Read new log lines into the store. The same files twice change nothing.

        Raises:
            IngestError: nothing was found, or too much is unreadable.
        """
        from flywheel.pipeline.intake import default_sources, ingest_logs

        config = self.config
        if log_format is not None:
            config = config.model_copy(update={"ingest": config.ingest.model_copy(update={"format": log_format})})
        chosen = [Path(p) for p in paths] or default_sources(config, self.folder)
        with self.locked("ingest") as ctx:
            return _ingest_answer(
                ingest_logs(ctx.store, config, self.folder, chosen, key=self.key(), dry_run=dry_run), dry_run=dry_run
            )

    def follow(
        self,
        paths: Sequence[Path | str] = (),
        *,
        log_format: str | None = None,
        interval_s: float = 10.0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> Iterator[IngestAnswer]:
        """Read what is new, again and again; yield an answer whenever there was something, until the caller stops.

        Only files whose size or time of change moved are looked at, the lock is held only while reading, and after a
        long reading there is a long rest.

        Raises:
            IngestError: nothing is there to follow, or too much of it is unreadable.
        """
        from flywheel.stages.ingest import discover

        chosen = [Path(p) for p in paths] or [self.folder / s for s in self.config.ingest.sources]
        seen: dict[Path, tuple[int, int]] = {}
        while True:
            began = time.monotonic()
            now = {file: (stat.st_size, stat.st_mtime_ns) for file in discover(chosen) if (stat := _stat(file))}
            moved = [file for file, mark in now.items() if seen.get(file) != mark]
            seen = now
            if moved:
                answer = self.ingest(moved, log_format=log_format)
                if answer.read or answer.quarantined:
                    yield answer
            sleep(max(interval_s, _REST * (time.monotonic() - began)))

    def quarantine(self, *, reason: str | None = None, file: str | None = None, limit: int = 20) -> QuarantineAnswer:
        """Return what ingest refused: counts by reason with what they mean, and the first rows.

        Raises:
            UsageError: no such reason.
        """
        from flywheel.pipeline.refused import quarantine

        return quarantine(self.context, reason=reason, file=file, limit=limit)

    def retry_quarantine(self) -> QuarantineRetry:
        """Read the files with quarantined records once more.

        Raises:
            UsageError: the quarantine is empty.
        """
        from flywheel.pipeline.refused import retry

        with self.locked("quarantine") as ctx:
            return retry(ctx, self.key())

    def readers(self, file: Path | None = None) -> ReadersAnswer:
        """Return the installed readers; with a file, how sure each is of it, and what it is taken for.

        Raises:
            IngestError: the file cannot be read.
        """
        from flywheel.pipeline.formats import readers

        return readers(self.config.ingest, self.folder, file)

    def build(
        self,
        *,
        select: str | None = None,
        full_refresh: bool = False,
        on_stage: Callable[[StageAnswer], None] = lambda _: None,
    ) -> BuildAnswer:
        """Bring the derived tables up to date; fresh stages are skipped.

        Raises:
            UsageError: `select` names no stage.
        """
        stages = select_stages(select)
        with self.locked("build") as ctx:
            done = build(
                ctx.store,
                ctx.config,
                self.folder,
                stages=stages,
                full_refresh=full_refresh,
                on_stage=lambda s: on_stage(_stage_answer(s)),
            )
        return BuildAnswer(stages=[_stage_answer(s) for s in done])

    def export(self, folder: Path | str, *, forms: Sequence[str] = (), split: str = "train") -> ExportAnswer:
        """Write the mined rows in TRL's dataset forms into a folder; stale tables are built first.

        Raises:
            UsageError: an unknown form or split, or a folder that flywheel did not write.
        """
        from flywheel.pipeline.exporting import export

        if split not in tuple(Split):
            raise UsageError(f"unknown split `{split}`", hint=f"splits: {', '.join(Split)}")
        with self.locked("export") as ctx:
            build(ctx.store, ctx.config, self.folder)
            return export(ctx, Path(folder).resolve(), list(forms), Split(split))

    def status(self) -> StatusAnswer:
        """Return what is new, stale and pending; reads JSON files only."""
        from flywheel.pipeline.overview import next_command, source_files

        stages = statuses(self.store, self.config)
        known, new = source_files(self.context)
        aliases = self.registry.aliases()
        snapshots = [self.store.current(name) for name in ("ingest", *(s.stage for s in stages))]
        return StatusAnswer(
            project=self.config.name or self.folder.name,
            store=self.config.store,
            store_bytes=sum(p.size_bytes for s in snapshots if s for p in s.parts),
            **aliases,
            next_round=self.registry.next_number(),
            source_files=known,
            new_files=new,
            stages=[_stage_answer(s) for s in stages],
            next=next_command(self.context, stages, known=known, new=new),
        )

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a SQL query over the tables; it can read nothing else, and change nothing.

        Raises:
            UsageError: the text is no query that the tables can answer.
        """
        from flywheel.pipeline.queries import query

        return query(self.context, sql)

    def diff(self, first: str, second: str) -> DiffAnswer:
        """Return what is between two rounds, named by number or alias.

        Raises:
            UsageError: a name is no round's.
        """
        from flywheel.pipeline.comparing import compare_rounds

        return compare_rounds(self.context, first, second)

    def champion(self) -> ChampionAnswer:
        """Return what to serve: base model, adapter, hashes and the decision behind it.

        Raises:
            StoreError: the champion's adapter is not the one that was judged.
        """
        from flywheel.pipeline.overview import champion

        return champion(self.context)

    def doctor(self) -> DoctorAnswer:
        """Check whether a night would go through: environment, disk, store, model, rounds; changes nothing."""
        from flywheel.pipeline.doctor import examine

        checks = examine(self.context, self.folder / KEY_FILE)
        return DoctorAnswer(healthy=all(check.state != "failed" for check in checks), checks=checks)

    def settings(self, file: Path | None = None) -> ConfigAnswer:
        """Return every value of the configuration and where it comes from: the given file, or flywheel.toml."""
        found = origins(file or self.folder / CONFIG_FILE, self.config)
        return ConfigAnswer(values=[ConfigValue(key=key, value=value, origin=origin) for key, value, origin in found])

    # --- rounds ---------------------------------------------------------------------------------------------------

    def plan(self, number: int | None = None) -> Plan:
        """Return what the next round would contain; builds stale tables first, trains nothing.

        Raises:
            UsageError: the number is not the next round's.
            TrainError: there is too little to train on.
        """
        from flywheel.pipeline.planning import check_number, make_plan

        with self.locked("plan") as ctx:
            chosen = check_number(ctx, number)
            build(ctx.store, ctx.config, self.folder)
            return make_plan(ctx, chosen).plan

    def train(
        self,
        number: int | None = None,
        *,
        method: str | None = None,
        plan: Plan | None = None,
        force: bool = False,
        reason: str = "",
        on_metrics: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> RoundManifest:
        """Train a round: build what is stale, plan, execute. A trained round is returned as it is.

        By force and with a reason, which the manifest records, a red monitor does not block it.

        Raises:
            UsageError: the number is not the next round's, the round was begun under another configuration, or force
                without a reason.
            TrainError: there is too little to train on, a monitor is red, or training failed.
        """
        from flywheel.pipeline.planning import check_number
        from flywheel.pipeline.training import train_round

        if force and not reason.strip():
            raise UsageError("--force needs a reason", hint="flywheel train --force --reason 'why'")
        with self.locked("train") as opened:
            ctx = opened if method is None else _with_method(opened, method)
            chosen = check_number(ctx, number)
            if chosen not in ctx.registry.numbers():
                build(ctx.store, ctx.config, self.folder)
            return train_round(ctx, chosen, plan=plan, reason=reason.strip() if force else "", on_metrics=on_metrics)

    def evaluate(
        self,
        number: int | None = None,
        *,
        against: str | None = None,
        suites: Sequence[str] | None = None,
        promote: bool = False,
    ) -> EvalAnswer:
        """Evaluate a round beside the champion; with `promote`, let the gate decide and move the pointer.

        Raises:
            UsageError: the round is not trained, or `promote` with a baseline that is not the champion.
            EvalError: there is nothing to evaluate on.
        """
        from flywheel.pipeline.deciding import judge
        from flywheel.pipeline.judging import evaluate
        from flywheel.pipeline.page import write_page

        if promote and against is not None:
            raise UsageError("--promote compares with the champion", hint="leave --against out, or leave --promote out")
        with self.locked("eval") as ctx:
            report = evaluate(ctx, number, against=against, suites=suites)
            promotion = judge(ctx, report.round, by="eval --promote") if promote else None
            return EvalAnswer(report=report, promotion=promotion, page=str(write_page(ctx, report.round)))

    def compare_logs(
        self, logs: Sequence[Path | str], *, old: str | None = None, new: str | None = None
    ) -> LogsEvalAnswer:
        """Compare two policies from their logs alone; nothing is written.

        Args:
            logs: the old policy's file, folder or glob, then the new one's; or one for both, with `old` and `new`.
            old: policy or model of the old side; all of its log by default.
            new: policy or model of the new side.

        Raises:
            UsageError: it is not clear which side is which, or nobody in the logs has that name.
            IngestError: nothing was found, or too much is unreadable.
            EvalError: a log has no conversation.
        """
        from flywheel.pipeline.from_logs import compare_logs

        return compare_logs(self.context, [Path(p) for p in logs], old, new, self._passing_key())

    def canary(
        self,
        logs: Sequence[Path | str] = (),
        *,
        old: str | None = None,
        new: str | None = None,
        share: float | None = None,
    ) -> CanaryAnswer:
        """Look at what an old policy and its canary served since the last look, and say what to do.

        Args:
            logs: the old side's, then the canary's; one for both; none for what the project has ingested.
            old: policy or model of the old side.
            new: policy or model of the canary.
            share: of users that the canary should get; canary.share by default.

        Raises:
            UsageError: it is not clear which side is which, or nobody has that name.
            StoreError: the canary's file was changed.
        """
        from flywheel.pipeline.canary import watch

        with self.locked("canary") as ctx:
            return watch(ctx, [Path(p) for p in logs], old, new, self.key(), share)

    def promote(self, number: int, *, force: bool = False, reason: str = "") -> Promotion:
        """Apply the gate to a stored report; or, by force and with a reason, move the champion without it.

        Raises:
            UsageError: force without a reason, or the round cannot be promoted.
            EvalError: the round has no evaluation.
        """
        from flywheel.pipeline import deciding
        from flywheel.pipeline.page import write_page

        if force and not reason.strip():
            raise UsageError("--force needs a reason", hint="flywheel promote N --force --reason 'why'")
        with self.locked("promote") as ctx:
            if force:
                decided = deciding.force(ctx, number, reason=reason.strip(), by="promote --force")
            else:
                decided = deciding.judge(ctx, number, by="promote")
            write_page(ctx, number)
            return decided

    def rollback(self, to: str | None = None, *, reason: str = "") -> Promotion:
        """Move the champion back to the previous one, or to a named round or `base`.

        Raises:
            UsageError: there is nothing to go back to.
        """
        from flywheel.pipeline.deciding import roll_back

        with self.locked("rollback") as ctx:
            return roll_back(ctx, to, reason=reason, by="rollback")

    def run(
        self,
        pipeline: str = "nightly",
        *,
        since: str | None = None,
        until: str | None = None,
        on_stage: Callable[[str, str], None] = lambda _name, _outcome: None,
    ) -> RunAnswer:
        """Run a whole pipeline under one lock.

        Raises:
            ConfigError: there is no such pipeline, or its file does not fit.
            FlywheelError: a stage failed.
        """
        from flywheel.pipeline.recipes import run_recipe

        with self.locked(f"run {pipeline}") as ctx:
            return run_recipe(ctx, pipeline, key=self.key(), since=since, until=until, on_stage=on_stage)

    # --- looking --------------------------------------------------------------------------------------------------

    def log(self, limit: int | None = None) -> LogAnswer:
        """Return rounds and decisions, newest first."""
        from flywheel.pipeline.overview import log_rows

        return LogAnswer(
            rounds=log_rows(self.registry)[:limit], decisions=list(reversed(self.registry.promotions()))[:limit]
        )

    def rewards(self) -> RewardsAnswer:
        """Return what the signals cover, how far they are believed, how well probabilities hold, and what drifts.

        Raises:
            UsageError: nothing was built.
        """
        from flywheel.pipeline.believing import rewards_answer

        return rewards_answer(self.context)

    def audit(
        self,
        n: int = 200,
        *,
        new: bool = False,
        out: Path | None = None,
        ask: Callable[[AuditQuestion], tuple[float, str] | None] | None = None,
        reviewer: str = "reviewer",
    ) -> AuditAnswer:
        """Draw a stratified sample of episodes for a reviewer, or go on with one that still waits for answers.

        Args:
            n: how many to draw.
            new: draw anew although an older draw still waits.
            out: where to write the questions, as JSON lines.
            ask: answers a question with a value in [0, 1] and a comment; None leaves it; KeyboardInterrupt ends.
            reviewer: whose the answers are; stored as a pseudonym.

        Raises:
            UsageError: there is no episode to audit.
        """
        from flywheel.pipeline.auditing import ask_all, audit_answer, latest_draw, open_draw, write_questions

        with self.locked("audit") as ctx:
            build(ctx.store, ctx.config, self.folder, stages=_until("returns"))
            drawn = open_draw(ctx, n, new=new)
            if out is not None:
                write_questions(ctx, drawn, out)
            recorded = 0 if ask is None else ask_all(ctx, drawn, ask, reviewer=reviewer, key=self.key())
            return audit_answer(latest_draw(ctx), recorded, {}, out)

    def audit_answers(self, path: Path, *, reviewer: str = "reviewer") -> AuditAnswer:
        """Record a file's answers as events.

        Raises:
            UsageError: nothing was drawn, or the file cannot be read.
        """
        from flywheel.pipeline.auditing import audit_answer, latest_draw, read_answers, record

        with self.locked("audit") as ctx:
            answers, left = read_answers(ctx, path)
            recorded = record(ctx, answers, reviewer=reviewer, key=self.key())
            return audit_answer(latest_draw(ctx), recorded, left, None)

    def show(self, subject: str) -> ShowAnswer:
        """Return a round, an episode with its steps and rewards, a pair, an example or a group in full.

        Raises:
            UsageError: nothing has that name or id.
        """
        from flywheel.pipeline.overview import show

        return show(self.context, subject)

    def explain(self, subject: str) -> ExplainAnswer:
        """Return sentences with numbers on why a stage is stale, a round was held, or an episode got its reward.

        Raises:
            UsageError: nothing has that name or id.
        """
        from flywheel.pipeline.overview import explain

        return ExplainAnswer(subject=subject, lines=explain(self.context, subject))

    def plugins(self) -> PluginsAnswer:
        """Return the installed extensions, without loading them."""
        rows = [
            {"group": e.group, "name": e.name, "target": e.target, "distribution": e.distribution, "version": e.version}
            for e in list_extensions()
        ]
        return PluginsAnswer(extensions=rows)


_REST = 4.0  # how much longer following rests than it read


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:  # rotated away just now
        return None


def _until(name: str) -> list[Stage]:
    """Return the stages up to this one."""
    stages = select_stages(None)
    return stages[: [stage.name for stage in stages].index(name) + 1]


def _ingest_answer(found: IngestResult, *, dry_run: bool) -> IngestAnswer:
    return IngestAnswer(
        files=found.files,
        unchanged=found.unchanged,
        formats=dict(sorted(found.formats.items())),
        read=found.read,
        kept=found.kept,
        duplicate=found.duplicate,
        ignored=dict(sorted(found.ignored.items())),
        quarantined=dict(sorted(found.quarantined.items())),
        first_quarantined=found.first_bad,
        events=found.events,
        redacted=dict(sorted(found.redacted.items())),
        lost=[
            LostFields(format=name, sampled=fields.total, fields=dict(sorted(fields.by_path.items())))
            for name, fields in sorted(found.lost.items())
        ],
        dry_run=dry_run,
    )


def _with_method(ctx: Context, method: str) -> Context:
    config = Config.model_validate(
        {**ctx.config.model_dump(), "train": {**ctx.config.train.model_dump(), "method": method}}
    )
    return Context(ctx.project, config, ctx.store, ctx.registry, ctx.say, ctx.clock)


def _stage_answer(status: StageStatus) -> StageAnswer:
    return StageAnswer(
        stage=status.stage,
        state=status.state,
        why=list(status.why),
        rows=dict(status.rows),
        funnel=dict(status.funnel),
        seconds=round(status.seconds, 3),
    )
