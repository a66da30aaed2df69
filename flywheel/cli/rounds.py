"""Rounds: from a plan to a champion, and what earlier rounds were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flywheel import present
from flywheel.cli.completing import rounds
from flywheel.cli.progress import counted, training, working
from flywheel.cli.render import (
    columns,
    estimate_lines,
    funnel_lines,
    gap_lines,
    metric_lines,
    monitor_lines,
    off_policy_lines,
    rule_lines,
)
from flywheel.cli.session import Session, confirm, session
from flywheel.errors import UsageError
from flywheel.records import METHODS

if TYPE_CHECKING:
    from flywheel.records import BackendRun, DataCard, EvalReport, MemoryEstimate, Plan, Promotion, Race, RoundManifest
    from flywheel.results.rounds import DiffAnswer, LogRow, LogsEvalAnswer

commands = typer.Typer()
RoundOption = Annotated[int | None, typer.Option("--round", help="Number of the round; default: the next.", min=1)]
MethodOption = Annotated[
    str | None, typer.Option("--method", help=f"{', '.join(METHODS)} or auto; default: train.method.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; written to promotions.jsonl.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_MOST_NAMES = 4


@commands.command()
def plan(
    ctx: typer.Context,
    *,
    number: RoundOption = None,
    method: MethodOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Save the plan for `train --plan`.", metavar="FILE")] = None,
    detailed: Annotated[bool, typer.Option("--detailed-exitcode", help="Exit 99 when no data is new.")] = False,
) -> None:
    """Show what the next round would contain.

    Its start, its method and why, its data with the funnel, its budget. Stale tables are built first; no round is
    trained.
    """
    current = session(ctx)
    if out is not None:
        _refuse_used(out)
    with counted(current.out, "planning") as on_progress:
        planned = current.project().plan(number, method=method, on_progress=on_progress)
    looks = current.project().status().looks
    if out is not None:
        from flywheel.io.files import write_json

        write_json(out, planned.model_dump(mode="json"))
    _show_plan(current, planned, f" --method {method}" if method else "", looks, detailed=detailed)


def _refuse_used(out: Path) -> None:
    """Refuse to write a plan over anything but a plan."""
    if out.exists():
        try:
            _saved_plan(out)
        except UsageError:
            raise UsageError(f"`{out}` is not a plan", hint="name a new file with --out") from None


def _show_plan(current: Session, planned: Plan, options: str, looks: Mapping[str, int], *, detailed: bool) -> None:
    lines = _plan_lines(planned, options, verbose=current.out.verbose)
    if looks:
        lines.insert(-1, f"deciding   {present.looks_needed(looks)}")
    current.out.result(lines, planned)
    if detailed and planned.same_as is not None:
        raise typer.Exit(99)


def _plan_lines(p: Plan, options: str, *, verbose: bool) -> list[str]:
    """Return a plan as lines; `options` are passed on to the training command."""
    mix = ": " + ", ".join(f"{n:,} {kind}" for kind, n in p.card.mix.items()) if len(p.card.mix) > 1 else ""
    rows = [
        [f"round {p.round}", f"from {present.the_round(p.parent)} ({p.start_reason})"],
        ["base", f"{p.base_model} @ {p.base_model_sha256[:12]}"],
        ["method", f"{p.method}: {p.method_reason}"],
        *_race_rows(p.race),
        ["reference", p.reference],
        *_backend_rows(p.backend),
        ["rows", f"{p.rows:,} of {p.tasks:,} tasks{mix}, dataset {p.dataset_sha256[:12]}"],
        [
            "budget",
            f"about {p.steps:,} optimiser steps over {p.card.tokens:,} tokens ({present.size(p.characters)} of text)",
        ],
        ["rate", f"{p.learning_rate:.2g} at its peak; until {p.max_kl:g} nats a token from the parent"],
        *_memory_rows(p.memory),
        *_unclear_rows(p),
        *_card_rows(p.card, grouped=METHODS[p.method].dataset.name == "groups"),
    ]
    lines = columns(rows) + funnel_lines(p.counts) + monitor_lines(p.monitors, verbose=verbose)
    if p.same_as is not None:
        return [*lines, f"no new data: the round would repeat round {p.same_as}"]
    if p.race is not None and p.race.state == "lost":
        return [*lines, f"no method is worth a round; to train one all the same: flywheel train --method {p.method}"]
    if any(row.level == "red" for row in p.monitors):
        return [*lines, "a red monitor blocks training; to override: flywheel train --force --reason WHY"]
    return [*lines, f"next  flywheel train --round {p.round}{options}"]


def _backend_rows(backend: BackendRun | None) -> list[list[str]]:
    """Return where a round is trained and what is lost there, where that is not here."""
    if backend is None:
        return []
    versions = ", ".join(f"{name} {number}" for name, number in backend.versions.items())
    rows = [["trained in", f"{backend.title}, by {backend.command[0]}" + (f" ({versions})" if versions else "")]]
    return [*rows, *([["lost there", "; ".join(backend.lost)]] if backend.lost else [])]


def _unclear_rows(p: Plan) -> list[list[str]]:
    """Return how many episodes teach little for want of an outcome, and how a person lends them one."""
    if not p.unclear:
        return []
    episodes = present.count(p.unclear, "episode")
    return [["unclear", f"{episodes} without a clear outcome teach little; 40 answers help: flywheel audit --n 40"]]


def _memory_rows(memory: MemoryEstimate | None) -> list[list[str]]:
    """Return what a pass is estimated to hold, by part, and whether its activations are kept."""
    if memory is None:
        return []
    device = {"cpu": "this machine", "cuda": "a GPU"}[memory.device]
    each = f" for each of {memory.processes:,} processes" if memory.processes > 1 else ""
    way = "computed again on the way back" if memory.checkpointing else "kept"
    parts = (
        f"base {present.size(memory.weights)}, adapter and optimiser {present.size(memory.adapter)}, activations "
        f"{present.size(memory.activations)} ({way}; {present.count(memory.rows, 'row')} of {memory.tokens:,} tokens), "
        f"logits {present.size(memory.head)}, libraries {present.size(memory.runtime)}"
    )
    total = f"about {present.size(memory.needed)} of {present.size(memory.available)} of {device}{each}"
    return [["memory", total], ["", parts]]


def _race_rows(race: Race | None) -> list[list[str]]:
    """Return a race as rows, with its name before the first."""
    lines = present.race_lines(race) if race is not None else []
    return [["race" if place == 0 else "", line] for place, line in enumerate(lines)]


def _card_rows(card: DataCard, *, grouped: bool) -> list[list[str]]:
    windowed = f", {card.windowed:,} of them without their oldest turns" if card.windowed else ""
    refused = f", {card.too_long:,} longer and left out" if card.too_long else ""
    longer_rows = windowed + refused or ", none longer"
    sides = " and ".join(f"{mean:,.0f}" for mean in card.mean_trained)
    longer_wins, largest = present.percent(card.longer_wins, 0), present.percent(card.largest_user_share, 0)
    longer = f"; the longer side is chosen in {longer_wins}" if card.longer_wins is not None else ""
    share = f", the most frequent with {largest} of the rows" if card.largest_user_share else ""
    builders = f"by {_most_common(card.builders)}; " if card.builders else ""
    loss = f"in the loss {card.trained_tokens:,}, on average {sides} a row{longer}"
    users = f"{card.users:,} users{share}" if card.users else "users unknown"
    policies = _most_common(card.policies)
    unit = "attempts" if grouped else "rows"
    long = f"{card.cut_in_evaluation:,} of the actions to learn have more tokens than eval.max_new_tokens"
    cut = [["eval", f"{long} {card.max_new_tokens:,}: raise it, or they are cut off"]] if card.cut_in_evaluation else []
    return [
        ["fit", f"{card.fitting:,} {unit} in train.max_length {card.max_length:,}{longer_rows}"],
        ["tokens", f"median {unit[:-1]} {card.median_tokens:,}, longest {card.longest_tokens:,}; {loss}"],
        ["from", f"{builders}logs {_most_common(card.sources)}; policies {policies}; {users}"],
        ["template", card.rendering],
        *([["images", card.unseen]] if card.unseen else []),
        *cut,
    ]


def _most_common(counts: dict[str, int]) -> str:
    rest = len(counts) - _MOST_NAMES
    names = ", ".join(f"{name} {n:,}" for name, n in list(counts.items())[:_MOST_NAMES])
    return names + (f" and {rest} more" if rest > 0 else "")


@commands.command()
def train(  # noqa: PLR0913 - one parameter an option
    ctx: typer.Context,
    *,
    number: RoundOption = None,
    method: MethodOption = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="A plan saved by `plan --out`.", metavar="FILE")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, train nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Train even if a monitor is red; needs --reason.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why; written to the manifest.")] = "",
    detailed: Annotated[bool, typer.Option("--detailed-exitcode", help="Exit 99 when it was already trained.")] = False,
) -> None:
    """Train a round.

    Builds stale tables, plans, trains; a red monitor blocks it. An interrupted round continues where it stopped; a
    trained round is left alone.
    """
    current = session(ctx)
    saved = _saved_plan(plan_file) if plan_file else None
    if dry_run and saved is not None:
        _show_plan(current, saved, f" --plan {plan_file}", {}, detailed=detailed)
        return
    if dry_run:
        plan(ctx, number=number, method=method, out=None, detailed=detailed)
        return
    project = current.project()
    trained = set(project.registry.trained())
    with training(current.out) as on_metrics:
        manifest = project.train(number, method=method, plan=saved, force=force, reason=reason, on_metrics=on_metrics)
    current.out.result(_train_lines(manifest, already=manifest.round in trained), manifest)
    if detailed and manifest.round in trained:
        raise typer.Exit(99)


def _saved_plan(path: Path) -> Plan:
    from flywheel.io.user_files import read_document
    from flywheel.records import Plan

    return read_document(path, Plan, UsageError, hint="`flywheel plan --out FILE` saves one")


def _train_lines(m: RoundManifest, *, already: bool) -> list[str]:
    rows = [
        ["method", f"{m.method}: {m.method_reason}"],
        *_race_rows(m.race),
        *_backend_rows(m.backend),
        ["rows", f"{m.counts.get('kept', 0):,}"],
        *([["trained", present.training_end(m)]] if m.stopped else []),
        ["adapter", f"{m.adapter_sha256[:12]}   {present.size(sum(o.size_bytes for o in m.outputs))}"],
        ["time", present.duration(m.timings_s.get("total", 0))],
    ]
    rows += [["forced", m.forced]] if m.forced else []
    checks = [
        f"{name.replace('_', ' ')} {value:,.0f}" if value.is_integer() else f"{name.replace('_', ' ')} {value:.4f}"
        for name, value in m.checks.items()
    ]
    rows += [["checks", ", ".join(checks)]] if checks else []
    first = f"round {m.round} was already trained" if already else f"trained round {m.round}"
    return [first, *columns(rows), f"next  flywheel eval --round {m.round} --promote"]


@commands.command("eval")
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
        typer.Option("--suite", help="Suite, or file of own cases; may be repeated. Default: eval.suites."),
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
    """Evaluate a round against the champion on held-out tasks.

    With --promote the gate decides: exit 0 promoted, 3 held.

    With --logs OLD --logs NEW two policies are compared from their logs, and no file is written: tasks that both
    policies served are paired, and the gate's rules decide PROMOTE (exit 0), REJECT, INCONCLUSIVE or BLOCKED (exit 3).
    One --logs with --old and --new takes both policies from the same files.
    """
    current = session(ctx)
    if logs or old or new:
        _only_logs(logs, round=number, against=against, suite=suite, promote=promote)
        _evaluate_logs(current, logs or [], old, new)
        return
    with counted(current.out, "evaluating the round and the champion") as on_progress:
        answer = current.project().evaluate(
            number, against=against, suites=suite, promote=promote, on_progress=on_progress
        )
    report = answer.report
    lines = [
        f"round {report.round} on {report.n_cases} cases of {report.n_tasks} held-out tasks",
        *metric_lines(report, verbose=current.out.verbose),
        *gap_lines(report.gaps, verbose=current.out.verbose),
        *(estimate_lines(report) if current.out.verbose else ()),
    ]
    if answer.promotion is not None:
        lines += _decision_lines(answer.promotion, report, verbose=current.out.verbose)
    else:
        lines += [f"next  Let the gate decide on it. flywheel promote {report.round}"]
    current.out.result([*lines, f"see   {answer.page}"], answer)
    if answer.promotion is not None and answer.promotion.decision == "held":
        raise typer.Exit(3)


def _only_logs(logs: list[str] | None, **options: object) -> None:
    """Refuse options that --logs does not take.

    Raises:
        UsageError: an option is set, or --logs is missing.
    """
    if not logs:
        raise UsageError("--old and --new name policies in --logs", hint="flywheel eval --logs OLD --logs NEW")
    if any(options.values()):
        names = ", ".join(f"--{name}" for name, value in options.items() if value)
        raise UsageError(f"{names} cannot be combined with --logs", hint="--logs compares two logs, not a round")


def _evaluate_logs(current: Session, logs: Sequence[str], old: str | None, new: str | None) -> None:
    """Print the comparison of two policies' logs; exit 0 for PROMOTE, 3 otherwise."""
    with working(current.out, "reading both logs"):
        answer = current.project().evaluate_logs(list(logs), old=old, new=new)
    current.out.result(_logs_lines(answer, verbose=current.out.verbose), answer)
    if answer.verdict != "PROMOTE":
        raise typer.Exit(3)


def _logs_lines(a: LogsEvalAnswer, *, verbose: bool) -> list[str]:
    paired = ", ".join(f"{n:,} by {key}" for key, n in a.paired_by.items()) or "none"
    lines = columns(
        [
            ["old", _side(a, "old")],
            ["new", _side(a, "new")],
            ["cases", f"{a.cases:,} paired ({paired}); outcome {a.outcome}; units {a.unit}s"],
        ]
    )
    lines += metric_lines(a.report, old="old", new="new", verbose=verbose)
    for k, rates in a.pass_k.items():
        before, after = (
            f"{present.percent(rates[side])} of {rates[f'{side}_tasks']:,.0f} tasks" for side in ("old", "new")
        )
        lines.append(f"pass^{k}  {before} -> {after}")
    amounts = [
        [name, f"{means['n']:,.0f}", *(present.amount(means[side]) for side in ("old", "new"))]
        for name, means in a.amounts.items()
    ]
    lines += columns([["also measured", "n", "old", "new"], *amounts], right=(1, 2, 3)) if amounts else []
    lines += gap_lines(a.gaps, verbose=verbose)
    lines += off_policy_lines(a.off_policy, verbose=verbose)
    lines += [f"note  {note}" for note in a.notes]
    lines += rule_lines(a.rules, verbose=True) if verbose else []
    return lines + columns(_comparison(a))


def _comparison(a: LogsEvalAnswer) -> list[tuple[str, str]]:
    """Return the verdict on two logs, why, and what to do next."""
    why = present.one_reason([rule.message for rule in a.rules if not rule.passed], otherwise="every rule holds")
    if a.verdict == "PROMOTE":
        step = f"The new policy {a.new} can replace {a.old}."
    elif a.needed_n is not None:
        step = f"About {a.needed_n:,} cases are needed: compare again when both policies have served more tasks."
    elif a.verdict == "BLOCKED" and a.gaps:
        step = f"Let {a.new} serve the cases that it lacks, and compare again; -v names them."
    else:
        step = f"Keep {a.old}; the same command with -v shows every rule and every row."
    return [("verdict", a.verdict), ("why", why), ("next", step)]


def _side(a: LogsEvalAnswer, side: str) -> str:
    name, numbers = (a.old if side == "old" else a.new), a.numbers
    if f"{side}_successes" not in numbers:
        return name
    low, high = numbers[f"{side}_low"], numbers[f"{side}_high"]
    of = f"{numbers[f'{side}_successes']:,.0f} of {numbers['n']:,.0f}"
    return f"{name}   {of} ({present.percent(numbers[side])}, 95 % interval {present.percent_interval(low, high)})"


@commands.command()
def promote(
    ctx: typer.Context,
    number: Annotated[int, typer.Argument(help="Number of the round.", metavar="ROUND", min=1)],
    *,
    force: Annotated[bool, typer.Option("--force", help="Move the champion without the gate; needs --reason.")] = False,
    reason: ReasonOption = "",
    yes: YesOption = False,
) -> None:
    """Apply the gate to a round's stored report."""
    current = session(ctx)
    if force:
        confirm(f"make round {number} champion without the gate?", yes=yes)
    decision = current.project().promote(number, force=force, reason=reason)
    current.out.result(_decision_lines(decision, verbose=current.out.verbose), decision)
    if decision.decision == "held":
        raise typer.Exit(3)


@commands.command()
def rollback(
    ctx: typer.Context,
    *,
    to: Annotated[
        str | None,
        typer.Option("--to", help="Round, or `base`; default: @previous.", metavar="ROUND", autocompletion=rounds),
    ] = None,
    reason: ReasonOption = "",
    yes: YesOption = False,
) -> None:
    """Move the champion back."""
    current = session(ctx)
    project = current.project()
    if not yes:
        champion, target = project.rollback_target(to)
        back = f"round {target}" if target else "the base"
        confirm(f"move the champion back from round {champion} to {back}?", yes=False)
    decision = project.rollback(to, reason=reason)
    current.out.result(_decision_lines(decision, verbose=current.out.verbose), decision)


def _decision_lines(p: Promotion, report: EvalReport | None = None, *, verbose: bool) -> list[str]:
    """Return a decision: the verdict, why, and what next; before them, when verbose, every rule."""
    return [*(rule_lines(p.rules, verbose=True) if verbose else ()), *columns(present.outcome(p, report))]


@commands.command()
def log(
    ctx: typer.Context,
    *,
    limit: Annotated[int | None, typer.Option("--limit", help="Number of rounds to show.", min=1)] = None,
) -> None:
    """List rounds, newest first."""
    current = session(ctx)
    answer = current.project().log(limit)
    rows = [["round", "state", "method", "from", "rows", "steps", "KL", "primary metric", ""]]
    rows += [
        [str(r.round), r.state, _chosen(r), "base" if r.parent is None else str(r.parent), f"{r.rows:,}",
         present.count(r.steps or None), present.number(r.kl), r.metric, " ".join(r.aliases)]
        for r in answer.rounds
    ]  # fmt: skip
    lines = columns(rows, right=(0, 4, 5, 6)) if answer.rounds else ["no rounds yet", f"next  {answer.next}"]
    current.out.result(lines, answer)


def _chosen(row: LogRow) -> str:
    """Return a round's method, and of how many it was the best."""
    return f"{row.method}, best of {row.raced}" if row.raced else row.method


@commands.command()
def diff(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(help="Round number or alias.", metavar="A", autocompletion=rounds)],
    second: Annotated[str, typer.Argument(help="Round number or alias.", metavar="B", autocompletion=rounds)],
    *,
    markdown: Annotated[bool, typer.Option("--md", help="Print Markdown, for a pull request.")] = False,
) -> None:
    """Compare two rounds.

    Settings, rows, tables and metrics that changed from A to B; equal rounds print no line.
    """
    current = session(ctx)
    answer = current.project().diff(first, second)
    lines = []
    for title, items in _diff_parts(answer):
        if markdown:
            lines += [f"### {title}", "", *(f"- {item}" for item in items), ""]
        else:
            lines += [title, *(f"  {item}" for item in items)]
    current.out.result(lines, answer)


def _diff_parts(a: DiffAnswer) -> list[tuple[str, list[str]]]:
    """Return the differences by heading."""
    rows = [
        f"{a.rows_added:,} added, {a.rows_dropped:,} dropped, {a.rows_kept:,} in both",
        f"tasks: {a.tasks_added:,} added, {a.tasks_dropped:,} dropped",
    ]
    metrics = [
        f"{m.metric}: {_value(m.before)} (n {m.n_before:,}) → {_value(m.now)} (n {m.n_now:,})"
        for m in a.metrics
        if (m.before, m.n_before) != (m.now, m.n_now)
    ]
    parts = [
        ("round", a.made),
        ("settings", a.config),
        ("tables", [f"{name} changed" for name in a.inputs]),
        ("rows", rows if a.rows_added or a.rows_dropped else []),
        ("funnel", a.funnel),
        ("metrics, each round on the cases of its own evaluation", metrics),
    ]
    return [(title, items) for title, items in parts if items]


def _value(value: float | None) -> str:
    return "not evaluated" if value is None else f"{value:.3f}"
