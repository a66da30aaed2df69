"""No evaluation is trained on: rows that share 13 words in a row with an evaluation's texts are left out.

In: the rows of a round, the held-out answers of the log, and the texts that evaluators declare. Out: the rows that
share nothing. Of a row, the agent's actions are compared with the held-out answers, and these and users' messages with
declared texts (a question may reveal as much as its answer). A declared text of fewer than 13 words counts when it is
all of a user's message. System prompts, schemas and tools' results are the same for all, so they are not compared.

Each attempt of a group is compared separately, and a group of one attempt is dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flywheel.funnel import Funnel
from flywheel.records import texts_in

GRAM = 13  # words: what common practice takes for copied, not coincidence
CROSSES = "13 words of an evaluation's text"
_ACTIONS = ("completion", "chosen", "rejected")
_OF_MEMBERS = ("completions", "rewards", "advantages", "policies", "behaviours", "log_probs", "temperatures")

Row = dict[str, Any]
Messages = Sequence[Mapping[str, Any]]


def answers_shared(texts: Sequence[str], answers: Iterable[str]) -> list[bool]:
    """Return which texts (JSON lists of messages) share 13 words in a row with one of the answers."""

    def runs(messages: str) -> Iterator[int]:
        return (hash(run) for text in texts_in(json.loads(messages)) for run in _runs(text))

    known = {run for answer in answers for run in runs(answer)}
    return [not known.isdisjoint(runs(text)) for text in texts]


@dataclass(frozen=True)
class EvaluationTexts:
    """The texts of evaluations, as runs of 13 words; declared texts that are shorter, complete."""

    answers: frozenset[tuple[str, ...]]
    declared: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, answers: Iterable[Messages], declared: Iterable[str]) -> EvaluationTexts:
        """Return the runs of words of held-out answers (lists of messages) and of declared texts."""
        runs = (run for messages in answers for text in _of_agent(messages) for run in _runs(text))
        texts = (run for text in declared for run in (_runs(text) or _short(text)))
        return cls(frozenset(runs), frozenset(texts))

    def meet(self, actions: Messages, prompt: Messages) -> bool:
        """Return whether an agent's actions, or users' messages to it, share words with an evaluation."""
        acted = [run for text in _of_agent(actions) for run in _runs(text)]
        if not self.answers.isdisjoint(acted) or not self.declared.isdisjoint(acted):
            return True
        asked = [text for message in (*prompt, *actions) if message["role"] == "user" for text in texts_in(message)]
        return not self.declared.isdisjoint(run for text in asked for run in (*_runs(text), *_short(text)))


def _of_agent(messages: Messages) -> Iterator[str]:
    for message in messages:
        if message["role"] == "assistant":
            yield from texts_in({name: message.get(name) for name in ("content", "tool_calls")})


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _runs(text: str) -> list[tuple[str, ...]]:
    words = _words(text)
    return [tuple(words[n : n + GRAM]) for n in range(len(words) - GRAM + 1)]


def _short(text: str) -> list[tuple[str, ...]]:
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
    kept = [clean for row in rows if (clean := _cleared(row, texts, funnel)) is not None]
    funnel.dropped[CROSSES] += len(rows) - len(kept)
    funnel.kept -= len(rows) - len(kept)
    return kept


def _cleared(row: Row, texts: EvaluationTexts, funnel: Funnel) -> Row | None:
    if "completions" not in row:
        actions = [message for side in _ACTIONS for message in row.get(side, ())]
        return None if texts.meet(actions, row["prompt"]) else row
    stay = [n for n, attempt in enumerate(row["completions"]) if not texts.meet(attempt, row["prompt"])]
    funnel.note("attempts with 13 words of an evaluation's text", len(row["completions"]) - len(stay))
    if len(stay) == len(row["completions"]):
        return row
    if len(stay) < 2:  # noqa: PLR2004 - a group of one has no baseline
        return None
    return row | {name: [row[name][n] for n in stay] for name in _OF_MEMBERS if row.get(name)}
