"""How an action's tokens were sampled, as far as the log shows it, and which probabilities of the policy are known.

In: the payload of a model call; later the column `served` of steps. Out: the log-probabilities under the policy that
acted, where the log has them, or the temperature at which they can be recomputed, or neither.

A sampled token has the probability softmax(logits / temperature) only if nothing else changed the distribution. Where
the log shows that it was cut (top-p, top-k, min-p), penalised, or greedy, the probability counts as unknown. Logged
log-probabilities count where the temperature was 1 (or is not logged): at another one, some servers log those of the
sampling distribution and some those of the model, and the log does not show which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from flywheel.stages.common.canonical import dump, is_round

if TYPE_CHECKING:
    import polars as pl

UNKNOWN = "unknown"

# Parameters that change the distribution, and the values at which they do not; a seed or a length never does.
_NEUTRAL: dict[str, tuple[float, ...]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "typical_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
}


class Drawn(NamedTuple):
    """What is known of the probabilities of an attempt's actions."""

    log_probs: list[dict[str, Any]] | None  # {ids, log_probs} of each action, as logged
    temperature: float | None  # at which they can be recomputed; None where that would be wrong


def served(payload: Mapping[str, Any]) -> str | None:
    """Return what a model call's payload shows of the sampling, as JSON: sampling, ids and log_probs; None: nothing."""
    ids, log_probs = payload.get("completion_token_ids"), payload.get("completion_logprobs")
    known: dict[str, Any] = {}
    if isinstance(payload.get("sampling"), dict) and payload["sampling"]:
        known["sampling"] = payload["sampling"]
    tokens, scores = _numbers(ids), _numbers(log_probs)
    if tokens and len(tokens) == len(scores):
        known |= {"ids": [int(i) for i in tokens], "log_probs": [float(x) for x in scores]}
    return dump(known) if known else None


def _numbers(values: Any) -> list[float]:
    """Return a list of numbers; of anything else, none."""
    return values if isinstance(values, list) and all(type(x) in {int, float} for x in values) else []


def drawn(actions: Sequence[str | None]) -> Drawn:
    """Return what is known of an attempt from the column `served` of its steps, in order."""
    if not any(actions):
        return Drawn(None, 1.0)
    calls = [orjson.loads(text) if text else {} for text in actions]
    temperatures = {_temperature(call.get("sampling") or {}) for call in calls}
    (temperature,) = temperatures if len(temperatures) == 1 else (None,)
    logged = [{"ids": call["ids"], "log_probs": call["log_probs"]} for call in calls if "ids" in call]
    complete = temperature == 1 and len(logged) == len(calls)
    return Drawn(logged if complete else None, temperature)


def draws(steps: pl.DataFrame) -> dict[str, Drawn]:
    """Return how each episode's tokens were sampled; rows of the steps table, complete episodes."""
    if "served" not in steps.columns:
        steps = steps.with_columns(served=None)
    by_episode: dict[str, list[str | None]] = {}
    for episode, how in (
        steps.select("episode_id", "index", "served").sort("episode_id", "index").drop("index").iter_rows()
    ):
        by_episode.setdefault(episode, []).append(how)
    return {episode: drawn(calls) for episode, calls in by_episode.items()}


def behaviour(policy: str, how: Drawn) -> str:
    """Return where the probabilities of the policy that acted come from: logged, rescore or unknown."""
    if how.log_probs is not None:
        return "logged"
    ours = policy == "base" or is_round(policy)
    return "rescore" if how.temperature is not None and ours else UNKNOWN


def _temperature(sampling: Mapping[str, Any]) -> float | None:
    """Return the temperature if nothing else changed the distribution; 1, servers' default, where none is logged."""
    for name, plain in _NEUTRAL.items():
        if sampling.get(name) is not None and sampling[name] not in plain:
            return None
    value = sampling.get("temperature", 1.0)
    value = 1.0 if value is None else value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None
