"""The replay environment: recorded results answer the calls that the log knows, and nothing else is answered.

In: scenarios and fixtures, as rows of their tables or of a round's dataset. Out: for each attempt a reward, a
probability of success, or the reason why there is none. It is what training (`grpo-replay`) and evaluation roll
policies out in; it needs neither torch nor the store.
"""

from __future__ import annotations

from flywheel.replay.environment import Outcome, ReplayEnvironment, Why
from flywheel.replay.keys import ANY, START, call_text, next_state, same_answer
from flywheel.replay.scenario import Ending, Recorded, Scenario, read_scenario, scenario_row, scenarios

__all__ = [
    "ANY",
    "START",
    "Ending",
    "Outcome",
    "Recorded",
    "ReplayEnvironment",
    "Scenario",
    "Why",
    "call_text",
    "next_state",
    "read_scenario",
    "same_answer",
    "scenario_row",
    "scenarios",
]
