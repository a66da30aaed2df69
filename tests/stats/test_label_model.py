"""The label model against a known world, copies of a voter, and voters that would turn the world upside down."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from flywheel.stats.calibration import expected_calibration_error
from flywheel.stats.label_model import BinaryFit, fit_binary
from hypothesis import given
from hypothesis import strategies as st

Votes = npt.NDArray[np.int64]


def world(n: int = 20_000, seed: int = 0) -> tuple[npt.NDArray[np.bool_], Votes]:
    """Return the truth (70 % successes) and five voters who say something about some of it."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.7
    votes = np.zeros((n, 5), dtype=np.int64)
    rates = [(0.85, 0.75, 0.6), (0.92, 0.85, 0.5), (0.75, 0.8, 0.7), (0.8, 0.6, 0.6), (0.7, 0.7, 0.5)]
    for j, (tpr, tnr, speaks) in enumerate(rates):
        right = np.where(truth, rng.random(n) < tpr, rng.random(n) >= tnr)
        votes[:, j] = np.where(rng.random(n) < speaks, np.where(right, 1, -1), 0)
    return truth, votes


def family_weights(votes: Votes, families: list[str]) -> npt.NDArray[np.float64]:
    """Return the share of each vote (n, J): one divided by how many of its family vote on the same item; 0 if silent.

    A voter and its copies are then worth what the voter was: dependence within a family does no harm.
    """
    voted = votes != 0
    shares = np.zeros(votes.shape)
    for family in dict.fromkeys(families):
        members = [j for j, name in enumerate(families) if name == family]
        together = voted[:, members].sum(axis=1, keepdims=True)
        shares[:, members] = voted[:, members] / np.maximum(together, 1)
    return shares


def fitted(votes: Votes, families: list[str]) -> tuple[npt.NDArray[np.float64], BinaryFit]:
    patterns, where, counts = np.unique(votes, axis=0, return_inverse=True, return_counts=True)
    fit = fit_binary(patterns, counts.astype(float), family_weights(patterns, families))
    return fit.q[where.reshape(-1)], fit


def test_rates_are_found_and_copies_of_a_voter_change_nothing() -> None:
    truth, votes = world()
    plain, fit = fitted(votes, list("abcde"))
    assert fit.prior == pytest.approx(0.70, abs=0.02)
    assert fit.tpr == pytest.approx([0.85, 0.92, 0.75, 0.8, 0.7], abs=0.03)
    assert expected_calibration_error(plain.tolist(), truth.tolist()) < 0.015
    copied = np.concatenate([votes, *[votes[:, 3:4]] * 3], axis=1)
    together, _ = fitted(copied, [*"abcde", *"ddd"])
    assert np.abs(together - plain).max() < 1e-9
    apart, _ = fitted(copied, list("abcdefgh"))
    assert expected_calibration_error(apart.tolist(), truth.tolist()) > 0.15, "without families the copies take over"


def test_gold_rows_stay_and_teach() -> None:
    truth, votes = world(4000, seed=3)
    gold = np.where(np.arange(4000) < 2000, truth.astype(float), np.nan)
    fit = fit_binary(votes, np.ones(4000), family_weights(votes, list("abcde")), gold=gold)
    assert (fit.q[:2000] == truth[:2000]).all()
    assert fit.tnr == pytest.approx([0.75, 0.85, 0.8, 0.6, 0.7], abs=0.05)


@given(st.lists(st.lists(st.sampled_from([-1, 0, 1]), min_size=3, max_size=3), min_size=1, max_size=40))
def test_success_and_failure_never_change_places(rows: list[list[int]]) -> None:
    votes = np.array(rows, dtype=np.int64)
    fit = fit_binary(votes, np.ones(len(rows)), family_weights(votes, list("abc")), strength=10)
    assert (fit.tpr + fit.tnr >= 1 - 1e-9).all()
    assert ((fit.q >= 0) & (fit.q <= 1)).all()
    turned = fit_binary(votes[::-1], np.ones(len(rows)), family_weights(votes[::-1], list("abc")), strength=10)
    assert turned.q[::-1] == pytest.approx(fit.q, abs=1e-6)


def test_a_counted_pattern_is_as_many_rows() -> None:
    _, votes = world(300, seed=5)
    by_row = fit_binary(votes, np.ones(300), family_weights(votes, list("abcde")))
    by_pattern, fit = fitted(votes, list("abcde"))
    assert by_pattern == pytest.approx(by_row.q, abs=1e-6)
    assert fit.prior == pytest.approx(by_row.prior, abs=1e-6)
