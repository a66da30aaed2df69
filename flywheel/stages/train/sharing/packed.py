"""Log-probabilities of trained tokens, with what rows share computed once.

In: rows (`tree.Row`) and a causal language model with a LoRA adapter. Out: for each row the log-probabilities of its
trained tokens, with gradients. `Scorer.shared` runs one flat sequence: positions restart in every branch and attention
goes block by block, a beginning causally and its branches to it and themselves, so that no mask of the whole square is
made. `Scorer.plain` runs the rows side by side through the model's own attention: what the shared pass is checked with.

Logits exist for trained positions only, a few at a time; since the head is frozen, its gradient is taken on the way
forward and the logits are never kept. LoRA layers add their part in place, and norms keep one number a token.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from flywheel.errors import TrainError
from flywheel.stages.train.sharing.attention import attend
from flywheel.stages.train.sharing.kernels import head_log_probs, log_distributions
from flywheel.stages.train.sharing.layers import fuse, use_fused
from flywheel.stages.train.sharing.layout import layout
from flywheel.stages.train.sharing.tree import Row, Tree, grow, pays

_NAME = "flywheel_tree"
_PROBED = 8  # tokens on which a model's logits are compared with its head's output
_ALIKE = 0.02  # by which they may differ: in bfloat16 the third digit is rounding


class Scorer:
    """Scores rows under one model, sharing or not.

    Args:
        model: a PEFT model (or a plain causal one) of transformers.
    """

    def __init__(self, model: Any) -> None:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        ALL_ATTENTION_FUNCTIONS.register(_NAME, attend)
        self.model = model
        causal = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._backbone = causal.base_model
        self._config = self._backbone.config
        if not hasattr(self._backbone, "flywheel_own"):
            self._backbone.flywheel_own = self._config._attn_implementation  # noqa: SLF001 - no public reading of it
        self._head = causal.get_output_embeddings()
        self._cap = getattr(causal.config.get_text_config(), "final_logit_softcapping", None)
        self._scale = self._logit_scale(causal)
        self.sharing = False
        self._temperature = 1.0
        self.kernel = "blocks"
        fuse(model)

    @torch.no_grad()
    def _logit_scale(self, causal: Any) -> float:
        """Return what the model multiplies its head's output with (Granite, Cohere and others scale it): by its logits.

        Raises:
            TrainError: its logits are not a multiple of its head's output.
        """
        ids, training = torch.arange(_PROBED, device=self.device)[None], causal.training
        causal.eval()
        expected = causal(input_ids=ids, use_cache=False).logits[0].float()
        given = self._head(self._backbone(input_ids=ids, use_cache=False).last_hidden_state)[0].float()
        causal.train(training)
        scale = 1.0 if self._cap else float((expected * given).sum() / given.square().sum())
        meant = torch.tanh(given / self._cap) * self._cap if self._cap else scale * given
        if not (expected - meant).norm() <= _ALIKE * expected.norm():
            raise TrainError(
                f"{type(causal).__name__} computes its logits in a way that flywheel does not know",
                hint="train another base model, or with a trainer of your own (train.trainer)",
            )
        return 1.0 if abs(scale - 1) <= _ALIKE else scale

    @property
    def dtype(self) -> torch.dtype:
        """Type of the base model's numbers: that of its weights, or in which four-bit weights are multiplied."""
        dtype: torch.dtype = self._head.weight.dtype
        multiplied = {getattr(layer, "compute_dtype", None) for layer in self._backbone.modules()}
        return torch.bfloat16 if torch.bfloat16 in multiplied else dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self._head.weight.device
        return device

    def __call__(self, rows: Sequence[Row]) -> list[torch.Tensor]:
        """Return each row's log-probabilities, shared where that was found to hold (`sharing`) and these rows share."""
        if self.sharing:
            tree = grow(rows)
            if pays(tree, rows):
                return self._of(tree)
        return self.plain(rows)

    @contextlib.contextmanager
    def at(self, temperature: float) -> Iterator[None]:
        """Score as tokens are sampled at a temperature: by softmax(logits / temperature)."""
        before, self._temperature = self._temperature, temperature
        try:
            yield
        finally:
            self._temperature = before

    def at_each(self, rows: Sequence[Row], temperatures: Sequence[float]) -> list[torch.Tensor]:
        """Return each row's log-probabilities at its own temperature; rows of one temperature share."""
        scores: dict[int, torch.Tensor] = {}
        for temperature in sorted(set(temperatures)):
            places = [i for i, own in enumerate(temperatures) if own == temperature]
            with self.at(temperature):
                scores |= zip(places, self([rows[i] for i in places]), strict=True)
        return [scores[i] for i in range(len(rows))]

    def _attention(self, name: str) -> None:
        self._config._attn_implementation = name  # noqa: SLF001 - the public setter looks for kernels to download

    def shared(self, rows: Sequence[Row]) -> list[torch.Tensor]:
        """Return each row's log-probabilities from one pass over the rows' tree."""
        return self._of(grow(rows))

    def _of(self, tree: Tree) -> list[torch.Tensor]:
        flat = layout(tree, self.device, self.kernel)
        self._attention(_NAME)
        use_fused(self.model, on=True)
        try:
            hidden = self._backbone(
                input_ids=flat.ids,
                position_ids=flat.positions,
                attention_mask=torch.empty((1, 1, 0, 0), device=flat.ids.device),  # four axes: taken as it is
                use_cache=False,
                flywheel_layout=flat,
            ).last_hidden_state[0]
        finally:
            if not _recomputes(self._backbone):  # else the way back attends again
                self._attention(self._backbone.flywheel_own)
        scores = self._score(hidden, torch.tensor(tree.sources, dtype=torch.long), tree.targets)
        return [scores[torch.tensor(places, dtype=torch.long, device=scores.device)] for places in tree.rows]

    def plain(self, rows: Sequence[Row]) -> list[torch.Tensor]:
        """Return each row's log-probabilities from padded rows under the model's own attention."""
        hidden, places = self._states(rows)
        targets = [row.ids[p] for row in rows for p in row.trained]
        scores = self._score(hidden, places, targets)
        return list(torch.split(scores, [len(row.trained) for row in rows]))

    def distributions(self, rows: Sequence[Row]) -> torch.Tensor:
        """Return the log-probability of every token of the vocabulary at each trained position, (T, V) in float32."""
        hidden, places = self._states(rows)
        return log_distributions(
            hidden[places.to(hidden.device)] * self._scale, self._head, self._cap, self._temperature
        )

    def _states(self, rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the hidden states of padded rows, flat, and the places of those that predict trained tokens."""
        width = max(len(row.ids) for row in rows)
        ids = torch.tensor([[*row.ids, *[0] * (width - len(row.ids))] for row in rows], device=self.device)
        self._attention(self._backbone.flywheel_own)
        use_fused(self.model, on=False)
        hidden = self._backbone(input_ids=ids, use_cache=False).last_hidden_state
        places = [i * width + p - 1 for i, row in enumerate(rows) for p in row.trained]
        return hidden.flatten(0, 1), torch.tensor(places, dtype=torch.long)

    def _score(self, hidden: torch.Tensor, places: torch.Tensor, targets: Sequence[int]) -> torch.Tensor:
        wanted = torch.tensor(targets, dtype=torch.long, device=hidden.device)
        states = hidden[places.to(hidden.device)] * self._scale
        return head_log_probs(states, self._head, wanted, self._cap, self._temperature)


def _recomputes(backbone: Any) -> bool:
    """Return whether a model computes its activations again on the way back; in transformers 5.17 by another name."""
    names = ("is_activation_checkpointing", "is_gradient_checkpointing")
    return bool(next(getattr(backbone, name) for name in names if hasattr(backbone, name)))
