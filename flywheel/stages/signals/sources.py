"""Who may state what: outcomes, audits, policies and feedback by their source, by the rules of `[trust]`.

In: events with their reader, file and signature. Out: the same events, marked or without what their source may not
state. Fields of a log are written by people with interests: an outcome in a field of a chat log is a claim of whoever
sent the request, and decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from flywheel.config import TrustConfig
from flywheel.funnel import Funnel
from flywheel.records import SETTINGS, EventKind
from flywheel.stages.signals.rows import AUDIT, CLAIMED, REVIEWED

_STATES_SETTINGS = "run_result"  # the reader of results
_ORIGIN = "recorded"  # of an outcome whose payload has none


def may_state(rules: Sequence[str]) -> pl.Expr:
    """Return whether an event's source may state something, as an expression; the last rule that fits decides."""
    allowed = pl.lit(value=False)
    for rule in rules:
        allowed = pl.when(_fits(rule.removeprefix("!"))).then(not rule.startswith("!")).otherwise(allowed)
    return allowed


def _fits(rule: str) -> pl.Expr:
    if rule == "*":
        return pl.lit(value=True)
    if rule == "signed":
        return pl.col("signed").is_not_null()
    kind, _, glob = rule.partition(":")
    if kind == "file":
        return _like(pl.col("source_file"), glob)
    reader, _, origin = glob.partition(":")
    same = _like(pl.col("source_format"), reader)
    if not origin:
        return same
    told = pl.col("payload").str.json_path_match("$.source").fill_null(_ORIGIN)
    return same & (pl.col("kind") == EventKind.OUTCOME.value) & _like(told, origin)


def _like(column: pl.Expr, glob: str) -> pl.Expr:
    pattern = re.escape(glob).replace(r"\*", ".*").replace(r"\?", ".")
    return column.str.contains(f"^(?s:{pattern})$")


def stated(events: pl.DataFrame, trust: TrustConfig, funnel: Funnel) -> pl.DataFrame:
    """Return the events without feedback of sources that may not give any; others are marked where they only claim.

    `claimed`: an outcome of a source that may not state outcomes; `reviewed`: feedback of one that may state audits.
    """
    feedback = pl.col("kind") == EventKind.FEEDBACK.value
    is_audit = feedback & (pl.col("payload").str.json_path_match("$.name") == AUDIT)
    reviewed = is_audit & may_state(trust.audits)
    marked = events.with_columns(
        ((pl.col("kind") == EventKind.OUTCOME.value) & ~may_state(trust.outcomes)).fill_null(value=True).alias(CLAIMED),
        reviewed.fill_null(value=False).alias(REVIEWED),
    )
    refused = (feedback & ~pl.col(REVIEWED) & ~may_state(trust.feedback)).fill_null(value=False)
    funnel.note("feedback of sources that may not give any", marked.filter(refused).height)
    funnel.note("outcomes of sources that may not state any", marked.filter(CLAIMED).height)
    return marked.filter(~refused)


def with_allowed_policies(events: pl.DataFrame, trust: TrustConfig, funnel: Funnel) -> pl.DataFrame:
    """Return the events without the policies that their source may not name."""
    whole = [rule for rule in trust.policies if rule.count(":") < 2]  # noqa: PLR2004 - origins are those of outcomes
    # Settings name the policies of a whole folder: only results next to transcripts have them, never a line of a log.
    settings = pl.col("policy").str.starts_with(SETTINGS) & (pl.col("source_format") != _STATES_SETTINGS)
    refused = (pl.col("policy").is_not_null() & (settings | ~may_state(whole))).fill_null(value=False)
    funnel.note("policies of sources that may not name any", events.filter(refused).height)
    return events.with_columns(policy=pl.when(refused).then(None).otherwise("policy"))
