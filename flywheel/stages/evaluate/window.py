"""Which cases fit into a model's window, none being ever cut; and what answers cost in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from flywheel.extensions import CaseScore, Generation, Policy

TOO_LONG = "longer than the model's window"

Messages = list[dict[str, Any]]
Tools = list[dict[str, Any]] | None


@runtime_checkable
class Windowed(Protocol):
    """A policy that knows how much it can read; for one that does not say, every case is taken to fit."""

    @property
    def window(self) -> int:
        """Most tokens of prompt and action together; 0 for no limit."""
        ...

    def lengths(
        self,
        prompts: Sequence[Sequence[dict[str, Any]]],
        tools: Sequence[Tools],
        completions: Sequence[dict[str, Any]] | None = None,
    ) -> list[int]:
        """Return the tokens of each prompt, with its completion where given."""
        ...


class Ask(NamedTuple):
    """What a policy is asked to read; a completion if it is to be scored rather than written."""

    prompt: Messages
    tools: Tools
    completion: dict[str, Any] | None = None

    @property
    def request(self) -> str:
        """The user's last words, '' where they are none."""
        words = next((m.get("content") for m in reversed(self.prompt) if m["role"] == "user"), "")
        return words if isinstance(words, str) else ""


def fits(policy: Policy, asks: Sequence[Ask], room: int) -> list[bool]:
    """Return which of the asks leave `room` tokens in the policy's window."""
    if not asks or not isinstance(policy, Windowed) or policy.window <= 0:
        return [True] * len(asks)
    completions = [a.completion for a in asks if a.completion is not None]
    lengths = policy.lengths([a.prompt for a in asks], [a.tools for a in asks], completions or None)
    return [length + room <= policy.window for length in lengths]


def no_log_probs(policy: Policy) -> str:
    """Return why a policy gives no log-probabilities of what it is shown; '' where it does."""
    return str(getattr(policy, "no_log_probs", ""))


def written_tokens(case_id: str, task_id: str, answer: Generation | None) -> list[CaseScore]:
    """Return the measure `tokens` of an answer, where they were counted."""
    if answer is None or not answer.tokens:
        return []
    return [CaseScore(case_id, task_id, "tokens", float(answer.tokens), binary=False, unit="tokens an answer")]
