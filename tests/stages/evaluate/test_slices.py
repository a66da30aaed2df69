"""Declared slices by everything they may look at; gaps by slice."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.config import SliceRule
from flywheel.errors import ConfigError
from flywheel.stages.evaluate.attempt import Attempt
from flywheel.stages.evaluate.slices import Slices, case_slices, gaps, standings

WORDS = ("cancel flight boston", "refund invoice twice", "reset password account")


def cases() -> dict[str, list[Attempt]]:
    """Write thirty cases of three intents, two languages, two tools, two tags and two models."""
    made = {}
    for i in range(30):
        text = f"please {WORDS[i % 3]} with the number{chr(97 + i % 26)}"
        if i < 10:
            text = f"bitte {WORDS[i % 3]} und das ist nicht die{chr(97 + i)}"
        made[f"c{i:02d}"] = [
            Attempt(
                f"e{i}", f"t{i}", text, None, name=f"shop/{i}", tools=frozenset({"refund" if i % 5 == 0 else "find"}),
                tags=frozenset({"vip"} if i % 6 == 0 else {"plain"}), tier="gold" if i % 2 else "free",
                columns={"model": "small" if i < 15 else "large", "started": f"2026-11-{i + 1:02d}T08:00:00"},
            )
        ]  # fmt: skip
    return made


def members(**rule: Any) -> set[int]:
    made = cases()
    found = case_slices(made, [SliceRule(name="mine", **rule)])
    return {int(case[1:]) for case, kinds in found.items() if "slice mine" in kinds}


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ({"language": "de"}, set(range(10))),
        ({"intent": "*refund*"}, set(range(1, 30, 3))),
        ({"tag": "v?p"}, set(range(0, 30, 6))),
        ({"tool": "ref*"}, set(range(0, 30, 5))),
        ({"tier": "gold", "language": "de"}, {1, 3, 5, 7, 9}),
        ({"where": {"model": "large"}}, set(range(15, 30))),
        ({"where": {"started": "2026-11-0[12]*", "model": "small"}}, {0, 1}),
        ({"request": "BOSTON", "task": "shop/1*"}, {12, 15, 18}),
        ({}, set(range(30))),
        ({"language": "fr"}, set()),
    ],
)
def test_declared_by(rule: dict[str, Any], wanted: set[int]) -> None:
    assert members(**rule) == wanted


def test_two_declared_slices_of_the_same_cases_both_stand() -> None:
    found = case_slices(cases(), [SliceRule(name="a", language="de"), SliceRule(name="b", language="de")])

    assert found["c00"]["slice a"] == found["c00"]["slice b"] == ("yes",)
    assert "language" not in found["c00"]  # the found one with these cases gives way


def test_standings() -> None:
    rules = [SliceRule(name="refunds"), SliceRule(name="chat", guarded=False)]
    assert standings(rules) == {"slice refunds": "declared", "slice chat": "unguarded"}


def test_a_column_that_is_an_outcome_cannot_be_asked_for() -> None:
    from flywheel.config import Config

    with pytest.raises((ConfigError, ValueError)):
        Config.model_validate({"eval": {"slices": [{"name": "x", "where": {"stop_reason": "done"}}]}})


def test_the_order_of_cases_does_not_matter() -> None:
    made = cases()
    assert case_slices(dict(reversed(made.items()))) == case_slices(made)


def test_gaps_name_the_slices_that_lost_more_than_half() -> None:
    slices: Slices = {f"{i}": {"tool": ("refund" if i < 6 else "find",)} for i in range(20)}
    found = gaps(sorted(slices), {"0", "1", "2", "3"}, slices, {"0": "shop/0"})

    assert [(g.slice, g.lacking, g.of) for g in found] == [("all", 4, 20), ("tool=refund", 4, 6)]
    assert found[0].names == ["1", "2", "3", "shop/0"]
    assert gaps(sorted(slices), set(), slices, {}) == []
