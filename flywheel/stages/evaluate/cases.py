"""Held-out tables → cases: anchor states whose good actions are known from how the logged attempts ended.

An anchor state makes a case if some logged action in it turned out well; what is good is decided by credit, not by what
the log did, because logs contain mistakes. The cap is by hash: the same holdout gives the same cases, and one more task
changes few of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

from flywheel.extensions import Holdout
from flywheel.records import ToolStatus, content_id
from flywheel.stages.datasets.context import contexts, needing_images
from flywheel.stages.values.keys import asked

GOOD_CREDIT = 0.1
SUPPORT = 2  # episodes through an action before its credit counts
SUCCEEDED = 0.7
FAILED = 0.3

StepKey = tuple[str, int]
Calls = list[dict[str, Any]]


@dataclass(frozen=True)
class StateCase:
    """One anchor state: what the agent saw, and which next actions are known to be good or bad."""

    case_id: str  # the state's key
    task_id: str
    prompt: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    good: dict[str, list[Calls]]  # action key → the calls as logged, one for each way they were written
    bad: dict[str, list[Calls]]
    tool: str  # what the good action of the shown attempt calls first


class _LoggedAction(NamedTuple):
    """One logged action in a state."""

    key: StepKey
    action_key: str
    sound: bool  # parsed, and no call failed
    named: str  # what its request names that other requests of the task do not
    p_success: float | None  # None when nothing is known of the episode
    credit: float | None
    support: int


@dataclass
class _State:
    task_id: str
    actions: list[_LoggedAction] = field(default_factory=list)
    good: frozenset[str] = frozenset()
    bad: frozenset[str] = frozenset()

    def label(self) -> None:
        """Fill in the good and the bad actions."""
        by_action: dict[str, list[_LoggedAction]] = {}
        for m in self.actions:
            by_action.setdefault(m.action_key, []).append(m)
        bad = {a for a, logged in by_action.items() if _is_bad(logged)}
        good = {a for a, logged in by_action.items() if _is_credited(logged)}
        good = good or {a for a, logged in by_action.items() if any(_succeeded(m) for m in logged)}
        self.good, self.bad = frozenset(good - bad), frozenset(bad)

    def shown(self) -> StepKey:
        """Return the attempt whose context represents the state: the first that took a good action well."""
        able = [m for m in self.actions if m.action_key in self.good]
        return min(able, key=lambda m: (not _succeeded(m), not m.sound, m.key)).key


def _credit(logged: Sequence[_LoggedAction]) -> float | None:
    known = [m.credit for m in logged if m.credit is not None]
    return sum(known) / len(known) if known else None


def _is_credited(logged: Sequence[_LoggedAction]) -> bool:
    credit = _credit(logged)
    supported = credit is not None and credit >= GOOD_CREDIT and max(m.support for m in logged) >= SUPPORT
    return supported and any(m.sound for m in logged)


def _is_bad(logged: Sequence[_LoggedAction]) -> bool:
    credit, known = _credit(logged), [m.p_success for m in logged if m.p_success is not None]
    return (credit is not None and credit <= -GOOD_CREDIT) or (bool(known) and max(known) <= FAILED)


def _succeeded(action: _LoggedAction) -> bool:
    return action.sound and action.p_success is not None and action.p_success >= SUCCEEDED


def _states(holdout: Holdout) -> dict[str, _State]:
    outcomes = holdout.returns.filter(pl.col("step").is_null() & pl.col("known")).select("episode_id", "p_success")
    exact = pl.col("level") == 0  # what a tool was worth elsewhere does not show whether this call is right
    credit = holdout.returns.filter(pl.col("step").is_not_null() & exact).select(
        "episode_id", pl.col("step").alias("index"), pl.col("value").alias("credit"), "n_support"
    )
    failed = pl.col("tool_status").list.contains(ToolStatus.FAILED.value)
    rows = (
        holdout.steps.filter(pl.col("action_key").is_not_null())
        .join(asked(holdout.episodes, holdout.steps).select("episode_id", "named"), on="episode_id")
        .join(needing_images(holdout.steps), on=["episode_id", "index"], how="anti")
        .join(outcomes, on="episode_id", how="left")
        .join(credit, on=["episode_id", "index"], how="left")
        .with_columns(sound=~(pl.col("malformed") | failed), n_support=pl.col("n_support").fill_null(0))
        .sort("episode_id", "index")
        .select(
            "state_key",
            "task_id",
            "episode_id",
            "index",
            "action_key",
            "sound",
            "named",
            "p_success",
            "credit",
            "n_support",
        )
    )
    states: dict[str, _State] = {}
    for state_key, task_id, episode, index, *rest in rows.iter_rows():
        states.setdefault(state_key, _State(task_id)).actions.append(_LoggedAction((episode, index), *rest))
    return states


def capped(ids: Iterable[str], most: int, last: Collection[str] = ()) -> list[str]:
    """Return at most so many ids, chosen by hash, sorted: the choice depends on nothing but the ids.

    Args:
        ids: what to choose from.
        most: how many.
        last: ids that are chosen only when no others are left.
    """
    order = sorted(ids, key=lambda i: (i in last, hashlib.sha256(f"case:{i}".encode()).hexdigest()))
    return sorted(order[:most])


def state_cases(holdout: Holdout, most: int) -> list[StateCase]:
    """Return the cases, sorted by id: one for each anchor state in which a good tool call is known.

    An action is good if its mean credit is at least +.1 with two or more episodes through it; where no action is, those
    that succeeded in an episode of P(success) >= .7 are. Bad are actions of mean credit -.1 or less, and those of
    hopeless episodes (P(success) <= .3) only; bad wins. A call that failed or did not parse is never good.
    """
    states = _states(holdout)
    for state in states.values():
        state.label()
    known = {key for key, state in states.items() if state.task_id in holdout.known}
    chosen = capped((key for key, state in states.items() if state.good), most, known)
    shown = {key: states[key].shown() for key in chosen}
    prompts = contexts(holdout.steps, set(shown.values()))
    wanted = [
        m.key for key in chosen for m in states[key].actions if m.action_key in states[key].good | states[key].bad
    ]
    wanted_ids = sorted({episode for episode, _ in wanted})
    logged = holdout.steps.filter(pl.col("episode_id").is_in(wanted_ids)).select("episode_id", "index", "action")
    actions = {(row[0], row[1]): row[2] for row in logged.iter_rows()}
    tools = dict(holdout.episodes.select("episode_id", "tools").iter_rows())
    return [_case(key, states[key], shown[key], _Texts(prompts[shown[key]].prompt, actions, tools)) for key in chosen]


class _Texts(NamedTuple):
    """JSON texts of the log that a case is made from."""

    prompt: str
    actions: dict[StepKey, str]
    tools: dict[str, str | None]


def _calls(action: str) -> Calls:
    return list(json.loads(action).get("tool_calls") or [])


def _case(state_key: str, state: _State, shown: StepKey, texts: _Texts) -> StateCase:
    named = next(m.named for m in state.actions if m.key == shown)

    def written(actions: frozenset[str]) -> dict[str, list[Calls]]:
        ways: dict[str, dict[str, Calls]] = {}
        for m in state.actions:  # order 7 is not refunded by refunding order 9
            if m.action_key in actions and m.named == named and (m.sound or m.action_key in state.bad):
                calls = _calls(texts.actions[m.key])
                text = content_id([[c["name"], c.get("arguments")] for c in calls])
                ways.setdefault(m.action_key, {}).setdefault(text, calls)
        return {action: list(texts_of.values()) for action, texts_of in sorted(ways.items())}

    tools = texts.tools.get(shown[0])
    return StateCase(
        case_id=state_key,
        task_id=state.task_id,
        prompt=json.loads(texts.prompt),
        tools=json.loads(tools) if tools is not None else None,
        good=written(state.good),
        bad=written(state.bad),
        tool=str(_calls(texts.actions[shown])[0]["name"]),
    )


def holdout_sha256(holdout: Holdout) -> str:
    """Identify the held-out tables. A suite's own files (a plugin's cases in the project's folder) are not covered."""
    frames = (holdout.episodes, holdout.steps, holdout.returns, holdout.pairs, holdout.scenarios, holdout.fixtures)
    texts = [frame.write_ndjson() for frame in frames if frame is not None]
    tables = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in texts]
    return content_id(tables)
