"""The nightly job's journal: what became of each stage, so that a cut-off night goes on and any stage can run alone.

In: stages as they begin and end. Out: `night.json` in the store, one `Night`, written anew with every stage. A pipeline
may run in one process or, under a scheduler, in one process a stage: both write the same journal. A night is over when
the pipeline's last stage is; one that is not over goes on under its id.
"""

from __future__ import annotations

import contextlib
from typing import Any

from pydantic import ValidationError

from flywheel.errors import ExitCode, FlywheelError, StoreError
from flywheel.io import files
from flywheel.pipeline.context import Context
from flywheel.present import decision as decided
from flywheel.present import metric_change
from flywheel.records import Need, Night, NightStage, Promotion, content_id

__all__ = ["Journal", "last_night"]

_FILE = "night.json"


def last_night(ctx: Context) -> Night | None:
    """Return the newest night, or None; a damaged file is none, since nothing depends on it but going on."""
    try:
        return Night.model_validate(files.read_json(ctx.store.root / _FILE))
    except (StoreError, ValidationError):
        return None


class Journal:
    """The night that goes on.

    Args:
        ctx: the project, locked.
        pipeline: name of the pipeline.
        anew: whether this run decides for itself whether to train: then nothing said of waiting before counts.
    """

    def __init__(self, ctx: Context, pipeline: str, *, anew: bool) -> None:
        self._ctx = ctx
        before = last_night(ctx)
        before = before if before is not None and before.pipeline == pipeline else None
        self.unfinished = before is not None and before.outcome in {"running", "failed"}
        going_on = before is not None and before.ended_at is None
        self.night = before if before is not None and going_on else self._begin(pipeline)
        if before is not None and self.unfinished:  # a round whose page or hooks failed is still this night's
            self._change(round=before.round)
        self._change(outcome="running", error="", hint="", failed_stage="", **({"missing": []} if anew else {}))

    def _begin(self, pipeline: str) -> Night:
        now = self._ctx.clock()
        project = self._ctx.config.name or self._ctx.project.name
        name = content_id("night", str(self._ctx.project), pipeline, now.isoformat())[:12]
        return Night(night=name, project=project, pipeline=pipeline, began_at=now)

    def _change(self, **values: Any) -> None:
        self.night = self.night.model_copy(update=values)

    def _write(self) -> None:
        files.write_json(self._ctx.store.root / _FILE, self.night.model_dump(mode="json"))

    def _put(self, entry: NightStage) -> None:
        others = [s for s in self.night.stages if s.stage != entry.stage]
        self._change(stages=[*others, entry])

    # --- as stages go ---------------------------------------------------------------------------------------------

    def begin(self, stage: str) -> None:
        """Note that a stage runs; killed now, it is the one that was cut off."""
        self._put(NightStage(stage=stage, state="running"))
        self._write()

    def done(self, stage: str, outcome: str, seconds: float, *, skipped: bool = False) -> None:
        """Note a stage's end."""
        state = "skipped" if skipped else "done"
        self._put(NightStage(stage=stage, state=state, outcome=outcome, seconds=round(seconds, 3)))
        self._write()

    def know(self, *, number: int | None, missing: list[Need], page: str) -> None:
        """Note what the round is, what the night waits for, and where the page is."""
        self._change(round=number, missing=missing, page=page or self.night.page)

    def failed(self, stage: str, error: Exception, seconds: float) -> None:
        """Note that a stage failed; where not even this can be written, the stage's own error says why."""
        ours = isinstance(error, FlywheelError)
        says = error.message if isinstance(error, FlywheelError) else f"unexpected {type(error).__name__}"
        self._put(NightStage(stage=stage, state="failed", outcome=says if ours else "", seconds=round(seconds, 3)))
        self._change(failed_stage=stage, error=says, hint=error.hint if isinstance(error, FlywheelError) else "")
        with contextlib.suppress(FlywheelError):
            self._write()

    # --- what it comes to -----------------------------------------------------------------------------------------

    def conclude(self) -> Night:
        """Return the night with what it has come to so far: outcome, sentence, verdict, next command."""
        cut_off = [s for s in self.night.stages if s.state in {"running", "failed"} and s.stage != "notify"]
        if cut_off and not self.night.failed_stage:  # it ran in a process of its own that failed or was killed
            says = cut_off[0].outcome or "the process was cut off"
            self._change(failed_stage=cut_off[0].stage, error=says)
        decision = self._decision()
        outcome = self._outcome(decision)
        self._change(
            outcome=outcome,
            exit_code=int(_EXIT[outcome]),
            champion=self._ctx.registry.champion,
            verdict=decision.verdict if decision else None,
            rules={r.rule: r.passed for r in decision.rules} if decision else {},
            metric=self._metric() if decision else None,
        )
        self._change(text=f"{self.night.project}: {self._text(decision)}", next=self._next())
        return self.night

    def end(self, *, over: bool) -> None:
        """Sum up; if the night is over, close it, so that the next run begins another."""
        self.conclude()
        if over:
            self._change(ended_at=self._ctx.clock())
            with contextlib.suppress(FlywheelError):
                self._write()

    def _decision(self) -> Promotion | None:
        if self.night.missing or self.night.stage("gate") is None:
            return None
        return next((p for p in reversed(self._ctx.registry.promotions()) if p.round == self.night.round), None)

    def _metric(self) -> Any:
        report = self._ctx.registry.report(self.night.round or 0)
        rows = report.metrics if report else []
        return next((m for m in rows if m.primary and m.slice == "all"), None)

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
        return decided(decision) + (f": {metric_change(night.metric)}" if night.metric else "")

    def _next(self) -> str:
        number = self.night.round
        commands = {"promoted": "flywheel champion", "held": f"flywheel explain {number}", "failed": "flywheel doctor"}
        return commands.get(self.night.outcome, "flywheel status")


_EXIT = {
    "promoted": ExitCode.DONE,
    "done": ExitCode.DONE,
    "held": ExitCode.HELD,
    "waiting": ExitCode.NOTHING,
    "failed": ExitCode.FAILED,
}
