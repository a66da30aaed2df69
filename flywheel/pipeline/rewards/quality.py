"""`flywheel rewards`: coverage and reliability of signals, calibration, drift.

In: the current tables. Out: a `RewardsAnswer`. Training does not use it; monitors read `transport`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from flywheel.errors import UsageError
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.rewards.outcomes import success
from flywheel.pipeline.rewards.sample import TALK, intents
from flywheel.pipeline.rewards.standing import accounts, sources, verification
from flywheel.reading.feedback import plain_name
from flywheel.records import EventKind
from flywheel.results.rewards import CalibrationRow, GroupRow, RatingsRow, RewardsAnswer, SignalRow, TransportRow
from flywheel.stages.labelling.calibration import Audited, columns_of, cross_fitted_answers
from flywheel.stages.labelling.posterior import LateSignal, Posterior, Vote
from flywheel.stages.labelling.priors import full_log_odds
from flywheel.stages.labelling.votes import VOTE_COLUMNS, summed
from flywheel.stages.signals.rows import AUDIT, VERIFIER
from flywheel.stats.calibration import brier, expected_calibration_error
from flywheel.stats.delays import maturity
from flywheel.stats.missing import THUMBS_SENTENCE, inverse_response_mean, worst_case_bounds
from flywheel.stats.transport import Transport, transport_audit

_CHECKED = 20_000  # episodes with a recorded outcome on which the signals are checked
_SHOWN_GROUPS = 8
_MATURE = 0.8


def rewards_answer(ctx: Context) -> RewardsAnswer:
    """Return the state of the rewards.

    Raises:
        UsageError: nothing was built.
    """
    episodes = _episodes(ctx)
    if episodes.is_empty():
        raise UsageError("there are no returns yet", hint="flywheel ingest LOGS, then flywheel build")
    votes = _votes(ctx).join(episodes.filter(pl.col("basis") != "suspect"), on="episode_id", how="semi")
    table = read_table(ctx.store, "reliability").collect()
    belief = Posterior.read(table)
    notes = table.filter(pl.col("kind") == "warning").sort("name")["note"].to_list()
    return RewardsAnswer(
        episodes=episodes.height,
        known=episodes.filter("known").height,
        provisional=episodes.filter("provisional").height,
        audited=episodes.filter(pl.col("basis") == AUDIT).height,
        verified=episodes.filter(pl.col("basis") == VERIFIER).height,
        suspect=episodes.filter(pl.col("basis") == "suspect").height,
        graded=episodes.filter("graded").height,
        prior=round(belief.prior("all"), 4),
        warnings=[*notes, *_without_range(ctx)],
        signals=list(_signals(episodes, votes, belief)),
        calibration=list(_calibrations(episodes, votes, belief)),
        transport=[TransportRow(by=by, **t._asdict()) for by, results in transport(ctx).items() for t in results],
        ratings=_ratings(episodes, votes),
        accounts=accounts(ctx),
        sources=list(sources(ctx, belief)),
        verification=verification(ctx, votes, table, episodes.height),
        groups=[row for by in ("policy", "intent", "month") for row in _groups(episodes, by)],
    )


def _without_range(ctx: Context) -> Iterator[str]:
    """Yield a note on each kind of outcome with values outside 0 to 1 whose range nothing states."""
    cfg = ctx.config.rewards
    fields = {name: pl.col("payload").str.json_path_match(f"$.{name}") for name in ("name", "value", "scale", "adds")}
    outcomes = read_table(ctx.store, "events").filter(pl.col("kind") == EventKind.OUTCOME.value)
    stated = outcomes.select("conversation_id", "event_id", **fields).filter(pl.col("scale").is_null())
    one = pl.when(pl.col("adds") == "true").then("conversation_id").otherwise("event_id")  # what adds up is one outcome
    value = pl.col("value").cast(pl.Float64, strict=False)
    values = stated.group_by("name", one=one).agg(value=value.sum())
    ranges = values.group_by("name").agg(
        n=pl.len(),
        low=pl.col("value").min(),
        high=pl.col("value").max(),
        above=(pl.col("value") > 1).sum(),
        below=(pl.col("value") < 0).sum(),
    )
    for name, n, low, high, above, below in ranges.sort("name").collect().iter_rows():
        plain = plain_name(name)
        if (above or below) and plain not in cfg.score_names and plain not in cfg.success_at:
            shown = ((above, "above 1 are unknown"), (below, "below 0 are the worst"))
            counts = [f"{several:,} {what}" for several, what in shown if several]
            yield (
                f"{n:,} outcomes `{plain}` are from {low:g} to {high:g}: {', '.join(counts)}; "
                f"state their range: [rewards.score_names] {plain} = [WORST, BEST]"
            )


def _episodes(ctx: Context) -> pl.DataFrame:
    """Return one row an episode: its return, its policy, user, intent and month."""
    returns = read_table(ctx.store, "returns").filter(pl.col("step").is_null())
    columns = ("episode_id", "p_success", "p_raw", "known", "basis", "provisional", "maturity")
    episodes = read_table(ctx.store, "episodes")
    month = pl.col("started").dt.strftime("%Y-%m").fill_null("(no time)")
    return (
        episodes.select("episode_id", "policy", "user", month=month)
        .join(returns.select(columns), on="episode_id")
        .join(success(ctx.store).select("episode_id", "success", "graded"), on="episode_id")
        .join(intents(ctx), on="episode_id", how="left")
        .with_columns(pl.col("intent").fill_null(TALK))
        .sort("episode_id")
        .collect()
    )


def _votes(ctx: Context) -> pl.DataFrame:
    rewards = read_table(ctx.store, "rewards")
    voting = rewards.filter(pl.col("kind").is_in(["outcome", "implicit"]) & (pl.col("weight") > 0))
    return summed(voting.select(VOTE_COLUMNS).collect())


def _signals(episodes: pl.DataFrame, votes: pl.DataFrame, belief: Posterior) -> Iterator[SignalRow]:
    """Yield each signal and sign: how often it votes, how often known outcomes agree, what a vote is worth."""
    truth = _truth(votes)
    sign = pl.when(pl.col("score") > 0).then(1).otherwise(-1)
    cast = votes.filter((pl.col("score") != 0) & (pl.col("family") != AUDIT)).with_columns(sign=sign)
    right = pl.when(pl.col("sign") > 0).then(pl.col("truth")).otherwise(1 - pl.col("truth"))
    counted = (
        cast.join(truth, on="episode_id", how="left")
        .with_columns(right=pl.when(pl.col("family") != VERIFIER).then(right))
        .group_by("family", "signal", "sign")
        .agg(votes=pl.len(), checked=pl.col("right").count(), agreement=pl.col("right").mean())
        .sort("family", "signal", "sign")
    )
    late = {row.signal: row for row in belief.late}
    for family, signal, way, n, checked, agreement in counted.iter_rows():
        rates, source = belief.rates_of("all", signal, way)
        yield SignalRow(
            signal=signal,
            sign=way,
            family=family,
            votes=n,
            coverage=round(n / episodes.height, 4),
            checked=checked,
            agreement=None if agreement is None or not checked else round(agreement, 4),
            odds=round(math.exp(full_log_odds(rates, way)), 3),
            source="decides alone" if family == VERIFIER else source,
            mature_after_s=_mature_after(late[signal]) if signal in late else None,
        )


def _mature_after(late: LateSignal) -> float:
    return next((t for t in late.delays.times if maturity(late.delays, t, late.horizon) >= _MATURE), late.horizon)


def _truth(votes: pl.DataFrame) -> pl.DataFrame:
    """Return the known outcomes: a reviewer's, else a verifier's."""
    known = votes.filter(pl.col("family").is_in([AUDIT, VERIFIER])).sort("episode_id", "family")
    first = known.unique("episode_id", keep="first", maintain_order=True)
    return first.select("episode_id", truth=(pl.col("score") + 1) / 2)


# --- calibration and transport ----------------------------------------------------------------------------------------


def _calibrations(episodes: pl.DataFrame, votes: pl.DataFrame, belief: Posterior) -> Iterator[CalibrationRow]:
    """Yield how far probabilities are off: on audited rows, and of the signals alone on rows with a verdict."""
    rows = [audited.row for audited in _audited(episodes, votes)]
    if rows:
        scores, answers, weights = columns_of(rows)
        yield _calibration("audit, before calibration", scores, answers, weights)
        yield _calibration("audit, after (cross-fitted)", cross_fitted_answers(rows), answers, weights)
    checked = list(_checked(votes, belief))
    if checked:
        seen = any(source == "fitted with gold" for _, source in belief.rates.values())
        yield _calibration(
            f"signals alone, on recorded outcomes{', which taught them' if seen else ''}",
            [p for p, _ in checked],
            [y for _, y in checked],
            [1.0] * len(checked),
        )


def _calibration(what: str, scores: list[float], truth: list[float], weights: list[float]) -> CalibrationRow:
    return CalibrationRow(
        what=what,
        n=len(scores),
        ece=round(expected_calibration_error(scores, truth, weights), 4),
        brier=round(brier(scores, truth, weights), 4),
    )


class _Audited(NamedTuple):
    """An audited episode, with what it is tested by."""

    row: Audited
    policy: str
    intent: str


def _audited(episodes: pl.DataFrame, votes: pl.DataFrame) -> list[_Audited]:
    spoke = votes.filter((pl.col("family") != AUDIT) & (pl.col("score") != 0))["episode_id"].unique()
    answers = votes.filter((pl.col("family") == AUDIT) & pl.col("inclusion").is_not_null())
    rows = (
        answers.select("episode_id", answer=(pl.col("score") + 1) / 2, weight=1 / pl.col("inclusion"))
        .join(episodes, on="episode_id")
        .with_columns(
            score=pl.col("p_raw").round(6),
            cluster=pl.coalesce("user", "episode_id"),
            silent=~pl.col("episode_id").is_in(spoke.implode()),
        )
        .sort("episode_id")
    )
    *columns, policy, intent = (rows[name] for name in (*Audited._fields, "policy", "intent"))
    audited_rows = (Audited(*values) for values in zip(*columns, strict=True))
    return [_Audited(*row) for row in zip(audited_rows, policy, intent, strict=True)]


def transport(ctx: Context) -> dict[str, list[Transport]]:
    """Return whether calibration holds for each policy and each of the most frequent intents, by the audit's answers.

    Keys "policy" and "intent"; empty lists without audited rows. Residuals are those of the cross-fitted calibration,
    clusters are users.
    """
    rows = _audited(_episodes(ctx), _votes(ctx))
    counts = Counter(row.intent for row in rows)
    top = sorted(counts, key=lambda name: (-counts[name], name))[:_SHOWN_GROUPS]
    facts = [audited.row for audited in rows]
    residuals = [row.answer - p for row, p in zip(facts, cross_fitted_answers(facts), strict=True)]
    weights, clusters = [row.weight for row in facts], [row.cluster for row in facts]
    named = [row.intent if row.intent in top else "(others)" for row in rows]
    return {
        "policy": transport_audit(residuals, weights, clusters, [row.policy for row in rows]),
        "intent": transport_audit(residuals, weights, clusters, named),
    }


def _checked(votes: pl.DataFrame, belief: Posterior) -> Iterator[tuple[float, float]]:
    """Yield P(success) by the other signals and the verifier's outcome, for episodes that have both."""
    verdicts = votes.filter(pl.col("family") == VERIFIER).group_by("episode_id").agg(y=(pl.col("score").mean() + 1) / 2)
    verdicts = verdicts.sort("episode_id").head(_CHECKED)
    others = votes.filter(~pl.col("family").is_in([AUDIT, VERIFIER]) & (pl.col("score") != 0))
    votes_of: dict[str, list[Vote]] = {}
    both = others.join(verdicts.select("episode_id"), on="episode_id", how="semi", maintain_order="left")
    for episode, *vote in both.select("episode_id", *Vote._fields).iter_rows():
        votes_of.setdefault(episode, []).append(Vote(*vote))
    for episode, y in verdicts.iter_rows():
        if episode in votes_of:
            yield belief.score(votes_of[episode]), y


# --- ratings and drift ------------------------------------------------------------------------------------------------


def _ratings(episodes: pl.DataFrame, votes: pl.DataFrame) -> RatingsRow | None:
    """Return bounds on the satisfaction over all episodes from the ratings; None without ratings."""
    rated = votes.filter((pl.col("signal") == "thumbs") & (pl.col("score") != 0))
    rated = rated.group_by("episode_id").agg(good=(pl.col("score").mean() > 0).cast(pl.Float64))
    if rated.is_empty():
        return None
    cells = (
        episodes.join(rated, on="episode_id", how="left")
        .group_by("policy", "intent", "month")
        .agg(n=pl.len(), answered=pl.col("good").count(), good=pl.col("good").sum())
        .sort("policy", "intent", "month")
    )
    rate, mean = rated.height / episodes.height, float(rated["good"].sum()) / rated.height
    low, high = worst_case_bounds(rate, mean)
    table = {f"{p}|{i}|{m}": (n, a, g) for p, i, m, n, a, g in cells.iter_rows()}
    weighted = inverse_response_mean(table)
    return RatingsRow(
        ratings=rated.height,
        response=round(rate, 4),
        mean=round(mean, 4),
        weighted_mean=None if weighted is None else round(weighted, 4),
        low=round(low, 4),
        high=round(high, 4),
        sentence=THUMBS_SENTENCE,
    )


def _groups(episodes: pl.DataFrame, by: str) -> Iterator[GroupRow]:
    """Yield the largest groups, months in order; drift is the group's mean P(success) minus that of all known."""
    known = pl.col("success").filter(pl.col("known"))
    counted = episodes.group_by(by).agg(n=pl.len(), known=pl.col("known").sum(), p=known.mean(), q=known.std(ddof=1))
    average = episodes.filter("known")["success"].mean()
    order = counted.sort(by) if by == "month" else counted.sort("n", by, descending=[True, False])
    for name, n, heard, p, spread in order.head(12 if by == "month" else _SHOWN_GROUPS).iter_rows():
        error = None if spread is None or not heard else spread / heard**0.5
        drift = None if p is None or not isinstance(average, float) else p - average
        yield GroupRow(
            by=by,
            name=name,
            episodes=n,
            known=heard,
            p_mean=None if p is None else round(p, 4),
            drift=None if drift is None else round(drift, 4),
            notable=bool(error and drift is not None and abs(drift) > 3 * error),
        )
