"""Numbers that a register gave: next to its name, next to an abbreviation that no one knows, or in its own writing.

A register's check has the rule whether it could have given a number. Chance meets many of them once in ten times, so their names
must announce them; strict ones (two check digits, or a date) count behind any abbreviation that names no goods; and where
the writing is particular (`12.345.678/0001-95`), it announces the number itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flywheel.stages.ingest.redaction.patterns.hints import DIGITS, WORDS
from flywheel.stages.ingest.redaction.patterns.ids import is_other
from flywheel.stages.ingest.redaction.patterns.kinds import Find, Scan
from flywheel.stages.ingest.redaction.patterns.registers import AMBIGUOUS, STRICT, is_given, is_short, registers

_LEAST_DIGITS, _MOST_LETTERS = 6, 6
_DATE = re.compile(r"(?<![0-9])(?:19|20)[0-9]{2}[-/.]?(?:0[1-9]|1[0-2])[-/.]?[0-3][0-9](?![0-9])")
_SHORTS = "|".join(sorted((re.escape(n) for n in registers() if is_short(n)), key=len, reverse=True))
_LONGS = "|".join(sorted((re.escape(n) for n in registers() if not is_short(n)), key=len, reverse=True))
_GAP = r"[\"'`)\]\\]{0,3}(?:\s?(?i:number|nummer|numero|número|numéro|no|nr|nº|n°|id|code|card|#)\b\.?)?(?:[\s:=#\"'`(\[.\\,-]|\b(?i:is|ist|es|est|é|è|to|jest|on|er|är|este|je|adalah|là|olan|είναι)\b){1,8}"
_VALUE = r"(?P<value>(?=[A-Z]{0,6}[ ./-]?[A-Z]{0,4}[0-9])[0-9A-Z](?:[ ./-]{0,2}[0-9A-Za-z+]){5,24})"
_ANNOUNCED = re.compile(
    rf"(?:(?<![A-Za-z0-9])(?P<short>{_SHORTS})(?![A-Za-z0-9])|(?P<long>(?i:{_LONGS}))){_GAP}(?<![0-9A-Za-z]){_VALUE}"
)
# Abbreviations that announce something else.
_NO_NAMES = frozenset(
    """
    AWB PNR ISBN ISSN EAN GTIN UPC SKU PO INV REF ID TX TID UID PID GID GUID UUID SHA MD CRC HTTP HTTPS RFC ISO IP
    MAC TCP UDP TTL UTC GMT EST PST CET DOI ASIN UPS USPS DHL FEDEX TRK ORD SO RMA SN MSG SEQ TS BTC ETH USD EUR GBP
    JPY INR BRL TRY LOT BIN HEX INT UINT OID PMID CVE AT IN ON TO OF BY AND FOR THE IS OR
    """.split()  # noqa: SIM905 - a list of words reads as one
)
_UNKNOWN = re.compile(
    rf"(?<![A-Za-z0-9_./-])(?P<short>[A-ZÀ-ÖΑ-ΩА-Я]{{2,6}})(?![A-Za-z0-9_])[.]?(?:\s?(?:no|nr|number|#)\b\.?)?[ :#=]{{1,3}}{_VALUE}"
)
# Writings of one register each: 9 a digit, A a letter, X either.
_WRITTEN = {
    "99.999.999/9999-99": "br.cnpj", "999.9999.9999.99": "ch.ssn", "99.999.999-X": "cl.rut", "99.99.99-999.99": "be.nn",
    "99-99999999-9": "ar.cuit", "99999-9999999-9": "pk.cnic", "999-9999999-9": "do.cedula", "999999-99-9999": "my.nric",
    "999999/9999": "cz.rc", "999999-999A": "fi.hetu", "9999-999999-999-9": "sv.nit", "9-9999-99999-99-9": "th.pin",
    "9999999/A/A/A/999": "tn.mf", "AAAA999999AAAAAAX9": "mx.curp", "99AAAAA9999AXAX": "in_.gstin",
    "99-99-99999999-99999999999": "ar.cbu", "99.999.999.9-999.999": "id.npwp", "999 9999 9999 99": "ch.ssn",
}  # fmt: skip
_FORMS = {
    re.compile("".join({"9": "[0-9]", "A": "[A-Z]", "X": "[0-9A-Z]"}.get(c, re.escape(c)) for c in form)): register
    for form, register in _WRITTEN.items()
}
_SHAPED = re.compile(
    r"(?<![A-Za-z0-9_./+-])(?:[0-9]{1,7}(?:[./-][0-9A-Z]{1,11}){1,5}|[0-9]{3}(?: [0-9]{4}){2} [0-9]{2}|[A-Z]{4}[0-9]{6}[A-Z]{6}[0-9A-Z][0-9]|[0-9]{2}[A-Z]{5}[0-9]{4}[A-Z][0-9A-Z]{3})(?![A-Za-z0-9_/+-]|\.[0-9])"
)


def named(text: str, name: str) -> Iterator[Find]:
    """Yield what is next to a register's name, or in a field of that name, and is a number that it could have given."""
    by_name = registers()
    words = name.replace("_", " ").replace("-", " ")
    checked = (*by_name.get(words.upper(), ()), *by_name.get(words.lower(), ()))
    if (value := text.strip()) and any(is_given(register, value) for register in checked):
        yield Find("".join(c for c in value.upper() if c.isalnum()), text.index(value), text.index(value) + len(value))
    for match in _ANNOUNCED.finditer(text):
        name = match["short"] or match["long"].lower()
        finds = list(_longest(match, by_name.get(name, ()), is_sure=False))
        yield from finds or _longest(match, by_name.get(name, ()), is_sure=name not in AMBIGUOUS)


def _longest(match: re.Match[str], checked: Sequence[str], *, is_sure: bool) -> Iterator[Find]:
    """Yield the longest beginning of a value that one of some registers could have given; if sure, whatever is a number."""
    value, start = match["value"], match.start("value")
    ends = [n for n in range(len(value), 0, -1) if n == len(value) or not value[n].isalnum()]
    for end in ends:
        written = value[:end].rstrip(" ./-")
        text = match.string
        if (
            sum(map(str.isdigit, written)) < _LEAST_DIGITS
            or text[start + len(written) : start + len(written) + 1].isalnum()
        ):
            continue
        prose = any(len(word) > 1 and word.isalpha() for word in re.split(r"[ ./-]+", written)[1:])
        is_number = (
            is_sure and not prose and not _DATE.search(value) and sum(map(str.isalpha, written)) <= _MOST_LETTERS
        )
        if is_number or any(is_given(register, written) for register in checked):
            yield Find("".join(c for c in written.upper() if c.isalnum()), start, start + len(written))
            return


def unnamed(text: str, name: str) -> Iterator[Find]:
    """Yield what a strict register could have given, behind an abbreviation, and what is written as one register does."""
    for match in _UNKNOWN.finditer(text):
        if match["short"] not in _NO_NAMES:
            yield from _longest(match, STRICT, is_sure=False)
    for match in _SHAPED.finditer(text):
        register = next((register for form, register in _FORMS.items() if form.fullmatch(match[0])), None)
        if register and is_given(register, match[0]) and not is_other(match, name):
            yield Find("".join(c for c in match[0] if c.isalnum()), match.start(), match.end())


_NAMES = (
    rf"(?:(?i:{_LONGS})|(?:^|[^A-Za-z0-9]|\\[bfnrt])(?:{_SHORTS})[^A-Za-z0-9]|\"(?i:{_SHORTS})\")[^\n]{{0,24}}[0-9]"
)
_SHAPES = (
    r"[0-9]{2}\.[0-9]{3}\.[0-9]{3}[./-][0-9]|[0-9]{3}[. ][0-9]{4}[. ][0-9]{4}[. ][0-9]{2}[^0-9]|[0-9]{2}\.[0-9]{2}\.[0-9]{2}-[0-9]{3}\."
    r"|[0-9]{2,5}-[0-9]{7,8}-[0-9]|[0-9]{6}[-/][0-9]{2,3}[0-9A-Z-]|[0-9]{6}-[0-9]{3}-[0-9]|[0-9]-[0-9]{4}-[0-9]{5}-"
    r"|[0-9]{7}/[A-Z]/|[A-Z]{4}[0-9]{6}[HMX][A-Z]{5}|[0-9]{2}[A-Z]{5}[0-9]{4}[A-Z]"
    r"|[A-Z]{2}\.?(?: (?:no|nr)\.?)?[ :#=]{1,3}[0-9][0-9 ./-]{6}"
)
_FIELDS = "|".join(sorted(name.replace(" ", "[ _-]") for name in registers() if name.isascii() and "." not in name))
NAMED = Scan("national_id", _NAMES, named, numbers=rf"(?i)\A(?:{_FIELDS})\Z", hint=WORDS)
UNNAMED = Scan("national_id", _SHAPES, unnamed, hint=DIGITS)
