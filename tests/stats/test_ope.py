"""Off-policy estimates against known answers, and the cases that must be refused."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from flywheel.stats.ope import (
    dr_terms,
    estimate,
    ips_terms,
    marginal_weight,
    pdis_terms,
    snips_terms,
)
from flywheel.stats.overlap import certify, effective_size, tail_index

GAMMA = 0.9
R0, R1 = (0.2, 0.5), ((1.0, 0.0), (0.3, 0.8))
B0, B1 = (0.7, 0.3), ((0.5, 0.5), (0.2, 0.8))
E0, E1 = (0.1, 0.9), ((0.9, 0.1), (0.4, 0.6))


def tree() -> dict[str, npt.NDArray[np.float64]]:
    """Every trajectory of the two-step tree with its probability under the logger."""
    paths = list(product((0, 1), (0, 1)))
    return {
        "p": np.array([B0[a] * B1[a][b] for a, b in paths]),
        "ratios": np.array([[E0[a] / B0[a], E1[a][b] / B1[a][b]] for a, b in paths]),
        "rewards": np.array([[R0[a], R1[a][b]] for a, b in paths]),
    }


def test_the_two_step_tree_is_estimated_exactly() -> None:
    t = tree()

    assert float(t["p"] @ pdis_terms(t["ratios"], t["rewards"] * [1, GAMMA])) == pytest.approx(1.037, abs=1e-12)


def test_the_two_step_trees_other_numbers() -> None:
    t = tree()
    whole = t["ratios"].prod(axis=1)
    logged = (t["rewards"] * [1, GAMMA]).sum(axis=1)

    assert float(t["p"] @ whole) == pytest.approx(1.0)
    assert float(t["p"] @ whole**2) == pytest.approx(3.398429, abs=1e-6)
    assert 1 / float(t["p"] @ whole**2) == pytest.approx(0.2943, abs=5e-5)
    assert float(t["p"] @ logged) == pytest.approx(0.794)


def test_more_than_five_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="6 steps; more than 5"):
        pdis_terms(np.ones((1, 6)), np.ones((1, 6)))


@pytest.fixture(scope="module")
def vectors(shared_data: Path) -> Path:
    return shared_data.parent / "vectors"


def published(vectors: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((vectors / "known_answers.json").read_text())["obd"]
    return found


def test_the_published_open_bandit_figure(vectors: Path) -> None:
    log = pl.read_csv(vectors / "obd_random_all.csv.gz")
    policy = pl.read_csv(vectors / "obd_bts_all_policy.csv").to_numpy()
    weights = policy[log["item_id"].to_numpy(), log["pos"].to_numpy()] / log["pscore"].to_numpy()
    clicks, known = log["click"].to_numpy().astype(float), published(vectors)["all:random->bts"]

    assert float(ips_terms(weights, clicks).mean() / clicks.mean()) == pytest.approx(1.198126, abs=5e-7)
    assert float(ips_terms(weights, clicks).mean()) == pytest.approx(known["ipw"], rel=1e-9)
    assert float(snips_terms(weights, clicks).mean()) == pytest.approx(known["snips"], rel=1e-9)
    assert float(ips_terms(weights, clicks, clip=10).mean()) == pytest.approx(known["clip10_ipw"], rel=1e-9)
    alike = estimate(
        "SNIPS", snips_terms(weights, np.ones(len(weights))), weights, [f"{i}" for i in range(len(weights))]
    )
    assert (alike.value, alike.low, alike.high) == pytest.approx((1.0, 1.0, 1.0)), "a ratio of sums that vary together"
    assert effective_size(weights) == pytest.approx(known["ess"], rel=1e-9)
    found = estimate("IPS", ips_terms(weights, clicks), weights, [f"{i}" for i in range(len(weights))])
    assert found.certificate.state == "warn"
    assert found.value == pytest.approx(known["ipw"])
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.0042 < found.high  # what the target truly earned


def test_an_effective_sample_of_two_is_refused(vectors: Path) -> None:
    log = pl.read_csv(vectors / "obd_bts_women.csv.gz")
    weights, known = 1 / 46 / log["pscore"].to_numpy(), published(vectors)["women:bts->random"]
    clicks = log["click"].to_numpy().astype(float)

    assert float(ips_terms(weights, clicks).mean()) == pytest.approx(known["ipw"], rel=1e-6)
    found = estimate("IPS", ips_terms(weights, clicks), weights, [f"{i}" for i in range(len(weights))])
    assert (found.value, found.low, found.certificate.state) == (None, None, "REFUSED")
    assert found.certificate.numbers["ess"] == pytest.approx(2.0778, abs=1e-3)
    assert found.certificate.reasons[0] == "effective sample 2.1 of 10,000 rows, less than 10%"


def test_a_hidden_mode_is_refused_although_everything_else_looks_well() -> None:
    rng = np.random.default_rng(0)
    weights = 0.2 * np.exp(rng.normal(0, 0.127, 5_000))

    found = certify(weights, clusters=500, typical=0.73)
    assert found.numbers["ess_share"] == pytest.approx(0.984, abs=0.002)
    assert found.numbers["mean_weight"] == pytest.approx(0.20, abs=0.005)
    assert found.state == "REFUSED"
    assert found.reasons == ["mean weight 0.20, which must be 1 within 0.10: the target leaves the log"]


def test_what_else_is_refused() -> None:
    even = np.ones(1_000)

    assert certify(even, clusters=1_000).state == "good"
    nearly_even = np.linspace(1 - 1e-5, 1 + 1e-5, 50)  # an effective sample of 50, as it is printed
    assert certify(nearly_even, clusters=1_000).state == "good"
    assert certify(even, clusters=19).reasons == ["19 independent units, fewer than 20"]
    assert certify(even, clusters=99, typical=0.5).state == "REFUSED"
    assert certify(np.ones(49), clusters=49).reasons == ["effective sample 49.0, less than 50"]
    assert certify(np.r_[np.full(999, 0.89), 120.0], clusters=999).state == "REFUSED"
    heavy = (1 - np.random.default_rng(1).random(20_000)) ** (-1 / 1.5) / 3
    assert tail_index(heavy) == pytest.approx(1.5, rel=0.25)
    assert "infinite" in " ".join(certify(heavy, clusters=999).reasons)


def test_dr_is_right_if_the_model_is_and_ips_if_the_weights_are() -> None:
    rng = np.random.default_rng(3)
    n, e, b, mean = 200_000, np.array([0.2, 0.8]), np.array([0.6, 0.4]), np.array([0.3, 0.7])
    action = (rng.random(n) > b[0]).astype(int)
    rewards = (rng.random(n) < mean[action]).astype(float)
    weights, truth = (e / b)[action], float(e @ mean)

    right, wrong = mean, np.array([0.9, 0.1])
    for q, w in ((right, np.full(n, 3.0)), (wrong, weights)):
        terms = dr_terms(w, rewards, q[action], np.full(n, float(e @ q)))
        assert float(terms.mean()) == pytest.approx(truth, abs=0.01)


def test_mips_sums_over_actions_of_a_kind() -> None:
    kind = {"find a": "find", "find b": "find", "book": "book"}
    e, b = {"find a": 0.1, "find b": 0.5, "book": 0.4}, {"find a": 0.8, "book": 0.2}

    assert marginal_weight(e, b, kind, "find a") == pytest.approx(0.6 / 0.8)
    assert marginal_weight(e, b, kind, "book") == pytest.approx(2.0)
    assert marginal_weight(e, {}, kind, "book") == 0.0


def test_users_are_drawn_as_a_whole() -> None:
    rng = np.random.default_rng(5)
    levels = rng.random(40)
    rows, users = np.repeat(levels, 50), [f"u{i}" for i in range(40) for _ in range(50)]

    whole = estimate("DM", rows, np.ones(2_000), users)
    apart = estimate("DM", rows, np.ones(2_000), [f"{i}" for i in range(2_000)])
    assert whole.low is not None
    assert whole.high is not None
    assert apart.low is not None
    assert apart.high is not None
    assert (whole.high - whole.low) > 5 * (apart.high - apart.low)
