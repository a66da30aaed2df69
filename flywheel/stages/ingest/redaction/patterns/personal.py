"""Addresses and numbers of persons: e-mail, phone, card, account, network; and what only looks like them.

Each kind has a pattern for candidates, a check that decides (a checksum, a known prefix, enough entropy), and a normal
form, so that the same value written differently gets the same pseudonym. Precision first: dates, prices, order and
flight numbers, versions and tool-call ids stay as they are, because agents need them.
"""

from __future__ import annotations

import ipaddress
import re

from flywheel.stages.ingest.redaction.patterns.hints import DIGITS, JOINED, START_OF_SHORT, WORDS
from flywheel.stages.ingest.redaction.patterns.ids import is_numbered, is_other, is_posted, is_section
from flywheel.stages.ingest.redaction.patterns.kinds import Find, Kind, digits_of, luhn, whole

_LOCAL = r"[\w.%+-](?:[\w.%+'-]{0,126}[\w%+-])?"
_DOMAIN = r"[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\.[^\W\d_]{2,24}(?![\w-])"
_EMAIL = rf"""
  (?<![\w.%+-])[\w.-]{{2,64}}@(?:ok(?:icici|sbi|axis|hdfcbank)|ybl|ibl|axl|apl|paytm|upi|yapl|ptsbi|ptyes|fbl|kotak|waicici|wasbi)(?![\w.-])
| (?<![\w.%+-])(?:{_LOCAL}|(?:\\*["'])?(?<=["'])(?:[^"'\\\n@<>=:;(){{}}]|\\+[ ]){{1,64}}\\*["'])@{_DOMAIN}
"""
_TLD = r"(?:com|org|net|edu|gov|int|info|biz|io|dev|app|ai|me|tv|cc|co|example|test|eu|us|uk|de|fr|es|it|nl|be|ch|at|pl|se|no|dk|fi|pt|ie|cz|gr|ru|ua|tr|in|jp|cn|kr|br|mx|ar|au|nz|ca|za|sg|hk|il|xyz|online|shop|tech)"
_AT = r"\s{0,2}(?:[\[({<]\s{0,2}(?:at|AT|At|@|ät|arroba|arobase|chiocciola)\s{0,2}[\])}>]|(?<=\s)(?:at|AT|@|ät|arroba|arobase|chiocciola)(?=\s)|_at_|\.at\.)\s{0,2}"
_DOT = r"\s{0,2}(?:[\[({<]\s{0,2}(?:dot|DOT|Dot|\.|punkt|PUNKT|punto|point)\s{0,2}[\])}>]|(?<=\s)(?:dot|DOT|punkt|PUNKT|punto|point|ponto)(?=\s)|_dot_)\s{0,2}"
_SPOKEN = rf"""
  (?<![\w.%+@-])[\w%+-]{{1,64}}(?:(?:\.|{_DOT})[\w%+-]{{1,64}}){{0,4}}?(?:
    {_AT}[\w-]{{1,63}}(?:(?:{_DOT}|\.)[\w-]{{1,63}}){{0,4}}?{_DOT}{_TLD}(?![\w-])
  | \s{{0,2}}[\[({{<]\s{{0,2}}(?:at|AT|At|@|ät)\s{{0,2}}[\])}}>]\s{{0,2}}[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{0,4}}\.{_TLD}(?![\w-])
  )
"""
_CARD = r"""
  (?:(?<![\w.+-])|(?<=%B))(?:
    [2-6][0-9]{12,18}
  | [2-6][0-9]{3}(?P<gap>[ ]{1,3}|[-.]|[ ]?-[ ]?)[0-9]{4}(?P=gap)[0-9]{4}(?P=gap)[0-9]{1,4}(?:(?P=gap)[0-9]{1,3})?
  | 3[0-9]{3}(?P<gap2>[ ]{1,3}|[-.])[0-9]{6}(?P=gap2)[0-9]{4,5}
  )(?:(?=[D=^][0-9]{4}|\^[A-Z])|(?![\w-]|\.[0-9]))
"""
_IBAN = r"(?:(?<![A-Za-z0-9])|(?<=\?3[0-9]))[A-Za-z]{2}[0-9]{2}(?:(?:[ ]{0,3}|[-./])[A-Za-z0-9]){11,30}(?![A-Za-z0-9])"
_PHONE = r"""
  (?<![0-9A-Za-z_+])(?:\+[1-9][0-9]{0,2}|(?<![.,-])00[1-9][0-9]{0,2}(?=[ ()/.-]|[1-9][0-9]{7}))(?:[ .()/-]{0,3}[0-9]){6,13}(?![0-9A-Za-z_+]|[.-][0-9])
| (?<![0-9A-Za-z_.+-])(?:1[ .-])?(?:\([2-9][0-9]{2}\)[ .-]?[2-9][0-9]{2}[ .-]|[2-9][0-9]{2}(?P<gap>[.-])[2-9][0-9]{2}(?P=gap))
  [0-9]{4}(?![0-9A-Za-z_-]|\.[0-9])
| (?<![0-9A-Za-z_.+)-])\((?!(?:19|20)[0-9]{2}\))0?[1-9][0-9]{1,4}\)[ ]?(?:9[ ]?)?[0-9]{3,5}[ -]?[0-9]{3,5}(?![0-9A-Za-z_-]|\.[0-9])
| (?<![0-9A-Za-z_.+/:-])0[1-9][0-9]{1,3}(?P<gap3>[ -])[0-9]{3,4}(?P=gap3)[0-9]{3,4}(?![0-9A-Za-z_-]|\.[0-9]|[ ][0-9])
| (?<![0-9A-Za-z_.+/:-])0[1-9](?P<gap4>[.-])[0-9]{2}(?:(?P=gap4)[0-9]{2}){3}(?![0-9A-Za-z_-]|\.[0-9])
| (?<![0-9A-Za-z_.+/:-])(?<![0-9][ ])(?:01[5-7][0-9][ /-][0-9]{7,8}|07[0-9]{3}[ ][0-9]{6}|0[2-9][0-9]{1,3}/[0-9]{5,8}|0[1-9]-[0-9]{4}-[0-9]{4}|0[789]0-[0-9]{4}-[0-9]{4}|1[3-9][0-9](?P<gap5>[ -])[0-9]{4}(?P=gap5)[0-9]{4}|[6-9][0-9]{4}[ ][0-9]{5})(?![0-9A-Za-z_-]|[.,][0-9]|[ ][0-9])
| (?<![0-9A-Za-z_.+/:-])0[1-9](?:[ ][0-9]{2}){4}(?![0-9A-Za-z_-]|\.[0-9]|[ ][0-9A-Fa-f]{2}\b)
"""
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
# Before an address there is no group of one, but there may be a word: `source:2001:db8::1`.
_NO_GROUP = "(?<!::)" + "".join(rf"(?<!\b[0-9A-Fa-f]{{{n}}}:)" for n in range(1, 5))
_IP = rf"""
  (?<![\w.])(?<![0-9]-)(?:{_OCTET}\.){{3}}{_OCTET}(?!\w|[.-][0-9])
| (?<![\w.:])(?:::(?i:ffff):|64:(?i:ff9b)::)(?:(?:{_OCTET}\.){{3}}{_OCTET}|[0-9A-Fa-f]{{1,4}}:[0-9A-Fa-f]{{1,4}})(?![\w:]|\.[0-9])
| (?:(?<=[A-Za-z]-)|(?<=ec2-)){_OCTET}(?:-{_OCTET}){{3}}(?=[.-][A-Za-z])
| (?<![\w.-]){_OCTET}(?:-{_OCTET}){{3}}(?=\.[A-Za-z])
| (?<=\bip-){_OCTET}(?:-{_OCTET}){{3}}(?![\w-])
| (?<![\w.]){_NO_GROUP}(?:[0-9A-Fa-f]{{0,4}}:){{2,7}}[0-9A-Fa-f]{{1,4}}(?!\w|:\w)
"""
_VERSION_BEFORE = re.compile(
    r"(?i)(?:\b(?:version|release|build|firmware|ver|driver|build\w{1,8}|upgrade[ds]?|assembly\w{0,20})\b[^\n]{0,40}|\bv\.?\s?|(?:[=~<>!]=|[~^])\s?"
    r"|\b(?:section|sect?|sec|chapter|clause|paragraph|para|article|appendix|figure|fig|table|item|step|annex|kapitel|abschnitt"
    r"|ziffer|rule|rfc\s?\d+|level|requirement|req)\b\.?[\s:#(]{0,3}|§\s?|\b[\w-]{1,40}[-_@]v?)\Z"
)
_PRODUCT_BEFORE = re.compile(r"[A-Za-z]/\Z")  # `Chrome/120.0.0.0`
_ADDRESS_BEFORE = re.compile(
    r"(?i)(?:\b(?:ip|ipv4|host|hostname|addr(?:ess)?|from|client|server|ping|peer|remote|src|dst|source|dest(?:ination)?|gateway|dns|inet"
    r"|nameserver|ssh|connect(?:ed|ing)?|listen(?:ing)?|bind|via|router|route|allow|deny|login)\b\W{0,3}(?:\w{1,10}\W{1,3})?|://|@|\bip[\w]{0,12}\W{1,4})\Z"
)
_UPGRADE_BEFORE = re.compile(r"(?i)\b(?:(?:up|down)grad\w{1,4}|bump\w{0,4}|version|release[ds]?)\b")
_IP_NAME = re.compile(r"(?i)(?:^|[^a-z])ip|addr|host|[a-z]Ip")
_ADDRESS_AFTER = re.compile(r":[0-9]{2,5}\b|/[0-9]{1,2}\b|/[A-Za-z]")
_MOST_OF_A_SECTION = 100  # and two of the numbers have one digit
_SMALL = 40  # of four numbers below it, a version or a section is more likely
_LEAST_OF_VERSION = 20  # four numbers from it on are an address even where a version is expected
_BARE_PHONE, _SPACED_PHONE, _LONGEST_PHONE = 10, 8, 15  # digits; E.164 allows 15
# Numbers and lengths by issuer: Visa, Mastercard, American Express, Diners, JCB, Discover, UnionPay, Maestro.
_ISSUERS = (
    ("4", "4", (13, 16, 19)), ("51", "55", (16,)), ("2200", "2204", (16, 19)), ("2221", "2720", (16,)), ("34", "34", (15,)), ("37", "37", (15,)),
    ("300", "305", (14, 16)), ("36", "36", (14, 16)), ("38", "39", (14, 16)), ("3528", "3589", (16, 17, 18, 19)),
    ("6011", "6011", (16, 19)), ("644", "659", (16, 19)), ("62", "62", (16, 17, 18, 19)), ("60", "69", (16,)),
    ("50", "50", (16, 19)), ("56", "58", (16, 19)), ("6304", "6304", (16, 18, 19)), ("6759", "6763", (16, 18, 19)),
)  # fmt: skip
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
IBAN_LENGTH = {entry[:2]: int(entry[2:]) for entry in _IBAN_LENGTHS.split()}


def _email(match: re.Match[str], _name: str) -> Find | None:
    """Return an address in small letters, and without quotes around what is before the @; of `git@host` there is no person."""
    local, _, domain = match[0].lower().rpartition("@")
    if local in _OF_NOBODY:
        return None
    return whole(match, f"{local.strip(_QUOTES)}@{domain}")


def _spoken(match: re.Match[str], _name: str) -> Find | None:
    """Return an address as it would be written with signs; `at one point in` time is none."""
    if _AT_A_POINT.search(match[0]):
        return None
    signs = _SAID_DOT.sub(".", _SAID_AT.sub("@", match[0].lower(), count=1))
    return whole(match, "".join(signs.split()))


def _card(match: re.Match[str], _name: str) -> Find | None:
    digits = digits_of(match[0])
    if len(digits) == len(match[0]) and (is_numbered(match) or is_posted(match)):
        return None
    known = any(low <= digits[: len(low)] <= high and len(digits) in sizes for low, high, sizes in _ISSUERS)
    return whole(match, digits) if known and len(set(digits)) > 1 and luhn(digits) else None


def _iban(match: re.Match[str], _name: str) -> Find | None:
    """Cut the candidate to its country's length: what follows may be a word in capitals."""
    places = [n for n, c in enumerate(match[0]) if c.isalnum()]
    length = IBAN_LENGTH.get(match[0][:2].upper())
    if length is None or len(places) < length:
        return None
    end = places[length - 1] + 1
    if end < len(match[0]) and match[0][end].isalnum():
        return None
    text = "".join(c for c in match[0][:end] if c.isalnum()).upper()
    number = "".join(str(int(c, 36)) for c in text[4:] + text[:4])
    return Find(text, match.start(), match.start() + end) if int(number) % 97 == 1 else None


def _phone(match: re.Match[str], name: str) -> Find | None:
    text = match[0]
    if text[0] not in "+(" and is_other(match, name):
        return None
    digits = digits_of(text)
    least = _BARE_PHONE if text[1:].isdigit() else _SPACED_PHONE
    fits = least <= len(digits) <= _LONGEST_PHONE and not _DECIMAL.fullmatch(text)
    return whole(match, digits) if fits else None


def _ip(match: re.Match[str], name: str) -> Find | None:
    text = match[0]
    if "-" in text:
        text = text.replace("-", ".")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and (
        address.ipv4_mapped is not None or address.packed[:12] == _TRANSLATED
    ):
        mapped = ipaddress.IPv4Address(address.packed[12:])
        return None if _is_of_no_host(mapped) else whole(match, str(mapped))
    if isinstance(address, ipaddress.IPv4Address):
        octets = address.packed  # of networks and masks none belongs to a person
        keep = (
            octets[0] in _NO_HOSTS
            or octets[0] >= _MULTICAST
            or octets[2:] == _NETWORK
            or _is_of_no_host(address)
            or _is_version(match, address, name)
        )
    else:
        first = int(text.split(":")[0] or "0", 16)
        keep = not any(low <= first <= high for low, high in _IPV6_FIRST) or _is_of_no_host(address)
    return None if keep else whole(match, str(address))


def _is_of_no_host(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is one of those that registries keep for texts, tests and protocols."""
    return any(address in network for network in _RESERVED if network.version == address.version)


def _is_version(match: re.Match[str], address: ipaddress.IPv4Address, name: str) -> bool:
    """Whether four numbers are a version or a section: by what is before them, or because all of them are small."""
    before = match.string[max(0, match.start() - 64) : match.start()]
    line = before.rpartition("\n")[2]
    if min(address.packed) >= _LEAST_OF_VERSION and max(address.packed) >= _SMALL:
        return False  # whatever the field is called: versions have a small number somewhere
    if "version" in name.lower() or _UPGRADE_BEFORE.search(line):
        return True
    if (
        "-" in match[0]
        or _ADDRESS_BEFORE.search(line)
        or _ADDRESS_AFTER.match(match.string, match.end())
        or _IP_NAME.search(name)
    ):
        return False
    if address.packed[0] != _PRIVATE_NET and is_section(match, address.packed):
        return True
    few = max(address.packed) < _MOST_OF_A_SECTION and sum(number < 10 for number in address.packed) > 1  # noqa: PLR2004
    small = (few or max(address.packed) < _SMALL) and address.packed[0] != _PRIVATE_NET
    product = 0 in address.packed and _PRODUCT_BEFORE.search(line)
    return small or bool(product or _VERSION_BEFORE.search(line))


def _mac(match: re.Match[str], _name: str) -> Find | None:
    digits = "".join(c for c in match[0].lower() if c.isalnum())
    return whole(match, digits) if len(set(digits)) > 1 else None


_MAC = r"""
  (?<![\w.-])(?<!\b[0-9A-Fa-f]{2}:)(?:[0-9A-Fa-f]{2}(?P<gap>[:-])(?:[0-9A-Fa-f]{2}(?P=gap)){4}[0-9A-Fa-f]{2}|[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4})(?!\w|[.:-]\w)
"""
_SAID_AT = re.compile(r"\s*[\[({<]\s*(?:at|@|ät)\s*[\])}>]\s*|\s+(?:at|@|ät|arroba|arobase|chiocciola)\s+|_at_|\.at\.")
_SAID_DOT = re.compile(
    r"\s*[\[({<]\s*(?:dot|\.|punkt|punto|point)\s*[\])}>]\s*|\s+(?:dot|punkt|punto|point|ponto)\s+|_dot_"
)
_AT_A_POINT = re.compile(r"\sat\s+(?:[a-z]+\s+){1,2}point\s+(?:in|at|it|is|no|me)\Z")  # `at one point in` time
_OF_NOBODY = ("git", "hg", "svn")  # the logins of servers for code
_QUOTES = "\\\"'"
_TRANSLATED = bytes.fromhex("0064ff9b").ljust(12, b"\0")  # RFC 6052: an IPv4 host seen through IPv6
_PRIVATE_NET, _MULTICAST, _NO_HOSTS, _NETWORK = 10, 224, (0, 127), b"\0\0"
# RFC 5737 and 3849 (documentation), 2544 (benchmarks), 6890 (protocols). Private and shared ranges have hosts.
_RESERVED = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",
        "192.0.2.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "2001:db8::/32",
    )
)
_CARDS = r"(?:[^0-9A-Za-z_.+-]|%B|\\[bfnrt])[2-6][0-9]{3}(?:[0-9]{9}|-[0-9]{4}-| {1,3}[0-9]{4} | - |\.[0-9]{4}\.|[ .-][0-9]{6}[ .-])"
_PHONES = (
    r"\+[1-9](?:[ ()./-]{0,2}[0-9]){6}|01[5-7][0-9][ /-][0-9]{7}|0[2-9][0-9]{1,3}/[0-9]{5}|0[0-9]{1,2}-[0-9]{4}-[0-9]{4}|1[3-9][0-9][ -][0-9]{4}[ -][0-9]{4}|[6-9][0-9]{4} [0-9]{5}|[^0-9A-Za-z_.]00[1-9](?:[ ()./-]?[0-9]){7}|\(0?[1-9][0-9]{1,4}\) ?[0-9]{3}|[^0-9A-Za-z_.]0[1-9][0-9]{1,3}[ -][0-9]{3}"
    r"|0[1-9] [0-9]{2} [0-9]{2} [0-9]{2} |0[1-9][.-][0-9]{2}[.-][0-9]{2}[.-][0-9]{2}[.-]|[0-9]\)[ .-]?[0-9]{3}[ .-][0-9]{4}|[0-9]{3}\.[0-9]{3}\.[0-9]{4}|[0-9]{3}-[0-9]{3}-[0-9]{4}"
)
_ADDRESSES = r"ip-[0-9]{1,3}-[0-9]{1,3}-[0-9]|[0-9]-[0-9]{1,3}-[0-9]{1,3}-[0-9]{1,3}[.-][A-Za-z]|:[Ff]{4}:|64:ff9b:|\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|::|:[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:"
_MACS = r"[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}"

# An address as Cloudflare hides it in a page: bytes in hex, each with the first one's bits turned.
_HIDDEN = r"(?:(?<=cfemail=[\"'])|(?<=cfemail=\\[\"'])|(?<=cfemail=\\\\\\[\"'])|(?<=email-protection\#))(?P<hex>[0-9a-f]{14,510})(?![0-9A-Fa-f])"


def _hidden(match: re.Match[str], _name: str) -> Find | None:
    key, *rest = bytes.fromhex(match["hex"][: len(match["hex"]) // 2 * 2])
    address = bytes(byte ^ key for byte in rest).decode("latin-1")
    return whole(match, address.lower()) if "@" in address and address.isprintable() else None


# Lines that machines read of passports and visas (ICAO 9303, TD3 and MRV) and of cards (TD1, both lines with numbers).
_READ = r"""
  (?<![A-Z0-9<])(?:
    (?P<number>[A-Z0-9<]{9})(?P<digit>[0-9])[A-Z<]{3}[0-9]{7}[MFX<][0-9]{7}[A-Z0-9<]{8,16}
  | [IACPV][A-Z<][A-Z<]{3}(?P<card>[A-Z0-9<]{9})(?P<card_digit>[0-9])[A-Z0-9<]{15}
  | [0-9]{7}[MFX<][0-9]{7}[A-Z<]{3}[A-Z0-9<]{11}[0-9]
  )(?![A-Z0-9<])
"""
_WEIGHTS = (7, 3, 1)


def _read(match: re.Match[str], _name: str) -> Find | None:
    number, digit = match["number"] or match["card"], match["digit"] or match["card_digit"]
    if number is None:
        return whole(match, match[0]) if "<<" in match[0] else None
    total = sum((0 if c == "<" else int(c, 36)) * _WEIGHTS[n % 3] for n, c in enumerate(number))
    return whole(match, number.rstrip("<")) if total % 10 == int(digit) else None


EMAIL = Kind("email", "@", _EMAIL, _email, hint=WORDS)
HIDDEN = Kind("email", "cfemail=|email-protection#", _HIDDEN, _hidden, hint=WORDS)
READ = Kind("national_id", "[0-9]{7}[MFX<][0-9]{7}|[A-Z<]{3}[A-Z0-9<]{9}[0-9][A-Z0-9<]+<<", _READ, _read, hint=DIGITS)
SPOKEN = Kind(
    "email",
    r"(?i)[\[({<_ .](?:at|@|ät|arroba|arobase|chiocciola)[\])}>_ .].{1,64}[^a-z](?:dot|punkt|punto|point|ponto)[^a-z]|[\[({<]\s?(?:at|@|ät)\s?[\])}>]",
    _SPOKEN,
    _spoken,
    hint=WORDS,
)
IBAN = Kind(
    "iban",
    r"[A-Z]{2}[0-9]{2}(?:(?: {0,3}|[-./])[A-Z0-9]){11}"
    rf"|{START_OF_SHORT}(?:{'|'.join(IBAN_LENGTH).lower()})[0-9]{{2}}(?: {{0,3}}|[-./])(?:[a-z]{{4}}|[0-9]{{4}})(?: {{0,3}}|[-./])[0-9]{{2}}",
    _IBAN,
    _iban,
    hint=DIGITS,
)
MAC = Kind("mac", _MACS, _MAC, _mac, hint=JOINED)
CARD = Kind("card", _CARDS, _CARD, _card, numbers=r"(?i)card|(?<![a-z])(?:pan|cc)(?![a-z])", hint=DIGITS)
PHONE = Kind("phone", _PHONES, _PHONE, _phone, hint=DIGITS)
IP = Kind("ip", _ADDRESSES, _IP, _ip, hint=JOINED)
