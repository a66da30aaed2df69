"""Off-policy estimates of a round: what held-out attempts say that it, and its baseline, would have earned in them.

In: the held-out tables, both sides' policies. Out: rows of the report. What is not known of the policies that acted is
found out first, and costs nothing: where half of the attempts or more say nothing, no model is loaded or asked.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from flywheel.errors import TemplateError
from flywheel.extensions import Holdout
from flywheel.pipeline.context import Context, served_rounds
from flywheel.pipeline.evaluate.logged_attempts import action_kind, held_out, scored_sides
from flywheel.pipeline.evaluate.scorer import PolicyScorer
from flywheel.records import OffPolicyEstimate, canonical_json, content_id
from flywheel.stages.common.sampling import UNKNOWN, Drawn, behaviour, draws
from flywheel.stages.datasets.context import contexts, unfit
from flywheel.stages.evaluate.cases import capped
from flywheel.stages.evaluate.off_policy.estimators import Sources, as_record, refusals
from flywheel.stages.evaluate.off_policy.model import Likely, likely_off_policy
from flywheel.stages.evaluate.window import Ask
from flywheel.stats.ope import LONGEST

__all__ = ["off_policy_rows"]

Target = Literal["candidate", "baseline"]

_TARGETS: tuple[Target, Target] = ("candidate", "baseline")
LOGGED, RESCORED = "logged", "rescored"
_WHY = (
    "the probabilities of the policies that acted are unknown for {}: the log does not tell them of exactly these "
    "tokens, and neither the base model nor a round of this project is known to have drawn them plainly"
)


@dataclass(frozen=True)
class _Made:
    """One held-out attempt, as far as its actions go."""

    episode_id: str
    task_id: str
    user: str | None
    policy: str
    source: str
    drawn: Drawn
    asks: tuple[Ask, ...]  # of the decisions that are looked at
    steps: int

    @property
    def temperature(self) -> float:
        return 1.0 if self.drawn.temperature is None else self.drawn.temperature


def off_policy_rows(
    ctx: Context, scorer: PolicyScorer, holdout: Holdout, sides: tuple[int, int | None]
) -> list[OffPolicyEstimate]:
    """Return the estimates for candidate and baseline; none where no held-out attempt has a known outcome.

    Args:
        ctx: the project.
        scorer: who knows the policies.
        holdout: the held-out tables.
        sides: the candidate's round, and the baseline's; None is the base.
    """
    chosen = _chosen(holdout, ctx.config.eval.off_policy_cases)
    if chosen.height == 0:
        return []
    rounds: dict[str, int | None] = {"base": None, **served_rounds(ctx)}
    made = _made(chosen, holdout.steps, rounds)
    sources, reasons = _sources(made), list[str]()
    if not sources.reason:
        try:
            made = _with_tokens(scorer, made, rounds)
            sources = _sources(made)
            if not sources.reason:
                estimates = _estimated(ctx, scorer, chosen, made, rounds)
                return [e for target, number in zip(_TARGETS, sides, strict=True) for e in estimates(target, number)]
        except TemplateError as error:  # it may refuse a logged conversation, and no estimate fails an evaluation
            reasons = [f"the policies could not be asked: {error.message}"]
    return [as_record(e, target) for target in _TARGETS for e in refusals(sources, reasons)]


def _chosen(holdout: Holdout, most: int) -> pl.DataFrame:
    """Return at most so many held-out episodes whose outcome is known for good, chosen by hash."""
    whole = holdout.returns.filter(pl.col("step").is_null() & pl.col("known") & ~pl.col("provisional"))
    judged = holdout.episodes.join(whole, on="episode_id", how="semi").filter(pl.col("n_steps") > 0)
    able = judged.filter(~pl.col("episode_id").is_in(unfit(judged)))
    return able.filter(pl.col("episode_id").is_in(capped(able["episode_id"].to_list(), most))).sort("episode_id")


def _made(chosen: pl.DataFrame, steps: pl.DataFrame, rounds: Mapping[str, int | None]) -> list[_Made]:
    mine = steps.filter(pl.col("episode_id").is_in(chosen["episode_id"].to_list()))
    how = draws(mine)
    whole = chosen["n_steps"].max()
    first_only = isinstance(whole, int) and whole > LONGEST
    lasts = {e: 1 if first_only else n for e, n in chosen.select("episode_id", "n_steps").iter_rows()}
    found = contexts(mine, {(e, i) for e, n in lasts.items() for i in range(n)})
    made = []
    for row in chosen.iter_rows(named=True):
        episode, drawn = row["episode_id"], how[row["episode_id"]]
        source = _source(row["policy"], drawn, rounds)
        tools = json.loads(row["tools"]) if row["tools"] is not None else None
        steps_of = [found[episode, i] for i in range(lasts[episode])]
        asks = tuple(Ask(json.loads(s.prompt), tools, json.loads(s.completion)[0]) for s in steps_of)
        made.append(_Made(episode, row["task_id"], row["user"], row["policy"], source, drawn, asks, row["n_steps"]))
    return made


def _source(policy: str, drawn: Drawn, rounds: Mapping[str, int | None]) -> str:
    known = behaviour(policy, drawn)
    if known == "logged":
        return LOGGED
    return RESCORED if known != UNKNOWN and policy in rounds else UNKNOWN


def _with_tokens(scorer: PolicyScorer, made: Sequence[_Made], rounds: Mapping[str, int | None]) -> list[_Made]:
    """Return attempts, those whose logged tokens are not the ones that are scored without their logged numbers."""
    logged = [m for m in made if m.source == LOGGED]
    flat = iter(scorer.tokens([ask for m in logged for ask in m.asks]) if logged else [])
    ids = {m.episode_id: [next(flat) for _ in m.asks] for m in logged}
    return [m if m.source != LOGGED or _tells(m, ids[m.episode_id]) else _untold(m, rounds) for m in made]


def _tells(made: _Made, ids: Sequence[list[int]]) -> bool:
    """Return whether the log tells the log-probabilities of exactly these tokens, decision by decision."""
    told = (made.drawn.log_probs or [])[: len(ids)]
    return [one["ids"] for one in told] == ids


def _untold(made: _Made, rounds: Mapping[str, int | None]) -> _Made:
    drawn = made.drawn._replace(log_probs=None)
    return replace(made, drawn=drawn, source=_source(made.policy, drawn, rounds))


def _sources(made: Sequence[_Made]) -> Sources:
    counts = Counter(m.source for m in made)
    return Sources({name: counts[name] for name in (LOGGED, RESCORED, UNKNOWN)}, _WHY)


# --- asking the policies -------------------------------------------------------------------------------------------


def _estimated(
    ctx: Context, scorer: PolicyScorer, chosen: pl.DataFrame, made: Sequence[_Made], rounds: Mapping[str, int | None]
) -> Callable[[Target, int | None], list[OffPolicyEstimate]]:
    """Return what gives a side's estimates."""
    log = held_out(ctx, chosen)
    judged = scored_sides((log, log))[0][0]
    rewards = {a.episode_id: a.score for a in judged.attempts if a.score is not None}
    made = [m for m in made if m.episode_id in rewards]
    logged, by_user = _logged(scorer, made, rounds), all(m.user for m in made)

    def of(target: Target, number: int | None) -> list[OffPolicyEstimate]:
        scored = _scored(scorer, number, [m for m in made if m.episode_id in logged])
        rows = [
            _likely(m, (m.user or "") if by_user else m.task_id, rewards[m.episode_id], (logged[m.episode_id], told))
            for m in made
            if (told := scored.get(m.episode_id)) is not None
        ]
        sources = _sources([m if m.episode_id in scored else replace(m, source=UNKNOWN) for m in made])
        earned = math.fsum(row.reward for row in rows) / len(rows) if rows else None
        return [as_record(e, target, earned) for e in likely_off_policy(rows, sources, seed=ctx.config.eval.seed)]

    return of


def _logged(
    scorer: PolicyScorer, made: Sequence[_Made], rounds: Mapping[str, int | None]
) -> dict[str, tuple[float, ...]]:
    """Return each attempt's log-probabilities to the policy that acted, as far as they are known."""
    found = {
        m.episode_id: tuple(math.fsum(one["log_probs"]) for one in (m.drawn.log_probs or [])[: len(m.asks)])
        for m in made
        if m.source == LOGGED
    }
    again = [m for m in made if m.source == RESCORED]
    for number in sorted({rounds[m.policy] for m in again}, key=lambda n: -1 if n is None else n):
        found |= _scored(scorer, number, [m for m in again if rounds[m.policy] == number])
    return found


def _scored(scorer: PolicyScorer, number: int | None, made: Sequence[_Made]) -> dict[str, tuple[float, ...]]:
    """Return log-probabilities to a policy at each draw's temperature; not of attempts that do not fit its window."""
    found: dict[str, tuple[float, ...]] = {}
    for temperature in sorted({m.temperature for m in made}):
        mine = [m for m in made if m.temperature == temperature]
        scores = iter(scorer.log_probs(number, [ask for m in mine for ask in m.asks], temperature))
        for m in mine:
            told = [next(scores) for _ in m.asks]
            fitting = tuple(score for score in told if score is not None)
            found |= {m.episode_id: fitting} if len(fitting) == len(told) else {}
    return found


def _likely(m: _Made, unit: str, reward: float, log_probs: tuple[tuple[float, ...], tuple[float, ...]]) -> Likely:
    first = m.asks[0]
    action = canonical_json(first.completion)
    return Likely(
        episode_id=m.episode_id,
        state=content_id(first.prompt, first.tools, m.temperature),
        served=content_id(m.policy, m.source),
        action=action,
        kind=action_kind(action),
        unit=unit,
        reward=reward,
        logged=log_probs[0],
        target=log_probs[1],
        steps=m.steps,
    )
