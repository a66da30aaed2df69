"""A canary: the same two policies, night after night, on fresh logs; continue, promote or roll back.

In: what both served since the last look. Out: a decision with its numbers, and one line in rounds/canary/<pair>.jsonl,
which holds everything that was looked at before: attempts are counted once, however often their log is read. Looking
often is safe: both verdicts come from e-processes, whose error holds over all looks together, and a user who comes back
is one unit (`stages.gate.canary`). What the old policy did before the day on which the canary began is not compared: it
shows which users are alike.

    harm     E of "worse by the margin" reaches 1/HARM_ALPHA                         → roll back
    counts   the new side's share of users is not the configured one                 → roll back
    errors   more than twice the old side's share of attempts with errors, 3 nights  → roll back
    better   E of "better" reaches 1/alpha, with enough attempts                      → promote
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flywheel.config import CanaryConfig
from flywheel.errors import StoreError, UsageError
from flywheel.io import hash_chain
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.logged_attempts import (
    Log,
    by_probability,
    choose,
    policy_of,
    read_attempts,
    read_store,
    scored_sides,
)
from flywheel.present import count, margin, p_value, percent
from flywheel.records import content_id
from flywheel.results.deploy import CanaryAnswer
from flywheel.stages.evaluate.attempt import Attempt
from flywheel.stages.gate.canary import (
    TWICE,
    Sides,
    confidence_sequence,
    differences,
    log_e_better,
    log_e_failing,
    log_e_harm,
    sample_ratio_p,
    share_level,
)

WINDOWS, LEAST_WINDOW = 3, 20
HARM_ALPHA = 0.01  # chance of a false alarm, over all looks


class _Night(NamedTuple):
    """One look's fresh data."""

    old: dict[str, tuple[float, int]]  # unit → (sum of its scores, attempts); a user by a hash
    new: dict[str, tuple[float, int]]
    before: dict[str, tuple[float, int]]  # the same from before the canary
    began: str  # day of the canary's first attempt; '' where none is known
    attempts: list[str]
    failed: list[dict[str, int]]  # attempts with a tool error by unit, old and new


def watch(  # noqa: PLR0913 - one parameter an option
    ctx: Context,
    logs: Sequence[Path],
    old: str | None,
    new: str | None,
    key: bytes,
    *,
    share: float | None = None,
    before: Sequence[Path] = (),
) -> CanaryAnswer:
    """Look at what is fresh and return what to do.

    Args:
        ctx: the project, locked.
        logs: the old side's files, then the new side's; one for both with the names; none for the project's own tables.
        old: policy or model of the old side.
        new: policy or model of the canary.
        key: of redaction.
        share: of users that the canary should get; None takes canary.share.
        before: logs from before the canary, of any policy.

    Raises:
        UsageError: it is not clear which side is which.
        StoreError: the canary's file was changed.
    """
    if share is not None and not 0 <= share < 1:
        raise UsageError(f"--share {share:g} is not a share of users", hint="a number from 0 to below 1, such as 0.05")
    if old is not None and old == new and len(logs) < len(("old", "new")):
        raise UsageError(f"--old and --new are both `{old}`", hint="name two policies, or the logs of each side")
    sides = _sides(ctx, logs, old, new, key)
    names = (old or policy_of(sides[0]) or logs[0].name, new or policy_of(sides[1]) or logs[-1].name)
    scored, outcome, notes = scored_sides(sides)
    ledger = f"canary/{content_id('canary', *names)[:12]}.jsonl"
    nights = _nights(ctx.registry.root / ledger)
    known = {episode for night in nights for episode in night["attempts"]}
    earlier = [read_attempts([path], ctx.config, ctx.project, key) for path in before]
    earlier = earlier if outcome == "recorded" else [by_probability(log) for log in earlier]
    began = nights[0].get("began", "") if nights else _began(scored, notes)
    fresh = _look(scored, [a for log in earlier for a in log.attempts], known, began)
    if fresh.old or fresh.new or fresh.before:
        entry = {"night": len(nights) + 1, "old": names[0], "new": names[1], **fresh._asdict()}
        ctx.registry.record(ledger, entry)
        nights.append(entry)
    waiting = sum(a.score is None for log in scored for a in log.attempts)
    if waiting:
        notes.append(f"{count(waiting, 'attempt')} without an outcome yet, counted once there is one")
    cfg = ctx.config.canary if share is None else ctx.config.canary.model_copy(update={"share": share})
    return _answer(nights, names, cfg, notes, looked=bool(fresh.old or fresh.new or fresh.before))


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
    nights = [json.loads(line) for line in hash_chain.lines_of(path)]
    if any("differences" in night for night in nights):
        raise StoreError(
            f"`{path}` is of a version that counted a user who came back as another",
            hint="move it away and start again",
        )
    return nights


# --- one night -----------------------------------------------------------------------------------------------------


def _began(sides: tuple[Log, Log], notes: list[str]) -> str:
    """Return the day of the canary's first attempt; '' where it is unknown, or where no side served with the other.

    Policies that served one after the other, other users each, are compared as they are: nothing else is there.
    """
    began = min((day for a in sides[1].attempts if (day := _day(a))), default="")
    users = [{a.user for a in log.attempts} - {None} for log in sides]
    if not began or users[0] & users[1] or not all(_day(a) and _day(a) < began for a in sides[0].attempts):
        return began
    notes.append("the old side's attempts all lie before the canary's: what changed between them counts too")
    return ""


def _day(attempt: Attempt) -> str:
    return attempt.columns.get("started", "")[:10]


def _look(scored: tuple[Log, Log], earlier: Sequence[Attempt], known: set[str], began: str) -> _Night:
    """Return the fresh attempts with an outcome by unit: the user, or the attempt where users are unknown."""
    old, new = ([a for a in log.attempts if a.score is not None and a.episode_id not in known] for log in scored)
    past = [a for a in old if "" < _day(a) < began]
    old = [a for a in old if not "" < _day(a) < began]
    compared = known | {a.episode_id for a in (*old, *new)}
    fitting = (a for a in earlier if a.score is not None and a.episode_id not in compared)
    past += [a for a in fitting if not began or _day(a) < began]
    past = [a for a in {a.episode_id: a for a in past}.values() if a.user]
    return _Night(
        old=_units(old),
        new=_units(new),
        before=_units(past),
        began=began,
        attempts=sorted(a.episode_id for a in (*old, *new, *past)),
        failed=[
            dict(sorted(Counter(_unit(a) for a in side if a.amounts.get("n_tool_errors", 0) > 0).items()))
            for side in (old, new)
        ],
    )


def _units(attempts: Sequence[Attempt]) -> dict[str, tuple[float, int]]:
    scores: dict[str, list[float]] = {}
    for attempt in sorted(attempts, key=lambda a: a.episode_id):
        scores.setdefault(_unit(attempt), []).append(attempt.score or 0.0)
    return {unit: (math.fsum(values), len(values)) for unit, values in sorted(scores.items())}


def _unit(attempt: Attempt) -> str:
    return content_id("unit", attempt.user) if attempt.user else attempt.episode_id


def _counts(night: dict[str, Any]) -> list[int]:
    """Return the attempts of the old and the new side."""
    return [sum(attempts for _, attempts in night[side].values()) for side in ("old", "new")]


# --- all nights ----------------------------------------------------------------------------------------------------


def _answer(
    nights: Sequence[dict[str, Any]], names: tuple[str, str], cfg: CanaryConfig, notes: list[str], *, looked: bool
) -> CanaryAnswer:
    sides = [Sides(night["old"], night["new"], night.get("before", {})) for night in nights]
    counts = [sum(_counts(night)[side] for night in nights) for side in (0, 1)]
    served = [{unit for night in sides for unit in night[side]} for side in (0, 1)]
    users = [len(units) for units in served]
    earlier = {unit for night in sides for unit in night.before}
    sums = [math.fsum(total for night in sides for total, _ in night[side].values()) for side in (0, 1)]
    better, harm = log_e_better(sides), log_e_harm(sides, cfg.margin)
    waits = not counts[0] and bool(earlier)  # for logs of the old side from the canary's days
    ratio = sample_ratio_p(users[1], users[0], cfg.share) if cfg.share and not waits else None
    bounds = confidence_sequence(sides)
    if waits:
        notes = [*notes, "nothing is compared: every attempt of the old side is from before the canary's first day"]
    if not cfg.share:
        notes = [*notes, "the canary's share of users is not configured (canary.share, --share): not checked"]
    decision, reasons = _decide(nights, cfg, harm=harm, better=better, ratio=ratio)
    paired = differences(sides, len(sides))
    return CanaryAnswer(
        decision=decision,
        reasons=reasons,
        night=len(nights),
        looked=looked,
        old=names[0],
        new=names[1],
        n_old=counts[0],
        n_new=counts[1],
        pairs=len(paired),
        users=sum(users),
        users_before=len(earlier & {*served[0], *served[1]}),
        mean_old=sums[0] / max(1, counts[0]),
        mean_new=sums[1] / max(1, counts[1]),
        delta=math.fsum(paired) / len(paired) if paired else 0.0,
        low=bounds.low,
        high=bounds.high,
        log_e_harm=harm,
        log_e_better=better,
        sample_ratio_p=ratio,
        notes=notes,
    )


def _decide(
    nights: Sequence[dict[str, Any]], cfg: CanaryConfig, *, harm: float, better: float, ratio: float | None
) -> tuple[str, list[str]]:
    """Return the decision and its reasons; harm first."""
    canary = sum(_counts(night)[1] for night in nights)
    against = []
    if harm >= math.log(1 / HARM_ALPHA):
        bound = count(1 / HARM_ALPHA)
        against.append(f"worse by {margin(cfg.margin)} or more: e-value {_e_value(harm)} >= {bound}")
    if ratio is not None and ratio < share_level(len(nights)):
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
    """Return whether errors doubled in each of the last looks, and chance does not explain that, over all looks."""
    last = nights[-WINDOWS:]
    doubled = len(last) == WINDOWS and all(
        min(counts := _counts(night)) >= LEAST_WINDOW
        and (failed := [_sum(side) for side in night["failed"]])[1] / counts[1] > TWICE * max(failed[0], 1) / counts[0]
        for night in last
    )
    return doubled and log_e_failing([_errors(night) for night in nights]) >= math.log(1 / HARM_ALPHA)


def _sum(failed: dict[str, int] | int) -> int:
    return failed if isinstance(failed, int) else sum(failed.values())


def _errors(night: dict[str, Any]) -> Sides:
    """Return one look's attempts with an error; nothing of a look whose line does not say whose they were."""
    if any(isinstance(failed, int) for failed in night["failed"]):
        return Sides({}, {})
    sides = zip((night["old"], night["new"]), night["failed"], strict=True)
    return Sides(*({unit: (failed.get(unit, 0), n) for unit, (_, n) in units.items()} for units, failed in sides))
