"""Which methods are raced: those that the logs and the start policy allow, and why the others are not."""

from __future__ import annotations

from typing import Any, NamedTuple

from flywheel.config import TrainConfig
from flywheel.errors import TrainError
from flywheel.pipeline.context import Context
from flywheel.pipeline.train.length import dataset_text, trained_tokens
from flywheel.pipeline.train.race.development import Development
from flywheel.pipeline.train.race.run import Entrant, Racing, share_of
from flywheel.pipeline.train.rows import RoundRows
from flywheel.present import percent
from flywheel.records import METHODS, Method, Race, RaceCandidate
from flywheel.stages.selection.halving import sizes
from flywheel.stages.selection.method import is_cold, short_of

# Simpler ones first, which win ties. KTO learns what DPO does from less, attempts in the replay environment cost far
# more than a race may: both are trained where `train.method` names them.
RACED: tuple[Method, ...] = ("sft", "expert", "dpo", "grpo", "hindsight")


class Start(NamedTuple):
    """Where a round starts: its number, the round whose adapter it goes on from, and how well that makes calls."""

    number: int
    parent: int | None
    well_formed_rate: float | None


def open_race(
    ctx: Context,
    start: Start,
    development: Development,
    rows: RoundRows,
    *,
    rule: Method,
    config: dict[str, Any],
) -> tuple[Racing | None, Race | None]:
    """Return the race of a round, or the record that none is held, because fewer than two methods can be trained.

    Args:
        ctx: the project as the round sees it: development tasks are held out.
        start: where the round starts.
        development: what is scored.
        rows: of each method.
        rule: the method without a race, whose round gives the budget where `train.race_tokens` is 0.
        config: what a round's result depends on.
    """
    train = ctx.config.train
    tokens = train.race_tokens or trained_tokens(rows.fitted(rule), train, rule)
    entrants = _different([_entrant(method, rows, train, start.well_formed_rate) for method in RACED])
    entrants = _affordable(entrants, train, tokens)
    raced = [entrant.method for entrant in entrants if not entrant.why]
    if len(raced) > 1:
        return Racing(ctx, start.number, start.parent, development, entrants, tokens, config), None
    reason = f"only {raced[0]} can be trained" if raced else "no method can be raced"
    candidates = [RaceCandidate(method=e.method, rows=e.rows, why=e.why) for e in entrants]
    return None, Race(state="none", reason=reason, tasks=len(development.scored), candidates=candidates)


def _entrant(method: Method, rows: RoundRows, train: TrainConfig, rate: float | None) -> Entrant:
    if is_cold(rate, train) and METHODS[method].reference:
        return Entrant(method, 0, None, f"teaches no format: {percent(rate, 0)} of the start policy's calls are sound")
    try:
        have = rows.count(method)
    except TrainError as error:
        return Entrant(method, 0, None, error.message)
    if have < train.min_rows:
        missing = short_of(method, rows.funnel(method).dropped)
        return Entrant(method, have, None, f"{have:,} {missing}, train.min_rows is {train.min_rows:,}")
    return Entrant(method, have, rows.fitted(method), "")


def _different(entrants: list[Entrant]) -> list[Entrant]:
    """Leave out a method that would train on the rows of a simpler one by the same loss."""
    seen: dict[tuple[str, str], Method] = {}
    kept = []
    for entrant in entrants:
        if entrant.fitted is not None and not entrant.why:
            same = seen.setdefault((METHODS[entrant.method].trainer, dataset_text(entrant.fitted.rows)), entrant.method)
            if same != entrant.method:
                entrant = entrant._replace(why=f"its rows are those of {same}")  # noqa: PLW2901
        kept.append(entrant)
    return kept


def _affordable(entrants: list[Entrant], train: TrainConfig, tokens: int) -> list[Entrant]:
    """Leave out a method of which a single row is more than its share of the first rung."""
    raced = sum(not entrant.why for entrant in entrants)
    share = tokens // max(1, len(sizes(raced)) * raced)
    kept = []
    for entrant in entrants:
        if entrant.fitted is not None and not entrant.why:
            least = trained_tokens(share_of(entrant.fitted, train, entrant.method, share), train, entrant.method)
            if least > share:
                why = f"one row has {least:,} trained tokens, its share of the race's is {share:,}"
                entrant = entrant._replace(why=why)  # noqa: PLW2901
        kept.append(entrant)
    return kept
