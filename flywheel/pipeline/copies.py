"""Copies of adapters outside of the project: which round was deployed, pushed or merged, where and when.

In: two ledgers in the rounds folder, chained by hash, a line a copy. Out: the copies that hold what was forgotten,
which no one but their owner can remove.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from flywheel.errors import StoreError
from flywheel.io import files, hash_chain
from flywheel.pipeline.context import Context
from flywheel.present import count

DEPLOYMENTS = "deployments.jsonl"  # of `deploy vllm`
HANDED_OUT = "handed_out.jsonl"  # of `push` and `deploy merge`: files that may have gone anywhere since
ABOUT = "flywheel.json"  # in a pushed or merged folder: the round and the adapter


def ledger(ctx: Context, name: str) -> list[dict[str, Any]]:
    """Return a ledger's entries, oldest first.

    Raises:
        StoreError: it was changed.
    """
    path = ctx.registry.root / name
    broken = hash_chain.breaks(path, head=None)
    if broken:
        raise StoreError(f"`{path}`: {broken[0]}", hint="restore it from a backup, or move it away")
    return [json.loads(line) for line in hash_chain.lines_of(path)]


def note_copy(ctx: Context, verb: str, to: str, about: Mapping[str, Any]) -> None:
    """Write down a copy, before it is where it goes: after a kill one too many is listed, never one too few.

    Args:
        ctx: the project, locked.
        verb: pushed to, merged into.
        to: an absolute folder, or a hub's address.
        about: what the copy's `flywheel.json` holds.
    """
    facts = {name: about[name] for name in ("round", "adapter_sha256", "rows") if about.get(name) is not None}
    entry = {"at": ctx.clock().isoformat(), "verb": verb, "to": to, **facts}
    ctx.registry.record(HANDED_OUT, entry)


def left_elsewhere(ctx: Context, rounds: Collection[int]) -> list[str]:
    """Return a sentence on each copy of these rounds that is still outside: served, in a folder, or on a hub.

    A folder counts while it holds the adapter, or where another machine may have it. A hub keeps what a later push has
    replaced, so it always counts.
    """
    served = {entry["url"]: entry for entry in ledger(ctx, DEPLOYMENTS)}
    sentences = [
        f"round {entry['round']} is deployed at {url}: flywheel deploy vllm --url {url}"
        for url, entry in sorted(served.items())
        if entry["round"] in rounds
    ]
    copies = {(entry["to"], entry["round"]): entry for entry in ledger(ctx, HANDED_OUT) if entry["round"] in rounds}
    for (to, number), entry in sorted(copies.items()):
        hub = "://" in to
        unseen = ctx.registry.shared.elsewhere and not Path(to).exists()  # of another machine, perhaps
        if hub or unseen or _holds(Path(to), entry["adapter_sha256"]):
            data = f" with {count(entry['rows'], 'row')}" if "rows" in entry else ""
            history = ", from its history too" if hub else ""
            sentences.append(f"round {number} was {entry['verb']} {to} on {entry['at'][:10]}{data}: remove it{history}")
    return sentences


def _holds(folder: Path, adapter_sha256: str) -> bool:
    """Return whether a folder has this adapter, as far as its description shows."""
    try:
        about = files.read_json(folder / ABOUT)
    except (StoreError, OSError):
        return False
    return isinstance(about, dict) and about.get("adapter_sha256") == adapter_sha256
