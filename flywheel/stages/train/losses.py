"""Losses on logged actions, from log-probabilities alone; every function is per row and differentiable.

DPO: Rafailov et al. 2023, arXiv 2305.18290; soft labels (cDPO) and robust DPO: Chowdhury et al. 2024, arXiv 2403.00409;
IPO: Azar et al. 2023, arXiv 2310.12036; KTO: Ethayarajh et al. 2024, arXiv 2402.01306; TOPR: Le Roux et al. 2025, arXiv
2503.14286; AsymRE: Arnal et al. 2025, arXiv 2506.20520; the k3 estimator of KL: Schulman 2020.
"""

from __future__ import annotations

from typing import Literal

import torch

RATIO_CLIP = 0.2  # by which PPO's surrogate lets a token's ratio to its behaviour leave 1
RATIO_LIMIT = 20.0  # a log-ratio beyond is as good as this one, and exp of it is still a number


def dpo(
    margin: torch.Tensor,
    *,
    beta: float,
    p_better: torch.Tensor | float = 1.0,
    kind: Literal["sigmoid", "robust", "ipo"] = "sigmoid",
) -> torch.Tensor:
    """Return each pair's loss.

    Args:
        margin: log-ratio to the reference of the chosen action minus that of the rejected one; for "ipo" both are
            means over tokens.
        beta: inverse temperature.
        p_better: probability that the chosen action is the better one; 1 - p_better is the share of flipped labels.
        kind: "sigmoid" weighs both labels by their probability, "robust" removes the bias of flipped ones (p_better
            must not be 0.5), "ipo" regresses on 1 / (2 beta).
    """
    if kind == "ipo":
        return (margin - 1 / (2 * beta)).square()
    right, wrong = (-torch.nn.functional.logsigmoid(sign * beta * margin) for sign in (1, -1))
    flipped = 1 - torch.as_tensor(p_better, dtype=margin.dtype, device=margin.device)
    if kind == "robust":
        return ((1 - flipped) * right - flipped * wrong) / (1 - 2 * flipped)
    return (1 - flipped) * right + flipped * wrong


def kto(ratio: torch.Tensor, desirable: torch.Tensor, drift: torch.Tensor, *, beta: float) -> torch.Tensor:
    """Return each row's loss: log-ratio to the reference, whether it is desirable, and the batch's KL (no gradient)."""
    signed = torch.where(desirable, ratio - drift, drift - ratio)
    return 1 - torch.sigmoid(beta * signed)


def k3(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return r - 1 - log r at each token from log r; never negative.

    Its mean over tokens that the reference's counterpart drew estimates a KL divergence (Schulman's k3). Over tokens of
    a log it is a penalty on moving away, and no estimate: another policy drew them.
    """
    kept = log_ratio.clamp(-RATIO_LIMIT, RATIO_LIMIT)
    return torch.expm1(kept) - kept


def topr_weights(advantages: torch.Tensor, log_ratios: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """Return the factor of each member's policy gradient in addition to its advantage: 1, or min(ratio, 1).

    Args:
        advantages: of whole members.
        log_ratios: log(policy / behaviour) of whole members; no gradient goes through it.
        known: whether a member's behaviour log-probabilities are known; a negative member without gets 0, since
            nothing would stop its probability from being driven to nothing.
    """
    ratios = log_ratios.detach().clamp(-RATIO_LIMIT, RATIO_LIMIT).exp()
    tapered = torch.where(known, ratios.clamp(max=1.0), torch.zeros_like(ratios))
    return torch.where(advantages >= 0, torch.ones_like(ratios), tapered)


def hindsight_advantages(
    parent: torch.Tensor, hinted: torch.Tensor, reward: float, *, hint_weight: float, reward_weight: float, limit: float
) -> torch.Tensor:
    """Return the advantage of each token of an action: what a hint makes likelier, and the outcome; no gradient.

    Args:
        parent: log-probabilities of the tokens under the policy that drew them.
        hinted: the same where it is shown the hint.
        reward: of the action, in [-1, 1].
        hint_weight: of the log-ratio.
        reward_weight: of the reward.
        limit: nats at which the log-ratio is cut off.
    """
    ratio = (hinted - parent).detach().clamp(-limit, limit)
    return hint_weight * ratio + reward_weight * reward


def clipped(tokens: torch.Tensor, behaviour: torch.Tensor, advantages: torch.Tensor, *, clip: float) -> torch.Tensor:
    """Return PPO's clipped loss of each token, from log-probabilities under the policy and under its behaviour."""
    ratio = (tokens - behaviour).clamp(-RATIO_LIMIT, RATIO_LIMIT).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def effective_share(weights: torch.Tensor) -> float:
    """Return the effective sample size of non-negative weights as a share of their number; 1 where there are none."""
    total = float(weights.square().sum())
    if not len(weights) or total <= 0:
        return 1.0 if not len(weights) else 0.0
    return float(weights.sum()) ** 2 / total / len(weights)
