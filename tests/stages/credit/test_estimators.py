"""Skill and luck on known answers."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

import pytest
from flywheel.stages.credit.estimators import NO_LEVEL, tree_credit
from hypothesis import given
from hypothesis import strategies as st
from tests.stages.credit.attempts import Did, did, paths_of

pytestmark = pytest.mark.slow

TOY = [("ABD", 1), ("ABD", 1), ("ABE", 0), ("ACF", 0), ("ACF", 1), ("XBD", 0)]


class Row(NamedTuple):
    """The credit of one step."""

    skill: float
    luck: float
    weight: float
    n_support: int
    level: int


def credit(
    attempts: list[tuple[list[Did], float | None]],
    k: float,
    *,
    leave_one_out: bool = True,
    min_support: int = 1,
    stratum: int = 0,
    policies: list[str] | None = None,
) -> list[list[Row]]:
    """Return each attempt's credit, step by step."""
    paths = paths_of(attempts, policies=policies)
    options = {"leave_one_out": leave_one_out, "min_support": min_support, "stratum": stratum}
    found = tree_credit(paths, shrinkage=k, **options)  # type: ignore[arg-type]
    rows = [Row(*(column[n].item() for column in found)) for n in range(len(paths.episode))]
    return [[row for row, e in zip(rows, paths.episode, strict=True) if e == n] for n in range(len(attempts))]


def toy(k: float, *, leave_one_out: bool = False) -> list[list[Row]]:
    return credit([(did(path), value) for path, value in TOY], k, leave_one_out=leave_one_out)


def skills(path: list[Row]) -> list[float]:
    return [row.skill for row in path]


@pytest.mark.parametrize(
    ("number", "known"),
    [(0, [0.1, 1 / 15, 1 / 3]), (2, [0.1, 1 / 15, -2 / 3]), (3, [0.1, -0.1, 0]), (5, [-0.5, 0, 0])],
)
def test_toy_log(number: int, known: list[float]) -> None:
    assert skills(toy(0)[number]) == pytest.approx(known)
    assert [c.n_support for c in toy(0)[0]] == [5, 3, 2]


def test_toy_log_with_shrinkage() -> None:
    assert skills(toy(1)[0]) == pytest.approx([0.0833333, 0.0625, 0.2361111])


def test_toy_log_with_the_own_return_left_out() -> None:
    rows = toy(0, leave_one_out=True)
    # What is left to explain at each state: R minus the value that the others give it.
    left = [sum(c.skill + c.luck for c in rows[0][n:]) for n in range(3)]
    assert left == pytest.approx([0.6, 0.5, 0.5])
    assert sum(c.skill + c.luck for c in rows[5]) == pytest.approx(-0.6)
    # Nobody else did X: that is no evidence, and no credit.
    assert rows[5][0][:3] == (0, 0, 0) or rows[5][0].level != 0
    assert skills(rows[0]) == pytest.approx([0.1, 0, 0.5])


def test_a_retry_that_hides_an_error() -> None:
    """At the state after tool1 half the attempts call well and succeed; the others err, and 2 of 5 of them retry."""
    first, good = Did("tool1"), Did("good_args")
    bad, retry, quit_ = Did("bad_args", "failed"), Did("retry"), Did("give_up", "")
    paths = [[first, good]] * 5 + [[first, bad, retry]] * 2 + [[first, bad, quit_]] * 3
    values = [1.0] * 7 + [0.0] * 3
    found = credit(list(zip(paths, values, strict=True)), 0, leave_one_out=False)[5]
    assert skills(found) == pytest.approx([0, -0.30, 0.60])
    assert [c.luck for c in found] == pytest.approx([0, 0, 0])
    assert sum(skills(found)) == pytest.approx(1.0 - 0.7)


@pytest.mark.parametrize(("k", "leave_one_out"), [(0, False), (2, False), (0, True)])
@pytest.mark.parametrize("min_support", [1, 3, 50])
def test_a_backend_that_fails_at_random_is_luck_only(k: float, leave_one_out: bool, min_support: int) -> None:  # noqa: FBT001
    attempts = [([Did("call", "failed" if n % 2 else "ok")], 1.0 - n % 2) for n in range(20)]
    found = credit(attempts, k, leave_one_out=leave_one_out, min_support=min_support)  # type: ignore[arg-type]
    assert all(c.skill == 0 and c.weight == 0 for path in found for c in path)
    assert found[0][0].luck == pytest.approx(0.5, abs=0.03)
    assert found[1][0].luck == pytest.approx(-0.5, abs=0.03)


def test_credit_finds_the_better_arm_and_is_surer_with_more_attempts() -> None:
    def bandit(n: int) -> Row:
        attempts = [(did("A" if i % 2 else "B"), float(i % 10 in {1, 3, 5, 7, 2})) for i in range(n)]
        return credit(attempts, 0, leave_one_out=False)[1][0]  # type: ignore[arg-type]

    assert bandit(100).skill == bandit(1000).skill == pytest.approx(0.8 - 0.5)
    assert 0.5 < bandit(100).weight < bandit(1000).weight < 1


@pytest.mark.e2e
def test_the_error_of_a_bandits_credit_shrinks_with_the_root_of_its_attempts() -> None:
    def error(n: int) -> float:
        misses = []
        for seed in range(30):
            draw = random.Random(seed)  # noqa: S311 - a simulation
            attempts = [(did(arm), float(draw.random() < (0.7 if arm == "A" else 0.3))) for arm in "AB" * n]
            found = credit(attempts, 0, leave_one_out=False)  # type: ignore[arg-type]
            misses.append((found[0][0].skill - 0.2) ** 2)
        return math.sqrt(math.fsum(misses) / len(misses))

    assert error(20) / error(320) == pytest.approx(4, rel=0.35)


def test_alone_there_is_no_credit_and_no_luck() -> None:
    (path,) = credit([(did("AB"), 1.0)], 2)
    assert path == [Row(0, 0, 0, 1, NO_LEVEL)] * 2


def test_an_unknown_return_gets_credit_and_gives_none() -> None:
    known: list[tuple[list[Did], float | None]] = [(did("A"), 1.0), (did("B"), -1.0)]
    both = credit([*known, (did("A"), None), (did(""), None)], 0)
    assert both[2] == [pytest.approx(Row(1.0, 0.0, 1 / (1 + 1.5**0.5), 2, 0))]
    assert [(c.skill, c.luck) for c in both[0]] == [(c.skill, c.luck) for c in credit(known, 0)[0]]
    assert both[3] == []


def test_free_texts_that_never_repeat_are_judged_by_their_tool() -> None:
    """Every call has arguments of its own; those of one tool succeed."""
    attempts = [([Did(f"search {n}" if n % 2 else f"guess {n}", kind="s" if n % 2 else "g")], n % 2) for n in range(12)]
    found = credit(attempts, 0, min_support=3)  # type: ignore[arg-type]
    assert {path[0].level for path in found} == {2}
    assert [path[0].skill > 0 for path in found] == [bool(n % 2) for n in range(12)]
    assert all(path[0].n_support == 6 for path in found)


def test_the_order_of_calls_is_forgotten_where_histories_are_rare() -> None:
    """What is done after A and B, in whichever order, is pooled; the first step is common enough by itself."""
    before = ["AB", "BA"] * 2
    attempts = [(did(b + a), float(a == "C")) for b in before for a in "CD"]
    found = credit(attempts, 0, min_support=3)  # type: ignore[arg-type]
    assert [[row.level for row in path] for path in found] == [[0, 0, 1]] * 8
    assert [path[2].skill > 0 for path in found] == [True, False] * 4


def test_policies_are_told_apart_where_each_has_attempts_enough() -> None:
    """A better policy always does A: within each policy A is worth nothing, pooled it looks like skill."""
    attempts = [(did("A"), 1.0)] * 8 + [(did("A"), 0.0)] * 4 + [(did("B"), 0.0)] * 4
    policies = ["new"] * 8 + ["old"] * 8
    pooled = credit(attempts, 0, policies=policies)  # type: ignore[arg-type]
    apart = credit(attempts, 0, policies=policies, stratum=8)  # type: ignore[arg-type]
    assert pooled[0][0].skill > 0.1
    assert apart[0][0].skill == apart[8][0].skill == 0
    assert credit(attempts, 0, policies=policies, stratum=9) == pooled  # type: ignore[arg-type]


MOVES = st.lists(st.builds(Did, st.sampled_from("AB"), st.sampled_from(["ok", "failed"])), min_size=1, max_size=4)
ATTEMPTS = st.lists(st.tuples(MOVES, st.none() | st.floats(-2, 1)), min_size=1, max_size=12)


@given(ATTEMPTS, st.sampled_from([0.0, 1.0, 2.0]), st.booleans(), st.integers(1, 5))
def test_skill_and_luck_add_up_to_the_return(
    rows: list[tuple[list[Did], float | None]],
    k: float,
    leave_one_out: bool,  # noqa: FBT001
    min_support: int,
) -> None:
    found = credit(rows, k, leave_one_out=leave_one_out, min_support=min_support)
    for n, (_, value) in enumerate(rows):
        others = [v for m, (_, v) in enumerate(rows) if v is not None and (m != n or not leave_one_out)]
        if value is None or not others:
            continue
        owed = value - sum(others) / len(others)
        assert sum(c.skill + c.luck for c in found[n]) == pytest.approx(owed, abs=1e-8)
        assert all(0 <= c.weight <= 1 for c in found[n])


@given(ATTEMPTS, st.integers(1, 4))
def test_with_the_own_return_left_out_it_does_not_move_the_own_skill(
    rows: list[tuple[list[Did], float | None]], min_support: int
) -> None:
    def first(value: float) -> list[Row]:
        return credit([(rows[0][0], value), *rows[1:]], 2, min_support=min_support)[0]

    assert skills(first(1.0)) == pytest.approx(skills(first(-1.0)), abs=1e-9)


@given(ATTEMPTS, ATTEMPTS)
def test_tasks_do_not_touch_each_other(
    one: list[tuple[list[Did], float | None]], other: list[tuple[list[Did], float | None]]
) -> None:
    both = tree_credit(paths_of([*one, *other], ["a"] * len(one) + ["b"] * len(other)), shrinkage=2, min_support=3)
    alone = tree_credit(paths_of(one), shrinkage=2, min_support=3)
    size = len(alone.skill)
    assert all((whole[:size] == part).all() for whole, part in zip(both, alone, strict=True))
