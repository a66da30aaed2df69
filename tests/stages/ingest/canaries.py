"""Made-up personal data and secrets, valid by their checksums, and where in a record to plant them.

A canary is a text to plant and the part of it that nobody may find again. The same seed gives the same canaries, and no
canary twice.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

WORDS = string.ascii_letters + string.digits


@dataclass(frozen=True)
class Canary:
    """What is planted, and the part that has to go."""

    kind: str
    text: str
    secret: str


def _some(rng: random.Random, count: int, letters: str = WORDS) -> str:
    return "".join(rng.choices(letters, k=count))


def _token(rng: random.Random, count: int) -> str:
    """Return what looks random for sure: letters of both cases and digits."""
    return f"{_some(rng, count - 4)}{_some(rng, 2, string.digits)}{_some(rng, 1, 'qwxz')}{_some(rng, 1, 'JKVX')}"


def _secret(rng: random.Random) -> tuple[str, str]:
    made = rng.randrange(13)
    bare = (
        f"sk-proj-{_token(rng, 32)}",
        f"ghp_{_token(rng, 36)}",
        f"AKIA{_some(rng, 16, string.ascii_uppercase + string.digits)}",
        f"xoxb-{_some(rng, 11, string.digits)}-{_token(rng, 20)}",
        f"AIza{_token(rng, 35)}",
        f"hf_{_token(rng, 34)}",
        f"npm_{_token(rng, 36)}",
        f"glpat-{_token(rng, 20)}",
        f"eyJ{_token(rng, 20)}.eyJ{_token(rng, 30)}.{_token(rng, 43)}",
        f"sk_live_{_token(rng, 24)}",
    )
    if made < len(bare):
        return bare[made], bare[made]
    inside = _token(rng, 24)
    around = ("Authorization: Bearer {}", "https://admin:{}@db.example.org/x", "password={}")
    return around[made - len(bare)].format(inside), inside


def _email(rng: random.Random) -> tuple[str, str]:
    name = f"{_some(rng, 6, string.ascii_lowercase)}{rng.choice('._-+')}{_some(rng, 7, string.ascii_lowercase)}"
    made = f"{name}@{_some(rng, 8, string.ascii_lowercase)}.{rng.choice(['com', 'co.uk', 'de', 'io'])}"
    return made, made


def _phone(rng: random.Random) -> tuple[str, str]:
    rest, two = _some(rng, 7, string.digits), _some(rng, 2, string.digits)
    made = rng.choice([f"+4915{two}{rest}", f"+49 89 {rest}", f"+1 (4{two}) 5{rest[:2]}-{rest[3:]}"])
    return made, made


def _luhn(digits: str) -> str:
    total = sum(sum(divmod(2 * int(d), 10)) if n % 2 == 0 else int(d) for n, d in enumerate(digits[::-1]))
    return f"{digits}{-total % 10}"


def _card(rng: random.Random) -> tuple[str, str]:
    digits = _luhn(rng.choice(["4", "51", "2720", "6011"]).ljust(4, "7") + _some(rng, 11, string.digits))
    gap = rng.choice(["", " ", "-"])
    made = gap.join(digits[n : n + 4] for n in range(0, 16, 4))
    return made, made


def _iban(rng: random.Random) -> tuple[str, str]:
    country, length = rng.choice([("DE", 18), ("NL", 14), ("FR", 23)])
    inside = f"ABNA{_some(rng, 10, string.digits)}" if country == "NL" else _some(rng, length, string.digits)
    number = int("".join(str(int(c, 36)) for c in f"{inside}{country}00"))
    whole = f"{country}{98 - number % 97:02d}{inside}"
    made = " ".join(whole[n : n + 4] for n in range(0, len(whole), 4)) if rng.random() < 0.4 else whole
    return made, made


def _ip(rng: random.Random) -> tuple[str, str]:
    if rng.random() < 0.5:
        made = ".".join(str(rng.randrange(least, 120)) for least in (20, 20, 20, 40))  # others may be a version
        return made, made
    made = "2a02:8108:" + ":".join(f"{rng.randrange(4096, 65536):x}" for _ in range(6))
    return made, made


def _national_id(rng: random.Random) -> tuple[str, str]:
    """A US social security number, or a Brazilian CPF, as they are written."""
    digits = [rng.randint(1, 8) for _ in range(9)]
    if rng.random() < 0.5:
        area, group, serial = (int("".join(map(str, part))) for part in (digits[:3], digits[3:5], digits[5:]))
        found = f"{area if area != 666 else 667:03}-{group:02}-{serial:04}"
        return found, found
    for _ in range(2):
        weights = range(len(digits) + 1, 1, -1)
        digits.append(sum(d * w for d, w in zip(digits, weights, strict=True)) * 10 % 11 % 10)
    text = "".join(map(str, digits))
    found = f"{text[:3]}.{text[3:6]}.{text[6:9]}-{text[9:]}"
    return found, found


def _account(rng: random.Random) -> tuple[str, str]:
    """A bank account, which only its words tell from another number."""
    digits = f"7{_some(rng, 9, string.digits)}"
    return f"bank account no. {digits}", digits


def _mac(rng: random.Random) -> tuple[str, str]:
    made = rng.choice(":-").join(f"{rng.randrange(16, 256):02x}" for _ in range(6))
    return made, made


GENERATORS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "secret": _secret,
    "email": _email,
    "phone": _phone,
    "card": _card,
    "iban": _iban,
    "ip": _ip,
    "national_id": _national_id,
    "account": _account,
    "mac": _mac,
}


def canaries(kind: str, count: int, seed: str) -> list[Canary]:
    """Return distinct canaries of a kind."""
    rng = random.Random(f"{seed}/{kind}")  # noqa: S311 - a test's numbers
    found: dict[str, Canary] = {}
    while len(found) < count:
        text, secret = GENERATORS[kind](rng)
        found[secret] = Canary(kind, text, secret)
    return list(found.values())


Place = tuple[Any, ...]  # keys and positions from a record to a value; `...` stands for the JSON inside a text


def places(value: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield every text and every object inside a value with its place, also those of JSON inside texts."""
    if isinstance(value, dict):
        yield at, value
        for key, item in value.items():
            yield from places(item, (*at, key))
    elif isinstance(value, list):
        for n, item in enumerate(value):
            yield from places(item, (*at, n))
    elif isinstance(value, str):
        yield at, value
        inner = inside(value)
        if inner is not None:
            yield from places(inner, (*at, ...))


def inside(text: str) -> Any:
    """Return the object or list that a text holds as JSON, if it does."""
    if text[:1] not in {"{", "["}:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def put(value: Any, at: Place, new: Any) -> Any:
    """Return a value with something new in a place; what is not on the way is shared."""
    if not at:
        return new
    if at[0] is ...:
        return json.dumps(put(inside(value), at[1:], new))
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = put(copy[at[0]], at[1:], new)
    return copy


def get(value: Any, at: Place) -> Any:
    """Return what stands in a place; LookupError or TypeError where the way there is gone."""
    for key in at:
        value = inside(value) if key is ... else value[key]
    return value


def _in_place(text: str, canary: Canary, _: random.Random) -> str:
    piece = len(text) <= SHORT  # of a stream, perhaps: what follows may be letters
    return f" {canary.text} " if piece else canary.text


def _in_words(text: str, canary: Canary, _: random.Random) -> str:
    return f"{text} (write to {canary.text}, please)"


def _on_a_line(text: str, canary: Canary, _: random.Random) -> str:
    return f"{text}\n{canary.text}\n"


def _in_json(_: str, canary: Canary, rng: random.Random) -> str:
    note = rng.choice(["note:\n{}", "{}", "\t{}\n", 'say "{}"', "über {}"]).format(canary.text)
    return json.dumps(rng.choice([{"note": note}, [note], {note: 1}, json.dumps({"note": note})]))


WAYS: tuple[Callable[[str, Canary, random.Random], str], ...] = (_in_words, _in_place, _on_a_line, _in_json)
SHORT = 3
PROBED = 100  # places of a log
MOST = 8  # canaries in one record: more of them hide one another
PROBE = Canary("probe", "Quintessence", "Quintessence")


class Planter:
    """Plants canaries into copies of a log's records.

    Args:
        records: the log.
        told: returns a record's events as text, '' where it is no longer read as one of its format.
        rng: which places and ways are taken.
    """

    def __init__(self, records: Sequence[Any], told: Callable[[Any], str], rng: random.Random) -> None:
        self._rng = rng
        self._logs = [(record, [at for at, _ in places(record)]) for record in records]
        every = [(n, at) for n, (_, found) in enumerate(self._logs) for at in found]
        self._kept: dict[int, list[Place]] = {}  # places whose text stands in the events
        self._lost: dict[int, list[Place]] = {}
        for n, at in rng.sample(every, min(PROBED, len(every))):
            text = told(self._planted(records[n], at, PROBE, _in_words))
            if text:
                (self._kept if PROBE.text in text else self._lost).setdefault(n, []).append(at)

    def whole(self, planted: Sequence[Canary]) -> Iterator[Any]:
        """Yield records that are still read, until all canaries are planted: mostly where they reach the events."""
        assert self._kept or self._lost, "no place where a record stays one of its format"
        left = list(planted)[::-1]
        while left:
            for n, (record, _) in enumerate(self._logs):
                kept, lost = self._kept.get(n, []), self._lost.get(n, [])
                chosen = kept + self._rng.sample(lost, len(lost) // (8 if self._kept else 1))
                copy = record
                for at in self._rng.sample(chosen, min(MOST, len(chosen))):
                    if left and _is_there(copy, at):
                        copy = self._planted(copy, at, left.pop(), self._rng.choice(WAYS))
                yield copy

    def spoiled(self, planted: Sequence[Canary]) -> Iterator[Any]:
        """Yield records with three canaries each, in any place: most are refused."""
        for n in range(0, len(planted), 3):
            copy, found = self._rng.choice(self._logs)
            for canary in planted[n : n + 3]:
                there = [at for at in found if _is_there(copy, at)]
                copy = self._planted(copy, self._rng.choice(there), canary, self._rng.choice(WAYS))
            yield copy

    def _planted(self, record: Any, at: Place, canary: Canary, way: Callable[..., str]) -> Any:
        value = get(record, at)
        new = {**value, canary.text: canary.text} if isinstance(value, dict) else way(value, canary, self._rng)
        return put(record, at, new)


def _is_there(record: Any, at: Place) -> bool:
    try:
        return isinstance(get(record, at), dict | str)
    except (LookupError, TypeError):
        return False
