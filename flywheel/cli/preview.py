"""A pair, an example or a group for people: its facts, then what the model reads, the trained tokens marked.

In colour where the terminal has it; always between the marks, so that plain text says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flywheel.cli.render import coloured, columns
from flywheel.results import Preview, ShowAnswer

__all__ = ["preview_lines"]

OPEN, CLOSE = "\u27e6", "\u27e7"
_LONG = {"prompt", "tools", "chosen", "rejected", "completion", "completions_G"}
_GREEN, _PLAIN = "\x1b[32m", "\x1b[0m"


def preview_lines(answer: ShowAnswer) -> list[str]:
    """Return the lines of one row."""
    facts = columns([[name, _fact(value)] for name, value in answer.record.items() if name not in _LONG])
    return [answer.kind, *facts, answer.rendering, *_sides(answer)]


def _fact(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    return ", ".join(map(_fact, value)) if isinstance(value, list) else str(value)


def _sides(answer: ShowAnswer) -> Iterator[str]:
    """Yield each side; the beginning that all sides share is shown once."""
    if not answer.preview:
        return
    first = [side.segments[0].text for side in answer.preview if side.segments]
    shared = first[0] if first and len(set(first)) == 1 else ""
    if shared:
        tokens = answer.preview[0].segments[0].tokens
        yield from ("", f"--- prompt: {tokens:,} tokens, not trained", shared)
    for side in answer.preview:
        yield from _side(side, begin=1 if shared else 0)


def _side(side: Preview, *, begin: int) -> Iterator[str]:
    trained = sum(segment.tokens for segment in side.segments if segment.trained)
    yield ""
    yield f"--- {side.side}: {trained:,} tokens trained, between {OPEN} and {CLOSE}"
    texts = []
    for segment in side.segments[begin:]:
        text = f"{OPEN}{segment.text}{CLOSE}" if segment.trained else segment.text
        texts.append(f"{_GREEN}{text}{_PLAIN}" if segment.trained and coloured() else text)
    yield "".join(texts)
