"""Messages as text: words, then calls; what did not parse as it was written."""

from __future__ import annotations

from typing import Any

from flywheel.messages import acts_of


def test_acts_are_an_assistants_words_and_calls_without_results() -> None:
    cut = {"name": "tell", "arguments": None, "arguments_raw": "{"}
    talk: list[dict[str, Any]] = [
        {"role": "user", "content": "How many?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [{"name": "find", "arguments": {"n": "é"}}]},
        {"role": "tool", "content": "private"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [cut],
        },
        {"role": "assistant", "content": "Four."},
    ]
    assert acts_of(talk) == 'I look.\nfind {\n  "n": "é"\n}\ntell {\nFour.'
