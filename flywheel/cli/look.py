"""log, show, view, explain, diff, champion, schema, plugins: looking at what is there and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flywheel.cli.completing import rounds, subjects
from flywheel.cli.preview import preview_lines
from flywheel.cli.progress import working
from flywheel.cli.render import columns, plain
from flywheel.cli.session import session

if TYPE_CHECKING:
    from flywheel.results import DiffAnswer

__all__ = ["add_commands"]


def log(
    ctx: typer.Context,
    *,
    limit: Annotated[int | None, typer.Option("--limit", help="Show only so many.", min=1)] = None,
) -> None:
    """List rounds, newest first."""
    current = session(ctx)
    answer = current.project().log(limit)
    rows = [["round", "state", "method", "from", "rows", "primary metric", ""]]
    rows += [
        [str(r.round), r.state, r.method, "base" if r.parent is None else str(r.parent), f"{r.rows:,}", r.metric,
         " ".join(r.aliases)]
        for r in answer.rounds
    ]  # fmt: skip
    current.out.result(
        columns(rows, right=(0, 4)) if answer.rounds else ["no rounds yet", "next  flywheel plan"], answer
    )


def show(
    ctx: typer.Context,
    subject: Annotated[
        str, typer.Argument(help="Round number, alias or id.", metavar="SUBJECT", autocompletion=rounds)
    ],
) -> None:
    """Print one thing in full.

    A round by number or alias; an episode, pair, example or group by the first digits of its id. Of what is trained
    on, the text that the model reads, with the trained tokens marked.
    """
    current = session(ctx)
    answer = current.project().show(subject)
    lines = preview_lines(answer) if answer.rendering else [answer.kind, plain(answer.record)]
    current.out.result(lines, answer)


def view(
    ctx: typer.Context,
    subject: Annotated[
        str | None, typer.Argument(help="Round or episode; default: the newest round.", metavar="ROUND|EPISODE")
    ] = None,
    *,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Write a folder that any web server can serve.", metavar="DIR")
    ] = None,
    opened: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write the episodes as pages to look at in a browser.

    Steps, tool calls and results, rewards with their evidence, pairs side by side, trained tokens shaded. The pages
    stand by themselves, from disk or from a web server. Of an episode, one page with nothing else.
    """
    current = session(ctx)
    with working(current.out, "writing pages"):
        answer = current.project().view(subject, bundle=bundle)
    said = f"{answer.episodes:,} episodes on {answer.pages:,} pages" if answer.episodes > 1 else "1 episode"
    current.out.result([said, f"open  {answer.page}"], answer)
    if opened:
        import webbrowser

        path, _, fragment = answer.page.partition("#")
        webbrowser.open(Path(path).as_uri() + (f"#{fragment}" if fragment else ""))


def explain(
    ctx: typer.Context,
    subject: Annotated[
        str, typer.Argument(help="Stage, round, gate or id.", metavar="SUBJECT", autocompletion=subjects)
    ],
) -> None:
    """Say why, in sentences with numbers.

    Why a stage is stale, a round was held, an episode got its reward; where a pair, an example or a group comes from;
    what the gate and each of its rules ask for, and what they said last.
    """
    current = session(ctx)
    answer = current.project().explain(subject)
    current.out.result(answer.lines, answer)


def diff(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(help="Round number or alias.", metavar="A", autocompletion=rounds)],
    second: Annotated[str, typer.Argument(help="Round number or alias.", metavar="B", autocompletion=rounds)],
    *,
    markdown: Annotated[bool, typer.Option("--md", help="Print Markdown, for a pull request.")] = False,
) -> None:
    """Say what is between two rounds.

    Settings, rows, tables and metrics from A to B; nothing is printed when they are equal.
    """
    current = session(ctx)
    answer = current.project().diff(first, second)
    parts = _diff_parts(answer)
    lines = []
    for title, said in parts:
        lines += (
            [f"### {title}", "", *(f"- {one}" for one in said), ""] if markdown else [title, *(f"  {s}" for s in said)]
        )
    current.out.result(lines, answer)


def _diff_parts(answer: DiffAnswer) -> list[tuple[str, list[str]]]:
    """Return what differs, by heading."""
    rows = [
        f"{answer.rows_added:,} added, {answer.rows_dropped:,} dropped, {answer.rows_kept:,} in both",
        f"tasks: {answer.tasks_added:,} added, {answer.tasks_dropped:,} dropped",
    ]
    metrics = [
        f"{m.metric}: {_share(m.before)} (n {m.n_before:,}) → {_share(m.now)} (n {m.n_now:,})"
        for m in answer.metrics
        if (m.before, m.n_before) != (m.now, m.n_now)
    ]
    parts = [
        ("made", answer.made),
        ("settings", answer.config),
        ("tables", [f"{name} changed" for name in answer.inputs]),
        ("rows", rows if answer.rows_added or answer.rows_dropped else []),
        ("funnel", answer.funnel),
        ("metrics, each round on the cases of its own evaluation", metrics),
    ]
    return [(title, said) for title, said in parts if said]


def _share(value: float | None) -> str:
    return "not evaluated" if value is None else f"{value:.3f}"


def champion(ctx: typer.Context) -> None:
    """Say what to serve: base model, adapter, hashes, and the decision behind it.

    Fails when the adapter is not the one that was judged, so that a deployment can rely on it.
    """
    current = session(ctx)
    answer = current.project().champion()
    who = "the base model: no round is champion" if answer.round is None else f"round {answer.round}"
    rows = [
        ["champion", who],
        ["base", f"{answer.base_model} @ {answer.base_model_sha256[:12]}"],
        *([["adapter", answer.adapter], ["sha256", answer.adapter_sha256]] if answer.adapter else []),
        *([["decision", f"{answer.decision} at {answer.decided_at}: {answer.reason}"]] if answer.decision else []),
        ["name", f"{answer.name}  (log it as the policy, so that the next night knows who acted)"],
    ]
    current.out.result(columns(rows), answer)


def schema(name: Annotated[str | None, typer.Argument(help="Name of a schema; without one, the list.")] = None) -> None:
    """Print a published JSON Schema."""
    from flywheel.pipeline.admin.schemas import all_schemas, schema_document

    if name is None:
        typer.echo("\n".join(sorted(all_schemas())))
    else:
        typer.echo(json.dumps(schema_document(name), indent=1, ensure_ascii=False))


def plugins(ctx: typer.Context) -> None:
    """List the installed extensions by group."""
    current = session(ctx)
    answer = current.project().plugins()
    rows = [[e["group"], e["name"], e["target"], f"{e['distribution']} {e['version']}"] for e in answer.extensions]
    current.out.result(columns(rows), answer)


def add_commands(app: typer.Typer) -> None:
    """Register this file's commands."""
    for command in (log, show, view, explain, diff, champion, schema, plugins):
        app.command()(command)
