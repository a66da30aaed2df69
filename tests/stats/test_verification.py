"""How many succeeded, from those that somebody looked at: known answers under each way of choosing them."""

from __future__ import annotations

import numpy as np
import pytest
from flywheel.stats.verification import label_shift, post_stratified, same_share_p


def test_cells_looked_at_alike_pass_and_others_do_not() -> None:
    total = np.array([1000.0, 500.0, 100.0])
    assert same_share_p(total * 0.1, total) == pytest.approx(1.0)
    assert same_share_p(np.array([100.0, 50.0, 80.0]), total) < 1e-9
    assert same_share_p(total, total) == 1.0, "where everything was looked at there is nothing to compare"


def test_cells_are_weighted_by_their_size_and_those_nobody_looked_at_are_said() -> None:
    good, seen, total = np.array([9.0, 10.0, 0.0]), np.array([10.0, 100.0, 0.0]), np.array([800.0, 100.0, 100.0])
    share, covered = post_stratified(good, seen, total)
    assert share == pytest.approx((800 * 0.9 + 100 * 0.1) / 900)
    assert covered == pytest.approx(0.9)


def test_evidence_tells_how_many_succeeded_where_looking_depended_on_the_outcome() -> None:
    good, bad = np.array([0.45, 0.01, 0.2]), np.array([0.06, 0.2, 0.1])
    found = label_shift(good, bad, 0.7 * good + 0.3 * bad, (300.0, 2000.0, 20_000.0))
    assert found.share == pytest.approx(0.7, abs=1e-6)
    assert found.p_value == pytest.approx(1.0)


def test_rates_that_no_share_explains_are_refused() -> None:
    good, bad = np.array([0.45, 0.29, 0.2]), np.array([0.06, 0.91, 0.1])  # only complaints were looked at
    found = label_shift(good, bad, np.array([0.333, 0.067, 0.164]), (300.0, 1000.0, 20_000.0))
    assert found.p_value < 1e-9
    assert 0 <= found.share <= 1
