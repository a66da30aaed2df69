"""Why an episode got its reward, in sentences with numbers: each vote and what it is worth, what is missing, and when.

In: an episode with its rewards and returns, as `show` gives it. Out: lines for people.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl

from flywheel.pipeline.build.registry import STAGES, stage_of
from flywheel.pipeline.build.run import explain_stage
from flywheel.pipeline.context import Context
from flywheel.pipeline.inspect.explain_round import explain_gate, explain_round, explain_row
from flywheel.pipeline.inspect.show import show
from flywheel.results.inspect import ExplainAnswer
from flywheel.stages.gate import rule_names
from flywheel.stages.labelling.posterior import Belief, Vote, scope_of
from flywheel.stages.labelling.priors import PRAISE_ALONE
from flywheel.stats.delays import late_after_silence

Record = Mapping[str, Any]


def explain_episode(ctx: Context, record: Record) -> list[str]:
    """Return the sentences; `record` is an episode with its `rewards` and `returns`."""
    table = ctx.store.table("reliability", stage_of("reliability")).collect()
    belief = Belief.read(table)
    whole = next((r for r in record["returns"] if r["step"] is None), None)
    who = f"policy {record['policy']}, {record['stop_reason']}"
    lines = [f"episode {record['episode_id']}: {record['n_steps']} steps by {who}."]
    if whole is not None:
        lines += _value(ctx, whole, record)
        lines += _probability(ctx, whole, record, belief, table)
        lines += _waiting(record, belief)
        lines += _weight(whole)
    lines += _others(record)
    lines += [
        f"  step {r['step']}: credit {r['value']:+.3f}, luck {r['luck']:+.3f}, {r['n_support']} episodes"
        for r in record["returns"]
        if r["step"] is not None
    ]
    return lines


def _value(ctx: Context, whole: Record, record: Record) -> Iterator[str]:
    cfg = ctx.config.rewards
    if whole["basis"] == "suspect":
        yield "Its reward is suspect: what was recorded cannot have been earned. It counts for nothing, trains nothing."
    elif not whole["known"]:
        yield "Its outcome is not known: no signal voted; it trains nothing."
    elif cfg.scheme == "rules":
        yield f"R = {whole['value']:+.3f} by [rewards.rules]: {record['n_steps']} steps, risk {whole['risk']:.2f}."
    else:
        yield (
            f"R = {whole['value']:+.3f} = {cfg.alpha:g} x (2 x {whole['p_success']:.2f} - 1) - {cfg.beta:g} x cost "
            f"{whole['cost']:.2f} - {cfg.gamma:g} x risk {whole['risk']:.2f}."
        )


def _votes(record: Record) -> dict[tuple[str, str], tuple[Vote, list[Record]]]:
    """Return each signal's vote, summed over steps as `returns` does, with its rows."""
    rows: dict[tuple[str, str], list[Record]] = {}
    for row in record["rewards"]:
        if row["kind"] in {"outcome", "implicit"}:
            rows.setdefault((row["signal"], row["family"]), []).append(row)
    found = {}
    for key, mine in sorted(rows.items()):
        weights = math.fsum(r["weight"] for r in mine)
        score = math.fsum(r["score"] * r["weight"] for r in mine) / weights if weights else 0.0
        found[key] = Vote(*key, score, weights / len(mine)), mine
    return found


def _probability(ctx: Context, whole: Record, record: Record, belief: Belief, table: pl.DataFrame) -> Iterator[str]:
    votes = _votes(record)
    if not votes:
        return
    scope = scope_of(ctx.config.rewards.scope, _time(record["started"]), record["policy"])
    parts = {(part.vote.signal, part.vote.family): part for part in belief.parts([v for v, _ in votes.values()], scope)}
    by = {"audit": "a reviewer's answer", "verifier": "a recorded outcome, which decides alone"}.get(whole["basis"])
    number = whole["n_support"]
    start = f"P(success) {whole['p_success']:.2f} by " + (by or f"{number} signal{'s' if number != 1 else ''}")
    yield f"{start}, from {belief.prior(scope):.2f} before any vote:" if by is None else f"{start}:"
    for key, (vote, rows) in votes.items():
        evidence = ", ".join(e[:8] for row in rows for e in row["evidence"]) or "none"
        said = f"  {vote.signal} ({vote.family}) votes {vote.score:+.2f}{_where(rows)}"
        if vote.family in {"audit", "verifier"}:
            agrees = (vote.score > 0) == (whole["p_success"] > 0.5)  # noqa: PLR2004 (more likely than not)
            worth = "decides" if vote.family == whole["basis"] else "agrees" if agrees else "is overruled"
        elif key in parts:
            part = parts[key]
            worth = f"odds x {math.exp(part.log_odds):.2f} ({part.source})"
        else:
            worth = "says nothing"
        yield f"{said}: {worth}; evidence {evidence}"
    if by is None and whole["p_raw"] == PRAISE_ALONE:
        yield f"  Held at {PRAISE_ALONE}: praise alone proves no more."
    yield from _calibrated(whole, table)


def _where(rows: list[Record]) -> str:
    steps = [str(row["step"]) for row in rows if row["step"] is not None]
    return f" on step {', '.join(steps)}" if steps else ""


def _calibrated(whole: Record, table: pl.DataFrame) -> Iterator[str]:
    row = table.filter(pl.col("kind") == "calibration")
    if row.is_empty():
        yield "  Uncalibrated: too few episodes have been audited (flywheel audit)."
    elif whole["basis"] != "audit":
        n, ece = row["n"][0], row["value"][0]
        yield (
            f"  Calibrated from {whole['p_raw']:.2f} to {whole['p_success']:.2f} by {n} audited episodes "
            f"(ECE {ece:.3f}, cross-fitted)."
        )


def _waiting(record: Record, belief: Belief) -> Iterator[str]:
    """Yield what may still come: how much of it would have come by now, and when 80 % of it will have."""
    ended = _time(record["ended"])
    age = belief.age(ended)
    spoken = {r["signal"] for r in record["rewards"] if r["weight"] > 0}
    if age is None or ended is None:
        yield "Its log has no times: nothing is waited for."
        return
    for late, share in belief.waiting(spoken, age):
        ever = late.delays.at(late.horizon)
        come = late_after_silence(ever, share)
        if share < 1:
            due = next((t for t in late.delays.times if late.delays.at(t) >= 0.8 * ever), late.horizon)
            yield (
                f"  {late.signal} is silent so far, {age / 86400:.1f} d after the end: {share:.0%} of what comes has "
                f"come by then, P(it comes yet) {come:.3f}; 80 % by {_stamp(ended.timestamp() + due)}"
            )


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _weight(whole: Record) -> Iterator[str]:
    if not whole["known"]:
        return
    sure = abs(2 * whole["p_success"] - 1)
    yield (
        f"Weight {whole['weight']:.2f} = decided {sure:.2f} x mature {whole['maturity']:.2f} x trust "
        f"{whole['trust']:.2f}."
    )
    if whole["provisional"]:
        yield "It is too young to learn from: evidence may still come."


def _others(record: Record) -> Iterator[str]:
    for row in record["rewards"]:
        where = "episode" if row["step"] is None else f"step {row['step']}"
        evidence = ", ".join(e[:8] for e in row["evidence"]) or "none"
        if row["kind"] == "cost":
            yield f"  cost: {row['score']:g} {row['family']}, before it is compared with the task's other attempts"
        elif row["kind"] == "risk":
            yield f"  {row['signal']}: severity {row['score']:.2f} at {where}; evidence {evidence}"


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def explain(ctx: Context, subject: str) -> ExplainAnswer:
    """Explain in sentences with numbers: a stage's state, a round's verdict, an episode's reward, a row's origin.

    Raises:
        UsageError: no object has that name or id.
    """
    return ExplainAnswer(subject=subject, lines=_lines(ctx, subject))


def _lines(ctx: Context, subject: str) -> list[str]:
    if subject == "gate" or subject in rule_names(ctx.config.gate):
        return explain_gate(ctx, subject)
    if subject in {s.name for s in STAGES}:
        return explain_stage(ctx.store, ctx.config, subject)
    shown = show(ctx, subject)
    if shown.kind == "round":
        return explain_round(ctx, int(shown.record["round"]))
    if shown.kind == "episode":
        return explain_episode(ctx, shown.record)
    return explain_row(shown.kind, shown.record)
