"""deploy vllm and deploy merge: handing a champion to who serves it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from flywheel.cli.completing import rounds
from flywheel.cli.progress import working
from flywheel.cli.render import columns, size
from flywheel.cli.session import session

__all__ = ["add_commands"]

deploy = typer.Typer(
    help="Hand a champion to who serves it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

RoundOption = Annotated[
    str,
    typer.Option("--round", help="Round, alias or `base`; default: @champion.", metavar="ROUND", autocompletion=rounds),
]


@deploy.command()
def vllm(  # noqa: PLR0913 - one parameter an option
    ctx: typer.Context,
    *,
    url: Annotated[str, typer.Option("--url", help="The server's address.", metavar="URL")],
    target: RoundOption = "@champion",
    path: Annotated[
        str, typer.Option("--path", help="The adapter's folder as the server sees it.", metavar="DIR")
    ] = "",
    name: Annotated[str, typer.Option("--name", help="What the server calls it; default: PROJECT-round-N.")] = "",
    token_env: Annotated[
        str, typer.Option("--token-env", help="Environment variable with the server's API key.", metavar="NAME")
    ] = "VLLM_API_KEY",  # noqa: S107 - a variable's name
    keep: Annotated[int, typer.Option("--keep", help="Earlier adapters that stay loaded, for a rollback.", min=0)] = 1,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds for one request.", min=1)] = 120.0,
) -> None:
    """Load the champion into a running vLLM.

    The server needs --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True. The adapter is loaded, has to answer a
    probe, and only then older ones are unloaded; what serves now is written to rounds/deployments.jsonl. Typing it
    again changes nothing; after `flywheel rollback` it goes back to the adapter before, which is still loaded.
    """
    current = session(ctx)
    with working(current.out, "deploying"):
        a = current.project().deploy_vllm(
            url, target=target, path=path, name=name, token=os.environ.get(token_env, ""), keep=keep, timeout_s=timeout
        )
    rows = [
        ["serving", f"{a.name} at {a.url}, which answered a probe ({a.probe})"],
        *([["adapter", f"{a.path} @ {a.adapter_sha256[:12]}"]] if a.path else []),
        *([["still there", f"{a.previous}, for a rollback"]] if a.previous else []),
        *([["unloaded", ", ".join(a.unloaded)]] if a.unloaded else []),
    ]
    last = "requests name it as `model`; log it as the policy (docs/serving.md)"
    current.out.result([*columns(rows), last], a)


@deploy.command()
def merge(
    ctx: typer.Context,
    *,
    to: Annotated[Path, typer.Option("--to", help="Folder to write.", metavar="DIR")],
    target: RoundOption = "@champion",
    gguf: Annotated[bool, typer.Option("--gguf", help="Also make model.gguf with llama.cpp's converter.")] = False,
) -> None:
    """Write the champion merged into its base.

    Plain safetensors with tokenizer and chat template, for any server that loads transformers models. What was written
    is read again and its logits are compared with those of the adapter beside its base.
    """
    current = session(ctx)
    with working(current.out, "merging"):
        a = current.project().merge(to, target=target, gguf=gguf)
    rows = [
        ["round", f"{a.round} on {a.base_model}"],
        ["weights", f"{size(a.size_bytes)} @ {a.weights_sha256[:12]}"],
        ["checked", f"largest difference of a logit {a.largest_difference:.2g}"],
        ["folder", a.folder],
        *([["gguf", a.gguf]] if a.gguf else []),
        ["name", f"{a.name}  (log it as the policy, so that the next night knows who acted)"],
    ]
    current.out.result(columns(rows), a)


def add_commands(app: typer.Typer) -> None:
    """Register this file's commands."""
    app.add_typer(deploy, name="deploy")
