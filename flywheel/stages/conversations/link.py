"""Which events belong together although they were recorded under different names: traces of a session, late feedback.

In: every event's names (conversation, ids, span, tool call) and targets, whatever the order in which files came. Out:
the table `links`: conversations that are part of another one, and feedback that found its target, waits for it, or
is ambiguous. Events are never changed: they are read through these links, which are rebuilt with every ingest, so that
feedback may arrive before its target.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from flywheel.contracts import polars_schema
from flywheel.funnel import Funnel
from flywheel.records import EventKind, Link
from flywheel.stages.conversations.beside import PLACE, Beside, names_of
from flywheel.stages.conversations.series import SERIES, repeated_in_series

_LATE = (EventKind.FEEDBACK.value, EventKind.OUTCOME.value)
_BARE = ("trace", "session")  # kinds whose plain id readers also use as a conversation's

Names = Mapping[str, set[str]]


class _Feedback(NamedTuple):
    event_id: str
    conversation_id: str
    target: str
    source_file: str
    task_key: str | None


def build_links(events: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Return the table `links`; counts feedback and outcomes that name a target.

    Args:
        events: event_id, conversation_id, kind, span_id, tool_call_id, ids and target of all events.
        funnel: considered = feedback and outcomes with a target; pending and ambiguous ones are dropped for now.
    """
    late = pl.col("kind").is_in(_LATE)
    aimed = events.filter(late & pl.col("target").is_not_null()).select(_Feedback._fields)
    names = _names(events.filter(~late), events["conversation_id"].unique(), aimed["target"].unique())
    there = set(events["conversation_id"].unique())
    homes, ambiguous = _homes(names, there)
    grown = [one for one in repeated_in_series(events.filter(~late)) if one.source not in homes | ambiguous]
    homes |= {one.source: (_home(one.home, homes), one.series) for one in grown}
    links: list[dict[str, Any]] = [
        {"source": source, "event_id": None, "conversation_id": home, "via": via, "state": "joined"}
        for source, (home, via) in homes.items()
    ]
    links += [_link(source, None, None, via, "ambiguous") for source, via in ambiguous.items()]
    talks = {_home(c, homes) for c in events.filter(~late)["conversation_id"].unique()}
    known = {name: {_home(c, homes) for c in conversations} for name, conversations in names.items()}
    beside = _beside(events.filter(~late), aimed, homes)
    for feedback in map(_Feedback._make, aimed.iter_rows()):
        funnel.considered += 1
        if _home(feedback.conversation_id, homes) in talks:
            funnel.kept += 1
            continue
        link = _link_of(feedback, known, talks, homes, beside)
        links.append(link)
        if link["state"] == "joined":
            funnel.kept += 1
        else:
            funnel.dropped[_WHY[link["state"]]] += 1
    copies = list(_copies(events.filter(~late)))
    links += [_link(conversation, event, None, name, "copied") for event, conversation, name in copies]
    funnel.note("replies that a resumed session repeats", len(copies))
    funnel.note("conversations joined to another", len(homes))
    funnel.note("of which a later file of the same chat holds all", len(grown))
    funnel.note("conversations that could belong to several", len(ambiguous))
    return pl.DataFrame(links, schema=polars_schema(Link))


def _copies(events: pl.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Yield the replies that shorter conversations hold too: a resumed session's file begins with those of its past."""
    replies = (
        events.filter((pl.col("kind") == EventKind.MODEL_CALL.value) & pl.col("source_format").is_in(_REPEATING))
        .select("event_id", "conversation_id", name="ids")
        .explode("name")
        .filter(pl.col("name").str.starts_with("response:"))
    )
    several = replies.group_by("name").agg(pl.col("conversation_id").n_unique()).filter(pl.col("conversation_id") > 1)
    if several.is_empty():
        return
    shared = replies.filter(pl.col("name").is_in(several["name"].implode()))
    lengths = dict(events["conversation_id"].value_counts().iter_rows())
    homes: dict[str, str] = {}
    for name, conversation in shared.select("name", "conversation_id").unique().iter_rows():
        homes[name] = min(homes.get(name, conversation), conversation, key=lambda one: (lengths[one], one))
    for event, conversation, name in shared.sort("event_id").iter_rows():
        if conversation != homes[name]:
            yield event, conversation, name


def _beside(events: pl.DataFrame, aimed: pl.DataFrame, homes: Mapping[str, tuple[str, str]]) -> Beside | None:
    """Return what finds conversations by place, where a result asks for it."""
    results = aimed.filter(pl.col("target").str.starts_with(f"{PLACE}:")).select("source_file", "target").unique()
    if results.is_empty():
        return None
    recorded = events.select("source_file", "conversation_id").unique().iter_rows()
    named = results["target"].str.slice(len(PLACE) + 1)
    wanted = pl.concat([named, aimed["task_key"].drop_nulls()]).unique()
    bare = pl.col("task_key").str.split("/").list.last()  # without the suite that readers put before it
    task = pl.when(pl.col("task_key").is_in(wanted.implode())).then("task_key").otherwise(bare)
    tasks = events.select(task, "conversation_id").filter(pl.col("task_key").is_in(wanted.implode())).unique()
    return Beside(
        ((file, _home(conversation, homes)) for file, conversation in recorded),
        results.iter_rows(),
        ((task, _home(conversation, homes)) for task, conversation in tasks.iter_rows()),
    )


_REPEATING = ("claude_code",)  # formats whose resumed sessions begin with the lines of the ones before
_WHY = {"pending": "pending, what they judge is not read yet", "ambiguous": "ambiguous, several conversations fit"}


def _link(source: str, event_id: str | None, home: str | None, via: str, state: str) -> dict[str, Any]:
    return {"source": source, "event_id": event_id, "conversation_id": home, "via": via, "state": state}


def _names(events: pl.DataFrame, there: pl.Series, targets: pl.Series) -> dict[str, set[str]]:
    """Return the conversations in which each kind:id was seen, of those that a target or a conversation is named by.

    Most are ids of calls that nothing aims at: they stay out of Python, which would need 1.5 kB an episode for them.
    """
    names = [
        events.select("conversation_id", name=pl.col("ids")).explode("name"),
        events.select("conversation_id", name="span:" + pl.col("span_id")),
        events.select("conversation_id", name="call:" + pl.col("tool_call_id")),
    ]
    conversations: dict[str, set[str]] = defaultdict(set)
    aims = pl.Series([name for target in targets for name in (target, *names_of(target))], dtype=pl.String)
    plain = pl.coalesce(pl.col("name").str.extract(rf"^(?s)(?:{'|'.join(_BARE)}):(.*)$"), "name")
    own = plain == pl.col("conversation_id")
    aimed_at = pl.col("name").is_in(aims.implode()) | pl.col("name").is_in(there.implode())
    aimed_at |= plain.is_in(there.implode()) & ~own
    for conversation, name in pl.concat(names).drop_nulls("name").unique().filter(aimed_at).iter_rows():
        conversations[name].add(conversation)
    return conversations


def _homes(names: Names, there: set[str]) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return the conversation that each other one is part of, with the id that links them; and the ambiguous ones."""
    parts: dict[str, dict[str, str]] = defaultdict(dict)
    for name in sorted(names):
        for source in _called(name, there):
            for conversation in names[name] - {source}:
                parts[source].setdefault(conversation, name)
    for source, fits in parts.items():
        parts[source] = {name: fits[name] for name in _outermost({*fits, source}) - {source}}
    homes: dict[str, tuple[str, str]] = {}
    ambiguous: dict[str, str] = {}
    for source, fits in sorted(parts.items()):
        ends = {_end(conversation, parts) for conversation in fits} - {source}
        via = min(fits.values(), default="")
        if len(ends) > 1:
            ambiguous[source] = via
        elif ends:
            homes[source] = (ends.pop(), via)
    return homes, ambiguous


def _outermost(conversations: set[str]) -> set[str]:
    """Return the conversations that lie in none of the others: the id of a run does not mean an agent within it."""
    return {name for name in conversations if conversations.isdisjoint(_around(name))}


def _around(conversation: str) -> Iterator[str]:
    """Yield the ids that a conversation's id goes on from: `RUN` and `RUN/helper` of `RUN/helper/1`."""
    end = conversation.rfind("/")
    while end > 0:
        yield conversation[:end]
        end = conversation.rfind("/", 0, end)


def _called(name: str, there: Container[str]) -> Iterator[str]:
    """Yield the conversations that are named by an id: as it is, or by its plain part."""
    kind, _, plain = name.partition(":")
    if name in there:
        yield name
    if kind in _BARE and plain in there:
        yield plain


def _end(conversation: str, parts: Mapping[str, Mapping[str, str]]) -> str:
    """Follow a chain of conversations to its end; a circle ends at its smallest member."""
    seen = [conversation]
    while len(parts.get(seen[-1], ())) == 1:
        following = next(iter(parts[seen[-1]]))
        if following in seen:
            return min(seen[seen.index(following) :])
        seen.append(following)
    return seen[-1]


def _home(conversation: str, homes: Mapping[str, tuple[str, str]]) -> str:
    return homes[conversation][0] if conversation in homes else conversation


def _link_of(
    feedback: _Feedback, known: Names, talks: set[str], homes: Mapping[str, tuple[str, str]], beside: Beside | None
) -> dict[str, Any]:
    by_place = beside is not None and feedback.target.startswith(f"{PLACE}:")
    targets = names_of(feedback.target) if by_place else [feedback.target]
    fits = {
        known_home
        for target in targets
        for name in (*_called(target, talks), *_called(target, homes))
        if (known_home := _home(name, homes)) in talks
    }.union(*(known.get(target, ()) for target in targets))
    if by_place and not fits and beside is not None:
        fits = beside.conversations(feedback.source_file, feedback.target, feedback.task_key)
    fits = _outermost(fits)
    state = "pending" if not fits else "joined" if len(fits) == 1 else "ambiguous"
    home = next(iter(fits)) if state == "joined" else None
    return _link(feedback.conversation_id, feedback.event_id, home, feedback.target, state)


def follow_links(events: pl.LazyFrame, links: pl.DataFrame) -> pl.LazyFrame:
    """Return events with each one's `conversation_id` where it belongs; without links, the events as they are."""
    joined = links.filter(pl.col("state") == "joined")
    if joined.is_empty():
        return events
    single = joined.filter(pl.col("event_id").is_not_null()).select("event_id", _by_event="conversation_id")
    by_source = joined.filter(pl.col("event_id").is_null()).select(
        conversation_id="source", _by_source="conversation_id"
    )
    return (
        events.join(single.lazy(), on="event_id", how="left", maintain_order="left")
        .join(by_source.lazy(), on="conversation_id", how="left", maintain_order="left")
        .with_columns(conversation_id=pl.coalesce("_by_event", "_by_source", "conversation_id"))
        .drop("_by_event", "_by_source")
    )


def whole_series(events: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return events with the files in which a chat was written again as it grew as one conversation."""
    return follow_links(events.lazy(), links.filter(pl.col("via").str.starts_with(SERIES))).collect()


def told_once(events: pl.LazyFrame) -> pl.LazyFrame:
    """Return events where they belong, each result once: the file of a run lists results that its trials have too."""
    same = ("conversation_id", "kind", "target", "payload")
    again = pl.col("event_id") != pl.col("event_id").min().over(*same)
    return events.filter(~(pl.col("target").str.starts_with(f"{PLACE}:").fill_null(value=False) & again))
