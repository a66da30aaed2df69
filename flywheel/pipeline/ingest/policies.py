"""Which policies acted in what was read, and what names each: the rule of the build, for display.

In: acts, as `stages.conversations.policies` takes them. Out: a row a policy, the one with most conversations first.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from flywheel.records import SETTINGS
from flywheel.results.data import PolicyRow
from flywheel.stages.conversations.policies import COLUMNS, UNKNOWN, acting_of, actor_of, acts, build_policies
from flywheel.store import Store

LOG = "log"


def policies_of(events: Sequence[pl.DataFrame], store: Store | None = None) -> list[PolicyRow]:
    """Return the policies in events.

    Args:
        events: batches of them, or their acts.
        store: where the events of earlier commands are: runs are distinguished over all of them.
    """
    read = pl.concat([acts(frame) for frame in events]) if events else None
    if read is None or not read["acts"].any():
        return []
    stored = [store.table("events", "ingest").select(COLUMNS).collect()] if store is not None else []
    rows = pl.concat([read, *(acts(frame) for frame in stored)])
    names = build_policies(rows)
    read = acting_of(rows).join(read.filter("acts"), on=["conversation_id", "source_file"], how="semi")
    read = read.filter(~pl.col("policy").str.starts_with(SETTINGS).fill_null(value=False))
    actors = [actor_of(policy, model) for policy, model in read.select("policy", "model").iter_rows()]
    read = read.with_columns(actor=pl.Series(actors, dtype=pl.String))
    by_log = read.filter(pl.col("actor").is_null()).select("conversation_id", "policy", "source_file", rule=pl.lit(LOG))
    otherwise = (
        read.filter(pl.col("actor").is_not_null())
        .drop("policy")
        .join(names.select("source_file", "actor", "policy", "rule"), on=["source_file", "actor"], how="left")
        .select("conversation_id", pl.col("policy").fill_null(UNKNOWN), "source_file", "rule")
    )
    named = pl.concat([by_log, otherwise])
    known = named.filter(pl.col("policy") != UNKNOWN)["conversation_id"].unique()
    policies = (  # calls of tools name no model, which the conversation's own acts do
        named.filter((pl.col("policy") != UNKNOWN) | ~pl.col("conversation_id").is_in(known.implode()))
        .group_by("policy", "rule")
        .agg(conversations=pl.col("conversation_id").n_unique(), files=pl.col("source_file").n_unique())
        .sort("conversations", "policy", descending=[True, False])
    )
    return [PolicyRow(**row) for row in policies.iter_rows(named=True)]
