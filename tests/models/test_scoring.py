"""Shared beginnings: the numbers of a plain pass, for every family, whatever nests in what; and what is not shared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from flywheel.models.prefixes import cache_argument, common_length, plan_saving
from flywheel.models.scoring import Batches, Draw, plain_log_probs, shared_log_probs
from hypothesis import given
from hypothesis import strategies as st
from tests.stages.train.families import FAMILIES, tiny

pytestmark = pytest.mark.model
Rows = list[tuple[list[int], list[int]]]


@pytest.fixture
def _inference() -> Iterator[None]:
    import torch

    with torch.inference_mode():
        yield


def nested(seed: int = 0) -> Rows:
    """Write rows as a log has them: a system prompt, conversations that go on from it, several answers to each."""
    rng = random.Random(seed)  # noqa: S311 - rows of a test
    words = [[rng.randrange(3, 120) for _ in range(n)] for n in (60, 40, 35, 50, 7)]
    system, first, second, other, tail = words
    prompts = [system + first, system + first + second, system + first + second + tail, system + other, other, tail]
    answers = [[rng.randrange(3, 120) for _ in range(n)] for n in (1, 6, 11)]
    return [(prompt, answer) for prompt in prompts for answer in answers]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("_inference")
def test_shared_scores_are_the_plain_ones(family: str) -> None:
    model, rows = tiny(family).eval(), nested()

    plain = [plain_log_probs(model, [row], 1, 0)[0] for row in rows]
    assert plain_log_probs(model, rows, 4, 0) == pytest.approx(plain, abs=1e-3)
    assert shared_log_probs(model, rows, 4, 0) == pytest.approx(plain, abs=1e-3)
    assert shared_log_probs(model, rows[::-1], 3, 0)[::-1] == pytest.approx(plain, abs=1e-3)


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
@pytest.mark.usefixtures("_inference")
def test_what_is_written_does_not_depend_on_sharing(family: str) -> None:
    model = tiny(family).eval()
    prompts = [prompt for prompt, _ in nested()[::3]]

    shared = Batches(4, 0, 2)
    for draw in (None, Draw(1.0, 3)):
        alone = [Batches(1, 0, 2).written(model, [prompt], 8, draw)[0] for prompt in prompts]
        found = shared.written(model, prompts, 8, draw)
        assert found == alone
    assert shared.shares is (True if family == "llama" else None)  # one that looks back so far only is never padded


def test_drawn_tokens_have_the_models_probabilities_at_a_temperature() -> None:
    import torch

    logits, prompts = torch.tensor([0.0, 1.0, 2.0]), [[n] for n in range(3000)]
    drawn = Draw(0.5, 1).noise(prompts)(range(3000), [0] * 3000, logits.repeat(3000, 1)).argmax(-1)

    shares = torch.bincount(drawn, minlength=3) / 3000
    assert shares.tolist() == pytest.approx(torch.softmax(logits / 0.5, -1).tolist(), abs=0.025)
    assert Draw(0.5, 1).noise(prompts[7:8])([0], [0], logits[None]).argmax() == drawn[7]


class _Forgets:
    """A model whose cache is lost, as one of a kind that flywheel does not know."""

    def __init__(self, model: Any) -> None:
        self.model, self.config, self.device, self.dtype = model, model.config, model.device, model.dtype
        self.get_base_model = model.get_base_model

    def __call__(self, **given: Any) -> Any:
        for name in cache_argument(self.model, None):
            given.pop(name, None)
        return self.model(**given)


@pytest.mark.usefixtures("_inference")
def test_a_model_whose_cache_is_not_continued_is_scored_side_by_side() -> None:
    model, rows = tiny("llama").eval(), nested()
    forgets, batches = _Forgets(model), Batches(4, 0, 2)

    assert batches.log_probs(forgets, rows) == pytest.approx(plain_log_probs(model, rows, 4, 0), abs=1e-3)
    assert batches.shares is False


@pytest.mark.usefixtures("_inference")
def test_rows_that_share_nothing_are_not_tried() -> None:
    model, batches = tiny("llama").eval(), Batches(4, 0, 2)
    rows = [([i, i + 1, i + 2], [5, 6]) for i in range(3, 30, 3)]

    assert batches.log_probs(model, rows) == pytest.approx(plain_log_probs(model, rows, 1, 0), abs=1e-3)
    assert batches.shares is None
    assert batches.log_probs(model, []) == []


def test_the_saving_is_that_of_the_tree() -> None:
    head = list(range(100))
    heads = [head, head, [*head, *range(200, 260)], [9] * 10]

    assert plan_saving(heads, [5] * 4) == pytest.approx((100 + 100 + 160 + 10 + 20) / (100 + 60 + 10 + 20))
    assert plan_saving([[1] * 20, [1] * 20], [3, 3]) == 1.0  # too short to be shared


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_common_length(one: list[int], other: list[int]) -> None:
    n = common_length(one, other)

    assert one[:n] == other[:n]
    assert n == min(len(one), len(other)) or one[n] != other[n]
