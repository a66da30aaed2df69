"""Skill and luck on known answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from flywheel.stages.returns.credit import Attempt, Move, StepCredit, prefix_credit
from hypothesis import given
from hypothesis import strategies as st

TOY = [("ABD", 1), ("ABD", 1), ("ABE", 0), ("ACF", 0), ("ACF", 1), ("XBD", 0)]


def attempt(path: str, value: float | None) -> Attempt:
    """Return an attempt whose actions always get the same answer."""
    return Attempt([(letter, "ok") for letter in path], value)


def toy(k: float, *, leave_one_out: bool = False) -> dict[str, list[StepCredit]]:
    attempts = {f"{n}": attempt(path, value) for n, (path, value) in enumerate(TOY)}
    return prefix_credit(attempts, shrinkage=k, leave_one_out=leave_one_out)


def skills(path: Sequence[StepCredit]) -> list[float]:
    return [credit.skill for credit in path]


@pytest.mark.parametrize(
    ("number", "known"),
    [("0", [0.1, 1 / 15, 1 / 3]), ("2", [0.1, 1 / 15, -2 / 3]), ("3", [0.1, -0.1, 0]), ("5", [-0.5, 0, 0])],
)
def test_toy_log(number: str, known: list[float]) -> None:
    assert skills(toy(0)[number]) == pytest.approx(known)
    assert [c.n_support for c in toy(0)["0"]] == [5, 3, 2]


def test_toy_log_with_shrinkage() -> None:
    assert skills(toy(1)["0"]) == pytest.approx([0.0833333, 0.0625, 0.2361111])


def test_toy_log_with_the_own_return_left_out() -> None:
    credit = toy(0, leave_one_out=True)
    # What is left to explain at each state: R minus the value that the others give it.
    left = [sum(c.skill + c.luck for c in credit["0"][n:]) for n in range(3)]
    assert left == pytest.approx([0.6, 0.5, 0.5])
    assert sum(c.skill + c.luck for c in credit["5"]) == pytest.approx(-0.6)
    # Nobody else did X: that is no evidence, and no credit.
    assert [(c.skill, c.weight) for c in credit["5"]] == [(0, 0)] * 3
    assert skills(credit["0"]) == pytest.approx([0.1, 0, 0.5])


def test_a_retry_that_hides_an_error() -> None:
    """At the state after tool1 half the attempts call well and succeed; the others err, and 2 of 5 of them retry."""
    first, good = ("tool1", "ok"), ("good_args", "ok")
    bad, retry, quit_ = ("bad_args", "failed"), ("retry", "ok"), ("give_up", "")
    paths = [[first, good]] * 5 + [[first, bad, retry]] * 2 + [[first, bad, quit_]] * 3
    values = [1.0] * 7 + [0.0] * 3
    attempts = {f"{n:02}": Attempt(p, v) for n, (p, v) in enumerate(zip(paths, values, strict=True))}
    credit = prefix_credit(attempts, shrinkage=0, leave_one_out=False)["05"]
    assert skills(credit) == pytest.approx([0, -0.30, 0.60])
    assert [c.luck for c in credit] == pytest.approx([0, 0, 0])


@pytest.mark.parametrize(("k", "leave_one_out"), [(0, False), (2, False), (0, True)])
def test_a_backend_that_fails_at_random_is_luck_only(k: float, leave_one_out: bool) -> None:  # noqa: FBT001
    attempts = {f"{n}": Attempt([("call", "failed" if n % 2 else "ok")], 1.0 - n % 2) for n in range(20)}
    credit = prefix_credit(attempts, shrinkage=k, leave_one_out=leave_one_out)
    assert all(c.skill == 0 and c.weight == 0 for path in credit.values() for c in path)
    lucks = {n: path[0].luck for n, path in credit.items()}
    assert lucks["0"] == pytest.approx(0.5, abs=0.03)
    assert lucks["1"] == pytest.approx(-0.5, abs=0.03)


def test_credit_finds_the_better_arm_and_is_surer_with_more_attempts() -> None:
    def bandit(n: int) -> StepCredit:
        attempts = {f"{i}": attempt("A" if i % 2 else "B", float(i % 10 in {1, 3, 5, 7, 2})) for i in range(n)}
        return prefix_credit(attempts, shrinkage=0, leave_one_out=False)["1"][0]

    assert bandit(100).skill == bandit(1000).skill == pytest.approx(0.8 - 0.5)
    assert 0.5 < bandit(100).weight < bandit(1000).weight < 1


def test_alone_there_is_no_credit_and_no_luck() -> None:
    (path,) = prefix_credit({"a": attempt("AB", 1.0)}, shrinkage=2).values()
    assert path == [StepCredit(0, 0, 0, 1)] * 2


def test_an_unknown_return_gets_credit_and_gives_none() -> None:
    known = {"a": attempt("A", 1.0), "b": attempt("B", -1.0)}
    both = prefix_credit(known | {"c": attempt("A", None), "d": attempt("", None)}, shrinkage=0)
    assert both["c"] == [pytest.approx(StepCredit(1.0, 0.0, 1 / (1 + 1.5**0.5), 2))]
    assert [(c.skill, c.luck) for c in both["a"]] == [(c.skill, c.luck) for c in prefix_credit(known, shrinkage=0)["a"]]
    assert both["d"] == []


MOVES = st.lists(st.tuples(st.sampled_from("AB"), st.sampled_from(["ok", "failed"])), min_size=1, max_size=4)
ATTEMPTS = st.lists(st.tuples(MOVES, st.none() | st.floats(-2, 1)), min_size=1, max_size=12)


@given(ATTEMPTS, st.sampled_from([0.0, 1.0, 2.0]), st.booleans())
def test_skill_and_luck_add_up_to_the_return(
    rows: list[tuple[list[Move], float | None]],
    k: float,
    leave_one_out: bool,  # noqa: FBT001
) -> None:
    attempts = {f"{n:02}": Attempt(path, value) for n, (path, value) in enumerate(rows)}
    known = {name: a.value for name, a in attempts.items() if a.value is not None}
    for name, path in prefix_credit(attempts, shrinkage=k, leave_one_out=leave_one_out).items():
        others = [v for n, v in known.items() if n != name or not leave_one_out]
        value = known.get(name)
        if value is None or not others:
            continue
        assert sum(c.skill + c.luck for c in path) == pytest.approx(value - sum(others) / len(others), abs=1e-8)
        assert all(0 <= c.weight <= 1 for c in path)


@given(ATTEMPTS)
def test_with_the_own_return_left_out_it_does_not_move_the_own_skill(
    rows: list[tuple[list[Move], float | None]],
) -> None:
    def first(value: float) -> list[StepCredit]:
        attempts = {f"{n:02}": Attempt(path, v) for n, (path, v) in enumerate(rows)}
        attempts["00"] = attempts["00"]._replace(value=value)
        return prefix_credit(attempts, shrinkage=2)["00"]

    assert skills(first(1.0)) == pytest.approx(skills(first(-1.0)), abs=1e-9)
