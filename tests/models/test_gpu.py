"""On a GPU a policy writes and scores what it does on a CPU, and samples from the same distribution."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from flywheel.models.memory import Memory
from flywheel.models.scoring import Batches, Draw
from flywheel_worlds.sampling import _Noise
from tests.stages.train.families import FAMILIES, tiny

pytestmark = [pytest.mark.model, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

PAD, END = 0, 2
CHANCES = torch.tensor([0.5, 0.25, 0.15, 0.1])
DRAWS = 4000


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def prompts(count: int = 6) -> list[list[int]]:
    """Prompts that begin alike."""
    rng = random.Random(0)  # noqa: S311 - rows of a test
    system = [rng.randrange(3, 120) for _ in range(70)]
    return [system + [rng.randrange(3, 120) for _ in range(rng.randrange(1, 30))] for _ in range(count)]


def near(tokens: list[int]) -> bool:
    """Return whether counts of 4,000 draws are what the chances say: chi-square of three degrees, one in 100,000."""
    counts = torch.bincount(torch.tensor(tokens), minlength=len(CHANCES))
    expected = CHANCES * len(tokens)
    return float(((counts - expected) ** 2 / expected).sum()) < 26.0


@pytest.mark.parametrize("family", FAMILIES)
def test_it_writes_and_scores_what_a_cpu_does(family: str) -> None:
    on_cpu, asked = tiny(family).eval(), prompts()
    written = Batches(4, PAD, END).written(on_cpu, asked, 8, memory=Memory())
    scored = Batches(4, PAD, END).log_probs(on_cpu, list(zip(asked, written, strict=True)))
    on_gpu = tiny(family).eval().to("cuda")

    assert Batches(4, PAD, END).written(on_gpu, asked, 8, memory=Memory()) == written
    found = Batches(4, PAD, END).log_probs(on_gpu, list(zip(asked, written, strict=True)))
    assert found == pytest.approx(scored, abs=1e-3)


def test_a_draw_is_from_the_softmax_and_the_same_again_in_another_batch() -> None:
    logits = (CHANCES.log() * 2).to("cuda").expand(DRAWS, -1)
    rows = [[row] for row in range(DRAWS)]
    draw = Draw(2.0, 7)
    tokens = draw.noise(rows)(range(DRAWS), [0] * DRAWS, logits).argmax(-1).tolist()

    assert near(tokens)
    assert draw.noise(rows)(range(50, 60), [0] * 10, logits[:10]).argmax(-1).tolist() == tokens[50:60]


def test_a_world_samples_there_too() -> None:
    logits = (CHANCES.log() * 2).to("cuda").expand(DRAWS, -1)
    noise = _Noise(range(DRAWS), 2.0)
    tokens = noise(range(DRAWS), [0] * DRAWS, logits).argmax(-1).tolist()

    assert near(tokens)
    assert noise.log_probs[0][0] == pytest.approx(float(CHANCES[tokens[0]].log()), abs=1e-4)


def test_sampled_text_is_the_same_whatever_else_is_in_the_batch() -> None:
    model, asked = tiny("llama").eval().to("cuda"), prompts()
    together = Batches(6, PAD, END).written(model, asked, 8, Draw(1.0, 3), Memory())
    alone = [Batches(1, PAD, END).written(model, [one], 8, Draw(1.0, 3), Memory())[0] for one in asked]

    assert together == alone
