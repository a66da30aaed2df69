"""`flywheel show`: a round, or an episode, pair, example or group by the first digits of its id."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from flywheel.errors import UsageError
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.inspect.preview import preview
from flywheel.records import TRAINED_TABLES
from flywheel.results.inspect import ShowAnswer

_KEYS = {"episodes": "episode_id"} | {name: TRAINED_TABLES[name].key for name in ("pairs", "examples", "groups")}
_LEAST_ID = 6


def _unfold(row: dict[str, Any]) -> dict[str, Any]:
    """Return a table row with its JSON columns parsed."""
    folded = {"observation", "action", "tail", "tools", "prompt", "chosen", "rejected", "completion"}
    parsed = {k: json.loads(v) if k in folded and isinstance(v, str) else v for k, v in row.items()}
    if "completions_G" in parsed:
        parsed["completions_G"] = [json.loads(c) for c in parsed["completions_G"]]
    return parsed


def _find(ctx: Context, table: str, wanted: str) -> pl.DataFrame:
    column = _KEYS[table]
    return read_table(ctx.store, table).filter(pl.col(column).str.starts_with(wanted)).sort(column).collect()


def _rows_of(ctx: Context, table: str, episode_id: str, order: list[str]) -> list[dict[str, Any]]:
    lazy = read_table(ctx.store, table).filter(pl.col("episode_id") == episode_id)
    return [_unfold(r) for r in lazy.sort(order).collect().iter_rows(named=True)]


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda v: v.isoformat()))


def show(ctx: Context, subject: str) -> ShowAnswer:
    """Return a round, or an episode, pair, example or group by the first digits of its id.

    Raises:
        UsageError: no object, or more than one, has that name.
    """
    if subject.isdigit() or subject.startswith("@") or subject == "latest":
        number = ctx.registry.resolve(subject)
        if number is None:
            raise UsageError(f"`{subject}` is the base model, which is not a round", hint="flywheel log")
        record = ctx.registry.manifest(number).model_dump(mode="json")
        record["aliases"] = [a for a, at in ctx.registry.aliases().items() if at == number]
        return ShowAnswer(kind="round", record=record)
    table, row = _lookup(ctx, subject)
    record = _unfold(row)
    if table == "episodes":
        record["steps"] = _rows_of(ctx, "steps", row["episode_id"], ["index"])
        record["rewards"] = _rows_of(ctx, "rewards", row["episode_id"], ["step", "signal"])
        record["returns"] = _rows_of(ctx, "returns", row["episode_id"], ["step"])
        return ShowAnswer(kind="episode", record=_plain(record))
    sides, how = preview(ctx, TRAINED_TABLES[table], record)
    return ShowAnswer(kind=TRAINED_TABLES[table].singular, record=_plain(record), preview=sides, rendering=how)


def episode_id(ctx: Context, wanted: str) -> str:
    """Return the id of the episode whose id begins so.

    Raises:
        UsageError: no episode has that id, or more than one.
    """
    episodes = _find(ctx, "episodes", wanted) if len(wanted) >= _LEAST_ID else None
    if episodes is None or episodes.is_empty():
        raise UsageError(
            f"there is no episode `{wanted}`",
            hint=f"a round's number or alias, or at least {_LEAST_ID} digits of an episode's id",
        )
    if episodes.height > 1:
        raise UsageError(f"{episodes.height} episodes have an id with `{wanted}`", hint="type more digits of the id")
    return str(episodes["episode_id"][0])


def _lookup(ctx: Context, wanted: str) -> tuple[str, dict[str, Any]]:
    if len(wanted) >= _LEAST_ID:
        for table in _KEYS:
            rows = _find(ctx, table, wanted)
            if rows.height > 1:
                raise UsageError(f"{rows.height} {table} have an id with `{wanted}`", hint="type more digits of the id")
            if rows.height == 1:
                return table, rows.row(0, named=True)
    raise UsageError(
        f"there is no object `{wanted}`",
        hint=f"a round's number or alias, or at least {_LEAST_ID} digits of an episode, pair, example or group id",
    )
