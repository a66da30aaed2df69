"""Tiny random models of the families that flywheel trains, with an adapter that is not zero."""

from __future__ import annotations

from typing import Any

FAMILIES = ("llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "mistral", "granite", "cohere")
LOCAL = 8  # window of the layers that have one


def tiny(family: str, *, vocabulary: int = 128, local: int = LOCAL, seed: int = 0, spread: float = 0.1) -> Any:
    """Return a two-layer random model of a family under a LoRA of rank 4, in float32.

    Args:
        family: transformers' model type.
        vocabulary: its size.
        local: window of sliding layers, where the family has them.
        seed: of weights.
        spread: of LoRA's second factor; 0 leaves the adapter without effect.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if family in {"gemma2", "gemma3_text", "mistral"}:
        sizes["sliding_window"] = local
    if family == "granite":
        sizes["logits_scaling"] = 8.0
    torch.manual_seed(seed)
    base = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes), dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=spread)
    return model.train()
