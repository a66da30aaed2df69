"""Preference pairs for DPO, mined from logs: builders propose, filters decide, and every refusal is counted.

In: episodes, steps and returns of complete tasks. Out: rows of the pairs table.
"""

from __future__ import annotations

from flywheel.stages.datasets.pairs.across import efficiency, first_divergence, sibling
from flywheel.stages.datasets.pairs.mine import build_pairs
from flywheel.stages.datasets.pairs.within import rephrase, retry_fixed, user_edit

__all__ = [
    "build_pairs",
    "efficiency",
    "first_divergence",
    "rephrase",
    "retry_fixed",
    "sibling",
    "user_edit",
]
