"""Steps that continue one another are trained as one sequence, with the gradient of separate rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from flywheel.config import ModelConfig
from flywheel.models.load import load_base
from flywheel.stages.train.rows import demonstrations
from hypothesis import given
from hypothesis import strategies as st

Row = dict[str, list[int]]


def row(prompt: list[int], completion: list[int]) -> Row:
    return {"prompt_ids": prompt, "completion_ids": completion}


def test_a_conversation_is_one_sequence_with_several_trained_actions() -> None:
    made = demonstrations([row([1, 2], [3]), row([1, 2, 3, 4], [5, 6]), row([1, 9], [3])])
    assert made == [
        {"input_ids": [1, 9, 3], "labels": [-100, -100, 3]},
        {"input_ids": [1, 2, 3, 4, 5, 6], "labels": [-100, -100, 3, -100, 5, 6]},
    ]


def test_one_prompt_with_two_answers_stays_two_rows() -> None:
    assert len(demonstrations([row([1, 2], [3, 4]), row([1, 2], [3, 5])])) == 2


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=5)


@given(st.lists(st.tuples(tokens, tokens), max_size=8))
def test_every_action_token_is_trained_in_its_own_context(given_rows: list[tuple[list[int], list[int]]]) -> None:
    def trained(input_ids: list[int], labels: list[int]) -> set[tuple[int, ...]]:
        return {tuple(input_ids[: i + 1]) for i, label in enumerate(labels) if label != -100}

    rows = [row(p, c) for p, c in given_rows]
    alone = [trained(p + c, [-100] * len(p) + c) for p, c in given_rows]
    made = demonstrations(rows)
    together = [trained(m["input_ids"], m["labels"]) for m in made]
    assert set().union(*together) == set().union(*alone)
    assert all(label in {-100, token} for m in made for token, label in zip(m["input_ids"], m["labels"], strict=True))
    assert demonstrations(rows[::-1]) == made
    wholes = [m["input_ids"] for m in made]
    assert not any(a != b and b[: len(a)] == a for a in wholes for b in wholes)


def _gradient(model: Any, rows: list[Row]) -> torch.Tensor:
    model.zero_grad()
    for one in rows:
        ids, labels = torch.tensor([one["input_ids"]]), torch.tensor([one["labels"]])
        logits = model(input_ids=ids).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
        torch.autograd.backward(loss)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_the_gradient_is_that_of_separate_rows(tiny_model: Path) -> None:
    model = load_base(ModelConfig(base=str(tiny_model), dtype="float32"))
    steps = [row([5, 6, 7], [8, 9]), row([5, 6, 7, 8, 9, 4], [3, 2, 1]), row([5, 6, 7, 8, 9, 4, 3, 2, 1, 7], [6])]
    apart = [
        {
            "input_ids": s["prompt_ids"] + s["completion_ids"],
            "labels": [-100] * len(s["prompt_ids"]) + s["completion_ids"],
        }
        for s in steps
    ]
    shared = demonstrations(steps)
    assert (len(apart), len(shared)) == (3, 1)
    expected = _gradient(model, apart)
    assert torch.linalg.vector_norm(expected) > 1
    assert torch.allclose(_gradient(model, shared), expected, rtol=1e-4, atol=1e-5)
    wrong = [{**shared[0], "labels": shared[0]["input_ids"]}]
    assert not torch.allclose(_gradient(model, wrong), expected, rtol=1e-2), (
        "training the prompt too is another gradient"
    )


@pytest.mark.parametrize("rows", [[], [row([1], [2])]])
def test_few_rows(rows: list[Row]) -> None:
    assert len(demonstrations(rows)) == len(rows)
