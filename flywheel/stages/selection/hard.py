"""Kinds of requests at which the start policy fails in the log: their demonstrations are trained several times a pass.

In: a round's demonstrations, and the start policy's own logged episodes. Out: the demonstrations, some with {times:
n}. A policy that has mastered most kinds learns nothing more from them: their loss is near 0, and in a pass over all
rows the few that could teach something are seen once. A single episode's outcome is uncertain, and a row that the
policy finds unlikely may be wrong; the mean over a kind of requests is neither (decision 0121).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.funnel import Funnel
from flywheel.stages.selection.kinds import Tried, fared

SHARE = 2.0  # of the mean rows of a kind in the round: as many passes a hard kind may have by repetition
ERRORS = 1.5  # standard errors by which its mean P(success) is below that of all kinds

Row = dict[str, Any]


def are_hard(tried: Tried, requests: Sequence[str | None]) -> list[bool]:
    """Return which requests are of a kind at which the policy succeeds less than elsewhere.

    Args:
        tried: of the policy's own episodes.
        requests: whose kinds are asked about.
    """
    kinds, chances = fared(tried, requests)
    hard = hard_kinds(tried, chances)
    return [kind in hard for kind in kinds]


def hard_kinds(tried: Tried, chances: Mapping[int, Sequence[float]]) -> set[int]:
    """Return the kinds at which the policy succeeds less than elsewhere.

    Args:
        tried: of the policy's own episodes.
        chances: their P(success) by kind, as `fared` returns it.
    """
    every = [chance for _, chance in tried]
    mean, spread = (statistics.fmean(every), statistics.pstdev(every)) if chances else (0.0, 0.0)
    return {
        kind for kind, own in chances.items() if statistics.fmean(own) < mean - ERRORS * spread / math.sqrt(len(own))
    }


def repeated(rows: Sequence[Row], tried: Tried, times: int, funnel: Funnel) -> list[Row]:
    """Return a round's demonstrations, those of hard kinds with {times: n}; not what the policy does there itself.

    A kind of which attempts brought many rows is repeated less, or not at all: what is repeated too much pulls the
    policy away from the other kinds.

    Args:
        rows: of a round.
        tried: as in `are_hard`.
        times: how often a row of a hard kind is trained in a pass, at most.
        funnel: notes how many there are.
    """
    kinds, chances = fared(tried, [_request(row) for row in rows])
    hard, of_kind = hard_kinds(tried, chances), Counter(kinds)
    wanted = SHARE * len(rows) / max(len(of_kind), 1)
    often = {kind: max(1, min(times, round(wanted / of_kind[kind]))) for kind in hard & of_kind.keys()}
    made = [
        {**row, "times": often[kind]} if often.get(kind, 1) > 1 and row.get("mix") != "replayed" else row
        for kind, row in zip(kinds, rows, strict=True)
    ]
    funnel.note(
        f"rows of kinds at which the start fails, trained up to {times} times a pass",
        sum("times" in row for row in made),
    )
    return made


def _request(row: Mapping[str, Any]) -> str | None:
    said = next((message.get("content") for message in row["prompt"] if message["role"] == "user"), None)
    return said if isinstance(said, str) else None
