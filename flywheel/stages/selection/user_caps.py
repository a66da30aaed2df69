"""No single user decides: caps, weights, and whether a preference outlives any one user.

In: votes or rows with the pseudonym of their user. Out: how much of them counts. Where logs name no users nothing can
be capped, which is said and does not block; a user is a pseudonym, never a name.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

__all__ = ["Direction", "capped_share", "direction", "majority", "rows_allowed", "tally", "user_weights"]

CAP = 3  # votes of one user that count
LEAST_USERS = 3  # distinct users that a preference needs
LEAST_USERS_VERIFIED = 2  # the same where a verifier stands behind it
LEAD = 2  # users by which it must lead
FEW = 3  # users below whom there is no crowd to protect: nothing is capped

Vote = tuple[str, Hashable]  # user, choice


class Direction(NamedTuple):
    """What users' votes between choices come to."""

    choice: Hashable | None  # None: abstain
    reason: Literal["supported", "few users", "small lead", "one user flips it", "tie"]
    users: int  # distinct users for the leading choice
    against: int  # and for the runner-up


def tally(votes: Iterable[Vote], cap: int | None = CAP) -> dict[Hashable, int]:
    """Return the votes for each choice; of one user's for one choice at most `cap` count, None: all."""
    counts = Counter(votes)
    found: dict[Hashable, int] = defaultdict(int)
    for (_, choice), n in counts.items():
        found[choice] += n if cap is None else min(n, cap)
    return dict(found)


def majority(votes: Iterable[Vote], cap: int | None = CAP) -> Hashable | None:
    """Return the choice with most votes; None where there is a tie or no vote."""
    ranked = sorted(tally(votes, cap).values(), reverse=True)
    if not ranked or ranked[:1] == ranked[1:2]:
        return None
    return next(choice for choice, n in tally(votes, cap).items() if n == ranked[0])


def direction(votes: Sequence[Vote], *, verified: bool = False, cap: int = CAP) -> Direction:
    """Return which choice users prefer, or why none is to be trained on.

    A choice needs three distinct users (two where a verifier stands behind it), a lead of two, and must lead still, by
    raw and by capped votes, whichever one user is left out.
    """
    backers = Counter(choice for _, choice in set(votes))
    ranked = sorted(backers.items(), key=lambda item: (-item[1], str(item[0])))
    if not ranked:
        return Direction(None, "few users", 0, 0)
    (choice, users), against = ranked[0], ranked[1][1] if len(ranked) > 1 else 0
    if users == against:
        return Direction(None, "tie", users, against)
    if _flips(votes, choice, cap):
        return Direction(None, "one user flips it", users, against)
    if users < (LEAST_USERS_VERIFIED if verified else LEAST_USERS):
        return Direction(None, "few users", users, against)
    if users - against < LEAD:
        return Direction(None, "small lead", users, against)
    return Direction(choice, "supported", users, against)


def _flips(votes: Sequence[Vote], choice: Hashable, cap: int) -> bool:
    """Whether the votes contradict the choice, all of them or without any one user."""
    for left_out in (None, *sorted({user for user, _ in votes})):
        rest = [vote for vote in votes if vote[0] != left_out]
        if rest and any(majority(rest, most) != choice for most in (cap, None)):
            return True
    return False


def capped_share(rows: Iterable[tuple[str, bool]], cap: int | None = CAP) -> float:
    """Return the share of positive rows when of one user's at most `cap` count, each user's own share kept."""
    by_user: dict[str, list[bool]] = defaultdict(list)
    for user, positive in rows:
        by_user[user].append(positive)
    sizes = {user: len(own) if cap is None else min(len(own), cap) for user, own in by_user.items()}
    hits = math.fsum(sizes[user] * sum(own) / len(own) for user, own in by_user.items())
    return hits / sum(sizes.values())


def rows_allowed(counts: Mapping[str, int], most: int, share: float) -> int:
    """Return how many rows one user may have: at most `most`, and `share` of all known rows.

    With few users nobody can stay below the share; then it is twice what each would have if all had as many.
    """
    if len(counts) < FEW:
        return max(counts.values(), default=0)
    total = sum(counts.values())
    return min(most, max(math.ceil(share * total), math.ceil(2 * total / len(counts))))


def user_weights(users: Sequence[str | None]) -> list[float]:
    """Return 1/sqrt(n) for each row of a user with n rows, scaled to a mean of 1; rows without user weigh 1."""
    counts = Counter(user for user in users if user is not None)
    raw = {user: 1 / math.sqrt(n) for user, n in counts.items()}
    total = math.fsum(raw[user] * n for user, n in counts.items())
    scale = sum(counts.values()) / total if total else 1.0
    return [1.0 if user is None else raw[user] * scale for user in users]
