"""`flywheel deploy vllm`: the champion into a running server, the one before kept beside it, and a line in the log.

In: a server and a round. Out: rounds/deployments.jsonl, chained by hash, a line a deployment. The new adapter is loaded
and has answered a probe before anything is unloaded; what does not answer is unloaded again. Only adapters that this
log names are ever unloaded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from flywheel.errors import FlywheelError, StoreError, UsageError
from flywheel.io import hash_chain
from flywheel.pipeline.context import Context, served_name
from flywheel.pipeline.serve.vllm import Served, Server
from flywheel.registry.registry import round_name
from flywheel.results.deploy import DeployAnswer

__all__ = ["LOG", "deploy_vllm", "deployments", "refuse_unsound"]

LOG = "deployments.jsonl"


def deployments(ctx: Context) -> list[dict[str, Any]]:
    """Return what was deployed, oldest first.

    Raises:
        StoreError: the log was changed.
    """
    path = ctx.registry.root / LOG
    broken = hash_chain.breaks(path, head=None)
    if broken:
        raise StoreError(f"`{path}`: {broken[0]}", hint="restore it from a backup, or move it away")
    return [json.loads(line) for line in hash_chain.lines_of(path)]


def deploy_vllm(
    ctx: Context, server: Server, number: int | None, *, path: str = "", name: str = "", keep: int = 1
) -> DeployAnswer:
    """Have a server serve a round, or the base.

    Args:
        ctx: the project, locked.
        server: where to.
        number: the round; None for the base model, for which only older adapters are unloaded.
        path: the adapter's folder as the server sees it; '' for the same as here.
        name: what the server is to call it; '' for the project's name and the round.
        keep: how many adapters that were deployed before stay loaded.

    Raises:
        UsageError: the round may not serve, or its name stands for something else.
        FlywheelError: the server refuses or does not answer.
    """
    refuse_unsound(ctx, number)
    log = [one for one in deployments(ctx) if one["url"] == server.url]
    models = server.models()
    if number is None:
        called, told = _base(models), ""
        finished = server.probe(called)
    else:
        called, told = name or served_name(ctx, number), path or str(ctx.registry.adapter(number))
        finished = _load(server, models, called, told)
    previous, gone = _older(ctx, log, {m.name for m in models} - {called}, keep)
    for one in gone:
        server.unload(one)
    answer = DeployAnswer(
        url=server.url,
        name=called,
        round=number,
        adapter_sha256=ctx.registry.manifest(number).adapter_sha256 if number is not None else "",
        path=told,
        previous=previous,
        unloaded=gone,
        probe=finished,
        at=ctx.clock().isoformat(),
    )
    hash_chain.append(ctx.registry.root / LOG, answer.model_dump(mode="json"), head=None)
    return answer


def refuse_unsound(ctx: Context, number: int | None) -> None:
    """Refuse a round that may not serve: rolled back, tainted, or not what its manifest names.

    Raises:
        UsageError: it may not serve.
        StoreError: a file of it was changed or is missing.
    """
    if number is None:
        return
    retired = {p.round for p in ctx.registry.promotions() if p.decision == "rolled_back"}
    if number in ctx.registry.tainted or number in retired:
        why = "was rolled back" if number in retired else "learnt from a user who was forgotten"
        raise UsageError(f"{round_name(number)} {why} and is not served", hint="`flywheel champion` says what to serve")
    problems = ctx.registry.problems([number])
    if problems:
        raise StoreError("; ".join(problems), hint="`flywheel rollback --yes` moves the champion to a sound round")


def _base(models: Sequence[Served]) -> str:
    found = [m.name for m in models if not m.parent]
    if not found:
        raise FlywheelError("the server lists no base model", hint="is it a vLLM server?")
    return found[0]


def _load(server: Server, models: Sequence[Served], name: str, path: str) -> str:
    """Load an adapter if it is not loaded, and have it answer; one that does not answer is unloaded again."""
    known = next((m for m in models if m.name == name), None)
    if known is not None and known.root != path:
        raise UsageError(
            f"the server has another model under the name `{name}`, from `{known.root}`",
            hint="choose another name with --name, or say with --path how the server sees the adapter's folder",
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
    """Return which adapter stays for a rollback, and which go: older ones, and those that may not serve again."""
    retired = {p.round for p in ctx.registry.promotions() if p.decision == "rolled_back"} | ctx.registry.tainted
    order = dict.fromkeys(one["name"] for one in reversed(log) if one["round"] is not None and one["name"] in loaded)
    of = {one["name"]: one["round"] for one in log}
    sound = [name for name in order if of[name] not in retired][:keep]
    return (sound[0] if sound else ""), [name for name in order if name not in sound]
