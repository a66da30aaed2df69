"""A canary: the same two policies, night after night, on fresh logs; continue, promote or roll back.

In: what both served since the last look. Out: a decision with its numbers, and one line in rounds/canary/<pair>.jsonl,
which holds everything that was looked at before: attempts are counted once, however often their log is read. Looking
often is safe: both verdicts come from e-processes, whose error holds over all looks together.

    harm     E of "worse by the margin" reaches 1/HARM_ALPHA                         → roll back
    counts   the new side's share of users is not the configured one                 → roll back
    errors   more than twice the old side's share of attempts with errors, 3 nights  → roll back
    better   E of "better" reaches 1/alpha, with enough attempts                      → promote
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flywheel.config import CanaryConfig
from flywheel.errors import StoreError, UsageError
from flywheel.io import hash_chain
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.logged_attempts import Log, choose, policy_of, read_attempts, read_store, scored_sides
from flywheel.present import count, margin, p_value, percent
from flywheel.records import content_id
from flywheel.results.deploy import CanaryAnswer
from flywheel.stages.evaluate.attempt import Attempt
from flywheel.stats.online import e_process
from flywheel.stats.sequence import confidence_sequence, sample_ratio_p

WINDOWS, TWICE, LEAST_WINDOW = 3, 2.0, 20
HARM_ALPHA = 0.01  # chance of a false alarm, over all looks
SHARE_P = 0.001  # p-value of the canary's share of users below which its counts are broken


class _Night(NamedTuple):
    """One look's fresh data."""

    differences: list[float]
    attempts: list[str]
    units: list[int]  # old, new
    sums: list[float]  # of scores, old and new
    counts: list[int]
    failed: list[int]  # attempts with a tool error


def watch(
    ctx: Context, logs: Sequence[Path], old: str | None, new: str | None, key: bytes, share: float | None = None
) -> CanaryAnswer:
    """Look at what is fresh and return what to do.

    Args:
        ctx: the project, locked.
        logs: the old side's files, then the new side's; one for both with the names; none for the project's own tables.
        old: policy or model of the old side.
        new: policy or model of the canary.
        key: of redaction.
        share: of users that the canary should get; None takes canary.share.

    Raises:
        UsageError: it is not clear which side is which.
        StoreError: the canary's file was changed.
    """
    sides = _sides(ctx, logs, old, new, key)
    names = (old or policy_of(sides[0]) or logs[0].name, new or policy_of(sides[1]) or logs[-1].name)
    scored, _, notes = scored_sides(sides)
    path = ctx.registry.root / "canary" / f"{content_id('canary', *names)[:12]}.jsonl"
    nights = _nights(path)
    known = {episode for night in nights for episode in night["attempts"]}
    fresh = _look(scored, known)
    if fresh.differences:
        entry = {"night": len(nights) + 1, "old": names[0], "new": names[1], **fresh._asdict()}
        hash_chain.append(path, entry, head=None)
        nights.append(entry)
    waiting = sum(a.score is None for log in scored for a in log.attempts)
    if waiting:
        notes.append(f"{count(waiting, 'attempt')} without an outcome yet, counted once there is one")
    cfg = ctx.config.canary if share is None else ctx.config.canary.model_copy(update={"share": share})
    return _answer(nights, names, cfg, notes, looked=bool(fresh.differences))


def _sides(ctx: Context, logs: Sequence[Path], old: str | None, new: str | None, key: bytes) -> tuple[Log, Log]:
    read = [read_attempts([path], ctx.config, ctx.project, key) for path in logs]
    if not read:
        read = [read_store(ctx)]
    if len(read) == 1 and (old is None or new is None):
        known = ", ".join(read[0].policies()) or "none"
        raise UsageError(
            "which is the old policy, which the canary?", hint=f"--old NAME --new NAME; policies here: {known}"
        )
    return choose(read[0], old, "old"), choose(read[-1], new, "new")


def _nights(path: Path) -> list[dict[str, Any]]:
    broken = hash_chain.breaks(path, head=None)
    if broken:
        raise StoreError(f"`{path}`: {broken[0]}", hint="restore it from a backup, or move it away and start again")
    return [json.loads(line) for line in hash_chain.lines_of(path)]


# --- one night -----------------------------------------------------------------------------------------------------


def _look(scored: tuple[Log, Log], known: set[str]) -> _Night:
    """Return the fresh attempts with an outcome as differences of blocks.

    A unit is a user's night, or an attempt where users are unknown: one user's attempts are alike. The larger side is
    cut into as many blocks of consecutive units as the smaller one has, so that every attempt counts.
    """
    fresh = [[a for a in log.attempts if a.score is not None and a.episode_id not in known] for log in scored]
    units = [_units(side) for side in fresh]
    pairs = min(len(side) for side in units)
    if pairs == 0:
        return _Night([], [], [0, 0], [0.0, 0.0], [0, 0], [0, 0])
    old, new = (list(_blocks(side, pairs)) for side in units)
    return _Night(
        differences=[round(b - a, 12) for a, b in zip(old, new, strict=True)],
        attempts=sorted(a.episode_id for side in fresh for a in side),
        units=[len(side) for side in units],
        sums=[math.fsum(a.score or 0.0 for a in side) for side in fresh],
        counts=[len(side) for side in fresh],
        failed=[sum(a.amounts.get("n_tool_errors", 0) > 0 for a in side) for side in fresh],
    )


def _units(attempts: Sequence[Attempt]) -> list[float]:
    """Return each unit's mean score, in an order that does not depend on scores."""
    scores: dict[str, list[float]] = {}
    for attempt in sorted(attempts, key=lambda a: a.episode_id):
        scores.setdefault(attempt.user or attempt.episode_id, []).append(attempt.score or 0.0)
    ordered = sorted(scores, key=lambda name: content_id("unit", name))
    return [math.fsum(scores[name]) / len(scores[name]) for name in ordered]


def _blocks(values: Sequence[float], n: int) -> Iterator[float]:
    for i in range(n):
        block = values[i * len(values) // n : (i + 1) * len(values) // n]
        yield math.fsum(block) / len(block)


# --- all nights ----------------------------------------------------------------------------------------------------


def _answer(
    nights: Sequence[dict[str, Any]], names: tuple[str, str], cfg: CanaryConfig, notes: list[str], *, looked: bool
) -> CanaryAnswer:
    differences = [x for night in nights for x in night["differences"]]
    totals = {
        name: [sum(night[name][side] for night in nights) for side in (0, 1)] for name in ("units", "sums", "counts")
    }
    better = max(e_process(differences), default=0.0)
    harm = max(e_process([-(x + cfg.margin) / (1 + cfg.margin) for x in differences]), default=0.0)
    ratio = sample_ratio_p(totals["units"][1], totals["units"][0], cfg.share) if cfg.share else None
    interval = confidence_sequence([(x + 1) / 2 for x in differences])
    if not cfg.share:
        notes = [*notes, "the canary's share of users is not configured (canary.share, --share): not checked"]
    decision, reasons = _decide(nights, cfg, harm=harm, better=better, ratio=ratio)
    old, new = (totals["sums"][side] / max(1, totals["counts"][side]) for side in (0, 1))
    return CanaryAnswer(
        decision=decision,
        reasons=reasons,
        night=len(nights),
        looked=looked,
        old=names[0],
        new=names[1],
        n_old=totals["counts"][0],
        n_new=totals["counts"][1],
        pairs=len(differences),
        mean_old=old,
        mean_new=new,
        delta=math.fsum(differences) / len(differences) if differences else 0.0,
        low=2 * interval.low - 1,
        high=2 * interval.high - 1,
        log_e_harm=harm,
        log_e_better=better,
        sample_ratio_p=ratio,
        notes=notes,
    )


def _decide(
    nights: Sequence[dict[str, Any]], cfg: CanaryConfig, *, harm: float, better: float, ratio: float | None
) -> tuple[str, list[str]]:
    """Return the decision and its reasons; harm first."""
    canary = sum(night["counts"][1] for night in nights)
    against = []
    if harm >= math.log(1 / HARM_ALPHA):
        bound = count(1 / HARM_ALPHA)
        against.append(f"worse by {margin(cfg.margin)} or more: e-value {_e_value(harm)} >= {bound}")
    if ratio is not None and ratio < SHARE_P:
        against.append(
            f"the canary's share of users is not {percent(cfg.share)} (p {p_value(ratio)}), so the sides do not compare"
        )
    if _failing(nights):
        against.append(
            f"more than {TWICE:.0f} times the old share of attempts with errors, in {WINDOWS} looks in a row"
        )
    if against:
        return "roll_back", against
    if better >= math.log(1 / cfg.alpha) and canary >= cfg.least:
        on = count(canary, "canary attempt")
        return "promote", [f"better: e-value {_e_value(better)} >= {count(1 / cfg.alpha)}, on {on}"]
    few = f"; {count(canary)} of at least {count(cfg.least)} canary attempts" if canary < cfg.least else ""
    evidence = (
        f"e-value of harm {_e_value(harm)} of {count(1 / HARM_ALPHA)}, of better {_e_value(better)} of "
        f"{count(1 / cfg.alpha)}"
    )
    return "continue", [evidence + few]


def _e_value(log_e: float) -> str:
    return f"{math.exp(min(log_e, 700.0)):,.3g}"


def _failing(nights: Sequence[dict[str, Any]]) -> bool:
    last = nights[-WINDOWS:]
    return len(last) == WINDOWS and all(
        min(n["counts"]) >= LEAST_WINDOW
        and n["failed"][1] / n["counts"][1] > TWICE * max(n["failed"][0], 1) / n["counts"][0]
        for n in last
    )
