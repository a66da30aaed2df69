"""Redaction: consistent, idempotent, and nothing planted survives."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from flywheel.config import RedactConfig
from flywheel.errors import ConfigError
from flywheel.records import canonical_json
from flywheel.stages.ingest.redact import Redactor
from hypothesis import given
from hypothesis import strategies as st
from tests.stages.ingest.canaries import GENERATORS, canaries

FRAGMENTS = st.sampled_from(
    [
        "joe@example.com", "+49 30 1234567", "4111 1111 1111 1111", "DE89370400440532013000", "192.168.1.20",
        "sk-abcdefghij1234567890", "password=hunter22!", "Bearer abcdefghijklmnop1234", "<EMAIL_7f3a9c2e>", "<IP_",
        "https://a:secret1@h", "2001:db8::1", '"', "\\", " ", "\n", "@", "x", "1", "-", "é", "order 7",
    ]
)  # fmt: skip
TEXTS = st.lists(FRAGMENTS, max_size=8).map("".join) | st.text(max_size=40)
PAYLOADS = st.dictionaries(
    TEXTS | st.sampled_from(["password", "api_key"]), TEXTS | st.lists(TEXTS, max_size=3), max_size=4
)


def redactor(**settings: list[str]) -> Redactor:
    return Redactor(RedactConfig(**settings), b"key")


def once(value: object, **settings: list[str]) -> Any:
    return json.loads(redactor(**settings).payloads([canonical_json(value)])[0])


@given(st.lists(PAYLOADS, max_size=4))
def test_redacting_twice_changes_nothing(payloads: list[dict[str, object]]) -> None:
    first = redactor().payloads([canonical_json(p) for p in payloads])
    again = redactor()
    assert again.payloads(first) == first
    assert not again.counts


@given(
    st.lists(PAYLOADS, max_size=3),
    st.lists(st.sampled_from([r"\w+", "^x", "order [0-9]", ".", "a*"]), min_size=1, max_size=2),
)
def test_redacting_twice_changes_nothing_with_denied_patterns(
    payloads: list[dict[str, object]], deny: list[str]
) -> None:
    first = redactor(deny=deny).payloads([canonical_json(p) for p in payloads])
    assert redactor(deny=deny).payloads(first) == first


@given(TEXTS)
def test_an_id_and_the_same_text_in_a_payload_get_the_same_pseudonym(text: str) -> None:
    assert once([text]) == [redactor().text(text)]


def test_equal_values_are_equal_and_the_key_decides() -> None:
    value = ["Joe@Example.com", "joe@example.com", "4111 1111 1111 1111", "4111111111111111"]
    found = once(value)
    assert isinstance(found, list)
    assert found[0] == found[1]
    assert found[2] == found[3]
    other = json.loads(Redactor(RedactConfig(), b"other").payloads([canonical_json(value)])[0])
    assert not set(other) & set(found)


def test_everything_around_a_find_stays() -> None:
    text = 'Order 112-9043251-7785005, flight HAT136 on 2024-05-20 10:30:00, $1,234.56 to "joe@example.com".'
    found = once({"x": text})
    assert isinstance(found, dict)
    before, after = text.split("joe@example.com")
    assert found["x"].startswith(before + "<EMAIL_")
    assert found["x"].endswith(">" + after)


def test_a_secret_under_its_name_goes_whole() -> None:
    found = once({"arguments": {"password": "correct horse 9", "api_key": "a1b2c3d4e5f6g7", "token": "next", "n": 4}})
    assert isinstance(found, dict)
    arguments = found["arguments"]
    assert arguments["password"].startswith("<SECRET_")
    assert arguments["api_key"].startswith("<SECRET_")
    assert (arguments["token"], arguments["n"]) == ("next", 4)


def test_names_of_fields_are_redacted_too() -> None:
    assert "joe@" not in json.dumps(once({"joe@example.com": 1}))


def test_allowed_values_stay_and_denied_patterns_go() -> None:
    found = once(
        {"x": "support@us.example and joe@example.com, case ACME-77"},
        allow=["support@us.example"],
        deny=["ACME-[0-9]+"],
    )
    assert isinstance(found, dict)
    assert found["x"].startswith("support@us.example and <EMAIL_")
    assert "<DENIED_" in found["x"]
    assert "ACME" not in found["x"]


def test_only_the_kinds_asked_for() -> None:
    assert once(["joe@example.com 192.168.1.20"], kinds=["ip"]) != ["joe@example.com 192.168.1.20"]
    assert "joe@example.com" in str(once(["joe@example.com 192.168.1.20"], kinds=["ip"]))
    assert once(["joe@example.com"], kinds=[]) == ["joe@example.com"]


def test_users_always_get_a_pseudonym() -> None:
    r = redactor()
    assert r.user("mia") == r.user(" mia ") != r.user("joe")
    assert r.user(r.user("mia")) == r.user("mia")


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"kinds": ["mail"]}, "unknown kind `mail`"), ({"deny": ["("]}, "no regular expression")],
)
def test_a_wrong_setting_is_named(settings: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        redactor(**settings)


def test_counts_are_by_kind() -> None:
    r = redactor()
    r.payloads([canonical_json(["a@b.co a@b.co", "192.168.1.20"]), canonical_json(["nothing"])])
    assert dict(r.counts) == {"email": 2, "ip": 1}


@pytest.mark.parametrize("kind", sorted(GENERATORS))
def test_planted_canaries_are_gone(kind: str) -> None:
    rng, planted = random.Random(kind), canaries(kind, 1000, "redact")  # noqa: S311 - canaries, not keys
    wraps = ("{}", "it is {}.", '{{"v": "{}"}}', "a,{},b", "({})", "line\n{}\nline", "<b>{}</b>")
    payloads = [
        canonical_json({"content": rng.choice(wraps).format(c.text), "deep": [{"x": c.text}], c.text: 1})
        for c in planted
    ]
    r = redactor(kinds=[kind])
    left = "\n".join(r.payloads(payloads))
    assert [c for c in planted if c.secret in left] == []
    assert r.counts[kind] >= 3 * len(planted)


@pytest.mark.parametrize("kind", sorted(GENERATORS))
@pytest.mark.parametrize("before", ["\n", "\t", "\r\n", "\u201c", "\\n\n"])
def test_json_in_a_text_hides_nothing_and_stays_json(kind: str, before: str) -> None:
    """A number begins behind an escape's letter, and the escape is no part of what is replaced."""
    for canary in canaries(kind, 50, "escapes"):
        inner: object = {"note": f"call{before}{canary.text}{before}now"}
        for _ in range(3):
            inner = json.dumps(inner)
            (left,) = redactor(kinds=[kind]).payloads([canonical_json([inner])])
            assert canary.secret not in left
        (told,) = json.loads(left)
        for _ in range(3):
            told = json.loads(told)
        shown = f"call{before}<{kind.upper()}_"
        assert told["note"].startswith(shown) or canary.text != canary.secret, "only what was found is replaced"


def test_names_of_fields_are_texts_too_and_the_common_ones_stay() -> None:
    for name in ("DE89370400440532013000", "ghp_abcdefghijklmnopqrstuvwx12", "AKIA0123456789ABCDEF"):
        assert name not in str(once({"custom": {name: 1}, "api_key_of_service": 2}))
    assert once({"authorization_header": "x@y.co"}) == {"authorization_header": once(["x@y.co"])[0]}


def test_a_number_is_data_as_its_digits_are() -> None:
    found = once({"card": 4111111111111111, "order": 4111111111111112, "at": 1790850000000000000, "n": 3, "p": 0.5})
    assert found == {**found, "order": 4111111111111112, "at": 1790850000000000000, "n": 3, "p": 0.5}
    assert [found["card"]] == once(["4111 1111 1111 1111"])


def test_an_id_is_the_same_with_and_without_its_kind() -> None:
    r = redactor()
    for value in ("2001:db8::17", "joe@example.com", "+49 30 1234567", "plain"):
        assert r.name(f"session:{value}") == f"session:{r.text(value)}"
        assert r.name(value) == r.text(value)
    assert r.name("session:2001:db8::17") != "session:2001:db8::17"


def test_the_same_key_file_has_the_same_pseudonym_in_every_json() -> None:
    key = json.dumps("-----BEGIN PRIVATE KEY-----\nMIIE\u201c\n-----END PRIVATE KEY-----")
    one, two = once([f"[{key}]", f'["\\t \\u00e9", {key}]'])
    (mark,) = re.findall("<SECRET_[0-9a-f]{8}>", one)
    assert two == f'["\\t \\u00e9", "{mark}"]'
