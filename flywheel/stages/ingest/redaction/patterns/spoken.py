"""Numbers that people say digit by digit, as transcripts of calls write them: telephones, cards.

Nine digits in words of one language, with nothing else between them. Counting (one two three) is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from flywheel.stages.ingest.redaction.patterns.hints import WORDS
from flywheel.stages.ingest.redaction.patterns.kinds import Find, Scan, luhn

_WORDS = {
    "en": "zero|oh one two three four five six seven eight nine",
    "de": "null eins|ein zwei|zwo drei vier fünf|fuenf sechs sieben acht neun",
    "es": "cero uno|una dos tres cuatro cinco seis siete ocho nueve",
    "fr": "zéro|zero un|une deux trois quatre cinq six sept huit neuf",
    "it": "zero uno due tre quattro cinque sei sette otto nove",
    "pt": "zero um|uma dois|duas três quatro cinco seis|meia sete oito nove",
}
_LEAST, _MOST, _CARD = 9, 19, 13  # digits
_DIGITS = {
    language: {word: str(digit) for digit, words in enumerate(numbers.split()) for word in words.split("|")}
    for language, numbers in _WORDS.items()
}
_RUNS = {
    language: re.compile(
        rf"(?i)(?<![\w-])(?:{'|'.join(digits)})(?:(?:[ ,.-]{{1,3}}|[ ](?:and|und|y|et|e)[ ])(?:{'|'.join(digits)})){{{_LEAST - 1},{_MOST - 1}}}(?![\w-])"
    )
    for language, digits in _DIGITS.items()
}
_ONE = re.compile(r"\w+")


def _said(text: str, _name: str) -> Iterator[Find]:
    for language, run in _RUNS.items():
        for match in run.finditer(text):
            words = (_DIGITS[language].get(word.lower(), "") for word in _ONE.findall(match[0]))
            digits = "".join(words)
            steps = {int(b) - int(a) for a, b in pairwise(digits)}
            if len(digits) >= _LEAST and len(set(digits)) > 1 and len(steps) > 1:
                yield Find(digits, *match.span())


def _is_card(number: str) -> bool:
    return len(number) >= _CARD and luhn(number)


def _cards(text: str, name: str) -> Iterator[Find]:
    return (find for find in _said(text, name) if _is_card(find.value))


def _others(text: str, name: str) -> Iterator[Find]:
    return (find for find in _said(text, name) if not _is_card(find.value))


_ANY = "|".join(sorted({word for digits in _DIGITS.values() for word in digits}))
_TRIGGER = rf"(?i:(?:{_ANY})[ ,.-]{{1,3}}(?:{_ANY})[ ,.-]{{1,3}}(?:{_ANY})[ ,.-]{{1,3}}(?:{_ANY})[ ,.-])"
SAID_CARD = Scan("card", _TRIGGER, _cards, hint=WORDS)
SAID_PHONE = Scan("phone", _TRIGGER, _others, hint=WORDS)
