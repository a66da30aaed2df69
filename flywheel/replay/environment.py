"""One attempt in the replay environment.

In: a scenario and, action by action, what a policy does. Out: recorded results, and at the end an outcome. What the log
does not know ends the attempt, with the reason and without a reward: 0 would teach to imitate the log, and a guess
would teach the guess.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flywheel.config import ReplayConfig
from flywheel.replay.keys import ANY, call_text, next_state, same_answer
from flywheel.replay.scenario import Ending, Recorded, Scenario

Why = Literal["ended", "missed", "new end", "malformed", "over budget"]
_CALL_ID = "call{:05d}"  # as in the prompts of all datasets


@dataclass(frozen=True)
class Outcome:
    """The outcome of an attempt.

    Attributes:
        reward: mean return of the recorded attempts that ended like this; None if there is none.
        success: their mean probability of success, in [0, 1]; None if there is none.
        why: "ended": the log knows this end; "missed": a call that was never recorded in this state; "new end": every
            call was, but no recorded attempt ended like this; "malformed": a call that did not parse; "over budget":
            too many calls, or cut off by the caller.
        calls: calls that were answered.
        tool: the tool of the call that was missed; '' otherwise.
    """

    reward: float | None
    success: float | None
    why: Why
    calls: int
    tool: str = ""

    @property
    def missed(self) -> bool:
        """Whether the attempt left the log, at a call or at its end."""
        return self.why in {"missed", "new end"}


class ReplayEnvironment:
    """One attempt at a scenario; `take` what the policy writes until there is an `outcome`.

    Args:
        scenario: where it starts and what is recorded.
        cfg: how many calls it may make, and from which overlap two answers are alike.
    """

    def __init__(self, scenario: Scenario, cfg: ReplayConfig) -> None:
        self.scenario = scenario
        self.state = scenario.state
        self.calls = 0
        self.outcome: Outcome | None = None
        self._cfg = cfg
        self._ids = sum(len(m.get("tool_calls") or ()) for m in scenario.prompt)

    @property
    def over(self) -> bool:
        """Whether the attempt has ended."""
        return self.outcome is not None

    @property
    def success(self) -> float | None:
        """Mean probability of success of the recorded attempts that ended like this one, in [0, 1]."""
        return self.outcome.success if self.outcome is not None else None

    def take(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Take an action; return the messages that it adds to the conversation: itself, and a result for each call.

        A message without calls ends the attempt. Where the log does not know a call the results end before it.

        Args:
            message: assistant message in the normal form (`Generation.message`).
        """
        calls = [dict(call) for call in message.get("tool_calls") or ()]
        for call in calls:
            call["id"], self._ids = _CALL_ID.format(self._ids), self._ids + 1
        action = {**message, "tool_calls": calls} if calls else dict(message)
        if not calls:
            self.finish(str(message.get("content") or ""))
        if any(call.get("arguments") is None for call in calls):
            self.stop("malformed")
        results: list[dict[str, Any]] = []
        for call in calls:
            recorded = None if self.over else self.call(call["name"], call["arguments"])
            if recorded is None:
                break
            results.append(
                {"role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": recorded.content}
            )
        return [action, *results]

    def call(self, name: str, arguments: Mapping[str, Any]) -> Recorded | None:
        """Return the recorded result of a call in this state; None, and the attempt is over, if there is none."""
        if self.over:
            return None
        if self.calls >= self._cfg.max_calls:
            self.stop("over budget")
            return None
        try:
            text = call_text(name, arguments)
        except ValueError:  # NaN: Python's parser takes it, JSON does not
            self.stop("malformed")
            return None
        known = self.scenario.calls
        text = text if (self.state, text) in known else f"{name} {ANY}"
        recorded = known.get((self.state, text))
        if recorded is None:
            self.stop("missed", tool=name)
            return None
        self.calls += 1
        if recorded.acts:
            self.state = next_state(self.state, text)
        return recorded

    def finish(self, answer: str) -> Outcome:
        """End the attempt with its answer to the user; return its outcome, as far as the log knows."""
        if self.outcome is None:
            known = [ending for ending in self.scenario.endings if self._fits(ending, answer)]
            exact = [ending for ending in known if same_answer(answer, ending.answer, 1.0)]
            self.outcome = self._worth(exact or known)
        return self.outcome

    def stop(self, why: Why, *, tool: str = "") -> Outcome:
        """End the attempt without a reward."""
        if self.outcome is None:
            self.outcome = Outcome(None, None, why, self.calls, tool)
        return self.outcome

    def _fits(self, ending: Ending, answer: str) -> bool:
        if ending.state != self.state:
            return False
        return self.scenario.judged_by == "state" or same_answer(answer, ending.answer, self._cfg.min_alike)

    def _worth(self, endings: list[Ending]) -> Outcome:
        if not endings:
            return Outcome(None, None, "new end", self.calls)
        n = sum(ending.n for ending in endings)
        reward, success = (
            math.fsum(getattr(ending, what) * ending.n for ending in endings) / n for what in ("reward", "success")
        )
        return Outcome(reward, success, "ended", self.calls)
