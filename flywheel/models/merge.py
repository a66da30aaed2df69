"""An adapter merged into its base: plain transformers files that any server loads, with the same logits.

In: the base model's configuration and an adapter folder. Out: a folder with safetensors, tokenizer and chat template,
and the largest difference of any logit between what was written, read again, and the base with the adapter next to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.config import ModelConfig
from flywheel.errors import FlywheelError
from flywheel.models.load import load_base, load_tokenizer, quiet, require_safetensors, weights_type
from flywheel.models.quantised import dequantised

if TYPE_CHECKING:
    import torch


PROBES = (
    "The agent looked at the order and called the tool.",
    '{"name": "run_sql", "arguments": {"sql": "SELECT count(*) FROM orders WHERE city = \'Kyoto\'"}}',
    "Grüße, 世界! 0123456789 ... ?!",
)
TOLERANCE = {"float32": 2e-3, "bfloat16": 0.5}  # of the largest logit's size: what rounding alone does


def merge(cfg: ModelConfig, adapter: Path, folder: Path) -> float:
    """Write the merged model into an empty folder; return how far its logits are from the adapted one's, at most.

    Args:
        cfg: the base model.
        adapter: a PEFT folder with safetensors.
        folder: where to.

    Raises:
        FlywheelError: the merged model's logits are not those of the adapted one.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    quiet()
    require_safetensors(adapter)
    tokenizer = load_tokenizer(cfg)
    probes = [torch.tensor([tokenizer(text)["input_ids"]]) for text in PROBES]
    adapted: Any = PeftModel.from_pretrained(load_base(cfg), str(adapter)).eval()
    adapted_logits = _logits(adapted, probes)
    if cfg.quantise != "none":  # into the numbers that it was trained with, not into those they were rounded from
        plain_base = dequantised(adapted.unload(), getattr(torch, weights_type(cfg)))
        adapted = PeftModel.from_pretrained(plain_base, str(adapter)).eval()
    adapted.merge_and_unload().save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    del adapted
    plain = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=getattr(torch, weights_type(cfg)), trust_remote_code=False, use_safetensors=True
    ).eval()
    merged = _logits(plain.to("cuda") if torch.cuda.is_available() else plain, probes)
    return _checked(weights_type(cfg), adapted_logits, merged)


def _logits(model: Any, probes: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    import torch

    with torch.inference_mode():
        return [model(input_ids=ids.to(model.device)).logits.float().cpu() for ids in probes]


def _checked(dtype: str, adapted: Sequence[torch.Tensor], merged: Sequence[torch.Tensor]) -> float:
    difference = max(float((a - b).abs().max()) for a, b in zip(adapted, merged, strict=True))
    size = max(float(a.abs().max()) for a in adapted)
    if not difference <= TOLERANCE[dtype] * max(size, 1.0):  # also where a number is none
        raise FlywheelError(
            f"the merged model is not the adapted one: a logit differs by {difference:.3g}, the largest is {size:.3g}",
            hint="serve the adapter next to its base (flywheel deploy vllm); [model] dtype float32 merges exactly",
        )
    return difference
