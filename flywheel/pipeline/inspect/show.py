"""`flywheel show`: a round, or any object of the store by the first digits of its id, in full."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from flywheel.io.files import read_rows
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.looks import acts
from flywheel.pipeline.inspect.find import TRAINED_KINDS, TRAINED_ROW, Subject, find, round_named, rounds_of_row
from flywheel.pipeline.inspect.preview import preview
from flywheel.pipeline.rewards.outcomes import recorded
from flywheel.records import TRAINED_TABLES
from flywheel.registry.registry import DATASET
from flywheel.results.inspect import ShowAnswer
from flywheel.stages.evaluate.suites.own_cases import read_cases

_FOLDED = {"observation", "action", "tail", "tools", "prompt", "chosen", "rejected", "completion", "payload", "served"}
_CASES = {"case", "task"}  # what an evaluation asks
Record = dict[str, Any]


def show(ctx: Context, subject: str) -> ShowAnswer:
    """Return a round, an episode, a step, a row to train on, a task, a case or an event in full.

    Raises:
        UsageError: no object, or more than one, has that name.
    """
    number = round_named(ctx, subject)
    if number is not None:
        record = ctx.registry.manifest(number).model_dump(mode="json")
        record["aliases"] = [a for a, at in ctx.registry.aliases().items() if at == number]
        return ShowAnswer(kind="round", record=record)
    found = find(ctx, subject)
    if found.kind in TRAINED_KINDS:
        table = TRAINED_TABLES[TRAINED_KINDS[found.kind]]
        record = _row(ctx, table.name, table.key, found.id)
        if not (table.sides or "completions_G" in record):  # a fixture or a scenario holds no action to train
            return ShowAnswer(kind=found.kind, record=_plain(record))
        sides, how = preview(ctx, table, record)
        return ShowAnswer(kind=found.kind, record=_plain(record), preview=sides, rendering=how)
    shown = {
        "episode": _episode, "step": _step, "task": _task, "case": _case, "event": _event, TRAINED_ROW: _trained,
    }[found.kind]  # fmt: skip
    evaluated = _evaluated(ctx, found.id) if found.kind in _CASES else {}
    return ShowAnswer(kind=found.kind, record=_plain(shown(ctx, found) | evaluated))


def _episode(ctx: Context, subject: Subject) -> Record:
    return {
        **_row(ctx, "episodes", "episode_id", subject.id),
        "steps": _rows(ctx, "steps", pl.col("episode_id") == subject.id, ["index"]),
        "rewards": _rows(ctx, "rewards", pl.col("episode_id") == subject.id, ["step", "signal"]),
        "returns": _rows(ctx, "returns", pl.col("episode_id") == subject.id, ["step"]),
    }


def _step(ctx: Context, subject: Subject) -> Record:
    here = (pl.col("episode_id") == subject.id) & (pl.col("step") == subject.step)
    (step,) = _rows(
        ctx, "steps", (pl.col("episode_id") == subject.id) & (pl.col("index") == subject.step), ["episode_id"]
    )
    return {
        **step,
        "rewards": _rows(ctx, "rewards", here, ["signal"]),
        "returns": _rows(ctx, "returns", here, ["step"]),
    }


def _task(ctx: Context, subject: Subject) -> Record:
    """Return a task with the log's names for it, its attempts, and the tasks whose requests are alike."""
    episodes = read_table(ctx.store, "episodes").filter(pl.col("task_id") == subject.id)
    names = read_table(ctx.store, "events").filter(pl.col("task_key").is_not_null())
    named = names.join(episodes, on="conversation_id", how="semi").select(pl.col("task_key").unique().sort()).collect()
    return {
        "task_id": subject.id,
        "names": named["task_key"].to_list(),
        "split": episodes.select(pl.col("split").unique().sort()).collect()["split"].to_list(),
        "attempts": _attempts(ctx, episodes),
        "alike": _alike(ctx, subject.id),
    }


def _alike(ctx: Context, task: str) -> list[str]:
    """Return the other tasks that the text of their requests alone would make one with this."""
    tasks = read_table(ctx.store, "tasks")
    texts = tasks.filter(pl.col("task_id") == task).select("text_id").drop_nulls().unique()
    others = tasks.join(texts, on="text_id", how="semi").filter(pl.col("task_id") != task)
    return others.select(pl.col("task_id").unique().sort()).collect()["task_id"].to_list()


def _attempts(ctx: Context, episodes: pl.LazyFrame) -> list[Record]:
    outcomes = read_table(ctx.store, "returns").filter(pl.col("step").is_null())
    columns = ("episode_id", "policy", "started", "n_steps", "p_success", "known", "basis", "outcome")
    attempts = (
        episodes.join(outcomes.drop("task_id"), on="episode_id", how="left")
        .join(recorded(ctx.store), on="episode_id", how="left")
        .select(columns)
    )
    return attempts.sort("episode_id").collect().to_dicts()


def _case(ctx: Context, subject: Subject) -> Record:
    """Return a case: one of the project's own, or a state with what was done in it."""
    own = [c for c in read_cases(ctx.project, ctx.config.eval) if c.case_id == subject.id]
    record: Record = {"case_id": subject.id}
    if own:
        record |= {"file": own[0].file, **own[0].case.model_dump(mode="json", by_alias=True)}
    else:
        steps = read_table(ctx.store, "steps").filter(pl.col("state_key") == subject.id)
        outcomes = read_table(ctx.store, "returns").filter(pl.col("step").is_null())
        rows = steps.join(outcomes.select("episode_id", "p_success", "known"), on="episode_id", how="left").join(
            recorded(ctx.store), on="episode_id", how="left"
        )
        columns = ("episode_id", "index", "action", "tool_status", "p_success", "known", "outcome")
        actions = rows.sort("episode_id", "index").collect()
        if actions.height:
            record |= {
                "task_id": actions["task_id"][0],
                "actions": [_unfold(r) for r in actions.select(columns).to_dicts()],
            }
    return record


def _evaluated(ctx: Context, case: str) -> Record:
    """Return what each round's evaluation lists a case as (a win, a regression, failed), and what both sides did."""
    record: Record = {"rounds": {}}
    for report in filter(None, map(ctx.registry.report, ctx.registry.numbers())):
        failed = [one for cases in report.failed.values() for one in cases]
        lists = {"win": report.wins, "regression": report.regressions, "failed": failed}
        kinds = [name for name, cases in lists.items() if any(case in {c, c.rpartition(":")[2]} for c in cases)]
        if not kinds:
            continue
        record["rounds"][str(report.round)] = ", ".join(kinds)
        if title := report.titles.get(case):
            record["request"] = title
        if did := acts(ctx.registry, report).get(case):
            record["did"] = record.get("did", {}) | {str(report.round): did}
    return record


def _event(ctx: Context, subject: Subject) -> Record:
    """Return an event, and the steps that it is part of."""
    event = _row(ctx, "events", "event_id", subject.id)
    part = (pl.col("event_id") == subject.id) | pl.col("result_event_ids").list.contains(subject.id)
    steps = read_table(ctx.store, "steps").filter(part).sort("episode_id", "index").collect()
    among = pl.col("conversation_id") == event["conversation_id"]
    episodes = read_table(ctx.store, "episodes").filter(among).select("episode_id").sort("episode_id").collect()
    return {
        **event,
        "episodes": episodes["episode_id"].to_list(),
        "steps": [f"{e}:{i}" for e, i in steps.select("episode_id", "index").iter_rows()],
    }


def _trained(ctx: Context, subject: Subject) -> Record:
    """Return a row as the newest round that was trained on it has it, with the rounds and where it comes from."""
    rounds = rounds_of_row(ctx, subject.id)
    newest = max(rounds)
    rows = read_rows(ctx.registry.folder(newest) / DATASET)
    return {
        **next((row for row in rows if row["id"] == subject.id), {"id": subject.id}),
        "rounds": list(rounds),
        "episodes": sorted(rounds[newest].episodes),
        "users": sorted(rounds[newest].users),
    }


def _row(ctx: Context, table: str, column: str, wanted: str) -> Record:
    (row,) = _rows(ctx, table, pl.col(column) == wanted, [column])
    return row


def _rows(ctx: Context, table: str, where: pl.Expr, order: list[str]) -> list[Record]:
    rows = read_table(ctx.store, table).filter(where).sort(order).collect()
    return [_unfold(row) for row in rows.iter_rows(named=True)]


def _unfold(row: Record) -> Record:
    """Return a table row with its JSON columns parsed."""
    parsed = {k: json.loads(v) if k in _FOLDED and isinstance(v, str) else v for k, v in row.items()}
    if "completions_G" in parsed:
        parsed["completions_G"] = [json.loads(c) for c in parsed["completions_G"]]
    return parsed


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda v: v.isoformat()))
