"""Commands that look: what is believed and why, one thing in full, whether all is well, and anything in SQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flywheel.config import CONFIG_FILE, origins
from flywheel.extensions import list_extensions
from flywheel.pipeline.build.registry import stages_for
from flywheel.pipeline.build.run import build
from flywheel.project.opened import KEY_FILE, Opened
from flywheel.results import (
    AuditAnswer,
    AuditQuestion,
    ConfigAnswer,
    ConfigValue,
    DigestAnswer,
    DoctorAnswer,
    ExplainAnswer,
    LogAnswer,
    PluginsAnswer,
    RewardsAnswer,
    ShowAnswer,
    ViewAnswer,
)

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["LookCommands"]


class LookCommands(Opened):
    """Commands that look: what is believed and why, one thing in full, whether all is well, and anything in SQL."""

    def log(self, limit: int | None = None) -> LogAnswer:
        """Return rounds and decisions, newest first."""
        from flywheel.pipeline.inspect.status import log_rows

        return LogAnswer(
            rounds=log_rows(self.registry)[:limit], decisions=list(reversed(self.registry.promotions()))[:limit]
        )

    def rewards(self) -> RewardsAnswer:
        """Return what the signals cover, how far they are believed, how well probabilities hold, and what drifts.

        Raises:
            UsageError: nothing was built.
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
        from flywheel.pipeline.rewards.audit import ask_all, audit_answer, write_questions
        from flywheel.pipeline.rewards.sample import latest_draw, open_draw

        with self.locked("audit") as ctx:
            build(ctx.store, ctx.config, self.folder, stages=stages_for("returns"))
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
        from flywheel.pipeline.rewards.audit import audit_answer, read_answers, record
        from flywheel.pipeline.rewards.sample import latest_draw

        with self.locked("audit") as ctx:
            answers, left = read_answers(ctx, path)
            recorded = record(ctx, answers, reviewer=reviewer, key=self.key())
            return audit_answer(latest_draw(ctx), recorded, left, None)

    def show(self, subject: str) -> ShowAnswer:
        """Return a round, an episode with its steps and rewards, a pair, an example or a group in full.

        Raises:
            UsageError: nothing has that name or id.
        """
        from flywheel.pipeline.inspect.show import show

        return show(self.context, subject)

    def report(self, since: str = "7d", *, as_of: str | None = None) -> DigestAnswer:
        """Return a span of time in numbers: what was learnt, what still fails, what it cost.

        Args:
            since: how long the span is: 7d, 24h, 2w.
            as_of: where it ends, a date or a time; the newest event by default, never the clock.

        Raises:
            UsageError: a span or a date that is none, or logs without times.
        """
        from flywheel.pipeline.inspect.digest import digest, moment, span

        return digest(self.context, span(since), moment(as_of) if as_of is not None else None)

    def view(self, subject: str | None = None, *, bundle: Path | None = None) -> ViewAnswer:
        """Write the episodes' viewer as a folder of pages, or one episode as one page, and return what to open.

        Args:
            subject: a round, whose trained tokens are marked, or an episode; the newest round by default.
            bundle: the folder to write; one within the store by default.

        Raises:
            UsageError: nothing was built, nothing has that name, or the folder holds something else.
        """
        from flywheel.pipeline.pages.viewer import view

        return view(self.context, subject, bundle.resolve() if bundle else None)

    def explain(self, subject: str) -> ExplainAnswer:
        """Return sentences with numbers on why a stage is stale, a round was held, or an episode got its reward.

        Raises:
            UsageError: nothing has that name or id.
        """
        from flywheel.pipeline.inspect.explain import explain

        return ExplainAnswer(subject=subject, lines=explain(self.context, subject))

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a SQL query over the tables; it can read nothing else, and change nothing.

        Raises:
            UsageError: the text is no query that the tables can answer.
        """
        from flywheel.pipeline.inspect.query import query

        return query(self.context, sql)

    def doctor(self) -> DoctorAnswer:
        """Check whether a night would go through: environment, disk, store, model, rounds; changes nothing."""
        from flywheel.pipeline.inspect.doctor import examine

        checks = examine(self.context, self.folder / KEY_FILE)
        return DoctorAnswer(healthy=all(check.state != "failed" for check in checks), checks=checks)

    def settings(self, file: Path | None = None) -> ConfigAnswer:
        """Return every value of the configuration and where it comes from: the given file, or flywheel.toml."""
        found = origins(file or self.folder / CONFIG_FILE, self.config)
        return ConfigAnswer(values=[ConfigValue(key=key, value=value, origin=origin) for key, value, origin in found])

    def plugins(self) -> PluginsAnswer:
        """Return the installed extensions, without loading them."""
        rows = [
            {"group": e.group, "name": e.name, "target": e.target, "distribution": e.distribution, "version": e.version}
            for e in list_extensions()
        ]
        return PluginsAnswer(extensions=rows)
