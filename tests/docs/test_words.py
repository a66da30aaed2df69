"""Docs, messages, docstrings and comments use the words of the field; `words.py` has the stop-list."""

from __future__ import annotations

from pathlib import Path

from tests.docs.words import PLACES, ROOT, stopped


def test_what_people_read_uses_the_words_of_the_field() -> None:
    assert list(stopped([ROOT / place for place in PLACES])) == []


def test_stopped_words_are_found_in_prose_and_not_in_code(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "Nobody is told.\n\nBeside `rivals`.\n\n```sh\nrivals\n```\n\nThere is no reason. LLM judges\n"
    )
    (tmp_path / "module.py").write_text('told = 1  # drawn anew\nraise ValueError("it is no number")\n')

    assert [line.split(" -> ")[0] for line in stopped([tmp_path])] == [
        "module.py:2: is no ",
        "module.py:1: drawn",
        "module.py:1: anew",
        "page.md:1: Nobody",
        "page.md:1: told",
        "page.md:3: Beside",
    ]
