"""The built-in evaluators: does the policy take a good next action, does it prefer what turned out better.

In: one policy and the held-out tables. Out: one score a metric and case. A case that does not fit the model's window is
never cut: its score is NaN and `slices["missing"]` says why, so that `compare` counts it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flywheel.extensions import CaseScore
from flywheel.records import Split
from flywheel.stages._canonical import action_key, call_key
from flywheel.stages.evaluate.cases import StateCase, capped, state_cases
from flywheel.stages.evaluate.fitting import TOO_LONG, Ask, fits, written_tokens
from flywheel.stages.evaluate.match import same_calls

if TYPE_CHECKING:
    from flywheel.config import EvalConfig
    from flywheel.extensions import Generation, Holdout, Policy

__all__ = ["next_action", "preference"]

LIKE_LENGTH = 0.1

Messages = list[dict[str, Any]]
Tools = list[dict[str, Any]] | None


# --- next action ---------------------------------------------------------------------------------------------------


def next_action(policy: Policy, holdout: Holdout, cfg: EvalConfig) -> list[CaseScore]:
    """Score the policy's greedy next action in held-out anchor states.

    Metrics: `next_action_good` (its calls are a known good action and not a bad one), `next_tool` (its tools are those
    of a good action), `well_formed` (its calls parse and name known tools).
    """
    cases = state_cases(holdout, cfg.max_cases)
    able_to = fits(policy, [Ask(c.prompt, c.tools) for c in cases], cfg.max_new_tokens)
    able = [case for case, fit in zip(cases, able_to, strict=True) if fit]
    made = policy.generate([c.prompt for c in able], [c.tools for c in able], max_new_tokens=cfg.max_new_tokens)
    written = {case.case_id: generation for case, generation in zip(able, made, strict=True)}
    return [score for case in cases for score in _action_scores(case, written.get(case.case_id))]


def _action_scores(case: StateCase, made: Generation | None) -> list[CaseScore]:
    if made is None:
        values, slices = (
            dict.fromkeys(("next_action_good", "next_tool", "well_formed"), math.nan),
            {"missing": TOO_LONG},
        )
    else:
        calls = list(made.message.get("tool_calls") or [])
        known = [made_so for ways in case.good.values() for made_so in ways]
        values = {
            "next_action_good": float(_among(calls, case.good, case.tools) and not _among(calls, case.bad, case.tools)),
            "next_tool": float(any(_tools_of(calls) == _tools_of(k) for k in known)),
            "well_formed": float(made.well_formed),
        }
        slices = {"tool": case.tool}
    scores = [
        CaseScore(case.case_id, case.task_id, metric, value, primary=metric == "next_action_good", slices=slices)
        for metric, value in values.items()
    ]
    return [*scores, *written_tokens(case.case_id, case.task_id, made)]


def _tools_of(calls: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(str(c["name"]) for c in calls)


def _among(calls: list[dict[str, Any]], actions: dict[str, list[list[dict[str, Any]]]], tools: Tools) -> bool:
    """Return whether the calls are one of the actions.

    By the key that makes logged actions equal, which folds case as anchor states do; or argument by argument, which
    knows optional arguments and their defaults.
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
    `preference_like_length` says the same of the pairs whose sides differ by at most a tenth in tokens.
    """
    import polars as pl

    held = holdout.pairs.filter(pl.col("split") == Split.HOLDOUT.value)
    rows = {row["pair_id"]: row for row in held.iter_rows(named=True)}
    spent = {pair_id for pair_id, row in rows.items() if row["task_id"] in holdout.spent}
    pairs = [rows[pair_id] for pair_id in capped(rows, cfg.max_cases, spent)]
    asks = [_asks(pair) for pair in pairs]
    flat = [ask for both in asks for ask in both]
    read = fits(policy, flat, 0)
    able = [i for i in range(len(pairs)) if read[2 * i] and read[2 * i + 1]]
    scores = _log_probs(policy, [ask for i in able for ask in asks[i]])
    found = {i: (scores[2 * k], scores[2 * k + 1]) for k, i in enumerate(able)}
    return [score for i, pair in enumerate(pairs) for score in _pair_scores(pair, found.get(i))]


def _asks(pair: dict[str, Any]) -> tuple[Ask, Ask]:
    prompt, tools = json.loads(pair["prompt"]), json.loads(pair["tools"]) if pair["tools"] is not None else None
    better, worse = (Ask(prompt, tools, json.loads(pair[side])[-1]) for side in ("chosen", "rejected"))
    return better, worse


def _log_probs(policy: Policy, asks: Sequence[Ask]) -> list[tuple[float, int]]:
    completions = [a.completion for a in asks if a.completion is not None]
    return policy.log_prob([a.prompt for a in asks], [a.tools for a in asks], completions)


def _pair_scores(pair: dict[str, Any], scores: tuple[tuple[float, int], tuple[float, int]] | None) -> list[CaseScore]:
    case_id, task_id = pair["pair_id"], pair["task_id"]
    if scores is None:
        slices = {"missing": TOO_LONG}
        return [CaseScore(case_id, task_id, "preference_accuracy", math.nan, primary=True, slices=slices)]
    (better, n_better), (worse, n_worse) = scores
    value, slices = float(better > worse), {"builder": str(pair["builder"])}
    found = [CaseScore(case_id, task_id, "preference_accuracy", value, primary=True, slices=slices)]
    if abs(n_better - n_worse) <= LIKE_LENGTH * max(n_better, n_worse):
        found.append(CaseScore(case_id, task_id, "preference_like_length", value, slices=slices))
    return found
