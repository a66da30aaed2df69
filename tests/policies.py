"""Policies without a model: one that replays logged actions, scored by how often the log took them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.extensions import Generation
from flywheel.records import canonical_json

Messages = Sequence[dict[str, Any]]
Tools = Sequence[list[dict[str, Any]] | None]


class LogReplay:
    """Answers each prompt with the action that a log holds for it, and a plain sentence to any other.

    Args:
        actions: prompt (canonical JSON) → assistant message.
        likes: log-probability of a message's canonical JSON; -1 a character for others.
        window: most characters of a prompt and action; 0 for no limit.
    """

    def __init__(
        self, actions: Mapping[str, dict[str, Any]], *, likes: Mapping[str, float] | None = None, window: int = 0
    ) -> None:
        self.name = "replay"
        self.sha256 = "0" * 64
        self.window = window
        self.asked = 0
        self._actions = actions
        self._likes = likes or {}

    def generate(self, prompts: Sequence[Messages], tools: Tools, *, max_new_tokens: int) -> list[Generation]:
        """Return the logged actions."""
        assert len(prompts) == len(tools)
        assert max_new_tokens > 0
        self.asked += len(prompts)
        return [self._answer(list(p)) for p in prompts]

    def _answer(self, prompt: list[dict[str, Any]]) -> Generation:
        message = self._actions.get(canonical_json(prompt), {"role": "assistant", "content": "I do not know."})
        calls = message.get("tool_calls") or []
        return Generation("", message, bool(calls) and all(c["arguments"] is not None for c in calls))

    def log_prob(
        self, prompts: Sequence[Messages], tools: Tools, completions: Sequence[dict[str, Any]]
    ) -> list[tuple[float, int]]:
        """Return what the log's frequencies say."""
        assert len(prompts) == len(tools) == len(completions)
        texts = [canonical_json(c) for c in completions]
        return [(self._likes.get(t, -float(len(t))), len(t)) for t in texts]

    def lengths(
        self, prompts: Sequence[Messages], tools: Tools, completions: Sequence[dict[str, Any]] | None = None
    ) -> list[int]:
        """Count characters."""
        assert len(prompts) == len(tools)
        after = completions if completions is not None else [{}] * len(prompts)
        return [len(canonical_json(list(p))) + len(canonical_json(c)) for p, c in zip(prompts, after, strict=True)]
