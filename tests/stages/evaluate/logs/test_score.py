"""Served attempts → paired scores, units, slices, gaps."""

from __future__ import annotations

import math
from typing import Any

import pytest
from flywheel.config import SliceRule
from flywheel.stages.evaluate.attempt import Attempt
from flywheel.stages.evaluate.compare import compare
from flywheel.stages.evaluate.logs.score import serve
from flywheel.stages.evaluate.slices import intents, language, task_groups


def attempt(task: str, score: float | None, **rest: Any) -> Attempt:
    values: dict[str, Any] = {"episode_id": f"{task} {sorted(rest.items())}", "request": f"question {task}"}
    return Attempt(**(values | {"task_id": task, "score": score} | rest))


def side(scores: str, **rest: Any) -> list[Attempt]:
    return [attempt(f"{i:03d}", float(score), **rest) for i, score in enumerate(scores)]


def test_single_attempts_are_compared_by_mcnemar() -> None:
    found = serve(side("110010"), side("111001"))
    head = compare(found.new, found.old, suite="served").metrics[0]

    assert (found.binary, found.unit, head.n, head.wins, head.losses) == (True, "task", 6, 2, 1)
    assert head.p_better == pytest.approx(0.5)
    assert head.method == "Tango"


def test_several_attempts_of_a_task_are_one_case_with_their_mean() -> None:
    found = serve(side("1100"), [*side("1100"), *side("1011", episode_id="again")])
    by_case = {s.case_id: s.score for s in found.new if s.metric == "success"}

    assert not found.binary
    assert by_case == {"000": 1.0, "001": 0.5, "002": 0.5, "003": 0.5}


def test_users_are_the_unit_where_every_case_has_one() -> None:
    old = [attempt(f"{i}", 1.0, user=f"u{i // 4}") for i in range(20)]
    new = [attempt(f"{i}", 0.0, user=f"u{i // 4}") for i in range(20)]

    found = serve(old, new)
    assert (found.unit, len({s.task_id for s in found.old})) == ("user", 5)
    assert serve(old, [attempt("0", 1.0), *new[1:]]).unit == "user"
    assert serve(side("111"), side("111")).unit == "task"


def test_users_who_tie_everything_together_do_not_make_one_unit() -> None:
    chain = [attempt(f"{i}", 1.0, user=f"u{i}") for i in range(10)]
    other = [attempt(f"{i}", 1.0, user=f"u{(i + 1) % 10}") for i in range(10)]

    assert len({s.task_id for s in serve(chain, other).old}) >= 8


def test_a_case_that_the_new_policy_lacks_is_a_gap_with_its_name() -> None:
    old = [attempt(f"{i}", 1.0, name=f"shop/{i}") for i in range(10)]
    new = [attempt(f"{i}", 1.0 if i else None, name=f"shop/{i}") for i in range(9)]

    (gap,) = serve(old, new).gaps
    assert gap == ("all", 2, 10, ["shop/0", "shop/9"])
    assert serve(old, old).gaps == []


def test_a_slice_that_the_new_policy_lost_is_named() -> None:
    old = [attempt(f"{i}", 1.0, tools=frozenset({"refund" if i < 6 else "find"})) for i in range(20)]

    gaps = serve(old, old[4:]).gaps
    assert [(g.slice, g.lacking, g.of) for g in gaps] == [("all", 4, 20), ("tool=refund", 4, 6)]


def test_what_nobody_judged_on_the_old_side_is_missing_and_no_gap() -> None:
    found = serve([attempt("a", None), attempt("b", 1.0)], [attempt("a", 1.0), attempt("b", 1.0)])

    assert found.gaps == []
    assert {s.case_id for s in found.old} == {"b"}


def test_cases_of_the_new_policy_only_are_counted_and_not_scored() -> None:
    found = serve(side("11"), side("1111"))

    assert found.only_new == 2
    assert len({s.case_id for s in found.new}) == 2


def test_slices_come_from_the_old_side_only_and_never_twice() -> None:
    old = [attempt(f"{i}", 1.0, tools=frozenset({"a", "b"} if i % 2 else {"c"})) for i in range(10)]
    new = [attempt(f"{i}", 1.0, tools=frozenset({"z"})) for i in range(10)]

    slices = {s.case_id: dict(s.slices) for s in serve(old, new).new if s.metric == "success"}
    assert slices["0"] == {"tool": ("c",)}
    assert slices["1"] == {"tool": ("a",)}  # b holds the same cases


def test_declared_slices_and_tiers() -> None:
    old = [attempt(f"{i}", 1.0, tier="gold" if i % 2 else "free") for i in range(6)]
    found = serve(old, old, rules=[SliceRule(name="first", request="question 0"), SliceRule(name="paid", tier="gold")])

    assert dict(found.old[0].slices) == {"slice first": ("yes",), "tier": ("free",)}
    assert dict(found.old[2].slices) == {"slice paid": ("yes",)}  # the found tier=gold holds the same cases


def test_language() -> None:
    assert language("Can you please cancel my order? The parcel is lost and I want the money") == "en"
    assert language("Ich möchte bitte die Bestellung nicht mehr, können Sie das stornieren?") == "de"
    assert language("Je voudrais annuler la commande que vous avez dans le magasin") == "fr"
    assert language("注文をキャンセルしたいです") == "ja"
    assert language("取消我的订单") == "zh"
    assert language("отмените мой заказ") == "ru"
    assert language("12345") is None
    assert language("") is None


def test_task_groups() -> None:
    assert task_groups({"a": "mint/gsm8k/7", "b": "plain"}) == {"a": "mint/gsm8k"}


def test_intents_group_requests_by_what_they_are_about() -> None:
    kinds = ["cancel flight boston", "refund invoice twice", "reset password account"]
    texts = {f"{i:02d}": f"please {kinds[i % 3]} number{chr(97 + i % 26)}" for i in range(30)}

    found = intents(texts)
    assert [len({found[f"{i:02d}"] for i in range(k, 30, 3)}) for k in range(3)] == [1, 1, 1]
    assert len(set(found.values())) == 3
    assert intents(dict(reversed(texts.items()))) == found
    assert intents({k: v for k, v in texts.items() if int(k) < 19}) == {}


def test_scores_are_means_within_bounds() -> None:
    found = serve([attempt("a", 0.1, episode_id=f"{i}") for i in range(3)], [attempt("a", 1.0)])

    assert all(not math.isnan(s.score) and 0 <= s.score <= 1 for s in (*found.old, *found.new))
