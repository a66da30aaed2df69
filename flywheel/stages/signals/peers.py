"""Signals that compare attempts at one task: agreement of their results, and questions beyond the usual number.

In: all episodes and steps of some tasks. Out: rows of `Reward`. These functions carry `by = "task"`: they run when all
attempts at a task are together (docs/decisions/0011-signals-of-a-task.md), and get no events.

Agreement is self-consistency (Wang et al. 2022, arXiv:2203.11171) carried over to actions: independent attempts go
wrong in many ways and right in few. It proves nothing where a policy makes the same mistake every time.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import orjson
import polars as pl

from flywheel.config import RewardsConfig
from flywheel.records import ToolStatus
from flywheel.stages.common.tools import changes, is_handoff, looks_up
from flywheel.stages.signals.rows import Evidence, SignalRows, rewards_frame
from flywheel.stages.tasks.minhash import slots_of

ENOUGH_OTHERS = 2  # other attempts, below which agreement means nothing
EVEN_STEPS = 8.0  # median length of a task's attempts at which the vote is 0
NEW = "new accounts"  # their common voice
COMPARED = 20  # other attempts that one is compared with: the cost of a task grows with its attempts, not their square
EVEN = 1 / 3  # agreement at which the vote is 0
CLOSING = 4000  # characters of a closing text that are compared
ENOUGH_ATTEMPTS = 5  # from which a task has a percentile of questions
USUAL = 0.75

_WORD = re.compile(r"[a-z0-9]+(?:\.[0-9]+)?|[\u3400-\u9fff]")
_BY_USER = '"role":"user"'


class _Attempt(NamedTuple):
    """The result of one episode."""

    episode: str
    named: tuple[str, ...]  # what its request names, in a task that requests make: numbers, ids, dates
    opening: frozenset[str]  # words of the request
    changed: frozenset[str]  # calls that changed something and did not fail
    only_asked: bool  # every call looked something up or handed over
    talked: bool  # the user spoke again
    closing: frozenset[str]  # words of the last answer, call or result
    evidence: tuple[str, ...]
    voice: str  # whose attempt it is: an account's, its own where the log names none, or that of all new accounts


def agreement(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """Most other attempts at the task had the same result: they changed the same things, or their last words are alike.

    Where requests make the task, those are compared whose requests name the same: order 7 has another result than 9.
    The vote is +1 if all agree, 0 at a third, -1 if none does, and weighs n / (n + 1) with n others; it abstains with
    fewer than two. An account is one other however often it tried, and so are all new accounts together. Where an
    attempt changed something, or where all talked with a user and only looked things up, what they changed must be the
    same (sets of canonical calls); otherwise the words of what they ended with are compared by the Jaccard index.
    """
    del events, cfg
    rows: list[dict[str, Any]] = []
    for task, attempts in _attempts(episodes, steps):
        if len(attempts) > ENOUGH_OTHERS:
            rows += _agreement_rows(task, attempts)
    return rewards_frame(rows)


agreement.by = "task"  # type: ignore[attr-defined]


def effort(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """Attempts at this task take many steps: each step is a chance to err, so long tasks fail more often.

    All attempts at a task get the same vote, 0 at eight steps (their median), +-1 at an eighth and eight times that: it
    measures how hard the task is and never prefers one attempt to another, so that there is nothing to gain by brevity.
    """
    del steps, events, cfg
    several = episodes.filter((pl.col("n_steps") > 0) & (pl.len().over("task_id") > ENOUGH_OTHERS))
    rows = SignalRows("effort", "task")
    medians = several.with_columns(median=pl.col("n_steps").median().over("task_id"))
    for episode, task, median in medians.select("episode_id", "task_id", "median").iter_rows():
        rows.add((episode, task), min(max(math.log(EVEN_STEPS / median, EVEN_STEPS), -1.0), 1.0), [])
    return rows.frame()


effort.by = "task"  # type: ignore[attr-defined]


def _agreement_rows(task: str, attempts: Sequence[_Attempt]) -> Iterator[dict[str, Any]]:
    acted = any(a.changed for a in attempts) or (
        all(a.only_asked for a in attempts) and 2 * sum(a.talked for a in attempts) > len(attempts)
    )
    asked = frozenset[str]().union(*(a.opening for a in attempts[:1])).intersection(*(a.opening for a in attempts))
    products = [a.changed if acted else a.closing - asked for a in attempts]
    alike: Callable[[frozenset[str], frozenset[str]], float] = operator.eq if acted else _alike
    voices = _voices(attempts)
    names = list(voices)
    order = {name: at for at, name in enumerate(names)}
    for place, attempt in enumerate(attempts):
        at = order[attempt.voice]
        others = [names[(at + k) % len(names)] for k in range(1, min(len(names) - 1, COMPARED) + 1)]
        n = len(others)
        if n < ENOUGH_OTHERS:
            continue
        shares = (math.fsum(alike(products[place], products[i]) for i in voices[o]) / len(voices[o]) for o in others)
        share = math.fsum(shares) / n
        yield {
            "episode_id": attempt.episode, "task_id": task, "step": None, "signal": "agreement", "family": "peers",
            "kind": "implicit", "score": share_as_vote(share), "weight": n / (n + 1),
            "evidence": sorted(attempt.evidence), "arrived": None, "signal_version": 1,
        }  # fmt: skip


def _voices(attempts: Sequence[_Attempt]) -> dict[str, list[int]]:
    """Return the attempts of each voice, by place: the first of an account, the first few of the new accounts."""
    voices: dict[str, list[int]] = {}
    for place, attempt in enumerate(attempts):
        members = voices.setdefault(attempt.voice, [])
        if len(members) < (COMPARED if attempt.voice == NEW else 1):
            members.append(place)
    return voices


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


def share_as_vote(share: float) -> float:
    """Return agreement in [0, 1] as a vote: -1 at 0, 0 at a third, 1 at 1, straight between."""
    return (share - EVEN) / (1 - EVEN) if share >= EVEN else (share - EVEN) / EVEN


def _attempts(episodes: pl.DataFrame, steps: pl.DataFrame) -> Iterator[tuple[str, list[_Attempt]]]:
    """Yield each task with its attempts that acted and whose requests name the same, by episode id."""
    several = episodes.filter(pl.len().over("task_id") > ENOUGH_OTHERS)
    new = pl.col("new") if "new" in episodes.columns else pl.lit(value=False)
    known = pl.col("history").is_not_null() if "history" in episodes.columns else pl.lit(value=False)
    voice = pl.when(new & known).then(pl.lit(NEW)).otherwise(pl.coalesce("user", "episode_id"))
    columns = ["task_id", "episode_id", "index", "observation", "action", "tool_names", "tool_status", "event_id"]
    rows = (
        steps.select(columns)
        .join(several.select("episode_id", "tail", "task_rule", voice=voice), on="episode_id")
        .sort("task_id", "episode_id", "index")
        .with_columns(asked=pl.col("observation").str.contains(_BY_USER, literal=True))
    )
    # Texts that nothing below reads stay where they are: all but an attempt's first, its last, and those of changes.
    begins, ends = (pl.col("episode_id").ne_missing(pl.col("episode_id").shift(n)) for n in (1, -1))
    acting = [tool for tool in rows["tool_names"].explode().drop_nulls().unique() if changes(tool)]
    acts = pl.col("tool_names").list.eval(pl.element().is_in(acting)).list.any()
    read = {"observation": begins, "tail": ends, "action": ends | acts}
    rows = rows.with_columns(pl.when(where).then(pl.col(name)).alias(name) for name, where in read.items())
    for task, of_task in groupby(rows.iter_rows(named=True), key=lambda row: row["task_id"]):
        attempts = [
            _attempt(name, list(path)) for name, path in groupby(of_task, key=operator.itemgetter("episode_id"))
        ]
        attempts.sort(key=operator.attrgetter("named"))
        yield from ((task, list(same)) for _, same in groupby(attempts, key=operator.attrgetter("named")))


def _attempt(episode: str, path: Sequence[Mapping[str, Any]]) -> _Attempt:
    wrote = [row for row in path if any(map(changes, row["tool_names"]))]
    request = _contents(path[0]["observation"], {"user"})
    tools = [tool for row in path for tool in row["tool_names"]]
    return _Attempt(
        episode,
        named=() if path[0]["task_rule"] == "task_key" else tuple(slots_of(request)),
        opening=_words(request),
        changed=frozenset(key for row in wrote for key in _changed(row)),
        only_asked=bool(tools) and all(looks_up(tool) or is_handoff(tool) for tool in tools),
        talked=any(row["asked"] for row in path[1:]),
        closing=_words(_closing(path[-1])),
        evidence=tuple(row["event_id"] for row in wrote) or (path[-1]["event_id"],),
        voice=path[0]["voice"],
    )


def _changed(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the calls of an action that changed something, tool and arguments in canonical form."""
    calls = orjson.loads(row["action"]).get("tool_calls") or []
    for call, status in zip(calls, row["tool_status"], strict=False):
        if changes(str(call.get("name"))) and status != ToolStatus.FAILED and call.get("arguments") is not None:
            yield orjson.dumps([call["name"], call["arguments"]], option=orjson.OPT_SORT_KEYS).decode().casefold()


def _closing(last: Mapping[str, Any]) -> str:
    """Return what an attempt ended with: its last tool's result if nothing came after it, else its last message."""
    shown = _contents(last["tail"], {"tool"})
    if shown.strip():
        return shown
    message = orjson.loads(last["action"])
    calls = orjson.dumps([call.get("arguments") for call in message.get("tool_calls") or []]).decode()
    return f"{message.get('content') or ''} {calls}"


def _contents(messages: str, roles: set[str]) -> str:
    contents = (m.get("content") for m in orjson.loads(messages) if m.get("role") in roles)
    return " ".join(content for content in contents if isinstance(content, str))


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text[-CLOSING:].casefold()))


def questions(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """How many more questions the agent asked than three of four attempts at the task did.

    Asking is an action with a price: were it free, a policy would learn to ask instead of to act.
    """
    del events, cfg
    rows = SignalRows("questions", "questions", "cost")
    for task, asked in _asked(episodes, steps):
        ranked = sorted(len(ids) for ids in asked.values())
        usual = ranked[math.ceil(USUAL * len(ranked)) - 1]
        for episode, ids in asked.items():
            if len(ranked) >= ENOUGH_ATTEMPTS and len(ids) > usual:
                rows.add((episode, task), float(len(ids) - usual), [Evidence(i) for i in ids])
    return rows.frame()


questions.by = "task"  # type: ignore[attr-defined]


def _asked(episodes: pl.DataFrame, steps: pl.DataFrame) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Yield each task with the events of its attempts' questions: messages without a call that hold a question mark."""
    words = pl.col("action").str.json_path_match("$.content")
    asks = pl.col("tool_names").list.len().eq(0) & words.str.contains("[?\uff1f]").fill_null(value=False)
    rows = episodes.select("episode_id", "task_id").join(
        steps.filter(asks).sort("episode_id", "index").group_by("episode_id", maintain_order=True).agg("event_id"),
        on="episode_id", how="left",
    )  # fmt: skip
    for task, of_task in groupby(rows.sort("task_id", "episode_id").iter_rows(), key=lambda row: row[1]):
        yield task, {episode: ids or [] for episode, _, ids in of_task}
