"""Commands that plan, train, judge and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.errors import UsageError
from flywheel.pipeline.build.run import build
from flywheel.pipeline.context import Context
from flywheel.project.opened import Opened
from flywheel.records import METHODS, Plan, Promotion, RoundManifest
from flywheel.results import (
    CanaryAnswer,
    ChampionAnswer,
    DiffAnswer,
    EvalAnswer,
    LogsEvalAnswer,
    RunAnswer,
)

__all__ = ["RoundCommands"]


class RoundCommands(Opened):
    """Commands that plan, train, judge and run."""

    def plan(self, number: int | None = None, *, method: str | None = None) -> Plan:
        """Return what the next round would contain; builds stale tables first, trains nothing.

        Args:
            number: the round's.
            method: instead of `train.method`.

        Raises:
            UsageError: the number is not the next round's.
            TrainError: there is too little to train on.
        """
        from flywheel.pipeline.train.plan import check_number, make_plan

        with self.locked("plan") as opened:
            ctx = opened if method is None else _with_method(opened, method)
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
        from flywheel.pipeline.train.plan import check_number
        from flywheel.pipeline.train.run import train_round

        if force and not reason.strip():
            raise UsageError("--force needs a reason", hint="flywheel train --force --reason 'why'")
        with self.locked("train") as opened:
            ctx = opened if method is None else _with_method(opened, method)
            chosen = check_number(ctx, number)
            if chosen not in ctx.registry.numbers():
                build(ctx.store, ctx.config, self.folder)
            why = reason.strip() if force else ""
            made = train_round(ctx, chosen, plan=plan, reason=why, on_metrics=on_metrics)
            self._tell()
            return made

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
        from flywheel.pipeline.evaluate.run import evaluate
        from flywheel.pipeline.pages.round_page import write_page
        from flywheel.pipeline.promote.promotion import decide_round

        if promote and against is not None:
            raise UsageError("--promote compares with the champion", hint="leave --against out, or leave --promote out")
        with self.locked("eval") as ctx:
            report = evaluate(ctx, number, against=against, suites=suites)
            promotion = decide_round(ctx, report.round, by="eval --promote") if promote else None
            page = write_page(ctx, report.round)
            self._tell()
            return EvalAnswer(report=report, promotion=promotion, page=str(page))

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
        from flywheel.pipeline.evaluate.compare_logs import compare_logs

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
        from flywheel.pipeline.promote.canary import watch

        with self.locked("canary") as ctx:
            return watch(ctx, [Path(p) for p in logs], old, new, self.key(), share)

    def promote(self, number: int, *, force: bool = False, reason: str = "") -> Promotion:
        """Apply the gate to a stored report; or, by force and with a reason, move the champion without it.

        Raises:
            UsageError: force without a reason, or the round cannot be promoted.
            EvalError: the round has no evaluation.
        """
        from flywheel.pipeline.pages.round_page import write_page
        from flywheel.pipeline.promote import promotion

        if force and not reason.strip():
            raise UsageError("--force needs a reason", hint="flywheel promote N --force --reason 'why'")
        with self.locked("promote") as ctx:
            if force:
                decided = promotion.force(ctx, number, reason=reason.strip(), by="promote --force")
            else:
                decided = promotion.decide_round(ctx, number, by="promote")
            write_page(ctx, number)
            self._tell()
            return decided

    def rollback(self, to: str | None = None, *, reason: str = "") -> Promotion:
        """Move the champion back to the previous one, or to a named round or `base`.

        Raises:
            UsageError: there is nothing to go back to.
        """
        from flywheel.pipeline.promote.promotion import roll_back

        with self.locked("rollback") as ctx:
            decided = roll_back(ctx, to, reason=reason, by="rollback")
            self._tell()
            return decided

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
        from flywheel.pipeline.nightly.run import run_recipe

        with self.locked(f"run {pipeline}") as ctx:
            answer = run_recipe(ctx, pipeline, key=self.key(), since=since, until=until, on_stage=on_stage)
            self._tell()
            return answer

    def champion(self) -> ChampionAnswer:
        """Return what to serve: base model, adapter, hashes and the decision behind it.

        Raises:
            StoreError: the champion's adapter is not the one that was judged.
        """
        from flywheel.pipeline.inspect.status import champion

        return champion(self.context)

    def diff(self, first: str, second: str) -> DiffAnswer:
        """Return what is between two rounds, named by number or alias.

        Raises:
            UsageError: a name is no round's.
        """
        from flywheel.pipeline.inspect.diff import compare_rounds

        return compare_rounds(self.context, first, second)


def _with_method(ctx: Context, method: str) -> Context:
    """Return the project as if its configuration named the method.

    Raises:
        UsageError: there is no such method.
    """
    known = ("auto", *METHODS)
    if method not in known:
        raise UsageError(f"no training method `{method}`", hint=f"methods: {', '.join(known)}")
    config = Config.model_validate(
        {**ctx.config.model_dump(), "train": {**ctx.config.train.model_dump(), "method": method}}
    )
    return Context(ctx.project, config, ctx.store, ctx.registry, ctx.say, ctx.clock, ctx.key)
