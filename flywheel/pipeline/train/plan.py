"""What the next round will contain, as a value that `plan` prints and `train` executes, so a dry run cannot lie."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from flywheel.config import TrainConfig, masked
from flywheel.config.files import REMOVED
from flywheel.errors import EvidenceError, UsageError
from flywheel.io import files
from flywheel.models.load import base_identity, weights_type
from flywheel.models.quantised import refuse_quantised
from flywheel.pipeline.answering import KeptAnswers, answerer
from flywheel.pipeline.build.registry import stage_of
from flywheel.pipeline.build.run import changes
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.train.backend import find_backend
from flywheel.pipeline.train.card import make_card
from flywheel.pipeline.train.length import dataset_text
from flywheel.pipeline.train.memory import estimate_memory
from flywheel.pipeline.train.mix import golden_version
from flywheel.pipeline.train.monitors import monitor_rows
from flywheel.pipeline.train.provenance import origins_text
from flywheel.pipeline.train.race.development import Development, find_development, without
from flywheel.pipeline.train.race.entrants import Start, open_race
from flywheel.pipeline.train.race.run import Racing
from flywheel.pipeline.train.rows import RoundRows
from flywheel.present import round_name, the_round
from flywheel.records import METHODS, Method, Plan, Race, Split, canonical_json, content_id
from flywheel.records.backends import TRL
from flywheel.records.methods import EXAMPLES, SCENARIOS, Dataset
from flywheel.stages.datasets.examples import DESIRABLE, UNDESIRABLE
from flywheel.stages.evaluate.probe import StartPolicy, well_formed
from flywheel.stages.labelling.patterns import ENOUGH_GOLD, ENOUGH_OF_EACH
from flywheel.stages.selection.method import MethodChoice, choose_method

Row = dict[str, Any]

# That change nothing where they are not set.
_ADDED_SETTINGS = ("trainer", "max_tokens", "on_the_way", "attempts", "memory_gib")
_MEASURED_AFTER = ("max_kl",)  # by what another system has trained: it trains the same under another limit
_LIMITS = ("max_chosen_drop", "grpo_min_ess", "replay_max_miss")  # end a round by an error, and change no other
_INPUT_TABLES = ("episodes", "steps", "returns", "examples", "pairs")


@dataclass(frozen=True)
class PlannedRound:
    """A plan and the rows it will train on."""

    plan: Plan
    dataset: str  # JSONL
    origins: str = ""  # JSONL: the episodes and users behind each row
    racing: Racing | None = None  # where methods are raced
    race_seconds: float = 0.0  # that it has taken so far


def round_config(ctx: Context) -> dict[str, Any]:
    """Return the configuration that a round's result depends on."""
    train = ctx.config.train.model_dump(mode="json", exclude={"report_to", "race", "race_tokens"})
    for name in [name for name in _ADDED_SETTINGS if not train[name]]:  # rounds from before there was a choice
        del train[name]
    for name, default in (("thoughts", "keep"), ("gradient_checkpointing", "auto")):
        if train[name] == default:
            del train[name]
    train["trl"] = masked(train["trl"])
    train["backends"] = {
        name: {**own, "arguments": masked(own["arguments"])}
        for name, own in train["backends"].items()
        if name == train["backend"]
    }
    for name in ("backend", "backends") if train["backend"] == TRL else _MEASURED_AFTER:
        del train[name]
    if "attempts" not in train:
        del train["attempt_tasks"], train["world"]
    for name in [name for name in ("rslora", "dora") if not train["lora"][name]]:
        del train["lora"][name]
    for name in [name for name in train if name.startswith("hindsight_") and ctx.config.train.method != "hindsight"]:
        del train[name]
    model = ctx.config.model.model_dump(mode="json") | {"dtype": weights_type(ctx.config.model)}
    if model["quantise"] == "none":
        del model["quantise"]
    return {"model": model, "train": train}


def differing_keys(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return 'key old → new' for every differing value of two `round_config`s; removed keys keep their fixed value."""
    fixed = {name.removeprefix("train."): value for name, value in REMOVED.items() if name.startswith("train.")}
    train = {k: v for k, v in before.get("train", {}).items() if (k, v) not in fixed.items()}
    if "backend" in train:
        train = {k: v for k, v in train.items() if k not in _MEASURED_AFTER}
    before = {**before, "train": train} if "train" in before else before
    return [line.removeprefix("config ") for line in changes({"settings": before}, {"settings": now})]


def with_limits(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return a round's `round_config` with the limits of another, under which an unfinished round may go on."""
    limits = {name: now["train"][name] for name in _LIMITS if name in now["train"]}
    return {**before, "train": {**before.get("train", {}), **limits}}


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


def make_plan(ctx: Context, number: int, *, remembered: bool = True) -> PlannedRound:
    """Plan a round from the current tables.

    Args:
        ctx: the project.
        number: of the round.
        remembered: whether what a race of the methods has shown counts; otherwise it is planned as if it were to begin.

    Raises:
        EvidenceError: a round would hold too few rows from the logs; names what is missing.
    """
    if ctx.store.current("ingest") is None:
        need = ctx.config.train.min_rows
        raise EvidenceError("no logs were ingested yet: nothing to train on", hint="flywheel ingest LOGS", need=need)
    backend = find_backend(ctx)
    refuse_quantised(ctx.config.model)
    parent, start_reason = _start(ctx, number)
    development = find_development(ctx, parent)
    if not isinstance(development, str):
        ctx = without(ctx, development.tasks)
    rows = RoundRows(ctx, parent)
    rate = _well_formed_rate(ctx, parent, rows.selected(EXAMPLES).rows) if ctx.config.train.method == "auto" else None
    unclear = _unclear(ctx)
    rule = choose_method(
        rows.count, rate, ctx.config.train, lambda method: rows.funnel(method).dropped, unclear=unclear
    )
    start = Start(number, parent, rate)
    racing, race, seconds = _race(ctx, start, development, rows, rule.method, remembered=remembered)
    method, reason = _chosen(race, rule)
    fitted = rows.fitted(method)
    text = dataset_text(fitted.rows)
    plan = Plan(
        round=number,
        method=method,
        method_reason=reason,
        race=race,
        parent=parent,
        start_reason=start_reason,
        **_facts(ctx, rows, method),
        inputs=_inputs(ctx, [METHODS[name].dataset for name in (racing.names if racing else [method])]),
        characters=len(text),
        dataset_sha256=files.hash_text(text),
        backend=backend.run(method, fitted.rows) if backend is not None else None,
        memory=estimate_memory(ctx, fitted, method) if backend is None and not ctx.config.train.trainer else None,
        monitors=monitor_rows(ctx),
        unclear=unclear,
    )
    plan = plan.model_copy(update={"same_as": _repeat_of(ctx, plan)})
    return PlannedRound(plan, text, origins_text(ctx.store, fitted.rows), racing, seconds)


def _race(
    ctx: Context, start: Start, development: Development | str, rows: RoundRows, rule: Method, *, remembered: bool
) -> tuple[Racing | None, Race | None, float]:
    """Return the race of a round, how far it has come, its seconds; why none is held, where `auto` would hold one."""
    if isinstance(development, str):
        auto = ctx.config.train.method == "auto"
        return None, Race(state="none", reason=development) if auto else None, 0.0
    racing, race = open_race(ctx, start, development, rows, rule=rule, config=round_config(ctx))
    return (racing, *racing.standing(remembered=remembered)) if racing is not None else (None, race, 0.0)


def _chosen(race: Race | None, rule: MethodChoice) -> tuple[Method, str]:
    """Return the method to train and why: the race's winner, else by the rule, as where no race is held."""
    if race is not None and race.winner is not None:
        return race.winner, race.reason
    failed = f"{race.reason}; by the rule: " if race is not None and race.state == "failed" else ""
    return rule.method, f"{failed}{rule.reason}"


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
    if other := _other_adapter(ctx, champion):
        return None, f"{other} is not what round {champion} was trained with: its adapter cannot be gone on with"
    return champion, f"round {champion} is champion"


def _unordered(value: object) -> object:
    return sorted(map(str, value)) if isinstance(value, list) else value


def _other_adapter(ctx: Context, champion: int) -> str:
    """Return the settings of the adapter's shape that differ from those that the champion was trained with."""
    before, now = ctx.registry.manifest(champion).config, round_config(ctx)
    if not before.get("train", {}).get("lora"):
        return ""
    one, other = before["train"]["lora"], now["train"]["lora"]
    keys = sorted((one.keys() | other.keys()) - {"dropout"})
    differing = [f"train.lora.{key}" for key in keys if _unordered(one.get(key)) != _unordered(other.get(key))]
    if before.get("model", {}).get("quantise") != now["model"].get("quantise"):
        differing.append("model.quantise")
    return ", ".join(differing)


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
    key = content_id("well formed", base, sha256, probe, *settings, *answerer(ctx))
    cached = ctx.store.cached("probe", key)
    if cached is None:
        text = f"measuring how often {the_round(parent)} makes a well-formed call"
        ctx.say(f"{text} (at most {len(probe)} prompts)")
        start = StartPolicy(ctx.registry.sound_adapter(parent), round_name(parent), sha256)
        kept = KeptAnswers(ctx.store)
        cached = well_formed(ctx.config, start, probe, lambda done, of: ctx.progress(text, done, of), kept)
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


def _facts(ctx: Context, rows: RoundRows, method: Method) -> dict[str, Any]:
    """Return what a plan shows of the model, the rows and the steps."""
    train, fitted, dataset = ctx.config.train, rows.fitted(method), METHODS[method].dataset
    tasks = sorted({row["task_id"] for row in fitted.rows})
    return {
        "reference": train.reference if METHODS[method].reference else "none",
        "base_model": ctx.config.model.base,
        "base_model_sha256": base_identity(ctx.config.model).sha256,
        "counts": rows.funnel(method).as_dict(),
        "rows": len(fitted.rows),
        "tasks": len(tasks),
        "steps": _steps(train, method, sum(row.get("times", 1) for row in fitted.rows)),
        "learning_rate": float(f"{train.learning_rate(method):.3g}"),
        "max_kl": train.kl_limit(method),
        "card": make_card(ctx, fitted, dataset),
        "train_tasks_sha256": files.hash_text(canonical_json(tasks)),
        "config": round_config(ctx),
    }


def _unclear(ctx: Context) -> int:
    """Return how many episodes to train on have no clear outcome; 0 where enough outcomes are known."""
    train = read_table(ctx.store, "episodes").filter(split=Split.TRAIN.value).select("episode_id")
    whole = read_table(ctx.store, "returns").filter(pl.col("step").is_null())
    known = pl.col("basis").is_in(["audit", "verifier"])
    succeeded = pl.col("p_success") > 0.5  # noqa: PLR2004 - likelier than not
    n, good = whole.filter(known).select(pl.len(), succeeded.sum().alias("good")).collect().row(0)
    if n >= ENOUGH_GOLD and min(good, n - good) >= ENOUGH_OF_EACH:
        return 0
    clear = pl.col("known") & ~pl.col("p_success").is_between(UNDESIRABLE, DESIRABLE, closed="none")
    rows = whole.filter(~clear & ~known).join(train, on="episode_id", how="semi")
    return int(rows.select(pl.len()).collect().item())


def _steps(train: TrainConfig, method: Method, rows: int) -> int:
    """Return the optimiser steps of a round; attempts are made for whole batches of scenarios only."""
    if train.max_steps > 0:
        return train.max_steps
    if METHODS[method].dataset is SCENARIOS:
        return math.ceil(rows // min(train.batch_size * train.accumulation, rows) * train.epochs(method))
    return math.ceil(math.ceil(rows / train.batch_size) / train.accumulation * train.epochs(method))


def _inputs(ctx: Context, datasets: Sequence[Dataset]) -> dict[str, dict[str, str]]:
    """Return the snapshot and the hash of each table that the plan depends on, and the hash of the golden files."""
    inputs = {}
    for table in dict.fromkeys([*_INPUT_TABLES, *(table for dataset in datasets for table in dataset.inputs)]):
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
