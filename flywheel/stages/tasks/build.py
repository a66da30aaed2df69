"""Which attempts are attempts at one task, and which side of the holdout each lies on.

In: some columns of all episodes, and the clusters of the last build. Out: the table `tasks`, a row an episode; other
stages read episodes, steps and opinions through it (`follow_tasks`), so that those tables never change.

A task that the source names is that task, however alike its request is to others'; `text_id` shows which are. Where the
log has none, first requests that are near-duplicates (numbers, ids and addresses masked) form a cluster, and a cluster
with one set of tools is a task. The split goes by cluster, tools aside, and where configured by user and time as well:
an episode is trained on if all of them lie on that side, held out if all lie on the other, and neither if they differ.
So no cluster, user or time is on both sides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import polars as pl

from flywheel.config import EpisodesConfig
from flywheel.contracts import polars_schema
from flywheel.extensions import Embedding
from flywheel.funnel import Funnel
from flywheel.records import Split, Task, content_id
from flywheel.stages.common.canonical import STATE_TASK_HEX, in_holdout
from flywheel.stages.tasks.accounts import with_history
from flywheel.stages.tasks.clusters import cluster_ids
from flywheel.stages.tasks.embedding import close
from flywheel.stages.tasks.minhash import alike, candidates, files_in, masked_words, shingles, signatures

_NEVER = datetime.max.replace(tzinfo=UTC)


def build_tasks(
    episodes: pl.DataFrame,
    previous: pl.DataFrame,
    cfg: EpisodesConfig,
    funnel: Funnel,
    embed: Embedding | None = None,
) -> pl.DataFrame:
    """Return the table `tasks`.

    Args:
        episodes: episode_id, task_id, task_rule, request, tool_signature, user, source_format and started of all
            episodes.
        previous: the table as the last build left it, or no rows: a request keeps the cluster that it had.
        cfg: the section [episodes].
        funnel: counts episodes.
        embed: the plugin that `episodes.embedding` names, if any.
    """
    funnel.considered += episodes.height
    funnel.kept += episodes.height
    named = pl.col("task_rule") == "task_key"
    clusters = _clusters(episodes.filter(~named), previous, cfg, embed)
    clustered = episodes.rename({"task_id": "request_id"}).with_columns(
        cluster_id=pl.col("request_id").replace_strict(clusters, default=pl.col("request_id"), return_dtype=pl.String)
    )
    rows = clustered.with_columns(
        task_id=pl.when(named).then("request_id").otherwise(_task_of_cluster(clustered)),
        text_id=pl.when(named).then(_text_ids(clustered)).otherwise("cluster_id"),
        split=pl.Series(_splits(clustered, cfg), dtype=pl.String),
    )
    rows = with_history(_with_former(rows, previous))
    funnel.note("tasks", rows["task_id"].n_unique())
    funnel.note("clusters of requests", len(set(clusters.values())))
    funnel.note("requests", len(clusters))
    shared = rows.filter(named).group_by("text_id").agg(pl.col("task_id").n_unique()).drop_nulls()
    funnel.note("named tasks whose requests are alike", int(shared.filter(pl.col("task_id") > 1)["task_id"].sum()))
    for side in Split:
        funnel.note(f"episodes {side.value}", rows.filter(pl.col("split") == side.value).height)
    return rows.select(list(polars_schema(Task))).sort("episode_id")


def _with_former(rows: pl.DataFrame, previous: pl.DataFrame) -> pl.DataFrame:
    old = previous.select("episode_id", _old="task_id", _before="formerly")
    moved = pl.col("_old").is_not_null() & (pl.col("_old") != pl.col("task_id"))
    earlier = pl.col("_before").fill_null(pl.lit([], dtype=pl.List(pl.String)))
    joined = rows.join(old, on="episode_id", how="left").with_columns(earlier)
    longer = pl.col("_before").list.concat(pl.concat_list("_old")).list.unique().list.sort()
    return joined.with_columns(formerly=pl.when(moved).then(longer).otherwise("_before"))


def _text_ids(rows: pl.DataFrame) -> pl.Series:
    """Return what each request's text alone would make of it: the id of the cluster that it founds or is equal to."""
    requests = rows["request"].unique().drop_nulls().to_list()
    ids = {request: content_id("request", " ".join(masked_words(request))) for request in requests}
    return rows["request"].replace_strict(ids, default=None, return_dtype=pl.String)


def _task_of_cluster(clustered: pl.DataFrame) -> pl.Series:
    kinds = clustered.select("cluster_id", "tool_signature").unique()
    ids = {row: content_id("cluster", *row) for row in kinds.iter_rows()}
    pairs = clustered.select("cluster_id", "tool_signature").iter_rows()
    return pl.Series([ids[pair] for pair in pairs], dtype=pl.String)


def _clusters(
    unnamed: pl.DataFrame, previous: pl.DataFrame, cfg: EpisodesConfig, embed: Embedding | None
) -> dict[str, str]:
    """Return the cluster id of each request id."""
    first = (
        unnamed.group_by("task_id")
        .agg(pl.col("request").min(), pl.col("started").min())
        .sort(pl.col("started").fill_null(_NEVER), "task_id")
    )
    known = dict(previous.select("request_id", "cluster_id").unique().iter_rows())
    texts: dict[str, list[str]] = defaultdict(list)  # equal but for slots: one document
    for request_id, request in first.select("task_id", "request").iter_rows():
        texts[" ".join(masked_words(request or request_id))].append(request_id)
    before = [frozenset(known[r] for r in members if r in known) for members in texts.values()]
    ids = [content_id("request", text) for text in texts]
    edges = list(_edges(list(texts)))
    if embed is not None and texts:
        edges += close(list(texts), embed, cfg.min_cosine)
    about = [files_in(text.split()) for text in texts]
    edges = [(one, other) for one, other in edges if about[one] == about[other]]
    names = cluster_ids(ids, edges, before, lambda name: in_holdout(name, cfg.holdout_share))
    return {r: name for members, name in zip(texts.values(), names, strict=True) for r in members}


def _edges(documents: Sequence[str]) -> Iterator[tuple[int, int]]:
    if len(documents) < 2:  # noqa: PLR2004
        return
    sets = [shingles(text.split()) for text in documents]
    seen: set[tuple[int, int]] = set()
    for later, earlier in candidates(signatures(sets)):
        if (later, earlier) not in seen:
            seen.add((later, earlier))
            if alike(sets[later], sets[earlier]):
                yield later, earlier


def _splits(clustered: pl.DataFrame, cfg: EpisodesConfig) -> list[str]:
    after = cfg.holdout_from
    sides: dict[str, bool] = {}
    splits = []
    for cluster, user, started in clustered.select("cluster_id", "user", "started").iter_rows():
        held = [sides.setdefault(cluster, in_holdout(cluster, cfg.holdout_share))]
        if cfg.holdout_user_share > 0 and user is not None:
            held.append(in_holdout(f"user:{user}", cfg.holdout_user_share))
        if after is not None:
            held.append(started is None or started >= after)
        splits.append((Split.HOLDOUT if all(held) else Split.BETWEEN if any(held) else Split.TRAIN).value)
    return splits


def follow_tasks(frame: pl.LazyFrame, tasks: pl.LazyFrame) -> pl.LazyFrame:
    """Return rows with an episode_id with the task that it is an attempt at, its split, and states under that task.

    Rows of episodes that `tasks` does not hold are left out: give it a partition's tasks and it is that partition's.
    """
    columns = frame.collect_schema().names()
    joined = frame.join(tasks.select("episode_id", _task="task_id", _split="split"), on="episode_id", how="inner")
    under = pl.col("_task").str.slice(0, STATE_TASK_HEX) + pl.col("state_key").str.slice(STATE_TASK_HEX)
    changed = {"task_id": pl.col("_task"), "split": pl.col("_split"), "state_key": under}
    return joined.with_columns(**{name: changed[name] for name in columns if name in changed}).select(columns)
