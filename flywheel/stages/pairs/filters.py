"""From candidate pairs to pairs worth training on: every filter drops with a counted reason.

Filters run in the order of `FILTERS`, cheap ones first; each looks at one pair. Then duplicates and caps, which look
across pairs. What a filter needs to know beyond the pair itself is looked up in the steps and returns, and a pair whose
sides are not in the log (an edited answer, say) passes what cannot be said of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flywheel.contracts import polars_schema
from flywheel.records import PreferencePair, ToolStatus, canonical_json
from flywheel.stages._context import UNFIT, contexts, unfit
from flywheel.stages.pairs.grounding import is_prose, named_tokens, ungrounded

if TYPE_CHECKING:
    import polars as pl

    from flywheel.config import PairsConfig
    from flywheel.extensions import PairBuilder
    from flywheel.funnel import Funnel

__all__ = ["FILTERS", "build_pairs"]

TOO_SIMILAR = 0.9
EPSILON = 1e-9  # margins are differences of floats; a pair exactly at the threshold stays

Pair = dict[str, Any]
StepKey = tuple[str, int]


@dataclass(frozen=True)
class _Facts:
    """What the filters look up."""

    steps: pl.DataFrame
    returns: pl.DataFrame
    cfg: PairsConfig
    asked: frozenset[StepKey]

    @cached_property
    def known(self) -> frozenset[str]:
        import polars as pl

        rows = self.returns.filter(pl.col("step").is_null() & pl.col("known"))
        return frozenset(rows["episode_id"].to_list())

    @cached_property
    def action(self) -> dict[StepKey, tuple[str | None, list[str]]]:
        columns = ("episode_id", "index", "action_key", "tool_status")
        return {(row[0], row[1]): (row[2], row[3]) for row in self.steps.select(columns).iter_rows()}

    @cached_property
    def last_made(self) -> dict[tuple[str, str], int]:
        """Episode and action → the last step at which it was made."""
        import polars as pl

        grouped = self.steps.filter(pl.col("action_key").is_not_null()).group_by("episode_id", "action_key")
        return {(row[0], row[1]): row[2] for row in grouped.agg(pl.col("index").max()).iter_rows()}

    @cached_property
    def prompts(self) -> dict[StepKey, str]:
        return {key: context.prompt for key, context in contexts(self.steps, self.asked).items()}


def _message(pair: Pair, side: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(pair[side])[-1]
    return message


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    return list(message.get("tool_calls") or [])


def _key(pair: Pair, side: str) -> StepKey:
    return pair[f"{side}_episode"], pair[f"{side}_step"]


def _unknown_outcome(pair: Pair, facts: _Facts) -> bool:
    """A comparison of two episodes rests on their outcomes; within one episode the evidence is another."""
    ends = {pair["chosen_episode"], pair["rejected_episode"]}
    return len(ends) == 2 and not ends <= facts.known  # noqa: PLR2004


def _small_margin(pair: Pair, facts: _Facts) -> bool:
    return bool(pair["margin"] < facts.cfg.min_margin - EPSILON)


def _unsure(pair: Pair, facts: _Facts) -> bool:
    return bool(pair["p_better"] < facts.cfg.min_p_better - EPSILON)


def _malformed_chosen(pair: Pair, facts: _Facts) -> bool:
    del facts
    message = _message(pair, "chosen")
    calls = _calls(message)
    empty = not calls and not str(message.get("content") or "").strip()
    return empty or any(call.get("arguments") is None for call in calls)


def _failed_chosen(pair: Pair, facts: _Facts) -> bool:
    _, status = facts.action.get(_key(pair, "chosen"), (None, []))
    return bool(_calls(_message(pair, "chosen"))) and ToolStatus.FAILED.value in status


def _same_action(pair: Pair, facts: _Facts) -> bool:
    chosen, rejected = (_message(pair, side) for side in ("chosen", "rejected"))
    keys = {facts.action.get(_key(pair, side), (None, []))[0] for side in ("chosen", "rejected")}
    by_key = len(keys) == 1 and None not in keys and bool(_calls(chosen))
    return by_key or _signature(chosen) == _signature(rejected)


def _signature(message: dict[str, Any]) -> str:
    """Return an action as text in which ids, spacing and, beside calls, the wording do not count."""
    calls = [(call["name"], call.get("arguments"), call.get("arguments_raw")) for call in _calls(message)]
    return canonical_json(calls or " ".join(str(message.get("content") or "").split()))


def _near_identical(pair: Pair, facts: _Facts) -> bool:
    """Whether the sides say the same in other words: nobody could say which is better.

    Calls count as such when they differ in prose only and neither side names anything (a number, an identifier)
    beyond what the other names; any other difference between calls is a real one, however small.
    """
    del facts
    chosen, rejected = (_message(pair, side) for side in ("chosen", "rejected"))
    if _calls(chosen) and _calls(rejected):
        ours, theirs = named_tokens(chosen), named_tokens(rejected)
        return _without_prose(chosen) == _without_prose(rejected) and (ours <= theirs or theirs <= ours)
    if _calls(chosen) or _calls(rejected):
        return False
    return _overlap(str(chosen.get("content") or ""), str(rejected.get("content") or "")) > TOO_SIMILAR


def _without_prose(message: dict[str, Any]) -> str:
    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [strip(inner) for inner in value]
        return "" if isinstance(value, str) and is_prose(value) else value

    return canonical_json([(call["name"], strip(call.get("arguments"))) for call in _calls(message)])


def _overlap(a: str, b: str) -> float:
    """Return the Dice coefficient of two texts' word counts: linear, unlike an edit distance."""
    ours, theirs = Counter(a.casefold().split()), Counter(b.casefold().split())
    total = ours.total() + theirs.total()
    return 2 * (ours & theirs).total() / total if total else 1.0


def _other_order(pair: Pair, facts: _Facts) -> bool:
    """Whether the better episode makes the rejected call too, only later: then that call did no harm."""
    action, _ = facts.action.get(_key(pair, "rejected"), (None, []))
    return action is not None and facts.last_made.get((pair["chosen_episode"], action), -1) > pair["chosen_step"]


def _not_grounded(pair: Pair, facts: _Facts) -> bool:
    chosen, rejected = (_message(pair, side) for side in ("chosen", "rejected"))
    own = facts.prompts.get(_key(pair, "chosen"), "[]")
    return bool(ungrounded(chosen, rejected, pair["prompt"], pair["tools"], own))


def _other_context(pair: Pair, facts: _Facts) -> bool:
    """Whether the rejected call names what only its own context showed: it answers another conversation."""
    prompt = facts.prompts.get(_key(pair, "rejected"))
    if prompt is None or pair["chosen_episode"] == pair["rejected_episode"]:
        return False
    chosen, rejected = (_message(pair, side) for side in ("chosen", "rejected"))
    foreign = ungrounded(rejected, chosen, pair["prompt"], pair["tools"], prompt)
    return bool(foreign - ungrounded(rejected, chosen, prompt, pair["tools"]))


FILTERS: tuple[tuple[str, Callable[[Pair, _Facts], bool]], ...] = (
    ("unknown outcome", _unknown_outcome),
    ("margin", _small_margin),
    ("p_better", _unsure),
    ("malformed chosen", _malformed_chosen),
    ("chosen call failed", _failed_chosen),
    ("same action", _same_action),
    ("near-identical", _near_identical),
    ("other order", _other_order),
    ("not grounded", _not_grounded),
    ("other context", _other_context),
)


def build_pairs(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    returns: pl.DataFrame,
    cfg: PairsConfig,
    builders: Mapping[str, PairBuilder],
    funnel: Funnel,
) -> pl.DataFrame:
    """Run the builders in order of preference and return the pairs that pass every filter, sorted by id.

    A reason is counted as "builder: reason", so that the funnel tells what became of each builder's candidates.
    """
    import polars as pl

    schema = polars_schema(PreferencePair)
    young = pl.col("provisional").fill_null(value=False)
    returns = returns.with_columns(known=pl.col("known") & ~young)  # what is too young is not known yet
    frames = []
    for rank, (name, build) in enumerate(builders.items()):
        found = build(episodes, steps, returns, cfg).select(list(schema)).cast(schema)
        frames.append(found.with_columns(_rank=pl.lit(rank), _builder=pl.lit(name)))
        funnel.note(f"candidates of {name}", found.height)
    if not frames:
        return pl.DataFrame(schema=schema)
    candidates = pl.concat(frames)
    funnel.considered += candidates.height
    bad = unfit(episodes)
    whole = funnel.drop(candidates, pl.col("chosen_episode").is_in(bad) | pl.col("rejected_episode").is_in(bad), UNFIT)
    pairs = _limit(_filter(whole, steps, returns, cfg, funnel), cfg, funnel)
    funnel.kept += pairs.height
    for name in builders:
        funnel.note(f"kept of {name}", pairs.filter(pl.col("_builder") == name).height)
    return pairs.select(list(schema)).sort("pair_id")


def _filter(
    pairs: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, cfg: PairsConfig, funnel: Funnel
) -> pl.DataFrame:
    import polars as pl

    sides = [pairs.select(f"{side}_episode", f"{side}_step").rows() for side in ("chosen", "rejected")]
    facts = _Facts(steps, returns, cfg, frozenset((key[0], key[1]) for keys in sides for key in keys))
    reasons = [_first_reason(pair, facts) for pair in pairs.iter_rows(named=True)]
    pairs = pairs.with_columns(pl.Series("_reason", reasons, dtype=pl.String))
    for reason, _ in FILTERS:
        for name in pairs["_builder"].unique(maintain_order=True):
            where = (pl.col("_reason") == reason) & (pl.col("_builder") == name)
            pairs = funnel.drop(pairs, where, f"{name}: {reason}")
    return pairs


def _first_reason(pair: Pair, facts: _Facts) -> str | None:
    return next((reason for reason, bad in FILTERS if bad(pair, facts)), None)


def _limit(pairs: pl.DataFrame, cfg: PairsConfig, funnel: Funnel) -> pl.DataFrame:
    """Drop duplicates, then what is over the caps: preferred builders first, then by margin, then by id."""
    import polars as pl

    order = ["_rank", "margin", "pair_id", "chosen_episode", "rejected_episode"]
    pairs = pairs.sort(order, descending=[False, True, False, False, False])
    pairs = funnel.drop(pairs, pl.col("pair_id").is_first_distinct().not_(), "duplicate")
    for key, most in (("state_key", cfg.max_per_state), ("task_id", cfg.max_per_task)):
        place = pl.int_range(pl.len()).over("task_id", key) if key == "state_key" else pl.int_range(pl.len()).over(key)
        pairs = funnel.drop(pairs, place >= most, f"over pairs.max_per_{key.partition('_')[0]}")
    return pairs
