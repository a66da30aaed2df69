"""The plugin: a policy answers questions in the world of the sample logs, its calls executed for real.

Cases are the held-out questions of the logs and the questions that no log ever asked. `executed_success` is 1 when the
answer the policy gives is the true one. Whether a call runs is not measured: a query that answers another question
runs too.
"""

from __future__ import annotations

from flywheel_worlds.evaluate import Executed

from flywheel_warehouse.serve import SAMPLE

__all__ = ["executed"]

executed = Executed(SAMPLE)
