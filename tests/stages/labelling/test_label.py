"""Votes become a probability, costs a share, and all of it a return."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from flywheel.config import RewardsConfig
from flywheel.contracts import polars_schema
from flywheel.records import Episode, Reward
from flywheel.stages.labelling.label import Label, label_episodes, normalised_costs
from flywheel.stages.labelling.posterior import Posterior, Vote
from hypothesis import given
from hypothesis import strategies as st

success = Posterior().success  # by the priors
FAMILIES = ["adoption", "sentiment_neg", "sentiment_pos", "followup", "exec", "exit", "other"]
VOTES = st.lists(
    st.builds(
        Vote,
        st.sampled_from(["adopted", "complaint", "thanks", "thumbs", "rephrase", "mine"]),
        st.sampled_from(FAMILIES),
        st.floats(-1, 1),
        st.floats(0, 1),
    ),
    max_size=8,
)


def vote(signal: str, family: str, score: float = -1.0, weight: float = 1.0) -> Vote:
    return Vote(signal, family, score, weight)


THANKS, THUMB = vote("thanks", "sentiment_pos", 1), vote("thumbs", "sentiment_pos", 1)
ADOPTED, COMPLAINT = vote("adopted", "adoption", 1), vote("complaint", "sentiment_neg")


def test_known_probabilities() -> None:
    assert success([]) == 0.5
    assert success([ADOPTED]) == pytest.approx(0.85 / (0.85 + 0.25))
    assert success([COMPLAINT]) == pytest.approx(0.08 / (0.08 + 0.85))
    odds = 0.85 / 0.25 * 0.08 / 0.85
    assert success([ADOPTED, COMPLAINT]) == pytest.approx(odds / (1 + odds))


def test_a_verifier_decides_alone_and_is_not_quite_certain() -> None:
    assert success([vote("outcome", "verifier", 1), COMPLAINT]) == 0.97
    assert success([vote("outcome", "verifier", -1), ADOPTED]) == pytest.approx(0.03)
    assert success([vote("outcome", "verifier", 0.5)]) == 0.75
    assert success([vote("outcome", "verifier", 1), vote("mine", "verifier", -1, 0.5)]) == pytest.approx(2 / 3)
    assert success([vote("outcome", "verifier", 1, 0.0), ADOPTED]) == success([ADOPTED])


def test_praise_is_capped_and_proves_little_alone() -> None:
    assert success([THANKS]) == success([THANKS, THUMB]) == success([vote("mine", "sentiment_pos", 1)]) == 0.65
    odds = 0.85 / 0.25 * 2
    assert success([ADOPTED, THANKS, THUMB]) == pytest.approx(odds / (1 + odds))
    assert success([COMPLAINT, THANKS]) < 0.5


@given(VOTES)
def test_copies_of_a_signal_change_nothing(votes: list[Vote]) -> None:
    assert success([v for v in votes for _ in range(4)]) == pytest.approx(success(votes))


@given(VOTES, st.randoms(use_true_random=False))
def test_the_order_of_votes_does_not_matter(votes: list[Vote], random: Any) -> None:
    shuffled = list(votes)
    random.shuffle(shuffled)
    assert success(shuffled) == pytest.approx(success(votes))
    assert 0 < success(votes) < 1


def frames(rows: list[dict[str, Any]], tasks: dict[str, str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    episodes = pl.DataFrame([{"episode_id": e, "task_id": t} for e, t in tasks.items()], schema=polars_schema(Episode))
    fixed = {"kind": "implicit", "weight": 1.0, "evidence": [], "signal_version": 1, "task_id": "t"}
    return episodes, pl.DataFrame([fixed | row for row in rows], schema=polars_schema(Reward))


def test_judgements() -> None:
    rows = [
        {"episode_id": "a", "signal": "adopted", "family": "adoption", "score": 1.0},
        {"episode_id": "a", "signal": "risk", "family": "risk", "kind": "risk", "score": 0.5, "step": 1},
        {"episode_id": "a", "signal": "risk", "family": "risk", "kind": "risk", "score": 0.25, "step": 2},
        {"episode_id": "b", "signal": "thumbs", "family": "sentiment_neg", "score": -1.0, "step": 0},
        {"episode_id": "b", "signal": "thumbs", "family": "sentiment_neg", "score": -0.5, "step": 1},
        {"episode_id": "c", "signal": "thumbs", "family": "sentiment_neg", "score": -1.0, "weight": 0.0},
    ]
    judged = label_episodes(*frames(rows, {"b": "t", "a": "t", "c": "t"}), RewardsConfig(gamma=0.5))
    p = 0.85 / 1.1
    assert list(judged) == ["a", "b", "c"]
    assert judged["a"][:4] == pytest.approx((p, 0.0, 0.5, 2 * p - 1 - 0.25))
    assert judged["a"][4:6] == (True, 1)
    odds = math.exp(0.75 * math.log(0.1 / 0.8))
    assert judged["b"].p_success == pytest.approx(odds / (1 + odds))
    assert judged["c"] == Label(0.5, 0.0, 0.0, 0.0, known=False, n_support=0)


def test_cost_orders_equal_outcomes_and_never_flips_one() -> None:
    costs = [
        {"episode_id": f"{n}", "signal": "cost", "family": "steps", "kind": "cost", "score": float(n)}
        for n in range(11)
    ]
    verdicts = [
        {
            "episode_id": f"{n}",
            "signal": "outcome",
            "family": "verifier",
            "kind": "outcome",
            "score": 1.0 if n != 1 else -1.0,
        }
        for n in range(11)
    ]
    judged = label_episodes(*frames(costs + verdicts, {f"{n}": "t" for n in range(11)}), RewardsConfig())
    # of the ten that succeeded (0, 2, ..., 10) the median is 5.5 and the 90th percentile 9.1
    assert judged["10"].cost == 1
    assert judged["8"].cost == pytest.approx((8 - 5.5) / (9.1 - 5.5))
    assert judged["4"].cost == 0
    assert judged["1"].value < judged["10"].value < judged["4"].value


def test_cost_scales() -> None:
    five = [(f"{n}", "t", "usd", float(n), 0.9) for n in range(5)]
    few = [("x", "few", "usd", 3.0, 0.9)]
    assert normalised_costs(few) == {"x": 0.0}
    assert normalised_costs(five + few) == normalised_costs(five) | {"x": 0.0}  # other tasks never matter
    assert normalised_costs(five)["3"] == pytest.approx((3 - 2) / (3.6 - 2))  # the task's own
    assert normalised_costs([*five, ("s", "t", "steps", 9.0, 0.9)])["s"] == 0.0  # units are not mixed
    failed = [(f"f{n}", "t", "usd", 100.0 + n, 0.1) for n in range(9)]
    assert normalised_costs(five + failed)["f0"] == 1.0
    assert normalised_costs([]) == {}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 1e6), st.floats(0, 1))))
def test_costs_are_shares_and_keep_their_order(rows: list[tuple[str, float, float]]) -> None:
    costs = [(f"{n}", task, "usd", cost, p) for n, (task, cost, p) in enumerate(rows)]
    scaled = normalised_costs(costs)
    assert all(0 <= share <= 1 for share in scaled.values())
    for task in "ab":
        ordered = sorted((cost, scaled[e]) for e, t, _, cost, _ in costs if t == task)
        assert [share for _, share in ordered] == sorted(share for _, share in ordered)
