"""No evaluation is trained on: rows that share 13 words in a row with an evaluation's texts are left out.

In: rows that may be trained on, the held-out answers of the log, and the texts that evaluators declare. Out: the rows
that share nothing; a round is chosen from these, so that none of its rows has to go again.

Of a row, the agent's actions are compared with the held-out answers, and these and users' messages with declared texts
(a question may reveal as much as its answer). A declared text of fewer than 13 words counts when it is all of a user's
message. System prompts, schemas and tools' results are the same for all, so they are not compared.

What many tasks share is a template (a form letter, an agent's stock phrases), and not taken from an evaluation: 13
words do not count where every three of them in a row are in at least five training tasks, and in half a percent of
them. One of the 13 may fill a place in the template (a letter's name, a query's month): then the words around it are in
as many tasks, with at least five words in its place. What is copied from an evaluation has several names, numbers or
turns that few tasks have, or it is a complete text: that is left out for one.

Each attempt of a group is compared separately, and a group of one attempt is dropped.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from flywheel.funnel import Funnel
from flywheel.models.token_rows import prompts_of
from flywheel.records import texts_in

GRAM = 13  # words: what common practice takes for copied, not coincidence
TEMPLATE_TASKS, TEMPLATE_SHARE = 5, 0.005  # training tasks that have usual words, at least, and their share
USUAL = 3  # words in a row that are looked up
_END = "\n"  # of a complete text, behind its words
_ANY = "*"  # the place of a pattern that any word fills
CROSSES = "13 words of an evaluation's text"
_ACTIONS = ("completion", "chosen", "rejected", "_hinted")  # the last: a hint
_OF_MEMBERS = (
    "completions", "rewards", "advantages", "step_advantages", "policies", "behaviours", "log_probs", "temperatures",
    "episodes", "prompts", "behaviour",
)  # fmt: skip

Row = dict[str, Any]
Words = tuple[str, ...]
Messages = Sequence[Mapping[str, Any]]
Filled = Iterator[tuple[Words, str]]  # patterns, and the word in the place of each
PatternsOf = Callable[[Sequence[str]], Filled]
Rows = Callable[[], Iterable[Row]]  # read once for what they share, and again if that may be a template


def crossing(rows: Callable[[], Iterable[Row]], texts: EvaluationTexts, among: Rows | None = None) -> list[list[bool]]:
    """Return, for each attempt of each row, whether it shares words with an evaluation, template text aside.

    Args:
        rows: of any method, as trainers get them: {prompt, task_id, and the messages of each side}.
        texts: of all evaluations.
        among: the rows that show what many tasks share; by default these.
    """
    if not texts.answers and not texts.declared:
        return [[False] * len(_actions(row)) for row in rows()]
    met = [[texts.meet(*attempt) for attempt in zip(_actions(row), _prompts(row), strict=True)] for row in rows()]
    shared = set[Words]().union(*(run for attempts in met for run in attempts))
    template = _template(shared, among or rows) if shared else {}
    return [[_crosses(runs, template) for runs in attempts] for attempts in met]


def _crosses(runs: set[Words], template: Mapping[Words, str]) -> bool:
    """Return whether runs of an attempt are more than a template with one word in a place of it."""
    return not runs <= template.keys() or len({template[run] for run in runs} - {""}) > 1


def uncrossed(table: pl.DataFrame, sides: Sequence[str], texts: EvaluationTexts, funnel: Funnel) -> pl.DataFrame:
    """Drop the rows of a table one of whose `sides` shares words with an evaluation."""
    columns = table.select("task_id", *(("prompt",) if texts.declared else ()), *sides)

    def rows() -> Iterator[Row]:
        for row in columns.iter_rows(named=True):
            yield {"prompt": [], **{k: v if k == "task_id" else json.loads(v) for k, v in row.items()}}

    crosses = pl.Series("_crosses", [found for (found,) in crossing(rows, texts)], dtype=pl.Boolean)
    return funnel.drop(table.with_columns(crosses), pl.col("_crosses"), CROSSES).drop("_crosses")


def _template(shared: set[Words], rows: Rows) -> dict[Words, str]:
    """Return which of the runs that rows share with an evaluation many tasks have, and the word in a place of each.

    The word is '' where all of the run is in many tasks, which it must be where the run is a complete text.
    """
    words = {run: tuple(word for word in run if word != _END) for run in shared}
    words = {run: own for run, own in words.items() if len(own) >= GRAM}
    usual = _usual({part for own in words.values() for part in _parts(own)}, rows, _exact)
    rare = {run: [n for n, part in enumerate(_parts(own)) if part not in usual] for run, own in words.items()}
    places = {
        (run, place): _around(run, starts, place)
        for run, starts in rare.items()
        if starts and run[-1] != _END
        for place in range(max(starts), min(starts) + USUAL)
    }
    asked = {pattern for patterns in places.values() for pattern in patterns}
    usual = _usual(asked, rows, _patterns, TEMPLATE_TASKS) if asked else set()
    filled = {run: run[place] for (run, place), patterns in places.items() if usual.issuperset(patterns)}
    return {run: "" for run, starts in rare.items() if not starts} | filled


def _usual(asked: set[Words], rows: Rows, patterns_of: PatternsOf, least_words: int = 1) -> set[Words]:
    """Return which of some patterns are in many tasks, with so many different words in their place."""
    tasks, fillers, every = defaultdict[Words, set[str]](set), defaultdict[Words, set[str]](set), set[str]()
    for row in rows():
        every.add(task := str(row.get("task_id")))
        for pattern, word in (p for attempt in _attempts(row) for text in attempt for p in patterns_of(_words(text))):
            if pattern in asked:
                tasks[pattern].add(task)
                fillers[pattern].add(word)
    least = max(TEMPLATE_TASKS, TEMPLATE_SHARE * len(every))
    return {pattern for pattern, found in tasks.items() if len(found) >= least and len(fillers[pattern]) >= least_words}


def _parts(words: Sequence[str]) -> Iterator[Words]:
    return zip(*(words[n:] for n in range(USUAL)), strict=False)


def _exact(words: Sequence[str]) -> Filled:
    return ((part, "") for part in _parts(words))


def _patterns(words: Sequence[str]) -> Filled:
    """Yield three words in a row without one of them, and that one."""
    for first, second, third in _parts(words):
        yield (_ANY, second, third), first
        yield (first, _ANY, third), second
        yield (first, second, _ANY), third


def _around(run: Words, starts: Sequence[int], place: int) -> list[Words]:
    """Return the parts of a run that start at these words, without the word at a place."""
    open_run = (*run[:place], _ANY, *run[place + 1 :])
    return [open_run[n : n + USUAL] for n in starts]


@dataclass(frozen=True)
class EvaluationTexts:
    """The texts of evaluations, as runs of 13 words; declared texts that are shorter, complete."""

    answers: frozenset[Words]
    declared: frozenset[Words]

    @classmethod
    def of(cls, answers: Iterable[Messages], declared: Iterable[str]) -> EvaluationTexts:
        """Return the runs of words of held-out answers (lists of messages) and of declared texts."""
        runs = (run for messages in answers for run in _runs_in(_of_agent(messages)))
        texts = (run for text in declared for run in (_runs(text) or _short(text)))
        return cls(frozenset(runs), frozenset(texts))

    def meet(self, actions: Messages, prompt: Messages) -> set[Words]:
        """Return what an agent's actions, or users' messages to it, share with an evaluation."""
        acted = set(_runs_in(_of_agent(actions)))
        shared = acted & self.answers
        if self.declared:
            asking = {run for text in _of_users([*prompt, *actions]) for run in (*_runs(text), *_short(text))}
            shared |= (acted | asking) & self.declared
        return shared


NO_EVALUATION = EvaluationTexts(frozenset(), frozenset())


def _runs_in(texts: Iterable[str]) -> Iterator[Words]:
    return (run for text in texts for run in _runs(text))


def _of_agent(messages: Messages) -> Iterator[str]:
    for message in messages:
        if message["role"] == "assistant":
            yield from texts_in({name: message.get(name) for name in ("content", "tool_calls")})


def _of_users(messages: Messages) -> Iterator[str]:
    for message in messages:
        if message["role"] == "user":
            yield from texts_in(message)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _runs(text: str) -> list[Words]:
    words = _words(text)
    runs = [tuple(words[n : n + GRAM]) for n in range(len(words) - GRAM + 1)]
    return [*runs, (*words, _END)] if runs else []


def _short(text: str) -> list[Words]:
    words = tuple(_words(text))
    return [words] if words and len(words) < GRAM else []


def clear(rows: Sequence[Row], texts: EvaluationTexts, funnel: Funnel, among: Rows | None = None) -> list[Row]:
    """Return the rows that share nothing with an evaluation, of groups the attempts; `among`: see `crossing`.

    The funnel gets a note of attempts; rows are counted by who knows whether they were kept before.
    """
    crosses = crossing(lambda: rows, texts, among)
    cleared = [_cleared(row, attempts, funnel) for row, attempts in zip(rows, crosses, strict=True)]
    return [row for row in cleared if row is not None]


def _actions(row: Row) -> list[Messages]:
    return row.get("completions") or [[message for side in _ACTIONS for message in row.get(side, ())]]


def _prompts(row: Row) -> Sequence[Messages]:
    return prompts_of(row) if "completions" in row else [row["prompt"]]


def _attempts(row: Row) -> Iterator[Iterator[str]]:
    """Yield the texts of each attempt that are compared."""
    for actions, prompt in zip(_actions(row), _prompts(row), strict=True):
        yield (text for text in (*_of_agent(actions), *_of_users([*prompt, *actions])))


def _cleared(row: Row, crosses: Sequence[bool], funnel: Funnel) -> Row | None:
    if "completions" not in row:
        return None if crosses[0] else row
    stay = [n for n, crossing in enumerate(crosses) if not crossing]
    if len(stay) == len(crosses):
        return row
    funnel.note("attempts with 13 words of an evaluation's text", len(crosses) - len(stay))
    if len(stay) < 2:  # noqa: PLR2004 - a group of one has no baseline
        return None
    return row | {name: [row[name][n] for n in stay] for name in _OF_MEMBERS if row.get(name)}
