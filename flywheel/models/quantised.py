"""A base model whose linear layers are held in four bits (bitsandbytes) or eight (torchao), for QLoRA.

Training, reference and evaluation load it by the same call, so that all of them see the same rounded weights. Nothing
but linear layers is rounded: embeddings, norms and head are float32 under bitsandbytes, as PEFT prepares them.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from flywheel.config import ModelConfig
from flywheel.errors import ConfigError

if TYPE_CHECKING:
    import torch

PACKAGES = {"nf4": "bitsandbytes", "int8": "torchao"}
# Bytes of a number of a linear layer: four bits and the scale of 64 numbers, itself in eight bits; eight bits.
BYTES = {"nf4": 0.5 + 1 / 64, "int8": 1.0}


def refuse_quantised(cfg: ModelConfig) -> None:
    """Refuse a quantised base whose package is missing, before anything is loaded.

    Raises:
        ConfigError: names the package.
    """
    package = PACKAGES.get(cfg.quantise)
    if package is not None and find_spec(package) is None:
        raise ConfigError(
            f"model.quantise = `{cfg.quantise}` needs {package}, which is not installed",
            hint=f"pip install {package}; a GPU is not needed, but on CPUs it is slower than plain weights",
        )


def loading(cfg: ModelConfig, dtype: torch.dtype) -> dict[str, Any]:
    """Return what makes transformers quantise a model as it loads, on the device that it stays on."""
    import torch

    if cfg.quantise == "none":
        return {}
    refuse_quantised(cfg)
    device = {"": torch.cuda.current_device() if torch.cuda.is_available() else "cpu"}
    if cfg.quantise == "int8":
        from torchao.quantization import Int8WeightOnlyConfig
        from transformers import TorchAoConfig

        return {"quantization_config": TorchAoConfig(quant_type=Int8WeightOnlyConfig()), "device_map": device}
    from transformers import BitsAndBytesConfig

    four = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype
    )
    return {"quantization_config": four, "device_map": device}


def prepared(model: Any) -> Any:
    """Return a quantised model whose weights are frozen and whose other layers are in float32.

    On some CPUs bitsandbytes rewrites a layer's weights when it is first evaluated, and rounds their scales: what is
    scored would then not be what was trained.
    """
    from peft import prepare_model_for_kbit_training

    for layer in model.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)


def keep_precision(model: Any) -> Any:
    """Return an adapted model whose adapter TRL leaves in float32: rounded, it would not be the one that was named."""
    model.is_loaded_in_4bit = False  # of the wrapper, which TRL asks; the base's own stays
    return model


def dequantised(model: Any, dtype: torch.dtype) -> Any:
    """Return a plain model with the numbers that a quantised one is multiplied with."""
    import copy

    from transformers import AutoModelForCausalLM

    config = copy.deepcopy(model.config)
    del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=dtype)
    weights = {name: _numbers(parameter) for name, parameter in model.named_parameters()}
    plain.load_state_dict({name: weight.to("cpu", dtype) for name, weight in weights.items()}, strict=False)
    return plain.to(next(model.parameters()).device).eval()


def _numbers(parameter: Any) -> torch.Tensor:
    if hasattr(parameter, "quant_state"):
        from bitsandbytes.functional import dequantize_4bit

        numbers: torch.Tensor = dequantize_4bit(parameter.data, parameter.quant_state)
        return numbers
    plain: torch.Tensor = parameter.dequantize() if type(parameter).__name__ == "Int8Tensor" else parameter.data
    return plain.detach()
