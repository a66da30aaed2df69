"""The Python API: a project, opened from its folder, with one method for each command.

from flywheel import Project
project = Project(".")
project.ingest(["logs"]); project.build(); project.train(); project.evaluate(promote=True)
"""

from __future__ import annotations

import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.config import CONFIG_FILE, Config, load_config
from flywheel.config.approval import refuse_unapproved
from flywheel.errors import UsageError
from flywheel.io import files
from flywheel.io.bucket import address
from flywheel.io.bucket_path import source_path
from flywheel.io.places import Folder, InBucket
from flywheel.pipeline import redaction_key
from flywheel.pipeline.build.registry import STAGE_NAMES
from flywheel.pipeline.build.run import build, select_stages
from flywheel.pipeline.context import Context
from flywheel.registry.registry import LINK, Registry
from flywheel.store import FORGETTING, Store

if TYPE_CHECKING:
    import pyarrow as pa

    from flywheel.pipeline.admin.gc import Kept
    from flywheel.pipeline.ingest.counts import ReadSoFar
    from flywheel.records import Plan, Promotion, RoundManifest
    from flywheel.results.data import (
        BuildAnswer,
        ExportAnswer,
        IngestAnswer,
        PublishAnswer,
        QuarantineAnswer,
        QuarantineRetry,
        ReadersAnswer,
        StageAnswer,
        StatusAnswer,
    )
    from flywheel.results.deploy import CanaryAnswer, ChampionAnswer, DeployMergeAnswer, DeployVllmAnswer, PushAnswer
    from flywheel.results.inspect import ExplainAnswer, ReportAnswer, ShowAnswer, ViewAnswer
    from flywheel.results.operations import ForgetAnswer, GcAnswer, RepartitionAnswer, RunAnswer
    from flywheel.results.rewards import AuditAnswer, AuditQuestion, RewardsAnswer
    from flywheel.results.rounds import DiffAnswer, EvalAnswer, LogAnswer, LogsEvalAnswer
    from flywheel.results.setup import ConfigAnswer, DoctorAnswer, InitAnswer, PluginsAnswer, TrustAnswer

KEY_FILE = ".flywheel.key"
_CACHES = ".flywheel"  # of stores in buckets


def _place(folder: Path, store: str) -> Folder:
    """Return where a project's store is; what was read or written here of one in a bucket is in a cache."""
    where = address(store)
    if where is None:
        return Folder(folder / store)
    return InBucket(folder / _CACHES / f"{where.scheme}-{where.bucket}-{files.hash_text(where.url)[:8]}", where)


def find_project(start: Path) -> Path:
    """Return the nearest folder at or above `start` that has a flywheel.toml, else `start` itself."""
    start = start.resolve()
    return next((f for f in (start, *start.parents) if (f / CONFIG_FILE).exists()), start)


class Project:
    """A folder with logs, a store and rounds.

    A method has the name of its command, and methods come in the groups and the order of `flywheel --help`. Where an
    option or a subcommand does another job, its name is added: `ingest --follow` is `ingest_follow`, `deploy vllm` is
    `deploy_vllm`. Two names differ: `eval` is `evaluate`, because Python has an `eval`, and `config` is `settings`,
    because `config` is the configuration itself.

    Args:
        folder: the project's folder; no configuration file is needed.
        config: configuration to use instead of the folder's flywheel.toml.
        say: receives progress messages.

    Raises:
        ConfigError: flywheel.toml is not valid, or names what was not approved on this machine.
        StoreError: the store has another layout.
    """

    def __init__(
        self, folder: Path | str = ".", *, config: Config | None = None, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise UsageError(f"`{folder}` is not a folder", hint="pass the project's folder with -C")
        given = config if config is not None else load_config(self.folder / CONFIG_FILE)
        self.config = given.placed_in(self.folder)
        refuse_unapproved(self.folder, self.config)
        self.store = Store(_place(self.folder, self.config.store), self.config.build.partitions)
        self._registry = Registry(self.folder / self.config.rounds, self.store.place)
        self._looked = False  # whether this command has asked the bucket for other machines' rounds
        self._say = say

    @property
    def registry(self) -> Registry:
        """The rounds; those of a store in a bucket as they were when the project was opened, or at its last command."""
        if not self._looked:
            self._looked = True
            self._registry.refresh(alone=False)
        return self._registry

    @property
    def context(self) -> Context:
        """The project as pipeline functions take it."""
        return Context(self.folder, self.config, self.store, self.registry, self._say, key=self._key_for_reading)

    @contextmanager
    def locked(self, command: str) -> Iterator[Context]:
        """Hold the project's lock; on entry, clean up and finish what an interrupted command left.

        Raises:
            BusyError: another process holds the lock.
        """
        files.refuse_links(self.store.root)
        files.refuse_links(self._registry.root, besides=LINK, foreign="tracking")
        with files.ProjectLock(self.store.root, command):
            self.store.create()
            files.remove_partials(self._registry.root)
            self._looked = True
            if self._registry.refresh(alone=True):
                from flywheel.pipeline.privacy.erase import cleanse_pages, empty_cache

                self._say("a user was forgotten on another machine: pages and caches here are emptied")
                empty_cache(self.context)
                cleanse_pages(self.context)
            for problem in self.registry.misplaced():
                self._say(f"{problem}: set again from the decisions")
            self.registry.recover()
            if (self.store.root / FORGETTING).exists():
                from flywheel.pipeline.privacy.forget import resume

                resume(self.context)
            yield self.context
            self._registry.share()

    def key(self, *, make: bool = True) -> bytes:
        """Return the redaction key, FLYWHEEL_KEY or the key file, by which the store's pseudonyms were made.

        Args:
            make: write a key file for a store without any event, and take down the key's fingerprint; call under the
                lock. Otherwise an empty store gets a key that is used once.

        Raises:
            StoreError: the store's pseudonyms were made with another key, or theirs is missing.
        """
        key = redaction_key.given(self.folder / KEY_FILE)
        redaction_key.refuse_other(key, self.store, self.folder / KEY_FILE)
        if not make:
            return key or secrets.token_hex(32).encode()
        key = key or redaction_key.made(self.folder / KEY_FILE)
        if not self.store.key_fingerprint:
            self.store.keep_fingerprint(redaction_key.fingerprint(key))
        return key

    def _key_for_reading(self) -> bytes:
        """Return the redaction key for the store's pseudonyms, writing nothing."""
        return self.key(make=False)

    def _any_key(self) -> bytes:
        """Return a key for what is read and not stored: the project's, or a random one."""
        return redaction_key.given(self.folder / KEY_FILE) or secrets.token_hex(32).encode()

    def _log_to_mlflow(self) -> None:
        """Log rounds to MLflow where [mlflow] names a server; a failure there fails no command."""
        if self.config.mlflow.tracking_uri:
            from flywheel.pipeline.serve.mlflow import log_to_mlflow

            log_to_mlflow(self.context)

    # --- setup --------------------------------------------------------------------------------------------------------

    @staticmethod
    def init(folder: Path | str = ".", *, demo: bool = False) -> InitAnswer:
        """Write a project's starting files; with `demo`, sample logs too.

        Raises:
            UsageError: the folder already has a flywheel.toml.
        """
        from flywheel.pipeline.admin.setup import init

        return init(Path(folder).resolve(), demo=demo)

    @staticmethod
    def trust(
        folder: Path | str = ".",
        *,
        config: Path | None = None,
        outside: bool = False,
        seen: str = "",
        dry_run: bool = False,
    ) -> TrustAnswer:
        """Approve the code, the commands and the addresses that a project names, for this user on this machine.

        Args:
            folder: the project's folder, which need not be trusted yet.
            config: a configuration that is used in place of the folder's flywheel.toml; both are approved.
            outside: also approve a store and rounds outside of it.
            seen: approve only what an earlier answer listed, by its `sha256`.
            dry_run: only list them.

        Raises:
            ConfigError: flywheel.toml or a pipeline's file is not valid, or another thing than was seen.
        """
        from flywheel.pipeline.admin.setup import trust

        return trust(Path(folder).resolve(), config, outside=outside, seen=seen, dry_run=dry_run)

    def settings(self, file: Path | None = None) -> ConfigAnswer:
        """Return every configuration value with its origin; `file` replaces flywheel.toml."""
        from flywheel.pipeline.admin.setup import settings

        return settings(self.config, file or self.folder / CONFIG_FILE)

    def doctor(self) -> DoctorAnswer:
        """Check environment, disk, store, model and rounds; changes nothing."""
        from flywheel.pipeline.inspect.doctor import doctor

        return doctor(self.context, self.folder / KEY_FILE)

    def plugins(self) -> PluginsAnswer:
        """Return the installed extensions, without loading them."""
        from flywheel.pipeline.admin.setup import plugins

        return plugins()

    @staticmethod
    def schema(name: str) -> dict[str, Any]:
        """Return a published JSON Schema.

        Raises:
            UsageError: no schema has that name; the hint lists all.
        """
        from flywheel.pipeline.admin.schemas import schema_document

        return schema_document(name)

    # --- data ---------------------------------------------------------------------------------------------------------

    def ingest(  # noqa: PLR0913 - one parameter an option
        self,
        paths: Sequence[Path | str] = (),
        *,
        log_format: str | None = None,
        policy: str | None = None,
        max_quarantine: float | None = None,
        reread: bool = False,
        dry_run: bool = False,
        strict: bool = True,
        on_read: Callable[[ReadSoFar], None] = lambda _: None,
    ) -> IngestAnswer:
        """Read new log lines into the store; lines that were ingested before change nothing.

        Args:
            paths: files, folders or globs; default: ingest.sources.
            log_format: name of a reader; default: detected.
            policy: whose acts the logs are, where they do not say so.
            max_quarantine: share of unreadable records above which a file is set aside; default: the setting.
            reread: read known files from their beginning, and replace what is stored of them; without paths, those that
                an older version of their reader read.
            dry_run: count everything, store nothing.
            strict: whether it is an error that nothing can be read.
            on_read: called while reading.

        Raises:
            IngestError: no file was found, or nothing can be read.
            UsageError: an option has no meaning.
        """
        from flywheel.pipeline.ingest.run import default_sources, ingest_logs

        if max_quarantine is not None and not 0 <= max_quarantine <= 1:
            raise UsageError(f"--max-quarantine {max_quarantine:g} is not a share", hint="a number from 0 to 1")
        if policy is not None and not policy.strip():
            raise UsageError("--policy has no name", hint="flywheel ingest PATH --policy NAME")
        options = {"format": log_format, "policy": policy, "max_quarantine": max_quarantine}
        changes = {name: value for name, value in options.items() if value is not None}
        config = self.config
        config = config.model_copy(update={"ingest": config.ingest.model_copy(update=changes)})
        sources = [source_path(p) for p in paths] or ([] if reread else default_sources(config, self.folder))
        with self.locked("ingest") as ctx:
            return ingest_logs(
                ctx.store, config, self.folder, sources, key=self.key(make=not dry_run), reread=reread,
                dry_run=dry_run, strict=strict, on_read=on_read,
            )  # fmt: skip

    def ingest_follow(
        self,
        paths: Sequence[Path | str] = (),
        *,
        log_format: str | None = None,
        policy: str | None = None,
        max_quarantine: float | None = None,
        interval_s: float = 10.0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> Iterator[IngestAnswer]:
        """Ingest files as they grow, and yield a result whenever there was a new record, until the caller stops.

        The lock is held only while reading. A file that cannot be read is set aside, and tried again when it grows.

        Raises:
            IngestError: no file was found.
        """
        from flywheel.pipeline.ingest.follow import follow

        def ingest(grown: list[Path]) -> IngestAnswer:
            return self.ingest(grown, log_format=log_format, policy=policy, max_quarantine=max_quarantine, strict=False)

        sources = [source_path(p) for p in paths] or [source_path(s, self.folder) for s in self.config.ingest.sources]
        return follow(ingest, sources, interval_s, sleep)

    def quarantine(self, *, reason: str | None = None, file: str | None = None, limit: int = 20) -> QuarantineAnswer:
        """Return the records that ingest refused: counts by reason with what they mean, and the first rows.

        Raises:
            UsageError: there is no such reason.
        """
        from flywheel.pipeline.ingest.quarantine import quarantine

        return quarantine(self.context, reason=reason, file=file, limit=limit)

    def quarantine_retry(self) -> QuarantineRetry:
        """Read the files with quarantined records again.

        Raises:
            UsageError: the quarantine is empty.
        """
        from flywheel.pipeline.ingest.quarantine import retry

        with self.locked("quarantine") as ctx:
            return retry(ctx, self.key())

    def readers(self, file: Path | None = None, *, events: int = 0, sketch: bool = False) -> ReadersAnswer:
        """Return all readers; with a file, each one's confidence, the detected format and the first events.

        Args:
            file: the file.
            events: how many of its first events to return.
            sketch: return the beginning of a reader for the file, too.

        Raises:
            ConfigError: a reader of the project's own has another one's name, or was not approved here.
            IngestError: the file cannot be read, or with `sketch` holds no objects with words.
        """
        from flywheel.pipeline.ingest.detect import first_events, look, readers, sketched
        from flywheel.pipeline.ingest.policies import policies_of

        config, answer = self.config.ingest, readers(self.config.ingest, self.folder, file)
        if file is None:
            return answer
        seen = look(config, self.folder, file, self._any_key())
        verdict = f"{answer.verdict}; {seen.unreadable}" if seen.unreadable else answer.verdict
        more = {"events": first_events(seen, events), "verdict": verdict, "policies": policies_of([seen.events])}
        more |= {"sketch": sketched(config, file)} if sketch else {}
        return answer.model_copy(update=more)

    def build(
        self,
        *,
        select: str | None = None,
        full_refresh: bool = False,
        on_stage: Callable[[StageAnswer], None] = lambda _: None,
    ) -> BuildAnswer:
        """Bring the derived tables up to date; fresh stages are skipped.

        Raises:
            UsageError: `select` names no stage, or one that reads what was never built.
        """
        from flywheel.results.data import BuildAnswer

        stages = select_stages(select)
        with self.locked("build") as ctx:
            states = build(
                ctx.store, ctx.config, self.folder, stages=stages, full_refresh=full_refresh, on_stage=on_stage
            )
        return BuildAnswer(stages=states)

    def status(self) -> StatusAnswer:
        """Return what is new, stale and pending; reads JSON files only."""
        from flywheel.pipeline.inspect.status import status

        return status(self.context)

    def query(self, sql: str, *, seconds: float = 60.0, gigabytes: float = 2.0) -> pa.Table:
        """Return the rows of a SQL query over the tables; it can read nothing else and change nothing.

        Args:
            sql: one query.
            seconds: after which it is stopped.
            gigabytes: of memory that it may use.

        Raises:
            UsageError: the text is not a query that the tables can answer within the limits.
        """
        from flywheel.pipeline.inspect.query import query

        return query(self.context, sql, seconds=seconds, gigabytes=gigabytes)

    def export(
        self, folder: Path | str, *, forms: Sequence[str] = (), split: str = "train", to: str = ""
    ) -> ExportAnswer:
        """Write the mined rows as datasets in TRL's forms, or `to` another system; stale tables are built first.

        Raises:
            UsageError: an unknown form, split or system, or a folder that flywheel did not write.
        """
        from flywheel.pipeline.serve.export import check_forms, export

        check_forms(forms, split, to)
        with self.locked("export") as ctx:
            build(ctx.store, ctx.config, self.folder)
            return export(ctx, Path(folder).resolve(), forms, split, to)

    def publish(self) -> PublishAnswer:
        """Bring the Delta log of each table up to its current snapshot, over the store's own files.

        Raises:
            StoreError: a part is missing or damaged.
        """
        from flywheel.pipeline.serve.delta import publish

        with self.locked("publish") as ctx:
            return publish(ctx.store)

    # --- rewards ------------------------------------------------------------------------------------------------------

    def rewards(self) -> RewardsAnswer:
        """Return coverage and reliability of the signals, calibration, and drift by policy, intent and month.

        Raises:
            UsageError: no table was built yet.
        """
        from flywheel.pipeline.rewards.quality import rewards_answer

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
        """Draw a stratified sample of episodes for a reviewer, or continue with an unfinished one.

        Args:
            n: episodes to draw.
            new: draw a new sample even if the last one is unfinished.
            out: file for the questions, as JSON lines.
            ask: returns a value in [0, 1] and a comment, or None to skip; KeyboardInterrupt ends.
            reviewer: stored as a pseudonym.

        Raises:
            UsageError: there is no episode to audit.
        """
        from flywheel.pipeline.build.registry import stages_for
        from flywheel.pipeline.rewards.audit import audit

        with self.locked("audit") as ctx:
            build(ctx.store, ctx.config, self.folder, stages=stages_for("returns"))
            return audit(ctx, n, self.key(), new=new, out=out, ask=ask, reviewer=reviewer)

    def audit_answers(self, path: Path, *, reviewer: str = "reviewer") -> AuditAnswer:
        """Record the answers in a file as events.

        Raises:
            UsageError: there is no sample, or the file cannot be read.
        """
        from flywheel.pipeline.rewards.audit import record_file

        with self.locked("audit") as ctx:
            return record_file(ctx, path, self.key(), reviewer=reviewer)

    # --- rounds -------------------------------------------------------------------------------------------------------

    def plan(
        self,
        number: int | None = None,
        *,
        method: str | None = None,
        on_progress: Callable[[str, int, int], None] = lambda _text, _done, _of: None,
    ) -> Plan:
        """Return what the next round would contain; builds stale tables first, trains nothing.

        Args:
            number: of the round.
            method: instead of `train.method`.
            on_progress: gets what is being measured, how many prompts are done, and how many there are.

        Raises:
            UsageError: the number is not the next round's, or there is no such method.
            TrainError: there is too little data.
        """
        from flywheel.pipeline.train.plan import check_number, make_plan

        with self.locked("plan") as opened:
            ctx = replace(opened, progress=on_progress).with_method(method)
            number = check_number(ctx, number)
            build(ctx.store, ctx.config, self.folder)
            return make_plan(ctx, number).plan

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
        """Train a round: build stale tables, plan, execute. A trained round is returned as it is.

        With `force` and a reason, which the manifest records, a red monitor does not block training.

        Raises:
            UsageError: the number is not the next round's, the round was started under another configuration, or
                `force` has no reason.
            TrainError: there is too little data, a monitor is red, or training failed.
        """
        from flywheel.pipeline.train.plan import check_number
        from flywheel.pipeline.train.run import train_round

        reason = _reason("train", reason) if force else ""
        with self.locked("train") as opened:
            ctx = opened.with_method(method)
            number = check_number(ctx, number)
            if number not in ctx.registry.numbers():
                build(ctx.store, ctx.config, self.folder)
            manifest = train_round(ctx, number, plan=plan, reason=reason, on_metrics=on_metrics)
            self._log_to_mlflow()
            return manifest

    def evaluate(
        self,
        number: int | None = None,
        *,
        against: str | None = None,
        suites: Sequence[str] | None = None,
        promote: bool = False,
        on_progress: Callable[[str, int, int], None] = lambda _text, _done, _of: None,
    ) -> EvalAnswer:
        """Evaluate a round against the champion; with `promote`, let the gate decide and move the champion.

        Args:
            number: the round; the newest trained one by default.
            against: a round, an alias or `base`; the champion by default.
            suites: suites to run; those of the configuration by default.
            promote: let the gate decide.
            on_progress: gets what is being scored, how many of its prompts are done, and how many there are.

        Raises:
            UsageError: the round is not trained, or `promote` with a baseline that is not the champion.
            EvalError: there is no case to evaluate on.
            StoreError: the store's redaction key is missing, or another is given.
        """
        from flywheel.pipeline.evaluate.run import evaluate
        from flywheel.pipeline.pages.round_page import write_page
        from flywheel.pipeline.promote.promotion import decide_round
        from flywheel.results.rounds import EvalAnswer

        if promote and against is not None:
            raise UsageError("--promote compares with the champion", hint="drop --against or --promote")
        with self.locked("eval") as ctx:
            self.key(make=False)  # which the page of what was scored needs
            watched = replace(ctx, progress=on_progress)
            report = evaluate(watched, number, against=against, suites=suites)
            promotion = decide_round(ctx, report.round, by="eval --promote") if promote else None
            page = write_page(ctx, report.round)
            self._log_to_mlflow()
            return EvalAnswer(report=report, promotion=promotion, page=str(page))

    def evaluate_logs(
        self, logs: Sequence[Path | str], *, old: str | None = None, new: str | None = None
    ) -> LogsEvalAnswer:
        """Compare two policies from their logs alone; writes nothing.

        Args:
            logs: the old policy's file, folder or glob, then the new one's; or one for both, with `old` and `new`.
            old: policy or model of the old side; all of its log by default.
            new: policy or model of the new side.

        Raises:
            UsageError: the sides are ambiguous, or no episode has that policy.
            IngestError: no file was found, or too many records are unreadable.
            EvalError: a log has no conversation.
        """
        from flywheel.pipeline.evaluate.compare_logs import compare_logs

        return compare_logs(self.context, [Path(p) for p in logs], old, new, self._any_key())

    def promote(self, number: int, *, force: bool = False, reason: str = "") -> Promotion:
        """Apply the gate to a stored report; or, with `force` and a reason, move the champion without it.

        Raises:
            UsageError: `force` has no reason, or the round cannot be promoted.
            EvalError: the round has no evaluation.
        """
        from flywheel.pipeline.pages.round_page import write_page
        from flywheel.pipeline.promote import promotion

        reason = _reason("promote N", reason) if force else ""
        with self.locked("promote") as ctx:
            if force:
                decision = promotion.force(ctx, number, reason=reason, by="promote --force")
            else:
                decision = promotion.decide_round(ctx, number, by="promote")
            write_page(ctx, number)
            self._log_to_mlflow()
            return decision

    def rollback(self, to: str | None = None, *, reason: str = "") -> Promotion:
        """Move the champion back to the previous one, or to a named round or `base`.

        Raises:
            UsageError: there is no earlier champion.
        """
        from flywheel.pipeline.pages.round_page import rewrite_page
        from flywheel.pipeline.promote.promotion import roll_back

        with self.locked("rollback") as ctx:
            decision = roll_back(ctx, to, reason=reason, by="rollback")
            rewrite_page(ctx, decision.round)
            self._log_to_mlflow()
            return decision

    def rollback_target(self, to: str | None = None) -> tuple[int, int | None]:
        """Return the champion, and the round to which `rollback` would move it back; None: the base model.

        Raises:
            UsageError: there is no earlier champion.
        """
        from flywheel.pipeline.promote.promotion import rollback_target

        return rollback_target(self.context, to)

    def log(self, limit: int | None = None) -> LogAnswer:
        """Return rounds and decisions, newest first."""
        from flywheel.pipeline.inspect.status import log

        return log(self.context, limit)

    def diff(self, first: str, second: str) -> DiffAnswer:
        """Return the differences between two rounds, named by number or alias.

        Raises:
            UsageError: a name is not a round's.
        """
        from flywheel.pipeline.inspect.diff import compare_rounds

        return compare_rounds(self.context, first, second)

    # --- deploy -------------------------------------------------------------------------------------------------------

    def champion(self) -> ChampionAnswer:
        """Return what to serve: base model, adapter, hashes and the decision behind it.

        Raises:
            StoreError: the adapter's files do not match the manifest.
        """
        from flywheel.pipeline.inspect.status import champion

        return champion(self.context)

    def canary(
        self,
        logs: Sequence[Path | str] = (),
        *,
        old: str | None = None,
        new: str | None = None,
        share: float | None = None,
        before: Sequence[Path | str] = (),
    ) -> CanaryAnswer:
        """Compare an old policy and its canary on attempts since the last look, and decide.

        Args:
            logs: the old side's, then the canary's; one for both; none for the ingested logs.
            old: policy or model of the old side.
            new: policy or model of the canary.
            share: of users that the canary should get; canary.share by default.
            before: logs from before the canary; the old side's attempts before its first day need not be named.

        Raises:
            UsageError: the sides are ambiguous, or no episode has that policy.
            StoreError: the canary's file was changed.
        """
        from flywheel.pipeline.promote.canary import watch

        with self.locked("canary") as ctx:
            sides, earlier = [Path(p) for p in logs], [Path(p) for p in before]
            return watch(ctx, sides, old, new, self.key(), share=share, before=earlier)

    def push(
        self, to: str, *, target: str = "@champion", unpromoted: bool = False, dataset: bool = False, token: str = ""
    ) -> PushAnswer:
        """Write a round's adapter with its card in the form of a model hub: to a folder, or to a hub.

        Args:
            to: a folder, new or written by an earlier push, or `hf:OWNER/NAME` on the hub that push.host allows.
            target: round or alias.
            unpromoted: whether a round that was never champion may be pushed.
            dataset: whether the rows that it was trained on go along, redacted.
            token: of the hub.

        Raises:
            UsageError: the round may not be pushed, the folder holds other files, or no hub is allowed.
            FlywheelError: the hub refuses or does not answer.
        """
        from flywheel.pipeline.serve.push import push

        with self.locked("push") as ctx:
            number = ctx.registry.resolve(target)
            return push(ctx, number, to, unpromoted=unpromoted, dataset=dataset, token=token)

    def deploy_vllm(  # noqa: PLR0913 - one parameter an option
        self,
        url: str,
        *,
        target: str = "@champion",
        path: str = "",
        name: str = "",
        token: str = "",
        keep: int = 1,
        timeout_s: float = 120.0,
    ) -> DeployVllmAnswer:
        """Load a round into a running vLLM server, and keep the previous adapter loaded for a rollback.

        Args:
            url: the server's address.
            target: round, alias or `base`.
            path: the adapter's folder as the server sees it; '' for the path here.
            name: of the model on the server; '' for the project's name and the round.
            token: the server's API key; '' for none.
            keep: earlier adapters that stay loaded.
            timeout_s: for one request.

        Raises:
            UsageError: the round may not serve, or the server has another model of that name.
            FlywheelError: the server refuses or does not answer.
        """
        from flywheel.pipeline.serve.deploy import deploy_vllm
        from flywheel.pipeline.serve.vllm import Server

        with self.locked("deploy") as ctx:
            server = Server(url, token, timeout_s)
            return deploy_vllm(ctx, server, ctx.registry.resolve(target), path=path, name=name, keep=keep)

    def deploy_merge(self, folder: Path | str, *, target: str = "@champion", gguf: bool = False) -> DeployMergeAnswer:
        """Merge a round into its base model, write it in transformers format and compare the logits.

        Args:
            folder: new, empty, or written by an earlier merge.
            target: round or alias.
            gguf: also write `model.gguf` with llama.cpp's converter.

        Raises:
            UsageError: the folder holds other files, the round may not serve, or the converter is missing.
            FlywheelError: the base model has changed, or the logits differ.
        """
        from flywheel.pipeline.serve.merge import merge_round

        with self.locked("deploy") as ctx:
            return merge_round(ctx, ctx.registry.resolve(target), Path(folder).resolve(), gguf=gguf)

    # --- inspect ------------------------------------------------------------------------------------------------------

    def show(self, subject: str) -> ShowAnswer:
        """Return a round, an episode with its steps and rewards, a pair, an example or a group in full.

        Raises:
            UsageError: no object has that name or id.
        """
        from flywheel.pipeline.inspect.show import show

        return show(self.context, subject)

    def view(self, subject: str | None = None, *, bundle: Path | None = None) -> ViewAnswer:
        """Write the episode viewer as a folder of pages, or one episode as one page, and return what to open.

        Args:
            subject: a round, whose trained tokens are marked, or an episode; the newest round by default.
            bundle: the folder to write; one within the store by default.

        Raises:
            UsageError: no table was built, no object has that name, or the folder holds other files.
        """
        from flywheel.pipeline.pages.viewer import view

        return view(self.context, subject, bundle.resolve() if bundle else None)

    def explain(self, subject: str) -> ExplainAnswer:
        """Return the reasons, in sentences with numbers: of a stage, round, episode, pair, example, group or the gate.

        Raises:
            UsageError: no object has that name or id.
        """
        from flywheel.pipeline.inspect.explain import explain

        return explain(self.context, subject)

    def report(self, since: str = "7d", *, as_of: str | None = None) -> ReportAnswer:
        """Return a span of time in numbers: what was learnt, what still fails, what it cost.

        Args:
            since: length of the span: 7d, 24h, 2w.
            as_of: its end, a date or a time; the newest episode by default, never the clock.

        Raises:
            UsageError: an invalid span or date.
        """
        from flywheel.pipeline.inspect.report import moment, report, span

        return report(self.context, span(since), moment(as_of) if as_of is not None else None)

    # --- operations ---------------------------------------------------------------------------------------------------

    def run(
        self,
        pipeline: str = "nightly",
        *,
        since: str | None = None,
        until: str | None = None,
        on_stage: Callable[[str, str], None] = lambda _name, _outcome: None,
    ) -> RunAnswer:
        """Run a pipeline under one lock.

        Raises:
            ConfigError: there is no such pipeline, or its file is not valid.
            FlywheelError: a stage failed.
        """
        from flywheel.pipeline.nightly.run import run_recipe

        with self.locked(f"run {pipeline}") as ctx:
            answer = run_recipe(ctx, pipeline, key=self.key(), since=since, until=until, on_stage=on_stage)
            self._log_to_mlflow()
            return answer

    def schedule(self, scheduler: str, *, at: str = "02:30", pipeline: str = "nightly") -> str:
        """Return a schedule for cron, systemd or airflow that runs a pipeline of this project; installs nothing.

        Raises:
            UsageError: an unknown scheduler, or not a time of day.
        """
        from flywheel.pipeline.nightly.schedule import schedule

        command = Path(shutil.which("flywheel") or Path(sys.executable).with_name("flywheel")).absolute()
        return schedule(scheduler, folder=self.folder, command=command, at=at, pipeline=pipeline)

    def forget(self, user: str, *, dry_run: bool = False) -> ForgetAnswer:
        """Remove a user's data, and withdraw adapters that learnt from it; with `dry_run`, only count it.

        Args:
            user: the id as logs write it, or the pseudonym as the tables show it.
            dry_run: change nothing.

        Raises:
            UsageError: the project has never had data of this user.
        """
        from flywheel.pipeline.privacy.forget import forget

        with (
            self.locked("forget") as ctx,
            nullcontext() if dry_run else ctx.store.place.alone("forget", STAGE_NAMES, all_parts=True),
        ):
            self._registry.refresh(alone=True)  # under the lease: rounds that came since the command began
            answer = forget(ctx, user, key=self.key(make=False), dry_run=dry_run)
            if not dry_run:
                self._log_to_mlflow()
            return answer

    def gc(self, kept: Kept | None = None, *, dry_run: bool = False) -> GcAnswer:
        """Remove files that are no longer needed, or count them.

        Args:
            kept: how much stays; by default also what a round's provenance needs.
            dry_run: remove nothing.
        """
        from flywheel.pipeline.admin.gc import collect

        with self.locked("gc") as ctx:
            return collect(ctx, kept, dry_run=dry_run)

    def repartition(self, partitions: int) -> RepartitionAnswer:
        """Store the events in so many partitions, row for row as they are; the next build makes all tables again.

        Raises:
            UsageError: the number is not one from 1 to 1,024.
        """
        from flywheel.pipeline.admin.repartition import repartition

        with self.locked("repartition") as ctx, ctx.store.place.alone("repartition", STAGE_NAMES):
            return repartition(ctx.store, partitions)


def _reason(command: str, reason: str) -> str:
    """Return the reason for a forced action.

    Raises:
        UsageError: it is empty.
    """
    if not reason.strip():
        raise UsageError("--force needs a reason", hint=f"flywheel {command} --force --reason 'why'")
    return reason.strip()
