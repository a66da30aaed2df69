"""The gate's tests beside statsmodels', whose values a file holds (`tests/fixtures/produce/statsmodels_values.py`)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from flywheel.stats.multiple import holm
from flywheel.stats.paired import mcnemar_better, wilson
from flywheel.stats.planning import cases_for_non_inferiority

SAID: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("statsmodels.json").read_text())


@pytest.mark.parametrize("case", SAID["mcnemar"])
def test_mcnemar(case: dict[str, Any]) -> None:
    more, fewer = sorted((case["wins"], case["losses"]), reverse=True)
    assert min(1.0, 2 * mcnemar_better(more, fewer)) == pytest.approx(case["two_sided"], rel=1e-9)


@pytest.mark.parametrize("case", SAID["holm"])
def test_holm(case: dict[str, Any]) -> None:
    assert holm(case["p"]) == pytest.approx(case["adjusted"], rel=1e-12)


@pytest.mark.parametrize("case", SAID["margin"])
def test_sample_sizes_of_guardrails(case: dict[str, Any]) -> None:
    found = cases_for_non_inferiority(case["discordance"], case["margin"], guardrails=case["guardrails"])
    assert found == math.ceil(case["n"])


@pytest.mark.parametrize("case", SAID["wilson"])
def test_wilson(case: dict[str, Any]) -> None:
    assert tuple(wilson(case["successes"], case["n"])) == pytest.approx(case["interval"], abs=1e-12)
