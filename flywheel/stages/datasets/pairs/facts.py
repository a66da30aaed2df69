"""What the filters of pairs look up: the log around both sides' steps.

In: episodes, steps and returns, and the contexts of both sides. Out: `Facts`, whose tables are made when they are first
asked for, and what a side consists of.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import polars as pl

from flywheel.config import PairsConfig
from flywheel.stages.common.canonical import parse
from flywheel.stages.datasets.context import StepContext
from flywheel.stages.datasets.pairs.across import known_actions
from flywheel.stages.datasets.pairs.anchors import is_failed
from flywheel.stages.datasets.pairs.limits import signature
from flywheel.stages.datasets.pairs.support import Votes

_BY_TOOL = '"role":"tool"'  # as canonical JSON writes it; inside a text the quotes are escaped
MIN_RESULTS, FRAMED, FRAME_WORDS = 6, 0.8, 4  # results, and the share of them, that have a line of so many words
Pair = dict[str, Any]
StepKey = tuple[str, int]


@dataclass(frozen=True)
class Facts:
    """What the filters look up."""

    episodes: pl.DataFrame
    steps: pl.DataFrame
    returns: pl.DataFrame
    cfg: PairsConfig
    contexts: Mapping[StepKey, StepContext]  # of both sides of every pair

    @cached_property
    def asked(self) -> pl.DataFrame:
        """The steps of the pairs' episodes."""
        return self.steps.filter(pl.col("episode_id").is_in(sorted({episode for episode, _ in self.contexts})))

    @cached_property
    def credit(self) -> dict[StepKey, float]:
        """Credit of the steps that got any."""
        here = pl.col("episode_id").is_in(sorted({episode for episode, _ in self.contexts}))
        rows = self.returns.filter(pl.col("step").is_not_null() & here).select("episode_id", "step", "value")
        return {(row[0], row[1]): row[2] for row in rows.iter_rows()}

    @cached_property
    def p_success(self) -> dict[str, float]:
        """P(success) of the episodes whose outcome is known."""
        known = self.returns.filter(pl.col("step").is_null() & pl.col("known"))
        return dict(known.select("episode_id", "p_success").iter_rows())

    @cached_property
    def worked(self) -> frozenset[str]:
        """Calls that did not fail in some attempt at a task of the pairs; where they failed, it was not by them."""
        tasks = self.asked["task_id"].unique().implode()
        fine = self.steps.filter(pl.col("task_id").is_in(tasks) & pl.col("action_key").is_not_null() & ~is_failed())
        return frozenset(fine["action_key"])

    @cached_property
    def votes(self) -> Votes:
        """The voters at the states of the pairs."""
        return Votes(known_actions(self.episodes, self.steps, self.returns), self.contexts.keys())

    @cached_property
    def action(self) -> dict[StepKey, tuple[str | None, list[str]]]:
        """Each step's calls and how they ended."""
        columns = ("episode_id", "index", "action_key", "tool_status")
        return {(row[0], row[1]): (row[2], row[3]) for row in self.asked.select(columns).iter_rows()}

    @cached_property
    def last_made(self) -> dict[tuple[str, str], int]:
        """Episode and action → the last step at which it was made."""
        return {(row[0], row[1]): row[3] for row in self._made.iter_rows()}

    @cached_property
    def first_made(self) -> dict[tuple[str, str], int]:
        """Episode and action → the first step at which it was made."""
        return {(row[0], row[1]): row[2] for row in self._made.iter_rows()}

    @cached_property
    def _made(self) -> pl.DataFrame:
        grouped = self.asked.filter(pl.col("action_key").is_not_null()).group_by("episode_id", "action_key")
        return grouped.agg(first=pl.col("index").min(), last=pl.col("index").max())

    @cached_property
    def last_call(self) -> dict[str, int]:
        """Episode → its last step that makes a call."""
        calling = self.asked.filter(pl.col("action_key").is_not_null())
        return dict(calling.group_by("episode_id").agg(pl.col("index").max()).iter_rows())

    @cached_property
    def last_step(self) -> dict[str, int]:
        """Episode → its last step."""
        return dict(self.asked.group_by("episode_id").agg(pl.col("index").max()).iter_rows())

    def answer(self, episode: str) -> str:
        """Return the words that end an episode; empty where it ends with a call."""
        return self._answers.get(episode, "")

    @cached_property
    def _answers(self) -> dict[str, str]:
        last = self.asked.sort("episode_id", "index").group_by("episode_id").last()
        ends = last.filter(pl.col("action_key").is_null()).select("episode_id", "action")
        return {episode: str(json.loads(action).get("content") or "") for episode, action in ends.iter_rows()}

    def results(self, key: StepKey) -> str:
        """Return what the tools answered to a step's calls."""
        return self._results.get(key, "")

    @cached_property
    def seen(self) -> dict[str, list[tuple[int, str]]]:
        """Episode → its steps, with what the tools answered."""
        seen = [(row[0], row[1] - 1, row[2]) for row in self.asked.select("episode_id", "index", "observation").rows()]
        ends = self.asked.group_by("episode_id").agg(pl.col("index").max()).join(self.episodes, on="episode_id")
        results: dict[str, list[tuple[int, str]]] = {}
        for episode, index, text in [*seen, *ends.select("episode_id", "index", "tail").iter_rows()]:
            told = parse(text, exact=False) if _BY_TOOL in text else []
            replies = "\n".join(str(m.get("content") or "") for m in told if m["role"] == "tool")
            results.setdefault(episode, []).append((index, replies))
        tasks = dict(self.asked.select("episode_id", "task_id").iter_rows())
        return without_frames(results, tasks)

    @cached_property
    def _results(self) -> dict[StepKey, str]:
        return {(episode, n): text for episode, results in self.seen.items() for n, text in results}

    def tool_results_before(self, key: StepKey) -> list[str]:
        """Return every earlier result that a step's context shows."""
        prompt = self.prompt(key)
        messages = json.loads(prompt) if prompt is not None else []
        return [str(m.get("content") or "") for m in messages if m["role"] == "tool"]

    @cached_property
    def calls_after(self) -> dict[str, list[tuple[int, str]]]:
        """Episode → its steps that make calls, with the calls."""
        made: dict[str, list[tuple[int, str]]] = {}
        columns = ("episode_id", "index", "action_key")
        for episode, index, action in self.asked.select(columns).drop_nulls().iter_rows():
            made.setdefault(episode, []).append((index, action))
        return made

    def prompt(self, key: StepKey) -> str | None:
        """Return what was seen before a step, if it is in the log."""
        return self.contexts[key].prompt if key in self.contexts else None

    def was_taken(self, pair: Pair, side: str) -> bool:
        """Whether a side is the action that the log has there."""
        context = self.contexts.get(key_of(pair, side))
        return context is not None and signature(message_of(pair, side)) == signature(_last(context.completion))


def without_frames(
    results: dict[str, list[tuple[int, str]]], tasks: Mapping[str, str]
) -> dict[str, list[tuple[int, str]]]:
    """Return the results of episodes without the lines that nearly every result at their task has, but for numbers.

    Such a line ("You have 3 steps left.") is the environment's, whatever was called.
    """
    shown: dict[str, list[set[str]]] = defaultdict(list)
    for episode, found in results.items():
        shown[tasks[episode]] += [set(map(_masked, text.splitlines())) for _, text in found if text.strip()]
    frames = {task: _frames(lines) for task, lines in shown.items()}
    return {
        episode: [(n, "\n".join(_kept(text.splitlines(), frames[tasks[episode]]))) for n, text in found]
        for episode, found in results.items()
    }


def _frames(results: list[set[str]]) -> set[str]:
    counts = Counter(line for lines in results for line in lines if len(line.split()) >= FRAME_WORDS)
    often = FRAMED * len(results)
    return {line for line, count in counts.items() if count >= max(often, MIN_RESULTS)}


def _kept(lines: list[str], frames: set[str]) -> list[str]:
    return [line for line in lines if _masked(line) not in frames] if frames else lines


def _masked(line: str) -> str:
    return re.sub(r"\d+", "#", line).strip()


def message_of(pair: Pair, side: str) -> dict[str, Any]:
    """Return a side's message; not to be changed."""
    return _last(pair[side])


@lru_cache(maxsize=256)  # filters read both sides, and an action is in several pairs of a state; none changes it
def _last(messages: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(messages)[-1]
    return message


def calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of a message."""
    return list(message.get("tool_calls") or [])


def key_of(pair: Pair, side: str) -> StepKey:
    """Return the episode and step of a side."""
    return pair[f"{side}_episode"], pair[f"{side}_step"]


def edited(pair: Pair) -> bool:
    """Whether both sides are one step: then the chosen one was never taken, and is not in the log."""
    return key_of(pair, "chosen") == key_of(pair, "rejected")


def plain_words(text: str) -> str:
    """Return the words of a text, without signs."""
    return " ".join(re.findall(r"\w+", text))
