"""The nightly job's journal: the outcome of each stage, so that a cut-off night resumes and any stage can run alone.

In: stages as they begin and end. Out: `night.json` in the store, one `Night`, rewritten with every stage. A pipeline
may run in one process or, under a scheduler, in one process a stage: both write the same journal. A night is over when
the pipeline's last stage is; one that is not over resumes under its id.
"""

from __future__ import annotations

import contextlib
from typing import Any

from flywheel import present
from flywheel.errors import ExitCode, FlywheelError
from flywheel.io import files
from flywheel.pipeline.context import Context
from flywheel.pipeline.inspect.status import NIGHT, last_night
from flywheel.records import Need, Night, NightStage, Promotion, content_id


class Journal:
    """The current night.

    Args:
        ctx: the project, locked.
        pipeline: name of the pipeline.
        trains: whether this run decides itself whether to train: then what an earlier process waited for is cleared.
    """

    def __init__(self, ctx: Context, pipeline: str, *, trains: bool) -> None:
        self._ctx = ctx
        before = last_night(ctx)
        before = before if before is not None and before.pipeline == pipeline else None
        self.unfinished = before is not None and before.outcome in {"running", "failed"}
        self.night = before if before is not None and before.ended_at is None else self._begin(pipeline)
        if before is not None and self.unfinished:  # a round whose page or hooks failed is still this night's
            self._change(round=before.round)
        self._change(outcome="running", error="", hint="", failed_stage="", **({"missing": []} if trains else {}))

    def _begin(self, pipeline: str) -> Night:
        now = self._ctx.clock()
        project = self._ctx.config.name or self._ctx.project.name
        name = content_id("night", str(self._ctx.project), pipeline, now.isoformat())[:12]
        return Night(night=name, project=project, pipeline=pipeline, began_at=now)

    def _change(self, **values: Any) -> None:
        self.night = self.night.model_copy(update=values)

    def _write(self) -> None:
        files.write_json(self._ctx.store.root / NIGHT, self.night.model_dump(mode="json"))

    def _put(self, entry: NightStage) -> None:
        others = [s for s in self.night.stages if s.stage != entry.stage]
        self._change(stages=[*others, entry])

    # --- stage by stage -------------------------------------------------------------------------------------------

    def begin(self, stage: str) -> None:
        """Record that a stage runs; killed now, it is the one that was cut off."""
        self._put(NightStage(stage=stage, state="running"))
        self._write()

    def done(self, stage: str, outcome: str, seconds: float, *, skipped: bool = False) -> None:
        """Record the end of a stage."""
        state = "skipped" if skipped else "done"
        self._put(NightStage(stage=stage, state=state, outcome=outcome, seconds=round(seconds, 3)))
        self._write()

    def update(self, *, number: int | None, missing: list[Need], page: str) -> None:
        """Record the round, what the night waits for, and where the page is."""
        self._change(round=number, missing=missing, page=page or self.night.page)

    def refused(self, records: str) -> None:
        """Record what was not read tonight."""
        self._change(refused=records)

    def failed(self, stage: str, error: Exception, seconds: float) -> None:
        """Record that a stage failed; if not even this can be written, the stage's own error is what the user sees."""
        message, hint, outcome = f"unexpected {type(error).__name__}", "", ""
        if isinstance(error, FlywheelError):
            message, hint, outcome = error.message, error.hint, error.message
        self._put(NightStage(stage=stage, state="failed", outcome=outcome, seconds=round(seconds, 3)))
        self._change(failed_stage=stage, error=message, hint=hint)
        with contextlib.suppress(FlywheelError):
            self._write()

    # --- the outcome ----------------------------------------------------------------------------------------------

    def conclude(self) -> Night:
        """Return the night with its outcome so far: sentence, verdict, next command."""
        cut_off = [s for s in self.night.stages if s.state in {"running", "failed"} and s.stage != "notify"]
        if cut_off and not self.night.failed_stage:  # it ran in a process of its own that failed or was killed
            error = cut_off[0].outcome or "the process was cut off"
            self._change(failed_stage=cut_off[0].stage, error=error)
        decision = self._decision()
        outcome = self._outcome(decision)
        self._change(
            outcome=outcome,
            exit_code=int(_EXIT[outcome]),
            champion=self._ctx.registry.champion,
            verdict=decision.verdict if decision else None,
            rules={r.rule: r.passed for r in decision.rules} if decision else {},
            metric=present.primary_row(self._ctx.registry.report(decision.round)) if decision else None,
        )
        unread = f"; {self.night.refused}" if self.night.refused else ""
        self._change(text=f"{self.night.project}: {self._text(decision)}{unread}", next=self._next(decision))
        return self.night

    def end(self, *, over: bool) -> None:
        """Conclude; if the night is over, close it, so that the next run begins another."""
        self.conclude()
        if over:
            self._change(ended_at=self._ctx.clock())
            with contextlib.suppress(FlywheelError):
                self._write()

    def why(self) -> str:
        """Return the first reason of the night's decision; '' where there is none."""
        return next(iter(present.reasons(self._decision())), "")

    def _decision(self) -> Promotion | None:
        if self.night.missing or self.night.stage("gate") is None:
            return None
        return next((p for p in reversed(self._ctx.registry.promotions()) if p.round == self.night.round), None)

    def _outcome(self, decision: Promotion | None) -> str:
        if self.night.failed_stage:
            return "failed"
        if self.night.missing:
            return "waiting"
        return "done" if decision is None else "held" if decision.decision == "held" else "promoted"

    def _text(self, decision: Promotion | None) -> str:
        night = self.night
        if night.outcome == "failed":
            return f"{night.failed_stage} failed: {night.error}"
        if night.outcome == "waiting":
            return f"waiting, {' and '.join(map(str, night.missing))}"
        if decision is None:
            return "done"
        return present.decision(decision) + (f": {present.metric_change(night.metric)}" if night.metric else "")

    def _next(self, decision: Promotion | None) -> str:
        if decision is not None and self.night.outcome in {"promoted", "held"}:
            return present.next_line(decision)
        return "flywheel doctor" if self.night.outcome == "failed" else "flywheel status"


_EXIT = {
    "promoted": ExitCode.DONE,
    "done": ExitCode.DONE,
    "held": ExitCode.HELD,
    "waiting": ExitCode.NOTHING,
    "failed": ExitCode.FAILED,
}
