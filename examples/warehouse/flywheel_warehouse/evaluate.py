"""The plugin: a policy answers questions in the world of the sample logs, its calls executed for real.

Cases are the held-out questions of the logs and the questions that no log ever asked. `executed_success` is 1 when the
answer the policy gives is the true one; `first_call_ok`, when its first call worked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flywheel.extensions import CaseScore
from flywheel_worlds.evaluate import Executed

from flywheel_warehouse.serve import SAMPLE

if TYPE_CHECKING:
    from flywheel_worlds.talk import Talk

__all__ = ["executed"]


class _OfSampleLogs(Executed):
    """The evaluator of the sample logs' world."""

    def _scores(self, case: str, talk: Talk) -> list[CaseScore]:
        success, *others = super()._scores(case, talk)
        return [success, CaseScore(case, case, "first_call_ok", float(talk.first_ok)), *others]


executed = _OfSampleLogs(SAMPLE)
