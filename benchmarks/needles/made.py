"""What a family of needles is, and random passwords, keys and numbers to make them of."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from typing import Any, NamedTuple

LETTERS, DIGITS, HEX = string.ascii_letters, string.digits, "0123456789abcdef"
ALNUM = LETTERS + DIGITS
WORDS = (
    "amber", "basalt", "cobalt", "dahlia", "ember", "falcon", "garnet", "harbor", "indigo", "jasper", "kestrel",
    "lagoon", "meadow", "nectar", "orchid", "pepper", "quartz", "raven", "saffron", "timber", "umber", "velvet",
    "willow", "zephyr",
)  # fmt: skip


class Made(NamedTuple):
    """A text or JSON value, and what in it must be gone."""

    value: Any
    needles: tuple[str, ...]


class Family(NamedTuple):
    """A way in which needles occur. `group`: vendor, place, encoded or personal."""

    name: str
    group: str
    make: Callable[[random.Random], Made]


def chars(rng: random.Random, alphabet: str, count: int) -> str:
    """Return random characters; of letters and digits at least one each where there is room."""
    while True:
        text = "".join(rng.choices(alphabet, k=count))
        kinds = [k for k in (string.ascii_lowercase, string.ascii_uppercase, DIGITS) if set(k) & set(alphabet)]
        if count < 2 * len(kinds) or all(set(k) & set(text) for k in kinds):
            return text


def password(rng: random.Random) -> str:
    """Return a password without spaces or quotes, in one of the ways in which people and generators make them."""
    style = rng.randrange(6)
    if style == 0:
        return chars(rng, ALNUM, rng.randint(10, 20))
    if style == 1:
        return chars(rng, ALNUM + "!#%*+-._^~", rng.randint(12, 20)) + rng.choice(ALNUM)
    if style == 2:
        return rng.choice(WORDS).capitalize() + chars(rng, DIGITS, rng.randint(2, 4)) + rng.choice("!?*#")
    if style == 3:
        return "-".join(rng.sample(WORDS, 4))
    if style == 4:
        return chars(rng, string.ascii_lowercase, rng.randint(10, 16))
    return rng.choice(WORDS) + rng.choice(WORDS).capitalize() + chars(rng, DIGITS, 3)


def phrase(rng: random.Random) -> str:
    """Return a password with spaces."""
    return " ".join(rng.sample(WORDS, 4)) + " " + chars(rng, DIGITS, 2)


def token(rng: random.Random) -> str:
    """Return an opaque key."""
    return rng.choice((chars(rng, ALNUM, 32), chars(rng, HEX, 40), chars(rng, ALNUM + "-_", 40) + "x"))


def user(rng: random.Random) -> str:
    """Return a login."""
    return rng.choice(WORDS) + rng.choice(("", "_svc", ".admin", "01"))


def host(rng: random.Random) -> str:
    """Return a host's name."""
    return f"{rng.choice(WORDS)}.{rng.choice(('internal', 'example.com', 'corp.example'))}"


def template(name: str, group: str, text: str) -> Family:
    """Return the family of a text in which {pw}, {phrase}, {tok}, {user} and {host} are filled in."""

    def make(rng: random.Random) -> Made:
        parts = {"pw": password(rng), "phrase": phrase(rng), "tok": token(rng), "user": user(rng), "host": host(rng)}
        filled = text
        for key, part in parts.items():
            filled = filled.replace("{" + key + "}", part)
        return Made(filled, tuple(parts[key] for key in ("pw", "phrase", "tok") if "{" + key + "}" in text))

    return Family(name, group, make)


def packed(name: str, code: Callable[[str], str]) -> Family:
    """Return the family of environment files in a coding; a needle is the password, and all that is coded."""

    def make(rng: random.Random) -> Made:
        needle = rng.choice((password, token))(rng)
        coded = code(f"DB_PASSWORD={needle}\nDB_HOST=db1")
        return Made(rng.choice(("{}", "body: {}", "got {} back", '"{}"')).replace("{}", coded), (needle, coded))

    return Family(f"packed {name}", "encoded", make)


def structure(name: str, group: str, make: Callable[[str], Any], value: Callable[[random.Random], str]) -> Family:
    """Return the family of JSON values around one needle."""

    def made(rng: random.Random) -> Made:
        needle = value(rng)
        return Made(make(needle), (needle,))

    return Family(name, group, made)


def luhn(digits: str) -> str:
    """Return digits with Luhn's check digit."""
    total = sum(sum(divmod(int(d) * (2 - n % 2), 10)) for n, d in enumerate(reversed(digits)))
    return digits + str(-total % 10)
