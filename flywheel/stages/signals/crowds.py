"""Crowds of accounts: many come at once to an action, and like it as those before and after them do not.

In: all attempts of a piece of tasks, with what their users thought of them; then what all pieces found. Out: the table
`crowds`. Two things have to be beyond chance in the whole log: a *surge*, in which accounts come more than `FASTER`
times as fast as near it, and its *contrast*, odds of liking more than `LIKELIER` times those of the accounts that came
to the same action before and after. So neither a launch, on which users think as others did, nor a tool that changed,
about which users who come as always think otherwise, is a crowd. Who comes is tested before anybody looks at what they
thought, and only tables that could reach the level are counted. Accounts are taken to act independently; the log has to
name them, and times.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import bdtrc

from flywheel.contracts import conform, frame_of
from flywheel.funnel import Funnel
from flywheel.records import CrowdMember
from flywheel.stages.common.pieces import Piece, Reading
from flywheel.stages.common.sets import DisjointSets
from flywheel.stages.signals.cohorts import DEEDS
from flywheel.stages.signals.rows import ANSWERED_FAMILY, AUDIT, VERIFIER
from flywheel.stats.strata import Excess, Floats, Sides, excess, reachable

# P(any surge is found), and P(any contrast among surges), in a log in which there is none.
CAME, THOUGHT = 0.01, 0.05
REPORTED = 4.0  # times the level, up to which a contrast is reported, though nothing is set aside
FASTER = 1.5  # a product grows, and its days differ
LIKELIER = 2.0  # users who come on one day may be of another taste
LENGTHS_D = (1, 2, 4, 8)  # of a surge: what takes longer is a trend
NEAR = 4  # lengths before and after a surge in which its accounts would come too
FEWEST = 7  # accounts of an action, below which no surge of a day could reach the level
COMPARED = 20  # opinions before a surge, and after it
ENOUGH_OTHERS = 5  # to compare with; and those who came after it: where they mostly agree, something changed for all
ENOUGH_KNOWN = 3  # outcomes of its episodes that are mostly successes: then they are right
SHARED = 0.5  # share of a surge's accounts that came to another surge too: both are one crowd
MOST_SURGES = 100  # of an account, up to which they may belong together: who is everywhere joins nothing
_DAY_S = 86_400.0
_GROUP = ("task_id", "policy", "action")


class Side(NamedTuple):
    """Accounts with an opinion on an action: by account, whether it likes it."""

    opinions: dict[str, bool]

    @property
    def likes(self) -> int:
        """How many like it."""
        return sum(self.opinions.values())


class Surge(NamedTuple):
    """Accounts that came to one action at one task at once."""

    key: tuple[str, str, str]  # task, policy, tools
    start: float  # seconds since 1970
    end: float
    p: float  # of so many accounts, corrected for the windows of its action
    accounts: frozenset[str]
    inside: Side
    before: Side
    after: Side
    known: tuple[int, int]  # successes and failures among its episodes
    episodes: tuple[str, ...]  # of its accounts at this action, without those that they disliked

    @property
    def place(self) -> tuple[tuple[str, str, str], float]:
        """What it is known by: no other has its action and start."""
        return self.key, self.start

    @property
    def others(self) -> dict[str, bool]:
        """Opinions of those who came before it and after it."""
        return self.before.opinions | self.after.opinions


class Surges(NamedTuple):
    """The surges of a piece of the log, and the least P-value that each of its actions could have had."""

    found: list[Surge]
    least: list[float]


class Crowd(NamedTuple):
    """Surges that are one, of another opinion than those before and after them; or that may be."""

    surges: tuple[Surge, ...]
    p: float
    aside: bool  # whether its votes are set aside


# --- who came ---------------------------------------------------------------------------------------------------------


def surges_in(reading: Reading, piece: Piece) -> Surges:
    """Return the surges among the attempts at a piece's tasks."""
    tasks = reading.scan("tasks").filter(reading.lies_in("task_id", piece)).select("episode_id", "task_id")
    episodes, steps, opinions = (
        reading.scan(name).join(tasks, on="episode_id").collect() for name in ("episodes", "steps", "opinions")
    )
    return surges(attempts_of(episodes, steps, opinions))


def attempts_of(episodes: pl.DataFrame, steps: pl.DataFrame, opinions: pl.DataFrame) -> pl.DataFrame:
    """Return the attempts with account and time: task, policy, action, episode, user, at (s), opinion, known.

    Args:
        episodes: with task_id.
        steps: episode_id and tool_names; their set is the episode's action.
        opinions: episode_id, family, kind, score and weight.
    """
    tools = steps.select("episode_id", "tool_names").explode("tool_names").drop_nulls().unique().sort("tool_names")
    action = tools.group_by("episode_id", maintain_order=True).agg(action=pl.col("tool_names").str.join(" "))
    # Who rejected an answer and got another one may like that, and has one opinion of it, not two.
    deed = (pl.col("kind") == "implicit") & pl.col("family").is_in(sorted(DEEDS.keys() - {ANSWERED_FAMILY}))
    likes, dislikes = ((deed & side).any().cast(pl.Int8) for side in (pl.col("score") > 0, pl.col("score") < 0))
    deciding = pl.col("score").filter(pl.col("family").is_in([VERIFIER, AUDIT])).mean()
    said = (
        opinions.filter(pl.col("weight") > 0)
        .sort("episode_id", "score")
        .group_by("episode_id")
        .agg(opinion=likes - dislikes, known=deciding.sign())
    )
    return (
        episodes.filter(pl.col("user").is_not_null() & pl.col("started").is_not_null())
        .select("task_id", "policy", "episode_id", "user", at=pl.col("started").dt.epoch("ms") / 1000)
        .join(action, on="episode_id", how="left")
        .join(said, on="episode_id", how="left")
        .with_columns(pl.col("action", "policy").fill_null(""), pl.col("opinion", "known").fill_null(0))
    )


def surges(attempts: pl.DataFrame) -> Surges:
    """Return the surges among attempts at complete tasks, whatever their users thought.

    Args:
        attempts: from `attempts_of`.
    """
    at = pl.col("at")
    rows = (
        attempts.with_columns(first=at.min().over("task_id"), last=at.max().over("task_id"))
        .filter(pl.col("user").n_unique().over(_GROUP) >= FEWEST)
        .sort(*_GROUP, "at", "episode_id")
        .with_columns(pause=(at - at.shift().over(*_GROUP, "user")).fill_null(float("inf")))
    )
    found, least, begin = list[Surge](), list[float](), 0
    for *key, n in rows.group_by(_GROUP, maintain_order=True).len().iter_rows():
        group, begin = rows.slice(begin, n), begin + n
        windows, could_be = _windows(group)
        least.append(could_be)
        if windows:
            of_action = [_Attempt(*row) for row in group.select(_Attempt._fields).iter_rows()]
            found += [_surge((key[0], key[1], key[2]), of_action, window, windows) for window in windows]
    return Surges(found, least)


class _Attempt(NamedTuple):
    episode_id: str
    user: str
    at: float
    opinion: int
    known: float


class _Window(NamedTuple):
    p: float
    start: float
    end: float

    def holds(self, attempt: _Attempt) -> bool:
        return self.start <= attempt.at <= self.end


def _windows(group: pl.DataFrame) -> tuple[list[_Window], float]:
    """Return the windows of an action in which accounts come faster than near it, and the least P that one could have.

    An account that comes again within a window is counted once. Given the account that a window begins with, and all
    that come near it, the others lie in it with its share of the time, at `FASTER` times the rate. None overlaps
    another.
    """
    at, pause = group["at"].to_numpy(), group["pause"].to_numpy()
    first, last = group["first"][0], group["last"][0]
    looks = [_look(at[pause > days * _DAY_S], days * _DAY_S, first, last) for days in LENGTHS_D]
    p, least, start, end = (np.concatenate(columns) for columns in zip(*looks, strict=True))
    number = reachable(least, CAME)
    windows, left = list[_Window](), np.flatnonzero(p * number <= CAME)
    while len(left):
        best = left[np.argmin(p[left])]
        windows.append(_Window(float(p[best]) * number, float(start[best]), float(end[best])))
        left = left[(start[left] > end[best]) | (end[left] < start[best])]
    return windows, min(float(least.min()) * number, 1.0)


def _look(came: Floats, length: float, first: float, last: float) -> tuple[Floats, ...]:
    """Return of each window of a length P of so many, the least that it could be, start and end."""
    inside = np.searchsorted(came, came + length, side="right") - np.arange(len(came))
    begin = np.searchsorted(came, came - NEAR * length)
    others = np.searchsorted(came, came + (NEAR + 1) * length, side="right") - begin - 1
    time = np.maximum(np.minimum(last, came + (NEAR + 1) * length) - came - length, 0.0)
    time += came - np.maximum(first, came - NEAR * length)
    share = FASTER * length / (FASTER * length + time)
    p = np.where(inside > 1, bdtrc(np.maximum(inside - 2, 0), others, share), 1.0)
    return p, share**others, came, came + length


def _surge(
    key: tuple[str, str, str], attempts: Sequence[_Attempt], window: _Window, windows: Sequence[_Window]
) -> Surge:
    """Return a surge, with the accounts next to it that are in no surge.

    Its clearest window may be a part of it. What comes within as long a time afterwards may be the rest: it is compared
    with nothing, and belongs to it.
    """
    rest = window.end + (window.end - window.start)
    inside = [attempt for attempt in attempts if window.holds(attempt)]
    crowd = frozenset(attempt.user for attempt in inside)
    others = [a for a in attempts if a.opinion and a.user not in crowd and not any(w.holds(a) for w in windows)]
    theirs = [a for a in attempts if a.user in crowd or window.start <= a.at <= rest]
    return Surge(
        key,
        window.start,
        window.end,
        window.p,
        crowd,
        _side(attempt for attempt in inside if attempt.opinion),
        _side([attempt for attempt in others if attempt.at < window.start][: -COMPARED - 1 : -1]),
        _side([attempt for attempt in others if attempt.at > rest][:COMPARED]),
        (sum(a.known > 0 for a in theirs), sum(a.known < 0 for a in theirs)),
        tuple(attempt.episode_id for attempt in theirs if attempt.opinion >= 0),
    )


def _side(attempts: Iterable[_Attempt]) -> Side:
    """Return the opinions of accounts, each its first."""
    opinions: dict[str, bool] = {}
    for attempt in attempts:
        opinions.setdefault(attempt.user, attempt.opinion > 0)
    return Side(opinions)


# --- what they thought ------------------------------------------------------------------------------------------------


def find_crowds(pieces: Iterable[Surges], funnel: Funnel) -> list[Crowd]:
    """Return the crowds of a log, by the surges of all of its pieces; those whose votes are set aside first.

    Surges that belong together are tested together, and each by itself. Where those who came afterwards mostly agree,
    or known outcomes do, a surge is left out, and what it is tested with has to be beyond chance without it too. What
    is not beyond chance is reported up to `REPORTED` times the level, and where hardly anybody can be compared with.
    """
    parts = list(pieces)
    funnel.note("actions that many accounts came to", sum(len(part.least) for part in parts))
    tried = reachable([least for part in parts for least in part.least], CAME)
    beyond = (surge for part in parts for surge in part.found if surge.p * tried <= CAME)
    found = sorted(beyond, key=lambda surge: surge.place)
    funnel.note("surges of accounts", len(found))
    candidates, sets = list[Crowd](), _together(found)
    right = {surge.place for own in sets for surge in own if _is_right(surge, own)}
    for family in (sets, [[surge] for surge in found]):
        tests = [_excess(own) for own in family]
        level = THOUGHT / 2 / reachable([least for _, least in tests], THOUGHT / 2)
        for own, (p, _) in zip(family, tests, strict=True):
            alone = family is sets and sum(len(surge.others) for surge in own) < ENOUGH_OTHERS
            left = tuple(surge for surge in own if surge.place not in right and _likelier(surge))
            if left and (alone or p <= REPORTED * level):
                p_left = max(p, _excess(left).p)
                candidates.append(Crowd(left, p_left, aside=p_left <= level))
    return list(_once(sorted(candidates, key=lambda crowd: not crowd.aside)))


def _once(candidates: Iterable[Crowd]) -> Iterator[Crowd]:
    """Yield crowds so that each surge is part of one, the first."""
    taken = set[tuple[tuple[str, str, str], float]]()
    for crowd in candidates:
        left = tuple(surge for surge in crowd.surges if surge.place not in taken)
        taken |= {surge.place for surge in left}
        if left:
            yield crowd._replace(surges=left)


def _together(found: Sequence[Surge]) -> list[list[Surge]]:
    """Return the surges in sets, in order: those that share accounts, or come to the same action at the same time."""
    of_account: dict[str, list[int]] = defaultdict(list)
    for place, surge in enumerate(found):
        for account in surge.accounts:
            of_account[account].append(place)
    few = (places for places in of_account.values() if len(places) <= MOST_SURGES)
    shared = Counter((a, b) for places in few for a in places for b in places if a < b)
    sizes = [len(surge.accounts) for surge in found]
    together = DisjointSets[int]()
    for pair in [*(two for two, n in shared.items() if n >= SHARED * min(sizes[k] for k in two)), *_at_once(found)]:
        together.join(pair)
    sets: dict[int, list[Surge]] = defaultdict(list)
    for place, surge in enumerate(found):
        sets[together.root(place)].append(surge)
    return list(sets.values())


def _at_once(found: Sequence[Surge]) -> Iterator[tuple[int, int]]:
    """Yield the places of surges to the same action that overlap in time, each with the one that lasts longest."""
    order = sorted(range(len(found)), key=lambda place: (found[place].key[1:], found[place].start))
    for _, same in groupby(order, key=lambda place: found[place].key[1:]):
        last = -1
        for place in same:
            if last >= 0 and found[place].start <= found[last].end:
                yield last, place
            if last < 0 or found[place].end > found[last].end:
                last = place


def _excess(together: Sequence[Surge]) -> Excess:
    """Return P of so many likes among the accounts of surges.

    An account speaks once in all of them, first where most others can be compared with.
    """
    spoken: set[str] = set()
    insiders = {account for surge in together for account in surge.accounts}
    strata = []
    for surge in sorted(together, key=lambda surge: (-len(surge.others), surge.place)):
        inside = {who: likes for who, likes in surge.inside.opinions.items() if who not in spoken}
        others = {w: likes for w, likes in surge.others.items() if w not in spoken and w not in insiders}
        spoken |= {*inside, *others}
        strata.append(Sides(sum(inside.values()), len(inside), sum(others.values()), len(others)))
    return excess(strata, LIKELIER)


def _is_right(surge: Surge, together: Sequence[Surge]) -> bool:
    """Return whether those who came to its action afterwards mostly agree, or the known outcomes do.

    Where too few came afterwards at its task, those count who came to the action at the others' tasks.
    """
    after, (good, bad) = list(surge.after.opinions.values()), surge.known
    if len(after) < ENOUGH_OTHERS:
        same = (other for other in together if other.key[1:] == surge.key[1:])
        after = [likes for other in same for likes in other.after.opinions.values()]
    agreed = len(after) >= ENOUGH_OTHERS and 2 * sum(after) > len(after)
    return agreed or (good + bad >= ENOUGH_KNOWN and good > bad)


def _likelier(surge: Surge) -> bool:
    """Return whether the odds of liking are more than `LIKELIER` times the others' in this surge alone."""
    inside, others = surge.inside.opinions, surge.others
    odds, usual = ((sum(o.values()) + 0.5) / (len(o) - sum(o.values()) + 0.5) for o in (inside, others))
    return odds > LIKELIER * usual


def crowd_table(found: Sequence[Crowd]) -> pl.DataFrame:
    """Return the rows of `CrowdMember`."""
    rows, seen = [], set[str]()
    for number, crowd in enumerate(found, start=1):
        of_crowd = {
            "crowd": number,
            "aside": crowd.aside,
            "accounts": len({account for surge in crowd.surges for account in surge.accounts}),
            "tasks": len({surge.key[0] for surge in crowd.surges}),
            "likes": sum(surge.inside.likes for surge in crowd.surges),
            "opinions": sum(len(surge.inside.opinions) for surge in crowd.surges),
            "others_like": sum(sum(surge.others.values()) for surge in crowd.surges),
            "others": sum(len(surge.others) for surge in crowd.surges),
            "p": crowd.p,
        }
        for surge in crowd.surges:
            members = [episode for episode in surge.episodes if episode not in seen]
            seen |= set(members)
            rows += [{"episode_id": episode, "task_id": surge.key[0]} | of_crowd for episode in members]
    return conform(frame_of(rows, CrowdMember), CrowdMember).collect()
