"""From candidate pairs to pairs worth training on: every filter drops with a counted reason.

Filters run in the order of `FILTERS`, cheap ones first; each looks at one pair. Then duplicates and caps, which look
across pairs. What a filter needs to know beyond the pair itself is looked up in the steps and returns, and a pair whose
sides are not in the log (an edited answer, say) passes what cannot be said of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flywheel.contracts import polars_schema
from flywheel.records import PreferencePair, Split, ToolStatus, canonical_json
from flywheel.stages._context import UNFIT, StepContext, contexts, unfit
from flywheel.stages._grounding import is_prose, named_tokens, ungrounded
from flywheel.stages.pairs.attempts import known_actions
from flywheel.stages.pairs.limits import limit, signature
from flywheel.stages.pairs.support import Votes
from flywheel.stages.pairs.taint import tainted
from flywheel.stages.pairs.within import overlap

if TYPE_CHECKING:
    import polars as pl

    from flywheel.config import PairsConfig
    from flywheel.extensions import PairBuilder
    from flywheel.funnel import Funnel

__all__ = ["FILTERS", "build_pairs"]

TOO_SIMILAR = 0.9
CHEAPER = "efficiency"  # builder whose pairs say nothing about success
FOREIGN_WORDS, LONG_WORD = 3, 5  # so many words of so many letters tell that a text is about something else
EPSILON = 1e-9  # margins are differences of floats; a pair exactly at the threshold stays

_NEWER = {"p_chosen", "users"}  # columns that a builder may leave out

Pair = dict[str, Any]
StepKey = tuple[str, int]


@dataclass(frozen=True)
class _Facts:
    """What the filters look up."""

    episodes: pl.DataFrame
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
    def risk(self) -> dict[str, float]:
        import polars as pl

        rows = self.returns.filter(pl.col("step").is_null()).select("episode_id", "risk")
        return dict(rows.iter_rows())

    @cached_property
    def credit(self) -> dict[StepKey, float]:
        import polars as pl

        rows = self.returns.filter(pl.col("step").is_not_null()).select("episode_id", "step", "value")
        return {(row[0], row[1]): row[2] for row in rows.iter_rows()}

    @cached_property
    def votes(self) -> Votes:
        return Votes(known_actions(self.episodes, self.steps, self.returns))

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
    def contexts(self) -> dict[StepKey, StepContext]:
        return contexts(self.steps, self.asked)

    def prompt(self, key: StepKey) -> str | None:
        return self.contexts[key].prompt if key in self.contexts else None

    def was_taken(self, pair: Pair, side: str) -> bool:
        """Whether a side is the action that the log has there."""
        context = self.contexts.get(_key(pair, side))
        return context is not None and signature(_message(pair, side)) == signature(json.loads(context.completion)[-1])


def _message(pair: Pair, side: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(pair[side])[-1]
    return message


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    return list(message.get("tool_calls") or [])


def _key(pair: Pair, side: str) -> StepKey:
    return pair[f"{side}_episode"], pair[f"{side}_step"]


def _edited(pair: Pair) -> bool:
    """Whether both sides are one step: then the chosen one was never taken, and the log says nothing of it."""
    return _key(pair, "chosen") == _key(pair, "rejected")


def _crosses(pair: Pair, facts: _Facts) -> bool:
    del facts
    return bool(pair["split"] == Split.BETWEEN.value)


def _risky(pair: Pair, facts: _Facts) -> bool:
    """Whether the better episode did something dangerous: no success makes that an example."""
    return facts.risk.get(pair["chosen_episode"], 0.0) >= facts.cfg.max_risk


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
    return not _edited(pair) and bool(_calls(_message(pair, "chosen"))) and ToolStatus.FAILED.value in status


def _same_action(pair: Pair, facts: _Facts) -> bool:
    chosen, rejected = (_message(pair, side) for side in ("chosen", "rejected"))
    keys = {facts.action.get(_key(pair, side), (None, []))[0] for side in ("chosen", "rejected")}
    by_key = len(keys) == 1 and None not in keys and bool(_calls(chosen)) and not _edited(pair)
    return by_key or signature(chosen) == signature(rejected)


def _near_identical(pair: Pair, facts: _Facts) -> bool:
    """Whether the sides say the same in other words: nobody could say which is better.

    Calls count as such when they differ in prose only and neither side names anything (a number, an identifier)
    beyond what the other names; any other difference between calls is a real one, however small.
    """
    del facts
    chosen, rejected = (_message(pair, side) for side in ("chosen", "rejected"))
    if _calls(chosen) and _calls(rejected):
        ours, theirs = named_tokens(chosen), named_tokens(rejected)
        nothing_named = ours <= theirs or theirs <= ours or pair["builder"] == CHEAPER
        return _without_prose(chosen) == _without_prose(rejected) and nothing_named
    if _calls(chosen) or _calls(rejected):
        return False
    return overlap(str(chosen.get("content") or ""), str(rejected.get("content") or "")) > TOO_SIMILAR


def _without_prose(message: dict[str, Any]) -> str:
    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [strip(inner) for inner in value]
        return "" if isinstance(value, str) and is_prose(value) else value

    return canonical_json([(call["name"], strip(call.get("arguments"))) for call in _calls(message)])


def _other_order(pair: Pair, facts: _Facts) -> bool:
    """Whether the better episode makes the rejected call too, only later: then that call did no harm."""
    action, _ = facts.action.get(_key(pair, "rejected"), (None, []))
    return action is not None and facts.last_made.get((pair["chosen_episode"], action), -1) > pair["chosen_step"]


def _not_grounded(pair: Pair, facts: _Facts) -> bool:
    chosen, rejected = (_message(pair, side) for side in ("chosen", "rejected"))
    own = facts.prompt(_key(pair, "chosen")) or "[]"
    return bool(ungrounded(chosen, rejected, pair["prompt"], pair["tools"], own))


def _other_context(pair: Pair, facts: _Facts) -> bool:
    """Whether the rejected call names what only its own context showed: it answers another conversation."""
    prompt = facts.prompt(_key(pair, "rejected"))
    if prompt is None or pair["chosen_episode"] == pair["rejected_episode"]:
        return False
    chosen, rejected = (_message(pair, side) for side in ("chosen", "rejected"))
    foreign = ungrounded(rejected, chosen, pair["prompt"], pair["tools"], prompt)
    if foreign - ungrounded(rejected, chosen, prompt, pair["tools"]):
        return True
    return len(_told_only_there(rejected, pair["prompt"], prompt)) >= FOREIGN_WORDS


def _told_only_there(message: dict[str, Any], here: str, there: str) -> set[str]:
    """Return the words of a call's sentences that its own conversation has and this one has not."""
    texts = [value for call in _calls(message) for value in (call.get("arguments") or {}).values()]
    said = {word for text in texts if isinstance(text, str) and is_prose(text) for word in _words(text)}
    return {word for word in said if word in there.casefold() and word not in here.casefold()}


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"[^\W\d_]+", text.casefold()) if len(word) >= LONG_WORD}


def _dictated(pair: Pair, facts: _Facts) -> bool:
    own = facts.prompt(_key(pair, "chosen")) or str(pair["prompt"])
    return tainted(_message(pair, "chosen"), own)


def _against_credit(pair: Pair, facts: _Facts) -> bool:
    """Whether the steps' own credit says the opposite of their episodes."""
    if pair["chosen_episode"] == pair["rejected_episode"] or pair["builder"] == CHEAPER:
        return False
    chosen, rejected = (facts.credit.get(_key(pair, side)) for side in ("chosen", "rejected"))
    return chosen is not None and rejected is not None and rejected - chosen > EPSILON


def _counted(pair: Pair, facts: _Facts) -> tuple[int, int] | None:
    """Voters of a preference that rests on how episodes ended; what one episode shows by itself needs no vote."""
    if pair["chosen_episode"] == pair["rejected_episode"] or pair["builder"] == CHEAPER:
        return None
    taken = all(facts.was_taken(pair, side) for side in ("chosen", "rejected"))
    return facts.votes.count(pair) if taken else None


def _few_users(pair: Pair, facts: _Facts) -> bool:
    votes = _counted(pair, facts)
    return votes is not None and votes[0] < facts.cfg.min_users


def _fragile(pair: Pair, facts: _Facts) -> bool:
    """Whether one user's leaving could undo the direction."""
    votes = _counted(pair, facts)
    return votes is not None and votes[0] - votes[1] < facts.cfg.min_lead


FILTERS: tuple[tuple[str, Callable[[Pair, _Facts], bool]], ...] = (
    ("crosses the split", _crosses),
    ("unknown outcome", _unknown_outcome),
    ("risk", _risky),
    ("margin", _small_margin),
    ("p_better", _unsure),
    ("malformed chosen", _malformed_chosen),
    ("chosen call failed", _failed_chosen),
    ("same action", _same_action),
    ("near-identical", _near_identical),
    ("other order", _other_order),
    ("against credit", _against_credit),
    ("too few users", _few_users),
    ("fragile", _fragile),
    ("not grounded", _not_grounded),
    ("other context", _other_context),
    ("tainted", _dictated),
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

    schema = pl.Schema(polars_schema(PreferencePair))
    young = pl.col("provisional").fill_null(value=False)
    returns = returns.with_columns(known=pl.col("known") & ~young)  # what is too young is not known yet
    frames = []
    for rank, (name, build) in enumerate(builders.items()):
        found = _proposed(build(episodes, steps, returns, cfg), schema)
        frames.append(found.with_columns(_rank=pl.lit(rank), _builder=pl.lit(name)))
        funnel.note(f"candidates of {name}", found.height)
    if not frames:
        return pl.DataFrame(schema=schema)
    candidates = pl.concat(frames)
    funnel.considered += candidates.height
    bad = unfit(episodes)
    whole = funnel.drop(candidates, pl.col("chosen_episode").is_in(bad) | pl.col("rejected_episode").is_in(bad), UNFIT)
    pairs = limit(_filter(whole, _Facts(episodes, steps, returns, cfg, _asked(whole)), funnel), cfg, funnel)
    funnel.kept += pairs.height
    for name in builders:
        funnel.note(f"kept of {name}", pairs.filter(pl.col("_builder") == name).height)
    return pairs.select(list(schema)).sort("pair_id")


def _proposed(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return a builder's candidates with every column of the table; one made before a column was has nulls there."""
    import polars as pl

    missing = [pl.lit(None, dtype=schema[name]).alias(name) for name in sorted(_NEWER - set(frame.columns))]
    proposed = frame.with_columns(missing).select(list(schema)).cast(schema)
    return proposed.with_columns(pl.col("users").fill_null(pl.lit([], dtype=schema["users"])))


def _asked(pairs: pl.DataFrame) -> frozenset[StepKey]:
    sides = [pairs.select(f"{side}_episode", f"{side}_step").rows() for side in ("chosen", "rejected")]
    return frozenset((key[0], key[1]) for keys in sides for key in keys)


def _filter(pairs: pl.DataFrame, facts: _Facts, funnel: Funnel) -> pl.DataFrame:
    import polars as pl

    reasons = [_first_reason(pair, facts) for pair in pairs.iter_rows(named=True)]
    pairs = pairs.with_columns(pl.Series("_reason", reasons, dtype=pl.String))
    for reason, _ in FILTERS:
        for name in pairs["_builder"].unique(maintain_order=True):
            where = (pl.col("_reason") == reason) & (pl.col("_builder") == name)
            pairs = funnel.drop(pairs, where, f"{name}: {reason}")
    return pairs


def _first_reason(pair: Pair, facts: _Facts) -> str | None:
    return next((reason for reason, bad in FILTERS if bad(pair, facts)), None)
