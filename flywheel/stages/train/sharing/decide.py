"""Whether a round computes shared beginnings once: only where that is checked on a real batch, and pays.

The check runs the cheapest real batch that shares anything both ways and compares log-probabilities and the adapter's
gradient. A model whose attention, positions or head flywheel does not reproduce fails it, and is trained row by row.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from flywheel.stages.train.sharing.attention import kernels
from flywheel.stages.train.sharing.packed import Scorer
from flywheel.stages.train.sharing.tree import Row, grow, padded, pays

# Largest difference of a token's log-probability (root mean square), and smallest cosine of the gradients, by the type
# of weights. In bfloat16 a token may be .25 away by rounding alone; wrong positions move the mean square little, and
# the gradient's cosine below .94.
_LIMITS = {"float32": (2e-4, 0.9999), "bfloat16": (0.1, 0.98)}


@dataclass(frozen=True)
class Sharing:
    """What was decided.

    Attributes:
        on: shared passes are used, for rows that share enough.
        reason: for people.
        ratio: tokens of separate rows, padded, for each token that is computed, over all batches.
        gap: root mean square difference of a token's log-probability, in nats; 0 where nothing was compared.
        cosine: of the adapter's gradients; 1 where nothing was compared.
    """

    on: bool
    reason: str
    ratio: float = 1.0
    gap: float = 0.0
    cosine: float = 1.0

    def checks(self) -> dict[str, float]:
        """Return the numbers for the round's manifest."""
        numbers = {"ratio": round(self.ratio, 4), "gap": float(f"{self.gap:.3g}"), "cosine": round(self.cosine, 6)}
        return {"shared_prefix": float(self.on), **{f"shared_{k}": v for k, v in numbers.items()}}


def decide(scorer: Scorer, batches: Sequence[Sequence[Row]], *, dropout: float = 0.0) -> Sharing:
    """Return whether rows that are trained together are computed as trees.

    Args:
        scorer: of the model as it starts.
        batches: rows that belong together (a pair, a group, the rows of a state).
        dropout: of the adapter; with any, branches would share what must be sampled for each row.
    """
    if dropout > 0:
        return Sharing(on=False, reason="train.lora.dropout is not 0, so shared tokens would share their dropout")
    trees = [grow(batch) for batch in batches]
    paying = [i for i, tree in enumerate(trees) if tree.sources and pays(tree, batches[i])]
    if not paying:
        return Sharing(on=False, reason="no rows that belong together share enough of their beginnings")
    plain = [padded(batch) for batch in batches]
    saved = sum(plain[i] - len(trees[i].ids) for i in paying)
    ratio = sum(plain) / (sum(plain) - saved)
    batch, tried = batches[min(paying, key=lambda i: (trees[i].plain, i))], list[str]()
    for kernel in kernels(scorer.device.type):
        scorer.kernel = kernel
        sharing = _checked(scorer, batch, ratio)
        tried.append(f"{kernel}: {sharing.reason}")
        if sharing.on:
            break
    return replace(sharing, reason="; ".join(tried))


def _checked(scorer: Scorer, batch: Sequence[Row], ratio: float) -> Sharing:
    limits = _LIMITS["bfloat16" if scorer.dtype == torch.bfloat16 else "float32"]
    try:
        (one, slope), (other, again) = (_both(scorer, batch, shared=shared) for shared in (False, True))
    except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError) as error:
        if "out of memory" in str(error).lower():
            raise
        return Sharing(on=False, reason=f"this model has no shared pass ({type(error).__name__})", ratio=ratio)
    gap = float((one - other).square().mean().sqrt())
    cosine, length = _compared(slope, again)
    holds = gap <= limits[0] and cosine >= limits[1] and abs(length - 1) <= 1 - limits[1] + limits[0]
    numbers = f"log-probabilities within {gap:.1e}, cosine of gradients {cosine:.5f}, on a real batch"
    if not holds:
        return Sharing(False, f"the shared pass is not this model's plain one ({numbers})", ratio, gap, cosine)
    return Sharing(True, f"{ratio:.2f} plain tokens a computed one; {numbers}", ratio, gap, cosine)


def _compared(one: torch.Tensor, other: torch.Tensor) -> tuple[float, float]:
    """Return the cosine of two gradients and the ratio of their lengths; 1 where the first is zero.

    In double precision: in single, the sums of some million products are wrong in the third digit.
    """
    one, other = one.double(), other.double()
    long, again = float(one.norm()), float(other.norm())
    return (float(one @ other) / (long * again) if long * again > 0 else 1.0), (again / long if long > 0 else 1.0)


def _both(scorer: Scorer, batch: Sequence[Row], *, shared: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities, and the adapter's gradient of a sum in which no two tokens weigh the same.

    The plain way goes row by row, so that the check needs no more memory than a step.
    """
    total = sum(len(row.trained) for row in batch)
    weights = iter(torch.split(torch.linspace(0.5, 1.5, total), 1))
    parts = [
        _scored(scorer.shared(part) if shared else scorer.plain(part), scorer, weights)
        for part in ([batch] if shared else [[row] for row in batch if row.trained])
    ]
    return torch.cat([scores for scores, _ in parts]), functools.reduce(torch.add, [slope for _, slope in parts])


def _scored(
    rows: list[torch.Tensor], scorer: Scorer, weights: Iterator[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    parameters: list[Any] = [p for p in scorer.model.parameters() if p.requires_grad]
    scores = torch.cat(rows)
    weighed = scores * torch.cat(list(itertools.islice(weights, len(scores)))).to(scores.device)
    slopes = torch.autograd.grad(weighed.sum(), parameters, allow_unused=True)
    slope = [torch.zeros_like(p) if s is None else s for s, p in zip(slopes, parameters, strict=True)]
    return scores.detach(), torch.cat([s.detach().float().flatten() for s in slope])
