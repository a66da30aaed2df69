"""Steps that continue one another are trained as one sequence, with the gradient of separate rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from flywheel.config import ModelConfig
from flywheel.models.load import load_base
from flywheel.stages.train.rows import answer, demonstrations
from flywheel.stages.train.sharing.tree import Row as Sequence
from hypothesis import given
from hypothesis import strategies as st

Row = dict[str, list[int]]


def row(prompt: list[int], completion: list[int]) -> Row:
    return {"prompt_ids": prompt, "completion_ids": completion}


def test_a_conversation_is_one_sequence_with_several_trained_actions() -> None:
    made = demonstrations([row([1, 2], [3]), row([1, 2, 3, 4], [5, 6]), row([1, 9], [3])])
    assert made == [
        (Sequence((1, 9, 3), ((2, 3),)), [1.0], 1),
        (Sequence((1, 2, 3, 4, 5, 6), ((2, 3), (4, 6))), [1.0, 1.0, 1.0], 1),
    ]


def test_one_prompt_with_two_answers_stays_two_rows() -> None:
    assert len(demonstrations([row([1, 2], [3, 4]), row([1, 2], [3, 5])])) == 2


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=5)


@given(st.lists(st.tuples(tokens, tokens), max_size=8))
def test_every_action_token_is_trained_in_its_own_context(given_rows: list[tuple[list[int], list[int]]]) -> None:
    rows = [row(p, c) for p, c in given_rows]
    alone = [(*p, *c)[: len(p) + i + 1] for p, c in given_rows for i in range(len(c))]
    made = demonstrations(rows)
    together = [m.row.ids[: place + 1] for m in made for place in m.row.trained]
    assert set(together) == set(alone)
    weights = [weight for m in made for weight in m.weights]
    for one in set(together):
        weight = sum(w for context, w in zip(together, weights, strict=True) if context == one)
        assert weight == pytest.approx(alone.count(one) * len(together) / len(alone))
    assert demonstrations(rows[::-1]) == made
    wholes = [m.row.ids for m in made]
    assert not any(a != b and b[: len(a)] == a for a in wholes for b in wholes)


def _gradient(model: Any, rows: list[Sequence]) -> torch.Tensor:
    model.zero_grad()
    for one in rows:
        logp = model(input_ids=torch.tensor([one.ids])).logits[0].log_softmax(-1)
        torch.autograd.backward(-torch.stack([logp[place - 1, one.ids[place]] for place in one.trained]).sum())
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_the_gradient_is_that_of_separate_rows(tiny_model: Path) -> None:
    model = load_base(ModelConfig(base=str(tiny_model), dtype="float32"))
    steps = [row([5, 6, 7], [8, 9]), row([5, 6, 7, 8, 9, 4], [3, 2, 1]), row([5, 6, 7, 8, 9, 4, 3, 2, 1, 7], [6])]
    apart = [answer(s["prompt_ids"], s["completion_ids"]) for s in steps]
    (shared,) = demonstrations(steps)
    assert shared.weights == [1.0] * 6
    expected = _gradient(model, apart)
    assert torch.linalg.vector_norm(expected) > 1
    assert torch.allclose(_gradient(model, [shared.row]), expected, rtol=1e-4, atol=1e-5)
    wrong = Sequence(shared.row.ids, ((0, len(shared.row.ids)),))
    assert not torch.allclose(_gradient(model, [wrong]), expected, rtol=1e-2), (
        "training the prompt too is another gradient"
    )


@pytest.mark.parametrize("rows", [[], [row([1], [2])]])
def test_few_rows(rows: list[Row]) -> None:
    assert len(demonstrations(rows)) == len(rows)
