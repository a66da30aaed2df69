"""Secrets and addresses in another writing: base64, hex, percent, entities, wide and invisible characters, words."""

from __future__ import annotations

import base64
import html
import json
import random
import urllib.parse
from collections.abc import Callable

from .made import ALNUM, DIGITS, Family, Made, chars, luhn, password, user

_WIDE = str.maketrans({chr(c): chr(c + 0xFEE0) for c in range(0x21, 0x7F)})


def _address(rng: random.Random) -> str:
    return f"{user(rng)}.{user(rng)}{chars(rng, DIGITS, 2)}@{rng.choice(('mail.example', 'corp.example.com'))}"


def _login(rng: random.Random) -> str:
    return f"{user(rng)}:{password(rng)}"


def _key(rng: random.Random) -> str:
    return rng.choice(
        (
            "sk-" + chars(rng, ALNUM, 40),
            "ghp_" + chars(rng, ALNUM, 36),
            "AKIA" + chars(rng, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16),
        )
    )


def _strong_login(rng: random.Random) -> str:
    return f"{user(rng)}:{chars(rng, ALNUM, 8)}{rng.choice('!#%')}{chars(rng, ALNUM, 6)}"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _percent(text: str) -> str:
    return "".join(f"%{ord(c):02X}" if not c.isalnum() else c for c in text)


def _percent_all(text: str) -> str:
    return "".join(f"%{ord(c):02x}" for c in text)


def _entities(text: str) -> str:
    return "".join(f"&#{ord(c)};" if c in "@.-_:" else c for c in text)


def _entities_all(text: str) -> str:
    return "".join(f"&#x{ord(c):x};" for c in text)


def _joined(text: str) -> str:
    return "\u200d".join(text[n : n + 3] for n in range(0, len(text), 3))


def _spaced(text: str) -> str:
    return "\u200b".join(text)


def _soft(text: str) -> str:
    return text[:4] + "\u00ad" + text[4:]


def _in(name: str, value: Callable[[random.Random], str], written: Callable[[str], str], *texts: str) -> Family:
    def make(rng: random.Random) -> Made:
        plain = value(rng)
        needle = written(plain)
        return Made(rng.choice(texts).replace("{}", needle), (needle, plain) if plain != needle else (needle,))

    return Family(name, "encoded", make)


def _card(rng: random.Random) -> str:
    return luhn("4" + chars(rng, DIGITS, 14))


def _sso(rng: random.Random) -> str:
    return (
        chars(rng, "12345678", 1)
        + chars(rng, "12345678", 2)
        + "-"
        + chars(rng, "12345678", 2)
        + "-"
        + chars(rng, "12345678", 4)
    )


_PLAIN = ("{}", "value {} here", "x = '{}'", "data: {}\nnext")


def _at_dot(form: str) -> Family:
    def make(rng: random.Random) -> Made:
        local, domain = (
            user(rng) + chars(rng, DIGITS, 2),
            rng.choice(("mail.example", "corp.example.com", "example.org")),
        )
        needle = form.format(
            local,
            domain.replace(
                ".",
                {"dot": " dot ", "[dot]": " [dot] ", "(dot)": "(dot)", "punkt": " punkt "}[
                    form.split("|")[1] if "|" in form else "dot"
                ],
            ),
        )
        needle = needle.split("|")[0]
        return Made(f"you can reach me at {needle}, thanks", (needle,))

    return Family(f"words {form}", "encoded", make)


def _quoted_local(rng: random.Random) -> Made:
    local = f"{user(rng)} {user(rng)}{chars(rng, DIGITS, 2)}"
    return Made(f'to: "{local}"@mail.example ok', (local, f'"{local}"@mail.example'))


def _config(rng: random.Random) -> Made:
    needle = password(rng)
    text = _base64(json.dumps({"host": "db", "password": needle, "port": 5432}))
    return Made(f"CONFIG={text}", (text, needle))


def _basic(rng: random.Random) -> Made:
    login = _login(rng)
    return Made(f"Authorization: Basic {_base64(login)}", (_base64(login), login.partition(":")[2]))


def _url_password(rng: random.Random) -> Made:
    needle = password(rng) + "/" + chars(rng, DIGITS, 2)
    text = urllib.parse.quote(needle, safe="")
    return Made(f"postgres://app:{text}@db.internal/x", (text, needle))


def _html_text(rng: random.Random) -> Made:
    needle = password(rng) + "&" + chars(rng, DIGITS, 2)
    return Made(f"<password>{html.escape(needle)}</password>", (html.escape(needle), needle))


ENCODED: tuple[Family, ...] = (
    _in("base64 key", _key, _base64, *_PLAIN),
    _in("base64 login", _strong_login, _base64, *_PLAIN),
    _in("base64 address", _address, _base64, *_PLAIN),
    _in("base64 twice", _key, lambda t: _base64(_base64(t)), *_PLAIN),
    _in(
        "base64 url",
        lambda r: f"password={password(r)}??>",
        lambda t: base64.urlsafe_b64encode(t.encode()).decode().rstrip("="),
        *_PLAIN,
    ),
    _in("hex key", _key, lambda t: t.encode().hex(), *_PLAIN),
    _in("hex login", _strong_login, lambda t: t.encode().hex(), *_PLAIN),
    _in("hex capitals", _key, lambda t: t.encode().hex().upper(), *_PLAIN),
    _in("percent address", _address, _percent, "{}", "https://x.example/?mail={}&a=1", "GET /u?e={} HTTP/1.1"),
    _in("percent all", _address, _percent_all, *_PLAIN),
    _in("percent key", _key, _percent, "https://x.example/?k={}&a=1"),
    _in(
        "percent twice",
        _address,
        lambda t: urllib.parse.quote(urllib.parse.quote(t, safe=""), safe=""),
        "https://x.example/?mail={}&a=1",
    ),
    _in("wide address", _address, lambda t: t.translate(_WIDE), *_PLAIN),
    _in("wide card", _card, lambda t: t.translate(_WIDE), *_PLAIN),
    _in("wide key", _key, lambda t: t.translate(_WIDE), *_PLAIN),
    _in("wide ssn", _sso, lambda t: t.translate(_WIDE), *_PLAIN),
    _in("joined address", _address, _joined, *_PLAIN),
    _in("joined key", _key, _joined, *_PLAIN),
    _in("joined card", _card, _spaced, *_PLAIN),
    _in("soft hyphen", _address, _soft, *_PLAIN),
    _in("entity address", _address, _entities, *_PLAIN),
    _in("entity all", _address, _entities_all, *_PLAIN),
    _in("escaped address", _address, lambda t: t.replace("@", "\\u0040"), *_PLAIN),
    _in("escaped hex", _address, lambda t: t.replace("@", "\\x40"), *_PLAIN),
    _at_dot("{} at {}"),
    _at_dot("{} [at] {}|[dot]"),
    _at_dot("{}(at){}|(dot)"),
    Family("quoted local", "encoded", _quoted_local),
    Family("base64 config", "encoded", _config),
    Family("basic", "encoded", _basic),
    Family("url password", "encoded", _url_password),
    Family("html password", "encoded", _html_text),
)
