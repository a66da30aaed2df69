"""Patterns that cannot hang: matched by Rust's engine (through polars), in a time linear in the text."""

from __future__ import annotations

import polars as pl

__all__ = ["BadCheckError", "found", "known_pattern"]


class BadCheckError(Exception):
    """A check cannot be used: what is wrong, and what to do; never a value of the case."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def found(pattern: str, text: str) -> bool:
    """Return whether a pattern is found in a text.

    Raises:
        BadCheckError: it is no pattern of this engine, or too large.
    """
    try:
        return bool(pl.Series([text], dtype=pl.String).str.contains(pattern, strict=True).item())
    except pl.exceptions.PolarsError:
        raise BadCheckError(
            "the pattern is no regular expression of Rust's syntax",
            "no look-around and no back-references; `absent` says that something must not be found",
        ) from None


def known_pattern(pattern: str) -> str:
    """Return the pattern if it can be used; raises BadCheckError if not."""
    found(pattern, "")
    return pattern
