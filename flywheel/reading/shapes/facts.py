"""What a message reports of itself: its time, model and tokens, what it cost, wherever it has them.

In: a message as a program writes it. Out: payload fields, as `Rollout.facts` has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.reading.usage import APART_ANYWHERE, token_counts
from flywheel.reading.values import as_dict, as_list, first, ident, number, picked, present, text, when

COPIED = "copied"  # of a message: it is in the chat from which this one went on, and its tokens count there
_TIMES = (
    "timestamp",
    "createdAt",
    "created_at",
    "create_time",
    "created",
    "ts",
    "time",
    "date",
    "timestamp_ms",
    "started_at",
    "at",
    "sent_at",
    "sentAt",
)
_MODELS = ("model", "model_name", "modelID", "modelId", "model_slug", "model_id", "ai_model_id")
_USAGE = ("usage", "usage_metadata", "usageMetadata", "token_usage", "models_usage", "tokens", "metrics",
          "totalUsage", "tokens_used", "tokenUsage")  # fmt: skip
_ABOUT = ("response_metadata", "metadata", "meta", "modelInfo")


def facts_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a message reports of itself: its time, model and tokens, what it cost."""
    outer = as_dict(item.get("info")) or as_dict(item.get("message")) or as_dict(item.get("data"))
    inner = outer or as_dict(item.get("kwargs")) or item
    about = [as_dict(inner.get(name)) for name in _ABOUT]
    about += [
        as_dict(as_dict(log).get("completionOptions")) for log in as_list(item.get("promptLogs"))[-1:]
    ]  # Continue
    places = [item, inner, *about, *map(as_dict, as_list(inner.get("parts"))[:1])]  # Pydantic AI's parts have times
    usage = next((held for place in places if (held := as_dict(first(place, _USAGE)))), {})
    places.append(usage)
    usage = {**usage, **as_dict(usage.get("tokens"))}  # Cline's are in its metrics
    at = next((value for place in places if (value := first(place, _TIMES)) is not None), None)
    written = ident(as_dict(as_dict(item.get("step_details")).get("message_creation")).get("message_id"))
    own = ident(item.get("id")) if item.get("object") == "thread.message" else written
    return present(
        response_id=own,
        tags=["content_missing"] if written else None,
        copied=True if item.get(COPIED) is True else None,
        ts=when(first(at, ("created", "started")) if isinstance(at, dict) and "$date" not in at else at),
        model=next((model for place in places if (model := text(first(place, _MODELS)))), None),
        cost_usd=next((cost for place in places if (cost := _cost(place.get("cost"))) is not None), None),
        **(_counts(usage) if usage else token_counts({**item, **inner})),
    )


def _cost(value: Any) -> float | None:
    return number(as_dict(value).get("total") if isinstance(value, dict) else value)


def _counts(usage: Mapping[str, Any]) -> dict[str, int | None]:
    if not {"input", "output"} & usage.keys():
        return token_counts(usage, cached=APART_ANYWHERE if {"input_tokens", "inputTokens"} & usage.keys() else ())
    cache = as_dict(usage.get("cache")) or picked(usage, ("cacheRead", "cacheWrite"))  # which these count apart
    names = {"input_tokens": "input", "output_tokens": "output"}
    counted = {name: usage.get(short) for name, short in names.items()} | dict(cache)
    return token_counts(counted | {"thoughtsTokenCount": first(usage, ("thoughts", "reasoning"))}, cached=cache)
