"""Layers with a second way forward compute by it what the model's own way gives, and other layers are left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flywheel.stages.train.sharing.layers import fuse, use_fused
from tests.stages.train.families import FAMILIES, tiny

_KINDS = ("RMSNorm", "Linear")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_norm_and_lora_layer_of_a_family_has_a_second_way(family: str) -> None:
    made = tiny(family)
    fuse(made)

    for layer in made.get_base_model().base_model.modules():
        kind = type(layer)
        if kind.__name__.endswith(_KINDS) and kind is not torch.nn.Linear:
            assert hasattr(layer, "flywheel_plain"), kind


@pytest.mark.parametrize("family", FAMILIES)
def test_one_layer_gives_the_same_values_and_gradients_both_ways(family: str) -> None:
    made = tiny(family)
    fuse(made)
    for layer in made.modules():
        if type(layer).__name__.endswith("RMSNorm"):
            layer.weight.data.uniform_(-1, 2)
    layer, rotary = made.get_base_model().base_model.layers[0], made.get_base_model().base_model.rotary_emb
    found = []
    for on in (False, True):
        use_fused(made, on=on)
        made.zero_grad()
        x = torch.linspace(-1, 2, 5 * 64).sin().view(1, 5, 64).requires_grad_()
        kind = ("sliding_attention",) if family == "gemma3_text" else ()
        out = layer(x, attention_mask=None, position_embeddings=rotary(x, torch.arange(5)[None], *kind))
        out = out[0] if isinstance(out, tuple) else out
        torch.autograd.backward((out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum())
        slopes = [p.grad.flatten() for p in layer.parameters() if p.grad is not None]
        assert x.grad is not None
        found.append((out.detach(), x.grad, torch.cat(slopes)))

    for one, other in zip(*found, strict=True):
        assert (one - other).abs().max() <= 2e-5 * one.abs().max()


class OtherRMSNorm(torch.nn.Module):
    """A norm with a rule of its own."""

    variance_epsilon = 1e-6

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.abs().mean(-1, keepdim=True) * self.weight


@pytest.mark.parametrize("layer", [OtherRMSNorm(), torch.nn.LayerNorm(8)], ids=str)
def test_a_layer_with_another_rule_is_left_alone(layer: Any) -> None:
    fuse(torch.nn.Sequential(layer))

    assert "forward" not in vars(layer)


def test_a_layer_that_somebody_else_has_changed_is_left_alone() -> None:
    made = tiny("llama")
    norm = made.get_base_model().base_model.norm
    norm.forward = changed = norm.forward
    fuse(made)

    assert norm.forward is changed
