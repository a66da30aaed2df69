"""Off-policy estimates of a round: what it, and its baseline, would have earned in the held-out attempts.

In: the held-out tables, both sides' policies. Out: rows of the report. Whether the probabilities of the policies that
acted are known is checked first, at no cost: where they are unknown for half of the attempts or more, no model loads.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from flywheel.errors import LikelihoodError, TemplateError
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

Target = Literal["candidate", "baseline"]

_TARGETS: tuple[Target, Target] = ("candidate", "baseline")
LOGGED, RESCORED = "logged", "rescored"
_WHY = (
    "the probabilities of the policies that acted are unknown for {}: the log does not give them for exactly these "
    "tokens, and they are not known to be plain samples of the base model or of a round of this project"
)


@dataclass(frozen=True)
class _LoggedAttempt:
    """One held-out attempt and its actions."""

    episode_id: str
    task_id: str
    user: str | None
    policy: str
    source: str
    sampling: Drawn
    asks: tuple[Ask, ...]  # of the decisions that are scored
    steps: int

    @property
    def temperature(self) -> float:
        return 1.0 if self.sampling.temperature is None else self.sampling.temperature


def off_policy_rows(
    ctx: Context, scorer: PolicyScorer, holdout: Holdout, sides: tuple[int, int | None]
) -> list[OffPolicyEstimate]:
    """Return the estimates for candidate and baseline; none where no held-out attempt has a known outcome.

    Args:
        ctx: the project.
        scorer: gives the policies' probabilities.
        holdout: the held-out tables.
        sides: the candidate's round, and the baseline's; None is the base.
    """
    chosen = _chosen(holdout, ctx.config.eval.off_policy_cases)
    if chosen.height == 0:
        return []
    rounds: dict[str, int | None] = {"base": None, **served_rounds(ctx)}
    attempts = _logged_attempts(chosen, holdout.steps, rounds)
    sources, reasons = _sources(attempts), list[str]()
    if not sources.reason:
        try:
            attempts = _with_tokens(scorer, attempts, rounds)
            sources = _sources(attempts)
            if not sources.reason:
                estimates = _estimated(ctx, scorer, chosen, attempts, rounds)
                return [e for target, number in zip(_TARGETS, sides, strict=True) for e in estimates(target, number)]
        except (TemplateError, LikelihoodError) as error:  # no estimate fails an evaluation
            reasons = [f"the policies could not be asked: {error.message}"]
    return [as_record(e, target) for target in _TARGETS for e in refusals(sources, reasons)]


def _chosen(holdout: Holdout, most: int) -> pl.DataFrame:
    """Return at most so many held-out episodes whose outcome is known for good, chosen by hash."""
    known = holdout.returns.filter(pl.col("step").is_null() & pl.col("known") & ~pl.col("provisional"))
    labelled = holdout.episodes.join(known, on="episode_id", how="semi").filter(pl.col("n_steps") > 0)
    able = labelled.filter(~pl.col("episode_id").is_in(unfit(labelled)))
    return able.filter(pl.col("episode_id").is_in(capped(able["episode_id"].to_list(), most))).sort("episode_id")


def _logged_attempts(
    chosen: pl.DataFrame, steps: pl.DataFrame, rounds: Mapping[str, int | None]
) -> list[_LoggedAttempt]:
    mine = steps.filter(pl.col("episode_id").is_in(chosen["episode_id"].to_list()))
    how = draws(mine)
    longest = chosen["n_steps"].max()
    first_only = isinstance(longest, int) and longest > LONGEST
    lasts = {e: 1 if first_only else n for e, n in chosen.select("episode_id", "n_steps").iter_rows()}
    seen = contexts(mine, {(e, i) for e, n in lasts.items() for i in range(n)})
    attempts = []
    for row in chosen.iter_rows(named=True):
        episode, sampling = row["episode_id"], how[row["episode_id"]]
        source = _source(row["policy"], sampling, rounds)
        tools = json.loads(row["tools"]) if row["tools"] is not None else None
        steps_of = [seen[episode, i] for i in range(lasts[episode])]
        asks = tuple(Ask(json.loads(s.prompt), tools, json.loads(s.completion)[0]) for s in steps_of)
        attempts.append(
            _LoggedAttempt(episode, row["task_id"], row["user"], row["policy"], source, sampling, asks, row["n_steps"])
        )
    return attempts


def _source(policy: str, sampling: Drawn, rounds: Mapping[str, int | None]) -> str:
    known = behaviour(policy, sampling)
    if known == "logged":
        return LOGGED
    return RESCORED if known != UNKNOWN and policy in rounds else UNKNOWN


def _with_tokens(
    scorer: PolicyScorer, attempts: Sequence[_LoggedAttempt], rounds: Mapping[str, int | None]
) -> list[_LoggedAttempt]:
    """Return the attempts; where the logged tokens are not the ones that are scored, without their logged numbers."""
    logged = [m for m in attempts if m.source == LOGGED]
    flat = iter(scorer.tokens([ask for m in logged for ask in m.asks]) if logged else [])
    ids = {m.episode_id: [next(flat) for _ in m.asks] for m in logged}
    return [
        m if m.source != LOGGED or _has_tokens(m, ids[m.episode_id]) else _without_tokens(m, rounds) for m in attempts
    ]


def _has_tokens(attempt: _LoggedAttempt, ids: Sequence[list[int]]) -> bool:
    """Return whether the log gives the log-probabilities of exactly these tokens, decision by decision."""
    log_probs = (attempt.sampling.log_probs or [])[: len(ids)]
    return [decision["ids"] for decision in log_probs] == ids


def _without_tokens(attempt: _LoggedAttempt, rounds: Mapping[str, int | None]) -> _LoggedAttempt:
    sampling = attempt.sampling._replace(log_probs=None)
    return replace(attempt, sampling=sampling, source=_source(attempt.policy, sampling, rounds))


def _sources(attempts: Sequence[_LoggedAttempt]) -> Sources:
    counts = Counter(m.source for m in attempts)
    return Sources({name: counts[name] for name in (LOGGED, RESCORED, UNKNOWN)}, _WHY)


# --- scoring with the policies -------------------------------------------------------------------------------------


def _estimated(
    ctx: Context,
    scorer: PolicyScorer,
    chosen: pl.DataFrame,
    attempts: Sequence[_LoggedAttempt],
    rounds: Mapping[str, int | None],
) -> Callable[[Target, int | None], list[OffPolicyEstimate]]:
    """Return what gives a side's estimates."""
    log = held_out(ctx, chosen)
    labelled = scored_sides((log, log))[0][0]
    rewards = {a.episode_id: a.score for a in labelled.attempts if a.score is not None}
    attempts = [m for m in attempts if m.episode_id in rewards]
    logged, by_user = _logged(scorer, attempts, rounds), all(m.user for m in attempts)

    def of(target: Target, number: int | None) -> list[OffPolicyEstimate]:
        scored = _scored(scorer, number, [m for m in attempts if m.episode_id in logged])
        rows = [
            _likely(
                m,
                (m.user or "") if by_user else m.task_id,
                rewards[m.episode_id],
                (logged[m.episode_id], target_log_probs),
            )
            for m in attempts
            if (target_log_probs := scored.get(m.episode_id)) is not None
        ]
        sources = _sources([m if m.episode_id in scored else replace(m, source=UNKNOWN) for m in attempts])
        earned = math.fsum(row.reward for row in rows) / len(rows) if rows else None
        return [as_record(e, target, earned) for e in likely_off_policy(rows, sources, seed=ctx.config.eval.seed)]

    return of


def _logged(
    scorer: PolicyScorer, attempts: Sequence[_LoggedAttempt], rounds: Mapping[str, int | None]
) -> dict[str, tuple[float, ...]]:
    """Return each attempt's log-probabilities to the policy that acted, as far as they are known."""
    log_probs = {
        m.episode_id: tuple(
            math.fsum(decision["log_probs"]) for decision in (m.sampling.log_probs or [])[: len(m.asks)]
        )
        for m in attempts
        if m.source == LOGGED
    }
    rescored = [m for m in attempts if m.source == RESCORED]
    for number in sorted({rounds[m.policy] for m in rescored}, key=lambda n: -1 if n is None else n):
        log_probs |= _scored(scorer, number, [m for m in rescored if rounds[m.policy] == number])
    return log_probs


def _scored(
    scorer: PolicyScorer, number: int | None, attempts: Sequence[_LoggedAttempt]
) -> dict[str, tuple[float, ...]]:
    """Return log-probabilities to a policy at each sample's temperature; not of attempts that do not fit its window."""
    log_probs: dict[str, tuple[float, ...]] = {}
    for temperature in sorted({m.temperature for m in attempts}):
        mine = [m for m in attempts if m.temperature == temperature]
        scores = iter(scorer.log_probs(number, [ask for m in mine for ask in m.asks], temperature))
        for m in mine:
            decisions = [next(scores) for _ in m.asks]
            fitting = tuple(score for score in decisions if score is not None)
            log_probs |= {m.episode_id: fitting} if len(fitting) == len(decisions) else {}
    return log_probs


def _likely(
    m: _LoggedAttempt, unit: str, reward: float, log_probs: tuple[tuple[float, ...], tuple[float, ...]]
) -> Likely:
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
