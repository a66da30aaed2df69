"""What a memory gives back: the tokens that the model writes without one, for fewer tokens read, in bounded room."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from flywheel.config import EvalConfig, ModelConfig
from flywheel.models.batch import PASS, Batch, runs
from flywheel.models.memory import Memory
from flywheel.models.policy import PolicySet
from flywheel.models.scoring import Batches, Draw
from flywheel.models.writing import can_write
from hypothesis import given
from hypothesis import strategies as st
from tests.stages.train.families import FAMILIES, tiny

pytestmark = pytest.mark.model

PAD, END, MOST = 0, 2, 12
SAMPLED = Draw(1.0, 3)


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    import torch

    with torch.inference_mode():
        yield


def acts(batches: Batches, model: Any, draw: Draw | None, memory: Memory | None, talks: int = 5) -> list[list[int]]:
    """Let conversations that begin alike go on: the model's words, some of them cut short, then others'."""
    rng = random.Random(0)  # noqa: S311 - rows of a test
    system = [rng.randrange(3, 120) for _ in range(70)]
    prompts = [system + [rng.randrange(3, 120) for _ in range(rng.randrange(1, 30))] for _ in range(talks)]
    written: list[list[int]] = []
    for act in range(3):
        answers = batches.written(model, prompts, MOST, draw, memory)
        written += answers
        shown = [answer if talk % 3 else answer[:-3] for talk, answer in enumerate(answers)]
        others = [[rng.randrange(3, 120) for _ in range(rng.randrange(1, 9))] for _ in prompts]
        prompts = [p + s + o for p, s, o in zip(prompts, shown, others, strict=True)][act:]
    return written


def alone(model: Any, draw: Draw | None, talks: int = 5) -> list[list[int]]:
    """Return the same by transformers' own loop, row by row."""
    batches = Batches(1, PAD, END)
    batches.shares = False
    return acts(batches, model, draw, None, talks)


@pytest.fixture(scope="module")
def plain_sampled() -> list[list[int]]:
    import torch

    with torch.inference_mode():
        return alone(tiny("llama").eval(), SAMPLED)


@pytest.mark.parametrize(
    ("family", "draw"),
    [
        *(pytest.param(family, None, marks=[pytest.mark.e2e] if n % 4 else []) for n, family in enumerate(FAMILIES)),
        ("llama", SAMPLED),
    ],
)
def test_a_memory_changes_no_token(family: str, draw: Draw | None) -> None:
    model, plain = tiny(family).eval(), alone(tiny(family).eval(), draw)

    assert acts(Batches(4, PAD, END), model, draw, Memory()) == plain
    assert draw is None or any(len(answer) < MOST for answer in plain), "no row ends early, so none leaves its batch"


@pytest.mark.parametrize(
    ("family", "draw"),
    [
        *(pytest.param(family, None, marks=[pytest.mark.e2e] if n % 4 else []) for n, family in enumerate(FAMILIES)),
        ("llama", SAMPLED),
    ],
)
def test_many_rows_keep_what_they_begin_with_once(family: str, draw: Draw | None) -> None:
    model, batches, apart = tiny(family).eval(), Batches(16, PAD, END), list[tuple[int, ...]]()
    model.register_forward_pre_hook(
        lambda _, __, given: apart.append(given["input_ids"].shape) if "flywheel_beginning" in given else None,
        with_kwargs=True,
    )

    assert acts(batches, model, draw, Memory(), talks=14) == alone(model, draw, talks=14)
    assert batches.cascades is (True if can_write(model) else None)
    assert bool(apart) is can_write(model)
    if apart:
        assert any(width == 1 and rows > 2 for rows, width in apart)
        assert any(width > 1 and 2 < rows < 14 for rows, width in apart), "no rows with more to read are read apart"


@pytest.mark.parametrize("draw", [None, SAMPLED])
@pytest.mark.parametrize("talks", [1, 5, 14])
def test_what_was_written_before_is_read_together_and_changes_no_token(draw: Draw | None, talks: int) -> None:
    model, passes = tiny("llama").eval(), list[int]()
    model.register_forward_pre_hook(lambda _, __, given: passes.append(given["input_ids"].shape[1]), with_kwargs=True)
    first, plain = Memory(), alone(tiny("llama").eval(), draw, talks)
    assert acts(Batches(16, PAD, END), model, draw, first, talks) == plain
    slowly = len(passes)
    passes.clear()

    again = Memory()
    again.drafts = first.drafts
    assert acts(Batches(16, PAD, END), model, draw, again, talks) == plain
    assert len(passes) < slowly / 1.5


@pytest.mark.parametrize("talks", [5, 14])
def test_wrong_guesses_change_no_token_and_their_places_are_used_again(
    talks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was written, other words are remembered behind it: most places are of tokens that are not kept."""
    monkeypatch.setattr(sys.modules[__name__], "MOST", 30)
    model, closed_up, memory = tiny("llama").eval(), list[int](), Memory()
    plain = alone(tiny("llama").eval(), None, talks)
    acts(Batches(16, PAD, END), model, None, memory, talks)
    for answer in plain:
        for at in range(2, len(answer)):
            for _ in range(50):
                memory.drafts.learn(answer[:at], [*range(3, 11)])
    close_up = Batch._close_up

    def counted(batch: Batch) -> None:
        closed_up.append(1)
        close_up(batch)

    monkeypatch.setattr(Batch, "_close_up", counted)
    guessing = Memory()
    guessing.drafts = memory.drafts

    assert acts(Batches(16, PAD, END), model, None, guessing, talks) == plain
    assert closed_up


def test_a_model_that_attends_otherwise_keeps_every_row_whole() -> None:
    """Soft-capped scores (Gemma 2), with layers that all look at everything."""
    model = tiny("gemma2", local=512).eval()
    config = model.get_base_model().config
    config.layer_types = ["full_attention"] * config.num_hidden_layers
    batches = Batches(16, PAD, END)

    assert can_write(model)
    assert acts(batches, model, None, Memory(), talks=9) == alone(model, None, talks=9)
    assert batches.cascades is False


@given(st.lists(st.integers(1, 400), min_size=1, max_size=30))
def test_rows_are_read_apart_only_where_that_saves_a_pass(rests: list[int]) -> None:
    rests = sorted(rests, reverse=True)
    parted = list(runs(rests))
    assert [n for run in parted for n in range(run.start, run.stop)] == [*range(len(rests))]
    computed = sum(rests[run.start] * (run.stop - run.start) + PASS for run in parted)
    assert computed <= rests[0] * len(rests) + PASS


@pytest.mark.parametrize("most", [0, 60, 150, 300])
def test_a_memory_is_bounded_and_what_it_lacks_is_computed(most: int, plain_sampled: list[list[int]]) -> None:
    model, memory = tiny("llama").eval(), Memory(most)

    assert acts(Batches(4, PAD, END), model, SAMPLED, memory) == plain_sampled
    assert memory.tokens <= most
    assert (memory.tokens > 0) is (most > 0)


def test_only_what_is_new_is_read() -> None:
    model, read = tiny("llama").eval(), list[int]()
    model.register_forward_pre_hook(lambda _, __, given: read.append(given["input_ids"].numel()), with_kwargs=True)
    batches, memory = Batches(4, PAD, END), Memory()
    system, ends = [*range(3, 73)], [[80, 81], [82], [83, 84, 85]]
    prompts = [system + end for end in ends]
    batches.shares = True
    answers = batches.written(model, prompts, 1, None, memory)
    assert read == [70, 3 * 3], "the beginning once, then the rest of each row, padded"
    read.clear()
    longer = [prompt + answer + [90] for prompt, answer in zip(prompts, answers, strict=True)]
    batches.written(model, longer, 1, None, memory)
    assert read == [3 * 2], "what was written is not read yet"


def test_settings_of_a_models_makers_that_change_greedy_tokens_are_kept() -> None:
    model = tiny("llama").eval()
    plain = acts(Batches(4, PAD, END), model, None, Memory())
    model.generation_config.repetition_penalty = 5.0

    assert acts(Batches(4, PAD, END), model, None, Memory()) == alone(model, None) != plain


@pytest.mark.e2e
def test_a_policy_goes_on_from_what_it_said() -> None:
    """The embedded model, in float32."""
    policies = PolicySet(ModelConfig(dtype="float32"), EvalConfig(batch_size=2))
    asked = ["Name a colour.", "What is two and three?"]
    system = {"role": "system", "content": "You answer shortly, and you never say more than one sentence at a time."}
    talks: list[list[dict[str, Any]]] = [[system, {"role": "user", "content": text}] for text in asked]
    policy, none = policies.policy(None, "base"), [None] * len(talks)
    for _ in range(2):
        answers = policy.generate(talks, none, max_new_tokens=5)
        with policies.active(None) as model:
            prompts = [policies.ids(policies.chat.prompt(talk, None)) for talk in talks]
            plain = Batches(2, PAD, END)._side_by_side(model, prompts, 5, None)
        texts = policies.tokenizer.batch_decode(plain, skip_special_tokens=True)
        assert [answer.text for answer in answers] == [text.strip() for text in texts]
        for talk, answer in zip(talks, answers, strict=True):
            talk += [answer.message, {"role": "user", "content": "And another one?"}]


@given(st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=12), st.integers(0, 99))
def test_the_tree_gives_back_what_was_kept(rows: list[list[int]], most: int) -> None:
    """Keys that tell their row's beginning: no piece may come from another one."""
    import torch

    def layers(ids: list[int], depth: int) -> Any:
        sums = torch.tensor([[[float(hash(tuple(ids[: n + 1])) % 9973)] for n in range(depth, len(ids))]])
        return [(sums.reshape(1, -1, 1), -sums.reshape(1, -1, 1))]

    memory = Memory(most)
    for row in rows:
        memory.begin([row])
        depth = sum(part.tokens for part in memory.path(row))
        memory.keep(row, depth, layers(row, depth))
        assert memory.tokens <= most
        found = [part.piece.layers[0][0][:, : part.tokens] for part in memory.path(row)]
        known = torch.cat(found, 1) if found else torch.zeros(1, 0, 1)
        assert torch.equal(known, layers(row, 0)[0][0][:, : known.shape[1]])
        assert most < sum(map(len, rows)) or known.shape[1] == len(row)
