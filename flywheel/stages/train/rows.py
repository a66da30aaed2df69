"""From a round's JSONL dataset to tokens: exactly what will be trained, refused rows counted, nothing truncated.

A row's tokens are those of its prompt followed by those of its action, tokenised apart, as generation sees them. Only
action tokens are in the loss: tool results and user text are part of prompts. A thought that is not learned
(`train.thoughts`) is context of its own side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flywheel.config import TrainConfig
from flywheel.errors import TrainError
from flywheel.models.chat import ChatFormat
from flywheel.stages.train.sharing.tree import Row


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


class Demonstration(NamedTuple):
    """A sequence of which some actions are trained, and the weight of each trained token, in order."""

    row: Row
    weights: list[float]
    times: int = 1  # in a pass


def demonstrations(
    rows: Sequence[Mapping[str, list[int]]], weights: Sequence[float] | None = None, times: Sequence[int] | None = None
) -> list[Demonstration]:
    """Return SFT rows as sequences; a row whose tokens begin another row's is trained inside that one.

    The steps of one conversation continue one another, so their shared beginning is computed once. Every trained token
    keeps the context that it has in a row of its own, and so its loss and its gradient.

    Args:
        rows: tokenised rows.
        weights: one a row, positive; none: equal. Each trained token has the sum of its rows' weights, scaled to a
            mean of 1 over all trained tokens, so that a row of twice the weight counts as the row twice.
        times: how often a pass trains each row, none: once. A sequence has the most of its rows. It takes more steps,
            where a weight makes a step longer, which Adam makes as long as any other.
    """
    contexts = [context(row, "completion") for row in rows]
    given = zip(rows, contexts, weights or [1.0] * len(rows), times or [1] * len(rows), strict=True)
    ordered = sorted((before + row["completion_ids"], len(before), weight, n) for row, before, weight, n in given)
    sequences: list[tuple[list[int], list[float]]] = []
    most: list[int] = []
    for ids, start, weight, n in reversed(ordered):
        if not sequences or sequences[-1][0][: len(ids)] != ids:
            sequences.append((ids, [0.0] * len(ids)))
            most.append(1)
        most[-1] = max(most[-1], n)
        for place in range(start, len(ids)):
            sequences[-1][1][place] += weight
    found = [Demonstration(Row(tuple(ids), _windows(own)), [w for w in own[1:] if w]) for ids, own in sequences]
    every = [w for sequence in found for w in sequence.weights]
    mean = math.fsum(every) / len(every) if every else 1.0
    return [Demonstration(one.row, [w / mean for w in one.weights], n) for one, n in zip(found, most, strict=True)]


def _windows(weights: Sequence[float]) -> tuple[tuple[int, int], ...]:
    """Return the runs of tokens that have a weight."""
    runs = itertools.groupby(range(len(weights)), key=lambda place: weights[place] > 0)
    places = [list(run) for trained, run in runs if trained]
    return tuple((run[0], run[-1] + 1) for run in places)
