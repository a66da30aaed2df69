"""Attention of rows that begin alike, on CPUs: all rows look at their shared beginning at once, then each at its own.

In: queries of several rows, the keys and values that each has of its own, and those of the beginning. Out: what
transformers' attention functions give. What a row finds in either part is joined by their normalisers, which is exact
(Juravsky et al. 2024, arXiv 2402.05099; known as cascade attention). A beginning is in memory once, and is read once
for every token that the rows write, where attention row by row reads it as often as there are rows.

SDPA does not tell its normalisers, so this uses the kernel behind it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

Beginning = Sequence[tuple[torch.Tensor, torch.Tensor]]  # of each layer: (key heads, tokens, width)

_NAME = "flywheel_cascade"


@contextlib.contextmanager
def after(model: Any, beginning: Beginning) -> Iterator[dict[str, Any]]:
    """Let a model's rows go on after a beginning; give what its `forward` is called with."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(_NAME, attend)
    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    config = causal.base_model.config
    own = config._attn_implementation  # noqa: SLF001 - no public reading of it, and the setter looks for downloads
    config._attn_implementation = _NAME  # noqa: SLF001
    try:
        yield {"flywheel_beginning": beginning}
    finally:
        config._attn_implementation = own  # noqa: SLF001


def attend(  # noqa: PLR0913 - the interface is transformers'
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    flywheel_beginning: Beginning = (),
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attention after a beginning, (rows, heads, N, d) → (rows, N, heads, d).

    Raises:
        NotImplementedError: the layer attends in another way.
    """
    if sliding_window is not None or softcap is not None:
        raise NotImplementedError("attention after a shared beginning is plain softmax over all tokens")
    rows, heads, tokens, width = query.shape
    key_heads = key.shape[1]
    groups = heads // key_heads
    scale = scaling if scaling is not None else width**-0.5
    look = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001 - SDPA's, with its normalisers
    asked = query.reshape(rows, key_heads, groups * tokens, width)
    mask = None if attention_mask is None else _of_groups(attention_mask, groups)
    own, norm = look(asked, key, value, attn_mask=mask, scale=scale)
    together = asked.transpose(0, 1).reshape(1, key_heads, rows * groups * tokens, width)
    before, before_norm = look(together, *(part[None] for part in flywheel_beginning[module.layer_idx]), scale=scale)
    share = torch.sigmoid(_by_row(before_norm, rows) - norm)[..., None]
    found = own.float().lerp(_by_row(before, rows).float(), share).to(query.dtype)
    return found.view(rows, heads, tokens, width).transpose(1, 2).contiguous(), None


def _by_row(found: torch.Tensor, rows: int) -> torch.Tensor:
    """Part what was found for all rows at once, (1, key heads, rows x N, ...) → (rows, key heads, N, ...)."""
    return found.view(found.shape[1], rows, -1, *found.shape[3:]).transpose(0, 1)


def _of_groups(mask: torch.Tensor, groups: int) -> torch.Tensor:
    """Repeat (rows, 1, N, keys) for the heads that share keys, whose queries follow one another."""
    rows, _, tokens, keys = mask.shape
    return mask.expand(rows, groups, tokens, keys).reshape(rows, 1, groups * tokens, keys)
