"""The baseline without training: a policy that gets successes as earlier turns of the same conversation.

In: rows of the table examples. Out: a few successes of training tasks, and a policy that has them before every prompt.
What training is worth is what it adds to this.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from flywheel.extensions import Generation, Policy
from flywheel.records import Split, content_id
from flywheel.stages.evaluate.window import Windowed, no_log_probs

SUCCEEDED = 0.7
MOST_CHARACTERS = 4_000  # of all examples together: about a thousand tokens before every prompt

Messages = Sequence[dict[str, Any]]
ToolLists = Sequence[list[dict[str, Any]] | None]


def demonstrations(examples: pl.DataFrame, most: int, seed: int) -> list[dict[str, Any]]:
    """Return at most so many successes, each {"messages": without a system message}, of as many training tasks.

    Of each task one that ended well (P(success) >= .7), the longest stretch that is short enough; tasks in an
    order that the seed picks. Nothing held out is ever among them.
    """
    rows = examples.filter(
        (pl.col("split") == Split.TRAIN.value) & pl.col("label") & (pl.col("p_success") >= SUCCEEDED)
    ).sort("example_id")
    best: dict[str, tuple[int, list[dict[str, Any]]]] = {}
    for row in rows.select("task_id", "prompt", "completion").iter_rows(named=True):
        shown = [m for m in (*json.loads(row["prompt"]), *json.loads(row["completion"])) if m["role"] != "system"]
        size = len(json.dumps(shown, ensure_ascii=False))
        if size <= MOST_CHARACTERS // max(1, most) and size > best.get(row["task_id"], (0, []))[0]:
            best[row["task_id"]] = size, shown
    order = sorted(best, key=lambda task: hashlib.sha256(f"shown:{seed}:{task}".encode()).hexdigest())
    return [{"messages": best[task][1]} for task in order[:most]]


class FewShot:
    """A policy that reads examples before every prompt, after its system message.

    Args:
        policy: that answers.
        name: in reports.
        examples: as `demonstrations` returns them.
    """

    def __init__(self, policy: Policy, name: str, examples: Sequence[Mapping[str, Any]]) -> None:
        self.name = name
        self.sha256 = content_id(policy.sha256, [dict(e) for e in examples])
        self.no_log_probs = no_log_probs(policy)
        self._policy = policy
        self._shown = [dict(message) for example in examples for message in example["messages"]]

    def _before(self, prompts: Sequence[Messages]) -> list[list[dict[str, Any]]]:
        return [self._with_examples(list(prompt)) for prompt in prompts]

    def _with_examples(self, prompt: list[dict[str, Any]]) -> list[dict[str, Any]]:
        start = 1 if prompt and prompt[0]["role"] == "system" else 0
        return [*prompt[:start], *self._shown, *prompt[start:]]

    @property
    def window(self) -> int:
        """The policy's own."""
        return self._policy.window if isinstance(self._policy, Windowed) else 0

    def lengths(
        self, prompts: Sequence[Messages], tools: ToolLists, completions: Sequence[dict[str, Any]] | None = None
    ) -> list[int]:
        """Return the tokens of each prompt with the examples."""
        if not isinstance(self._policy, Windowed):
            return [0] * len(prompts)
        return self._policy.lengths(self._before(prompts), tools, completions)

    def generate(self, prompts: Sequence[Messages], tools: ToolLists, *, max_new_tokens: int) -> list[Generation]:
        """Return the greedy next action after the examples and each prompt."""
        return self._policy.generate(self._before(prompts), tools, max_new_tokens=max_new_tokens)

    def log_prob(
        self, prompts: Sequence[Messages], tools: ToolLists, completions: Sequence[dict[str, Any]]
    ) -> list[tuple[float, int]]:
        """Return log-probabilities after the examples and each prompt."""
        return self._policy.log_prob(self._before(prompts), tools, completions)
