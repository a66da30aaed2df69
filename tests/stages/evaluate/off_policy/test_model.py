"""Estimates from a policy's own probabilities: known weights, what is refused, and no order of the rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from flywheel.stages.evaluate.off_policy.estimators import Sources
from flywheel.stages.evaluate.off_policy.model import Likely, likely_off_policy

if TYPE_CHECKING:
    from flywheel.stats.ope import Estimate

PAYS = {"ask": 0.2, "look": 0.8}


def sources(known: int, unknown: int = 0) -> Sources:
    return Sources({"logged": known, "rescored": 0, "unknown": unknown}, "nothing is known of {}")


def log(share: float, target: float, *, seed: int = 1, n: int = 800, then: int = 1) -> list[Likely]:
    """Write a log of a policy that looks with this probability and asks else; the target looks with another."""
    rng, made = np.random.default_rng(seed), []
    for i in range(n):
        look = bool(rng.random() < share)
        action = "look" if look else "ask"
        b, e = (math.log(p if look else 1 - p) for p in (share, target))
        made.append(
            Likely(
                episode_id=f"{i:04d}",
                state=f"s{i % 50}",
                served="old",
                action=f"{action}(x)",
                kind=action,
                unit=f"u{i % 100}",
                reward=float(rng.random() < PAYS[action]),
                logged=(b,) * then,
                target=(e,) * then,
                steps=then,
            )
        )
    return made


def by_name(attempts: list[Likely], unknown: int = 0) -> dict[str, Estimate]:
    return {e.name: e for e in likely_off_policy(attempts, sources(len(attempts), unknown))}


def test_the_policy_that_acted_earned_what_it_earned() -> None:
    attempts = log(0.4, 0.4)
    mean = math.fsum(a.reward for a in attempts) / len(attempts)

    found = by_name(attempts)
    assert list(found) == ["IPS", "SNIPS", "DM", "DR", "MIPS", "PDIS"]
    for name in ("IPS", "SNIPS", "MIPS", "PDIS"):
        assert found[name].value == pytest.approx(mean)
    numbers = found["DR"].certificate.numbers
    assert (numbers["mean_weight"], numbers["logged"]) == (1, 800)
    assert numbers["ess"] == pytest.approx(800)
    assert found["DR"].value == pytest.approx(mean, abs=0.02)
    assert numbers["typicality"] >= 0.9


def test_another_policy_is_worth_what_its_choices_are() -> None:
    found = by_name(log(0.5, 0.7, n=4000))

    for name in ("IPS", "SNIPS", "DM", "DR", "MIPS", "PDIS"):
        one = found[name]
        assert one.certificate.state == "good", one.certificate.reasons
        assert one.value == pytest.approx(0.7 * 0.8 + 0.3 * 0.2, abs=0.03)
    assert found["IPS"].certificate.numbers["max_weight"] == pytest.approx(1.4)


def test_an_action_that_was_taken_with_half_probability_has_twice_the_weight_of_a_sure_one() -> None:
    sure = [a for a in log(0.5, 0.5) if a.kind == "look"]
    certain = [Likely(**{**vars(a), "target": (0.0,)}) for a in sure]

    found = by_name(certain)
    assert found["IPS"].certificate.numbers["mean_weight"] == pytest.approx(2)
    assert {e.certificate.state for e in found.values()} == {"REFUSED"}
    assert "the target leaves the log" in found["IPS"].certificate.reasons[0]


def test_a_log_of_what_the_target_hardly_ever_does_is_refused_for_it() -> None:
    found = by_name(log(0.2, 0.95))

    numbers = found["DR"].certificate.numbers
    looked = sum(a.kind == "look" for a in log(0.2, 0.95)) / 800
    assert numbers["typicality"] == pytest.approx(looked)  # nine tenths of its own actions are looks
    assert any("typical of the target" in reason for reason in found["DR"].certificate.reasons)


def test_weights_of_long_texts_are_refused_and_stay_finite() -> None:
    rng = np.random.default_rng(0)
    long = [
        Likely(**{**vars(a), "target": (-900.0 + 40 * rng.standard_normal(),), "logged": (-900.0,)})
        for a in log(0.5, 0.5, n=200)
    ]

    found = by_name(long)
    assert {e.value for e in found.values()} == {None}
    assert all(math.isfinite(n) for e in found.values() for n in e.certificate.numbers.values())
    never = [Likely(**{**vars(a), "target": (-5000.0,), "logged": (-1.0,)}) for a in log(0.5, 0.5, n=200)]
    assert {e.value for e in by_name(never).values()} == {None}


def test_ways_to_say_the_same_are_one_kind() -> None:
    """A target that words the same call otherwise has weights of 0 and 2 on words, and of 1 on kinds."""
    made = log(0.5, 0.5, n=400)
    worded = [
        Likely(**{
            **vars(a),
            "action": f"{a.action} {i % 2}",
            "state": f"s{i % 5}",
            "logged": (math.log(0.25),),
            "target": (math.log(0.49 if i % 2 else 0.01),),
        })
        for i, a in enumerate(made)
    ]  # fmt: skip

    found = by_name(worded)
    weights = {e.name: e.certificate.numbers["max_weight"] for e in found.values()}
    assert weights["IPS"] == pytest.approx(1.96)
    assert weights["MIPS"] == pytest.approx(1.0)


def test_more_than_five_decisions_are_not_multiplied() -> None:
    six = [Likely(**{**vars(a), "steps": 6}) for a in log(0.5, 0.5)]

    found = by_name(six)
    assert found["PDIS"].certificate.reasons == [
        "attempts of up to 6 decisions, more than 5: the product of weights proves nothing"
    ]
    assert found["PDIS"].n == 800
    assert found["DR"].value is not None
    two = by_name(log(0.5, 0.6, then=2))
    assert two["PDIS"].certificate.numbers["max_weight"] == pytest.approx(1.44)


def test_half_unknown_is_refused_with_the_reason() -> None:
    found = by_name(log(0.5, 0.5), unknown=800)
    assert {e.value for e in found.values()} == {None}
    assert {tuple(e.certificate.reasons) for e in found.values()} == {("nothing is known of 800 of 1,600 rows",)}
    assert by_name(log(0.5, 0.5), unknown=799)["DR"].certificate.numbers["unknown"] == 799
    assert by_name([])["DR"].certificate.state == "REFUSED"


def test_the_order_of_the_attempts_is_no_matter() -> None:
    attempts = log(0.4, 0.6)
    assert by_name(attempts[::-1]) == by_name(attempts)
