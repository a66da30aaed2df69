"""Find a user's data in a project: conversations, single feedback events, table rows, rows of round datasets.

In: a pseudonym and the project. Out: `Belongings`, as ids and counts; the project is not changed.

A conversation is the user's where the user is a speaker, or where no speaker is named and the user gave most of the
feedback. All its events are found, from any user. In other users' conversations only the user's own feedback is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from flywheel.contracts import polars_schema
from flywheel.funnel import Funnel
from flywheel.io.files import read_rows
from flywheel.pipeline.build.registry import LINK_COLUMNS as LINKED
from flywheel.pipeline.build.registry import STAGES
from flywheel.pipeline.context import Context
from flywheel.pipeline.train.provenance import ORIGINS, from_snapshots, read_origins
from flywheel.records import TRAINED_TABLES, Split, content_id
from flywheel.records.methods import TrainedTable
from flywheel.registry.registry import DATASET
from flywheel.stages.conversations.link import build_links, follow_links
from flywheel.stages.ingest.forgotten import LATE

_OF_EPISODES = ("episodes", "steps", "tasks", "opinions", "corrections", "crowds", "rewards", "labels", "returns")


@dataclass(frozen=True)
class Belongings:
    """A user's data; JSON-ready, so that an interrupted `forget` can resume with it."""

    user: str
    conversations: list[str] = field(default_factory=list)  # as recorded
    events: list[str] = field(default_factory=list)  # the user's feedback on other users' conversations
    names: list[str] = field(default_factory=list)  # kind:id with which late feedback refers to these conversations
    episodes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  # rows by table
    rounds: dict[str, list[str]] = field(default_factory=dict)  # round → ids of its rows to remove
    unknown: dict[str, int] = field(default_factory=dict)  # round → number of these rows whose owner is unknown
    holdout_share: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return asdict(self)


def belongings(ctx: Context, user: str) -> Belongings:
    """Return the user's data; empty without any event."""
    events = _homed(ctx)
    theirs = _conversations(events, user)
    inside = pl.col("home").is_in(theirs)
    events_to_delete = events.filter(inside | (pl.col("user") == user) | pl.col("event_id").is_in(_reviews(ctx, user)))
    if events_to_delete.is_empty():
        return Belongings(user)
    conversations = sorted({*theirs, *events_to_delete.filter(inside & ~pl.col("single"))["conversation_id"]})
    single = events_to_delete.filter(~pl.col("conversation_id").is_in(conversations)).unique("event_id")
    episodes = sorted(content_id("episode", conversation) for conversation in theirs)
    rounds, unknown = _rounds(ctx, user, set(episodes))
    return Belongings(
        user,
        conversations=conversations,
        events=sorted(single["event_id"]),
        names=_names(events, inside),
        episodes=episodes,
        counts={"conversations": len(theirs), "events": events_to_delete.height} | _counts(ctx, user, episodes),
        rounds=rounds,
        unknown=unknown,
        holdout_share=_holdout_share(ctx, episodes),
    )


def _homed(ctx: Context) -> pl.DataFrame:
    """Return every event's names with its `home`, the conversation it belongs to, and `single` for joined events."""
    table = ctx.store.table("events", "ingest")
    links = build_links(table.select(LINKED).collect(), Funnel())
    alone = links.filter(pl.col("state") == "joined")["event_id"].drop_nulls()
    columns = ("event_id", "conversation_id", "kind", "user", "ids", "span_id", "tool_call_id")
    events = table.select(*columns, recorded="conversation_id")
    return (
        follow_links(events, links)
        .rename({"conversation_id": "home"})
        .rename({"recorded": "conversation_id"})
        .with_columns(single=pl.col("event_id").is_in(alone.implode()))
        .collect()
    )


def _conversations(events: pl.DataFrame, user: str) -> list[str]:
    """Return the conversations that are the user's."""
    named = events.filter(pl.col("user").is_not_null()).with_columns(late=pl.col("kind").is_in(LATE))
    spoken = named.filter(~pl.col("late"))
    theirs = set(spoken.filter(pl.col("user") == user)["home"])
    silent = named.filter(~pl.col("home").is_in(spoken["home"].unique().implode()))
    most = silent.group_by("home", "user").len().sort("home", "len", "user", descending=[False, True, False])
    first = most.unique("home", keep="first", maintain_order=True)
    return sorted(theirs | set(first.filter(pl.col("user") == user)["home"]))


def _reviews(ctx: Context, user: str) -> list[str]:
    """Return the user's own audit answers, whose payload has the reviewer."""
    theirs = (pl.col("kind") == "feedback") & pl.col("payload").str.contains(f'"reviewer":"{user}"', literal=True)
    answers = ctx.store.table("events", "ingest").filter(theirs).select("event_id").collect()
    return sorted(answers["event_id"])


def _names(events: pl.DataFrame, inside: pl.Expr) -> list[str]:
    """Return the names that refer to the user's conversations only."""
    spoken = events.filter(~pl.col("kind").is_in(LATE)).with_columns(mine=inside)
    names = [
        spoken.select("mine", name=pl.col("ids")).explode("name"),
        spoken.select("mine", name="span:" + pl.col("span_id")),
        spoken.select("mine", name="call:" + pl.col("tool_call_id")),
    ]
    owned = pl.concat(names).drop_nulls("name").group_by("name").agg(pl.col("mine").all())
    return sorted(owned.filter("mine")["name"])


def _counts(ctx: Context, user: str, episodes: list[str]) -> dict[str, int]:
    """Return the number of the user's rows in each derived table."""
    of = {name: pl.col("episode_id").is_in(episodes) for name in _OF_EPISODES}
    of |= {name: _rests_on(table, episodes) for name, table in TRAINED_TABLES.items()}
    of["pairs"] |= pl.col("users").list.contains(user)
    of["reliability"] = (pl.col("kind") == "user") & (pl.col("name") == user)
    stage = {table: s.name for s in STAGES for table in s.makes}
    return {
        table: int(ctx.store.table(table, stage[table]).filter(mine).select(pl.len()).collect().item())
        for table, mine in sorted(of.items())
    }


def _rests_on(table: TrainedTable, episodes: list[str]) -> pl.Expr:
    """Return whether any of these episodes is behind a row."""
    types = polars_schema(table.record)
    return pl.any_horizontal(
        pl.col(c).list.eval(pl.element().is_in(episodes)).list.any()
        if isinstance(types[c], pl.List)
        else pl.col(c).is_in(episodes)
        for c in table.episodes
    )


def _holdout_share(ctx: Context, episodes: list[str]) -> float:
    held = ctx.store.table("tasks", "tasks").filter(pl.col("split") == Split.HOLDOUT.value).select("episode_id")
    ids = held.collect()["episode_id"]
    return round(float(ids.is_in(episodes).sum()) / len(ids), 6) if len(ids) else 0.0


def row_ids(path: Path) -> Iterator[str]:
    """Yield the ids of a dataset's rows."""
    yield from (row["id"] for row in read_rows(path, optional=True))


def _rounds(ctx: Context, user: str, episodes: set[str]) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Return each round's rows to remove: the user's and those of unknown owner, with the number of the latter."""
    rows: dict[str, list[str]] = {}
    unknown: dict[str, int] = {}
    for number in ctx.registry.numbers():
        folder = ctx.registry.folder(number)
        ids = list(row_ids(folder / DATASET))
        origins = read_origins(folder / ORIGINS)
        origins |= from_snapshots(ctx.store, (i for i in ids if i not in origins))
        ownerless = [i for i in ids if i not in origins]
        theirs = [i for i in ids if i in origins and _of(origins[i], user, episodes)]
        if theirs or ownerless:
            rows[str(number)] = [*theirs, *ownerless]
        if ownerless:
            unknown[str(number)] = len(ownerless)
    return rows, unknown


def _of(origin: Iterable[frozenset[str]], user: str, episodes: set[str]) -> bool:
    behind, users = origin
    return user in users or not episodes.isdisjoint(behind)
