"""All looks at a candidate as one test: units that return, units known before, and what both may not do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flywheel.stages.gate.evidence import BOLD, REUSED, STARTS, Units, weigh
from flywheel.stats.betting import log_e
from flywheel.stats.planning import candidate_level


def look(name: str, differences: list[float]) -> Units:
    return {f"{name}{i}": (d, 1) for i, d in enumerate(differences)}


def log_e_of(looks: list[Units], **rest: object) -> float:
    evidence = weigh(looks, candidate=1, level=0.03, **rest)  # type: ignore[arg-type]
    assert evidence is not None
    return evidence.log_e


def test_without_a_paired_case_there_is_no_evidence() -> None:
    assert weigh([], candidate=1, level=0.03) is None
    assert weigh([{}], candidate=1, level=0.03) is None


def test_looks_at_new_units_add_up_to_one_test() -> None:
    looks = [look("a", [1.0, 1.0, 0.0]), look("b", [1.0, -1.0]), look("c", [1.0] * 4)]
    every = [d for units in looks for d, _ in units.values()]

    assert log_e_of(looks) == pytest.approx(math.log(0.7 * math.exp(log_e(every)) + 0.3))
    weeks = [look(f"{n} ", [1.0, 0.0]) for n in range(8)]  # from the seventh look on, another part is at stake
    first, week = (log_e([1.0, 0.0] * 8, bold=bold) for bold in (0.0, BOLD))
    assert log_e_of(weeks) == pytest.approx(math.log(0.7 * math.exp(first) + 0.2 * math.exp(week) + 0.1))
    assert sum(STARTS.values()) == pytest.approx(1.0)


def test_a_unit_that_returns_is_one_unit_with_all_its_cases() -> None:
    looks = [look("u", [1.0, 0.0])] + [look("u", [1.0, -1.0])] * 6
    evidence = weigh(looks, candidate=1, level=0.03)

    assert evidence is not None
    assert (evidence.units, evidence.returning) == (2, 2)
    assert evidence.mean == pytest.approx((1.0 - 6 / 7) / 2)
    first, week = log_e([1.0, 0.0]), log_e([1.0, -6 / 7], bold=BOLD)
    assert evidence.log_e == pytest.approx(math.log(0.7 * math.exp(first) + 0.2 * math.exp(week) + 0.1))


def test_known_units_count_less_the_more_was_decided_on_them() -> None:
    looks = [look("f", [1.0] * 2), look("k", [1.0] * 12)]
    known = frozenset(f"k{i}" for i in range(12))
    fresh_only = log_e_of(looks[:1])

    few, many = (log_e_of(looks, known=known, outcomes=outcomes) for outcomes in ([], ["promoted"] * 6))
    assert log_e_of(looks) > few > many
    # whatever was known, at most the reused share of the stake is lost
    assert many >= math.log(1 - REUSED[0]) + min(0.0, fresh_only) - 1e-9


@pytest.mark.parametrize(
    ("place", "outcomes"), [(4, ["open"] * 30), (2, ["open"] * 9 + ["rejected"])], ids=["three held", "one rejected"]
)
def test_recurring_tasks_alone_can_still_promote(place: int, outcomes: list[str]) -> None:
    """Sixty tasks for ever, known since three candidates that were held, or one that was rejected: attempts add up."""
    rng, reached, runs = np.random.default_rng(6), 0, 40
    known, level = frozenset(f"u{i}" for i in range(60)), candidate_level(place, 0, alpha=0.05)
    for _ in range(runs):
        looks = [look("u", [float(d) for d in rng.choice([1.0, -1.0, 0.0], 60, p=[0.25, 0.05, 0.7])]) for _ in range(7)]
        reached += log_e_of(looks, known=known, outcomes=outcomes) >= math.log(1 / level)
    assert reached / runs >= 0.7


@pytest.mark.e2e
def test_choosing_a_candidate_by_what_was_seen_does_not_fool_it() -> None:
    """Ten null candidates on the same sixty tasks, each chosen after the one before was seen to be held."""
    rng, fooled, runs = np.random.default_rng(7), 0, 80
    known = frozenset(f"u{i}" for i in range(60))
    for _ in range(runs):
        for place in range(2, 12):
            differences = [float(d) for d in rng.choice([1.0, -1.0, 0.0], 60, p=[0.15, 0.15, 0.7])]
            level = 0.02 / (place * (place - 1))
            evidence = weigh(
                [look("u", differences)], candidate=place, level=level, known=known, outcomes=["open"] * place
            )
            fooled += evidence is not None and evidence.log_e_best >= math.log(1 / level)
    assert fooled / runs <= 0.05


def test_the_pace_leaves_out_the_backlog_of_the_first_look() -> None:
    evidence = weigh([look("a", [0.0] * 500), look("b", [0.0] * 20), look("c", [0.0] * 10)], candidate=1, level=0.03)

    assert evidence is not None
    assert evidence.recent == 15
