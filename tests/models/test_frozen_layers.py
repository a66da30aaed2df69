"""Layers of a model that only answers give what they gave, by a shorter way."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.models import frozen_layers
from flywheel.models.frozen_layers import added, freeze
from tests.stages.train.families import FAMILIES, tiny

pytestmark = pytest.mark.model


def logits(model: Any) -> Any:
    import torch

    with torch.inference_mode():
        return model(input_ids=torch.arange(3, 63).view(4, 15), use_cache=False).logits


def shortened(model: Any) -> set[str]:
    """Return the layers of a model that have another way, by their own names."""
    return {name.rsplit(".", 1)[-1] for name, layer in model.named_modules() if "forward" in vars(layer)}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_frozen_model_gives_what_it_gave(family: str, dtype: str) -> None:
    """The adapter stays in float32, as PEFT loads it."""
    import torch

    model = tiny(family).eval()
    for name, weights in model.named_parameters():
        if "lora" not in name:
            weights.data = weights.data.to(getattr(torch, dtype))
    expected = logits(model)
    freeze(model)

    assert {"q_proj", "up_proj", "lm_head"} <= shortened(model), "nothing is laid out"
    if dtype == "bfloat16":
        assert torch.equal(logits(model), expected)
    else:
        torch.testing.assert_close(logits(model), expected, rtol=1e-5, atol=1e-5)
    with model.disable_adapter():
        assert not torch.equal(logits(model), expected), "the adapter has no effect"


def test_a_layer_that_trains_goes_its_own_way() -> None:
    import torch

    model, ids = tiny("llama").eval(), torch.arange(3, 18)[None]
    plain = model(input_ids=ids).logits
    freeze(model)
    found = model(input_ids=ids).logits
    found.sum().backward()

    assert torch.equal(found, plain)
    assert any(weights.grad is not None for name, weights in model.named_parameters() if "lora" in name)


def test_a_second_adapter_is_shortened_when_it_is_there() -> None:
    import torch
    from peft import LoraConfig

    def with_two(*, frozen: bool) -> Any:
        model = tiny("llama").eval()
        if frozen:
            freeze(model)
        torch.manual_seed(1)
        model.add_adapter("other", LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
        if frozen:
            freeze(model)
        return model

    plain, frozen = with_two(frozen=False), with_two(frozen=True)
    found = []
    for name in ("other", "default"):
        plain.set_adapter(name)
        frozen.set_adapter(name)
        torch.testing.assert_close(logits(frozen), logits(plain), rtol=1e-5, atol=1e-5)
        found.append(logits(frozen))
    assert not torch.equal(*found)


@pytest.mark.parametrize("kind", ["dora", "dropout", "merged"])
def test_what_a_lora_layer_adds_otherwise_is_left_to_it(kind: str) -> None:
    import torch
    from peft import LoraConfig, get_peft_model

    base = tiny("llama").unload()
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj"], use_dora=kind == "dora", lora_dropout=0.5))
    if kind == "merged":
        model.merge_adapter()
    model.train(kind == "dropout")
    layer = next(m for name, m in model.named_modules() if name.endswith("q_proj"))
    assert added(layer, (), {}) is None

    torch.manual_seed(0)
    expected = logits(model)
    freeze(model)
    torch.manual_seed(0)
    torch.testing.assert_close(logits(model), expected)


def test_a_large_model_has_no_second_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_layers, "_MOST", 1000)
    model = tiny("llama").eval()
    freeze(model)

    assert "lm_head" not in shortened(model)
    assert "q_proj" in shortened(model), "its adapter is shortened all the same"


def test_a_copy_that_gives_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(frozen_layers, "_multiplied", lambda _ready, _bias, plain, x: plain(x) * 1.01)
    model = tiny("llama").eval()
    freeze(model)

    assert "lm_head" not in shortened(model)
