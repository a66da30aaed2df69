"""plan, train, eval, promote, rollback, run: turning the wheel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flywheel.cli.completing import pipelines, rounds
from flywheel.cli.planned import plan_lines
from flywheel.cli.progress import training, working
from flywheel.cli.render import columns, estimate_lines, metric_lines, rule_lines, size
from flywheel.cli.served import evaluate_logs
from flywheel.cli.session import Session, session
from flywheel.records import METHODS

if TYPE_CHECKING:
    from flywheel.records import Plan, Promotion, RoundManifest

__all__ = ["add_commands", "confirm"]

RoundOption = Annotated[int | None, typer.Option("--round", help="Number of the round; default: the next.", min=1)]
MethodOption = Annotated[
    str | None, typer.Option("--method", help=f"{', '.join(METHODS)} or auto; default: train.method.")
]


def plan(
    ctx: typer.Context,
    *,
    number: RoundOption = None,
    method: MethodOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Save the plan for `train --plan`.", metavar="FILE")] = None,
    detailed: Annotated[bool, typer.Option("--detailed-exitcode", help="Exit 99 when nothing is new.")] = False,
) -> None:
    """Show what the next round would contain.

    Its start, its method and why, its data with the funnel, its budget. Stale tables are built first; nothing is
    trained.
    """
    current = session(ctx)
    with working(current.out, "planning"):
        made = current.project().plan(number, method=method)
    if out is not None:
        from flywheel.io.files import write_json

        write_json(out, made.model_dump(mode="json"))
    _show_plan(current, made, f" --method {method}" if method else "", detailed=detailed)


def _show_plan(current: Session, made: Plan, options: str, *, detailed: bool) -> None:
    current.out.result(plan_lines(made, options, verbose=current.out.verbose), made)
    if detailed and made.same_as is not None:
        raise typer.Exit(99)


def train(  # noqa: PLR0913 - one parameter an option
    ctx: typer.Context,
    *,
    number: RoundOption = None,
    method: MethodOption = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="A plan saved by `plan --out`.", metavar="FILE")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, train nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Train although a monitor is red; needs --reason.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why; written to the manifest.")] = "",
    detailed: Annotated[bool, typer.Option("--detailed-exitcode", help="Exit 99 when it was trained already.")] = False,
) -> None:
    """Train a round.

    Builds what is stale, plans, executes; a red monitor blocks it. An interrupted round goes on where it stopped; a
    trained one is left alone.
    """
    current = session(ctx)
    saved = _saved_plan(plan_file) if plan_file else None
    if dry_run and saved is not None:
        _show_plan(current, saved, f" --plan {plan_file}", detailed=detailed)
        return
    if dry_run:
        plan(ctx, number=number, method=method, out=None, detailed=detailed)
        return
    project = current.project()
    before = set(project.registry.trained())
    with training(current.out) as on_metrics:
        manifest = project.train(number, method=method, plan=saved, force=force, reason=reason, on_metrics=on_metrics)
    lines = _train_lines(manifest, already=manifest.round in before)
    current.out.result(lines, manifest)
    if detailed and manifest.round in before:
        raise typer.Exit(99)


def _saved_plan(path: Path) -> Plan:
    from flywheel.errors import UsageError
    from flywheel.io.user_files import read_document
    from flywheel.records import Plan

    return read_document(path, Plan, UsageError, hint="`flywheel plan --out FILE` saves one")


def _train_lines(m: RoundManifest, *, already: bool) -> list[str]:
    first = f"round {m.round} was trained already" if already else f"trained round {m.round}"
    rows = [
        ["method", f"{m.method}: {m.method_reason}"],
        ["rows", f"{m.counts.get('kept', 0):,}"],
        ["adapter", f"{m.adapter_sha256[:12]}   {size(sum(o.size_bytes for o in m.outputs))}"],
        ["time", f"{m.timings_s.get('total', 0):.1f} s"],
    ]
    rows += [["forced", m.forced]] if m.forced else []
    rows += [[name, f"{value:,.0f}" if value.is_integer() else f"{value:.4f}"] for name, value in m.checks.items()]
    return [first, *columns(rows), f"next  flywheel eval --round {m.round} --promote"]


def evaluate(  # noqa: PLR0913 - one parameter an option
    ctx: typer.Context,
    *,
    number: Annotated[int | None, typer.Option("--round", help="Default: the newest trained round.", min=1)] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", help="Round, alias or `base`; default: @champion.", metavar="ROUND", autocompletion=rounds
        ),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option("--suite", help="Suite, or file of own cases, to run; may be repeated. Default: eval.suites."),
    ] = None,
    promote: Annotated[bool, typer.Option("--promote", help="Let the gate decide and move the champion.")] = False,
    logs: Annotated[
        list[str] | None,
        typer.Option(
            "--logs", help="Compare two policies from their logs: the old one's, then the new one's.", metavar="PATH"
        ),
    ] = None,
    old: Annotated[str | None, typer.Option("--old", help="Policy or model in the old log.", metavar="NAME")] = None,
    new: Annotated[str | None, typer.Option("--new", help="Policy or model in the new log.", metavar="NAME")] = None,
) -> None:
    """Judge a round beside the champion on held-out tasks; or two policies from their logs.

    With --promote the gate decides: exit 0 promoted, 3 held.

    With --logs OLD --logs NEW nothing is run and nothing is written: tasks that both served are paired, and the gate's
    rules say PROMOTE (exit 0), REJECT, INCONCLUSIVE or BLOCKED (exit 3). One --logs with --old and --new takes both
    policies from the same files.
    """
    current = session(ctx)
    if logs or old or new:
        _only_logs(logs, number=number, against=against, suite=suite, promote=promote)
        evaluate_logs(current, logs or [], old, new)
        return
    with working(current.out, "judging the round beside the champion"):
        answer = current.project().evaluate(number, against=against, suites=suite, promote=promote)
    report = answer.report
    lines = [
        f"round {report.round} on {report.n_cases} cases of {report.n_tasks} held-out tasks",
        *metric_lines(report),
        *(estimate_lines(report) if current.out.verbose else ()),
    ]
    if answer.promotion is not None:
        lines += _decision_lines(answer.promotion)
    current.out.result([*lines, f"see   {answer.page}"], answer)
    if answer.promotion is not None and answer.promotion.decision == "held":
        raise typer.Exit(3)


def _only_logs(logs: list[str] | None, **others: object) -> None:
    from flywheel.errors import UsageError

    if not logs:
        raise UsageError("--old and --new name policies in --logs", hint="flywheel eval --logs OLD --logs NEW")
    if any(others.values()):
        given = ", ".join(f"--{ {'number': 'round'}.get(name, name) }" for name, value in others.items() if value)
        raise UsageError(f"{given} and --logs do not go together", hint="--logs compares two logs, and no round")


def _decision_lines(p: Promotion) -> list[str]:
    champion = "the base model" if p.champion_after is None else f"round {p.champion_after}"
    verdict = f"{p.verdict}: " if p.verdict else ""
    words = {
        "promoted": f"round {p.round} is champion",
        "held": f"round {p.round} is held, {champion} stays champion",
        "forced": f"round {p.round} is champion by force: {p.reason}",
        "rolled_back": f"round {p.round} is rolled back, {champion} is champion",
        "forgotten": f"round {p.round} learnt from a user who was forgotten, {champion} is champion",
    }
    return [*rule_lines(p.rules), verdict + words[p.decision]]


def promote(
    ctx: typer.Context,
    number: Annotated[int, typer.Argument(help="Number of the round.", metavar="ROUND", min=1)],
    *,
    force: Annotated[bool, typer.Option("--force", help="Move the champion without the gate; needs --reason.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why; written to promotions.jsonl.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Apply the gate to a round's stored report."""
    current = session(ctx)
    if force:
        confirm(f"make round {number} champion without the gate?", yes=yes)
    decided = current.project().promote(number, force=force, reason=reason)
    current.out.result(_decision_lines(decided), decided)
    if decided.decision == "held":
        raise typer.Exit(3)


def rollback(
    ctx: typer.Context,
    *,
    to: Annotated[
        str | None,
        typer.Option("--to", help="Round, or `base`; default: @previous.", metavar="ROUND", autocompletion=rounds),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; written to promotions.jsonl.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Move the champion back."""
    current = session(ctx)
    confirm(f"move the champion back to {to or '@previous'}?", yes=yes)
    decided = current.project().rollback(to, reason=reason)
    current.out.result(_decision_lines(decided), decided)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal; without one, end with exit code 2 unless `yes`."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        sys.stderr.write(f"error: {question} say so with --yes (there is no terminal to ask)\n")
        raise typer.Exit(2)
    typer.confirm(question, abort=True, err=True)


def run(
    ctx: typer.Context,
    pipeline: Annotated[
        str, typer.Argument(help="Name of a pipeline.", metavar="[PIPELINE]", autocompletion=pipelines)
    ] = "nightly",
    *,
    since: Annotated[str | None, typer.Option("--from", help="First stage to run.", metavar="STAGE")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Last stage to run.", metavar="STAGE")] = None,
    detailed: Annotated[bool, typer.Option("--detailed-exitcode", help="Exit 99 when nothing was new.")] = False,
) -> None:
    """Run a whole pipeline under one lock.

    One line a stage; for cron, systemd and Airflow.
    """
    current = session(ctx)
    with working(current.out, pipeline):
        answer = current.project().run(
            pipeline, since=since, until=until, on_stage=lambda name, outcome: current.out.say(f"{name:<9} {outcome}")
        )
    lines = [answer.text] if answer.text else []
    current.out.result([*lines, f"see   {answer.page}"] if answer.page else lines, answer)
    if answer.exit_code == 99 and not detailed:  # noqa: PLR2004 - ExitCode.NOTHING, 0 unless asked for
        return
    raise typer.Exit(answer.exit_code)


def add_commands(app: typer.Typer) -> None:
    """Register this file's commands."""
    app.command()(plan)
    app.command()(train)
    app.command("eval")(evaluate)
    app.command()(promote)
    app.command()(rollback)
    app.command()(run)
