"""Estimates from two logs: right where the old policy tried what the new one does, refused where it did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from flywheel.stages.evaluate.off_policy import off_policy
from flywheel.stages.evaluate.served import Act, Attempt, serve

if TYPE_CHECKING:
    from flywheel.stats.ope import Estimate

PAYS = {"ask": 0.2, "look": 0.8}


def log(share: float, seed: int, *, tasks: int = 60, attempts: int = 12, then: int = 1) -> list[Attempt]:
    """Write a log of a policy that looks with this probability and asks else; looking pays."""
    rng, made = np.random.default_rng(seed), []
    for task in range(tasks):
        for attempt in range(attempts):
            action = "look" if rng.random() < share else "ask"
            acts = (Act(action, f"{action}(x)"),) * then
            score = float(rng.random() < PAYS[action])
            made.append(Attempt(f"{seed} {task} {attempt}", f"t{task}", f"question {task}", score, acts=acts))
    return made


def by_name(old: list[Attempt], new: list[Attempt]) -> dict[str, Estimate]:
    return {found.name: found for found in off_policy(serve(old, new))}


def test_what_the_new_policy_would_earn() -> None:
    found = by_name(log(0.4, 1), log(0.7, 2))

    assert list(found) == ["IPS", "SNIPS", "DM", "DR", "MIPS", "PDIS"]
    for name in ("IPS", "SNIPS", "DR", "MIPS", "PDIS"):
        one = found[name]
        assert one.certificate.state != "REFUSED", one.certificate.reasons
        assert one.value == pytest.approx(0.7 * 0.8 + 0.3 * 0.2, abs=0.05)
        assert one.low is not None
        assert one.high is not None
        assert one.low < 0.62 < one.high
    assert found["DR"].n == 720


def test_a_policy_that_does_what_was_never_tried_is_refused() -> None:
    never = [Attempt(f"{i}", f"t{i}", f"question {i}", 1.0, acts=(Act("jump", "jump()"),)) for i in range(60)]

    found = by_name(log(0.4, 1), never)
    assert {one.certificate.state for one in found.values()} == {"REFUSED"}
    assert {one.value for one in found.values()} == {None}
    assert any("the target leaves the log" in reason for reason in found["DR"].certificate.reasons)


def test_long_attempts_have_no_product_of_weights() -> None:
    found = by_name(log(0.4, 1, then=6), log(0.6, 2, then=6))

    assert found["PDIS"].certificate.reasons == [
        "attempts of up to 7 decisions, more than 5: the product of their weights says nothing"
    ]
    assert found["DR"].certificate.state != "REFUSED"


def test_without_attempts_on_both_sides_there_is_nothing_to_estimate() -> None:
    assert off_policy(serve(log(0.4, 1, tasks=2), [])) == []
