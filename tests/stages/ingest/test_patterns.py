"""What is personal data and what only looks like it."""

from __future__ import annotations

import re

import pytest
from flywheel.stages.ingest.patterns import KINDS, PLACEHOLDER, SECRET_KEYS, looks_secret


def finds(kind: str, text: str) -> list[str]:
    pattern = re.compile(KINDS[kind].pattern, re.VERBOSE | re.DOTALL)
    found = [KINDS[kind].decide(match) for match in pattern.finditer(text)]
    return [find.value for find in found if find is not None]


YES = [
    ("secret", "sk-proj-abcdefghij1234567890", "sk-proj-abcdefghij1234567890"),
    ("secret", "use ghp_abcdefghijklmnopqrst0123 now", "ghp_abcdefghijklmnopqrst0123"),
    ("secret", "AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    ("secret", "xoxb-123456789012-abcdef", "xoxb-123456789012-abcdef"),
    ("secret", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.abc", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.abc"),
    ("secret", "Authorization: Bearer abcdefghijklmnop1234", "abcdefghijklmnop1234"),
    ("secret", "https://joe:pass123@db.example", "pass123"),
    ("secret", "PASSWORD=hunter22!", "hunter22!"),
    ("secret", '{"api_key": "9f8e7d6c5b4a3210"}', "9f8e7d6c5b4a3210"),
    ("secret", '{\\"client_secret\\":\\"9f8e7d6c5b4a3210\\"}', "9f8e7d6c5b4a3210"),
    ("email", "write to Joe.Doe+x@Example.co.uk.", "joe.doe+x@example.co.uk"),
    ("email", "jürgen@müller.de", "jürgen@müller.de"),
    ("card", "4111 1111 1111 1111", "4111111111111111"),
    ("card", "4111-1111-1111-1111,", "4111111111111111"),
    ("card", "378282246310005", "378282246310005"),
    ("card", "3782 822463 10005", "378282246310005"),
    ("iban", "DE89 3704 0044 0532 0130 00 THANKS", "DE89370400440532013000"),
    ("iban", "GB82WEST12345698765432", "GB82WEST12345698765432"),
    ("phone", "+49 30 1234567", "49301234567"),
    ("phone", "+14155550123", "14155550123"),
    ("phone", "(415) 555-0123", "4155550123"),
    ("phone", "415-555-0123", "4155550123"),
    ("phone", "+44 (0)20 7946 0958", "4402079460958"),
    ("ip", "client_ip=10.1.2.3", "10.1.2.3"),
    ("ip", '{"v": "10.1.2.3"}', "10.1.2.3"),
    ("ip", "from 192.168.1.20:8080", "192.168.1.20"),
    ("ip", "from 2001:db8::1: refused", "2001:db8::1"),
    ("ip", "2001:0db8:85a3:0000:0000:8a2e:0370:7334", "2001:db8:85a3::8a2e:370:7334"),
]

NO = [
    ("secret", "sk-learn-estimators-and-more"),
    ("secret", "password: required"),
    ("secret", "max_tokens: 123456789012"),
    ("secret", "the secret: patience"),
    ("secret", "token: string"),
    ("email", "joe@localhost"),
    ("email", "@app.route"),
    ("email", "pkg@1.2.3"),
    ("card", "4111 1111 1111 1112"),
    ("card", "1790850000000000000"),
    ("card", "2024-05-20 2024-05-21"),
    ("card", "2023 2024 2025 2026"),
    ("card", "certificate_7504069"),
    ("iban", "DE89 3704 0044 0532 0130 01"),
    ("iban", "HAT136 HAT039 HAT271 HAT203"),
    ("phone", "order 112-9043251-7785005"),
    ("phone", "2024-05-20"),
    ("phone", "10:30:00+02:00"),
    ("phone", "$1,234.56"),
    ("phone", "+1.23456789"),
    ("phone", "+1234567"),
    ("phone", "250 300 4500"),
    ("phone", "HAT136-204-1234"),
    ("ip", "version 1.2.3.4"),
    ("ip", "v1.2.3.4"),
    ("ip", "package==1.2.3.4"),
    ("ip", "1.2.3.4.5"),
    ("ip", "999.1.1.1"),
    ("ip", "127.0.0.1"),
    ("ip", "std::vector a::b"),
    ("ip", "12:30:45"),
    ("ip", "::1"),
]


@pytest.mark.parametrize(("kind", "text", "value"), YES)
def test_what_is_one_is_found_in_its_normal_form(kind: str, text: str, value: str) -> None:
    assert finds(kind, text) == [value]
    assert re.search(KINDS[kind].trigger, text), "the trigger must find whatever the pattern finds"


@pytest.mark.parametrize(("kind", "text"), NO)
def test_what_only_looks_like_one_stays(kind: str, text: str) -> None:
    assert finds(kind, text) == []


def test_a_private_key_goes_whole() -> None:
    text = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\nb"
    assert finds("secret", text) == [text[2:-2]]


@pytest.mark.parametrize(
    "text", ["a" * 100_000, "a-" * 50_000, "1 " * 50_000, "a.b@" * 25_000, "+1" * 50_000, ":" * 100_000]
)
def test_no_text_takes_long(text: str) -> None:
    for kind in KINDS:
        finds(kind, text)


def test_names_that_announce_a_secret() -> None:
    assert SECRET_KEYS.match("apiKey") is None or SECRET_KEYS.match("api_key")
    assert SECRET_KEYS.match("next_page_token")
    assert SECRET_KEYS.match("max_tokens") is None
    assert looks_secret("password", "hunter2")
    assert not looks_secret("password", "string")
    assert not looks_secret("api_key", "your-api-key")


def test_pseudonyms_are_recognised() -> None:
    assert re.fullmatch(PLACEHOLDER, "<EMAIL_7f3a9c2e>")
