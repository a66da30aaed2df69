"""The fifteenth set's encodings and numbers of people, and its strict look: texts are decoded and brought to one form.

Check digits are python-stdnum's, so that a number is one that its country could give.
"""

# ruff: noqa: RUF001 - texts in many languages
from __future__ import annotations

import base64
import binascii
import html
import json
import random
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, unquote

from stdnum import iban, luhn, verhoeff
from stdnum.br import cpf
from stdnum.cn import ric
from stdnum.de import idnr
from stdnum.es import dni
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.us import rtn

from .enumerated import FORMS, strong, varied
from .made import ALNUM, DIGITS, HEX, WORDS, Family, Made, chars, password, user

_SEED_WORDS = [
    "abandon",
    "ability",
    "able",
    "about",
    "above",
    "absent",
    "absorb",
    "abstract",
    "absurd",
    "abuse",
    "access",
    "accident",
    "account",
    "acid",
    "acoustic",
    "acquire",
    "across",
    "act",
    "action",
    "actor",
    "actress",
    "actual",
    "adapt",
    "add",
    "addict",
    "address",
    "adjust",
    "admit",
    "adult",
    "advance",
    "advice",
    "aerobic",
    "affair",
    "afford",
    "afraid",
    "again",
    "age",
    "agent",
    "agree",
    "ahead",
    "aim",
    "zebra",
    "zero",
    "zone",
    "zoo",
    "wrong",
    "yard",
    "year",
    "yellow",
    "young",
    "youth",
    "wreck",
    "wrestle",
    "wrist",
    "write",
    "voyage",
    "wage",
    "wagon",
    "wait",
    "walk",
    "wall",
    "walnut",
    "want",
    "warfare",
    "warm",
    "warrior",
    "wash",
    "wasp",
    "waste",
    "water",
    "wave",
    "way",
    "wealth",
    "weapon",
    "wear",
    "weasel",
    "weather",
    "web",
    "wedding",
]


def _wide(text: str) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


CODES: dict[str, Callable[[str], str]] = {
    "base64": _b64,
    "base64-bare": lambda t: _b64(t).rstrip("="),
    "base64-url": lambda t: base64.urlsafe_b64encode(t.encode()).decode(),
    "base64-lines": lambda t: "\n".join(_b64(t)[n : n + 24] for n in range(0, len(_b64(t)), 24)),
    "base64-twice": lambda t: _b64(_b64(t)),
    "base64-percent": lambda t: quote(_b64(t), safe=""),
    "base64-json": lambda t: _b64(json.dumps({"a": 1, "text": t})),
    "hex": lambda t: t.encode().hex(),
    "hex-upper": lambda t: t.encode().hex().upper(),
    "hex-0x": lambda t: "0x" + t.encode().hex(),
    "hex-colons": lambda t: t.encode().hex(":"),
    "hex-spaces": lambda t: t.encode().hex(" "),
    "hex-escapes": lambda t: "".join(f"\\x{byte:02x}" for byte in t.encode()),
    "percent": lambda t: quote(t, safe=""),
    "percent-all": lambda t: "".join(f"%{byte:02x}" for byte in t.encode()),
    "percent-twice": lambda t: quote(quote(t, safe=""), safe=""),
    "full-width": _wide,
    "zero-width": "\u200b".join,
    "zero-width-joiner": lambda t: t[: len(t) // 3] + "\u200d" + t[len(t) // 3 : 2 * len(t) // 3] + "\ufeff" + t[2 * len(t) // 3 :],
    "soft-hyphen": "\u00ad".join,
    "entities": lambda t: "".join(f"&#{ord(c)};" for c in t),
    "entities-hex": lambda t: "".join(f"&#x{ord(c):X};" for c in t),
    "entities-some": lambda t: "".join(f"&#{ord(c)};" if not c.isalnum() or n % 3 == 0 else c for n, c in enumerate(t)),
    "escapes": lambda t: "".join(f"\\u{ord(c):04x}" for c in t),
    "braces": lambda t: "".join(f"\\u{{{ord(c):x}}}" for c in t),
    "json-text": lambda t: json.dumps(json.dumps({"text": t})),
}  # fmt: skip
_AROUND = (
    "{}",
    "body: {}",
    "got {} back",
    '"{}"',
    "x={}&y=2",
    '{"data": "{}"}',
    "decoded {} and it works",
    "<v>{}</v>",
)


def _mail(rng: random.Random) -> str:
    return f"{chars(rng, 'abcdefghjkmnp', 6)}.{rng.choice(WORDS)}@{rng.choice(WORDS)}{rng.choice(('.com', '.example.org', '.co.uk', '.de', '.io'))}"


def _card(rng: random.Random) -> str:
    digits = rng.choice(("4", "51", "52", "55", "37", "6011"))
    digits += chars(rng, DIGITS, (14 if digits == "37" else 15) - len(digits))
    return digits + luhn.calc_check_digit(digits)


def _iban(rng: random.Random) -> str:
    land, body = rng.choice(
        (("DE", 18), ("GB", -14), ("FR", 23), ("ES", 20), ("NL", -10), ("AT", 16), ("CH", 17), ("BE", 12))
    )
    start = rng.choice(("NWBK", "BARC", "INGB", "ABNA")) if body < 0 else ""
    bban = start + chars(rng, DIGITS, abs(body))
    return land + iban.calc_check_digits(land + "00" + bban) + bban


def _secret(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    login, word, key = user(rng), rng.choice((password, strong))(rng), "ghp_" + chars(rng, ALNUM, 36)
    return rng.choice((
        (f"{login}:{word}", (word,)), (f"{login}:{word}", (word,)), (key, (key,)), (f"DB_PASSWORD={word}", (word,)), (f'{{"user":"{login}","password":"{word}"}}', (word,)), (f"password: {word}", (word,)),
        (f"https://{login}:{quote(word, safe='')}@db.example.com/x", (quote(word, safe=""),)), (f"AWS_SECRET_ACCESS_KEY={(aws := chars(rng, ALNUM, 40))}", (aws,)),
    ))  # fmt: skip


def _address(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    mail, card = _mail(rng), _card(rng)
    return rng.choice(
        (
            (mail, (mail,)),
            (f"mail {mail} please", (mail,)),
            (f"card {card}", (card,)),
            (f"{WORDS[0].title()} <{mail}>", (mail,)),
        )
    )


_CODED = re.compile(r"\[\[(\w+)\|(.*?)\]\]")


def _coded(name: str, of: str) -> Family:
    def make(rng: random.Random) -> Made:
        text, needles = (_secret if of == "secret" else _address)(rng)
        return Made(rng.choice(_AROUND).replace("{}", CODES[name](text)), needles)

    return Family(f"enumerated {name} of a {of}", "encoded", make)


def _named(name: str, form: str) -> Family:
    """Return the family of a coded password under a name."""

    def make(rng: random.Random) -> Made:
        made = varied(form, rng)
        code = _CODED.search(str(made.value))
        if code is None:
            raise ValueError(form)
        coder = {"b64": _b64, "hex": lambda t: t.encode().hex(), "percent": lambda t: quote(t, safe=""), "wide": _wide}[
            code[1]
        ]
        return Made(str(made.value).replace(code[0], coder(code[2])), made.needles)

    return Family(f"enumerated named {name}", "encoded", make)


_NAMED = {
    "basic": "Authorization: ⟦Basic¦basic¦BASIC⟧ [[b64|{user}:«{strong}»]]",
    "basic-curl": "curl -H 'Authorization: Basic [[b64|{user}:«{pw}»]]' https://{host}/",
    "basic-json": '{"headers": {"Authorization": "Basic [[b64|{user}:«{pw}»]]"}}',
    "docker-auth": '{"auths": {"{host}": {"auth": "[[b64|{user}:«{pw}»]]"}}}',
    "npm-auth": "_auth=[[b64|{user}:«{pw}»]]",
    "kubernetes": "apiVersion: v1\nkind: Secret\ndata:\n  username: YWRtaW4=\n  ⟦password¦db-pass¦token⟧: [[b64|«{pw}»]]",
    "kubernetes-json": '{"kind":"Secret","data":{"⟦password¦adminPassword⟧":"[[b64|«{strong}»]]"}}',
    "password-b64": "⟦password¦PASSWORD¦db_pass⟧⟦: ¦=⟧[[b64|«{pw}»]]",
    "said-b64": "the password in base64 is [[b64|«{pw}»]]",
    "echo-b64": "echo [[b64|{user}:«{pw}»]] | base64 -d",
    "atob": "atob('[[b64|{user}:«{pw}»]]')",
    "password-hex": "⟦password_hex¦password¦secret⟧⟦: ¦=⟧[[hex|«{pw}»]]",
    "said-hex": "password (hex): [[hex|«{pw}»]]",
    "login-hex": "⟦login¦credentials¦auth⟧=[[hex|{user}:«{pw}»]]",
    "percent-url": "postgres://{user}:[[percent|«{strong}»]]@{host}/shop",
    "percent-form": "user={user}&password=[[percent|«{strong}»]]&x=1",
    "percent-phrase": "login?pw=1&passwd=[[percent|«{phrase}»]]",
    "wide-password": "⟦password¦パスワード⟧：[[wide|«{pw}»]]",
}


def _spoken(rng: random.Random) -> Made:
    name, site, tld = (
        chars(rng, "abcdefghjkmnp", 6),
        rng.choice(WORDS) + chars(rng, "aeiou", 2),
        rng.choice(("com", "de", "org", "net", "io")),
    )
    at = rng.choice(
        (" at ", " AT ", " [at] ", " (at) ", "[at]", "(at)", " {at} ", " ät ", " @ ", "<at>", " -at- ", " arroba ")
    )
    dot = (
        rng.choice((" dot ", " DOT ", " [dot] ", " (dot) ", "[dot]", "(dot)", "."))
        if at not in {" ät ", " arroba "}
        else " punkt "
        if at == " ät "
        else " punto "
    )
    said = f"{name}{rng.choice((dot, '.', ''))}{'' if rng.randrange(2) else 'smith'}{at}{site}{dot}{tld}"
    return Made(
        rng.choice(("{}", "write to {} please", "my mail is {}", "Contact: {}", "Schreib an {} bitte")).replace(
            "{}", said
        ),
        (site + dot + tld,),
    )


def _quoted_local(rng: random.Random) -> Made:
    first, last = chars(rng, "abcdefghjkmnp", 5), rng.choice(WORDS)
    local = rng.choice(
        (
            f'"{first} {last}"',
            f'"{first}.{last}"',
            f'"{first}@{last}"',
            f'"{first}\\ {last}"',
            f"o'{first}",
            f"{first}+{last}",
            f"{first}!{last}",
        )
    )
    mail = f"{local}@{rng.choice(WORDS)}.example.com"
    return Made(
        rng.choice(("mail to {}", "<{}>", "{}", "to: {}, cc: none", "user {} signed in")).replace("{}", mail), (mail,)
    )


_WORD = {  # words that announce a number, by the language they are of
    "phone": ("call me at {}", "my number is {}", "Tel: {}", "phone {}", "Phone number: {}", "ring {} please", "mobile: {}", "reach me on {}", {"phone": "{}"}, {"phone_number": "{}"}, {"contact": {"mobile": "{}"}}, "cell {}", "text {} when done", "SMS to {}", "whatsapp {}", "fax: {}", "telephone={}", "T: {}"),
    "de": ("Tel. {}", "Telefon: {}", "ruf mich an unter {}", "meine Nummer ist {}", "Handy {}", "Rückruf unter {}", "erreichbar unter {}", "Mobil: {}", {"telefon": "{}"}, {"handynummer": "{}"}),
    "fr": ("Tél : {}", "appelez-moi au {}", "mon numéro est le {}", "portable {}", "téléphone: {}", {"telephone": "{}"}),
    "es": ("Tel. {}", "llámame al {}", "mi número es {}", "móvil: {}", "teléfono {}", {"telefono": "{}"}),
    "in": ("call me on {}", "mobile no {}", "Mob: {}", "my number {}", "contact no. {}", "फोन {}", {"mobile": "{}"}),
    "jp": ("電話番号：{}", "携帯 {}", "TEL {}", "電話は{}です", {"電話": "{}"}),
    "br": ("telefone: {}", "meu celular é {}", "ligue para {}", "whatsapp {}", "fone {}", {"celular": "{}"}),
    "cn": ("手机号：{}", "电话 {}", "联系电话{}", "我的手机是{}", "微信同号 {}", {"手机": "{}"}),
    "bare": ("{}", "it's {}, thanks", "Anna Becker, {}", "you can use {} instead", "({})"),
    "card": ("card {}", "{}", "my card number is {}", "Kreditkarte {}", "charge {} please", {"card_number": "{}"}, "cc: {} 12/27", "carte {}", "tarjeta {}"),
    "iban": ("IBAN {}", "{}", "iban: {}", "bitte auf {} überweisen", {"iban": "{}"}, "account {}", "Konto {}"),
    "ssn": ("SSN {}", "my social security number is {}", "ssn: {}", "Social Security No. {}", {"ssn": "{}"}, "SSN#{}", "social: {}"),
    "ip": ("from {}", "connect to {} failed", "client={}", "{}", "host {} is down", {"ip": "{}"}, "src {} dst 0.0.0.0"),
    "mac": ("MAC {}", "{}", "ether {} txqueuelen 1000", "hwaddr={}", {"mac": "{}"}, "device {} joined"),
}  # fmt: skip


def _number(name: str, make: Callable[[random.Random], str], words: str | tuple[Any, ...]) -> Family:
    sentences = _WORD[words] if isinstance(words, str) else words

    def made(rng: random.Random) -> Made:
        number = make(rng)
        filled = json.dumps(rng.choice(sentences), ensure_ascii=False).replace(
            "{}", json.dumps(number, ensure_ascii=False)[1:-1]
        )
        return Made(json.loads(filled), (number,))

    return Family(f"enumerated {name}", "personal", made)


def _shape(*shapes: str) -> Callable[[random.Random], str]:
    """Return what fills a shape: N a digit, Z one but 0 and 1, A a capital letter, x hex."""
    classes = {"N": DIGITS, "Z": "23456789", "A": "ABCDEFGHJKLMNPRSTUVWXYZ", "x": HEX}
    return lambda rng: "".join(rng.choice(classes[c]) if c in classes else c for c in rng.choice(shapes))


def _spaced(make: Callable[[random.Random], str], *joints: str) -> Callable[[random.Random], str]:
    def made(rng: random.Random) -> str:
        number, joint = make(rng), rng.choice(joints)
        number = number.lower() if joint == "lower" else number
        joint = "" if joint == "lower" else joint
        return joint.join(number[n : n + 4] for n in range(0, len(number), 4))

    return made


def _ssn(rng: random.Random) -> tuple[str, str, str]:
    return str(rng.randint(100, 665)), f"{rng.randint(1, 99):02d}", f"{rng.randint(1, 9999):04d}"


def _dashed_host(rng: random.Random) -> str:
    parts = [str(rng.randint(20, 250)) for _ in range(4)]
    return rng.choice(
        (
            "ip-{}.ec2.internal",
            "ec2-{}.compute-1.amazonaws.com",
            "{}.dynamic.example.net",
            "host-{}.isp.example",
            "p{}.dip0.t-ipconnect.de",
            "ip-{}",
            "cpe-{}.example.com",
        )
    ).replace("{}", "-".join(parts))


def _mapped(rng: random.Random) -> str:
    parts = [rng.randint(20, 250) for _ in range(4)]
    dotted = ".".join(map(str, parts))
    return rng.choice(
        (
            f"::ffff:{dotted}",
            f"::FFFF:{dotted}",
            f"[::ffff:{dotted}]",
            f"0:0:0:0:0:ffff:{dotted}",
            f"::ffff:{parts[0]:02x}{parts[1]:02x}:{parts[2]:02x}{parts[3]:02x}",
            f"64:ff9b::{dotted}",
        )
    )


def _seed(rng: random.Random) -> str:
    return rng.choice((" ", " ", "  ", "\n", ", ")).join(rng.sample(_SEED_WORDS, rng.choice((12, 12, 24))))


def _valid(register: Any, *shapes: str) -> Callable[[random.Random], str]:
    """Return what fills a shape so that the register's check holds."""
    make = _shape(*shapes)
    return lambda rng: next(number for number in iter(lambda: make(rng), "") if register.is_valid(number))


_PHONES = {
    "us plain": (_shape("ZNNZNNNNNN", "1ZNNZNNNNNN", "+1ZNNZNNNNNN"), "phone"), "us": (_shape("(ZNN) ZNN-NNNN", "ZNN-ZNN-NNNN", "ZNN.ZNN.NNNN", "ZNN ZNN NNNN", "1-ZNN-ZNN-NNNN", "(ZNN)ZNN-NNNN", "ZNN/ZNN-NNNN", "+1 (ZNN) ZNN-NNNN", "1 ZNN ZNN NNNN"), "phone"),
    "us bare": (_shape("(ZNN) ZNN-NNNN", "ZNN-ZNN-NNNN", "ZNN.ZNN.NNNN", "+1 ZNN ZNN NNNN"), "bare"), "uk": (_shape("07NNN NNNNNN", "07NNN NNN NNN", "07NNNNNNNNN", "020 7NNN NNNN", "(020) 7NNN NNNN", "0161 NNN NNNN", "01ZNN NNNNNN", "0044 7NNN NNNNNN", "+44 (0)20 7NNN NNNN", "0800 NNN NNNN"), "phone"),
    "uk bare": (_shape("07NNN NNNNNN", "020 7NNN NNNN", "07NNN NNN NNN", "+447NNNNNNNNN"), "bare"), "de": (_shape("030 NNNNNNN", "0171 NNNNNNN", "0171/NNNNNNN", "089-NNNNNNN", "0171NNNNNNN", "(030) NNN NNN NN", "0049 171 NNNNNNN", "0049171NNNNNNNN", "+49 (0)30 NNNNNNN", "040/NN NN NN NN", "0221 / NN NN NNN", "0151-NNNNNNNN", "0049-30-NNNNNNN"), "de"),
    "de bare": (_shape("0171 NNNNNNN", "0171/NNNNNNN", "030/NNNNNNN", "0049 171 NNNNNNN", "0049171NNNNNNNN"), "bare"), "fr": (_shape("06 NN NN NN NN", "01.NN.NN.NN.NN", "06-NN-NN-NN-NN", "07NNNNNNNN", "0033 6 NN NN NN NN", "+33 (0)6 NN NN NN NN"), "fr"), "fr bare": (_shape("06 NN NN NN NN", "01.NN.NN.NN.NN", "+33 6 NN NN NN NN"), "bare"),
    "es": (_shape("6NN NNN NNN", "6NN NN NN NN", "6NNNNNNNN", "91 NNN NN NN", "0034 6NN NNN NNN", "9NN-NNN-NNN", "7NN.NNN.NNN"), "es"), "es bare": (_shape("6NN NN NN NN", "+34 6NN NNN NNN", "6NN NNN NNN"), "bare"),
    "in": (_shape("9NNNN NNNNN", "98NNNNNNNN", "09NNNNNNNNN", "0091 9NNNN NNNNN", "+91-9NNNNNNNNN", "080-ZNNN NNNN", "91 9NNNN NNNNN", "8NNN NNN NNN"), "in"), "in bare": (_shape("9NNNN NNNNN", "+91 9NNNN NNNNN", "+91-9NNNNNNNNN"), "bare"),
    "jp": (_shape("090-NNNN-NNNN", "03-NNNN-NNNN", "080NNNNNNNN", "０９０-NNNN-NNNN", "(03) NNNN-NNNN", "0120-NNN-NNN", "06 NNNN NNNN", "0081 90 NNNN NNNN"), "jp"), "jp bare": (_shape("090-NNNN-NNNN", "03-NNNN-NNNN"), "bare"),
    "br": (_shape("(11) 9NNNN-NNNN", "11 9NNNN-NNNN", "119NNNNNNNN", "(21) NNNN-NNNN", "0055 11 9NNNN NNNN", "(11)9NNNN-NNNN", "11 9NNNN NNNN"), "br"), "br bare": (_shape("(11) 9NNNN-NNNN", "+55 11 9NNNN-NNNN", "(21) 9NNNN-NNNN"), "bare"),
    "cn": (_shape("138NNNNNNNN", "139 NNNN NNNN", "186-NNNN-NNNN", "010-NNNNNNNN", "0086 138NNNNNNNN", "021 NNNN NNNN", "86-138-NNNN-NNNN"), "cn"), "cn bare": (_shape("138 NNNN NNNN", "186-NNNN-NNNN", "+86 138 NNNN NNNN"), "bare"),
    "00": (_shape("0049NNNNNNNNNN", "0049 NNN NNNNNNN", "0043 664 NNNNNNN", "0041 79 NNN NN NN", "0033NNNNNNNNN", "0044 7NNN NNNNNN", "001 ZNN ZNN NNNN", "0031-6-NNNNNNNN"), "phone"), "00 bare": (_shape("0049 NNN NNNNNNN", "0043 664 NNNNNNN", "0041 79 NNN NN NN", "0049NNNNNNNNNN"), "bare"),
}  # fmt: skip
_JOINTS = (" ", "-", ".", "\u00a0", "  ", "\u202f", "", "\u2013", "\u2011", "_", "/")
_CHECKED: dict[str, tuple[Callable[[random.Random], str], str | tuple[Any, ...]]] = {
    "card": (_spaced(_card, *_JOINTS), "card"), "iban": (_spaced(_iban, " ", "", ".", "\u00a0", "  ", "lower", "\u202f", "-"), "iban"), "iban lower spaced": (lambda r: _spaced(_iban, " ", ".", "\u00a0")(r).lower(), "iban"),
    "ssn": (lambda r: r.choice((".", "\u2013", "\u2011", " ", "-", "", "\u2212", "\u00a0", "/", "  ")).join(_ssn(r)), "ssn"), "ssn bare": (lambda r: r.choice(("-", "\u2013", "\u2011", "\u2010")).join(_ssn(r)), ("{}", "Anna Becker {}", "({})")),
    "mapped": (_mapped, "ip"), "dashed": (_dashed_host, "ip"), "ipv4": (lambda r: ".".join(str(r.randint(20, 250)) for _ in range(4)), "ip"), "ipv6": (_shape("2a02:810:xxxx:xxxx::xx", "2a02:8109:xxxx:xxxx:xxxx:xxxx:xxxx:xxxx", "fe80::xxxx:xxxx:xxxx:xxxx"), "ip"),
    "mac": (_shape("xx:xx:xx:xx:xx:xx", "xx-xx-xx-xx-xx-xx", "xxxx.xxxx.xxxx", "aa:bb:cc:xx:xx:xx"), "mac"), "mac upper": (lambda r: _shape("xx:xx:xx:xx:xx:xx", "xx-xx-xx-xx-xx-xx")(r).upper(), "mac"), "mac plain": (_shape("xxxxxxxxxxxx"), ("MAC address {}", {"mac_address": "{}"}, "mac={}")),
    "pan": (_shape("AAAPANNNNA", "AAAPA NNNN A"), ("PAN {}", "my PAN card number is {}", "pan: {}", {"pan": "{}"}, "PAN no. {}", "पैन {}", "PAN: {} (verified)")), "aadhaar": (_spaced(_valid(verhoeff, "ZNNNNNNNNNNN"), " ", "", "-"), ("Aadhaar {}", "aadhar no: {}", "UIDAI {}", {"aadhaar": "{}"}, "आधार {}")),
    "passport": (_shape("NNNNNNNNN", "ANNNNNNNN", "ANNNNNNN", "AANNNNNNN", "C01X00T47", "NNAANNNNN"), ("passport {}", "Passport No. {}", "my passport number is {}", "Reisepass {}", "Passnummer: {}", "passeport n° {}", "pasaporte {}", {"passport_number": "{}"}, {"passport": "{}"}, "passport #{}", "護照 {}", "护照号码：{}", "passaporte: {}", "Reisepassnummer {}", "travel document no. {}")),
    "licence": (_shape("ANNNNNNN", "ANNN-NNNN-NNNN", "NNNNNNNN", "BNNNAANNNNA", "AAAAA NNNNNN AA9AA", "NNN NNN NNN"), ("driver's license {}", "driving licence no. {}", "DL {}", "Driver License Number: {}", "Führerschein {}", "Führerscheinnummer: {}", "permis de conduire {}", "license number {}", {"driver_license": "{}"}, {"drivers_licence_no": "{}"}, "DL# {}", "licencia de conducir {}", "drivers license: {}")),
    "routing": (_valid(rtn, "021NNNNNN", "111NNNNNN", "322NNNNNN"), ("routing number {}", "Routing: {}", "ABA {}", "routing no. {} account 12", "RTN {}", {"routing_number": "{}"}, "bank routing {}", "ABA routing #{}", "aba: {}")),
    "account": (_shape("NNNNNNNNNN", "NNNN NNNN NN", "NNNNNNNN"), ("account number {}", "bank account {}", "Kontonummer {}", "sort code 20-00-00 account {}", {"account_number": "{}"}, "acct no. {} at Chase bank", "numéro de compte {}")), "sort": (_shape("NN-NN-NN"), ("sort code {}", "Sort Code: {}", {"sort_code": "{}"})), "swift": (_shape("AAAADEFFNNN", "AAAAGB2L", "AAAAUS33"), ("BIC {}", "SWIFT code: {}", {"bic": "{}"})),
    "nhs": (_valid(nhs, "NNNNNNNNNN", "NNN NNN NNNN"), ("NHS number {}", "nhs no: {}", {"nhs_number": "{}"})), "nino": (_shape("AB NN NN NN C", "JGNNNNNNA", "CE NNNNNN B"), ("National Insurance number {}", "NI no. {}", "NINO: {}", {"ni_number": "{}"})),
    "steuer-id": (_valid(idnr, "ZNNNNNNNNNN", "ZN NNN NNN NNN"), ("Steuer-ID {}", "IdNr. {}", "Steueridentifikationsnummer: {}", "meine Steuernummer ist {}", {"steuer_id": "{}"})), "svnr": (_shape("65NN0175A003", "12 NN0182 B 012"), ("Sozialversicherungsnummer {}", "SV-Nummer: {}", "Rentenversicherungsnummer {}")),
    "personalausweis": (_shape("L01X00T47A", "CNNXNNANNN", "TNNNNNNNN4"), ("Personalausweis {}", "Ausweisnummer: {}", "Personalausweisnr. {}")), "nir": (_valid(nir, "1850978006NNNNN", "2 91 02 75 056 NNN NN"), ("numéro de sécurité sociale {}", "NIR : {}", "sécu {}")),
    "dni": (_valid(dni, "NNNNNNNNA", "NNNNNNNN-A"), ("DNI {}", "mi DNI es {}", "NIF: {}", {"dni": "{}"})), "cpf": (_valid(cpf, "NNN.NNN.NNN-NN"), ("CPF {}", "{}", "meu cpf é {}", {"cpf": "{}"})),
    "ric": (_valid(ric, "11010119740321NNNN", "31010519880715NNNN"), ("身份证号：{}", "身份证 {}", "{}", {"id_card": "{}"})), "seed": (_seed, ("seed phrase: {}", "my recovery phrase is {}", "{}", 'mnemonic = "{}"', "wallet words: {}", {"mnemonic": "{}"}, {"seed_phrase": "{}"}, "BIP39: {}", "backup phrase\n{}", "Meine Seed-Phrase lautet {}")),
    "imei": (_valid(luhn, "35NNNNNNNNNNNNN"), ("IMEI {}", "imei: {}", {"imei": "{}"})), "plus": (_shape("+49NNNNNNNNNN", "+44 7NNN NNNNNN", "+33 6 NN NN NN NN", "+81-90-NNNN-NNNN", "+5511 9NNNN-NNNN", "+86 138NNNNNNNN", "+34 6NN NNN NNN", "+91 9NNNN NNNNN"), "bare"),
}  # fmt: skip

FIFTEENTH = (
    *FORMS,
    *(_coded(name, of) for of in ("secret", "address") for name in CODES),
    *(_named(name, form) for name, form in _NAMED.items()),
    Family("enumerated spoken address", "encoded", _spoken),
    Family("enumerated quoted local part", "encoded", _quoted_local),
    *(_number(f"phone {name}", *given) for name, given in _PHONES.items()),
    *(_number(name, *given) for name, given in _CHECKED.items()),
)

_RUNS = re.compile(r"[A-Za-z0-9+/_-]{12,}={0,2}")
_HEX_RUNS = re.compile(r"(?:(?:0x|\\x|[: ])?[0-9A-Fa-f]{2}){6,}")
_ESCAPES = re.compile(r"\\+u\{?([0-9a-fA-F]{2,4})\}?")


def readings(text: str, depth: int = 3) -> Iterator[str]:
    """Yield a text as it is, normalised, and what can be decoded in it."""
    plain = unicodedata.normalize("NFKC", html.unescape(text.replace("\\n", "\n")))
    plain = "".join(c for c in plain if unicodedata.category(c) != "Cf")
    yield plain
    if depth:
        for other in {unquote(plain), _ESCAPES.sub(lambda m: chr(int(m[1], 16)), plain)} - {plain}:
            yield from readings(other, depth - 1)
        for line in {plain, plain.replace("\n", "").replace("\\n", "")}:
            for run in _RUNS.findall(line):
                coded = run.translate({45: "+", 95: "/"}).rstrip("=")
                for start in range(4):
                    yield from _bytes(
                        binascii.a2b_base64,
                        coded[start:][: len(coded[start:]) // 4 * 4] if start else coded + "=" * (-len(coded) % 4),
                        depth,
                    )
            for run in _HEX_RUNS.findall(line):
                yield from _bytes(binascii.unhexlify, re.sub(r"0x|\\x|[: ]", "", run), depth)


def _bytes(decode: Callable[[str], bytes], coded: str, depth: int) -> Iterator[str]:
    try:
        text = decode(coded).decode()
    except ValueError:
        return
    if text.isprintable() or "\n" in text:
        yield from readings(text, depth - 1)


def stays(needle: str, text: str) -> bool:
    """Whether two thirds of a needle can be read in a text, decoded and normalised; of a number, whether its digits can."""
    plain = next(readings(needle, 0))
    least = -(-len(plain) * 2 // 3)
    pieces = {plain[n : n + least] for n in range(len(plain) - least + 1)}
    digits = re.sub(r"\D", "", plain)
    number = len(digits) > 7 and len(digits) > len(re.sub(r"\W", "", plain)) - 4
    for reading in readings(text):
        if any(piece in reading for piece in pieces) or (number and digits in re.sub(r"\D", "", reading)):
            return True
    return False
