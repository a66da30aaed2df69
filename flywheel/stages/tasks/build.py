"""Which attempts are attempts at one task, and which side of the holdout each lies on.

In: some columns of all episodes, and the clusters of the last build. Out: the table `tasks`, a row an episode; other
stages read episodes, steps and opinions through it (`follow_tasks`), so that those tables never change.

A task that the source names is that task, however alike its request is to others'; `text_id` shows which are. Where the
log has none, first requests that are near-duplicates (numbers, ids and addresses masked) form a cluster, and a cluster
with one set of tools is a task. The split goes by cluster, tools aside, and where configured by user and time as well:
an episode is trained on if all of them lie on that side, held out if all lie on the other, and neither if they differ.
So no cluster, user or time is on both sides.

Pieces of the log are read three times: for their requests, for their accounts, and to write the rows. In between, what
they know is put together: requests to clusters, tasks of accounts to histories.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from flywheel.config import EpisodesConfig
from flywheel.contracts import polars_schema
from flywheel.extensions import Embedding
from flywheel.funnel import Funnel
from flywheel.records import Split, Task, content_id
from flywheel.stages.common.canonical import STATE_TASK_HEX, in_holdout
from flywheel.stages.common.pieces import Piece, Pieces, Reading
from flywheel.stages.tasks.accounts import Accounts, Histories, accounts_of, histories, with_history
from flywheel.stages.tasks.clusters import named_clusters
from flywheel.stages.tasks.embedding import close
from flywheel.stages.tasks.minhash import masked_words
from flywheel.stages.tasks.requests import (
    UNNAMED,
    Ints,
    Requests,
    compared,
    compared_texts,
    pairs_in,
    parts_of,
    requests_in,
    together,
)

_OF_KIND = ["request_id", "tool_signature"]


class Written(NamedTuple):
    """What is counted of the rows of a piece, and the named tasks with their texts."""

    counts: dict[str, int]
    texts: pl.DataFrame


def build_tasks(pieces: Pieces, cfg: EpisodesConfig, funnel: Funnel, embed: Embedding | None = None) -> None:
    """Write the table `tasks`.

    Args:
        pieces: episodes with episode_id, task_id, task_rule, request, tool_signature, user, source_format and started;
            and "previous tasks", the table as the last build left it, or no rows: a request keeps the cluster that it
            had.
        cfg: the section [episodes].
        funnel: counts episodes.
        embed: the plugin that `episodes.embedding` names, if any; it is given all texts at once.
    """
    with_texts = embed is not None or len(pieces.pieces) == 1
    requests = together(pieces.each(requests_in, [(piece, with_texts) for piece in pieces.pieces]))
    funnel.considered = funnel.kept = requests.episodes
    known = pieces.scan("previous tasks").select("request_id", former="cluster_id").unique("request_id").collect()
    clusters = _clusters(requests, known, _edges(requests.documents, pieces, cfg, embed), cfg)
    attempts = _tasks(clusters, requests.kinds)
    calls = [(piece, attempts.filter(pieces.lies_in("task_id", piece))) for piece in pieces.pieces]
    accounts = list(pieces.each(_accounts, calls))
    told = histories(accounts)
    written = list(
        pieces.write("tasks", _rows, [(*call, told.of(own), cfg) for call, own in zip(calls, accounts, strict=True)])
    )
    for piece in written:
        for name, count in piece.counts.items():
            funnel.note(name, count)
    funnel.note("clusters of requests", clusters["cluster_id"].n_unique())
    funnel.note("requests", clusters.height)
    shared = pl.concat([piece.texts for piece in written]).group_by("text_id").len().drop_nulls()
    funnel.note("named tasks whose requests are alike", int(shared.filter(pl.col("len") > 1)["len"].sum()))


def _edges(documents: pl.DataFrame, pieces: Pieces, cfg: EpisodesConfig, embed: Embedding | None) -> Ints:
    """Return (later, earlier) places of documents that are alike."""
    pairs = pairs_in(documents)
    if documents["text"].null_count():
        calls = ((some,) for some in parts_of(pairs, documents))
        verdicts = [verdict for some in pieces.each(compared, calls) for verdict in some]
    else:
        verdicts = list(compared_texts(pairs, documents["text"]))
    edges: Ints = pairs[np.array(verdicts, dtype=bool)]
    if embed is None or documents.is_empty():
        return edges
    near: Ints = np.array([*close(documents["text"].to_list(), embed, cfg.min_cosine)], dtype=np.int64).reshape(-1, 2)
    about: Ints = documents["about"].rank("dense").to_numpy()
    one, other = about[near[:, 0]], about[near[:, 1]]
    return np.concatenate([edges, near[one == other]])


def _clusters(requests: Requests, known: pl.DataFrame, edges: Ints, cfg: EpisodesConfig) -> pl.DataFrame:
    """Return the cluster id of each request id."""
    names = requests.documents["document"]
    before = requests.requests.join(known, on="request_id").select("document", "former").unique()
    found = named_clusters(names, edges, before, lambda name: in_holdout(name, cfg.holdout_share))
    return requests.requests.select("request_id", cluster_id=pl.col("document").replace_strict(names, found))


def _tasks(clusters: pl.DataFrame, kinds: pl.DataFrame) -> pl.DataFrame:
    """Return request_id, tool_signature, cluster_id and task_id of each kind of request."""
    asked = kinds.join(clusters, on="request_id").sort(_OF_KIND)
    ids = [content_id("cluster", *row) for row in asked.select("cluster_id", "tool_signature").iter_rows()]
    return asked.with_columns(task_id=pl.Series(ids, dtype=pl.String))


def _attempts(reading: Reading, piece: Piece, tasks: pl.DataFrame) -> pl.LazyFrame:
    """Return the episodes that are attempts at a piece's tasks, with request, cluster and task.

    Args:
        reading: the episodes.
        piece: whose tasks.
        tasks: of the requests whose task no log names.
    """
    joined = reading.scan("episodes").rename({"task_id": "request_id"})
    joined = joined.join(tasks.lazy(), on=_OF_KIND, how="left", nulls_equal=True)
    ours = pl.when(UNNAMED).then(pl.col("cluster_id").is_not_null()).otherwise(reading.lies_in("request_id", piece))
    return joined.filter(ours).with_columns(
        cluster_id=pl.col("cluster_id").fill_null(pl.col("request_id")),
        task_id=pl.when(UNNAMED).then("task_id").otherwise("request_id"),
        request=pl.when(~UNNAMED).then("request"),  # of the others all is known
    )


def _accounts(reading: Reading, piece: Piece, tasks: pl.DataFrame) -> Accounts:
    """Return what the accounts of a piece worked on."""
    columns = ("user", "task_id", "started", "source_format")
    named = pl.col("user").is_not_null()
    return accounts_of(_attempts(reading, piece, tasks).filter(named).select(columns).collect())


def _rows(
    reading: Reading, piece: Piece, tasks: pl.DataFrame, told: Histories, cfg: EpisodesConfig
) -> tuple[pl.DataFrame, Written]:
    """Return the rows of a piece's tasks, and what is counted."""
    rows = _attempts(reading, piece, tasks).collect()
    text_id = pl.when(UNNAMED).then("cluster_id").otherwise(_text_ids(rows))
    rows = rows.with_columns(text_id=text_id, split=pl.Series(_splits(rows, cfg), dtype=pl.String))
    former = reading.scan("previous tasks").join(rows.lazy().select("episode_id"), on="episode_id", how="semi")
    rows = with_history(_with_former(rows, former.collect()), told)
    texts = rows.filter(~UNNAMED).select("text_id", "task_id").unique()
    sides = {f"episodes {side.value}": rows.filter(pl.col("split") == side.value).height for side in Split}
    counts = {"tasks": rows["task_id"].n_unique(), **sides}
    return rows.select(list(polars_schema(Task))), Written(counts, texts)


def _with_former(rows: pl.DataFrame, previous: pl.DataFrame) -> pl.DataFrame:
    old = previous.select("episode_id", _old="task_id", _before="formerly")
    moved = pl.col("_old").is_not_null() & (pl.col("_old") != pl.col("task_id"))
    earlier = pl.col("_before").fill_null(pl.lit([], dtype=pl.List(pl.String)))
    joined = rows.join(old, on="episode_id", how="left").with_columns(earlier)
    longer = pl.col("_before").list.concat(pl.concat_list("_old")).list.unique().list.sort()
    return joined.with_columns(formerly=pl.when(moved).then(longer).otherwise("_before"))


def _text_ids(rows: pl.DataFrame) -> pl.Series:
    """Return what the text alone of a named task's request would make of it: the id of the cluster that it founds."""
    requests = rows.filter(~UNNAMED)["request"].unique().drop_nulls().to_list()
    ids = {request: content_id("request", " ".join(masked_words(request))) for request in requests}
    return rows["request"].replace_strict(ids, default=None, return_dtype=pl.String)


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
