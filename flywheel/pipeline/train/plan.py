"""What the next round will contain, as a value that `plan` prints and `train` executes, so a dry run cannot lie."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from flywheel.errors import EvidenceError, UsageError
from flywheel.funnel import Funnel
from flywheel.io import files
from flywheel.models.load import base_identity
from flywheel.pipeline.build.registry import stage_of
from flywheel.pipeline.build.run import changes
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.holdout import evaluation_texts
from flywheel.pipeline.train.card import make_card
from flywheel.pipeline.train.length import dataset_text, fit_rows
from flywheel.pipeline.train.mix import before, golden_version, replayed
from flywheel.pipeline.train.monitors import monitor_rows
from flywheel.pipeline.train.provenance import origins_text
from flywheel.records import Method, Plan, canonical_json, content_id
from flywheel.registry.registry import round_name
from flywheel.stages.datasets.unpaired import unpaired
from flywheel.stages.evaluate.probe import well_formed_rate
from flywheel.stages.selection.decontaminate import clear
from flywheel.stages.selection.golden import golden_rows
from flywheel.stages.selection.groups import select_actions, select_groups, select_scenarios
from flywheel.stages.selection.rows import GOOD_ENOUGH_TO_COPY, beside_pairs, choose_method, select_rows

if TYPE_CHECKING:
    from flywheel.config import TrainConfig
    from flywheel.stages.selection.mix import Before
    from flywheel.stages.selection.rows import MethodChoice

__all__ = ["PlannedRound", "check_number", "differing_keys", "make_plan", "round_config"]

Row = dict[str, Any]

_INPUT_TABLES = ("episodes", "steps", "returns", "examples", "pairs")
_MORE_TABLES: dict[str, tuple[str, ...]] = {"grpo": ("groups",), "grpo-replay": ("fixtures", "scenarios")}


@dataclass(frozen=True)
class PlannedRound:
    """A plan and the rows it will train on."""

    plan: Plan
    dataset: str  # JSONL
    origins: str = ""  # JSONL: whose each row is


def round_config(ctx: Context) -> dict[str, Any]:
    """Return the configuration that a round's result depends on."""
    train = ctx.config.train.model_dump(mode="json", exclude={"report_to"})
    return {"model": ctx.config.model.model_dump(mode="json"), "train": train}


def differing_keys(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return 'key old → new' for every differing configuration value."""
    return [line.removeprefix("config ") for line in changes({"settings": before}, {"settings": now})]


def check_number(ctx: Context, number: int | None) -> int:
    """Return the round to train: the given one if it can be trained, else the next.

    Raises:
        UsageError: the number is not the next round's.
    """
    following = ctx.registry.next_number()
    if number is None or number == following or number in ctx.registry.trained():
        return following if number is None else number
    have = ctx.registry.numbers()
    known = f"rounds so far: {', '.join(map(str, have))}" if have else "no round has been trained yet"
    raise UsageError(
        f"round {number} cannot be trained: {known}, the next is {following}",
        hint=f"flywheel train --round {following}",
    )


def _start(ctx: Context, number: int) -> tuple[int | None, str]:
    train, champion = ctx.config.train, ctx.registry.champion
    if train.start == "base":
        return None, "train.start is base"
    if any(certificate.rebase_round == number for certificate in ctx.registry.certificates()):
        return None, "a user was forgotten since the last round: it starts afresh from the base"
    if champion is None:
        return None, "no champion yet"
    if (number - 1) % train.rebase_every == 0:
        return None, f"every {train.rebase_every} rounds one starts afresh from the base"
    return champion, f"round {champion} is champion"


def _well_formed_rate(ctx: Context, parent: int | None, probe_rows: Sequence[dict[str, Any]]) -> float | None:
    """Return the start policy's rate of well-formed calls: from its evaluation if there is one, else measured."""
    report = ctx.registry.report(parent) if parent is not None else None
    stored = [m.value for m in report.metrics if m.metric == "well_formed" and m.slice == "all"] if report else []
    if stored:
        return stored[0]
    calling = [row for row in probe_rows if row["completion"][0].get("tool_calls")]  # elsewhere words are no fault
    if not calling:
        return None
    sha256 = ctx.registry.manifest(parent).adapter_sha256 if parent is not None else ""
    probe = _probe(calling, ctx.config.train.probe_prompts)
    base = base_identity(ctx.config.model).sha256
    key = content_id(base, sha256, probe, ctx.config.eval.max_new_tokens, ctx.config.model.dtype)
    cached = ctx.store.cached("probe", key)
    if cached is None:
        ctx.say(f"measuring how often {round_name(parent)} makes a well-formed call ({len(probe)} prompts)")
        cached = well_formed_rate(ctx.config, ctx.registry.sound_adapter(parent), probe)
        ctx.store.cache("probe", key, cached)
    return float(cached)


def _probe(rows: Sequence[dict[str, Any]], count: int) -> list[Any]:
    """Return prompts (and tools) to try a policy on: evenly from the shorter half, for long ones cost minutes on a CPU.

    Not the shortest alone: those are first requests, which a policy may answer in words though it calls tools later on.
    """
    texts = {canonical_json([row["prompt"], row["tools"]]) for row in rows}
    distinct = sorted(texts, key=lambda text: (len(text), text))
    shorter = distinct[: max(count, len(distinct) // 2)]
    count = min(count, len(shorter))
    return [json.loads(shorter[place * len(shorter) // count]) for place in range(count)]


def _choose(
    ctx: Context, parent: int | None, counts: dict[Method, int], probe: Sequence[dict[str, Any]]
) -> MethodChoice:
    train = ctx.config.train
    rate = _well_formed_rate(ctx, parent, probe) if train.method == "auto" else None
    return choose_method(
        counts["sft"],
        counts["dpo"],
        rate,
        train,
        n_actions=counts.get("kto", 0),
        n_groups=counts.get("grpo", 0),
        n_scenarios=counts.get("grpo-replay", 0),
    )


def _candidates(ctx: Context, known: Before) -> tuple[dict[Method, list[Row]], dict[Method, Funnel], list[Row]]:
    """Return the rows that each method would train on, what was dropped on the way, and demonstrations beside pairs."""

    def table(name: str) -> pl.DataFrame:
        return read_table(ctx.store, name).collect()

    train, examples, pairs = ctx.config.train, table("examples"), table("pairs")
    pairs_at_most = max(round(train.max_rows / (1 + train.dpo_demonstrations)), min(train.min_rows, train.max_rows))
    room = {"sft": train, "dpo": train.model_copy(update={"max_rows": pairs_at_most})}
    funnels: dict[Method, Funnel] = {"sft": Funnel(), "dpo": Funnel()}
    users = dict(read_table(ctx.store, "episodes").select("episode_id", "user").collect().iter_rows())
    verified = _verified(ctx)
    rows: dict[Method, list[Row]] = {
        m: select_rows(examples, pairs, room[m], m, funnels[m], users=users, verified=verified, before=known)
        for m in funnels
    }
    if train.method == "grpo":
        funnels["grpo"] = Funnel()
        rows["grpo"] = select_groups(table("groups"), train, funnels["grpo"], users, known)
    if train.method == "grpo-replay":
        found = funnels["grpo-replay"] = Funnel()
        least = ctx.config.groups.min_range
        rows["grpo-replay"] = select_scenarios(table("scenarios"), table("fixtures"), train, least, found)
    if train.method == "kto":
        funnels["kto"] = Funnel()
        alone = unpaired(examples, pairs, funnels["kto"])
        rows["kto"] = select_actions(alone, train, funnels["kto"], users, known)
    beside = beside_pairs(rows["dpo"], rows["sft"], examples, train, verified=verified, before=known)
    return rows, funnels, beside


def _verified(ctx: Context) -> set[str]:
    """Return the episodes whose success a verifier or an audit vouches for."""
    whole = read_table(ctx.store, "returns").filter(pl.col("step").is_null())
    vouched = pl.col("basis").is_in(["audit", "verifier"]) & (pl.col("p_success") >= GOOD_ENOUGH_TO_COPY)
    return set(whole.filter(vouched).collect()["episode_id"])


def make_plan(ctx: Context, number: int) -> PlannedRound:
    """Plan a round from the tables as they stand.

    Raises:
        EvidenceError: there is too little to train on; says what is missing.
    """
    parent, start_reason = _start(ctx, number)
    train = ctx.config.train
    candidates, funnels, beside = _candidates(ctx, before(ctx, parent))
    counts = {method: len(rows) for method, rows in candidates.items()}
    choice = _choose(ctx, parent, counts, candidates["sft"])
    funnel = funnels[choice.method]
    chosen = candidates[choice.method]
    if choice.method == "sft":
        chosen = replayed(ctx, parent, chosen)
    if choice.method == "dpo":
        chosen = [*chosen, *beside]
        funnel.considered += len(beside)
        funnel.kept += len(beside)
        funnel.note("demonstrations beside pairs", len(beside))
    golden = golden_rows(ctx.project, train, choice.method, parent or 0, len(chosen), funnel)
    clean = clear([*chosen, *golden], evaluation_texts(ctx), funnel)
    fitted = fit_rows(ctx, clean, choice.method, funnel)
    rows = fitted.rows
    made_for = _of_the_method(rows, choice.method)
    if made_for < max(train.min_rows, 1):
        refused = f" ({fitted.refused:,} do not fit into train.max_length)" if fitted.refused else ""
        raise EvidenceError(
            f"round {number}: {made_for} rows for {choice.method}{refused}, train.min_rows is {train.min_rows}",
            hint="ingest more logs, or see what was dropped with `flywheel explain pairs`",
            have=made_for,
            need=train.min_rows,
        )
    dataset = dataset_text(rows)
    tasks = sorted({row["task_id"] for row in rows})
    plan = Plan(
        round=number,
        method=choice.method,
        method_reason=choice.reason,
        parent=parent,
        start_reason=start_reason,
        reference="none" if choice.method == "sft" else train.reference,
        base_model=ctx.config.model.base,
        base_model_sha256=base_identity(ctx.config.model).sha256,
        inputs=_inputs(ctx, _MORE_TABLES.get(choice.method, ())) | _golden_input(ctx),
        counts=funnel.as_dict(),
        rows=len(rows),
        tasks=len(tasks),
        steps=_steps(train, choice.method, len(rows)),
        characters=len(dataset),
        card=make_card(ctx, fitted, choice.method),
        dataset_sha256=files.hash_text(dataset),
        train_tasks_sha256=files.hash_text(canonical_json(tasks)),
        config=round_config(ctx),
        monitors=monitor_rows(ctx),
    )
    whole = plan.model_copy(update={"same_as": _repeat_of(ctx, plan)})
    return PlannedRound(whole, dataset, origins_text(ctx.store, rows))


def _of_the_method(rows: Sequence[Row], method: Method) -> int:
    """Return how many rows are what a method learns from: no golden row, and no demonstration beside pairs."""
    return sum(row.get("mix") != "golden" and not (method == "dpo" and "completion" in row) for row in rows)


def _steps(train: TrainConfig, method: Method, rows: int) -> int:
    """Return the optimiser steps of a round; attempts are made for whole batches of scenarios only."""
    if train.max_steps > 0:
        return train.max_steps
    if method == "grpo-replay":
        return math.ceil(rows // min(train.batch_size * train.accumulation, rows) * train.epochs(method))
    return math.ceil(math.ceil(rows / train.batch_size) / train.accumulation * train.epochs(method))


def _inputs(ctx: Context, more: tuple[str, ...]) -> dict[str, dict[str, str]]:
    found = {}
    for table in (*_INPUT_TABLES, *more):
        snapshot = ctx.store.current(stage_of(table))
        if snapshot is not None:
            found[table] = {"snapshot": f"{snapshot.stage}/{snapshot.number}", "sha256": snapshot.table_sha256(table)}
    return found


def _golden_input(ctx: Context) -> dict[str, dict[str, str]]:
    version = golden_version(ctx)
    return {"golden": {"snapshot": ctx.config.train.golden, "sha256": version}} if version else {}


def _repeat_of(ctx: Context, plan: Plan) -> int | None:
    """Return a trained round of the same start, data and configuration: this one would have the same adapter."""
    for number in ctx.registry.numbers():
        manifest = ctx.registry.manifest(number)
        if not manifest.adapter_sha256:
            continue
        same_data = manifest.dataset and manifest.dataset[0].sha256 == plan.dataset_sha256
        same_start = (manifest.parent, manifest.method) == (plan.parent, plan.method)
        if (
            number != plan.round
            and number not in ctx.registry.tainted
            and same_data
            and same_start
            and not differing_keys(manifest.config, plan.config)
        ):
            return number
    return None
