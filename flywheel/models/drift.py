"""How far an adapter has moved a model on a text: both policies' surprise, and the divergence between them.

In: texts. Out: for each, over its tokens but the first: the mean negative log-likelihood under the policy and under its
base, and the mean KL(base ‖ policy) over the whole vocabulary, all in nats a token. The base's distribution is the one
averaged over, because forgetting is losing what the base could do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.extensions import Drift

if TYPE_CHECKING:
    import torch

    from flywheel.models.policy import PolicySet

__all__ = ["drifts"]

_AT_ONCE = 128  # positions whose distributions over the vocabulary are held at a time


def drifts(owner: PolicySet, adapter: Path | None, texts: Sequence[str]) -> list[Drift]:
    """Return the drift of each text; a text of fewer than two tokens has none of anything."""
    import torch

    found = []
    for text in texts:
        ids = owner.tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        if owner.window:
            ids = ids[:, : owner.window]
        if ids.shape[1] < 2:  # noqa: PLR2004 - a token, and one that follows it
            found.append(Drift(0.0, 0.0, 0.0, 0))
            continue
        with owner.active(None) as model, torch.inference_mode():
            base = policy = _logits(model, ids)
        if adapter is not None:
            with owner.active(adapter) as model, torch.inference_mode():
                policy = _logits(model, ids)
        found.append(_drift(policy, base, ids[0, 1:].to(base.device)))
    return found


def _logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=ids.to(model.device)).logits[0, :-1]
    return logits


def _drift(policy: torch.Tensor, base: torch.Tensor, targets: torch.Tensor) -> Drift:
    import torch

    sums, n = [0.0, 0.0, 0.0], len(targets)
    for start in range(0, n, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        mine, theirs = (torch.log_softmax(logits[part].float(), -1) for logits in (policy, base))
        wanted = targets[part, None]
        kl = (theirs.exp() * (theirs - mine)).sum(-1).clamp(min=0)
        values = (-mine.gather(-1, wanted), -theirs.gather(-1, wanted), kl)
        sums = [total + float(value.double().sum()) for total, value in zip(sums, values, strict=True)]
    nll, base_nll, divergence = (total / n for total in sums)
    return Drift(nll, base_nll, divergence, n)
