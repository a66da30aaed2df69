"""What training holds in the memory of a device, from the base model's files alone: no weight is read.

In: `config.json` and the headers of the safetensors files, the settings of the adapter, the tokens of a pass. Out: the
bytes of each part, and whether activations are kept or computed again on the way back. The parts are counted tensor by
tensor for decoders in the manner of Llama under PEFT; `benchmarks/memory.py` compares their sum with the peak that was
measured (docs/figures.md).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flywheel.config import LoraConfig, ModelConfig, TrainConfig
from flywheel.errors import ConfigError
from flywheel.io.files import read_json
from flywheel.models.load import base_folder, weights_type
from flywheel.models.quantised import BYTES
from flywheel.records import MemoryEstimate

_IN_A_LAYER = re.compile(r"(^|\.)(layers|layer|h|blocks|block)\.\d+\.")
_PEER = 5 * 4  # bytes of a trained number: itself, its gradient, Adam's two, and the copy of the newest good adapter
_AT_ONCE, _PROBED = 128, 240  # positions with logits at a time; those of the distance's probe
_RUNTIME = {"cpu": 700 * 2**20, "cuda": 800 * 2**20}  # libraries, or a device's context, before a model is loaded
# Of what all layers give, the share that a C library holds in freed pieces, recomputed or not; no GPU was measured
FRAGMENTS = {"cpu": 0.75, "cuda": 0.0}
# Share of the device up to which activations are kept: the rest is for what the estimate lacks, and on a CPU for others
_KEPT = {"cpu": 0.5, "cuda": 0.85}
# Most tokens of one forward pass: a longer batch is cut into several passes of the same optimiser step. A CPU gains
# nothing from longer ones, and loses what is padded.
PASS_TOKENS = {"cpu": 2048, "cuda": 32_768}


@dataclass(frozen=True)
class Decoder:
    """Sizes of a base model."""

    folder: Path
    linear: dict[str, tuple[int, int]]  # of linear layers that may get an adapter: name in the files: (out, in)
    others: int  # numbers outside of them: embeddings, head, norms
    layers: int
    hidden: int
    query: int  # width of all heads together
    key: int  # of the heads of keys
    inner: int
    vocabulary: int

    @classmethod
    def of(cls, folder: Path) -> Decoder:
        """Return the sizes of a model's folder."""
        config = read_json(folder / "config.json")
        config = {**config, **(config.get("text_config") or {})}
        shapes = _shapes(folder)
        linear = {
            name.removesuffix(".weight"): (shape[0], shape[1])
            for name, shape in shapes.items()
            if len(shape) == 2 and name.endswith(".weight") and _IN_A_LAYER.search(name)  # noqa: PLR2004
        }
        every = sum(math.prod(shape) for shape in shapes.values())
        hidden = _size(config, "hidden_size", "n_embd", "d_model")
        heads = _size(config, "num_attention_heads", "n_head", "n_heads")
        width = int(config.get("head_dim") or hidden // heads)
        experts = int(config.get("num_experts_per_tok") or 1)
        inner = int(config.get("moe_intermediate_size") or config.get("intermediate_size") or 4 * hidden)
        return cls(
            folder=folder,
            linear=linear,
            others=every - sum(math.prod(shape) for shape in linear.values()),
            layers=_size(config, "num_hidden_layers", "n_layer", "n_layers"),
            hidden=hidden,
            query=heads * width,
            key=int(config.get("num_key_value_heads") or heads) * width,
            inner=experts * inner,
            vocabulary=_size(config, "vocab_size"),
        )

    def adapted(self, lora: LoraConfig) -> dict[str, tuple[int, int]]:
        """Return the layers that get an adapter, as PEFT chooses them.

        The files of some families name layers otherwise than the model that transformers builds of them, so that an
        expression, or a name that the files lack, is looked for in the latter.

        Raises:
            ConfigError: a name is that of no layer, or the expression matches none.
        """
        wanted = lora.target_modules
        if wanted == "all-linear" or not self.linear:  # of layers that are not known nothing can be missed
            return self.linear
        names, linear = [wanted] if isinstance(wanted, str) else wanted, self.linear
        in_files = (any(_is_meant(name, layer, wanted) for layer in linear) for name in names)
        if isinstance(wanted, str) or not all(in_files):
            linear = _built(self.folder) or linear
        found = {name: [layer for layer in linear if _is_meant(name, layer, wanted)] for name in names}
        for name, layers in found.items():
            if not layers:
                have = ", ".join(sorted({layer.rpartition(".")[2] for layer in linear}))
                raise ConfigError(
                    f"train.lora.target_modules: no layer of the base model is `{name[:80]}`",
                    hint=f'its layers: {have}; "all-linear" takes all',
                )
        return {layer: linear[layer] for layers in found.values() for layer in layers}


def _built(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the linear layers of the model that transformers builds, without weights; none where it builds none."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.pytorch_utils import Conv1D

    try:
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except (ValueError, KeyError, TypeError, AttributeError, ImportError, OSError):
        return {}
    linear = {name: layer for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear | Conv1D)}
    shapes = {name: (layer.weight.shape[0], layer.weight.shape[1]) for name, layer in linear.items()}
    return {name: shape for name, shape in shapes.items() if _IN_A_LAYER.search(name)}


def _size(config: Mapping[str, Any], *names: str) -> int:
    """Return a size under the name that a family has for it; 1 where it has none of these."""
    return next((int(config[name]) for name in names if config.get(name)), 1)


def _is_meant(name: str, layer: str, wanted: str | Sequence[str]) -> bool:
    if not isinstance(wanted, str):
        return layer == name or layer.endswith(f".{name}")
    try:
        return re.fullmatch(name, layer) is not None
    except re.error as error:
        raise ConfigError(
            "train.lora.target_modules is not a regular expression", hint="or a list: ['q_proj', 'v_proj']"
        ) from error


def _shapes(folder: Path) -> dict[str, list[int]]:
    """Return the shape of every tensor, from the headers of the safetensors files that transformers loads.

    Some folders hold a second copy under its maker's own names (`consolidated.safetensors`).
    """
    shapes: dict[str, list[int]] = {}
    index, there = folder / "model.safetensors.index.json", sorted(folder.glob("*.safetensors"))
    loaded = set(read_json(index)["weight_map"].values()) if index.is_file() else {"model.safetensors"}
    for file in [file for file in there if file.name in loaded] or there:
        with file.open("rb") as handle:
            header = json.loads(handle.read(int.from_bytes(handle.read(8), "little")))
        shapes |= {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}
    return shapes


def rows_of_pass(most: int, tokens: int, limit: int) -> int:
    """Return the largest divisor of `most` rows whose tokens keep the limit, at least 1."""
    return max((n for n in range(1, most + 1) if most % n == 0 and n * tokens <= limit), default=1)


def device_memory(train: TrainConfig) -> tuple[Literal["cpu", "cuda"], int]:
    """Return the kind of device that trains, and its bytes: the smallest GPU's, or what this process may have."""
    import torch

    gpus = [torch.cuda.get_device_properties(n).total_memory for n in range(torch.cuda.device_count())]
    kind: Literal["cpu", "cuda"] = "cuda" if gpus else "cpu"
    limit = min(gpus) if gpus else min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_allowed())
    return kind, min(limit, round(train.memory_gib * 2**30) or limit)


def _allowed() -> list[int]:
    """Return the limits that a container sets."""
    places = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
    texts = [place.read_text(encoding="ascii").strip() for place in places if place.is_file()]
    return [int(text) for text in texts if text.isdigit()] or [2**62]


class Footprint:
    """Memory of a base model under an adapter, by the tokens of a pass.

    Args:
        model: the base model.
        train: the adapter, the batch and checkpointing.
        processes: that train together, on a device each; on CPUs they share one machine's memory.
        spread: whether they share out the model's layers (FSDP).

    Raises:
        ConfigError: train.lora.target_modules names no layer.
    """

    def __init__(self, model: ModelConfig, train: TrainConfig, *, processes: int = 1, spread: bool = False) -> None:
        self._train, self._decoder = train, Decoder.of(base_folder(model))
        self._quantised = model.quantise
        # Under four-bit layers all others are float32, and so is what they give.
        self._bytes = 4 if weights_type(model) == "float32" or model.quantise == "nf4" else 2
        self.kind, memory = device_memory(train)
        self.available = memory // processes if self.kind == "cpu" else memory
        self._processes, self._spread = processes, spread
        adapted = self._decoder.adapted(train.lora)
        self._trained = sum(train.lora.r * (o + i) + (o if train.lora.dora else 0) for o, i in adapted.values())
        self._adapted = len(adapted) / max(1, self._decoder.layers)  # a layer's
        self._widths = sum(o for o, _ in adapted.values()) / max(1, self._decoder.layers)
        self._inputs = sum(i for _, i in adapted.values()) / max(1, self._decoder.layers)

    @property
    def most_tokens(self) -> int:
        """Most tokens of a pass: by what a device computes well, and by its memory where activations are recomputed."""
        again = self._train.gradient_checkpointing != "off"
        fixed, more = (self._needs(tokens, again=again) for tokens in (0, 1024))
        return min(PASS_TOKENS[self.kind], max(0, self.available - fixed) * 1024 // max(1, more - fixed))

    def recomputes(self, tokens: int) -> bool:
        """Return whether activations of a pass of so many tokens are computed again on the way back."""
        setting = self._train.gradient_checkpointing
        return setting == "on" or (
            setting == "auto" and self._needs(tokens, again=False) > _KEPT[self.kind] * self.available
        )

    def estimate(self, rows: int, tokens: int) -> MemoryEstimate:
        """Return what a pass of so many rows of so many tokens holds."""
        again = self.recomputes(rows * tokens)
        parts = self._parts(rows * tokens, again=again)
        return MemoryEstimate(
            device=self.kind,
            processes=self._processes,
            rows=rows,
            tokens=tokens,
            checkpointing=again,
            available=self.available,
            needed=sum(parts.values()),
            **parts,
        )

    def _needs(self, tokens: int, *, again: bool) -> int:
        return sum(self._parts(tokens, again=again).values())

    def _parts(self, tokens: int, *, again: bool) -> dict[str, int]:
        decoder = self._decoder
        kept = self._kept_per_token()
        activations = tokens * (
            decoder.hidden * self._bytes * decoder.layers + kept if again else kept * decoder.layers
        )
        pieces = FRAGMENTS[self.kind] * tokens * kept * decoder.layers
        positions = 3 * _AT_ONCE + 2 * _PROBED
        return {
            "weights": self._weights(again=again),
            "adapter": self._trained * _PEER,
            "activations": round(activations + tokens * self._slopes() + pieces),
            "head": positions * decoder.vocabulary * 4,
            "runtime": _RUNTIME[self.kind],
        }

    def _weights(self, *, again: bool) -> int:
        sizes = [math.prod(shape) for shape in self._decoder.linear.values()]
        linear = sum(sizes) * self._bytes
        if self._quantised != "none":
            # While a layer computes it is whole: of four bits bitsandbytes makes it again on the way back, of eight
            # autograd keeps torchao's copy until then.
            whole = linear // (max(1, self._decoder.layers) if again else 1)
            whole = max(sizes, default=0) * self._bytes if self._quantised == "nf4" else whole
            linear = round(sum(sizes) * BYTES[self._quantised]) + whole
        if self._spread:  # a layer is whole while it computes
            linear = linear // self._processes + linear // max(1, self._decoder.layers)
        return linear + self._decoder.others * self._bytes

    def _kept_per_token(self) -> float:
        """Return the bytes that one layer keeps of a token for the way back."""
        decoder, own = self._decoder, self._bytes
        norms = 2 * decoder.hidden * 4  # their inputs in float32
        attention = (2 * decoder.query + 2 * decoder.key) * own  # queries, keys, values, what they gave
        gate = 3 * decoder.inner * own  # the gate, its activation, and what it is multiplied with
        inputs = 2 * decoder.hidden * own + decoder.inner * own if own == 4 else self._inputs * 4  # noqa: PLR2004
        lengths = 2 * self._widths * own if self._train.lora.dora else 0  # DoRA's two parts of each output
        return norms + attention + gate + inputs + self._adapted * self._train.lora.r * 4 + lengths

    def _slopes(self) -> float:
        """Return the bytes a token of what the way back holds at a time: gradients of the widest part of one layer."""
        return (3 * self._decoder.inner + 2 * self._decoder.hidden) * self._bytes
