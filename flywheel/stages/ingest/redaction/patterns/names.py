r"""Which names are those of secrets, and which values next to such a name are secrets rather than words about them.

A password is whatever is in its place, other than a placeholder, a reference or a plain word; any other secret has
eight characters, letters and digits, and 3 bits of entropy a character (detect-secrets requires 3.0 of hex, gitleaks 3.5
after a name).
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from flywheel.stages.ingest.redaction.patterns.kinds import entropy

PASSWORD, SECRET, COOKIE, HEADER, PIN, KEY = "password", "secret", "cookie", "header", "pin", "key"

_START = r"(?:(?<![A-Za-z0-9])|(?<=[a-z0-9])(?=[A-Z]))"  # of a word, also in camelCase
_SUFFIX = (
    r"(?:[-_ ]?(?i:[0-9]{1,2}|value|text|plain(?:text)?|raw|confirm(?:ation|ed)?|again|repeat|new|old|current|base"
    r"|prod(?:uction)?|dev|staging|test|b64|base64|hex|enc(?:oded|rypted)?|str(?:ing)?|env|default|field|input|box))"
)
_GLUED = r"(?:pg|mysql|my|user|admin|root|db|smtp|mail|ftp|ssh|store|key|http|proxy|ansible|become|sudo|login|web|redis|bind|ldap|svc|app|vpn|wifi|sql|tmp)"
_PASSWORDS = (
    rf"[a-z0-9]*(?:passw(?:or[dt]s?)?|passwd|passwrd|pswd|kennwort|passphrase)|[a-z]{{0,12}}pwd|passcode|psk|pre[_ -]?shared[_ -]?key|(?!(?:com|by|sur|tres|over|encom|under|one|mul|low|high|band|ask)pass)[a-z]{{0,10}}pass|security[_ -]?answer|{_GLUED}?pw|ww"
    r"|contraseña|contrasena|mots?[_ -]?de[_ -]?passe|palavra[_ -]?passe|mdp|senha|wachtwoord|hasło|haslo|lösenord|пароль|密码|密碼|パスワード|비밀번호|assword|şifre\w{0,3}|sifre|parola(?:[_ -]?chiave)?|jelszó|heslo|salasana|adgangskode|passord"
)
_KEYS = (
    r"api|access|secret|private|signing|encrypt(?:ion)?|decrypt(?:ion)?|account|master|auth|app|application|service|storage"
    r"|deploy|ssh|session|admin|subscription|shared|shared[_ -]?access|server|consumer|hmac|jwt|webhook|aes|crypto|root"
    r"|license|licence|wallet|fernet|cipher|security|write|integration|publish(?:ing)?|client|bot"
)
_SECRETS = (
    rf"(?:{_KEYS})[_ -]?keys?|[a-z_-]{{0,40}}secret|[a-z_-]{{0,40}}token|credentials?|creds|secret[_-]?key[_-]?base"
    r"|authorization|auth|[a-z]{0,12}auth|api[_ -]?schl(?:ü|ue)ssel|(?:netzwerk|wlan|sicherheits|zugangs)[_ -]?schl(?:ü|ue)ssel"
    r"|x[_-]api[_-]key|sas[_-]?token|seed[_ -]?phrase|mnemonic|private[_ -]?key|dsn|pat|clé[_ -]?api"
)
_IS_PASSWORD = re.compile(rf"(?:.{{0,64}}{_START})?(?i:{_PASSWORDS}){_SUFFIX}{{0,3}}\Z", re.DOTALL)
_IS_SECRET = re.compile(rf"(?:.{{0,64}}{_START})?(?i:{_SECRETS}){_SUFFIX}{{0,3}}\Z", re.DOTALL)
_IS_KEY = re.compile(r"[A-Z0-9_]{2,40}_KEY")
_IS_COOKIE = re.compile(r"(?i)(?:.*[^a-z])?(?:set-)?cookies?\Z")
_IS_PIN = re.compile(
    r"(?i)(?:.*[^a-z])?(?:pin|pin[_-]?(?:code|number)|cv[vc]2?|(?:card[_-]?)?security_?code|t?otp(?:[_-]?code)?|(?:mfa|2fa|two[_-]?factor|verification|one[_-]?time)[_-]?(?:code|passcode))\Z"
)
_PIN = re.compile(r"[0-9]{3,8}")
_OF_COOKIES = re.compile(r"(?i)\s*(?:path|domain|expires|max-age|samesite|version|priority)")
_IS_NOT = re.compile(
    r"(?i)(?:(?:no|max|min|num|pad|eos|bos|unk|sep|cls|mask|special|stop|per|cancel)[_-]?tokens?"
    r"|(?:public|primary|foreign|sort|partition)[_-]?key|public_?key_?token"
    r"|pass_?(?:test|rate|count|through)|csrf_?token_?name|(?:.*[^a-z])?(?:show|hide|forgot|reset|has|is|use|no|needs?|without|wrong|invalid)[_-]?pass(?:word)?)"
)

# What takes the place of a value: references, placeholders, names of types and states.
_ELSEWHERE = re.compile(
    r"(?:~|\.{0,2})/[\w./-]*|[A-Za-z]:\\.*|[$@]\{?[A-Za-z_]\w*[:?+-]*[}%]?|%[A-Za-z_]+|%\w+%|\$[({].*|\{\{?.*|<.*|%[({]?\w*\)?s?|[A-Za-z_]+(?:\.[A-Za-z_]+)+"
    r"|\[.*|.*\$\{[A-Za-z_]\w*\}.*|\W*|[xX*•#.…?-]{3,}|&[a-z]+;.*|[a-z_][a-z_.]*\[[-:]?[\w:]{0,2}-?[0-9]?\]?|[A-Za-z_][\w.]*(?:\(|\[(?:[\x22']|\w{1,24}[:(])).*|https?://.*|![A-Za-z_]+|.*\.{3}|\\.*|[a-z_]\w*=[\x22'].*"
    # what a program reads or hides
    r"|\(?Read-Host\b.*|std::env::.*|\(?os\.(?:getenv|environ)\b.*|\$env[(:{].*|\(?\((?:hidden|sensitive|redacted|unchanged|none|empty|masked)\b.*|\?\w+\}?|\$_\w+\[.*|[\w.-]+(?:/[\w.-]+)*/|-{2,}WebKitFormBoundary\w*|.*=\{\w+\}.*|#[\w-]*(?:pass|pwd|login|secret)[\w-]*",
    re.DOTALL,
)
_PLACEHOLDER = re.compile(
    r"(?i)(?:(?:your|my|the|some|enter|insert|change|choose|new|old|example|sample|dummy|fake|placeholder|redacted|masked"
    r"|hidden|hashed|encrypted|raw|plain|invalid|wrong|user|db|current|default|test|random|super|set|get|has|is|no|use)"
    r"[ _.-]?)*(?:passw(?:or[dt])?s?|passwd|password_?hash|pwd|pass|passphrase|secrets?|tokens?|key|api[ _-]?key|here|this|me|value"
    r"|string|text|field|kennwort|login|credentials?|user|username)(?:[ _.-]?(?:here|goes|value|field|input|hash|file|name|id|key))*"
)
_WORDS = frozenset(
    """
    str string bytes bytearray int integer float bool boolean any none null nil true false optional required undefined
    object array list dict map number date char varchar text blob uuid type self this value data input output name field
    hidden empty unset unknown missing invalid valid wrong incorrect correct expired changed change reset set sent stored
    saved hashed encrypted protected needed mandatory not a an the is was be been are at by for from in into of on or and
    to too with without your my our his her their its it that what which who when where if else then because as but so
    only also must may can cannot should will would has have had does did do new old same different strong weak secure
    longer shorter case least between file prompt option flag argument parameter env environment variable stdin see
    please enter type provide use used using redacted masked removed omitted secret password passwd token key login user
    username default example sample placeholder manager policy strength hash auth authentication authorization basic
    bearer digest negotiate ntlm aws4 apikey ask asked vault yes no off false ok fail failed failure error
    usage command unexpected unrecognized unsupported illegal ignoring permission extra
    raise return pass break continue yield assert import lambda await async def class try except finally global print
    exit throw const let var function end begin select update where null== undefined== next prev
    falsch richtig ungültig abgelaufen geändert korrekt nicht ist war wird erforderlich vergessen leer unbekannt neu und
    oder für mit ein eine einen der die das dem den des sicher zu lang kurz zurückgesetzt zurücksetzen gesperrt auch noch
    """.split()  # noqa: SIM905 - a list of words reads as one
)
_OF_SENTENCES = frozenset(
    """
    a an the is are was were be been must have has had your you my our their please enter to of for from at in on not and
    or with that this it its will should would can could may if when as by do does did no yes than then but any all use
    der die das den dem ist sind war muss müssen bitte ihr ihre dein deine mein nicht und oder mit ein eine einen von zu
    """.split()  # noqa: SIM905 - a list of words reads as one
)
# Pairs of letters of English and German words, those that make up 93 % of them.
_PAIRS = frozenset(
    letters[0] + second
    for letters in [
        "abcdgiklmnprstuvy",
        "baeilorsu",
        "cacehiklortu",
        "dadeiorsu",
        "eabcdefgilmnpqrstvwx",
        "faefilortu",
        "gaehilnorsu",
        "haeiort",
        "iabcdefglmnoprstvx",
        "je",
        "keis",
        "ladeilostuy",
        "mabeimopsu",
        "nacdefgiknostuv",
        "oabcdfgiklmnoprstuvw",
        "paeiloprstu",
        "qu",
        "racdegiklmnorstuvy",
        "sacehikopstuy",
        "tacehilorstuy",
        "uabcdegilmnprst",
        "vaeio",
        "waehinos",
        "xpt",
        "yms",
        "ze",
    ]
    for second in letters[1:]
)
_SPOKEN = 0.7  # the share of such pairs; of ten random letters 3 % reach it, of words 98 %
_SHORT_WORD, _LONG_WORD, _SHORT_PASSWORD, _SHORT_SECRET, _LONG = 8, 10, 4, 8, 512
_SECRET_BITS, _BITS_OF_LETTERS, _KEY_LENGTH = 2.7, 3.5, 16
_WORDY = re.compile(r"[A-Za-zÀ-ÿ]+(?:['\u2019-][A-Za-zÀ-ÿ]+)?")
_PARTS = re.compile(r"[a-z]{4,}(?:-[a-z]{4,}){2,}|\w+(?:-\w+){3,}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_]*[0-9]{0,2}")
_CODE_CASE = re.compile(r"[a-z]+(?:[A-Z][a-z]+)+|[a-z]+(?:_[a-z]+)+|(?:[A-Z][a-z]+)+|[A-Z]+(?:_[A-Z]+)*")


@lru_cache(maxsize=1 << 12)
def kind_of_name(name: str) -> str:  # noqa: PLR0911 - one for each kind of name
    """Return what a name shows of its value: "password", "secret", "cookie", "header" or ""."""
    if _IS_NOT.fullmatch(name):
        return ""
    if _IS_COOKIE.fullmatch(name):
        return COOKIE
    if _IS_PASSWORD.match(name):
        return PASSWORD
    if _IS_PIN.fullmatch(name):
        return PIN
    if name.lower().endswith(("authorization", "auth")) and _IS_SECRET.match(name):
        return HEADER
    if _IS_SECRET.match(name):
        return SECRET
    return KEY if _IS_KEY.fullmatch(name) else ""


def fits(kind: str, value: str, *, quoted: bool = False, prose: bool = False) -> bool:  # noqa: PLR0911 - one for each kind
    """Whether a value is one of the kind of secret that a name announces.

    Args:
        kind: of the name.
        value: what is there, without quotes.
        quoted: it is a literal or a field's value, no name of something else; it may have spaces.
        prose: words around it form a sentence; these are more often about a password than one.
    """
    value = value.strip()
    if kind == PIN:
        return _PIN.fullmatch(value) is not None
    if kind == COOKIE:
        cookies = [cookie.partition("=") for cookie in value.split(";")]
        return any(len(held.strip(' "')) >= _SHORT_PASSWORD and not _OF_COOKIES.fullmatch(n) for n, _, held in cookies)
    if not _SHORT_PASSWORD <= len(value) <= _LONG or is_placeholder(value):
        return False
    if kind == KEY:
        return (
            len(value) >= _KEY_LENGTH
            and " " not in value
            and any(c.isdigit() for c in value)
            and _is_key(value, _KEY_LENGTH)
        )
    if kind in (SECRET, HEADER):
        return _is_key(value, least=_SHORT_WORD if quoted else _LONG_WORD)
    if " " in value:
        return quoted and _is_phrase(value)
    if prose:
        return not is_word(value)
    return quoted or not (_IDENTIFIER.fullmatch(value) and _CODE_CASE.fullmatch(value) and is_word(value))


def is_placeholder(value: str) -> bool:
    """Whether a text takes the place of a secret: a reference to it, or a word where it would be."""
    word = value.rstrip(".!?:,;")
    return bool(
        not word
        or word.lower() in _WORDS
        or _ELSEWHERE.fullmatch(value)
        or _PLACEHOLDER.fullmatch(word)
        or len(set(word)) == 1
    )


def is_word(text: str) -> bool:
    """Whether a text reads as a word or a name, not as something generated or with a digit in it."""
    word = text.rstrip(".!?:,;")
    if not _WORDY.fullmatch(word):
        return bool(_CODE_CASE.fullmatch(word)) and is_spoken(word.replace("_", ""))
    return len(word) < _SHORT_WORD or is_spoken(word)


def is_spoken(text: str) -> bool:
    """Whether letters follow one another as in words."""
    pairs = [a + b for a, b in pairwise(text.lower()) if a.isascii() and b.isascii()]
    return sum(pair in _PAIRS for pair in pairs) >= _SPOKEN * len(pairs)


def _is_key(value: str, least: int) -> bool:
    digits, letters = sum(c.isdigit() for c in value), sum(c.isalpha() for c in value)
    if " " in value:
        return bool(digits) and value.count(" ") > 1 and _is_phrase(value)
    if len(value) < _SHORT_SECRET:
        return False
    if not digits:
        return (
            (not _CODE_CASE.fullmatch(value) and not _WORDY.fullmatch(value) and entropy(value) > _BITS_OF_LETTERS)
            or (len(value) >= least and not is_word(value))
            or _PARTS.fullmatch(value) is not None
        )
    return bool(letters) and entropy(value) >= _SECRET_BITS


def _is_phrase(value: str) -> bool:
    """Whether words are a passphrase: few, none that makes a sentence, or with digits among them."""
    words = value.lower().split()
    if len(words) > 12 or any(word.strip(".,:;!?") in _OF_SENTENCES for word in words):  # noqa: PLR2004
        return False
    return any(c.isdigit() for c in value) or (len(words) >= 3 and value == value.lower())  # noqa: PLR2004
