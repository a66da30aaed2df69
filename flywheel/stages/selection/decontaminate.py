"""Nothing that a round is judged by is trained on: rows that share 13 words with an evaluation's texts stay out.

In: the rows of a round, the held-out answers of the log, and the texts that evaluators declare. Out: the rows that
share nothing. Of a row, what the agent did is compared with the held-out answers, and this and what users said with
declared texts (a question may be as telling as its answer). A declared text of fewer than 13 words counts when it is
all that a user said. System prompts, schemas and tools' results are the same for all, so they are not compared.

Of a group's attempts each is judged by itself, and a group of one is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flywheel.records import texts_in
from flywheel.stages.selection.overlap import GRAM

if TYPE_CHECKING:
    from flywheel.funnel import Funnel

__all__ = ["EvaluationTexts", "clear"]

CROSSES = "13 words of an evaluation's text"
_ACTIONS = ("completion", "chosen", "rejected")
_OF_MEMBERS = ("completions", "rewards", "advantages", "policies", "behaviours", "log_probs", "temperatures")

Row = dict[str, Any]
Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class EvaluationTexts:
    """What evaluations rest on, as runs of 13 words; declared texts that are shorter, whole."""

    answers: frozenset[tuple[str, ...]]
    declared: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, answers: Iterable[Messages], declared: Iterable[str]) -> EvaluationTexts:
        """Return the runs of words of held-out answers (lists of messages) and of declared texts."""
        runs = (run for messages in answers for text in _said(messages) for run in _runs(text))
        told = (run for text in declared for run in (_runs(text) or _whole(text)))
        return cls(frozenset(runs), frozenset(told))

    def meet(self, actions: Messages, prompt: Messages) -> bool:
        """Return whether what an agent did, or what users said to it, shares words with an evaluation."""
        done = [run for text in _said(actions) for run in _runs(text)]
        if not self.answers.isdisjoint(done) or not self.declared.isdisjoint(done):
            return True
        asked = [text for message in (*prompt, *actions) if message["role"] == "user" for text in texts_in(message)]
        return not self.declared.isdisjoint(run for text in asked for run in (*_runs(text), *_whole(text)))


def _said(messages: Messages) -> Iterator[str]:
    for message in messages:
        if message["role"] == "assistant":
            yield from texts_in({name: message.get(name) for name in ("content", "tool_calls")})


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _runs(text: str) -> list[tuple[str, ...]]:
    words = _words(text)
    return [tuple(words[n : n + GRAM]) for n in range(len(words) - GRAM + 1)]


def _whole(text: str) -> list[tuple[str, ...]]:
    words = tuple(_words(text))
    return [words] if words and len(words) < GRAM else []


def clear(rows: Sequence[Row], texts: EvaluationTexts, funnel: Funnel) -> list[Row]:
    """Return the rows that share nothing with an evaluation; the others move from kept to dropped in the funnel.

    Args:
        rows: of any method, as trainers get them.
        texts: what evaluations rest on.
        funnel: that counted the rows as kept.
    """
    if not texts.answers and not texts.declared:
        return list(rows)
    kept = [made for row in rows if (made := _cleared(row, texts, funnel)) is not None]
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
    return (
        row | {name: [row[name][n] for n in stay] for name in _OF_MEMBERS if row.get(name)} if len(stay) > 1 else None
    )
