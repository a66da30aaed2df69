"""Tokens of a model call, under whatever names an API or a log gives them.

In: usage objects and lists of token ids. Out: payload fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flywheel.reading.values import count, first

_INPUT = (
    "input_tokens", "prompt_tokens", "inputTokens", "prompt_token_count", "promptTokenCount", "prompt_eval_count",
    "inputTokenCount", "llmPromptTokens", "prompt",
)  # fmt: skip
_OUTPUT = (
    "output_tokens", "completion_tokens", "outputTokens", "candidates_token_count", "candidatesTokenCount",
    "eval_count", "outputTokenCount", "llmCompletionTokens", "completion",
)  # fmt: skip
APART = ("cache_creation_input_tokens", "cache_read_input_tokens")  # Anthropic counts them besides `input_tokens`
APART_ANYWHERE = (*APART, "cacheReadInputTokens", "cacheWriteInputTokens", "cacheCreationInputTokens")  # and Bedrock
# Of the cache, by further names. Where there are more of them than input, the input does not hold them.
_CACHED = (
    *APART_ANYWHERE, "cache_read_tokens", "cache_creation_tokens", "cache_write_tokens", "cacheReadTokens",
    "cacheCreationTokens", "cacheWriteTokens",
)  # fmt: skip
_REASONING = ("thoughts_token_count", "thoughtsTokenCount")  # Gemini does not count them as output


def token_counts(usage: Mapping[str, Any], *, cached: Iterable[str] = ()) -> dict[str, int | None]:
    """Return `input_tokens` and `output_tokens`; None where they were not counted.

    Args:
        usage: the counts of a call.
        cached: names of input tokens that this API counts apart from the others.
    """
    apart = {name: count(usage.get(name)) for name in cached}
    inputs = [count(first(usage, _INPUT)), *apart.values()]
    cache = _sum(count(usage.get(name)) for name in _CACHED if name not in apart)
    inputs += [cache] if cache is not None and cache > (_sum(inputs) or 0) else []
    outputs = [count(first(usage, _OUTPUT)), count(first(usage, _REASONING))]
    return {"input_tokens": _sum(inputs), "output_tokens": _sum(outputs)}


def _sum(counts: Iterable[int | None]) -> int | None:
    counted = [n for n in counts if n is not None]
    return sum(counted) if counted else None


def detailed_tokens(usage: Mapping[str, Any]) -> dict[str, int]:
    """Return the tokens of both sides of Langfuse's details, which count parts (cached, reasoning) apart."""
    counts = {name: n for name, value in usage.items() if (n := count(value)) is not None}
    sides = {"input_tokens": ("input", "cache_", "prompt_tokens"), "output_tokens": ("output", "completion_tokens")}
    fields = {}
    for side, beginnings in sides.items():
        parts = [n for name, n in counts.items() if name.startswith(beginnings) and not _is_detail(name, counts)]
        if parts:
            fields[side] = sum(parts)
    if "total" in counts and sum(fields.values()) > counts["total"]:  # details repeat what the sum holds
        return {side: counts[name] for side, name in (("input_tokens", "input"), ("output_tokens", "output"))
                if name in counts}  # fmt: skip
    return fields


def _is_detail(name: str, counts: Mapping[str, int]) -> bool:
    """Whether a count is part of another one: Anthropic counts by how long the cache keeps it."""
    return name.startswith("cache_creation") and "ephemeral" in name and "cache_creation_input_tokens" in counts


def token_ids(value: Any) -> list[int] | None:
    """Return a list of token ids; None for an empty list and for anything else."""
    ids = value if isinstance(value, list) else []
    return ids if ids and all(isinstance(n, int) and not isinstance(n, bool) for n in ids) else None
