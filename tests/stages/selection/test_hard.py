"""Kinds of requests at which a policy fails are found from uncertain outcomes, and hardly any other."""

from __future__ import annotations

import random
from typing import Any

from flywheel.funnel import Funnel
from flywheel.stages.selection.hard import are_hard, repeated

KINDS = (
    "What is the revenue of lamps in city {}?", "Which shop sold more than {} chairs?", "When does order {} arrive?",
    "Please cancel my subscription number {}.", "Translate the sentence with id {} into French.",
    "How long is the queue at counter {} today?",
)  # fmt: skip


def tried(chances: list[float], each: int, seed: int = 0) -> list[tuple[str | None, float]]:
    """Return episodes of each kind, their P(success) scattered about the kind's."""
    rng = random.Random(seed)  # noqa: S311 - a reproducible world
    return [
        (words.format(n), min(1.0, max(0.0, rng.gauss(chance, 0.2))))
        for words, chance in zip(KINDS, chances, strict=True)
        for n in range(each)
    ]


def test_the_kind_that_fails_is_hard_and_no_other() -> None:
    hard = are_hard(tried([0.75, 0.75, 0.3, 0.75, 0.75, 0.75], 12), [words.format("99") for words in KINDS])
    assert hard == [False, False, True, False, False, False]


def test_of_equal_kinds_few_are_taken_for_hard() -> None:
    taken = [sum(are_hard(tried([0.7] * 6, 10, seed), [w.format("99") for w in KINDS])) for seed in range(60)]
    assert sum(taken) <= 0.1 * 60 * len(KINDS)  # 1.5 standard errors: 6.7 % of them
    assert sum(taken) > 0  # it is not that nothing ever is


def test_a_policy_that_fails_everywhere_has_no_hard_kind() -> None:
    chances = [0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
    same = [(words.format(n), p) for words, p in zip(KINDS, chances, strict=True) for n in range(9)]
    assert not any(are_hard(same, [words.format("99") for words in KINDS]))


def test_few_episodes_and_other_requests_say_nothing() -> None:
    few = tried([0.9, 0.9, 0.1, 0.9, 0.9, 0.9], 4)
    assert not any(are_hard(few, [words.format("99") for words in KINDS]))
    many = tried([0.9, 0.9, 0.1, 0.9, 0.9, 0.9], 12)
    assert are_hard(many, ["Is there any soup left?", None]) == [False, False]
    assert are_hard([], [KINDS[0]]) == [False]


def test_rows_of_hard_kinds_are_trained_again_but_not_what_the_policy_does_itself() -> None:
    def row(words: str, **more: Any) -> dict[str, Any]:
        return {"id": words, "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": words}], **more}

    funnel = Funnel()
    mastered = tried([0.75, 0.75, 0.3, 0.75, 0.75, 0.75], 12)
    others = [row(KINDS[0].format(n)) for n in range(7)]
    rows = [row(KINDS[2].format("7")), *others, row(KINDS[2].format("8"), mix="replayed")]
    made = repeated(rows, mastered, 4, funnel)

    assert [one.get("times") for one in made] == [4, *[None] * 8]
    assert [{k: v for k, v in one.items() if k != "times"} for one in made] == rows
    assert funnel.as_dict()["note: rows of kinds at which the start fails, trained 4 times a pass"] == 1

    def often(hard: int) -> int | None:
        return repeated([row(KINDS[2].format("7"))] * hard + others, mastered, 4, Funnel())[0].get("times")

    assert [often(hard) for hard in (1, 2, 3, 7)] == [3, None, None, None]  # at most half of what the others have
