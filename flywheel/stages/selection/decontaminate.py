"""No evaluation is trained on: rows that share 13 words in a row with an evaluation's texts are left out.

In: the rows of a round, the held-out answers of the log, and the texts that evaluators declare. Out: the rows that
share nothing. Of a row, the agent's actions are compared with the held-out answers, and these and users' messages with
declared texts (a question may reveal as much as its answer). A declared text of fewer than 13 words counts when it is
all of a user's message. System prompts, schemas and tools' results are the same for all, so they are not compared.

What many tasks share is a template (a form letter, an agent's stock phrases), and not taken from an evaluation: 13
words do not count where every three of them in a row are in at least five training tasks, and in half a percent of
them. What is copied from an evaluation has a name, a number or a turn that few tasks have.

Each attempt of a group is compared separately, and a group of one attempt is dropped.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flywheel.funnel import Funnel
from flywheel.records import texts_in

GRAM = 13  # words: what common practice takes for copied, not coincidence
TEMPLATE_TASKS, TEMPLATE_SHARE = 5, 0.005  # training tasks that have usual words, at least, and their share
USUAL = 3  # words in a row that are looked up
CROSSES = "13 words of an evaluation's text"
_ACTIONS = ("completion", "chosen", "rejected")
_OF_MEMBERS = ("completions", "rewards", "advantages", "policies", "behaviours", "log_probs", "temperatures")

Row = dict[str, Any]
Words = tuple[str, ...]
Messages = Sequence[Mapping[str, Any]]


def answers_shared(texts: Sequence[tuple[str, str]], answers: Iterable[tuple[str, str]]) -> list[bool]:
    """Return which texts share 13 words in a row with one of the answers, template text aside.

    Args:
        texts: (task, JSON list of messages) of rows that may be trained on.
        answers: the same of held-out rows.
    """
    held = {hash(run) for _, answer in answers for run in _runs_in(texts_in(json.loads(answer)))}
    if not held:
        return [False] * len(texts)
    listed = [(task, list(texts_in(json.loads(text)))) for task, text in texts]
    met = [{run for run in _runs_in(words) if hash(run) in held} for _, words in listed]
    template = _template(met, listed)
    return [bool(shared - template) for shared in met]


def _template(met: Sequence[set[Words]], rows: Sequence[tuple[str, Sequence[str]]]) -> set[Words]:
    """Return which of the runs that rows share with an evaluation are made of words that many tasks have.

    Args:
        met: what each row shares.
        rows: the task and the compared texts of each row.
    """
    asked = {part for run in set[Words]().union(*met) for part in _parts(run)}
    tasks: dict[Words, set[str]] = defaultdict(set)
    for task, texts in rows if asked else ():
        for part in asked.intersection(part for text in texts for part in _parts(_words(text))):
            tasks[part].add(task)
    least = max(TEMPLATE_TASKS, TEMPLATE_SHARE * len({task for task, _ in rows}))
    usual = {part for part, found in tasks.items() if len(found) >= least}
    return {run for shared in met for run in shared if len(run) == GRAM and usual.issuperset(_parts(run))}


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
        asking = {run for text in _of_users([*prompt, *actions]) for run in (*_runs(text), *_short(text))}
        return (acted & (self.answers | self.declared)) | (asking & self.declared)


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


def clear(rows: Sequence[Row], texts: EvaluationTexts, funnel: Funnel) -> list[Row]:
    """Return the rows that share nothing with an evaluation; the others move from kept to dropped in the funnel.

    Args:
        rows: of any method, as trainers get them.
        texts: of all evaluations.
        funnel: that counted the rows as kept.
    """
    if not texts.answers and not texts.declared:
        return list(rows)
    met = [_met(row, texts) for row in rows]
    compared = [(str(row.get("task_id")), [text for attempt in _attempts(row) for text in attempt]) for row in rows]
    template = _template([set[Words]().union(*found) for found in met], compared)
    kept = [
        clean
        for row, found in zip(rows, met, strict=True)
        if (clean := _cleared(row, [bool(one - template) for one in found], funnel)) is not None
    ]
    funnel.dropped[CROSSES] += len(rows) - len(kept)
    funnel.kept -= len(rows) - len(kept)
    return kept


def _met(row: Row, texts: EvaluationTexts) -> list[set[Words]]:
    """Return what a row shares with an evaluation; of a group, what each attempt does."""
    return [texts.meet(actions, row["prompt"]) for actions in _actions(row)]


def _actions(row: Row) -> list[Messages]:
    return row.get("completions") or [[message for side in _ACTIONS for message in row.get(side, ())]]


def _attempts(row: Row) -> Iterator[Iterator[str]]:
    """Yield the texts of each attempt that are compared."""
    for actions in _actions(row):
        yield (text for text in (*_of_agent(actions), *_of_users([*row["prompt"], *actions])))


def _cleared(row: Row, crosses: Sequence[bool], funnel: Funnel) -> Row | None:
    if "completions" not in row:
        return None if crosses[0] else row
    stay = [n for n, crossing in enumerate(crosses) if not crossing]
    funnel.note("attempts with 13 words of an evaluation's text", len(crosses) - len(stay))
    if len(stay) == len(crosses):
        return row
    if len(stay) < 2:  # noqa: PLR2004 - a group of one has no baseline
        return None
    return row | {name: [row[name][n] for n in stay] for name in _OF_MEMBERS if row.get(name)}
