"""Preference pairs for DPO, mined from logs: builders propose, filters decide, and every refusal is counted.

In: episodes, steps and returns of whole tasks. Out: rows of the pairs table.
"""

from __future__ import annotations

from flywheel.stages.pairs.builders import probability_better, retry_fixed, sibling
from flywheel.stages.pairs.filters import build_pairs

__all__ = ["build_pairs", "probability_better", "retry_fixed", "sibling"]
