"""From a round's JSONL dataset to tokens: exactly what will be trained, refused rows counted, nothing truncated.

A row's tokens are those of its prompt followed by those of its action, tokenised apart, as generation sees them. Only
action tokens are in the loss: tool results and user text are part of prompts. A thought that is not learned
(`train.thoughts`) is context of its own side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flywheel.config import TrainConfig
from flywheel.errors import TrainError
from flywheel.models.chat import ChatFormat
from flywheel.stages.train.sharing.tree import Row

_NO_LOSS = -100


@dataclass(frozen=True)
class Tokenised:
    """Rows as token ids: `prompt_ids` and one list for each side, with the number refused for their length.

    A side whose thought is context has that under `<side>_thought`, in front of its ids.

    `kept` are the positions of the rows that were not refused. `tokens` counts what one pass over the rows computes and
    `longest` the costliest row: the prompt once for each side.
    """

    rows: list[dict[str, list[int]]]
    refused: int
    tokens: int
    longest: int
    kept: list[int]


def sides_of(row: Mapping[str, Any], sides: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sides of a row of a method: a demonstration among pairs has one of its own."""
    return ("completion",) if "completion" in row else sides


def tokenise(rows: list[dict[str, Any]], chat: ChatFormat, sides: tuple[str, ...], cfg: TrainConfig) -> Tokenised:
    """Tokenise rows; one longer than `train.max_length` is refused whole.

    Args:
        rows: training rows with `prompt`, `tools` and one list of messages for each side.
        chat: how the base model reads and writes.
        sides: "completion" for SFT; "chosen" and "rejected" for DPO, whose rows may also be demonstrations.
        cfg: longest row and the share that may be refused.

    Raises:
        TrainError: every row, or more than `train.max_refused`, is too long.
    """
    kept, places = [], []
    for place, row in enumerate(rows):
        prompt = chat.ids(chat.prompt(row["prompt"], row["tools"]))
        own = sides_of(row, sides)
        actions = {
            s: chat.action_ids(row["prompt"], row["tools"], row[s][0], thoughts=cfg.thoughts == "keep") for s in own
        }
        if len(prompt) + max(len(ids) for ids, _ in actions.values()) <= cfg.max_length:
            places.append(place)
            thoughts = {f"{s}_thought": ids[:context] for s, (ids, context) in actions.items() if context}
            kept.append({"prompt_ids": prompt, **thoughts, **{f"{s}_ids": a[n:] for s, (a, n) in actions.items()}})
    refused = len(rows) - len(kept)
    if not kept or refused / len(rows) > cfg.max_refused:
        raise TrainError(
            f"{refused:,} of {len(rows):,} rows are longer than train.max_length = {cfg.max_length:,} tokens",
            hint="raise train.max_length (memory grows with it) or train.max_refused",
        )
    costs = [sum(len(answer.ids) for answer in answers(row)) for row in kept]
    return Tokenised(kept, refused, sum(costs), max(costs), places)


def context(row: Mapping[str, list[int]], side: str) -> list[int]:
    """Return what comes before the trained tokens of a side: the prompt, and a thought that is not learned."""
    return row["prompt_ids"] + row.get(f"{side}_thought", [])


def answer(before: Sequence[int], action: Sequence[int]) -> Row:
    """Return a row of which the action is trained."""
    return Row((*before, *action), ((len(before), len(before) + len(action)),))


def answers(row: Mapping[str, list[int]]) -> list[Row]:
    """Return each side of a tokenised row as a row of its own, of which the action is trained."""
    sides = [name.removesuffix("_ids") for name in row if name.endswith("_ids") and name != "prompt_ids"]
    return [answer(context(row, side), row[f"{side}_ids"]) for side in sides]


def demonstrations(
    rows: list[dict[str, list[int]]], weights: Sequence[float] | None = None
) -> list[dict[str, list[Any]]]:
    """Return SFT rows as `input_ids` and `labels`; a row whose tokens begin another row's is trained inside that one.

    The steps of one conversation continue one another, so their shared beginning is computed once. Every trained token
    keeps the context that it has in a row of its own, and so its loss and its gradient.

    Args:
        rows: tokenised rows.
        weights: one a row, positive; each trained token then has the sum of its rows' as `weights`, scaled to a mean
            of 1, so that a row of twice the weight counts as the row twice. Left out where all are equal.
    """
    contexts = [context(row, "completion") for row in rows]
    ordered = sorted(
        (before + row["completion_ids"], len(before), w)
        for row, before, w in zip(rows, contexts, weights or [1.0] * len(rows), strict=True)
    )
    sequences: list[dict[str, list[Any]]] = []
    for ids, start, weight in reversed(ordered):
        if not sequences or sequences[-1]["input_ids"][: len(ids)] != ids:
            sequences.append({"input_ids": ids, "labels": [_NO_LOSS] * len(ids), "weights": [0.0] * len(ids)})
        sequences[-1]["labels"][start : len(ids)] = ids[start:]
        for place in range(start, len(ids)):  # a row that is there twice counts twice
            sequences[-1]["weights"][place] += weight
    differ = weights is not None and len({w for row in sequences for w in row["weights"] if w > 0}) > 1
    return _scaled(sequences) if differ else [{k: row[k] for k in ("input_ids", "labels")} for row in sequences]


def _scaled(rows: list[dict[str, list[Any]]]) -> list[dict[str, list[Any]]]:
    """Scale tokens' weights to a mean of 1 over the trained tokens."""
    weights = [w for row in rows for w in row["weights"] if w > 0]
    mean = math.fsum(weights) / len(weights)
    return [{**row, "weights": [w / mean for w in row["weights"]]} for row in rows]
