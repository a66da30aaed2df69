"""Log-probabilities of trained tokens, with what rows share computed once.

In: rows (`tree.Row`) and a causal language model with a LoRA adapter. Out: for each row the log-probabilities of its
trained tokens, with gradients. `Scorer.shared` runs one flat sequence: positions restart in every branch and attention
goes block by block, a beginning causally and its branches to it and themselves, so that no mask of the whole square is
made. `Scorer.plain` runs the rows side by side through the model's own attention: what the shared pass is checked with.

Logits exist for trained positions only, a few at a time; since the head is frozen, its gradient is taken on the way
forward and the logits are never kept. LoRA layers add their part in place.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flywheel.stages.train._kernels import fuse_lora, head_log_probs, use_fused
from flywheel.stages.train.tree import Row, Tree, grow

if TYPE_CHECKING:
    import torch

__all__ = ["Layout", "Scorer", "layout"]

_NAME = "flywheel_tree"
_NO_LIMIT = 1 << 60


@dataclass
class Layout:
    """A tree as tensors on the model's device; masks are made once for each window size and shared by all layers."""

    tree: Tree
    ids: torch.Tensor  # (1, N)
    positions: torch.Tensor  # (1, N)
    owners: torch.Tensor  # (N,)
    masks: dict[tuple[int, int], torch.Tensor | None] = field(default_factory=dict)

    def keys(self, block: int) -> torch.Tensor | slice:
        """Return the flat places that a block looks at: what stands before it in its rows, and itself."""
        import torch

        ranges = [*self.tree.blocks[block].context, (self.tree.blocks[block].start, self.tree.blocks[block].end)]
        if all(left[1] == right[0] for left, right in itertools.pairwise(ranges)):
            return slice(ranges[0][0], ranges[-1][1])
        return torch.cat([torch.arange(a, b, device=self.ids.device) for a, b in ranges])

    def mask(self, block: int, window: int) -> torch.Tensor | None:
        """Return which keys each token of a block may look at, (n, keys); None for plain causal attention."""
        key = (block, window)
        if key not in self.masks:
            self.masks[key] = self._mask(block, window)
        return self.masks[key]

    def _mask(self, block: int, window: int) -> torch.Tensor | None:
        made = self.tree.blocks[block]
        alone = self.tree.owners[made.start] == self.tree.owners[made.end - 1]
        if alone and not made.context and made.end - made.start <= window:
            return None
        places = self.keys(block)
        query, key = self.positions[0, made.start : made.end, None], self.positions[0, places][None]
        before = sum(b - a for a, b in made.context)
        allowed = (query >= key) & (query - key < window)
        allowed[:, before:] &= self.owners[made.start : made.end, None] == self.owners[made.start : made.end][None]
        return allowed


def layout(tree: Tree, device: torch.device | str = "cpu") -> Layout:
    """Return a tree's tensors."""
    import torch

    ids, positions = torch.tensor([tree.ids], device=device), torch.tensor([tree.positions], device=device)
    return Layout(tree, ids, positions, torch.tensor(tree.owners, device=device))


def _capped(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float, cap: float
) -> torch.Tensor:
    """Attention with soft-capped scores (Gemma 2), which no fused kernel of torch offers."""
    import torch

    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if mask is None:
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
    scores = torch.tanh(query @ key.transpose(-1, -2) * (scale / cap)) * cap
    return scores.masked_fill(~mask, -torch.inf).softmax(-1, dtype=torch.float32).to(value.dtype) @ value


def _attend(  # noqa: PLR0913 - the interface is transformers'
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001 - the layout says it all
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    flywheel_layout: Layout | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attention over a tree, (1, heads, N, d) → (1, N, heads, d)."""
    import torch

    if flywheel_layout is None:
        raise ValueError("attention over a tree was called without its layout")
    scale = scaling if scaling is not None else float(query.shape[-1]) ** -0.5
    window = sliding_window or getattr(module, "sliding_window", None) or _NO_LIMIT
    parts = []
    for i, block in enumerate(flywheel_layout.tree.blocks):
        places, mask = flywheel_layout.keys(i), flywheel_layout.mask(i, window)
        q, k, v = query[:, :, block.start : block.end], key[:, :, places], value[:, :, places]
        if softcap is not None:
            parts.append(_capped(q, k, v, mask, scale, softcap))
        else:
            parts.append(
                torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
                )
            )
    return torch.cat(parts, 2).transpose(1, 2).contiguous(), None


class Scorer:
    """Scores rows under one model, sharing or not.

    Args:
        model: a PEFT model (or a plain causal one) of transformers.
    """

    def __init__(self, model: Any) -> None:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        ALL_ATTENTION_FUNCTIONS.register(_NAME, _attend)
        self.model = model
        causal = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._backbone = causal.base_model
        self._config = self._backbone.config
        if not hasattr(self._backbone, "flywheel_own"):
            self._backbone.flywheel_own = self._config._attn_implementation  # noqa: SLF001 - no public reading of it
        self._head = causal.get_output_embeddings()
        self._cap = getattr(causal.config.get_text_config(), "final_logit_softcapping", None)
        self.sharing = False
        self._temperature = 1.0
        fuse_lora(model)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the base model's weights."""
        found: torch.dtype = self._head.weight.dtype
        return found

    def __call__(self, rows: Sequence[Row]) -> list[torch.Tensor]:
        """Return each row's log-probabilities, shared where that was found to hold (`sharing`)."""
        return self.shared(rows) if self.sharing else self.plain(rows)

    @contextlib.contextmanager
    def at(self, temperature: float) -> Iterator[None]:
        """Score as tokens are drawn at a temperature: by softmax(logits / temperature)."""
        before, self._temperature = self._temperature, temperature
        try:
            yield
        finally:
            self._temperature = before

    def _attention(self, name: str) -> None:
        self._config._attn_implementation = name  # noqa: SLF001 - the public setter looks for kernels to download

    def _device(self) -> torch.device:
        device: torch.device = self._head.weight.device
        return device

    def shared(self, rows: Sequence[Row]) -> list[torch.Tensor]:
        """Return each row's log-probabilities from one pass over the rows' tree."""
        import torch

        tree = grow(rows)
        made = layout(tree, self._device())
        self._attention(_NAME)
        use_fused(self.model, on=True)
        try:
            hidden = self._backbone(
                input_ids=made.ids,
                position_ids=made.positions,
                attention_mask=torch.empty((1, 1, 0, 0), device=made.ids.device),  # four axes: taken as it is
                use_cache=False,
                flywheel_layout=made,
            ).last_hidden_state[0]
        finally:
            if not self._backbone.is_activation_checkpointing:  # else the way back attends again
                self._attention(self._backbone.flywheel_own)
        scores = self._score(hidden, torch.tensor(tree.sources, dtype=torch.long), tree.targets)
        return [scores[torch.tensor(places, dtype=torch.long, device=scores.device)] for places in tree.rows]

    def plain(self, rows: Sequence[Row]) -> list[torch.Tensor]:
        """Return each row's log-probabilities from padded rows under the model's own attention."""
        import torch

        width = max(len(row.ids) for row in rows)
        ids = torch.tensor([[*row.ids, *[0] * (width - len(row.ids))] for row in rows], device=self._device())
        self._attention(self._backbone.flywheel_own)
        use_fused(self.model, on=False)
        hidden = self._backbone(input_ids=ids, use_cache=False).last_hidden_state
        trained = [row.trained for row in rows]
        places = [i * width + p - 1 for i, at in enumerate(trained) for p in at]
        targets = [row.ids[p] for row, at in zip(rows, trained, strict=True) for p in at]
        scores = self._score(hidden.flatten(0, 1), torch.tensor(places, dtype=torch.long), targets)
        return list(torch.split(scores, [len(at) for at in trained]))

    def _score(self, hidden: torch.Tensor, places: torch.Tensor, targets: Sequence[int]) -> torch.Tensor:
        import torch

        wanted = torch.tensor(targets, dtype=torch.long, device=hidden.device)
        return head_log_probs(hidden[places.to(hidden.device)], self._head, wanted, self._cap, self._temperature)
