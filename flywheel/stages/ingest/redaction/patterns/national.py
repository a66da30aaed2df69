"""National ids: what has their shape and check digit, written as the issuer writes it or where words say what it is.

Digits alone are order numbers, times and counters more often than anything else, so most ids count in one of two
cases: a field's name or the words around name them ("ssn", "Steuer-ID", 身份证), or they are alone in their
text, grouped as the issuer groups them. Those whose shape and check nothing else has count everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from flywheel.stages.ingest.redaction.patterns import checksums as check
from flywheel.stages.ingest.redaction.patterns.hints import DIGITS, WORDS
from flywheel.stages.ingest.redaction.patterns.kinds import Find, Kind, whole

_BEFORE, _AFTER = 48, 24  # characters in which a word may name a number

# Short words count as words only; the others also within one, as in `taxId` or `user_ssn`.
_COMMON = (
    r"national[ _-]?(?:id|insurance)|tax(?:payer)?[ _-]?(?:id|number|payer)|identity[ _-]?(?:card|number|document)"
    r"|id[ _-]card|identification[ _-]?number|personal[ _-]?(?:id|number)|citizen[ _-]?(?:id|number)"
    r"|resident[ _-]?(?:id|registration)"
)


@dataclass(frozen=True)
class _Id:
    """One way to write one country's id. `where`: it counts anywhere, alone in its text, or only next to words."""

    shape: re.Pattern[str]
    check: Callable[[str], bool]
    where: str
    words: re.Pattern[str]


def _ids(country: str, *forms: tuple[str, str, Callable[[str], bool]]) -> list[_Id]:
    long, short = _WORDS[country]
    alone = rf"|(?<![A-Za-z])(?:{short})(?![A-Za-z])" if short else ""
    named = re.compile(rf"(?i:{long}|{_COMMON})(?!_[0-9a-f]{{8}}>){alone}")
    return [_Id(re.compile(shape), test, where, named) for shape, where, test in forms]


# By country: words that also count within others, and short ones that do not, in capitals or small letters.
_WORDS = {
    "us": ("social[ _-]?security", "ssns?|SSNs?"),
    "cn": ("身份证|公民身份", ""),
    "uk": ("national[ _-]?insurance", "nino|NINO|ni number|NI number"),
    "de": ("steuer[ _-]?(?:id|nummer)", "idnr|IdNr|IDNR|tin|TIN"),
    "es": ("documento[ _]nacional", "dni|DNI|NIF|NIE"),
    "fr": ("s[ée]curit[ée][ _]sociale|num[ée]ro[ _]de[ _]s[ée]cu", "nir|NIR"),
    "it": ("codice[ _-]?fiscale", ""),
    "br": ("cadastro[ _]de[ _]pessoas", "cpf|CPF"),
    "in": ("aadhaa?r|आधार", "uidai|UIDAI"),
    "nl": ("burgerservice|sofi-?nummer", "bsn|BSN"),
    "pl": ("pesel", ""),
    "se": ("personnummer|samordningsnummer", ""),
    "jp": ("マイナンバー|個人番号|my[ _-]number|mynumber", ""),
    "kr": ("주민등록", "rrn|RRN"),
}
_LONG = "|".join([*(long for long, _ in _WORDS.values()), _COMMON])
_SHORT = "|".join(short for _, short in _WORDS.values() if short)
_FISCAL = (
    "[A-Z]{6}[0-9]{2}[ABCDEHLMPRST][0-9]{2}[A-Z][0-9]{3}[A-Z]"  # without the letters that separate people of one name
)
_CHINESE = "[1-9][0-9]{5}(?:18|19|20)[0-9]{2}[01][0-9][0-3][0-9]{4}[0-9Xx]"
_INSEE = r"[12][0-9]{2}[01][0-9](?:[0-9]{2}|2[AB])[0-9]{8}"

_IDS = [
    *_ids(
        "us",
        ("[0-9]{3}-[0-9]{2}-[0-9]{4}", "anywhere", check.united_states),
        ("[0-9]{3} [0-9]{2} [0-9]{4}", "alone", check.united_states),
        (r"[0-9]{9}|[0-9]{3}\.[0-9]{2}\.[0-9]{4}", "beside", check.united_states),
    ),
    *_ids("cn", (_CHINESE, "anywhere", check.china)),
    *_ids(
        "uk",
        ("[A-Z]{2} [0-9]{2} [0-9]{2} [0-9]{2} [A-D]", "anywhere", check.united_kingdom),
        ("[A-Z]{2}[0-9]{6} ?[A-D]", "beside", check.united_kingdom),
    ),
    *_ids(
        "de",
        ("[1-9][0-9] [0-9]{3} [0-9]{3} [0-9]{3}", "alone", check.germany),
        ("[1-9][0-9]{10}", "beside", check.germany),
    ),
    *_ids(
        "es",
        (r"[0-9]{8}-[A-Z]|[0-9]{2}\.[0-9]{3}\.[0-9]{3}-[A-Z]|[XYZ]-?[0-9]{7}-[A-Z]", "anywhere", check.spain),
        ("[0-9]{8} ?[A-Z]|[XYZ][0-9]{7}[A-Z]", "beside", check.spain),
    ),
    *_ids(
        "fr",
        ("[12] [0-9]{2} [01][0-9] (?:[0-9]{2}|2[AB]) [0-9]{3} [0-9]{3} [0-9]{2}", "anywhere", check.france),
        (_INSEE, "anywhere", check.france),
    ),
    *_ids("it", (_FISCAL, "anywhere", check.italy)),
    *_ids(
        "br",
        (r"[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}", "anywhere", check.brazil),
        (r"[0-9]{3} [0-9]{3} [0-9]{3}[- ][0-9]{2}", "beside", check.brazil),
        ("[0-9]{9}-?[0-9]{2}", "beside", check.brazil),
    ),
    *_ids(
        "in",
        ("[2-9][0-9]{3}([ -])[0-9]{4}\\1[0-9]{4}", "alone", check.india),
        ("[2-9][0-9]{11}", "beside", check.india),
    ),
    *_ids("nl", (r"[0-9]{9}|[0-9]{4}[. ][0-9]{2}[. ][0-9]{3}", "beside", check.netherlands)),
    *_ids("pl", ("[0-9]{11}", "beside", check.poland)),
    *_ids(
        "se",
        ("(?:19|20)?[0-9]{6}[-+][0-9]{4}", "anywhere", check.sweden),
        ("(?:19|20)?[0-9]{10}", "beside", check.sweden),
    ),
    *_ids("jp", ("[0-9]{4}([ -]?)[0-9]{4}\\1[0-9]{4}", "beside", check.japan)),
    *_ids(
        "kr",
        ("[0-9]{6}-[1-8][0-9]{6}", "anywhere", check.korea),
        ("[0-9]{6}-?[1-8][0-9]{6}", "beside", check.korea_dated),
    ),
]

_SHAPES = (
    r"[0-9]{3}(?P<gap>[ .-])[0-9]{2}(?P=gap)[0-9]{4}",
    "[A-Z]{2}(?:[ ][0-9]{2}){3}[ ][A-D] | [A-Z]{2}[0-9]{6}[ ]?[A-D]",
    "[1-9][0-9](?:[ ][0-9]{3}){3}",
    r"[0-9]{8}[ -]?[A-Z] | [0-9]{2}\.[0-9]{3}\.[0-9]{3}-[A-Z] | [XYZ]-?[0-9]{7}-?[A-Z]",
    "[12](?:[ ][0-9]{2}){2}[ ][0-9][0-9AB](?:[ ][0-9]{3}){2}[ ][0-9]{2}",
    r"[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2} | [0-9]{3}(?:[ ][0-9]{3}){2}[- ][0-9]{2} | [0-9]{9}-[0-9]{2}",
    "[0-9]{4}(?P<gap2>[ -])[0-9]{4}(?P=gap2)[0-9]{4}",
    "[0-9]{4}[. ][0-9]{2}[. ][0-9]{3}",
    "[0-9]{6}(?:[0-9]{2})?[-+][0-9]{4} | [0-9]{6}-[0-9]{7}",
    f"(?i:{_FISCAL}) | {_INSEE} | [0-9]{{17}}[0-9Xx] | [0-9]{{9,13}}",
)
_PATTERN = rf"(?<![A-Za-z0-9_.+-])(?:{'|'.join(_SHAPES)})(?![A-Za-z0-9_-]|\.[0-9])"
_MARKS = rf"(?i:{_LONG})|(?:^|[^A-Za-z]|\\[a-z])(?:{_SHORT})(?:[^A-Za-z]|$)"  # or the end of an escape before it
_FISCAL_TRIGGER = "[A-Za-z]{3}[0-9]{2}[A-Za-z][0-9]{2}[A-Za-z][0-9]{3}[A-Za-z]"
_GROUPED = (
    r"[^0-9.][12][0-9]{2}[01][0-9]{11}[^0-9]|[^0-9.][1-9][0-9]{5}(?:18|19|20)[0-9]{2}[01][0-9][0-3][0-9]{4}"
    r"|[12][0-9]{2}[01][0-9]2[AB]"
    r"|[0-9]{3}[ -][0-9]{2}[ -][0-9]{4}|[0-9]{2} [0-9]{2} [0-9]{2} [A-D]|[0-9] [0-9]{3} [0-9]{3} [0-9]{3}"
    r"|[0-9]{7}-[A-Z]|[0-9]{2}\.[0-9]{3}\.[0-9]{3}-[A-Z]|[12] [0-9]{2} [01][0-9] [0-9][0-9AB] [0-9]{3} [0-9]{3} [0-9]{2}"
    r"|[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}|[0-9]{4}[ -][0-9]{4}[ -][0-9]{4}|[0-9]{6}[-+][0-9]{4}"
)


def _national(match: re.Match[str], name: str) -> Find | None:
    text = match[0].upper()
    normal = "".join(c for c in text if c.isalnum())
    around = _around(match, name)
    alone = match.string.strip() == match[0]
    is_id = any(
        i.shape.fullmatch(text)
        and (i.where == "anywhere" or (alone and i.where == "alone") or bool(i.words.search(around)))
        and i.check(normal)
        for i in _IDS
    )
    return whole(match, normal) if is_id else None


def _around(match: re.Match[str], name: str) -> str:
    """Return what may say what a number is: its field's name, the text before and after."""
    before = match.string[max(0, match.start() - _BEFORE) : match.start()]
    return f"{name} {before} {match.string[match.end() : match.end() + _AFTER]}"


_NUMBERS = rf"(?i:{_LONG})|(?<![A-Za-z])(?:{_SHORT})(?![A-Za-z])"
# Two ways to come upon one: words that announce it, and a shape that speaks for itself.
SAID = Kind("national_id", _MARKS, _PATTERN, _national, numbers=_NUMBERS, hint=WORDS)
SHAPED = Kind("national_id", _GROUPED, _PATTERN, _national, hint=DIGITS)
FISCAL = Kind("national_id", _FISCAL_TRIGGER, rf"(?<![A-Za-z0-9_.+-])(?i:{_FISCAL})(?![A-Za-z0-9_-])", _national)
