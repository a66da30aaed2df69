"""What a round contains in addition to new rows: older ones, the start policy's own actions, and golden rows.

In: the rows chosen from the logs. Out: the rows of a round. Rows from the logs are new unless their `mix` is
older (an earlier round was trained on it), replayed (older, with the start policy's own action), or golden.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from flywheel.io.files import read_rows
from flywheel.io.user_files import matching_files
from flywheel.models.load import weights_type
from flywheel.pipeline.answering import KeptAnswers, answerer
from flywheel.pipeline.context import Context
from flywheel.present import round_name
from flywheel.records import canonical_json, content_id
from flywheel.registry.registry import DATASET
from flywheel.stages.evaluate.probe import StartPolicy, own_actions
from flywheel.stages.selection.mix import Before, chance

MOST_REPLAYED = 512  # attempts at older rows a round: each is generated

Row = dict[str, Any]


def trained_on(ctx: Context, number: int) -> list[str]:
    """Return the ids of a round's rows; remembered, because a dataset's texts are large. None where it is removed."""
    manifest, path = ctx.registry.manifest(number), ctx.registry.folder(number) / DATASET
    key = manifest.dataset[0].sha256 if manifest.dataset else ""
    ids = ctx.store.cached("rows", key)
    if ids is None:
        ids = [row["id"] for row in read_rows(path, optional=True)]
        ctx.store.cache("rows", key, ids)
    return list(ids)


def before(ctx: Context, parent: int | None) -> Before:
    """Return what the policy that a round starts from was trained on, in all rounds that it descends from."""
    lineage = ctx.registry.lineage(parent)
    return Before(parent or 0, frozenset(one for member in lineage for one in trained_on(ctx, member)))


def mix_of(rows: Sequence[Row]) -> dict[str, int]:
    """Return how many rows of a round are new or of another kind; of the others only where there are any."""
    counts = Counter(row.get("mix", "new") for row in rows)
    return {
        kind: counts[kind]
        for kind in ("new", "older", "replayed", "attempted", "golden")
        if counts[kind] or kind == "new"
    }


def golden_version(ctx: Context) -> str:
    """Return the hash of the golden files; '' where there is none."""
    paths = matching_files(ctx.project, ctx.config.train.golden)
    hashes = [(p.relative_to(ctx.project).as_posix(), hashlib.sha256(p.read_bytes()).hexdigest()) for p in paths]
    return content_id(hashes) if hashes else ""


def replayed(ctx: Context, parent: int | None, rows: list[Row]) -> list[Row]:
    """Return a round's demonstrations, some of the older ones with what the start policy itself does there.

    It is asked in `train.replayed_share` of the older rows that make a call; where its calls are the good ones, it is
    shown its own words, elsewhere the logged action as before. A policy that trains on its own actions is not
    pulled away from it (on-policy replay, arXiv 2605.29495).
    """
    older = [row for row in rows if row.get("mix") == "older" and row["completion"][0].get("tool_calls")]
    tried = sorted(older, key=lambda row: (chance(row["id"], ctx.config.train.seed, parent or 0, "replay"), row["id"]))
    tried = tried[: min(round(ctx.config.train.replayed_share * len(older)), MOST_REPLAYED)]
    if parent is None or not tried:
        return rows
    asked = [(row["prompt"], row["tools"], row["completion"][0]) for row in tried]
    sha256, cfg = ctx.registry.manifest(parent).adapter_sha256, ctx.config.eval
    key = content_id(
        "own actions",
        sha256,
        weights_type(ctx.config.model),
        cfg.max_new_tokens,
        canonical_json([list(one) for one in asked]),
        *answerer(ctx),
    )
    actions = ctx.store.cached("probe", key)
    if actions is None:
        ctx.say(f"asking {round_name(parent)} for its own actions in {len(tried)} rows of earlier rounds")
        start = StartPolicy(ctx.registry.sound_adapter(parent), round_name(parent), sha256)
        actions = own_actions(ctx.config, start, asked, KeptAnswers(ctx.store))
        ctx.store.cache("probe", key, actions)
    own = {row["id"]: message for row, message in zip(tried, actions, strict=True) if message is not None}
    return [{**r, "completion": [own[r["id"]]], "mix": "replayed"} if r["id"] in own else r for r in rows]
