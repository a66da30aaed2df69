"""No evaluation is trained on: rows that share 13 words in a row with an evaluation's texts are left out.

In: rows that may be trained on, the held-out answers of the log, and the texts that evaluators declare. Out: the rows
that share nothing; a round is chosen from these, so that none of its rows has to go again.

Of a row, the agent's actions are compared with the held-out answers, and these and users' messages with declared texts
(a question may reveal as much as its answer). A declared text of fewer than 13 words counts when it is all of a user's
message. System prompts, schemas and tools' results are the same for all, so they are not compared.

What many tasks share is a template (a form letter, an agent's stock phrases), and not taken from an evaluation: 13
words do not count where every three of them in a row are in at least five training tasks, and in half a percent of
them. What is copied from an evaluation has a name, a number or a turn that few tasks have.

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
CROSSES = "13 words of an evaluation's text"
_ACTIONS = ("completion", "chosen", "rejected", "_hinted")  # the last: a hint
_OF_MEMBERS = (
    "completions", "rewards", "advantages", "step_advantages", "policies", "behaviours", "log_probs", "temperatures",
    "episodes", "prompts", "behaviour",
)  # fmt: skip

Row = dict[str, Any]
Words = tuple[str, ...]
Messages = Sequence[Mapping[str, Any]]
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
    template = _template(shared, among or rows) if shared else set[Words]()
    return [[bool(run - template) for run in attempts] for attempts in met]


def uncrossed(table: pl.DataFrame, sides: Sequence[str], texts: EvaluationTexts, funnel: Funnel) -> pl.DataFrame:
    """Drop the rows of a table one of whose `sides` shares words with an evaluation."""
    columns = table.select("task_id", *(("prompt",) if texts.declared else ()), *sides)

    def rows() -> Iterator[Row]:
        for row in columns.iter_rows(named=True):
            yield {"prompt": [], **{k: v if k == "task_id" else json.loads(v) for k, v in row.items()}}

    crosses = pl.Series("_crosses", [found for (found,) in crossing(rows, texts)], dtype=pl.Boolean)
    return funnel.drop(table.with_columns(crosses), pl.col("_crosses"), CROSSES).drop("_crosses")


def _template(shared: set[Words], rows: Rows) -> set[Words]:
    """Return which of the runs that rows share with an evaluation are made of words that many tasks have."""
    asked = {part for run in shared for part in _parts(run)}
    tasks, every = defaultdict[Words, set[str]](set), set[str]()
    for row in rows():
        every.add(task := str(row.get("task_id")))
        texts = (text for attempt in _attempts(row) for text in attempt)
        for part in asked.intersection(part for text in texts for part in _parts(_words(text))):
            tasks[part].add(task)
    least = max(TEMPLATE_TASKS, TEMPLATE_SHARE * len(every))
    usual = {part for part, found in tasks.items() if len(found) >= least}
    return {run for run in shared if len(run) == GRAM and usual.issuperset(_parts(run))}


def _parts(words: Sequence[str]) -> Iterator[Words]:
    return (tuple(words[n : n + USUAL]) for n in range(len(words) - USUAL + 1))


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
    return [tuple(words[n : n + GRAM]) for n in range(len(words) - GRAM + 1)]


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
