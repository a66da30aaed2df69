"""What is computed once equals what is computed row by row: log-probabilities and LoRA gradients, family by family."""

from __future__ import annotations

import functools
import inspect
import random
from typing import Any

import pytest
import torch
from flywheel.errors import TrainError
from flywheel.stages.train.sharing.attention import kernels
from flywheel.stages.train.sharing.decide import decide
from flywheel.stages.train.sharing.flex import _squares
from flywheel.stages.train.sharing.layout import layout
from flywheel.stages.train.sharing.packed import Scorer
from flywheel.stages.train.sharing.tree import Row, grow
from hypothesis import given
from hypothesis import strategies as st
from tests.stages.train.families import FAMILIES, tiny

_MADE: dict[str, Any] = {}


def model(family: str) -> Any:
    """One model a family; tests leave its weights alone."""
    if family not in _MADE:
        _MADE[family] = tiny(family)
    return _MADE[family]


def several_levels(seed: int = 0) -> list[Row]:
    """Rows of one state, of a later state of the same conversation, and of another conversation."""
    chance = random.Random(seed)  # noqa: S311

    def some(n: int) -> tuple[int, ...]:
        return tuple(chance.randrange(3, 128) for _ in range(n))

    system = some(20)
    longer = (*system, *some(12))
    return [
        Row((*system, *some(9)), ((20, 29),)),
        Row((*longer, *some(5)), ((32, 37),)),
        Row((*longer, *some(9)), ((22, 25), (32, 41))),
        Row(longer, ((20, 32),)),
        Row((*system, *some(1)), ((20, 21),)),
        Row(some(7), ((0, 7),)),
    ]


def by_hand(made: Any, rows: list[Row]) -> torch.Tensor:
    """The same numbers from the model's logits over the whole vocabulary, one row at a time, by nothing of ours."""
    found = []
    for row in rows:
        logits = made(input_ids=torch.tensor([row.ids])).logits[0].float().log_softmax(-1)
        found += [logits[p - 1, row.ids[p]] for p in row.trained]
    return torch.stack(found)


def gradient(made: Any, scores: torch.Tensor) -> torch.Tensor:
    """The adapter's gradient of a sum in which tokens weigh differently, some of them negatively."""
    made.zero_grad()
    torch.autograd.backward((scores * torch.linspace(-1, 2, len(scores))).sum())
    return torch.cat([p.grad.flatten() for p in made.parameters() if p.grad is not None])


@pytest.mark.parametrize("kernel", kernels("cpu"))
@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_and_gradients_are_those_of_separate_rows(family: str, kernel: str) -> None:
    made, rows = model(family), several_levels()
    scorer = Scorer(made)
    scorer.kernel = kernel
    plain = torch.cat(scorer.plain(rows))
    expected = gradient(made, plain)
    hand = by_hand(made, rows)
    slope = gradient(made, hand)
    shared = torch.cat(scorer.shared(rows))
    found = gradient(made, shared)

    assert grow(rows).plain > 2 * len(grow(rows).ids)
    assert expected.norm() > 1
    for scores, gradients in ((plain, expected), (shared, found)):
        assert torch.allclose(scores, hand, atol=5e-6)
        assert torch.allclose(gradients, slope, rtol=1e-4, atol=1e-4)


@given(
    st.sampled_from(FAMILIES),
    st.sampled_from(kernels("cpu")),
    st.integers(0, 10_000),
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), min_size=1, max_size=5),
)
def test_any_rows_score_alike_both_ways(family: str, kernel: str, seed: int, shapes: list[tuple[int, int]]) -> None:
    chance = random.Random(seed)  # noqa: S311
    base = tuple(chance.randrange(3, 128) for _ in range(30))
    rows = [
        Row((*base[:cut], *(chance.randrange(3, 128) for _ in range(own))), ((cut, cut + own),)) for cut, own in shapes
    ]
    scorer = Scorer(model(family))
    scorer.kernel = kernel
    with torch.no_grad():
        for one, other in zip(scorer.plain(rows), scorer.shared(rows), strict=True):
            assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    "family", [pytest.param(family, marks=[pytest.mark.e2e] if n % 3 else []) for n, family in enumerate(FAMILIES)]
)
def test_one_kernel_gives_what_blocks_give(family: str) -> None:
    """FlexAttention has no way back on CPUs; on a GPU every round compares the gradients too."""
    scorer, rows = Scorer(model(family)), several_levels(2)
    rows += [Row((*rows[2].ids[:32], *range(3, 123), *range(own, own + 40)), ((150, 192),)) for own in range(5)]
    with torch.no_grad():
        expected = torch.cat(scorer.shared(rows))
        scorer.kernel = "flex"
        found = torch.cat(scorer.shared(rows))

    assert len(grow(rows).ids) > 2 * 128  # several squares, some of them empty
    assert torch.allclose(found, expected, atol=5e-6)


def test_the_kernels_rule_knows_tensors_alone() -> None:
    """Compiled for any length, a kernel takes a number of its closure as 32 bits: no window, which was 2**60, is 0."""
    flat = layout(grow(several_levels()), kernel="flex")
    knows = inspect.getclosurevars(_squares(flat, 1 << 60).mask_mod).nonlocals

    assert knows
    assert all(isinstance(value, torch.Tensor) for value in knows.values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("default")  # what compiles the kernel warns of itself
@pytest.mark.parametrize("family", FAMILIES)
def test_on_a_gpu_both_kernels_give_the_plain_gradients(family: str) -> None:
    made = tiny(family).to("cuda")
    scorer, found = Scorer(made), {}
    for rows in (several_levels(), several_levels(3)[:3]):  # another length: the compiled kernel takes both
        for kernel in ("plain", "blocks", "flex"):
            scorer.kernel = kernel
            scores = torch.cat(scorer.plain(rows) if kernel == "plain" else scorer.shared(rows))
            made.zero_grad()
            torch.autograd.backward((scores * torch.linspace(-1, 2, len(scores), device="cuda")).sum())
            found[kernel] = (scores, torch.cat([p.grad.flatten() for p in made.parameters() if p.grad is not None]))
        for kernel in ("blocks", "flex"):
            assert torch.allclose(found[kernel][0], found["plain"][0], atol=1e-4)
            assert torch.nn.functional.cosine_similarity(found[kernel][1], found["plain"][1], dim=0) > 0.9999


@pytest.mark.parametrize("kernel", kernels("cpu"))
def test_recomputed_activations_change_no_gradient(kernel: str) -> None:
    made, rows = tiny("llama"), several_levels()
    scorer = Scorer(made)
    scorer.kernel = kernel
    expected = gradient(made, torch.cat(scorer.shared(rows)))
    base = made.get_base_model()
    older = not hasattr(base, "activation_checkpointing_enable")  # transformers 5.17
    recompute = base.gradient_checkpointing_enable if older else base.activation_checkpointing_enable
    recompute({"use_reentrant": False})
    found = gradient(made, torch.cat(scorer.shared(rows)))

    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", kernels("cpu"))
def test_half_precision_stays_near(kernel: str) -> None:
    made, rows = tiny("llama").to(torch.bfloat16), several_levels()
    scorer = Scorer(made)
    scorer.kernel = kernel
    expected = torch.cat(scorer.plain(rows))
    slope = gradient(made, expected)
    found = torch.cat(scorer.shared(rows))

    assert torch.allclose(found, expected, atol=0.05)
    assert torch.nn.functional.cosine_similarity(gradient(made, found).float(), slope.float(), dim=0) > 0.999


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=40), min_size=1, max_size=8), st.integers(1, 4))
def test_parts_look_at_what_stands_before_a_token_in_its_rows_and_at_it_once(ids: list[list[int]], least: int) -> None:
    tree = grow([Row(tuple(row), ()) for row in ids], least)
    seen = torch.zeros((len(tree.ids), len(tree.ids)))
    for look, mask in layout(tree).looks(torch.float32):
        square = seen[slice(*look.queries), slice(*look.keys)]
        whole = torch.ones_like(square)
        square += whole.tril() if look.alone else whole if mask is None else mask.exp()
    expected = torch.zeros_like(seen)
    for i, segment in enumerate(tree.segments):
        above = i
        while above >= 0:
            expected[segment.start : segment.end, tree.segments[above].start : tree.segments[above].end] = 1
            above = tree.segments[above].parent
    assert torch.equal(seen, expected.tril())


def test_a_branch_that_saw_its_sibling_would_be_noticed() -> None:
    """The check can fail: the flat sequence under the model's own attention lets branches see one another."""
    made, rows = model("llama"), several_levels()
    scorer = Scorer(made)
    tree = grow(rows)
    with torch.no_grad():
        right = torch.cat(scorer.shared(rows))
        logits = made(input_ids=torch.tensor([tree.ids])).logits[0].log_softmax(-1)
        wrong = logits[tree.sources, tree.targets][[i for row in tree.rows for i in row]]
    assert (right - wrong).abs().max() > 0.1


def test_sharing_is_decided_on_a_real_batch() -> None:
    found = decide(Scorer(model("qwen3")), [several_levels(), several_levels(1)])

    assert found.on
    assert found.ratio > 2
    assert found.gap < 1e-5
    assert found.cosine > 0.9999
    assert found.checks()["shared_prefix"] == 1.0


def test_rows_that_share_little_are_not_packed() -> None:
    rows = [Row(tuple(range(3, 40)), ((30, 37),)), Row(tuple(range(50, 90)), ((30, 40),))]
    found = decide(Scorer(model("llama")), [rows])

    assert not found.on
    assert "share enough" in found.reason


def test_pairs_share_beside_demonstrations_that_do_not() -> None:
    pair = [Row((*range(3, 33), last), ((30, 31),)) for last in (40, 41)]
    alone = [Row(tuple(range(k, k + 60)), ((50, 60),)) for k in range(3, 60, 10)]
    found = decide(Scorer(model("llama")), [pair, *([row] for row in alone)])

    assert found.on
    assert 1.05 < found.ratio < 1.15
    assert found.cosine == pytest.approx(1, abs=1e-5)


def test_each_pass_is_decided_for_itself() -> None:
    made, seen = model("llama"), list[bool]()
    scorer = Scorer(made)
    scorer.sharing = True
    handle = made.get_base_model().base_model.register_forward_pre_hook(
        lambda _, __, given: seen.append("flywheel_layout" in given), with_kwargs=True
    )
    pair = [Row((*range(3, 33), last), ((30, 31),)) for last in (40, 41)]
    for rows in (pair, pair[:1], [pair[0], Row(tuple(range(50, 80)), ((20, 30),))]):
        scorer(rows)
    handle.remove()
    assert seen == [True, False, False]


def test_dropout_forbids_sharing() -> None:
    assert "dropout" in decide(Scorer(model("llama")), [several_levels()], dropout=0.1).reason


def test_a_model_that_attends_otherwise_falls_back_with_the_numbers() -> None:
    """A model with its own way to attend: positions pushed apart where the pass is flat."""
    made = tiny("llama")
    backbone = made.get_base_model().base_model
    plain = backbone.rotary_emb.forward

    def bent(x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found: tuple[torch.Tensor, torch.Tensor] = plain(x, torch.arange(x.shape[1])[None] + 0 * position_ids)
        return found

    backbone.rotary_emb.forward = bent
    found = decide(Scorer(made), [several_levels()])

    assert not found.on
    assert "not this model's plain one" in found.reason
    assert found.gap > 1e-3


def _without_layout(forward: Any, *args: Any, **more: Any) -> Any:
    return forward(*args, **{name: value for name, value in more.items() if name != "flywheel_layout"})


def test_a_model_without_the_interface_falls_back() -> None:
    made = tiny("llama")
    for layer in made.get_base_model().base_model.layers:
        forward = layer.self_attn.forward
        layer.self_attn.forward = functools.partial(_without_layout, forward)
    found = decide(Scorer(made), [several_levels()])

    assert not found.on
    assert "no shared pass" in found.reason


def test_a_model_with_logits_of_its_own_is_refused() -> None:
    """Its softmax is not that of its head, so what would be trained is another model."""
    own = tiny("llama")
    causal = own.get_base_model()
    plain = causal.forward

    def shifted(*args: Any, **kwargs: Any) -> Any:
        found = plain(*args, **kwargs)
        found.logits = found.logits + torch.linspace(-3, 3, found.logits.shape[-1])
        return found

    causal.forward = shifted
    with pytest.raises(TrainError, match="computes its logits in a way that flywheel does not know"):
        Scorer(own)
