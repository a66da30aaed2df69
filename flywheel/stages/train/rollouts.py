"""TRL's side of the replay environment: the class that its `environment_factory` wants, and the rewards.

In: a round's scenarios. Out: an environment class whose methods are the tools, and a reward function that returns None
for every attempt whose end the log does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from flywheel.config import ReplayConfig
from flywheel.replay import Outcome, ReplayEnvironment, Scenario
from flywheel.stages.train.tokenizer import MALFORMED, OTHER_TOOL

OVER = "\x00over"  # instead of a result: the attempt ends here
_TAKEN = frozenset({"reset", "get_reward", OTHER_TOOL})


def method_names(scenarios: Sequence[Scenario]) -> list[str]:
    """Return the tools' names that can be methods of an environment."""
    names = {name for scenario in scenarios for name in scenario.tool_names}
    return sorted(name for name in names if name not in _TAKEN and not name.startswith("_"))


class Rollout:
    """One attempt, as TRL drives it; used again for the next one. It has no method that TRL could take for a tool."""

    attempt: ReplayEnvironment


class Rollouts:
    """The environment factory of a round, the rewards, and the outcomes of the newest batch's attempts."""

    def __init__(self, scenarios: Sequence[Scenario], cfg: ReplayConfig, ends: Collection[int]) -> None:
        self._scenarios = {scenario.scenario_id: scenario for scenario in scenarios}
        self._cfg, self._ends = cfg, frozenset(ends)
        self.outcomes: list[Outcome] = []
        self.factory = self._environment(method_names(scenarios))

    def _environment(self, names: Sequence[str]) -> type[Rollout]:
        """Return a class with a method for each tool; TRL finds them by looking at it."""

        def reset(rollout: Rollout, **row: Any) -> None:
            rollout.attempt = ReplayEnvironment(self._scenarios[row["scenario"]], self._cfg)

        def other(rollout: Rollout, name: str, arguments: dict[str, Any]) -> str:
            return _answer(rollout, name, arguments)

        other.__name__ = OTHER_TOOL
        methods = {"reset": reset, OTHER_TOOL: other, **{name: _method(name) for name in names}}
        return type("Replay", (Rollout,), methods)

    def rewards(
        self, completions: Sequence[Sequence[Mapping[str, Any]]], completion_ids: Sequence[Sequence[int]],
        environments: Sequence[Any], log_metric: Callable[[str, float], None], **_: Any,
    ) -> list[float | None]:  # fmt: skip
        """Return each attempt's reward, None where the log does not know it; a reward function as TRL wants it."""
        ended = zip(environments, completions, completion_ids, strict=True)
        self.outcomes = [self._outcome(one.attempt, messages, ids) for one, messages, ids in ended]
        for name, value in shares(self.outcomes).items():
            log_metric(name, value)
        return [outcome.reward for outcome in self.outcomes]

    def _outcome(
        self, attempt: ReplayEnvironment, messages: Sequence[Mapping[str, Any]], ids: Sequence[int]
    ) -> Outcome:
        last = messages[-1]
        if last.get(MALFORMED):
            return attempt.stop("malformed")
        if last.get("tool_calls") or last["role"] != "assistant" or ids[-1] not in self._ends:
            return attempt.stop("over budget")
        return attempt.finish(str(last.get("content") or ""))


def shares(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the shares of attempts by why they ended, and the calls an attempt."""
    why = Counter(outcome.why for outcome in outcomes)
    n, calls = len(outcomes), sum(outcome.calls for outcome in outcomes)
    return {
        "rewarded": why["ended"] / n,
        "missed": why["missed"] / n,
        "new_end": why["new end"] / n,
        "unknown": (why["missed"] + why["new end"]) / n,
        "malformed": why["malformed"] / n,
        "over_budget": why["over budget"] / n,
        "unrewarded": 1 - why["ended"] / n,
        "calls": calls / n,
        "calls_missed": why["missed"] / max(1, calls + why["missed"]),
    }


def _answer(rollout: Rollout, name: str, arguments: Mapping[str, Any]) -> str:
    result = rollout.attempt.call(name, arguments)
    return OVER if result is None else result.content


def _method(name: str) -> Callable[..., str]:
    def tool(rollout: Rollout, /, **arguments: Any) -> str:
        return _answer(rollout, name, arguments)

    tool.__name__ = name
    return tool
