"""Support of a direction: distinct users whose attempts favour one action over the other at a state.

In: the known actions of tasks with their users. Out: voters for and against a pair. A user has one vote, the sign of
all their attempts through both actions together; without users in the log, every episode is a voter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

import polars as pl

from flywheel.stages.datasets.pairs.anchors import ANCHORS

_SILENT = 1e-9  # below it an attempt did as well as the state's mean, and does not vote


class Votes:
    """Counts voters at the states of some steps.

    Args:
        actions: with the columns of `known_actions`.
        asked: the (episode, step) of the pairs that will be counted.
    """

    def __init__(self, actions: pl.DataFrame, asked: Collection[tuple[str, int]]) -> None:
        sides = pl.DataFrame(sorted(asked), schema={"episode_id": pl.String, "index": pl.Int64}, orient="row")
        met = actions.join(sides, on=["episode_id", "index"], how="semi")
        at_them = pl.any_horizontal(pl.col(state).is_in(met[state].unique().implode()) for state in ANCHORS)
        actions = actions.filter(at_them)
        self._at: dict[tuple[str, int], tuple[Any, ...]] = {}
        self._by_action: dict[tuple[int, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._means: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in actions.select("episode_id", "index", "act", "voter", "p_success", *ANCHORS).iter_rows():
            episode, index, act, voter, p_success, *states = row
            self._at[episode, index] = (act, *states)
            for state in states:
                self._by_action[state, act][voter].append(p_success)
                self._means[state][voter].append(p_success)

    def count(self, pair: dict[str, Any]) -> tuple[int, int] | None:
        """Return (voters for, voters against) at the finest state that both sides share; None where they share none."""
        chosen, rejected = (
            self._at.get((pair[f"{side}_episode"], pair[f"{side}_step"])) for side in ("chosen", "rejected")
        )
        if chosen is None or rejected is None:
            return None
        shared = [state for state, other in zip(chosen[1:], rejected[1:], strict=True) if state == other]
        if not shared or shared[0] is None:
            return None
        leanings = list(self._leanings(shared[0], str(chosen[0]), str(rejected[0])).values())
        return sum(v > _SILENT for v in leanings), sum(v < -_SILENT for v in leanings)

    def _leanings(self, state: int, chosen: str, rejected: str) -> dict[str, float]:
        """Return how far each voter's attempts favour the chosen action: each action counts once a voter."""
        means = [sum(ps) / len(ps) for ps in self._means[state].values()]
        usual = sum(means) / len(means)
        leanings: dict[str, float] = defaultdict(float)
        for act, sign in ((chosen, 1.0), (rejected, -1.0)):
            for voter, ps in self._by_action[state, act].items():
                leanings[voter] += sign * (sum(ps) / len(ps) - usual)
        return leanings
