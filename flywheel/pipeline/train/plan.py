"""What the next round will contain, as a value that `plan` prints and `train` executes, so a dry run cannot lie."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, assert_never

import polars as pl

from flywheel.config import TrainConfig
from flywheel.config.files import REMOVED
from flywheel.errors import UsageError
from flywheel.funnel import Funnel
from flywheel.io import files
from flywheel.models.load import base_identity, weights_type
from flywheel.pipeline.build.registry import stage_of
from flywheel.pipeline.build.run import changes
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context, served_rounds
from flywheel.pipeline.evaluate.holdout import evaluation_texts
from flywheel.pipeline.train.attempts import attempted
from flywheel.pipeline.train.card import make_card
from flywheel.pipeline.train.length import Fitted, dataset_text, fit_rows, within_tokens
from flywheel.pipeline.train.mix import before, golden_version, replayed
from flywheel.pipeline.train.monitors import monitor_rows
from flywheel.pipeline.train.provenance import origins_text
from flywheel.present import the_round
from flywheel.records import METHODS, Method, MethodSetting, Plan, canonical_json, content_id
from flywheel.records.methods import EXAMPLES, PAIRS, SCENARIOS, Dataset
from flywheel.stages.datasets.unpaired import unpaired
from flywheel.stages.evaluate.probe import well_formed
from flywheel.stages.selection.decontaminate import CROSSES, EvaluationTexts, clear
from flywheel.stages.selection.golden import golden_rows
from flywheel.stages.selection.groups import select_actions, select_groups, select_scenarios
from flywheel.stages.selection.hints import select_hints
from flywheel.stages.selection.method import choose_method
from flywheel.stages.selection.mix import Before
from flywheel.stages.selection.rows import (
    GOOD_ENOUGH_TO_COPY,
    demonstrations_for_pairs,
    select_demonstrations,
    select_pairs,
)

Row = dict[str, Any]

_ADDED = {"attempted", "golden", "replayed"}  # rows with another action than the table's
_ADDED_SETTINGS = ("trainer", "max_tokens", "on_the_way", "attempts")  # that change nothing where they are not set
_INPUT_TABLES = ("episodes", "steps", "returns", "examples", "pairs")


@dataclass(frozen=True)
class PlannedRound:
    """A plan and the rows it will train on."""

    plan: Plan
    dataset: str  # JSONL
    origins: str = ""  # JSONL: the episodes and users behind each row


def round_config(ctx: Context) -> dict[str, Any]:
    """Return the configuration that a round's result depends on."""
    train = ctx.config.train.model_dump(mode="json", exclude={"report_to"})
    for name in [name for name in _ADDED_SETTINGS if not train[name]]:  # rounds from before there was a choice
        del train[name]
    if "attempts" not in train:
        del train["attempt_tasks"], train["world"]
    for name in [name for name in train if name.startswith("hindsight_") and ctx.config.train.method != "hindsight"]:
        del train[name]
    model = ctx.config.model.model_dump(mode="json") | {"dtype": weights_type(ctx.config.model)}
    return {"model": model, "train": train}


def differing_keys(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return 'key old → new' for every differing value of two `round_config`s; removed keys keep their fixed value."""
    fixed = {name.removeprefix("train."): value for name, value in REMOVED.items() if name.startswith("train.")}
    train = {k: v for k, v in before.get("train", {}).items() if (k, v) not in fixed.items()}
    before = {**before, "train": train} if "train" in before else before
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


def make_plan(ctx: Context, number: int) -> PlannedRound:
    """Plan a round from the current tables.

    Raises:
        EvidenceError: a round would hold too few rows from the logs; names what is missing.
    """
    train = ctx.config.train
    parent, start_reason = _start(ctx, number)
    known = _known(ctx, parent)
    selected = {dataset: _select(ctx, dataset, known) for dataset in _datasets(train.method)}
    rate = _well_formed_rate(ctx, parent, selected[EXAMPLES].rows) if train.method == "auto" else None
    complete = cache(lambda method: _complete(ctx, method, selected, known, parent))
    choice = choose_method(
        lambda method: _rows_of_logs(complete(method), method),
        rate,
        train,
        lambda method: selected[METHODS[method].dataset].funnel.dropped,
    )
    fitted = complete(choice.method)
    dataset, funnel = METHODS[choice.method].dataset, selected[METHODS[choice.method].dataset].funnel
    text = dataset_text(fitted.rows)
    tasks = sorted({row["task_id"] for row in fitted.rows})
    plan = Plan(
        round=number,
        method=choice.method,
        method_reason=choice.reason,
        parent=parent,
        start_reason=start_reason,
        reference=train.reference if METHODS[choice.method].reference else "none",
        base_model=ctx.config.model.base,
        base_model_sha256=base_identity(ctx.config.model).sha256,
        inputs=_inputs(ctx, dataset),
        counts=funnel.as_dict(),
        rows=len(fitted.rows),
        tasks=len(tasks),
        steps=_steps(train, choice.method, len(fitted.rows)),
        learning_rate=float(f"{train.learning_rate(choice.method):.3g}"),
        max_kl=train.kl_limit(choice.method),
        characters=len(text),
        card=make_card(ctx, fitted, dataset),
        dataset_sha256=files.hash_text(text),
        train_tasks_sha256=files.hash_text(canonical_json(tasks)),
        config=round_config(ctx),
        monitors=monitor_rows(ctx),
    )
    plan = plan.model_copy(update={"same_as": _repeat_of(ctx, plan)})
    return PlannedRound(plan, text, origins_text(ctx.store, fitted.rows))


def _start(ctx: Context, number: int) -> tuple[int | None, str]:
    """Return the round that this one starts from (None: the base), and why."""
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


# --- the rows that a round may train on -------------------------------------------------------------------------------


class _Known(NamedTuple):
    """What is known of the episodes behind rows."""

    users: Mapping[str, str | None]  # by episode
    verified: set[str]  # episodes whose success a verifier or an audit confirms
    before: Before
    texts: EvaluationTexts  # that no row may share words with


class _Selected(NamedTuple):
    """A dataset's rows that the round may train on, and the count of those that were dropped."""

    rows: list[Row]
    funnel: Funnel


def _known(ctx: Context, parent: int | None) -> _Known:
    users = dict(read_table(ctx.store, "episodes").select("episode_id", "user").collect().iter_rows())
    confirmed = pl.col("basis").is_in(["audit", "verifier"]) & (pl.col("p_success") >= GOOD_ENOUGH_TO_COPY)
    returns = read_table(ctx.store, "returns").filter(pl.col("step").is_null() & confirmed).collect()
    return _Known(users, set(returns["episode_id"]), before(ctx, parent), evaluation_texts(ctx))


def _datasets(method: MethodSetting) -> tuple[Dataset, ...]:
    """Return the datasets to select from; pairs are trained together with demonstrations."""
    if method == "auto" or METHODS[method].dataset is PAIRS:
        return EXAMPLES, PAIRS
    return (METHODS[method].dataset,)


def _select(ctx: Context, dataset: Dataset, known: _Known) -> _Selected:
    """Select the rows of a dataset."""
    train, funnel, (users, verified, before, texts) = ctx.config.train, Funnel(), known

    def table(name: str) -> pl.DataFrame:
        return read_table(ctx.store, name).collect()

    match dataset.name:
        case "examples":
            rows = select_demonstrations(table("examples"), train, funnel, users=users, before=before, texts=texts)
        case "pairs":  # their demonstrations need room
            most = max(round(train.max_rows / (1 + train.dpo_demonstrations)), min(train.min_rows, train.max_rows))
            cfg = train.model_copy(update={"max_rows": most})
            rows = select_pairs(table("pairs"), cfg, funnel, users=users, verified=verified, before=before, texts=texts)
        case "actions":
            actions = unpaired(table("examples"), table("pairs"), funnel)
            rows = select_actions(actions, train, funnel, users, before, texts)
        case "groups":
            rows = select_groups(table("groups"), train, funnel, users, before, texts)
        case "scenarios":
            least = ctx.config.groups.min_range
            rows = select_scenarios(table("scenarios"), table("fixtures"), train, least, funnel, texts)
        case "hints":
            rows = select_hints(
                {name: table(name) for name in ("examples", "episodes", "steps")},
                train,
                funnel,
                policies=_names(ctx, before.start or None),
                min_users=ctx.config.pairs.min_users,
                users=users,
                before=before,
                texts=texts,
            )
        case _:
            assert_never(dataset.name)
    return _Selected(rows, funnel)


def _names(ctx: Context, parent: int | None) -> set[str]:
    """Return the names under which logs may give the policy that a round starts from."""
    return {"base"} if parent is None else {name for name, number in served_rounds(ctx).items() if number == parent}


def _complete(
    ctx: Context, method: Method, selected: Mapping[Dataset, _Selected], known: _Known, parent: int | None
) -> Fitted:
    """Return the rows of a round: the selected ones, what they are trained together with, and no row too long."""
    dataset = METHODS[method].dataset
    rows, funnel = selected[dataset]
    if dataset is EXAMPLES:
        rows = replayed(ctx, parent, rows)
    if dataset is PAIRS:
        rows = [*rows, *_demonstrations(ctx, rows, selected[EXAMPLES].rows, known, funnel)]
    if dataset in {EXAMPLES, PAIRS}:
        rows = [*rows, *attempted(ctx, dataset, known.before, known.texts, funnel)]
    golden = golden_rows(ctx.project, ctx.config.train, dataset, parent or 0, len(rows), funnel)
    fitted = fit_rows(ctx, _cleared([*rows, *golden], known.texts, funnel), method, funnel)
    return within_tokens(fitted, ctx.config.train, method, funnel)


def _cleared(rows: list[Row], texts: EvaluationTexts, funnel: Funnel) -> list[Row]:
    """Drop rows that share words with an evaluation of those that were not selected from a table."""
    added = [row for row in rows if row.get("mix") in _ADDED]
    crossing = {row["id"] for row in added} - {row["id"] for row in clear(added, texts, funnel, among=lambda: rows)}
    funnel.dropped[CROSSES] += len(crossing)
    funnel.kept -= len(crossing)
    return [row for row in rows if row["id"] not in crossing]


def _demonstrations(
    ctx: Context, pairs: Sequence[Row], demonstrations: Sequence[Row], known: _Known, funnel: Funnel
) -> list[Row]:
    """Return the demonstrations that a round of pairs is trained together with."""
    examples = read_table(ctx.store, "examples").collect()
    rows = demonstrations_for_pairs(
        pairs, demonstrations, examples, ctx.config.train, verified=known.verified, before=known.before
    )
    funnel.considered += len(rows)
    funnel.kept += len(rows)
    funnel.note("demonstrations in addition to pairs", len(rows))
    return rows


def _rows_of_logs(fitted: Fitted, method: Method) -> int:
    """Count the rows that make a round worth training: golden ones, and demonstrations in addition to pairs, do not."""
    pairs = METHODS[method].dataset is PAIRS
    return sum(row.get("mix") != "golden" and not (pairs and "completion" in row) for row in fitted.rows)


# --- the start policy's calls -----------------------------------------------------------------------------------------


def _well_formed_rate(ctx: Context, parent: int | None, demonstrations: Sequence[Row]) -> float | None:
    """Return the start policy's rate of well-formed calls: from its evaluation if there is one, else measured."""
    report = ctx.registry.report(parent) if parent is not None else None
    stored = [m.value for m in report.metrics if m.metric == "well_formed" and m.slice == "all"] if report else []
    if stored:
        return stored[0]
    calling = [row for row in demonstrations if row["completion"][0].get("tool_calls")]  # elsewhere words are right
    if not calling:
        return None
    sha256 = ctx.registry.manifest(parent).adapter_sha256 if parent is not None else ""
    probe = _probe(calling, ctx.config.train.probe_prompts)
    base = base_identity(ctx.config.model).sha256
    settings = (ctx.config.eval.max_new_tokens, weights_type(ctx.config.model), ctx.config.train.cold_start_below)
    key = content_id("well formed", base, sha256, probe, *settings)
    cached = ctx.store.cached("probe", key)
    if cached is None:
        text = f"measuring how often {the_round(parent)} makes a well-formed call"
        ctx.say(f"{text} (at most {len(probe)} prompts)")
        adapter = ctx.registry.sound_adapter(parent)
        cached = well_formed(ctx.config, adapter, probe, lambda done, of: ctx.progress(text, done, of))
        ctx.store.cache("probe", key, list(cached))
    good, tried = cached
    return float(good / tried)


def _probe(rows: Sequence[Row], count: int) -> list[Any]:
    """Return prompts (and tools) to try a policy on: evenly from the shorter half, for long ones cost minutes on a CPU.

    Not only the shortest: those are first requests, which a policy may answer in words though it calls tools later on.
    """
    texts = {canonical_json([row["prompt"], row["tools"]]) for row in rows}
    distinct = sorted(texts, key=lambda text: (len(text), text))
    shorter = distinct[: max(count, len(distinct) // 2)]
    count = min(count, len(shorter))
    chosen = [shorter[place * len(shorter) // count] for place in range(count)]
    return [json.loads(text) for text in sorted(chosen, key=content_id)]  # so that the first are not the shortest


# --- facts of the plan ------------------------------------------------------------------------------------------------


def _steps(train: TrainConfig, method: Method, rows: int) -> int:
    """Return the optimiser steps of a round; attempts are made for whole batches of scenarios only."""
    if train.max_steps > 0:
        return train.max_steps
    if METHODS[method].dataset is SCENARIOS:
        return math.ceil(rows // min(train.batch_size * train.accumulation, rows) * train.epochs(method))
    return math.ceil(math.ceil(rows / train.batch_size) / train.accumulation * train.epochs(method))


def _inputs(ctx: Context, dataset: Dataset) -> dict[str, dict[str, str]]:
    """Return the snapshot and the hash of each table that the plan depends on, and the hash of the golden files."""
    inputs = {}
    for table in (*_INPUT_TABLES, *dataset.inputs):
        snapshot = ctx.store.current(stage_of(table))
        if snapshot is not None:
            inputs[table] = {"snapshot": f"{snapshot.stage}/{snapshot.number}", "sha256": snapshot.table_sha256(table)}
    golden = golden_version(ctx)
    return inputs | ({"golden": {"snapshot": ctx.config.train.golden, "sha256": golden}} if golden else {})


def _repeat_of(ctx: Context, plan: Plan) -> int | None:
    """Return a trained round of the same start, data and configuration: this one would have the same adapter."""
    for number in ctx.registry.numbers():
        manifest = ctx.registry.manifest(number)
        if number == plan.round or number in ctx.registry.tainted or not manifest.adapter_sha256:
            continue
        same_data = manifest.dataset and manifest.dataset[0].sha256 == plan.dataset_sha256
        same_start = (manifest.parent, manifest.method) == (plan.parent, plan.method)
        if same_data and same_start and not differing_keys(manifest.config, plan.config):
            return number
    return None
