"""A row's weight in SFT: twice the weight is the row twice, in loss and gradient, alone or inside another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from flywheel.io import files
from flywheel.io.files import read_rows
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer
from flywheel.records import canonical_json
from flywheel.stages.train.rows import demonstrations, tokenise
from flywheel.stages.train.trl_common import with_adapter
from tests.projects import make_tiny_model
from tests.stages.train.test_round import call, rows, spec, train_here


def test_a_trained_token_has_the_weight_of_its_rows() -> None:
    given = [
        {"prompt_ids": [1], "completion_ids": [2]},
        {"prompt_ids": [1, 2, 3], "completion_ids": [4, 5, 6]},
        {"prompt_ids": [9], "completion_ids": [8]},
    ]
    first, second = demonstrations(given, [3.0, 1.0, 1.0])
    assert (first.row.ids, second.row.ids) == ((9, 8), (1, 2, 3, 4, 5, 6))
    assert second.row.windows == ((1, 2), (3, 6))
    scale = 5 / (3 + 3 * 1 + 1)  # five trained tokens, their mean weight is 1
    assert second.weights == pytest.approx([3 * scale, scale, scale, scale])
    assert first.weights == pytest.approx([scale])
    assert demonstrations([*given, given[0]]) == demonstrations(given, [2.0, 1.0, 1.0])
    assert demonstrations(given, [2.0, 2.0, 2.0]) == demonstrations(given)


def test_a_sequence_is_trained_as_often_as_the_most_of_its_rows() -> None:
    given = [
        {"prompt_ids": [1], "completion_ids": [2]},
        {"prompt_ids": [1, 2, 3], "completion_ids": [4, 5, 6]},
        {"prompt_ids": [9], "completion_ids": [8]},
    ]
    assert [one.times for one in demonstrations(given, None, [4, 1, 1])] == [1, 4]
    assert [one.times for one in demonstrations(given)] == [1, 1]
    assert [one.weights for one in demonstrations(given, None, [4, 1, 1])] == [
        one.weights for one in demonstrations(given)
    ]


def test_a_row_of_several_times_takes_as_many_steps(tmp_path: Path, whole: Path) -> None:
    one, other = rows("sft", 2)
    steps = {}
    for times in (1, 3):
        made = spec(tmp_path / str(times), whole, batch_size=1, max_steps=-1, sft_epochs=1)
        files.atomic_write(made.data, "".join(canonical_json(r) + "\n" for r in ({**one, "times": times}, other)))
        steps[times] = train_here(made)[0].steps
    assert steps == {1: 2, 3: 4}


def _nll(model: Any, row: dict[str, list[int]]) -> tuple[torch.Tensor, int]:
    ids, start = row["prompt_ids"] + row["completion_ids"], len(row["prompt_ids"])
    logits = model(input_ids=torch.tensor([ids])).logits[0, start - 1 : -1]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(ids[start:]), reduction="sum"), len(ids) - start


def _mean(model: Any, found: list[tuple[torch.Tensor, int]]) -> tuple[float, float]:
    """Return the loss a token and the norm of its gradient."""
    loss = torch.stack([nll for nll, _ in found]).sum() / sum(n for _, n in found)
    torch.autograd.backward(loss)
    grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return float(loss.detach()), float(torch.linalg.vector_norm(torch.cat(grads)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with every token: with few, the two gradients are too nearly equally long to be told apart."""
    return make_tiny_model(tmp_path_factory.mktemp("whole") / "model")


@pytest.mark.parametrize("heavy", [pytest.param(0, marks=pytest.mark.e2e), 1])
def test_twice_the_weight_is_the_row_twice(tmp_path: Path, whole: Path, heavy: int) -> None:
    made = spec(tmp_path, whole, batch_size=3, max_steps=1)
    first, other = rows("sft", 2)
    following = {"role": "user", "content": "And in the month after that, and in the whole year?"}
    step = {**first, "prompt": [*first["prompt"], *first["completion"], following], "completion": [call("SELECT 1")]}
    three = [first, step, other]  # the second goes on from the first: one sequence
    three[heavy] = {**three[heavy], "weight": 2.0}
    files.atomic_write(made.data, "".join(canonical_json(r) + "\n" for r in three))
    _, metrics = train_here(made)

    model = with_adapter(made).train()
    data = tokenise(
        read_rows(made.data), ChatFormat(load_tokenizer(made.config.model)), ("completion",), made.config.train
    )
    found = [_nll(model, row) for row in [*data.rows, data.rows[heavy]]]
    loss, norm = _mean(model, found)
    assert metrics[0]["loss"] == pytest.approx(loss, rel=1e-4)
    assert metrics[0]["grad_norm"] == pytest.approx(norm, rel=1e-3)
    model.zero_grad()
    without = _mean(model, [_nll(model, row) for row in data.rows])
    assert without[1] != pytest.approx(norm, rel=4e-3), "without the weight it is another gradient"


@pytest.mark.e2e
def test_a_step_in_several_passes_is_the_step_in_one(tmp_path: Path, whole: Path) -> None:
    """Its tokens weigh alike, however many a pass has."""
    short, long = rows("sft", 2)
    long["completion"] = [call("SELECT sum(amount) FROM orders WHERE month = 1 AND city = 'Oslo' AND amount > 100")]
    found = []
    for size, passes in ((2, 1), (1, 2)):
        made = spec(tmp_path / str(size), whole, batch_size=size, accumulation=passes, max_steps=1)
        files.atomic_write(made.data, "".join(canonical_json(row) + "\n" for row in (short, long)))
        result, metrics = train_here(made)
        assert result.checks["shared_prefix"] == (size == 2), "one row of a pass has nothing to share with"
        found.append((metrics[0]["loss"], metrics[0]["grad_norm"]))
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_dft_weighs_a_token_by_its_probability(tmp_path: Path, whole: Path) -> None:
    made = spec(tmp_path, whole, batch_size=2, max_steps=1, trl={"loss_type": "dft"})
    files.atomic_write(made.data, "".join(canonical_json(row) + "\n" for row in rows("sft", 2)))
    _, metrics = train_here(made)
    model = with_adapter(made).train()
    data = tokenise(rows("sft", 2), ChatFormat(load_tokenizer(made.config.model)), ("completion",), made.config.train)
    scores = []
    for row in data.rows:
        ids, start = row["prompt_ids"] + row["completion_ids"], len(row["prompt_ids"])
        log_probs = model(input_ids=torch.tensor([ids])).logits[0, start - 1 : -1].log_softmax(-1)
        scores.append(log_probs.gather(-1, torch.tensor(ids[start:])[:, None])[:, 0].detach())
    every = torch.cat(scores)
    assert metrics[0]["loss"] == pytest.approx(float(-(every * every.exp()).mean()), rel=1e-4)
    assert metrics[0]["nll"] == pytest.approx(float(-every.mean()), rel=1e-4)
