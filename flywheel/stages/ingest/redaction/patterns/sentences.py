"""Secrets that people say: "the password is ...", "use ... as the password", „das Passwort lautet ...“, a PIN."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flywheel.stages.ingest.redaction.patterns.kinds import Find, windows
from flywheel.stages.ingest.redaction.patterns.names import PASSWORD, SECRET, fits, is_placeholder

_PASSWORDS = r"mdp|pass[ -]?(?:word|wd|phrase|code)|mots? de passe|palavra[- ]passe|ww(?=:)|contrase(?:ñ|n)a|senha|parola d'ordine|kennwort|passwort|clave|şifrem?|parola|jelszó|heslo|salasana|passord|adgangskode|zugangscode|pwd|\bpw\b|\bpass(?=\s)"
_SECRETS = (
    r"api[ -]?(?:key|token|secret)|(?:access|secret|auth(?:entication)?|bearer|personal access|refresh|session|bot|deploy|signing|webhook|client|license|totp|private|wallet|eth(?:ereum)?(?: private)?|encryption)[ -](?:key|token|secret)"
    r"|\btoken\b|\bsecret\b|(?:api|wlan|netzwerk|zugangs|sicherheits|lizenz|wifi|wi-fi)[ -]?schl(?:ü|ue)ssel|\bPAT\b|totp secret"
)
_KEY = re.compile(rf"(?i)(?<![\w/.@=-])(?:(?P<password>{_PASSWORDS})|(?P<secret>{_SECRETS}))s?(?![\w=/(\[<])")
_QUOTE = r"""["'`“”„«»‘’‚‹›「」]"""  # noqa: RUF001 - quotes as people write them
_IS = r"(?:brzmi|(?<=contraseña )a|(?<=clave )a|it's|it is|that's|is now|is still|is|was|are|will be|would be|should be|has been set to|changed from|changed to|set to|from|to|as|à|est désormais|est|es ahora|es|è|é|ist jetzt|ist|lautet|war|wird|sei|auf|heißt|:|=|->|=>|→|–|-(?!-))"  # noqa: RUF001 - a dash
# What may be between: of what, for whom, since when; then the verb or a colon.
_SAID = re.compile(
    rf"(?i)[\"'`*_,]{{0,3}}(?:\s(?!it\b|is\b|ist\b|was\b)[\w@.()/'\\-]{{1,40}}){{0,7}}?,?[ \t]{{0,3}}(?:{_IS}(?=\W)[ \t]{{0,4}}:?)[*_]{{0,2}}[ \t]{{0,3}}\n?[ \t]{{0,3}}"
    rf"(?:(?P<q>{_QUOTE})(?P<quoted>[^\n]{{3,128}}?){_QUOTE}(?![\w])|(?P<bare>[^\s\"`<>“”„«»]{{3,256}}))"
)
_NEXT = re.compile(
    rf"[ \t]{{1,3}}(?:(?P<q>{_QUOTE})(?P<quoted>[^\n]{{3,128}}?){_QUOTE}(?![\w])|(?P<bare>[^\s\"`<>“”„«»]{{4,256}}))"
)
_AS = re.compile(
    rf"(?i)(?:use|with|set|enter|type|try|nimm|nutze|verwende|mit)\s{{1,3}}(?:(?P<q>{_QUOTE})(?P<quoted>[^\n]{{3,128}}?){_QUOTE}|(?P<bare>[^\s\"`<>]{{4,256}}))"
    r"\s{1,3}(?:as|for|als)\s{1,3}(?:my|the|your|a|new|das|dein|mein|neues)?\s?(?:[\w-]{1,20}\s){0,2}(?:pass|kennwort|pin\b|secret|token)"
)
_TYPED = re.compile(
    r"(?i)pass(?:word|wort|code|phrase)|kennwort|contraseñ|mot de passe|senha|credentials?|zugangsdaten"
)
_TYPED_AFTER = re.compile(
    rf"(?i)[^\n]{{0,48}}?\b(?:typed|entered|tried|getippt|eingegeben|tippte|saisi|tapé|escribí|digitei)\s(?:in\s|it\s|as\s)?(?:(?P<q>{_QUOTE})(?P<quoted>[^\n]{{4,64}}?){_QUOTE}|(?P<bare>(?=[^\s]{{0,64}}[0-9])(?=[^\s]{{0,64}}[A-Za-z])[^\s\"`<>()]{{6,64}}))"
)
_LOGIN_NEXT = re.compile(
    r"(?i)(?:login|user(?:name)?|account|machine|with|and|und|mit|benutzer\w{0,8}|temporary|new|initial|default|neues|neuem|dem)\W{0,3}(?:\S{1,64}\W{1,4})?(?:the\s|dem\s)?(?:\w{0,12}\s)?\Z"
)
_USER_BEFORE = re.compile(r"(?i)\b(?:user(?:name)?|login|account)\W{1,3}\S{1,64}\W{1,3}(?:and |und )?\Z")
_NETRC = re.compile(
    r"(?i)(?:machine\s+\S{1,128}\s+(?:login\s+\S{1,128}\s+)?|(?:login|user(?:name)?)\s+\S{1,128}\s+)(?:password|pass)\s+(?P<bare>\S{3,256})"
)
_PAIR = re.compile(
    r"(?i)(?:credentials?|login|logins|acceso|accès|accesso|acesso|zugang|dostęp|toegang|(?:log|sign) in with|zugangsdaten|user(?:name)?\s?/\s?pass(?:word)?)\b[^\n:]{0,40}:?(?: ?→)?\s{1,3}(?P<user>[\w.@+-]{2,64})\s{0,2}[/:|]\s{0,2}(?P<bare>[^\s\"'`<>,;]{5,128})"
)
_CODES = (
    r"(?:verification|security|one[ -]time|sms|2fa|mfa|two[ -]factor|authenticat(?:or|ion)|login|log-?in|access|alarm|door|lock ?box|safe|garage|building|gate|entry|unlock|recovery|backup|pairing)[ -](?:pass)?codes?|(?:use|enter) (?:the )?code|(?:pass|one-time )code|t?otp"
    r"|(?:bestätigungs|sicherheits|verifizierungs|einmal|zugangs|tür|haustür|tor)[ -]?(?:code|pin)|code (?:de |d')?(?:la )?(?:vérification|sécurité|connexion|accès|pin)"
    r"|(?:your|ihr|dein|votre|ton|tu|su|seu|je|uw|din|ditt|twój) (?:[\w-]{1,16} ){0,2}(?:code|código|kod|kode)"
    r"|(?:認証|確認)コード|验证码|校验码|인증(?:번호|코드)|código (?:de )?(?:la )?(?:puerta|entrada|portal|alarma|verificación|verificação|seguridad|segurança|acceso|acesso|pin)"
    r"|codice (?:di |d')?(?:verifica|sicurezza|accesso|conferma)|[a-zäöü]{4,14}code|kod (?:weryfikacyjny|autoryzacyjny)|verifieringskod|doğrulama kodu"
)
_PIN = re.compile(
    rf"(?i)(?<![\w-])(?:pin(?:[ -]?(?:code|number|nummer))?|puk[12]?|pin[12]|cv[vc]2?|{_CODES}|geheimzahl|tan)['\"]?(?:\s(?:for|of|on|für|von|de|du|pour|para)\s[\w\s]{{1,24}}?)?\s{{0,3}}(?:{_IS})?\s{{0,3}}(?:le |el |o )?[\"'#]?(?P<bare>[0-9]{{3,8}})(?![\w.,-]?[0-9A-Za-z])"
)
_BACKUP = re.compile(
    r"(?i)(?:(?:backup|recovery|rescue|scratch|wiederherstellungs)[ -]?codes?|c(?:odes?|ódigos?) (?:de )?(?:secours|récupération|recuperaci[óo]n|respaldo|recuperação|backup))[^\n]{0,40}?(?::|are\b|sind\b|sont\b|son\b|são\b|\n)(?P<codes>(?:[\s,;*0-9.)-]{1,6}(?=[a-z0-9-]{0,12}[0-9])[a-z0-9]{4,8}(?:-[a-z0-9]{4,8}){0,3}){1,16})"
)
_BACKUP_CODE = re.compile(r"(?i)(?=[a-z0-9-]{0,12}[0-9])[a-z0-9]{4,8}(?:-[a-z0-9]{4,8}){0,3}")
_CODE_FIRST = re.compile(
    r"(?i)(?<![\w.,#-])(?P<bare>[0-9]{4,8}) (?:is|ist|est|es) (?:your|the|ihr|dein|votre|su|tu)(?: [\w-]{1,20}){0,3}? (?:pass)?(?:code|pin|otp|tan|código)\b"
)
_PROMPT = re.compile(
    r"(?im)^[^\n]{0,40}(?:password|passphrase|kennwort|passwort)(?: for [^\n:]{1,64})?:[ \t]{1,2}(?P<bare>[^\s\"'<>]{4,128})[ \t]*$"
)
# With the characters before and after a word of `_SAYING` that they need.
_WAYS = ((_AS, 160, 12), (_NETRC, 160, 260), (_PROMPT, 64, 160), (_PAIR, 12, 240))
_DONE = ".,;:)]}\u2026"
_PINS = re.compile(
    r"codes? de|puk|コード|验证码|校验码|인증|code\b|pin\b|pin[ -]|cvv|cvc|codes?\b|codice|kod\b|kodu\b|código|otp\b|geheimzahl|tan\b"
)
_SAYING = re.compile(
    r"pass|mdp\b|kennwort|contrase|senha|clave|şifre|parola|jelsz|heslo|salasana|adgangskode|\bww:|log in|sign in|pwd|pw\b|login|user\b|username|credential|zugang|token|secret|key|lüssel|luessel|pat\b"
)


def in_sentences(text: str, small: str) -> Iterator[Find]:
    """Yield what is called a password, a key or a PIN.

    Args:
        text: where to look.
        small: the same in small letters.
    """
    yield from _codes(text, small)
    words = list(_SAYING.finditer(small))
    for start, end in windows(words, 24, 12):
        for word in _KEY.finditer(text, start, end):
            yield from _after(text, word)
    for pattern, before, after in _WAYS:
        for start, end in windows(words, before, after):
            for match in pattern.finditer(text, start, end):
                yield from _of(match, netrc=pattern is _NETRC)
    for word in _TYPED.finditer(text):
        if typed := _TYPED_AFTER.match(text, word.end()):
            yield from _of(typed, netrc=False)


def _codes(text: str, small: str) -> Iterator[Find]:
    """Yield PINs, codes that are sent, and lists of codes for later."""
    for start, end in windows(_PINS.finditer(small), 48, 64):
        for pattern in (_PIN, _CODE_FIRST):
            for match in pattern.finditer(text, start, end):
                yield Find(match["bare"], *match.span("bare"))
        for match in _BACKUP.finditer(text, start, end + 240):
            for code in _BACKUP_CODE.finditer(text, *match.span("codes")):
                yield Find(code[0], *code.span())


def _of(match: re.Match[str], *, netrc: bool) -> Iterator[Find]:
    quoted = match.groupdict().get("quoted")
    find = _cut(match, "quoted" if quoted else "bare")
    if find and fits(PASSWORD, find.value, quoted=bool(quoted) or netrc, prose=not netrc and not quoted):
        yield find


def _after(text: str, word: re.Match[str]) -> Iterator[Find]:
    """Yield what a sentence shows after naming a password: at most once."""
    kind = PASSWORD if word["password"] else SECRET
    if word[0].lower() == "pass" and not _USER_BEFORE.search(text, max(0, word.start() - 80), word.start()):
        return  # a verb
    ways = [_SAID]
    if kind == SECRET or _LOGIN_NEXT.search(text[max(0, word.start() - 80) : word.start("password")]):
        ways.append(_NEXT)
    for way in ways:
        match = way.match(text, word.end())
        if match is None:
            continue
        quoted = match["quoted"] is not None
        find = _cut(match, "quoted" if quoted else "bare")
        if find and _is_said(
            kind,
            find.value,
            quoted=quoted,
            colon=word[0] != "pwd" and text[max(0, find.start - 4) : find.start].rstrip(" *_`").endswith((":", "=")),
        ):
            yield find
            return


def _is_said(kind: str, value: str, *, quoted: bool, colon: bool) -> bool:
    if is_placeholder(value) or value.startswith(("http://", "https://", "/", "--")):
        return False
    if kind == SECRET:
        return " " not in value and "](" not in value and fits(SECRET, value)
    return fits(PASSWORD, value, quoted=quoted or colon, prose=not quoted and not colon)


def _cut(match: re.Match[str], group: str) -> Find | None:
    value = match[group]
    start = match.start(group)
    if group == "bare":
        shorter = value.lstrip("'(*_“„")
        start += len(value) - len(shorter)
        value = shorter.rstrip(_DONE + "'*")
        if value.endswith(("!", "?")) and not any(c.isdigit() for c in value):
            value = value.rstrip("!?")
    return Find(value, start, start + len(value)) if value else None
