"""From similar requests to clusters with a stable id: that of its first request, or of a held-out one.

In: distinct requests in the order in which they came, pairs that are alike, and the cluster that a request had before.
Out: a cluster id for each request.

A request that is like none before it founds a cluster and gives it its own hash as id; later ones join. When a later
request turns out to be like two clusters, they become one: under the id of a held-out one, if one of them is held out,
so that nothing that was held out is ever trained on; else under the older one's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from flywheel.stages.common.sets import DisjointSets


def cluster_ids(
    requests: Sequence[str],
    edges: Iterable[tuple[int, int]],
    before: Sequence[frozenset[str]],
    held_out: Callable[[str], bool],
) -> list[str]:
    """Return the cluster id of each request.

    Args:
        requests: ids, oldest first.
        edges: pairs of positions (later, earlier) that are alike.
        before: the cluster ids that each request had at the last build; mostly none or one.
        held_out: whether a cluster with this id is held out.
    """
    sets = DisjointSets[int]()
    joined: set[int] = set()
    for later, earlier in edges:
        sets.join((later, earlier))
        joined.add(max(later, earlier))
    seen: dict[str, int] = {}
    for place, ids in enumerate(before):
        for name in sorted(ids):
            sets.join((place, seen.setdefault(name, place)))
    names: dict[int, list[str]] = defaultdict(list)  # of each cluster, oldest first
    founders: dict[int, list[str]] = defaultdict(list)
    for place, request in enumerate(requests):
        names[sets.root(place)] += sorted(before[place])
        if place not in joined:
            founders[sets.root(place)].append(request)
    chosen: dict[int, str] = {}
    for root, own in founders.items():
        candidates = names[root] or own
        chosen[root] = next((name for name in candidates if held_out(name)), candidates[0])
    return [chosen[sets.root(place)] for place in range(len(requests))]


def named_clusters(
    documents: pl.Series, edges: npt.NDArray[np.int64], before: pl.DataFrame, held_out: Callable[[str], bool]
) -> pl.Series:
    """Return the cluster id of each document.

    A document that is like no other, and has at most one name, which no other has, keeps that name or its own; the
    others, by far fewer, are named together.

    Args:
        documents: ids, oldest first.
        edges: (later, earlier) places that are alike.
        before: (document, former), the cluster ids that each document had at the last build.
        held_out: whether a cluster with this id is held out.
    """
    shared = (pl.len().over("document") > 1) | (pl.len().over("former") > 1)
    met = before.filter(shared)["document"]
    linked = pl.Series(np.unique(edges))
    frame = pl.DataFrame({"document": documents}).with_row_index("place")
    among = frame.filter(
        pl.col("place").cast(pl.Int64).is_in(linked.implode()) | pl.col("document").is_in(met.implode())
    )
    alone = before.filter(~pl.col("document").is_in(among["document"].implode()))
    kept = dict(before.join(among, on="document", how="semi").group_by("document").agg("former").iter_rows())
    places = np.full(len(documents), -1, dtype=np.int64)
    places[among["place"].to_numpy()] = np.arange(among.height)
    requests = among["document"].to_list()
    names = cluster_ids(
        requests, map(tuple, places[edges].tolist()), [frozenset(kept.get(r, ())) for r in requests], held_out
    )
    found = pl.concat([alone, pl.DataFrame({"document": requests, "former": names}, schema=alone.schema)])
    named = frame.join(found, on="document", how="left", maintain_order="left")
    return named["former"].fill_null(named["document"])
