"""Check digits of national ids, as their issuers define them. Every text is in normal form: no separators, capitals."""

from __future__ import annotations

from datetime import date

from flywheel.stages.ingest.redaction.patterns.kinds import luhn

_DIHEDRAL = (
    "0123456789", "1234067895", "2340178956", "3401289567", "4012395678",
    "5987604321", "6598710432", "7659821043", "8765932104", "9876543210",
)  # fmt: skip
_PERMUTED = (
    "0123456789", "1576283094", "5803796142", "8916043527", "9453126870", "4286573901", "2793806415", "7046913258",
)  # fmt: skip
# Italy: what a character in an odd place counts, by its place in the alphabet (digits count as A to J).
_ODD = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
_CLOCK = (24, 60)


def _sum(digits: str, weights: tuple[int, ...]) -> int:
    return sum(int(d) * w for d, w in zip(digits, weights, strict=False))


def _is_date(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def united_states(text: str) -> bool:
    """SSN: no check digit, but numbers that are never issued (SSA: area 000, 666; group 00; serial 0000); 9xx is an ITIN."""
    group = int(text[3:5])
    issued = group >= 50 and group not in {66, 67, 68, 69, 89, 93} if text[0] == "9" else group > 0  # noqa: PLR2004
    return issued and text[:3] not in {"000", "666"} and text[5:] != "0000"


def china(text: str) -> bool:
    """Resident id (GB 11643): a date, and mod 11 of weights 2^(17-i)."""
    dated = _is_date(int(text[6:10]), int(text[10:12]), int(text[12:14]))
    return dated and "10X98765432"[_sum(text, (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)) % 11] == text[17]


def united_kingdom(text: str) -> bool:
    """NINO: prefixes that HMRC does not give out."""
    return (
        text[0] not in "DFIQUV"
        and text[1] not in "DFIOQUV"
        and text[:2] not in {"BG", "GB", "KN", "NK", "NT", "TN", "ZZ"}
    )


def germany(text: str) -> bool:
    """Tax id: of the first ten digits one occurs two or three times; ISO 7064, MOD 11,10."""
    counts = sorted(text[:10].count(d) for d in set(text[:10]))
    rest = 10
    for digit in text[:10]:
        rest = ((int(digit) + rest) % 10 or 10) * 2 % 11
    return text[0] != "0" and counts[-1] in {2, 3} and counts[-2] == 1 and (11 - rest) % 10 == int(text[10])


def spain(text: str) -> bool:
    """DNI and NIE: the letter is the number modulo 23."""
    number = text[:-1].translate(str.maketrans("XYZ", "012"))
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23] == text[-1]


def france(text: str) -> bool:
    """NIR: sex, month, and 97 less the rest of the number; Corsica's 2A and 2B count as 19 and 18."""
    number = text[:13].replace("2A", "19").replace("2B", "18")
    return text[0] in "12" and 1 <= int(text[3:5]) <= 12 and 97 - int(number) % 97 == int(text[13:])  # noqa: PLR2004


def italy(text: str) -> bool:
    """Codice fiscale: odd and even places count differently, modulo 26."""
    places = [int(c) if c.isdigit() else ord(c) - ord("A") for c in text[:15]]
    total = sum(_ODD[p] for p in places[::2]) + sum(places[1::2])
    return chr(ord("A") + total % 26) == text[15]


def brazil(text: str) -> bool:
    """CPF: two check digits, each mod 11; eleven equal digits are none."""

    def check(count: int) -> int:
        return _sum(text, tuple(range(count + 1, 1, -1))) * 10 % 11 % 10

    return len(set(text)) > 1 and check(9) == int(text[9]) and check(10) == int(text[10])


def india(text: str) -> bool:
    """Aadhaar: Verhoeff's scheme; the first digit is 2 to 9."""
    state = 0
    for place, digit in enumerate(reversed(text)):
        state = int(_DIHEDRAL[state][int(_PERMUTED[place % 8][int(digit)])])
    return text[0] not in "01" and len(set(text)) > 1 and state == 0


def netherlands(text: str) -> bool:
    """BSN: the 11-test, the last digit counting negatively."""
    return int(text) > 0 and _sum(text, (9, 8, 7, 6, 5, 4, 3, 2, -1)) % 11 == 0


def poland(text: str) -> bool:
    """PESEL: a date whose month encodes the century, and weights 1, 3, 7, 9."""
    century = (19, 20, 21, 22, 18)[int(text[2]) // 2]
    dated = _is_date(century * 100 + int(text[:2]), int(text[2:4]) % 20, int(text[4:6]))
    return dated and -_sum(text, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3)) % 10 == int(text[10])


def sweden(text: str) -> bool:
    """Personnummer: a date (or its day + 60), Luhn over ten digits; a time of day after a date is none."""
    last = text[-10:]
    year = int(text[:4]) if len(text) > len(last) else 2000 + int(last[:2])
    dated = _is_date(year, int(last[2:4]), int(last[4:6]) % 60)
    is_time = int(last[6:8]) < _CLOCK[0] and int(last[8:]) < _CLOCK[1]
    return dated and not is_time and luhn(last)


def japan(text: str) -> bool:
    """My Number: mod 11 with weights 2 to 7, twice."""
    rest = _sum(text, (6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11
    return (0 if rest <= 1 else 11 - rest) == int(text[11])


def korea_dated(text: str) -> bool:
    """RRN: a date and a digit for sex and century; all that holds for numbers given since October 2020."""
    century = {"1": 19, "2": 19, "3": 20, "4": 20, "5": 19, "6": 19, "7": 20, "8": 20}.get(text[6], 0)
    return bool(century) and _is_date(century * 100 + int(text[:2]), int(text[2:4]), int(text[4:6]))


def korea(text: str) -> bool:
    """RRN until 2020: also mod 11."""
    return korea_dated(text) and (11 - _sum(text, (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)) % 11) % 10 == int(text[12])
