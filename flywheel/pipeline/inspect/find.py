"""What an id means: any id that a command prints, or its first digits, for `show`, `explain` and `view`.

In: what a user typed. Out: the one object that it names. An object is an episode, a step of it (EPISODE:STEP), a row to
train on, a task (by its id or by the log's own name for it), a case of an evaluation, an event, or a row that a round
was trained on and that today's tables no longer hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from flywheel.errors import UsageError
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.train.provenance import ORIGINS, Origin, read_origins
from flywheel.records import TRAINED_TABLES
from flywheel.stages.evaluate.suites.own_cases import read_cases

LEAST_ID = 6
_SHOWN_ID = 12
_MOST_CANDIDATES = 8
TRAINED_KINDS = {table.singular: name for name, table in TRAINED_TABLES.items()}  # what `show` calls a row → its table
TRAINED_ROW = "row"  # of a round, in no table: its label has changed since, or it is an attempt of the champion's
_ROUND = re.compile(r"(?:round[ -]?)?(\d+)")
_STEP = re.compile(r"(.+)[:/#](\d+)")
_HINT = (
    f"a round's number or alias; at least {LEAST_ID} digits of the id of an episode, pair, example, group, task, case "
    "or event, or of a row that a round was trained on; EPISODE:STEP; or the log's own name of a task"
)


class Subject(NamedTuple):
    """An object of the store: what it is and its whole id; of a step, its episode's id and its place."""

    kind: str
    id: str
    step: int | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.id[:_SHOWN_ID]}"


def round_named(ctx: Context, wanted: str) -> int | None:
    """Return the round that is meant; None where it is not a round's name.

    Raises:
        UsageError: it is an alias of no round, or of the base model, or a number of no round and no id's beginning.
    """
    text = wanted.strip().lower()
    match = _ROUND.fullmatch(text)
    if match is not None and len(match[1]) >= LEAST_ID and int(match[1]) not in ctx.registry.numbers():
        return None  # the digits of an id
    if match is None and not text.startswith("@") and text != "latest":
        return None
    number = ctx.registry.resolve(str(int(match[1])) if match is not None else text)
    if number is None:
        raise UsageError(f"`{wanted}` is the base model, which is not a round", hint="flywheel log")
    return number


def find(ctx: Context, wanted: str) -> Subject:
    """Return the object that an id, its first digits or a name means.

    Raises:
        UsageError: nothing has that name, or several objects do; then it lists them.
    """
    if match := _STEP.fullmatch(wanted):
        episodes = [s for s in _matching(ctx, match[1], ("episode",)) if s.kind == "episode"]
        if len(episodes) == 1:
            return _step(ctx, episodes[0].id, int(match[2]))
    first = ("episode", *TRAINED_KINDS, "task")  # before cases: a state's id begins as its task's
    for group in (first, ("case",), ("event",), (TRAINED_ROW,)):
        subjects = list(dict.fromkeys(_matching(ctx, wanted, group)))
        exact = [s for s in subjects if s.id == wanted]
        chosen = exact[:1] or _one_a_kind(subjects)
        if len(chosen) == 1:
            return chosen[0]
        if chosen:
            more = f" and {len(chosen) - _MOST_CANDIDATES:,} more" if len(chosen) > _MOST_CANDIDATES else ""
            names = ", ".join(f"{s.kind} {s.id}" for s in chosen[:_MOST_CANDIDATES])
            raise UsageError(
                f"`{wanted}` is ambiguous: {len(chosen):,} ids begin so", hint=f"type more digits: {names}{more}"
            )
    if any(case.case_id == wanted for case in read_cases(ctx.project, ctx.config.eval)):
        return Subject("case", wanted)
    if ":" in wanted:  # a case as an evaluation lists it: METRIC:CASE
        return find(ctx, wanted.rpartition(":")[2])
    raise UsageError(f"there is no object `{wanted}`", hint=_HINT)


def episode_of(ctx: Context, wanted: str) -> str:
    """Return the episode that an object is, or comes from.

    Raises:
        UsageError: nothing has that name, or it comes from no episode.
    """
    subject = find(ctx, wanted)
    if subject.kind in {"episode", "step"}:
        return subject.id
    episodes = _episodes_of(ctx, subject)
    if not episodes:
        raise UsageError(f"the {subject} comes from no episode of the logs", hint=f"flywheel show {wanted}")
    return episodes[0]


def _episodes_of(ctx: Context, subject: Subject) -> list[str]:
    """Return the episodes behind an object, in order; of a pair the chosen side's first."""
    if subject.kind == "event":
        conversations = read_table(ctx.store, "events").filter(pl.col("event_id") == subject.id)
        rows = read_table(ctx.store, "episodes").join(conversations, on="conversation_id", how="semi")
    elif subject.kind == "task":
        rows = read_table(ctx.store, "episodes").filter(pl.col("task_id") == subject.id)
    elif subject.kind == TRAINED_ROW:
        return sorted({e for origin in rounds_of_row(ctx, subject.id).values() for e in origin.episodes})
    elif subject.kind == "case":
        rows = read_table(ctx.store, "steps").filter(pl.col("state_key") == subject.id)
    else:
        table = TRAINED_TABLES[TRAINED_KINDS[subject.kind]]
        row = read_table(ctx.store, table.name).filter(pl.col(table.key) == subject.id).collect().row(0, named=True)
        episodes = row[table.episodes[0]]
        return [episodes] if isinstance(episodes, str) else list(episodes)
    return rows.select(pl.col("episode_id").unique().sort()).collect()["episode_id"].to_list()


def rounds_of_row(ctx: Context, row: str) -> dict[int, Origin]:
    """Return the rounds that were trained on a row, oldest first, each with where the row comes from."""
    found = {n: read_origins(ctx.registry.folder(n) / ORIGINS).get(row) for n in sorted(ctx.registry.numbers())}
    return {number: origin for number, origin in found.items() if origin is not None}


def _matching(ctx: Context, wanted: str, kinds: tuple[str, ...]) -> Iterator[Subject]:
    """Yield the objects of these kinds whose id begins so, and those with that name."""
    columns = {
        "episode": ("episodes", "episode_id"),
        **{kind: (name, TRAINED_TABLES[name].key) for kind, name in TRAINED_KINDS.items()},
        "task": ("episodes", "task_id"),
        "case": ("steps", "state_key"),
        "event": ("events", "event_id"),
    }
    for kind in kinds:
        if kind == TRAINED_ROW and len(wanted) >= LEAST_ID:
            origins = (read_origins(ctx.registry.folder(number) / ORIGINS) for number in ctx.registry.numbers())
            yield from (Subject(kind, row) for rows in origins for row in sorted(rows) if row.startswith(wanted))
        elif len(wanted) >= LEAST_ID:
            table, column = columns[kind]
            ids = read_table(ctx.store, table).filter(pl.col(column).str.starts_with(wanted))
            yield from (Subject(kind, i) for i in ids.select(pl.col(column).unique().sort()).collect()[column])
        if kind == "task":
            yield from (Subject("task", task) for task in _tasks_named(ctx, wanted))
        if kind == "case" and len(wanted) >= LEAST_ID:  # an evaluator's own are in no table
            reports = filter(None, map(ctx.registry.report, ctx.registry.numbers()))
            listed = {case for report in reports for case in (*report.wins, *report.regressions)}
            yield from (Subject("case", case) for case in sorted(listed) if case.startswith(wanted))


def _tasks_named(ctx: Context, name: str) -> list[str]:
    """Return the tasks that the log calls so; and the cluster or the request that is part of a task."""
    named = read_table(ctx.store, "events").filter(pl.col("task_key") == name).select("conversation_id")
    rows = read_table(ctx.store, "episodes").join(named, on="conversation_id", how="semi")
    tasks: list[str] = rows.select(pl.col("task_id").unique().sort()).collect()["task_id"].to_list()
    if tasks or len(name) < LEAST_ID or ctx.store.current("tasks") is None:
        return tasks
    other = pl.any_horizontal(pl.col(column).str.starts_with(name) for column in ("cluster_id", "request_id"))
    parts = read_table(ctx.store, "tasks").filter(other | pl.col("formerly").list.contains(name))
    return parts.select(pl.col("task_id").unique().sort()).collect()["task_id"].to_list()


def _one_a_kind(subjects: list[Subject]) -> list[Subject]:
    """Return the subjects, each id once: a case may be the pair or the task that it is made of."""
    by_id: dict[str, Subject] = {}
    for subject in subjects:
        by_id.setdefault(subject.id, subject)
    return list(by_id.values())


def _step(ctx: Context, episode: str, index: int) -> Subject:
    steps = read_table(ctx.store, "steps").filter(pl.col("episode_id") == episode).select(pl.len()).collect().item()
    if index >= steps:
        raise UsageError(
            f"episode `{episode[:_SHOWN_ID]}` has no step {index}", hint=f"it has {steps:,}, counted from 0"
        )
    return Subject("step", episode, index)
