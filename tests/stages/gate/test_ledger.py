"""The ledger: known levels, and what counts as a test."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from flywheel.config import GateConfig
from flywheel.records import Promotion, RuleResult, Verdict
from flywheel.stages.gate.superiority import Level, Look, level_of, look_of
from tests.reports import entry

CFG = GateConfig()
LEVELS = [0.002675839, 0.003257749, 0.001077535, 0.006259482, 0.001925444, 0.006994665, 0.002556448, 0.007545047]
P = [0.001, 0.2, 0.0005, 0.3, 0.0004, 0.04, 0.0001, 0.009]


def judged(number: int, p: float, *, promoted: bool = False, verdict: Verdict | None = None) -> Promotion:
    numbers = {"p": p, "n": 100.0, "wins": 9.0, "losses": 3.0, "delta": 0.06}
    rule = RuleResult(rule="superiority", passed=promoted, verdict=Verdict.PROMOTE, message="m", numbers=numbers)
    said = verdict or (Verdict.PROMOTE if promoted else Verdict.INCONCLUSIVE)
    return entry("promoted" if promoted else "held", number=number, rules=[rule], verdict=said)


def tonight(history: Sequence[Promotion], number: int = 99, p: float = 0.5) -> Level:
    return level_of(Look(number, "base", 100, 9, 3, 0.06, p), history, CFG)


def test_the_known_ledger() -> None:
    history: list[Promotion] = []
    for night, (p, expected) in enumerate(zip(P, LEVELS, strict=True), 1):
        level = tonight(history, night, p)
        assert level.place == night
        assert level.alpha == pytest.approx(expected, abs=5e-10)
        history.append(judged(night, p, promoted=p <= level.alpha))


def test_forced_moves_rollbacks_and_blocked_nights_are_no_tests() -> None:
    history = [
        entry("forced", number=1),
        entry("rolled_back", number=1),
        judged(2, 0.001, verdict=Verdict.BLOCKED),
        entry("held", number=3, verdict=Verdict.INCONCLUSIVE),  # no p-value: too few cases to test
    ]

    assert tonight(history) == tonight([])


def test_a_held_night_earns_nothing_even_if_its_p_was_small() -> None:
    held, promoted = tonight([judged(1, 1e-9)]), tonight([judged(1, 1e-9, promoted=True)])

    assert held.place == promoted.place == 2
    assert held.alpha < promoted.alpha


def test_the_same_evaluation_again_keeps_its_place_and_level() -> None:
    first = tonight([judged(1, 0.5)], 2, 0.3)
    later = [judged(1, 0.5), judged(2, 0.3), judged(3, 1e-9, promoted=True)]

    assert tonight(later, 2, 0.3) == first
    assert tonight([*later, judged(2, 0.3)], 4, 0.5) == tonight(later, 4, 0.5)


def test_the_same_round_on_other_cases_is_a_new_look() -> None:
    assert tonight([judged(2, 0.3)], 2, 0.2).place == 2


def test_a_look_is_read_from_a_rules_numbers() -> None:
    numbers = {"n": 5.0, "wins": 2.0, "losses": 1.0, "delta": 0.2, "p": 0.5, "low": -1.0}

    assert look_of(3, "1", numbers) == Look(3, "1", 5, 2, 1, 0.2, 0.5)
