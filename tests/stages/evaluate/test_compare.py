"""Pairing, intervals, slices and coverage: every case of either policy is accounted for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.errors import EvalError
from flywheel.extensions import CaseScore
from flywheel.stages.evaluate.compare import build_report, compare
from flywheel.stats.paired import mcnemar_better
from flywheel.stats.tango import tango_interval
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from flywheel.records import MetricRow
    from flywheel.stages.evaluate.rows import Standing


def scores(
    values: Sequence[float], *, metric: str = "good", per_task: int = 1, slices: Sequence[str] = (), **rest: Any
) -> list[CaseScore]:
    return [
        CaseScore(
            f"c{i:03d}",
            f"t{i // per_task:03d}",
            metric,
            value,
            slices={"tool": slices[i]} if slices else {},
            **({"primary": True} | rest),
        )
        for i, value in enumerate(values)
    ]


def head(rows: Sequence[MetricRow]) -> MetricRow:
    return next(r for r in rows if r.primary and r.slice == "all")


def test_a_known_table() -> None:
    candidate = scores([1.0] * 25 + [0.0] * 10 + [1.0] * 265)
    baseline = scores([0.0] * 25 + [1.0] * 10 + [1.0] * 265)

    row = head(compare(candidate, baseline, suite="s").metrics)

    assert (row.n, row.n_tasks, row.wins, row.losses) == (300, 300, 25, 10)
    assert (row.low, row.high) == pytest.approx((0.0120, 0.0912), abs=5e-5)
    assert (row.low, row.high) == tango_interval(25, 10, 300)
    assert row.method == "Tango"
    assert row.p_better == mcnemar_better(25, 10)
    assert row.p_worse == mcnemar_better(10, 25)
    assert row.delta == pytest.approx(15 / 300)
    assert (row.value, row.baseline) == pytest.approx((290 / 300, 275 / 300))


def test_many_cases_of_few_tasks_are_worth_few() -> None:
    candidate = scores([1.0] * 20 + [0.0] * 20, per_task=10)
    baseline = scores([0.0] * 40, per_task=10)

    row = head(compare(candidate, baseline, suite="s").metrics)

    assert (row.n, row.n_tasks, row.wins) == (40, 4, 20)
    assert row.p_better == 0.25  # two tasks won, none lost
    assert row.design_effect == pytest.approx(13, abs=0.5)
    assert row.low is not None
    assert row.low < 0
    assert row.method == "Tango, 4 tasks, design effect 13.0"


def test_scores_that_are_not_binary() -> None:
    few, many = ([0.1 * (i % 3) for i in range(n)] for n in (12, 60))

    short = head(compare(scores(few, binary=False), scores([0.0] * 12, binary=False), suite="s").metrics)
    long = head(compare(scores(many, binary=False), scores([0.0] * 60, binary=False), suite="s", seed=3).metrics)

    assert (short.method, long.method) == ("t over 12 tasks", "bootstrap over 60 tasks")
    for row in (short, long):
        assert row.delta == pytest.approx(0.1)
        assert row.low is not None
        assert row.high is not None
        assert row.low < 0.1 < row.high
        assert row.p_better is not None
        assert row.p_better < 0.02
        assert (row.wins, row.losses, row.binary) == (0, 0, False)


def test_one_task_of_scores_says_nothing_of_others() -> None:
    row = head(
        compare(
            scores([0.5] * 9, binary=False, per_task=9), scores([0.0] * 9, binary=False, per_task=9), suite="s"
        ).metrics
    )

    assert (row.low, row.high, row.p_better) == (-1.0, 1.0, 0.5)


def test_wins_and_regressions_are_named() -> None:
    found = compare(scores([1.0, 0.0, 1.0]), scores([0.0, 1.0, 1.0]), suite="s")

    assert (found.wins, found.regressions) == (["c000"], ["c001"])


def test_what_cases_ask_is_kept_where_one_side_was_better() -> None:
    found = compare(scores([1.0, 1.0], title="How many are left?"), scores([0.0, 1.0]), suite="s")

    assert found.titles == {"c000": "How many are left?"}


def test_slices_of_the_headline_metric_with_five_cases_or_more() -> None:
    slices = ["a"] * 6 + ["b"] * 4
    candidate = scores([1.0] * 10, slices=slices) + scores([1.0] * 10, slices=slices, metric="side", primary=False)
    baseline = scores([0.0] * 10, slices=slices) + scores([1.0] * 10, slices=slices, metric="side", primary=False)

    rows = compare(candidate, baseline, suite="s").metrics

    assert [(r.metric, r.slice, r.n, r.primary) for r in rows] == [
        ("good", "all", 10, True),
        ("good", "tool=a", 6, True),
        ("side", "all", 10, False),
    ]


def test_a_slice_that_is_everything_is_not_repeated() -> None:
    rows = compare(scores([1.0] * 6, slices=["a"] * 6), scores([0.0] * 6, slices=["a"] * 6), suite="s").metrics

    assert [r.slice for r in rows] == ["all"]


def test_cases_that_the_candidate_lacks_are_a_gap() -> None:
    baseline = scores([1.0, 1.0, 0.0, math.nan]) + scores([1.0] * 4, metric="side", primary=False)
    candidate = [*scores([1.0, math.nan]), *scores([1.0] * 3, metric="side", primary=False)]

    found = compare(candidate, baseline, suite="s")

    assert found.coverage == {
        "s: offered": 4,
        "s: scored": 1,
        "s: gap": 2,
        "s: missing: no reason given": 1,
        "s: gap: side": 1,
    }


def test_reasons_are_counted() -> None:
    long = [CaseScore("x", "t", "good", math.nan, primary=True, slices={"missing": "too long"})]

    both = compare(scores([1.0]) + long, scores([1.0]) + long, suite="s")
    only_candidate = compare(scores([1.0, 1.0]), scores([1.0]), suite="s")

    assert both.coverage == {"s: offered": 2, "s: scored": 1, "s: missing: too long": 1}
    assert only_candidate.coverage == {"s: offered": 2, "s: scored": 1, "s: missing: not scored for the baseline": 1}


def test_nothing_to_compare() -> None:
    assert compare([], [], suite="s") == ([], {"s: offered": 0, "s: scored": 0}, [], [], {}, [])

    nothing = compare(scores([math.nan]), scores([math.nan]), suite="s")
    assert (head(nothing.metrics).n, head(nothing.metrics).delta) == (0, None)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (scores([1.0]) + scores([0.0]), "twice"),
        (scores([0.5]), "not 0 or 1"),
        (scores([1.5], binary=False), "not a number in"),
        (scores([math.inf], binary=False), "not a number in"),
    ],
)
def test_an_evaluator_that_breaks_its_contract_is_told_so(bad: list[CaseScore], said: str) -> None:
    with pytest.raises(EvalError, match=said):
        compare(bad, [], suite="s")


OUTCOMES = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0, math.nan, None]), st.sampled_from([0.0, 1.0, math.nan, None])), max_size=30
)


@given(OUTCOMES, st.integers(1, 4), st.randoms(use_true_random=False))
def test_every_case_is_counted_once_and_order_does_not_matter(
    outcomes: list[tuple[float | None, float | None]], per_task: int, rng: Any
) -> None:
    def side(k: int) -> list[CaseScore]:
        whole = scores([o[k] or 0.0 for o in outcomes], per_task=per_task)
        return [s for s, o in zip(whole, outcomes, strict=True) if o[k] is not None]

    candidate, baseline = side(0), side(1)
    found = compare(candidate, baseline, suite="s")
    again = compare(rng.sample(candidate, len(candidate)), rng.sample(baseline, len(baseline)), suite="s")

    assert found == again
    counts = dict(found.coverage)
    assert counts.pop("s: offered") == len({s.case_id for s in candidate + baseline})
    assert sum(counts.values()) == len({s.case_id for s in candidate + baseline})
    for row in found.metrics:
        assert row.n == counts["s: scored"]
        assert row.wins - row.losses == pytest.approx((row.delta or 0.0) * row.n)
        if row.low is not None and row.high is not None and row.delta is not None:
            assert row.low <= row.delta + 1e-9
            assert row.delta - 1e-9 <= row.high


def report(candidate: Mapping[str, Sequence[CaseScore]], baseline: Mapping[str, Sequence[CaseScore]]) -> Any:
    return build_report(
        candidate=candidate,
        baseline=baseline,
        round_number=2,
        baseline_name="1",
        candidate_sha256="a",
        baseline_sha256="b",
        cases_sha256="c",
        trained_tasks={"t001", "elsewhere"},
    )


def test_the_report_counts_leaks_and_lets_the_first_suite_decide() -> None:
    sides = {"one": scores([1.0, 0.0, 1.0]), "two": scores([1.0, 1.0], metric="other")}
    base = {"one": scores([0.0, 0.0, 1.0]), "two": scores([0.0, 1.0], metric="other")}

    found = report(sides, base)

    assert (found.round, found.baseline, found.n_cases, found.n_tasks, found.leaked_tasks) == (2, "1", 5, 3, 2)
    assert [(r.suite, r.metric, r.primary) for r in found.metrics] == [("one", "good", True), ("two", "other", False)]
    assert found.wins == ["c000"]
    assert found.coverage == {"one: offered": 3, "one: scored": 3, "two: offered": 2, "two: scored": 2}


def test_an_empty_first_suite_is_not_replaced_by_the_second() -> None:
    found = report({"one": [], "two": scores([1.0])}, {"one": [], "two": scores([0.0])})

    assert not any(r.primary for r in found.metrics)
    assert report({}, {}).metrics == []


@pytest.mark.e2e
def test_a_hundred_thousand_cases() -> None:
    values = [float(i % 3 == 0) for i in range(100_000)]
    others = [float(i % 5 == 0) for i in range(100_000)]

    row = head(compare(scores(values, per_task=2), scores(others, per_task=2), suite="s").metrics)

    assert (row.n, row.n_tasks) == (100_000, 50_000)


def test_known_units_are_left_out_of_a_row_of_its_own() -> None:
    found = compare(scores([1.0] * 10), scores([0.0] * 10), suite="s", known={"t000", "t001", "elsewhere"})

    fresh = next(r for r in found.metrics if r.slice == "fresh")
    assert (found.metrics[0].n, fresh.n, fresh.primary) == (10, 8, True)
    assert all(r.slice != "fresh" for r in compare(scores([1.0]), scores([0.0]), suite="s", known={"x"}).metrics)


def test_what_a_candidate_lacks_is_named_over_all_and_by_slice() -> None:
    base = [CaseScore(f"c{i}", f"t{i}", "good", 1.0, slices={"tool": "refund" if i < 6 else "find"}) for i in range(20)]

    found = report({"one": base[4:]}, {"one": base})
    assert [(g.slice, g.lacking, g.of, g.names) for g in found.gaps] == [
        ("all", 4, 20, ["c0", "c1", "c2", "c3"]),
        ("tool=refund", 4, 6, ["c0", "c1", "c2", "c3"]),
    ]
    assert report({"one": base}, {"one": base}).gaps == []


def test_declared_slices_have_a_row_even_without_a_case() -> None:
    one = [CaseScore(f"c{i}", f"t{i}", "good", 1.0, slices={"slice few": "yes"} if i < 2 else {}) for i in range(9)]
    standing: dict[str, Standing] = {"slice few": "declared", "slice none": "declared", "slice chat": "unguarded"}

    rows = compare(one, one, suite="s", standings=standing).metrics
    assert [(r.slice, r.standing, r.n) for r in rows] == [
        ("all", "found", 9),
        ("slice chat=yes", "unguarded", 0),
        ("slice few=yes", "declared", 2),
        ("slice none=yes", "declared", 0),
    ]
