"""What a user wrote or named is read, or refused by place and without a word of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from flywheel.errors import ConfigError, UsageError
from flywheel.io.user_files import read_document, read_text
from flywheel.records import Plan


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9")
    assert read_text(tmp_path / "f", ConfigError) == "café"


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none` cannot be read: No such file"):
        read_text(tmp_path / "none", UsageError)
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_text(tmp_path, UsageError)
    (tmp_path / "f").write_bytes(b"caf\xe9")
    with pytest.raises(ConfigError, match="is not UTF-8, at byte 4"):
        read_text(tmp_path / "f", ConfigError)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('["secret"]', "Input should be a valid dictionary"),
        ('{"method_reason": "secret"}', "Field required"),
        ('{"round": "secret"}', "round: Input should be a valid integer"),
    ],
)
def test_a_document_of_another_kind_is_refused_without_its_text(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(UsageError, match=said) as caught:
        read_document(tmp_path / "f", Plan, UsageError, hint="how to make one")
    assert "secret" not in caught.value.message
    assert caught.value.hint == "how to make one"
