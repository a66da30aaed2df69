"""Personal data: numbers with a checksum in every spacing, numbers next to their word, addresses of machines."""

from __future__ import annotations

import random
from collections.abc import Callable

from .made import DIGITS, HEX, WORDS, Family, Made, chars, luhn, user

_PHONES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "us": (("{3}{2}{7}", "{3}-{2}-{4}", "({3}) {3}-{4}", "{3}.{3}.{4}", "+1 {3} {3} {4}", "1-{3}-{3}-{4}", "{3} {3} {4}"), ("phone", "Call me at", "my number is", "cell:")),
    "uk": (("020 7{3} {4}", "07{3} {6}", "07{9}", "(020) 7{3} {4}", "+44 20 7{3} {4}", "0161 {3} {4}"), ("mobile", "tel:", "phone")),
    "de": (("030 {8}", "030/{7}", "0171 {7}", "0151-{8}", "(089) {6}", "+49 171 {7}", "0049 171 {7}", "0049171{7}"), ("Telefon", "Handy:", "Tel.", "ruf mich an unter")),
    "fr": (("01 {2} {2} {2} {2}", "06.{2}.{2}.{2}.{2}", "06{8}", "+33 6 {2} {2} {2} {2}"), ("téléphone", "tél :", "portable")),
    "es": (("6{2} {3} {3}", "91 {3} {2} {2}", "6{8}", "+34 6{2} {3} {3}"), ("teléfono", "móvil:", "phone")),
    "in": (("98{3} {5}", "9{9}", "+91 98{3} {5}", "0{2}-{8}"), ("mobile", "phone no.", "WhatsApp")),
    "jp": (("090-{4}-{4}", "03-{4}-{4}", "+81 90-{4}-{4}"), ("電話", "phone", "携帯:")),
    "br": (("(11) 9{4}-{4}", "11 9{4}-{4}", "119{8}", "+55 11 9{4}-{4}"), ("telefone", "celular:", "WhatsApp")),
    "cn": (("138 {4} {4}", "138{8}", "+86 138 {4} {4}", "010-{8}"), ("手机", "电话:", "phone")),
}  # fmt: skip
_GAPS = ("", " ", "-", ".", "\u00a0", "  ", "\u202f")
_IBANS = {
    "DE": "d18",
    "FR": "d10n11d2",
    "GB": "U4d14",
    "ES": "d20",
    "NL": "U4d10",
    "CH": "d5d12",
    "IT": "U1d10d12",
    "PL": "d24",
}
_SSN_GAPS = ("-", " ", ".", "\u2013", "\u2011", "\u2212", "\u00a0")


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choices("23456789", k=1)) + "".join(rng.choices(DIGITS, k=count - 1))


def _filled(rng: random.Random, form: str) -> str:
    for count in DIGITS:
        while f"{{{count}}}" in form:
            form = form.replace(f"{{{count}}}", _digits(rng, int(count)), 1)
    return form


def _phone(country: str, form: str) -> Family:
    words = _PHONES[country][1]

    def make(rng: random.Random) -> Made:
        needle = _filled(rng, form)
        if rng.randrange(4) == 0:
            return Made(
                {rng.choice(("phone", "mobile_number", "contactPhone", "telephone")): needle, "city": "x"}, (needle,)
            )
        return Made(f"{rng.choice(words)} {needle}" + rng.choice(("", ".", ", thanks", "\nbye")), (needle,))

    return Family(f"phone {country} {form}", "personal", make)


def _card(rng: random.Random) -> Made:
    start = rng.choice(("4", "51", "55", "2221", "34", "37", "6011", "36"))
    size = {"34": 15, "37": 15, "36": 14}.get(start, 16)
    number = luhn(start + chars(rng, DIGITS, size - len(start) - 1))
    gap = rng.choice(_GAPS)
    groups = (4, 6, 5) if size == 15 else (4, 6, 4) if size == 14 else (4, 4, 4, 4)
    parts, at = [], 0
    for group in groups:
        parts.append(number[at : at + group])
        at += group
    needle = gap.join(parts)
    return Made(rng.choice(("{}", "card {} exp 09/29", "pay with {}.", "'{}'")).format(needle), (needle,))


def _iban(rng: random.Random) -> Made:
    country = rng.choice(list(_IBANS))
    form, body = _IBANS[country], ""
    for part in form.replace("d", " d").replace("n", " n").replace("U", " U").split():
        body += chars(rng, {"d": DIGITS, "n": DIGITS + "ABCDEF", "U": "ABCDEFGHKLM"}[part[0]], int(part[1:]))
    value = "".join(str(int(c, 36)) for c in body + country + "00")
    text = f"{country}{98 - int(value) % 97:02d}{body}"
    text = text.lower() if rng.randrange(3) == 0 else text
    gap = rng.choice(_GAPS)
    needle = gap.join(text[n : n + 4] for n in range(0, len(text), 4))
    return Made(rng.choice(("{}", "IBAN {} bitte", "pay to {}.", "iban={}")).format(needle), (needle,))


def _ssn(rng: random.Random) -> Made:
    gap = rng.choice(_SSN_GAPS)
    needle = f"{rng.randint(100, 599)}{gap}{rng.randint(10, 99)}{gap}{rng.randint(1000, 9999)}"
    return Made(rng.choice(("SSN {}", "my social security number is {}", "ssn: {}")).format(needle), (needle,))


def _beside(name: str, value: Callable[[random.Random], str], *texts: str) -> Family:
    def make(rng: random.Random) -> Made:
        needle = value(rng)
        return Made(rng.choice(texts).replace("{}", needle), (needle,))

    return Family(name, "personal", make)


def _routing(rng: random.Random) -> str:
    while True:
        digits = rng.choice(("01", "02", "03", "11", "12", "26", "31")) + chars(rng, DIGITS, 7)
        if sum(int(d) * w for d, w in zip(digits, (3, 7, 1) * 3, strict=True)) % 10 == 0:
            return digits


def _mac(rng: random.Random) -> str:
    parts = [f"{rng.randrange(256):02x}" for _ in range(6)]
    return rng.choice(
        (
            ":".join(parts),
            "-".join(parts).upper(),
            ":".join(parts).upper(),
            ".".join(a + b for a, b in zip(parts[::2], parts[1::2], strict=True)),
        )
    )


def _pan(rng: random.Random) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return (
        chars(rng, letters, 3)
        + rng.choice("PCHFATBLJG")
        + chars(rng, letters, 1)
        + chars(rng, DIGITS, 4)
        + chars(rng, letters, 1)
    )


def _ip(rng: random.Random) -> str:
    return f"{rng.randint(11, 223)}.{rng.randint(0, 255)}.{rng.randint(0, 255)}.{rng.randint(40, 254)}"


def _seed(rng: random.Random) -> Made:
    # The first 24 of the 2048 words of BIP-39 would do; these are some, so that the list is in one place only.
    words = ["abandon", "ability", "able", "about", "above", "absent", "absorb", "abstract", "absurd", "abuse", "access", "accident", "zone", "zoo", "zebra", "year", "wrist", "wrong", "yellow", "young", "worth", "wreck", "wrestle", "write", "winter", "wisdom", "vivid", "voice", "volume", "vote", "voyage", "wage"]  # fmt: skip
    needle = " ".join(rng.choices(words, k=rng.choice((12, 24))))
    return Made(
        rng.choice(("my seed phrase is {}", "recovery phrase: {}", "mnemonic = '{}'", "wallet words: {}")).format(
            needle
        ),
        (needle,),
    )


def _quoted(rng: random.Random) -> Made:
    needle = f"{user(rng)}{chars(rng, DIGITS, 2)}@{rng.choice(WORDS)}.example"
    return Made(rng.choice(("'{}'", '"{}"', "<{}>", "mailto:{}", "({})", "{},x", "o'{}'")).format(needle), (needle,))


def _mapped(rng: random.Random) -> Made:
    ip = _ip(rng)
    octets = [int(o) for o in ip.split(".")]
    short = f"::ffff:{octets[0]:02x}{octets[1]:02x}:{octets[2]:02x}{octets[3]:02x}"
    needle = rng.choice((f"::ffff:{ip}", short))
    return Made(f"from [{needle}]:443 ok", (needle,))


def _dashed(rng: random.Random) -> Made:
    needle = _ip(rng).replace(".", "-")
    return Made(
        rng.choice(("ip-{}.ec2.internal", "ec2-{}.compute-1.amazonaws.com", "pool-{}.isp.example")).format(needle),
        (needle,),
    )


PERSONAL: tuple[Family, ...] = (
    *(_phone(country, form) for country, (forms, _) in _PHONES.items() for form in forms),
    Family("card", "personal", _card),
    Family("iban", "personal", _iban),
    Family("ssn", "personal", _ssn),
    Family("quoted address", "personal", _quoted),
    Family("seed phrase", "personal", _seed),
    Family("mapped ip", "personal", _mapped),
    Family("dashed ip", "personal", _dashed),
    _beside("ip", _ip, "from {} port 22", "host {}", "ping {}", "http://{}:8080/x", "client={}"),
    _beside("mac", _mac, "ether {} txqueuelen 1000", "MAC: {}", "device {} joined"),
    _beside("pan", _pan, "PAN: {}", "my PAN card is {}", "pan number {}"),
    _beside(
        "passport",
        lambda r: chars(r, "ABCDEFGHJKLMN", 1) + chars(r, DIGITS, 8),
        "passport number {}",
        "Passport No: {}",
        "Reisepass {}",
    ),
    _beside(
        "passport de", lambda r: "C" + chars(r, "CFGHJKLMNPRTVWXYZ" + DIGITS, 8), "my passport is {}", "Passnummer: {}"
    ),
    _beside("passport us", lambda r: chars(r, DIGITS, 9), "passport # {}", "US passport {}"),
    _beside(
        "licence",
        lambda r: chars(r, "ABCDEFGHJKLMN", 1) + chars(r, DIGITS, rng_size(r)),
        "driver's license {}",
        "driving licence no {}",
        "DL number: {}",
        "Führerschein {}",
    ),
    _beside("routing", _routing, "routing number {}", "ABA {}", "routing: {}", "RTN {}"),
    _beside("key eth", lambda r: chars(r, HEX, 64), "ethereum private key {}", "wallet private key: {}"),
    _beside("account", lambda r: chars(r, DIGITS, 10), "account number {}, routing below", "bank account no. {}"),
)


def rng_size(rng: random.Random) -> int:
    """Return how many digits a driving licence has."""
    return rng.choice((7, 8, 12))
