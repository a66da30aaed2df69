"""Which policy acted where no log names one: by its model, and by the run, file or folder that distinguishes runs.

In: conversations with model, task and source file. Out: the table `policies`: a name for each file and model, and its
reason. A name that a log or `--policy` gives comes first and is not looked at here. Else:

- the model, or agent and model, with the settings that tell its runs apart, where files next to the logs state any;
- the same without settings; where files or folders of one repeat the same tasks under different names (settings of
  one model), the model with that name;
- without a model the name by which the files or folders differ; where they differ by a number alone, only if they
  repeat the same tasks.

Dates, times, hashes, counters of parts and words such as `results` do not name anything: a log that is rotated daily is
one policy. Nor does a file that holds one conversation: its folder is looked at instead.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from flywheel.contracts import polars_schema
from flywheel.records import SETTINGS, PolicyName
from flywheel.stages.conversations.beside import PLACE, settings_by_file

COLUMNS = ("conversation_id", "kind", "model", "policy", "task_key", "source_file")
UNKNOWN = "unknown"
_ACTS = ("model_call", "tool_call")
_LATER = ("feedback", "outcome")
_MOST_PLACES = 64  # more are users, tenants or tasks
_SEVERAL = 2  # conversations a place, on average
_SHARED, _LEAST_SHARED = 0.5, 2  # of the smaller one's tasks, for two places to repeat the same ones
_SUFFIX = re.compile(
    r"(?:\.(?:gz|zst|zip|tar|tgz|jsonl?|ndjson|log|parquet|traj|eval|txt|out|csv)(?:\.\d{1,4})?)+\Z", re.IGNORECASE
)
_ARCHIVE = re.compile(r"\.(?:eval|zip|tar|tgz)(?:\.(?:gz|zst))?\Z", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_TIME = re.compile(
    r"(?<!\d)(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2])[-_.]?(?:[0-2]\d|3[01])"
    r"(?:[-_.T ]{0,2}[0-2]\d(?:[-_.:h]?[0-5]\d){0,2}(?:[.,]\d{1,9})?"
    r"(?:Z|[+-][01]\d[-:]?[0-5]\d)?)?(?!\d)"
)
_EPOCH = re.compile(r"(?<!\d)1\d{9}(?:\d{3}|\d{6})?(?!\d)")
_HASH = re.compile(r"(?<![0-9A-Za-z])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}(?![0-9A-Za-z])")
_ID = re.compile(  # a ULID, or a random one of letters in both cases and digits: a shortuuid, a nanoid
    r"(?<![0-9A-Za-z])(?:[0-7][0-9A-HJKMNP-TV-Z]{25}"
    r"|(?=[0-9A-Za-z]*[a-z])(?=[0-9A-Za-z]*[A-Z])(?=[0-9A-Za-z]*\d)"
    r"(?!(?:[A-Z]?[a-z]{2,}|\d+[A-Z]?|[A-Z]{2,})+(?![0-9A-Za-z]))[0-9A-Za-z]{20,24})(?![0-9A-Za-z])"  # no words
)
_PART = re.compile(
    r"(?<![A-Za-z])(?:part|shard|chunk|rank|worker|page|batch|split|segment)s?[-_.]?\d+(?:[-_.]?of[-_.]?\d+)?(?![A-Za-z])",
    re.IGNORECASE,
)
_REPEAT = re.compile(
    r"(?<![A-Za-z])(?:(?:run|trial|seed|rep|repeat|attempt|rollout|iter|sample|epoch|ep)s?[-_.]?\d+|rerun[-_.]?\d*)"
    r"(?![A-Za-z])",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\A\W*\d*\W*\Z")
_GENERIC = {
    "", "log", "logs", "result", "results", "output", "outputs", "run", "runs", "eval", "evals", "trace", "traces",
    "trajectory", "trajectories", "traj", "trajs", "data", "message", "messages", "conversation", "conversations",
    "transcript", "transcripts", "session", "sessions", "event", "events", "rollouts", "all",
}  # fmt: skip

Parts = tuple[str, ...]


class _Place(NamedTuple):
    """A file's path in parts, with its conversations and tasks."""

    file: str
    parts: Parts
    conversations: set[str]
    tasks: set[str]


def acts(events: pl.DataFrame) -> pl.DataFrame:
    """Return who acted where, one row a conversation, model, policy, task and file; and what files next to logs state.

    Rows with `acts` false are other events that name a model or a policy, as some logs do once a turn; see `acting_of`.

    Args:
        events: `COLUMNS` of the events, or what this function returned.
    """
    if "acts" in events.columns:
        return events
    states = pl.col("policy").str.starts_with(SETTINGS) & pl.col("conversation_id").str.contains(f"{PLACE}:")
    is_act = pl.col("kind").is_in(_ACTS) | states.fill_null(value=False)
    names = ~pl.col("kind").is_in(_LATER) & (pl.col("model").is_not_null() | pl.col("policy").is_not_null())
    rows = events.with_columns(acts=is_act).filter(is_act | names)
    places = [name for name in COLUMNS if name != "kind"]
    return rows.group_by(*places, "acts").agg(n=pl.len()).sort(*places, "acts")


def acting_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the acts, those without a model or policy with the commonest of their conversation's other events.

    Args:
        rows: from `acts`, of one or of several batches.
    """
    acting, told = rows.filter("acts").drop("acts", "n").unique(), rows.filter(~pl.col("acts"))
    for name in ("model", "policy") if told.height else ():
        own = acting.group_by("conversation_id").agg(pl.col(name).is_not_null().any().alias("known"))
        named = (
            told.filter(pl.col(name).is_not_null())
            .join(own.filter(~pl.col("known")), on="conversation_id", how="semi")
            .group_by("conversation_id", pl.col(name).alias("told"))
            .agg(pl.col("n").sum())
            .sort("n", "told", descending=[True, False])
            .unique("conversation_id", keep="first", maintain_order=True)
        )
        acting = acting.join(named.select("conversation_id", "told"), on="conversation_id", how="left")
        acting = acting.with_columns(pl.coalesce(name, "told").alias(name)).drop("told")
    return acting.unique().sort("conversation_id", "source_file", "model", "policy", "task_key")


def build_policies(who: pl.DataFrame) -> pl.DataFrame:
    """Return the table `policies`.

    Args:
        who: from `acts`.
    """
    acting, settings = _without_settings(acting_of(who))
    by_actor: dict[str, dict[str, _Place]] = defaultdict(dict)
    composed = set[str]()
    for conversation, model, policy, task, file in acting.select(
        "conversation_id", "model", "policy", "task_key", "source_file"
    ).iter_rows():
        actor = actor_of(policy, model)
        if actor is None:
            continue
        if policy and policy != model:
            composed.add(policy)
        places = by_actor[actor]
        place = places.setdefault(file, _Place(file, _parts(file), set(), set()))
        place.conversations.add(conversation)
        if task:
            place.tasks.add(task)
    rows = []
    for actor, places in sorted(by_actor.items()):
        named = _by_settings(places, settings, has_model=bool(actor))
        named = named or _named(list(places.values()), has_model=bool(actor))
        otherwise = "log" if actor in composed else "model" if actor else "none"
        for file, place in sorted(places.items()):
            name, rule = named.get(file, ("", ""))
            policy = "/".join(part for part in (actor, name) if part) or UNKNOWN
            rows.append((file, actor, policy, rule if name else otherwise, len(place.conversations)))
    return pl.DataFrame(rows, schema=polars_schema(PolicyName), orient="row")


def _without_settings(acting: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, dict[str, str]]]:
    """Return what acted, and by file the settings that results next to it state."""
    stated = pl.col("policy").str.starts_with(SETTINGS).fill_null(value=False)
    rows: dict[tuple[str, str], str] = {}
    for conversation, model, policy, file in (
        acting.filter(stated).select("conversation_id", "model", "policy", "source_file").iter_rows()
    ):
        model_too = f"model={model} " if model and " " not in model else ""
        rows[file, PLACE + conversation.rpartition(PLACE)[2]] = model_too + policy.removeprefix(SETTINGS)
    acting = acting.filter(~stated)
    places = acting.select("source_file", "conversation_id").unique().sort(pl.all()).iter_rows() if rows else ()
    return acting, settings_by_file(rows, places) if rows else {}


def _by_settings(
    places: Mapping[str, _Place], settings: Mapping[str, Mapping[str, str]], *, has_model: bool
) -> dict[str, tuple[str, str]]:
    """Return for each file with settings those that differ, if they distinguish runs; a known model is none of them."""
    known = {file: settings[file] for file in places if file in settings}
    keys = sorted({key for values in known.values() for key in values if key != "model" or not has_model})
    differing = [key for key in keys if len({values.get(key) for values in known.values()}) > 1]
    if not has_model and "model" in keys:
        differing = list(dict.fromkeys(["model", *differing]))
    names = {
        file: "/".join(values[key] if key == "model" else f"{key}={values[key]}" for key in differing if key in values)
        for file, values in known.items()
    }
    if not differing or len(set(names.values())) > _MOST_PLACES:
        return {}
    return {file: (name, "settings") for file, name in names.items() if name}


def actor_of(policy: str | None, model: str | None) -> str | None:
    """Return whose settings are distinguished: the model, or agent and model, '' for neither; None: a name of its own.

    A reader that knows the agent writes AGENT/MODEL: that names both, but not a setting.
    """
    if policy is None:
        return model or ""
    return policy if model is not None and (policy == model or policy.endswith(f"/{model}")) else None


def _parts(file: str) -> Parts:
    *folders, name = file.replace("!/", "/").split("/")
    named = (_ARCHIVE.sub("", part) for part in folders if part not in {"", ".", ".."})
    return (*filter(None, named), _SUFFIX.sub("", name) or name)


def _named(places: Sequence[_Place], *, has_model: bool) -> dict[str, tuple[str, str]]:
    """Return for each file the name that distinguishes its run and whether it is the file's or a folder's; {}: none."""
    level = 0
    units = {place.file: place.parts for place in places}
    while any(units.values()) and _too_many(units, places):
        level += 1
        units = {file: parts[:-1] for file, parts in units.items()}
    for kept in ("names",) if has_model else ("names", "names and runs", "everything"):
        names = {file: _cleaned(parts, kept) for file, parts in units.items()}
        needs_proof = has_model or kept == "everything"
        if len(set(names.values())) < 2 or (needs_proof and not _repeated(names, places)):  # noqa: PLR2004
            continue
        names = dict(_needed(names, places))
        short = _differing(set(names.values()))
        own = {file: not level and short[name][-1:] == _cleaned(units[file][-1:], kept) for file, name in names.items()}
        return {file: ("/".join(short[name]), "file" if own[file] else "folder") for file, name in names.items()}
    return {}


def _too_many(units: Mapping[str, Parts], places: Iterable[_Place]) -> bool:
    """Whether these are something other than runs: one conversation each, or very many."""
    held: dict[Parts, set[str]] = defaultdict(set)
    for place in places:
        held[units[place.file]] |= place.conversations
    return sum(map(len, held.values())) < _SEVERAL * len(held) or len(held) > _MOST_PLACES


def _cleaned(parts: Parts, kept: str) -> Parts:
    """Return a path without what names nothing; kept: "names", "names and runs" (with numbers), or "everything"."""
    if kept == "everything":
        return parts
    return tuple(clean for part in parts if (clean := _clean(part, repeats=kept != "names")))


def _clean(part: str, *, repeats: bool) -> str:
    for pattern in (_UUID, _ID, _TIME, _EPOCH, _HASH, _PART, *(() if repeats else (_REPEAT,))):
        part = pattern.sub("\0", part)
    part = re.sub(r"[-_.\s]*\0[-_.\s\0]*", "-", part).strip("-_. ")
    return "" if part.lower() in _GENERIC or _NUMBER.match(part) else part


def _repeated(names: Mapping[str, Parts], places: Iterable[_Place]) -> bool:
    """Whether most of the names have tasks in common with another one."""
    tasks: dict[Parts, set[str]] = defaultdict(set)
    for place in places:
        tasks[names[place.file]] |= place.tasks
    repeating = sum(
        any(_share_tasks(own, other) for name, other in tasks.items() if name != mine) for mine, own in tasks.items()
    )
    return 2 * repeating > len(tasks)


def _needed(names: Mapping[str, Parts], places: Sequence[_Place]) -> Mapping[str, Parts]:
    """Return the names without the parts that only part a run's tasks: its files of several suites are one policy's."""
    length = len(next(iter(names.values())))
    if any(len(name) != length for name in names.values()) or not all(place.tasks for place in places):
        return names
    for position in reversed(range(length)):
        shorter = {file: (*name[:position], *name[position + 1 :]) for file, name in names.items()}
        held: dict[Parts, list[set[str]]] = defaultdict(list)
        for place in places:
            held[shorter[place.file]].append(place.tasks)
        is_apart = all(sum(map(len, tasks)) == len(set().union(*tasks)) for tasks in held.values())
        if is_apart and len(held) > 1 and _repeated(shorter, places):
            names = shorter
    return names


def _share_tasks(one: set[str], other: set[str]) -> bool:
    common = len(one & other)
    return common >= _LEAST_SHARED and common >= _SHARED * min(len(one), len(other))


def _differing(names: set[Parts]) -> dict[Parts, Parts]:
    """Return each name without the parts with which all begin, and those with which all end."""
    first, last = min(names), max(names)
    begin = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    ends = [name[begin:][::-1] for name in names]
    shortest = min(ends, key=len)
    end = next((n for n, part in enumerate(shortest) if any(one[n] != part for one in ends)), len(shortest))
    return {name: name[begin : len(name) - end] or name[-1:] for name in names}
