"""No log steers a terminal: control characters and marks of text direction are written out."""

from __future__ import annotations

import pytest
from flywheel.cli.session import harmless


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nand \u00e9\u4f60", "plain\ttext\nand \u00e9\u4f60"),
        ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
        ("\x1b[2Jgone", "\\u001b[2Jgone"),
        ("\x1b[32mours\x1b[0m", "\x1b[32mours\x1b[0m"),
        ("a\rb\x08", "a\\u000db\\u0008"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b31m", "\\u009b31m"),
    ],
)
def test_what_steers_is_written_out(text: str, shown: str) -> None:
    assert harmless(text) == shown
