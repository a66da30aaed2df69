"""New accounts: how much their deeds count, and when many of them are one.

In: all attempts at some tasks with each account's history, and the opinions on them. Out: the opinions with the weight
that each account's deeds have. A burst is a crowd of new accounts that did the same after the same action within a
short time, in a share that users do not have of themselves; it counts as one account, whose vote its episodes share, so
that none of them has enough of a vote to count. An honest crowd of new users is of several minds, and keeps its votes.
So is a crowd of accounts with a history, where it praises or adopts what was hardly done before: many accounts that
were grown for it. And an account that likes the same action again and again within that time has liked it once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import polars as pl
from scipy.special import bdtrc, pdtrc

from flywheel.config import TrustConfig
from flywheel.contracts import conform
from flywheel.funnel import Funnel
from flywheel.records import EventKind, Reward
from flywheel.stages.signals.rows import ANSWERED_FAMILY, rewards_frame

BURST, CROWD = "burst", "crowd"  # names of the marks on an episode
# Families of what users do, with the share of users who do it after an answer that they like, or dislike, at the most.
DEEDS = {"sentiment_pos": 0.4, "sentiment_neg": 0.4, "adoption": 0.7, "followup": 0.5, ANSWERED_FAMILY: 0.5}
ENOUGH_ACCOUNTS = 5  # of one deed
BY_CHANCE = 1e-4  # P(so many of them do the same of themselves), below which they are one
PSEUDO_USERS = 5.0  # by which the usual share counts next to that of established accounts at the same action


class Attempt(NamedTuple):
    """An episode, as far as it is compared: `who` is its account, or itself where the log names none."""

    episode: str
    who: str
    action: str  # names of the tools that it called
    started: datetime | None
    new: bool


def is_new(trust: TrustConfig) -> pl.Expr:
    """Return whether an episode's account has no history, as an expression; unknown history is none."""
    named = pl.col("user").is_not_null() | pl.col("history").is_not_null()
    return named & (pl.col("history").fill_null(0) < trust.established)


def bursts(groups: Sequence[Sequence[Attempt]], opinions: pl.DataFrame, span: timedelta) -> dict[str, int]:
    """Return the episodes that belong to a burst, with the number of its accounts.

    Args:
        groups: from `by_action`.
        opinions: on them.
        span: how long a burst may be.
    """
    deeds: dict[tuple[str, int], set[str]] = defaultdict(set)
    votes = opinions.filter(pl.col("family").is_in(list(DEEDS)) & (pl.col("score") != 0) & (pl.col("weight") > 0))
    for episode, family, score in votes.select("episode_id", "family", "score").iter_rows():
        deeds[family, 1 if score > 0 else -1].add(episode)
    liked = {deed: who for deed, who in deeds.items() if deed[1] > 0}  # what many complain of may be an outage
    members: dict[str, int] = {}
    for attempts in groups:
        new, established = ([a for a in attempts if a.new is side] for side in (True, False))
        crowds = [(crowd, established, deeds) for crowd in _crowds(new, span)]
        crowds += [(surge, others, liked) for surge, others in _surges(attempts, span)]
        for crowd, others, likely in crowds:
            for (family, _), who in sorted(likely.items()):
                same = [a for a in crowd if a.episode in who]
                accounts = len({a.who for a in same})
                usual = _usual(DEEDS[family], [a.episode in who for a in others])
                if accounts >= ENOUGH_ACCOUNTS and _by_chance(accounts, len({a.who for a in crowd}), usual):
                    members |= {a.episode: max(accounts, members.get(a.episode, 0)) for a in same}
    return members


def _by_chance(same: int, crowd: int, usual: float) -> bool:
    """Whether it is too unlikely that so many of a crowd do the same by chance."""
    return float(bdtrc(same - 1, crowd, usual)) < BY_CHANCE


def _usual(share: float, did: Sequence[bool]) -> float:
    return max(share, (sum(did) + PSEUDO_USERS * share) / (len(did) + PSEUDO_USERS))


def by_action(episodes: pl.DataFrame, steps: pl.DataFrame, trust: TrustConfig) -> list[list[Attempt]]:
    """Return the attempts at one task that called the same tools, by start and id, for each task and set of tools.

    Args:
        episodes: all attempts at some tasks, with `history`.
        steps: theirs.
        trust: whose accounts are new.
    """
    tools = (
        steps.select("episode_id", "tool_names")
        .explode("tool_names")
        .drop_nulls()
        .group_by("episode_id")
        .agg(action=pl.col("tool_names").unique().sort().str.join(" "))
    )
    rows = (
        episodes.select("task_id", "episode_id", "user", "started", new=is_new(trust))
        .join(tools, on="episode_id", how="left")
        .with_columns(pl.col("action").fill_null(""), who=pl.coalesce("user", "episode_id"))
        .sort("task_id", "action", "started", "episode_id", nulls_last=False)
    )
    groups: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    columns = ("task_id", "episode_id", "who", "action", "started", "new")
    for task, *fields in rows.select(columns).iter_rows():
        attempt = Attempt(*fields)
        groups[task, attempt.action].append(attempt)
    return list(groups.values())


def _crowds(attempts: Sequence[Attempt], gap: timedelta) -> Iterator[list[Attempt]]:
    """Yield runs of attempts that follow one another within a time; those without times are one run."""
    crowd: list[Attempt] = []
    for attempt in attempts:
        before = crowd[-1].started if crowd else None
        if crowd and before is not None and attempt.started is not None and attempt.started - before > gap:
            yield crowd
            crowd = []
        crowd.append(attempt)
    if crowd:
        yield crowd


def _surges(attempts: Sequence[Attempt], span: timedelta) -> Iterator[tuple[list[Attempt], list[Attempt]]]:
    """Yield the attempts of a span in which far more accounts came than in the rest of the log, and those of the rest.

    Far more: the Poisson tail of their number is under `BY_CHANCE`, given the others' rate, at least one a span.
    """
    timed = [attempt for attempt in attempts if attempt.started is not None]
    starts = [attempt.started for attempt in timed if attempt.started is not None]
    at = 0
    while at < len(timed):
        end = bisect_right(starts, starts[at] + span)
        inside = {a.who for a in timed[at:end]}
        if len(inside) >= ENOUGH_ACCOUNTS:
            outside = len({a.who for a in timed} - inside)
            spans = max((starts[-1] - starts[0]) / span - 1, 1.0)
            if float(pdtrc(len(inside) - 1, max(outside / spans, 1.0))) < BY_CHANCE:
                yield timed[at:end], timed[:at] + timed[end:]
        at = end


def repeated(groups: Sequence[Sequence[Attempt]], opinions: pl.DataFrame, span: timedelta) -> pl.DataFrame:
    """Return the deeds that count no more: an account liked the same action at the task within the span before.

    Args:
        groups: from `by_action`.
        opinions: on them.
        span: how long that is.
    """
    liked = opinions.filter(pl.col("family").is_in(list(DEEDS)) & (pl.col("score") > 0) & (pl.col("weight") > 0))
    families: dict[str, set[str]] = defaultdict(set)
    for episode, family in liked.select("episode_id", "family").iter_rows():
        families[episode].add(family)
    rows: list[tuple[str, str]] = []
    for attempts in groups:
        last: dict[tuple[str, str], datetime | None] = {}
        for attempt in attempts:
            for family in sorted(families.get(attempt.episode, ())):
                deed = attempt.who, family
                before, at = last.get(deed), attempt.started
                if deed in last and (before is None or at is None or at - before <= span):
                    rows.append((attempt.episode, family))
                else:
                    last[deed] = at
    return pl.DataFrame(rows, schema={"episode_id": pl.String, "family": pl.String}, orient="row")


def without_strangers(events: pl.DataFrame, episodes: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Return the events without the feedback of crowds of strangers, who judge another account's conversation.

    One or two of them may be colleagues or annotators; five on one conversation are a crowd, whatever they call it.
    """
    named = episodes.filter(pl.col("user").is_not_null())
    users = named.select("conversation_id", _owner="user").unique("conversation_id")
    feedback = events.filter((pl.col("kind") == EventKind.FEEDBACK.value) & pl.col("user").is_not_null())
    strangers = (
        feedback.join(users, on="conversation_id")
        .filter(pl.col("user") != pl.col("_owner"))
        .filter(pl.col("user").n_unique().over("conversation_id") >= ENOUGH_ACCOUNTS)
    )
    funnel.note("feedback of crowds of strangers", strangers.height)
    return events.filter(~pl.col("event_id").is_in(strangers["event_id"].implode()))


def of_established(
    corrections: pl.DataFrame, episodes: pl.DataFrame, tasks: pl.DataFrame, trust: TrustConfig, funnel: Funnel
) -> pl.DataFrame:
    """Return the corrections from which a policy may learn words.

    Where accounts come back, those are the owner's of the conversation, once established: an edit is any text that
    somebody wants to see trained, so that one account with one conversation has no say. A new account's and a
    stranger's are votes like any other. What names no user, as annotation tools write it, is kept.

    Args:
        corrections: the table; `user` is the editor.
        episodes: theirs.
        tasks: with `history`.
        trust: from how many tasks on an account is established.
        funnel: gets a note on the others.
    """
    owners = episodes.select("episode_id", _owner="user").join(tasks.select("episode_id", "history"), on="episode_id")
    known = corrections.join(owners, on="episode_id", how="left", maintain_order="left")
    own = (pl.col("user") == pl.col("_owner")).fill_null(value=False) & (pl.col("history") >= trust.established)
    kept = known.filter(pl.col("user").is_null() | pl.col("history").is_null() | own)
    funnel.note("corrections of new accounts and strangers, which are votes only", known.height - kept.height)
    return kept.select(corrections.columns)


def by_account(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    opinions: pl.DataFrame,
    crowd: Mapping[str, int],
    trust: TrustConfig,
    funnel: Funnel,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the attempts that are compared, with whether each is of a `new` account, and the weighed opinions.

    Args:
        episodes: all attempts at some tasks, with `history`.
        steps: theirs.
        opinions: on them.
        crowd: episodes of crowds, with the number of accounts: theirs is one voice too.
        trust: what counts as new, and by how much.
        funnel: gets notes on what counts less.
    """
    groups, span = by_action(episodes, steps, trust), timedelta(hours=trust.burst_h)
    members = bursts(groups, opinions, span)
    apart = {episode: n for episode, n in crowd.items() if episode not in members}
    one = pl.col("episode_id").is_in(sorted({*members, *apart}))
    counted = episodes.filter(~one).with_columns(new=is_new(trust))
    rewards = conform(opinions, Reward).collect()
    repeats = repeated(groups, opinions, span)
    funnel.note("deeds of an account that had done the same, which count once", repeats.height)
    again = pl.struct("episode_id", "family").is_in(repeats.to_struct().implode()) & (pl.col("score") > 0)
    first = rewards.with_columns(weight=pl.when(again).then(0.0).otherwise("weight"))
    weighed = _weighed(first, episodes, one, trust, funnel)
    funnel.note("episodes in bursts of accounts", len(members))
    marks = [_marks(episodes, BURST, members), _marks(episodes, CROWD, apart)]
    return counted, pl.concat([weighed, *marks])


def _weighed(
    opinions: pl.DataFrame, episodes: pl.DataFrame, one: pl.Expr, trust: TrustConfig, funnel: Funnel
) -> pl.DataFrame:
    """Return the opinions with the weights that their accounts have.

    Of an episode of accounts that count as `one` only known outcomes and risks count; what a new account's user did
    counts by its history.
    """
    ease = (pl.col("history").clip(0, trust.established) / trust.established).fill_null(1.0)
    weight_of = episodes.select("episode_id", _own=trust.new_account + (1 - trust.new_account) * ease)
    deed = (pl.col("kind") == "implicit") & pl.col("family").is_in(list(DEEDS))
    shared = one & pl.col("kind").is_in(["implicit", "cost"])
    factor = pl.when(shared).then(0.0).when(deed).then(pl.col("_own").fill_null(1.0)).otherwise(1.0)
    joined = opinions.join(weight_of, on="episode_id", how="left", maintain_order="left")
    counted = joined.with_columns(_factor=factor)
    funnel.note(
        "votes of new accounts, at less than their weight", counted.filter(deed & (pl.col("_factor") < 1)).height
    )
    return counted.with_columns(weight=pl.col("weight") * pl.col("_factor")).select(opinions.columns)


def _marks(episodes: pl.DataFrame, signal: str, members: Mapping[str, int]) -> pl.DataFrame:
    """Return a mark of a signal on each of some episodes, whose score is 1 - 1 / n of n accounts."""
    ours = episodes.filter(pl.col("episode_id").is_in(sorted(members)))
    tasks = dict(ours.select("episode_id", "task_id").iter_rows())
    return rewards_frame(
        [
            {
                "episode_id": episode, "task_id": tasks[episode], "step": None, "signal": signal, "family": "accounts",
                "kind": "risk", "score": 1 - 1 / n, "weight": 0.0, "evidence": [], "arrived": None, "signal_version": 1,
            }
            for episode, n in sorted(members.items())
            if episode in tasks
        ]
    )  # fmt: skip
