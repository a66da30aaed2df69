"""Addresses and numbers of persons: e-mail, phone, card, account, network; and what only looks like them.

Each kind has a pattern for candidates, a check that decides (a checksum, a known prefix, enough entropy), and a normal
form, so that the same value written differently gets the same pseudonym. Precision first: dates, prices, order and
flight numbers, versions and tool-call ids stay as they are, because agents need them.
"""

from __future__ import annotations

import ipaddress
import re

from flywheel.stages.ingest.patterns.kinds import Find, Kind, digits_of, luhn, whole

_EMAIL = r"(?<![\w.%+'-])[\w.%+'-]{1,128}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\.[^\W\d_]{2,24}(?![\w-])"
_CARD = r"""
  (?<![\w.+-])(?:
    [2-6][0-9]{12,18}
  | [2-6][0-9]{3}(?P<gap>[ -])[0-9]{4}(?P=gap)[0-9]{4}(?P=gap)[0-9]{1,4}(?:(?P=gap)[0-9]{1,3})?
  | 3[0-9]{3}(?P<gap2>[ -])[0-9]{6}(?P=gap2)[0-9]{4,5}
  )(?![\w-]|\.[0-9])
"""
_IBAN = r"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?:[ -]?[A-Z0-9]){11,30}(?![A-Za-z0-9])"
_PHONE = r"""
  (?<![\w+])\+[1-9][0-9]{0,2}(?:[ .()/-]{0,2}[0-9]){6,13}(?![\w+]|[.-][0-9])
| (?<![\w.+-])(?:1[ .-])?(?:\([2-9][0-9]{2}\)[ .-]?[2-9][0-9]{2}[ .-]|[2-9][0-9]{2}(?P<gap>[.-])[2-9][0-9]{2}(?P=gap))
  [0-9]{4}(?![\w-]|\.[0-9])
"""
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IP = rf"""
  (?<![\w.])(?<![0-9]-)(?:{_OCTET}\.){{3}}{_OCTET}(?!\w|[.-][0-9])
| (?<![\w.])(?<![0-9A-Fa-f:]:)(?:[0-9A-Fa-f]{{0,4}}:){{2,7}}[0-9A-Fa-f]{{1,4}}(?!\w|:\w)
"""
_VERSION_BEFORE = re.compile(r"(?i)\b(?:version|release|build|firmware|ver)\.?[\s:=\"'(]{0,4}\Z|(?:[=~]=|[~^])\s?\Z")
_BARE_PHONE, _SPACED_PHONE, _LONGEST_PHONE = 10, 8, 15  # digits; E.164 allows 15
_THREES = {"30", "34", "35", "36", "37", "38", "39"}
_DECIMAL = re.compile(r"\+[0-9]+\.[0-9]+")
# Routable, unique local, link-local and multicast: what begins otherwise is a scope operator or a time.
_IPV6_FIRST = ((0x2000, 0x3FFF), (0xFC00, 0xFDFF), (0xFE80, 0xFEBF), (0xFF00, 0xFFFF))

# Length of the IBAN by country.
_IBAN_LENGTHS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 "
    "EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 "
    "IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 "
    "NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 "
    "SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30 "
)
_IBAN_LENGTH = {entry[:2]: int(entry[2:]) for entry in _IBAN_LENGTHS.split()}


def _email(match: re.Match[str], _name: str) -> Find:
    return whole(match, match[0].lower())


def _card(match: re.Match[str], _name: str) -> Find | None:
    digits = digits_of(match[0])
    first = int(digits[:4])
    brand = first >= 4000 or 2221 <= first <= 2720 or digits[:2] in _THREES  # noqa: PLR2004 - issuer ranges
    return whole(match, digits) if brand and len(set(digits)) > 1 and luhn(digits) else None


def _iban(match: re.Match[str], _name: str) -> Find | None:
    """Cut the candidate to its country's length: what follows may be a word in capitals."""
    places = [n for n, c in enumerate(match[0]) if c.isalnum()]
    length = _IBAN_LENGTH.get(match[0][:2])
    if length is None or len(places) < length:
        return None
    end = places[length - 1] + 1
    if end < len(match[0]) and match[0][end].isalnum():
        return None
    text = "".join(c for c in match[0][:end] if c.isalnum())
    number = "".join(str(int(c, 36)) for c in text[4:] + text[:4])
    return Find(text, match.start(), match.start() + end) if int(number) % 97 == 1 else None


def _phone(match: re.Match[str], _name: str) -> Find | None:
    text = match[0]
    digits = digits_of(text)
    least = _BARE_PHONE if text[1:].isdigit() else _SPACED_PHONE
    fits = least <= len(digits) <= _LONGEST_PHONE and not _DECIMAL.fullmatch(text)
    return whole(match, digits) if fits else None


def _ip(match: re.Match[str], _name: str) -> Find | None:
    text = match[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        before = match.string[max(0, match.start() - 16) : match.start()]
        keep = address.is_loopback or address.is_unspecified or bool(_VERSION_BEFORE.search(before))
    else:
        first = int(text.split(":")[0] or "0", 16)
        keep = not any(low <= first <= high for low, high in _IPV6_FIRST)
    return None if keep else whole(match, str(address))


_CARDS = r"[2-6][0-9]{3}(?:[0-9]{9}|-[0-9]{4}-| [0-9]{4} |[ -][0-9]{6}[ -])"
_PHONES = r"\+[1-9]|[0-9]\)[ .-]?[0-9]{3}[ .-][0-9]{4}|[0-9]{3}\.[0-9]{3}\.[0-9]{4}|[0-9]{3}-[0-9]{3}-[0-9]{4}"
_ADDRESSES = r"\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|::|:[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:"

EMAIL = Kind("email", "@", _EMAIL, _email)
IBAN = Kind("iban", "[A-Z]{2}[0-9]{2}(?:[ -]?[A-Z0-9]){11}", _IBAN, _iban)
CARD = Kind("card", _CARDS, _CARD, _card, numbers=r"(?i)card|(?<![a-z])(?:pan|cc)(?![a-z])")
PHONE = Kind("phone", _PHONES, _PHONE, _phone)
IP = Kind("ip", _ADDRESSES, _IP, _ip)
