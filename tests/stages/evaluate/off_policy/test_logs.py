"""Estimates from two logs: right where the old policy tried what the new one does, refused where it did not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from flywheel.stages.evaluate.attempt import Act, Attempt
from flywheel.stages.evaluate.logs.score import serve
from flywheel.stages.evaluate.off_policy.logs import off_policy

if TYPE_CHECKING:
    from flywheel.stats.ope import Estimate

PAYS = {"ask": 0.2, "look": 0.8}


def log(
    share: float, seed: int, *, tasks: int = 60, attempts: int = 12, then: int = 1, told: bool = False
) -> list[Attempt]:
    """Write a log of a policy that looks with this probability and asks else; looking pays."""
    chance = {"look": math.log(share), "ask": math.log(1 - share)} if told else {}
    rng, made = np.random.default_rng(seed), []
    for task in range(tasks):
        for attempt in range(attempts):
            action = "look" if rng.random() < share else "ask"
            acts = (Act(action, f"{action}(x)", chance.get(action)),) * then
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
        "attempts of up to 7 decisions, more than 5: the product of weights proves nothing"
    ]
    assert found["DR"].certificate.state != "REFUSED"


def test_without_attempts_on_both_sides_there_is_nothing_to_estimate() -> None:
    assert off_policy(serve(log(0.4, 1, tasks=2), [])) == []


@pytest.mark.parametrize("told", [False, True])
def test_logged_probabilities_are_believed_where_one_attempt_a_task_counts_nothing(told: bool) -> None:  # noqa: FBT001
    old, new = log(0.4, 1, tasks=800, attempts=1, told=True), log(0.7, 2, tasks=800, told=told)

    found = by_name(old, new)
    for name in ("IPS", "SNIPS", "DR", "MIPS"):
        one = found[name]
        assert one.certificate.state == "good", one.certificate.reasons
        assert one.value == pytest.approx(0.7 * 0.8 + 0.3 * 0.2, abs=0.05)
        assert (one.certificate.numbers["logged"], one.certificate.numbers["unknown"]) == (800, 0)


def test_what_a_new_policy_that_was_seen_once_would_do_elsewhere_is_not_made_up() -> None:
    old, new = log(0.4, 1, tasks=800, attempts=1, told=True), log(0.7, 2, tasks=800, attempts=1, told=True)

    assert by_name(old, new)["DR"].certificate.state == "REFUSED"


def test_unknown_probabilities_are_refused_with_the_reason() -> None:
    same = log(0.4, 1, tasks=200, attempts=1)  # both always do the same: weights of one, and nothing is known

    found = by_name(same, same)
    assert {one.value for one in found.values()} == {None}
    assert all(
        one.certificate.reasons[0]
        == "the old policy's probabilities are unknown for 200 of 200 rows: the log has no propensity, and it tried "
        "their tasks once"
        for one in found.values()
    )


def test_counted_probabilities_are_named_as_such() -> None:
    numbers = by_name(log(0.4, 1), log(0.7, 2))["DR"].certificate.numbers
    assert (numbers["counted"], numbers["logged"], numbers["unknown"]) == (720, 0, 0)
