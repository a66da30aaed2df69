"""Deploy: what to serve, where it is served, and a canary's decision."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flywheel import present
from flywheel.cli.completing import rounds
from flywheel.cli.progress import working
from flywheel.cli.render import columns
from flywheel.cli.session import session

if TYPE_CHECKING:
    from flywheel.results.deploy import CanaryAnswer

commands = typer.Typer()
deploy = typer.Typer(
    help="Load a champion into vLLM, or merge it into its base model.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
RoundOption = Annotated[
    str,
    typer.Option("--round", help="Round, alias or `base`; default: @champion.", metavar="ROUND", autocompletion=rounds),
]
_POLICY = "log this name as the policy, so that flywheel knows which round acted"
_EXIT = {"promote": 0, "continue": 3, "roll_back": 5}


@commands.command()
def champion(ctx: typer.Context) -> None:
    """Show what to serve, and the decision behind it.

    Base model, adapter and hashes. Fails when the adapter's files are not the ones that were evaluated, so that a
    deployment can rely on it.
    """
    current = session(ctx)
    a = current.project().champion()
    rows = [
        ["champion", present.round_name(a.round)],
        ["base", f"{a.base_model} @ {a.base_model_sha256[:12]}"],
        *([["adapter", a.adapter], ["sha256", a.adapter_sha256]] if a.adapter else []),
        *([["decision", f"{a.decision} at {a.decided_at}: {a.reason}"]] if a.decision else []),
        *(
            [["decisions", f"{a.decisions_sha256}  (keep it elsewhere: a rewrite changes it)"]]
            if a.decisions_sha256
            else []
        ),
        ["name", f"{a.name}  ({_POLICY})"],
    ]
    current.out.result(columns(rows), a)


@commands.command()
def canary(
    ctx: typer.Context,
    *,
    logs: Annotated[
        list[str] | None,
        typer.Option("--logs", help="The old side's logs, then the canary's; default: ingested logs.", metavar="PATH"),
    ] = None,
    old: Annotated[str | None, typer.Option("--old", help="Policy or model of the old side.", metavar="NAME")] = None,
    new: Annotated[str | None, typer.Option("--new", help="Policy or model of the canary.", metavar="NAME")] = None,
    share: Annotated[
        float | None, typer.Option("--share", help="Share of users the canary should get; default: canary.share.")
    ] = None,
    before: Annotated[
        list[str] | None,
        typer.Option("--before", help="Logs from before the canary: like users are compared.", metavar="PATH"),
    ] = None,
) -> None:
    """Compare a canary with the old policy, and decide.

    Exit 0: promote; 3: continue; 5: roll back. Run it as often as you like: its error rate holds over all looks, and
    each attempt is counted once.
    """
    current = session(ctx)
    with working(current.out, "comparing new attempts"):
        answer = current.project().canary(logs or [], old=old, new=new, share=share, before=before or [])
    current.out.result(_canary_lines(answer), answer)
    if _EXIT[answer.decision]:
        raise typer.Exit(_EXIT[answer.decision])


def _canary_lines(a: CanaryAnswer) -> list[str]:
    span = f"{present.interval(a.low, a.high, unit=True)} at every look"
    rows = [
        ["old", f"{a.old}   {present.percent(a.mean_old)} of {a.n_old:,}"],
        ["new", f"{a.new}   {present.percent(a.mean_new)} of {a.n_new:,}"],
        ["delta", f"{present.points(a.delta)} in the mean of {a.pairs:,} pairs, 95 % interval {span}"],
        ["before", f"known of {a.users_before:,} of {a.users:,} users; like is paired with like"],
        ["look", f"{a.night}" + ("" if a.looked else ", no new attempts since")],
    ]
    rows = [row for row in rows if row[0] != "before" or a.users_before]
    decision = a.decision.upper().replace("_", " ")
    following = ["next   flywheel ingest, and the same command: it looks again"] if a.decision == "continue" else []
    notes = [f"note   {note}" for note in a.notes]
    return [*columns(rows), *notes, f"{decision}: {'; '.join(a.reasons)}", *following]


@deploy.command()
def vllm(  # noqa: PLR0913 - one parameter an option
    ctx: typer.Context,
    *,
    url: Annotated[str, typer.Option("--url", help="The server's address.", metavar="URL")],
    target: RoundOption = "@champion",
    path: Annotated[
        str, typer.Option("--path", help="The adapter's folder as the server sees it.", metavar="DIR")
    ] = "",
    name: Annotated[str, typer.Option("--name", help="Model name on the server; default: PROJECT-round-N.")] = "",
    token_env: Annotated[
        str, typer.Option("--token-env", help="Environment variable with the server's API key.", metavar="NAME")
    ] = "VLLM_API_KEY",  # noqa: S107 - a variable's name
    keep: Annotated[int, typer.Option("--keep", help="Earlier adapters that stay loaded, for a rollback.", min=0)] = 1,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds for one request.", min=1)] = 120.0,
) -> None:
    """Load the champion into a running vLLM server.

    The server needs --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True. The adapter is loaded and must answer a
    probe before older ones are unloaded; the deployment is recorded in rounds/deployments.jsonl. Running the command
    again changes nothing; after `flywheel rollback` it returns to the previous adapter, which is still loaded.
    """
    current = session(ctx)
    with working(current.out, "deploying"):
        a = current.project().deploy_vllm(
            url, target=target, path=path, name=name, token=os.environ.get(token_env, ""), keep=keep, timeout_s=timeout
        )
    rows = [
        ["serving", f"{a.name} at {a.url}, which answered a probe ({a.probe})"],
        *([["adapter", f"{a.path} @ {a.adapter_sha256[:12]}"]] if a.path else []),
        *([["still loaded", f"{a.previous}, for a rollback"]] if a.previous else []),
        *([["unloaded", ", ".join(a.unloaded)]] if a.unloaded else []),
    ]
    last = "send this name as `model` in requests, and log it as the policy (docs/serving.md)"
    current.out.result([*columns(rows), last], a)


@deploy.command()
def merge(
    ctx: typer.Context,
    *,
    to: Annotated[Path, typer.Option("--to", help="Folder to write.", metavar="DIR")],
    target: RoundOption = "@champion",
    gguf: Annotated[bool, typer.Option("--gguf", help="Also write model.gguf with llama.cpp's converter.")] = False,
) -> None:
    """Write the champion merged into its base model.

    Plain safetensors with tokenizer and chat template, for any server that loads transformers models. The merged model
    is loaded again and its logits are compared with those of base model and adapter.
    """
    current = session(ctx)
    with working(current.out, "merging"):
        a = current.project().deploy_merge(to, target=target, gguf=gguf)
    rows = [
        ["round", f"{a.round} on {a.base_model}"],
        ["weights", f"{present.size(a.size_bytes)} @ {a.weights_sha256[:12]}"],
        ["checked", f"logits differ by at most {a.largest_difference:.2g}"],
        ["folder", a.folder],
        *([["gguf", a.gguf]] if a.gguf else []),
        ["name", f"{a.name}  ({_POLICY})"],
    ]
    current.out.result(columns(rows), a)


@commands.command()
def push(
    ctx: typer.Context,
    *,
    to: Annotated[str, typer.Option("--to", help="Folder to write, or hf:OWNER/NAME.", metavar="TARGET")],
    target: RoundOption = "@champion",
    unpromoted: Annotated[bool, typer.Option("--unpromoted", help="Also a round that was never champion.")] = False,
    dataset: Annotated[bool, typer.Option("--dataset", help="With the rows it was trained on, redacted.")] = False,
    token_env: Annotated[
        str, typer.Option("--token-env", help="Environment variable with the hub's token.", metavar="NAME")
    ] = "HF_TOKEN",  # noqa: S107 - a variable's name
) -> None:
    """Write the champion with its card to a folder or a hub.

    The card states data, rewards, verdict, lineage and the base model's licence; `peft` loads the folder. A hub is sent
    to only where push.host names it: one commit, in a private repository where there is none yet.
    """
    current = session(ctx)
    token = os.environ.get(token_env, "")
    with working(current.out, "pushing"):
        a = current.project().push(to, target=target, unpromoted=unpromoted, dataset=dataset, token=token)
    rows = [
        ["round", f"{a.round} on {a.base_model}, licence {a.licence or 'not stated'}"],
        ["to", a.to + (f" @ {a.commit[:12]}" if a.commit else "")],
        ["files", f"{len(a.files) + 1}, {present.size(sum(one.size_bytes for one in a.files))}"],
        *([["dataset", f"{a.rows:,} rows"]] if a.rows is not None else []),
        ["name", f"{a.name}  ({_POLICY})"],
    ]
    current.out.result(columns(rows), a)


commands.add_typer(deploy, name="deploy")
