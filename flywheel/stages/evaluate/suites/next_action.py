"""The built-in evaluators: does the policy take a good next action, does it prefer what turned out better.

In: one policy and the held-out tables. Out: one score a metric and case. A case that does not fit the model's window is
never cut: its score is NaN and `slices["missing"]` gives the reason, so that `compare` counts it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from flywheel.config import EvalConfig
from flywheel.extensions import CaseScore, Generation, Holdout, Policy
from flywheel.messages import acts_of
from flywheel.records import Split
from flywheel.stages.common.canonical import action_key, call_key
from flywheel.stages.evaluate.cases import StateCase, capped, state_cases
from flywheel.stages.evaluate.checks.calls import same_calls
from flywheel.stages.evaluate.window import TOO_LONG, Ask, fits, no_log_probs, written_tokens

LIKE_LENGTH = 0.1

Tools = list[dict[str, Any]] | None


# --- next action ---------------------------------------------------------------------------------------------------


def next_action(policy: Policy, holdout: Holdout, cfg: EvalConfig) -> list[CaseScore]:
    """Score the policy's next action in held-out anchor states.

    Metrics: `next_action_good` (its calls are a known good action and not a bad one), `next_tool` (its tools are those
    of a good action), `well_formed` (its calls parse and name known tools).
    """
    cases = state_cases(holdout, cfg.max_cases)
    able_to = fits(policy, [Ask(c.prompt, c.tools) for c in cases], cfg.max_new_tokens)
    able = [case for case, fit in zip(cases, able_to, strict=True) if fit]
    generated = policy.generate([c.prompt for c in able], [c.tools for c in able], max_new_tokens=cfg.max_new_tokens)
    written = {case.case_id: generation for case, generation in zip(able, generated, strict=True)}
    return [score for case in cases for score in _action_scores(case, written.get(case.case_id))]


def _action_scores(case: StateCase, answer: Generation | None) -> list[CaseScore]:
    if answer is None:
        values, slices = (
            dict.fromkeys(("next_action_good", "next_tool", "well_formed"), math.nan),
            {"missing": TOO_LONG},
        )
    else:
        calls = list(answer.message.get("tool_calls") or [])
        known = [way for ways in case.good.values() for way in ways]
        values = {
            "next_action_good": float(_among(calls, case.good, case.tools) and not _among(calls, case.bad, case.tools)),
            "next_tool": float(any(_tools_of(calls) == _tools_of(k) for k in known)),
            "well_formed": float(answer.well_formed),
        }
        slices = {"tool": case.tool}
    did = acts_of([answer.message]) if answer is not None else ""
    scores = [
        CaseScore(
            case.case_id, case.task_id, metric, value, primary=metric == "next_action_good", slices=slices, did=did
        )
        for metric, value in values.items()
    ]
    return [*scores, *written_tokens(case.case_id, case.task_id, answer)]


def _tools_of(calls: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(str(c["name"]) for c in calls)


def _among(calls: list[dict[str, Any]], actions: dict[str, list[list[dict[str, Any]]]], tools: Tools) -> bool:
    """Return whether the calls are one of the actions.

    By the key that makes logged actions equal; or argument by argument, which knows optional arguments and their
    defaults.
    """
    if not calls or any(c.get("arguments") is None for c in calls):
        return False
    if action_key([call_key(c) for c in calls]) in actions:
        return True
    return any(same_calls(calls, way, tools) for ways in actions.values() for way in ways)


# --- preference ----------------------------------------------------------------------------------------------------


def preference(policy: Policy, holdout: Holdout, cfg: EvalConfig) -> list[CaseScore]:
    """Score whether the policy gives the better action of a held-out pair the higher log-probability.

    Reference-free: sums over the action's tokens, with no other policy's subtracted. A sum favours short actions, so
    two metrics control for length: `preference_like_length` of pairs whose sides differ by at most a tenth in tokens,
    and `preference_length_controlled` of all pairs, with what length alone explains taken off (`length_slopes`). The
    newest third of the pairs, by when the better action's episode began, is the slice time=newest third.
    """
    held = holdout.pairs.filter(pl.col("split") == Split.HOLDOUT.value)
    rows = {row["pair_id"]: row for row in held.iter_rows(named=True)}
    known = {pair_id for pair_id, row in rows.items() if row["task_id"] in holdout.known}
    pairs = [rows[pair_id] for pair_id in capped(rows, cfg.max_cases, known)]
    if why := no_log_probs(policy):
        return [_missing(pair, why) for pair in pairs]
    asks = [_asks(pair) for pair in pairs]
    flat = [ask for both in asks for ask in both]
    read = fits(policy, flat, 0)
    able = [i for i in range(len(pairs)) if read[2 * i] and read[2 * i + 1]]
    scores = _log_probs(policy, [ask for i in able for ask in asks[i]])
    both = [_Both(*scores[2 * k], *scores[2 * k + 1]) for k in range(len(able))]
    slopes = length_slopes([b.ahead for b in both], [b.longer for b in both])
    scored = dict(zip(able, zip(both, slopes, strict=True), strict=True))
    newest = _newest(rows, holdout)
    return [s for i, pair in enumerate(pairs) for s in _pair_scores(pair, scored.get(i), pair["pair_id"] in newest)]


class _Both(NamedTuple):
    """Log-probability and tokens of a pair's better and worse action."""

    better: float
    n_better: int
    worse: float
    n_worse: int

    @property
    def ahead(self) -> float:
        """Nats by which the better action is more likely."""
        return self.better - self.worse

    @property
    def longer(self) -> int:
        """Tokens by which it is longer."""
        return self.n_better - self.n_worse


def length_slopes(ahead: Sequence[float], longer: Sequence[int]) -> list[float]:
    """Return for each pair what a token of length is worth in nats, learned from all other pairs.

    Least squares through the origin, because the sign of a pair is only a matter of naming: b = Σ d·l / Σ l², d the
    difference of log-probabilities, l that of lengths. A pair is left out of its own slope, which could otherwise
    explain it away. 0 where no other pair differs in length.
    """
    both = math.fsum(d * n for d, n in zip(ahead, longer, strict=True))
    squares = sum(n * n for n in longer)
    return [(both - d * n) / (squares - n * n) if squares > n * n else 0.0 for d, n in zip(ahead, longer, strict=True)]


def _newest(rows: dict[str, dict[str, Any]], holdout: Holdout) -> set[str]:
    """Return the newest third of the pairs, where their episodes' times are known and differ."""
    started = dict(holdout.episodes.select("episode_id", "started").iter_rows())
    times = {pair_id: started.get(row["chosen_episode"]) for pair_id, row in rows.items()}
    known = sorted(time for time in times.values() if time is not None)
    if not known or known[0] == known[-1]:
        return set()
    edge = known[len(known) * 2 // 3]
    return {pair_id for pair_id, time in times.items() if time is not None and time >= edge}


def _asks(pair: dict[str, Any]) -> tuple[Ask, Ask]:
    prompt, tools = json.loads(pair["prompt"]), json.loads(pair["tools"]) if pair["tools"] is not None else None
    better, worse = (Ask(prompt, tools, json.loads(pair[side])[-1]) for side in ("chosen", "rejected"))
    return better, worse


def _log_probs(policy: Policy, asks: Sequence[Ask]) -> list[tuple[float, int]]:
    completions = [a.completion for a in asks if a.completion is not None]
    return policy.log_prob([a.prompt for a in asks], [a.tools for a in asks], completions)


def _pair_scores(pair: dict[str, Any], scores: tuple[_Both, float] | None, newest: bool) -> list[CaseScore]:  # noqa: FBT001
    case_id, task_id = pair["pair_id"], pair["task_id"]
    if scores is None:
        return [_missing(pair, TOO_LONG)]
    both, slope = scores
    slices = {"builder": str(pair["builder"])} | ({"time": "newest third"} if newest else {})
    values = {
        "preference_accuracy": both.ahead,
        "preference_length_controlled": round(both.ahead - slope * both.longer, 9),
    }
    if abs(both.longer) <= LIKE_LENGTH * max(both.n_better, both.n_worse):
        values["preference_like_length"] = both.ahead
    return [
        CaseScore(case_id, task_id, metric, float(value > 0), primary=metric == "preference_accuracy", slices=slices)
        for metric, value in values.items()
    ]


def _missing(pair: dict[str, Any], why: str) -> CaseScore:
    case_id, task_id = pair["pair_id"], pair["task_id"]
    return CaseScore(case_id, task_id, "preference_accuracy", math.nan, primary=True, slices={"missing": why})
