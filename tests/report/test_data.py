"""The report's input."""

from __future__ import annotations

import pytest
from tests.report.sample import full_data, minimal_data


@pytest.mark.parametrize(
    ("label", "words"), [("base", "the base model"), ("3", "round 3"), ("round 1", "round 1"), ("", "round 1")]
)
def test_the_baseline_has_a_name(label: str, words: str) -> None:
    assert full_data(baseline=label).baseline_name == words


def test_without_an_evaluation_the_baseline_is_just_that() -> None:
    assert minimal_data().baseline_name == "the baseline"
    assert minimal_data().round == 2
