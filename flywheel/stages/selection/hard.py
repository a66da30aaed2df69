"""Kinds of requests at which the start policy fails in the log: their demonstrations are trained several times a pass.

In: a round's demonstrations, and the start policy's own logged episodes. Out: the demonstrations, some with {times:
n}. A policy that has mastered most kinds learns nothing more from them: their loss is near 0, and in a pass over all
rows the few that could teach something are seen once. A single episode's outcome is uncertain, and a row that the
policy finds unlikely may be wrong; the mean over a kind of requests is neither (decision 0121).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.funnel import Funnel
from flywheel.stages.selection.kinds import Tried, fared

AT_MOST = 0.5  # passes over rows of hard kinds for each over another row, as far as they are repeated
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

    Args:
        rows: of a round.
        tried: as in `are_hard`.
        times: how often a row of a hard kind is trained in a pass: less often where attempts brought many of them.
        funnel: notes how many there are.
    """
    hard = are_hard(tried, [_request(row) for row in rows])
    again = [one and row.get("mix") != "replayed" for one, row in zip(hard, rows, strict=True)]
    often = int(AT_MOST * (len(rows) - sum(again)) / max(sum(again), 1))
    times = max(1, min(times, often))
    funnel.note(f"rows of kinds at which the start fails, trained {times} times a pass", sum(again))
    return [{**row, "times": times} if one and times > 1 else row for one, row in zip(again, rows, strict=True)]


def _request(row: Mapping[str, Any]) -> str | None:
    said = next((message.get("content") for message in row["prompt"] if message["role"] == "user"), None)
    return said if isinstance(said, str) else None
