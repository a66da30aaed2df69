"""What is personal data and what only looks like it."""

from __future__ import annotations

import re

import pytest
from flywheel.stages.ingest.redaction.patterns import KINDS, PLACEHOLDER
from flywheel.stages.ingest.redaction.patterns.structure import in_field
from flywheel.stages.ingest.redaction.screen import Screen, Screened


def finds(kind: str, text: str, name: str = "") -> list[str]:
    found: list[str] = []
    reached = False
    for one in (k for k in KINDS if k.name == kind):
        new = list(one.finds(text, name))
        reached = reached or bool(new and Screen([Screened(one)]).wanted([text, f'"{name}":"{text}"']))
        found += [find.value for find in new if find.value not in found]
    assert reached or not found, "no payload with it would have been looked at"
    return found


YES = [
    ("card", "https://pay.example.com/card/4111111111111111/charge", "4111111111111111"),
    ("card", "4111111111111111/12/27", "4111111111111111"),
    ("secret", "sk-proj-abcdefghij1234567890", "sk-proj-abcdefghij1234567890"),
    ("secret", "use ghp_abcdefghijklmnopqrst0123 now", "ghp_abcdefghijklmnopqrst0123"),
    ("secret", "AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    ("secret", "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh", "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"),
    ("secret", "acme_2vU9cV2MosAUbtDL71bNC6dTM7t7", "acme_2vU9cV2MosAUbtDL71bNC6dTM7t7"),
    ("secret", "xoxb-123456789012-abcdef", "xoxb-123456789012-abcdef"),
    ("secret", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.abc", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.abc"),
    ("secret", "Authorization: Bearer abcdefghijklmnop1234", "abcdefghijklmnop1234"),
    ("secret", "https://joe:pass123@db.example", "pass123"),
    ("secret", "PASSWORD=hunter22!", "hunter22!"),
    ("secret", '{"api_key": "9f8e7d6c5b4a3210"}', "9f8e7d6c5b4a3210"),
    ("secret", '{\\"client_secret\\":\\"9f8e7d6c5b4a3210\\"}', "9f8e7d6c5b4a3210"),
    ("secret", "gsk_abcdefghij0123456789KLMN", "gsk_abcdefghij0123456789KLMN"),
    ("secret", "hvs.CAESIAbcdefghijklmnop0123", "hvs.CAESIAbcdefghijklmnop0123"),
    ("secret", "GOCSPX-abcdefghij0123456789klmn", "GOCSPX-abcdefghij0123456789klmn"),
    ("secret", "bot 123456789:AAabcdefghijklmnopqrstuvwxyz0123456", "123456789:AAabcdefghijklmnopqrstuvwxyz0123456"),
    ("secret", "redis://:s3cr3tpass@cache:6379/0", "s3cr3tpass"),
    ("secret", "Authorization: Basic am9lOnBhc3N3MHJk", "passw0rd"),
    ("secret", "Set-Cookie: sid=0123456789abcdef; Path=/; HttpOnly", "sid=0123456789abcdef; Path=/; HttpOnly"),
    ("secret", "?X-Amz-Signature=0123456789abcdef0123", "0123456789abcdef0123"),
    ("secret", "dbPassword: hunter22!", "hunter22!"),
    (
        "secret",
        "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
        "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
    ),
    ("secret", "use 8jF3kQz0LmX2pVb7RtY5wN1cHs today", "8jF3kQz0LmX2pVb7RtY5wN1cHs"),
    ("secret", "(J7vK/2mQ9xW+4tRz8bNcL1yHs6pDfGk3aEuT5oV=)", "J7vK/2mQ9xW+4tRz8bNcL1yHs6pDfGk3aEuT5oV="),
    ("secret", "quoted\\n8jF3kQz0LmX2pVb7RtY5wN1cHs", "8jF3kQz0LmX2pVb7RtY5wN1cHs"),
    ("national_id", "AMKA 01013099997", "01013099997"),
    ("national_id", "my Kenyan ID no 23456789", "23456789"),
    ("national_id", "رقم الهوية 1234567890", "1234567890"),
    ("national_id", "CNIC: 35202-1234567-1", "3520212345671"),
    ("national_id", "travel document AB1234567", "AB1234567"),
    ("national_id", "vehicle registration KA01AB1234", "KA01AB1234"),
    ("national_id", "my NRIC No is 770305-02-1234.", "770305021234"),
    ("national_id", "Davčna številka: 50223054", "50223054"),
    ("national_id", "IC: 770305-02-1234", "770305021234"),
    ("national_id", "XYZ 85073003328", "85073003328"),
    ("national_id", "my TFN 12345678 is new", "12345678"),
    ("national_id", "PESEL 12345678 and rest", "12345678"),
    ("national_id", "16.727.230/0001-97", "16727230000197"),
    ("national_id", "n° de sécurité sociale : 2 95 10 99 126 111 93", "295109912611193"),
    ("national_id", "passeport n° 13BX92569", "13BX92569"),
    ("national_id", "078-05-1120", "078051120"),
    ("national_id", "my ssn: 078051120.", "078051120"),
    ("national_id", "078 05 1120", "078051120"),
    ("national_id", "11010519491231002x", "11010519491231002X"),
    ("national_id", "身份证11010519491231002X", "11010519491231002X"),
    ("national_id", "AB 12 34 56 C", "AB123456C"),
    ("national_id", "National Insurance number AB123456C", "AB123456C"),
    ("national_id", "86 095 742 719", "86095742719"),
    ("national_id", "meine Steuer-ID ist 86095742719", "86095742719"),
    ("national_id", "12345678-Z", "12345678Z"),
    ("national_id", "DNI 12345678Z", "12345678Z"),
    ("national_id", "X-1234567-L", "X1234567L"),
    ("national_id", "1 84 12 76 451 089 46", "184127645108946"),
    ("national_id", "n 255081416802538,", "255081416802538"),
    ("national_id", "rssmra85t10a562s", "RSSMRA85T10A562S"),
    ("national_id", "529.982.247-25", "52998224725"),
    ("national_id", "cpf=52998224725", "52998224725"),
    ("national_id", "2341 2341 2346", "234123412346"),
    ("national_id", "Aadhaar no. 2341-2341-2346", "234123412346"),
    ("national_id", "BSN: 111222333", "111222333"),
    ("national_id", "PESEL 44051401359", "44051401359"),
    ("national_id", "19811228-9874", "198112289874"),
    ("national_id", "670919-9530 ringde", "6709199530"),
    ("national_id", "マイナンバー 1234 5678 9018", "123456789018"),
    ("national_id", "900101-1234568", "9001011234568"),
    ("national_id", "주민등록번호 900101-1234567", "9001011234567"),
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
    ("ip", "from 2a02:db8::1: refused", "2a02:db8::1"),
    ("ip", "2a02:0db8:85a3:0000:0000:8a2e:0370:7334", "2a02:db8:85a3::8a2e:370:7334"),
    ("ip", "source:2a02:db8::1", "2a02:db8::1"),
    ("mac", "node:37:e8:2f:6c:18:13 joined", "37e82f6c1813"),
]

NO = [
    ("national_id", "IC 2041 1430"),
    ("national_id", "PK 1234567 and TC 2041430"),
    ("national_id", "AWB 39053344705"),
    ("national_id", "NRIC No issued 2026-11-23"),
    ("national_id", "12.345.678/0001-00"),
    ("phone", "HP 1234567"),
    ("ip", 'the specification\'s sections "8.2.4.44 Bogus comment" and "8.2.4.45 Markup"'),
    ("mac", "SHA1 Fingerprint=3b:c4:7a:98:11:fe:02:d5:6c:80:aa:49:e3:17:5d:b2:90:0f:61:c8"),
    ("mac", "backup-26-11-22-10-30-00 and 26-11-22-10-30-00-final"),
    ("secret", "sk-learn-estimators-and-more"),
    ("secret", "password: required"),
    ("secret", "class=md-theme-indigo-palette-500 <md-autocomplete-parent-suggestions2>"),
    ("secret", "def live_update_the_dashboard_when_orders_arrive_v2()"),
    ("secret", "max_tokens: 123456789012"),
    ("secret", "the secret: patience"),
    ("secret", "token: string"),
    ("secret", "password=settings.DB_PASSWORD"),
    ("secret", "password=db_password, token=get_token_2024(user)"),
    ("secret", "PWD=/testbed/src OLDPWD=/home/x1"),
    ("secret", "api_key: ${OPENAI_KEY_2}"),
    ("secret", "Basic knowledge of Basic economy"),
    ("secret", "a cookie: small text"),
    ("secret", "call_8fK2mQ9xW4tRz8bNcL1yHs6p"),
    ("secret", "toolu_01A8fK2mQ9xW4tRz8bNcL1yH"),
    ("secret", "tooluse_kZJMlvQmRJ6eAyJE5GIl7Q"),
    ("secret", "chatcmpl-8fK2mQ9xW4tRz8bNcL1yHs6pDfG"),
    ("secret", "msg_bdrk_018fK2mQ9xW4tRz8bNcL1yHs"),
    ("secret", "id: 8jF3kQz0LmX2pVb7RtY5wN1cHs"),
    ("secret", "8f14e45f-ceea-467f-a8a1-1b2c3d4e5f60"),
    ("secret", "9b74c9897bac770ffc029102a200c5de0e6b5a3c"),
    ("secret", "sha256-8jF3kQz0LmX2pVb7RtY5wN1cHs8jF3kQz0LmX2pVb7RtY5="),
    ("secret", "/usr/lib/python3.11/site-packages/UniJIS2004-UTF32-V"),
    ("secret", "ConvertV2ToBase64StringAsync and getHTTP2ConnectionV3Pool"),
    ("secret", "https://docs.example/document/d/1A8fK2mQ9xW4tRz8bNcL1yHs6pDfGk3aE/edit"),
    ("secret", "SGVsbG8gV29ybGQsIHRoaXMgaXMgdGV4dA=="),
    ("secret", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAa1Aa1"),
    ("national_id", "order 078051120"),
    ("national_id", "the virtual ID 1234567 of the VM"),
    ("national_id", "000-12-3456 and 912-12-3456 and 123-00-4567"),
    ("national_id", "110105194912310021"),
    ("national_id", "123456789012345678"),
    ("national_id", "invoice 86095742719"),
    ("national_id", "we sold 86 095 742 719 of them"),
    ("national_id", "part 12345678Z"),
    ("national_id", "2341 2341 2346 5000"),
    ("national_id", "columns 2341 2341 2346 of a table"),
    ("national_id", "52998224725"),
    ("national_id", "111.222.333-44"),
    ("national_id", "run 20240520-1030 and 240520-1030"),
    ("national_id", "900101-1234567"),
    ("national_id", "#W1234567 HAT136 4WQ150 credit_card_5565534"),
    ("national_id", "1790850000 1790850000123 1790850000123456 1790850000123456789"),
    ("national_id", "0.184127645108946 and 1.11010519491231002"),
    ("national_id", "<NATIONAL_ID_7f3a9c2e> 078051120"),
    ("email", "joe@localhost"),
    ("email", "@app.route"),
    ("email", "pkg@1.2.3"),
    ("card", "4111 1111 1111 1112"),
    ("card", "1790850000000000000"),
    ("card", "2024-05-20 2024-05-21"),
    ("card", "2023 2024 2025 2026"),
    ("card", "certificate_7504069"),
    ("card", "see https://www.facebook.com/groups/PDHeroes/posts/6756552897746791/ now"),
    ("card", "[post](https://www.facebook.com/groups/12/posts/6756552897746791)"),
    ("secret", "[Mega dream ex secret rares revealed](https://www.example.com/groups/1296352191593526/posts/1)"),
    ("secret", "https://example.com/revenue-up-16-pat-stood-at-rs-6-128-cr-11681384725551.html"),
    ("secret", "browse?type=lcsubc&key=United%20States%20%2D%2D%20History%20%2D%2D%20Civil%20War%2C"),
    ("phone", "goals reached during the 2020-2021 academic year"),
    ("phone", "reach me on 2024.05.06"),
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


@pytest.mark.parametrize(("kind", "text"), NO)
def test_what_only_looks_like_one_stays(kind: str, text: str) -> None:
    assert finds(kind, text) == []


def test_a_private_key_goes_whole() -> None:
    text = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\nb"
    assert finds("secret", text) == [text[2:-2]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        *(pytest.param(text, marks=pytest.mark.e2e) for text in ("a" * 100_000, "1 " * 50_000, ":" * 100_000)),
        "a-" * 50_000,
        "a.b@" * 25_000,
        "+1" * 50_000,
        "aB3" * 40_000,
        "1 23-" * 20_000,
    ],
)
def test_no_text_takes_long(text: str) -> None:
    for kind in {k.name for k in KINDS}:
        finds(kind, text)


def test_the_name_of_a_field_says_what_a_number_is() -> None:
    assert finds("national_id", "078051120", "ssn") == ["078051120"]
    assert finds("national_id", "86095742719", "taxId") == ["86095742719"]
    assert finds("national_id", "86095742719", "order_id") == []


def test_what_stands_under_the_name_of_an_id_is_one() -> None:
    for name in ("id", "response_id", "responseId", "thought_signature", "sha256"):
        assert finds("secret", "8jF3kQz0LmX2pVb7RtY5wN1cHs", name) == []
    assert finds("secret", "8jF3kQz0LmX2pVb7RtY5wN1cHs", "valid") != []


def test_names_that_announce_a_secret() -> None:
    random = "9f8e7d6c5b4a3210"
    for name in ("apiKey", "api_key", "x-api-key", "next_page_token", "AWS_SECRET_ACCESS_KEY", "stripeClientSecret"):
        assert in_field(name, random), name
    for name in ("max_tokens", "monkey", "task_key", "tokenizer", "keyword"):
        assert not in_field(name, random), name
    assert in_field("password", "hunter2")
    assert in_field("Set-Cookie", "sid=12345678")
    assert not in_field("password", "string")
    assert not in_field("api_key", "your-api-key")


def test_pseudonyms_are_recognised() -> None:
    assert re.fullmatch(PLACEHOLDER, "<EMAIL_7f3a9c2e>")
    assert re.fullmatch(PLACEHOLDER, "<NATIONAL_ID_7f3a9c2e>")
