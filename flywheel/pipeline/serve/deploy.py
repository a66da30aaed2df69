"""`flywheel deploy vllm`: load a champion into a running server, keep the one before, and log the deployment.

In: a server and a round. Out: rounds/deployments.jsonl, chained by hash, a line a deployment. The new adapter is loaded
and has answered a probe before another is unloaded; one that does not answer is unloaded again. Only adapters in this
log are ever unloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flywheel.errors import FlywheelError, StoreError, UsageError
from flywheel.pipeline.context import Context, served_name
from flywheel.pipeline.copies import DEPLOYMENTS, ledger
from flywheel.pipeline.serve.vllm import Served, Server
from flywheel.present import round_name
from flywheel.results.deploy import DeployVllmAnswer


def deploy_vllm(
    ctx: Context, server: Server, number: int | None, *, path: str = "", name: str = "", keep: int = 1
) -> DeployVllmAnswer:
    """Load a round into a server, or return it to the base model.

    Args:
        ctx: the project, locked.
        server: the vLLM server.
        number: the round; None for the base model, for which only older adapters are unloaded.
        path: the adapter's folder as the server sees it; '' for the path here.
        name: of the model on the server; '' for the project's name and the round.
        keep: number of earlier adapters that stay loaded.

    Raises:
        UsageError: the round may not serve, or the server has another model of that name.
        FlywheelError: the server refuses or does not answer.
    """
    refuse_unsound(ctx, number)
    log = [entry for entry in ledger(ctx, DEPLOYMENTS) if entry["url"] == server.url]
    models = server.models()
    if number is None:
        name, path = _base(models), ""
        finish_reason = server.probe(name)
    else:
        name, path = name or served_name(ctx, number), path or str(ctx.registry.adapter(number))
        finish_reason = _load(server, models, name, path)
    previous, unloaded = _older(ctx, log, {m.name for m in models} - {name}, keep)
    for adapter in unloaded:
        server.unload(adapter)
    answer = DeployVllmAnswer(
        url=server.url,
        name=name,
        round=number,
        adapter_sha256=ctx.registry.manifest(number).adapter_sha256 if number is not None else "",
        path=path,
        previous=previous,
        unloaded=unloaded,
        probe=finish_reason,
        at=ctx.clock().isoformat(),
    )
    ctx.registry.record(DEPLOYMENTS, answer.model_dump(mode="json"))
    return answer


def refuse_unsound(ctx: Context, number: int | None) -> None:
    """Refuse a round that may not serve: rolled back, tainted, or with files that do not match its manifest.

    Raises:
        UsageError: it was rolled back or is tainted.
        StoreError: one of its files was changed or is missing.
    """
    if number is None:
        return
    retired = {p.round for p in ctx.registry.promotions() if p.decision == "rolled_back"}
    if number in ctx.registry.tainted or number in retired:
        why = "was rolled back" if number in retired else "was trained on data of a forgotten user"
        raise UsageError(
            f"{round_name(number)} {why} and may not serve", hint="`flywheel champion` shows what to serve"
        )
    problems = ctx.registry.problems([number])
    if problems:
        raise StoreError("; ".join(problems), hint="`flywheel rollback --yes` moves the champion to an intact round")


def _base(models: Sequence[Served]) -> str:
    bases = [m.name for m in models if not m.parent]
    if not bases:
        raise FlywheelError("the server lists no base model", hint="is it a vLLM server?")
    return bases[0]


def _load(server: Server, models: Sequence[Served], name: str, path: str) -> str:
    """Load an adapter unless it is loaded, and probe it; one that does not answer is unloaded again."""
    known = next((m for m in models if m.name == name), None)
    if known is not None and known.root != path:
        raise UsageError(
            f"the server has another model named `{name}`, from `{known.root}`",
            hint="choose another name with --name, or pass the adapter's folder as the server sees it with --path",
        )
    if known is None:
        server.load(name, path)
    try:
        return server.probe(name)
    except FlywheelError:
        if known is None:
            server.unload(name)
        raise


def _older(ctx: Context, log: Sequence[dict[str, Any]], loaded: set[str], keep: int) -> tuple[str, list[str]]:
    """Return the adapter that stays for a rollback, and those to unload: older ones, and those that may not serve."""
    retired = {p.round for p in ctx.registry.promotions() if p.decision == "rolled_back"} | ctx.registry.tainted
    ours = dict.fromkeys(e["name"] for e in reversed(log) if e["round"] is not None and e["name"] in loaded)
    round_of = {entry["name"]: entry["round"] for entry in log}
    kept = [name for name in ours if round_of[name] not in retired][:keep]
    return (kept[0] if kept else ""), [name for name in ours if name not in kept]
