"""The rows that a round of each method may train on, selected when they are asked for.

In: the tables, and the round that training starts from. Out: rows that fit, with the count of those that were dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, assert_never

import polars as pl

from flywheel.funnel import Funnel
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context, served_rounds
from flywheel.pipeline.evaluate.holdout import evaluation_texts
from flywheel.pipeline.train.attempts import attempted
from flywheel.pipeline.train.length import Fitted, fit_rows, within_tokens
from flywheel.pipeline.train.mix import before, replayed
from flywheel.records import METHODS, Method, Split
from flywheel.records.backends import TRL
from flywheel.records.methods import EXAMPLES, PAIRS, SUCCESSES, Dataset
from flywheel.stages.datasets.unpaired import unpaired
from flywheel.stages.selection.decontaminate import CROSSES, clear
from flywheel.stages.selection.golden import golden_rows
from flywheel.stages.selection.groups import select_actions, select_groups, select_scenarios
from flywheel.stages.selection.hard import repeated
from flywheel.stages.selection.hints import select_hints
from flywheel.stages.selection.rows import (
    GOOD_ENOUGH_TO_COPY,
    demonstrations_for_pairs,
    select_demonstrations,
    select_pairs,
    with_fixes,
)

Row = dict[str, Any]

UNMIXED = "demonstrations, which train.backend does not mix with pairs"
_ADDED = {"attempted", "golden", "replayed"}  # rows with another action than the table's


class _Selected(NamedTuple):
    """A dataset's rows that the round may train on, and the count of those that were dropped."""

    rows: list[Row]
    funnel: Funnel


class RoundRows:
    """The rows of a round, by method.

    Args:
        ctx: the project; what its tables hold out is not trained on.
        parent: the round that training starts from; None for the base.
    """

    def __init__(self, ctx: Context, parent: int | None) -> None:
        self._ctx, self._parent = ctx, parent
        self._users = dict(read_table(ctx.store, "episodes").select("episode_id", "user").collect().iter_rows())
        confirmed = pl.col("basis").is_in(["audit", "verifier"]) & (pl.col("p_success") >= GOOD_ENOUGH_TO_COPY)
        returns = read_table(ctx.store, "returns").filter(pl.col("step").is_null() & confirmed).collect()
        self._verified = set(returns["episode_id"])  # episodes whose success a verifier or an audit confirms
        self._before, self._texts = before(ctx, parent), evaluation_texts(ctx)
        self.selected = cache(self._select)
        self.fitted = cache(self._complete)

    def count(self, method: Method) -> int:
        """Count what makes a round worth training: golden rows, and demonstrations in addition to pairs, do not."""
        pairs = METHODS[method].dataset is PAIRS
        rows = self.fitted(method).rows
        return sum(row.get("mix") != "golden" and not (pairs and "completion" in row) for row in rows)

    def funnel(self, method: Method) -> Funnel:
        """Return what was considered, kept and dropped for a method."""
        return self.selected(METHODS[method].dataset).funnel

    def _table(self, name: str) -> pl.DataFrame:
        return read_table(self._ctx.store, name).collect()

    def _select(self, dataset: Dataset) -> _Selected:
        """Select the rows of a dataset."""
        train, funnel, users = self._ctx.config.train, Funnel(), self._users
        known: dict[str, Any] = {"users": users, "before": self._before, "texts": self._texts}
        match dataset.name:
            case "examples":
                rows = select_demonstrations(self._examples(funnel), train, funnel, **known)
            case "successes":
                rows = select_demonstrations(self._own(funnel), train, funnel, **known)
            case "pairs":  # their demonstrations need room
                mixed = train.dpo_demonstrations if train.backend == TRL else 0
                most = max(round(train.max_rows / (1 + mixed)), min(train.min_rows, train.max_rows))
                cfg = train.model_copy(update={"max_rows": most})
                rows = select_pairs(self._table("pairs"), cfg, funnel, verified=self._verified, **known)
            case "actions":
                actions = unpaired(self._table("examples"), self._table("pairs"), funnel)
                rows = select_actions(actions, train, funnel, users, self._before, self._texts)
            case "groups":
                rows = select_groups(self._table("groups"), train, funnel, users, self._before, self._texts)
            case "scenarios":
                least = self._ctx.config.groups.min_range
                starts, fixtures = self._table("scenarios"), self._table("fixtures")
                rows = select_scenarios(starts, fixtures, train, least, funnel, self._texts)
            case "hints":
                tables = {name: self._table(name) for name in ("examples", "episodes", "steps")}
                names, least_users = self._names(), self._ctx.config.pairs.min_users
                rows = select_hints(tables, train, funnel, policies=names, min_users=least_users, **known)
            case _:
                assert_never(dataset.name)
        return _Selected(rows, funnel)

    def _names(self) -> set[str]:
        """Return the names under which logs may give the policy that a round starts from."""
        if self._parent is None:
            return {"base"}
        return {name for name, number in served_rounds(self._ctx).items() if number == self._parent}

    def _tried(self) -> list[tuple[str | None, float]]:
        """Return the request and P(success) of the start policy's own training episodes, where it is known."""
        own = pl.col("policy").is_in(sorted(self._names())) & (pl.col("split") == Split.TRAIN.value)
        episodes = read_table(self._ctx.store, "episodes").filter(own).select("episode_id", "request")
        whole = read_table(self._ctx.store, "returns").filter(pl.col("step").is_null() & pl.col("known"))
        found = episodes.join(whole.select("episode_id", "p_success"), on="episode_id").sort("episode_id")
        return list(found.select("request", "p_success").collect().iter_rows())

    def _examples(self, funnel: Funnel) -> pl.DataFrame:
        """Return the examples, and what worked after a failed call in the place of that call."""
        examples = self._table("examples")
        if not self._ctx.config.train.fixes_at_once:
            return examples
        fixed = with_fixes(examples, self._table("pairs"))
        funnel.note("calls that worked after a failure, shown at once", fixed.height - examples.height)
        return fixed

    def _own(self, funnel: Funnel) -> pl.DataFrame:
        """Return the examples that the start policy acted in itself, users' edits of them not among them."""
        acted = pl.col("policy").is_in(sorted(self._names()))
        own = self._table("episodes").filter(acted)["episode_id"].implode()
        examples = self._table("examples")
        kept = funnel.drop(examples, ~pl.col("episode_id").is_in(own), "logged by another policy than the start")
        kept = funnel.drop(kept, pl.col("source") == "correction", "a user's edit, not an action")
        funnel.considered += examples.height - kept.height
        return kept

    def _complete(self, method: Method) -> Fitted:
        """Return the rows of a round: the selected ones, what they are trained together with, and no row too long."""
        ctx, dataset = self._ctx, METHODS[method].dataset
        rows, funnel = self.selected(dataset)
        if dataset is EXAMPLES:
            rows = replayed(ctx, self._parent, rows)
        mixed = dataset is PAIRS and ctx.config.train.backend == TRL
        if mixed:
            rows = [*rows, *self._demonstrations(rows, funnel)]
        if mixed or dataset in {EXAMPLES, SUCCESSES}:
            rows = [*rows, *attempted(ctx, dataset, self._before, self._texts, funnel)]
        elif dataset is PAIRS and ctx.config.train.attempts:
            funnel.note("no attempts: train.backend does not mix their demonstrations with pairs", 1)
        golden = golden_rows(ctx.project, ctx.config.train, dataset, self._parent or 0, len(rows), funnel)
        rows = self._cleared(self._unmixed([*rows, *golden], dataset, funnel), funnel)
        if dataset in {EXAMPLES, SUCCESSES} and ctx.config.train.backend == TRL and ctx.config.train.hard_times > 1:
            rows = repeated(rows, self._tried(), ctx.config.train.hard_times, funnel)
        fitted = fit_rows(ctx, rows, method, funnel)
        return within_tokens(fitted, ctx.config.train, method, funnel)

    def _unmixed(self, rows: list[Row], dataset: Dataset, funnel: Funnel) -> list[Row]:
        """Drop demonstrations among pairs where another system trains, which takes one form of rows."""
        if dataset is not PAIRS or self._ctx.config.train.backend == TRL:
            return rows
        pairs = [row for row in rows if "completion" not in row]
        funnel.dropped[UNMIXED] += len(rows) - len(pairs)
        funnel.kept -= len(rows) - len(pairs)
        return pairs

    def _cleared(self, rows: list[Row], funnel: Funnel) -> list[Row]:
        """Drop rows that share words with an evaluation of those that were not selected from a table."""
        added = [row for row in rows if row.get("mix") in _ADDED or "attempt" in row]
        kept = {row["id"] for row in clear(added, self._texts, funnel, among=lambda: rows)}
        crossing = {row["id"] for row in added} - kept
        funnel.dropped[CROSSES] += len(crossing)
        funnel.kept -= len(crossing)
        return [row for row in rows if row["id"] not in crossing]

    def _demonstrations(self, pairs: Sequence[Row], funnel: Funnel) -> list[Row]:
        """Return the demonstrations that a round of pairs is trained together with."""
        train, examples = self._ctx.config.train, self._table("examples")  # what pairs prefer is theirs: no fixes
        known: dict[str, Any] = {"users": self._users, "before": self._before, "texts": self._texts}
        free = select_demonstrations(examples, train, Funnel(), **known)
        rows = demonstrations_for_pairs(pairs, free, examples, train, verified=self._verified, before=self._before)
        funnel.considered += len(rows)
        funnel.kept += len(rows)
        funnel.note("demonstrations in addition to pairs", len(rows))
        return rows
