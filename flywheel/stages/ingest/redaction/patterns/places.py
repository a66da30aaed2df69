r"""Secrets by their place: next to a name that gives them away, in assignments, markup, statements, headers and tables.

A name of a secret is looked for first; what is around it decides what its value is. All patterns begin at a known
place and are bounded, so that the time is linear in the text. Quotes may have backslashes before them, as in a text
within JSON: `flat` replaces those by spaces, character for character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from flywheel.stages.ingest.redaction.patterns.commands import in_commands
from flywheel.stages.ingest.redaction.patterns.hints import NEAR, START, WORDS
from flywheel.stages.ingest.redaction.patterns.kinds import GIVEN, Find, Scan, lowered
from flywheel.stages.ingest.redaction.patterns.lines import FORMS, LINES, in_forms, in_lines, without_prefixes
from flywheel.stages.ingest.redaction.patterns.logins import LOGINS, in_logins
from flywheel.stages.ingest.redaction.patterns.names import (
    COOKIE,
    HEADER,
    PASSWORD,
    PIN,
    SECRET,
    fits,
    is_placeholder,
    is_word,
    kind_of_name,
)
from flywheel.stages.ingest.redaction.patterns.near import FAIR, STRONG, TOKENS, is_worthy, near, worth
from flywheel.stages.ingest.redaction.patterns.sentences import in_sentences
from flywheel.stages.ingest.redaction.patterns.structure import basic_password
from flywheel.stages.ingest.redaction.patterns.tables import in_tables

_ESCAPED = re.compile(r"\\+(?:[\"'/`nr]|(?:x|u00)2[27])")
_LETTERS = {"n": "\n", "r": "\r", "2": '"', "7": "'"}
_QUOTES = str.maketrans("“”„«»‹›「」", '"' * 9)  # noqa: RUF001 - quotes as people write them
# Literals only: a search for these is fast.
_WORD = re.compile(
    r"passw|assword|pass|psk|sharedkey|shared_key|shared-key|shared key|pwd|pswd|pw\b|\bww\b|kennwort|contrase|senha|wachtwoord|mot de passe|mdp|hasł|haslo|lösenord|парол|şifre|sifre|parola|jelsz|heslo|salasana|adgangskode|passord|密码|密碼|パスワード|비밀번호|clé|secret|token"
    r"|key|credential|creds|auth|cookie|schlüssel|schluessel|sas_|sas-|sastoken|seed|mnemonic|dsn|pat\b|pin\b|pin_|cvv|cvc"
)
_BEFORE = re.compile(r"[\w-]{0,48}\Z")
_DOTTED = re.compile(r"(?:secret|private|account|encryption)\.\Z")  # before `key`, in a property's name
_AFTER = re.compile(r"[\w-]{0,40}")
_LONGEST_BEFORE = 48

_QUOTED = r"""(?:[bfrNuB@$]{0,2})(?P<q>["'`])(?P<quoted>(?:(?!(?P=q))[^\n]){1,512}?)(?P=q)"""
_BARE = r"""(?P<bare>[^\s"'`<>]{1,512})"""
_CLOSE = r"""["'`]?\s{0,4}["'`]?[\])]?"""
# What makes a value of a literal: a string, a secret of a framework, a text's bytes.
_HOLDER = r"(?:(?:new\s)?(?:[\w.]{0,24}(?:::|\.))?(?:from|of|[Ss]tring|str|b(?:ytes)?|Some|(?:[\w.]{0,24})?(?:Secret|Password|Sensitive)(?:Str(?:ing)?|Bytes|Value)?(?:::new|::from)?|secret|quote(?:_plus)?|encodeURIComponent)|\[\]byte)"
# After the name: its closing quote or bracket, what assigns, the value. A type may be between (`x: str = "..."`).
_ASSIGNED = re.compile(
    rf"{_CLOSE}(?:\[[0-9]{{0,6}}\]|\.(?:value|text|textContent|innerText))?[?!]?[ \t]{{0,16}}(?::[ \t]{{0,4}}[A-Za-z][\w.]{{0,24}}(?:[\[|][^\n=]{{0,24}})?[ \t]{{0,4}}(?==[^=]))?"
    rf"(?P<sep>=>|:=|::(?=[ ])|\|\|=?|\?\?=?|===?|!==?|[:=]|or(?=[ ][\"']))[ \t]{{0,16}}(?:\n(?=[ \t]{{0,24}}[\"'`{{]))?[ \t]{{0,24}}(?:[|>][-+]?[ \t]{{0,4}}\n[ \t]{{1,24}})?"
    rf"(?:&\w{{1,24}}[ ]{{1,4}})?(?:(?:{_HOLDER}\(\s{{0,8}}(?:value\s?=\s?)?)?{_QUOTED}|{_BARE})"
)
_LISTED = re.compile(rf"""["'`]\s{{0,4}},\s{{0,8}}{_QUOTED}""")
_MARKUP = re.compile(
    r"[^<>\n]{0,120}>\s{0,16}(?:<(?:[Vv]alue|string)>\s{0,8})?(?:<!\[CDATA\[)?(?P<bare>[^<>]{1,512}?)\s{0,16}(?:\]\]>)?</"
    r"|</[\w:.-]{1,40}>\s{0,24}<[\w:.-]{1,40}(?:\s[^<>]{0,60})?>\s{0,8}(?P<next>[^<>]{1,512}?)\s{0,8}</"
)
_OPENED = re.compile(r"<[\w:]{0,24}(?:\s(?:key|name|id)=[\"'][\w.-]{0,48})?\Z")
_ESCAPED_MARKUP = re.compile(r"&gt;(?P<bare>(?:(?!&lt;)[^\n]){1,256}?)&lt;")
_PAIR_NAMES = (
    r"(?:(?:parameter|setting)?value|val|text|content|data|default|secret|input|string|keys|body|defaultvalue)"
)
_PAIRED = re.compile(
    rf"""['"`\])]{{0,4}}(?:\s{{0,4}}\{{)?(?:[,;]|\s)[^{{}}<>]{{0,100}}?(?:(?<![\w-])["']?(?i:{_PAIR_NAMES})["']?\s{{0,4}}[:=]|--(?:value|body)[ =]|"""
    rf"""(?:/t[ \t]{{1,4}})?REG_\w{{2,10}}(?:[ \t]{{1,40}}/d)?[ \t])\s{{0,40}}(?:{_QUOTED}|{_BARE})"""
)
_VALUE_FIRST = re.compile(
    rf"(?:[{{(-]|<\w{{1,24}})\s{{0,12}}[\"']?(?:value|val)[\"']?\s{{0,4}}[:=]\s{{0,4}}(?:{_QUOTED}|{_BARE})[,;]?\s{{1,40}}[\"']?(?:name|key|key_name)[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?\Z"
)
_PART = re.compile(r"""["']?[^\n]{0,80}(?:\n[^\n]{1,120}){0,3}?\n[ \t\r]{0,24}\n[ \t]{0,24}(?P<bare>[^\r\n]{1,512})""")
_OUTPUT = ("PASS",)  # what tests print before a colon
_LOGIN, _SECOND = re.compile(r"(?i)cred(?:ential)?s"), re.compile(r"[ \t]{1,3}[^\s]{5,}")  # a user, then a password
_CALLED = ("password", "old_password", "db_password", "passwd", "pwdencrypt")
_SHORT, _LONG, _LONG_HEX = 6, 20, 32
_HEX = re.compile(r"[0-9a-fA-F]+")
_FOLLOWS = re.compile(
    r"[ \t]{1,4}(?P<type>[05-9][ \t]{1,3})?(?P<bare>[^\s\"'`<>=(){}\[\]/\\:,;-][^\s\"'`<>=(){}\[\]/\\]{5,255})(?=\s|\Z|[\"'`])"
)
_PHRASE_NEXT = re.compile(rf"[ \t]{{1,4}}[\"']?{_QUOTED}")
_PROSE_NEXT = re.compile(
    r"(?i)[a-z]+(?:-[a-z]+){1,2}|[0-9]+[a-z]{0,3}|[a-z]+[0-9]{1,2}|[0-9]+[-x][a-z0-9]+|[\w.-]+@.*|sha-?[0-9]+.*|[a-z]+\.[a-z]+(?:\.[a-z]+)*"
)
_SETS = re.compile(r"(?:ENV|ARG|setenv|set -[a-zU]{1,3})[ \t]{1,4}\Z")  # a variable, then its value
_SENT_AFTER = re.compile(rf"[^\n]{{0,24}}\n?[^\n]{{0,24}}?send(?:line)?\s{{0,2}}\(?\s?(?:--\s)?{_QUOTED}")
_PROTOCOL = re.compile(
    r"(?m)^[^\w\n]{0,6}(?:(?:ftp> ?)?user\s\S{1,64}|(?:\w{1,8}\s)?LOGIN\s\S{1,64}|AUTH|PASS|requirepass|masterauth|auth-user-pass:?\s{1,4}\S{1,64})[ ]{1,3}\"?(?P<quoted>[^\s\"']{4,128})[ \"]{0,6}$"
)
_NAMED_PART = re.compile(r"(?i)name=\s{0,8}[\"']?\Z")
_FILLED = re.compile(
    rf"""[^\n;]{{0,60}}?(?:fill|type|send_keys|sendKeys|setValue|val|press_sequentially|set_value|clear_and_type)\(\s?{_QUOTED}"""
)
_FILLED_NEXT = re.compile(rf"""[^\n;(){{}}]{{0,40}}?["'`)\]]\s{{0,3}},\s{{0,4}}{_QUOTED}""")
_DO_FILL = re.compile(r"(?:fill|type|input_text|set_value|setValue|send_keys|enter_text)\([^()\n]{0,80}\Z")
_SQL = re.compile(
    rf"(?i:\s{{1,8}}(?:by\s{{1,4}}(?:password\s{{1,4}})?|as\s{{1,4}})?){_QUOTED}|(?i:\s{{0,4}}\(\s{{0,4}}){_QUOTED.replace('q>', 'q2>').replace('(?P=q)', '(?P=q2)').replace('quoted>', 'called>')}"
)
_IDENTIFIED = re.compile(
    rf"(?i)identified\s{{1,8}}(?:by|with\s{{1,8}}\S{{1,64}}\s{{1,8}}(?:by|as))\s{{1,8}}(?:password\s{{1,8}})?(?:{_QUOTED}|(?P<bare>[^\s\"'`;,]{{3,128}}))"
)
_LOGIN_PAIR = re.compile(
    rf"auth[\"']?\s{{0,4}}[:=]\s{{0,4}}[\[(]\s{{0,16}}[\"'][^\"'\n]{{1,64}}[\"']\s{{0,4}},\s{{0,16}}{_QUOTED}"
)
_CONNECT = re.compile(
    rf"(?:getConnection|connect|login|authenticate|basic_auth|[A-Za-z]{{0,24}}(?:BasicAuth|Credentials?)|auth)\([^()\n]{{0,120}}?[\"'][^\"'\n]{{1,64}}[\"']\s{{0,4}},\s{{0,4}}{_QUOTED}\s{{0,4}}\)"
)
_URL = re.compile(r"://(?P<user>[^/\s:@<>\"'`\\]{0,64}):(?P<login>[^\s<>\"'`\\]{2,256})@(?=[\w.\[-]{1,255})")
_SQLPLUS = re.compile(r"sqlplus\s[^\n]{0,24}?[\w.]{1,40}/\s{0,2}\"?(?P<quoted>[^\s\"@/]{4,64})\s{0,2}\"?@")
_SET = re.compile(rf"(?i:set\s{{1,8}}password\s{{1,8}}for\s{{1,8}}[^\s;]{{1,128}}\s{{0,8}}=\s{{0,8}}){_QUOTED}")
_BRACED = re.compile(
    r"(?i)(?:pwd|password)\s?=\s?\{(?=[^}]{0,64}[0-9])(?P<quoted>[^{}\s$.()\[\]]{4,128})\}(?=[;\"'\s]|\Z)"
)
_SLASHED = re.compile(r"(?<=[ \t])/(?i:pw?|pwd|pass|password):(?P<quoted>[^\s\"'/\\]{4,128})(?=\s|\Z|\")")
_PGPASS = re.compile(
    r"(?m)^[ ]{0,8}[\w.*-]{1,128}:(?:[0-9]{4,5}|\*):[\w*.-]{1,64}:[\w*.-]{1,64}:(?P<quoted>[^\s:]{4,128})[ \"]{0,8}$"
)
_SERVED = re.compile(r"(?m):[0-9]{2,5}[ \t:]{1,4}[A-Za-z][\w.@+-]{0,63}:(?P<quoted>[^\s:/]{6,128})[ \"]{0,4}$")
_PORT = re.compile(r"[0-9]{1,5}(?:[/?#]|\Z)")
_CREDENTIALS = re.compile(r"""(?:[A-Za-z][\w-]{0,24}[ \t]{1,4})?(?P<bare>[^\s"'`,;<>]{6,4096})""")
_SEPARATED = re.compile(r"""(?:["'`]\s{0,4},|["'`]?\s{0,4}[:=]{1,2})\s{0,8}["'`\[]{0,3}\s{0,2}["'`]?""")
_COOKIES = re.compile(
    r"(?P<bare>[^\s\"'`\\;=,(){}]{1,64}=(?:\"[^\"\n;]{0,4096}\"(?=;)|[^;\r\n\"'`\\]{0,4096})(?:;[ ]?(?:[^\s\"'`\\;=,]{1,64}=\"[^\"\n;]{0,4096}\"(?=;|\s|\Z)|[^;\r\n\"'`\\]{0,4096})){0,64})"
)
_CUT = re.compile(r"[&;,](?=\s|\Z|[\w.% -]{1,40}=)|[)\]}]+[,;.:]*\Z|[)\]}]+[,;)\]}.]|\|\s|[,;]+\Z|(?<=[\w])[.:](?=\Z)")
_CODE_AFTER = re.compile(r"\s{0,4}[(\[]|\.\w")
_SUBSCRIPT = re.compile(r"[A-Za-z_][\w.]*[\[(]")
_FLAG = re.compile(
    rf"(?:[ \t]{{1,4}}|[ \t]{{0,4}}\\?\n[ \t]{{1,8}}|\n[ \t]{{0,24}}-[ ]|=)(?:{_QUOTED}|(?P<bare>[^\s\"'`-][^\s\"'`]{{0,255}}))"
)
# After a secret: what it was changed to.
_REPLACED = re.compile(r"<SECRET_[0-9a-f]{8}>(?=[\"'`]?[ \t])")
_CHANGED = re.compile(
    rf"[\"'`]?[ \t]{{1,4}}(?:->|=>|→|(?i:to|replace|auf|zu|en|por|para|naar|na))[ \t]{{1,4}}(?:{_QUOTED}|{_BARE})"
)
# Of a header that authorizes: what it has besides its scheme, `name="value"`.
_AUTHORIZING = re.compile(r"authorization\W{1,6}[\w-]{2,24}[ ](?=[^\n]{0,200}=)")
_PARAMETER = re.compile(r"(?<![\w-])(?P<name>[A-Za-z_]{3,24})=\"?(?P<value>[^\s\",;]{20,1024})")
# Links that let whoever has them in: what their parameters hold.
_LETTING_IN = re.compile(
    r"/(?:auth|login|signin|sign-in|sso|magic|reset|verify|confirm|invite|activate|callback|oauth)[\w/.-]{0,64}[?#](?P<query>[^\s\"'<>`]{20,2048})"
)
_VALUE_OF_LINK = re.compile(r"=(?P<value>[^&#=]{20,512})")
_MASKED = re.compile(r"::add-mask::(?P<quoted>[^\s\"'`$]{4,512})")
_ENV_BEFORE = re.compile(
    r"(?:^|[\n;&|({])\s{0,24}(?:export\s|set\s|env\s|ENV\s|declare\s-x\s|\$env:|-e\s{0,4}|[A-Z_0-9]+=\S{0,64}\s)?\s{0,4}\Z"
)


def flat(text: str) -> str:
    r"""Return a text of the same length in which `\"` is ` "`, `„` too, and `\n` a space and the end of a line."""
    text = text if text.isascii() else text.translate(_QUOTES)
    if "\\" not in text:
        return text

    def shown(match: re.Match[str]) -> str:
        letter = match[0][-1]
        return " " * (len(match[0]) - 1) + _LETTERS.get(letter, letter)

    return _ESCAPED.sub(shown, text)


def places(text: str, _name: str) -> Iterator[Find]:
    """Yield the secrets that their place gives away."""
    shown = flat(text)
    small = lowered(shown)
    finds = [find for word in _WORD.finditer(small) for find in _at(shown, word)]
    finds += in_lines(shown)
    if (lines := without_prefixes(shown)) is not None:
        named = [find for word in _WORD.finditer(lowered(lines.text)) for find in _at(lines.text, word)]
        finds += [
            Find(f.value, start := lines.place(f.start), start + len(f.value)) for f in named if "\n" not in f.value
        ]
    finds += _alone(shown, small)
    finds += _parameters(shown, small)
    finds += in_commands(shown)
    finds += in_logins(shown)
    finds += in_sentences(shown, small)
    finds += in_tables(shown, small)
    known = [find.end for find in finds] + [match.end() for match in _REPLACED.finditer(shown)]
    finds += [later for end in known for later in _changed(shown, end)]
    yield from finds
    yield from near(shown, small, finds)


def _changed(text: str, end: int) -> Iterator[Find]:
    """Yield what a secret was changed to: `password from A to B`, `"A" -> "B"`."""
    match = _CHANGED.match(text, end)
    if match is not None:
        group = "quoted" if match["quoted"] is not None else "bare"
        value = match[group].rstrip(".,;:)")
        if worth(value) >= FAIR or (group == "quoted" and fits(PASSWORD, value, quoted=True)):
            yield Find(value, match.start(group), match.start(group) + len(value))


def _parameters(text: str, small: str) -> Iterator[Find]:
    """Yield the random values of parameters: of a header that authorizes, of a link that lets in."""
    for header in _AUTHORIZING.finditer(small) if "authorization" in small else ():
        end = text.find("\n", header.end())
        for match in _PARAMETER.finditer(text, header.end(), end if end >= 0 else len(text)):
            if _is_key(match["value"].rstrip("=").removesuffix("%3D")):
                yield Find(match["value"], *match.span("value"))
    for link in _LETTING_IN.finditer(text) if "://" in text else ():
        for match in _VALUE_OF_LINK.finditer(text, *link.span("query")):
            if _is_key(match["value"]):
                yield Find(match["value"], *match.span("value"))


def _is_key(value: str) -> bool:
    return worth(value) == STRONG or (len(value) >= _LONG_HEX and _HEX.fullmatch(value) is not None)


def _at(text: str, word: re.Match[str]) -> Iterator[Find]:
    """Yield the value of one name of a secret."""
    before = _BEFORE.search(text, max(0, word.start() - _LONGEST_BEFORE), word.start())
    start = before.start() if before else word.start()
    after = _AFTER.match(text, word.end())
    end = after.end() if after else word.end()
    name = text[start:end]
    kind = kind_of_name(name.strip("-_"))
    if not kind and name == "key" and _DOTTED.search(text, max(0, start - 12), start):
        kind = SECRET
    if not kind or (text[start - 1 : start] == "/" and text[end : end + 1] != "="):  # a part of a path
        return
    for find in (_assigned, _marked_up, _flag, _pair, _filled, _statement, _next):
        value = find(text, start, end, kind)
        if value is not None:
            yield value
            return


def _value(match: re.Match[str] | None, group: str) -> tuple[str, int] | None:
    if match is None or match[group] is None:
        return None
    return match[group], match.start(group)


def _find(value: str, start: int) -> Find | None:
    """Return a find without the spaces around it."""
    bare = value.strip()
    start += value.find(bare) if bare else 0
    return Find(bare, start, start + len(bare)) if bare else None


def _assigned(text: str, start: int, end: int, kind: str) -> Find | None:  # noqa: PLR0911 - in order of evidence
    """`name = value` in all its writings; a value in code must be a literal."""
    if kind in (COOKIE, HEADER):
        return _header(text, end, kind)
    match = _ASSIGNED.match(text, end) or _listed(text, start, end)
    if match is None or match.groupdict().get("sep") in ("!=", "!=="):
        return None
    if match["quoted"] is not None:
        if match["quoted"].count("{") and text[match.start("q") - 1 : match.start("q")] in "fF$":
            return None
        return _find(match["quoted"], match.start("quoted")) if fits(kind, match["quoted"], quoted=True) else None
    bare, at = match["bare"], match.start("bare")
    if match["sep"] == ":" and (
        text[start:end] in _OUTPUT or (_LOGIN.fullmatch(text[start:end]) and _SECOND.match(text, match.end()))
    ):
        return None
    cut = _CUT.search(bare)
    closed = cut is not None and cut[0][0] in ")],"
    bare = bare[: cut.start()] if cut else bare
    code = _is_code(text, start, match, closed=closed, end=at + len(bare))
    if code and (not _is_generated(bare) or match["sep"].startswith("==") or _SUBSCRIPT.match(bare)):
        return None
    return _find(bare, at) if bare and fits(kind, bare) else None


def _listed(text: str, start: int, end: int) -> re.Match[str] | None:
    """`"name", "value"`, if the name is a flag or the first of two in brackets."""
    before = text[max(0, start - 12) : start].rstrip()
    is_flag = text[start : start + 1] == "-" or before.endswith("-")
    return _LISTED.match(text, end) if is_flag or re.search(r"[(\[]\s{0,4}[\"']\Z", before) else None


def _is_code(text: str, start: int, match: re.Match[str], *, closed: bool, end: int) -> bool:
    """Whether a bare value is a name in code: an argument, an attribute, what is called or compared."""
    if _CODE_AFTER.match(text, end):
        return True
    if match["sep"] in ("==", "===", ":=", "=>", "||=", "??=", "||", "??", "or") or _SUBSCRIPT.match(
        text, match.start("bare")
    ):
        return True
    spaced = text[match.end("sep") : match.end("sep") + 1] == " " and match["sep"] == "="
    return ((closed or spaced) and not _ENV_BEFORE.search(text[max(0, start - 48) : start])) or text[
        start - 1 : start
    ] == "."


def _is_generated(value: str) -> bool:
    """Whether a bare value cannot be a name in code."""
    return not value.replace(".", "").replace("_", "").isalnum() or (
        any(c.isalpha() for c in value) and (sum(c.isdigit() for c in value) >= 2 or not is_word(value))  # noqa: PLR2004
    )


def _header(text: str, end: int, kind: str) -> Find | None:
    """`Authorization: scheme credentials`, a cookie; what is after the name in a header, an object or a call."""
    separator = _SEPARATED.match(text, end)
    if separator is None:
        return None
    match = (_COOKIES if kind == COOKIE else _CREDENTIALS).match(text, separator.end())
    if match is None:
        return None
    value = match["bare"]
    if kind == COOKIE:
        return Find(value, *match.span("bare")) if fits(COOKIE, value) else None
    find = _find(value, match.start("bare"))
    if find is not None and (password := basic_password(find.value)):
        return find._replace(value=password)
    return find if fits(SECRET, value) else None


def _marked_up(text: str, start: int, end: int, kind: str) -> Find | None:
    """`<name>value</name>`, and a key's element followed by its value's."""
    if kind == COOKIE:
        return None
    match = (
        _MARKUP.match(text, end)
        if text[end : end + 1] in "> <" or text[end : end + 2] in ('">', "'>") or text[start - 1 : start] in "<:"
        else None
    )
    group = "bare" if match and match["bare"] is not None else "next"
    found = _value(match, group)
    if found is None:
        opened = text[max(0, start - 4) : start] == "&lt;" or text[start - 1 : start] == ":"
        found = _value(_ESCAPED_MARKUP.match(text, end), "bare") if opened else None
    elif group == "bare" and not _OPENED.search(text, max(0, start - 96), start):
        return None
    return _find(*found) if found and fits(kind if kind == PIN else _lax(kind), found[0], quoted=True) else None


def _lax(kind: str) -> str:
    return PASSWORD if kind == PASSWORD else SECRET


def _flag(text: str, start: int, end: int, kind: str) -> Find | None:
    """`--name value` on a command line."""
    if text[start : start + 2] != "--" and text[max(0, start - 2) : start] != "--" and text[start : start + 1] != "-":
        return None
    match = _FLAG.match(text, end)
    if match is None:
        return None
    quoted = match["quoted"] is not None
    group = "quoted" if quoted else "bare"
    value = match[group]
    kind = SECRET if kind == HEADER else kind
    if not quoted:
        cut = _CUT.search(value)
        value = value[: cut.start()] if cut else value
    return _find(value, match.start(group)) if fits(kind, value, quoted=quoted) else None


def _pair(text: str, start: int, end: int, kind: str) -> Find | None:
    """`name: NAME, value: VALUE`, in YAML, in objects, in attributes; a field and what is typed into it."""
    if kind == COOKIE:
        return None
    first = _VALUE_FIRST.search(text, max(0, start - 320), start)
    if first is not None:
        group = "quoted" if first["quoted"] is not None else "bare"
        value = first[group]
        return _find(value, first.start(group)) if fits(_lax(kind), value, quoted=group == "quoted") else None
    match = _PAIRED.match(text, end)
    if match is None or not re.search(
        r"[:=#(\[.\"'\w -]\s{0,3}[\"'`]?[\w \[\].#=\"'-]{0,24}\Z", text[max(0, start - 30) : start]
    ):
        return _part(text, start, end, kind)
    quoted = match["quoted"] is not None
    group = "quoted" if quoted else "bare"
    value = match[group]
    if not quoted:
        cut = _CUT.search(value)
        value = value[: cut.start()] if cut else value
    if not quoted and _SUBSCRIPT.match(value):
        return None
    return _find(value, match.start(group)) if fits(_lax(kind), value, quoted=quoted) else None


def _part(text: str, start: int, end: int, kind: str) -> Find | None:
    """A field of a form in parts: `name="password"`, an empty line, the value."""
    if not _NAMED_PART.search(text, max(0, start - 16), start):
        return None
    found = _value(_PART.match(text, end), "bare")
    return _find(*found) if found and fits(_lax(kind), found[0], quoted=True) else None


def _filled(text: str, start: int, end: int, kind: str) -> Find | None:
    """`locator('#password').fill('...')`, `fill('#password', '...')`."""
    match = _FILLED.match(text, end)
    if match is None and _DO_FILL.search(text[max(0, start - 100) : start]):
        match = _FILLED_NEXT.match(text, end)
    found = _value(match, "quoted")
    return _find(*found) if found and fits(_lax(kind), found[0], quoted=True) else None


def _statement(text: str, start: int, end: int, kind: str) -> Find | None:
    """`PASSWORD '...'`, `PASSWORD('...')` in SQL; `define('PASSWORD', '...')`."""
    if kind != PASSWORD or text[start:end] == "pass":
        return None
    match = _SQL.match(text, end)
    if match is None:
        return None
    group = "quoted" if match["quoted"] is not None else "called"
    if group == "called" and text[start:end].lower() not in _CALLED:
        return None
    return (
        _find(match[group], match.start(group))
        if fits(kind, match[group], quoted=True) and " " not in match[group]
        else None
    )


def _next(text: str, start: int, end: int, kind: str) -> Find | None:
    """`set NAME VALUE`, `password VALUE`; what is sent after a prompt. The value must not read as a word."""
    sent = _SENT_AFTER.match(text, end)
    if sent is not None and fits(PASSWORD, sent["quoted"], quoted=True):
        return _find(sent["quoted"], sent.start("quoted"))
    phrase = _PHRASE_NEXT.match(text, end) if kind == PASSWORD else None
    if phrase is not None and any(map(str.isdigit, phrase["quoted"])) and fits(PASSWORD, phrase["quoted"], quoted=True):
        return _find(phrase["quoted"], phrase.start("quoted"))
    match = _FOLLOWS.match(text, end)
    if match is not None and match["type"]:
        kind = PASSWORD  # `secret 0 ...`: written as it is
    if match is None or kind not in (PASSWORD, SECRET):
        return None
    if "](" in match["bare"]:
        return None  # a link's words, and where it goes
    value = match["bare"].rstrip(".,;:)]}!?" if not any(c.isdigit() for c in match["bare"]) else ".,;:)]}")
    strong = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    enough = len(value) >= (_SHORT if kind == PASSWORD else _LONG)
    if _SETS.search(text, max(0, start - 24), start) and len(value) >= _SHORT and fits(PASSWORD, value, prose=True):
        return _find(value, match.start("bare"))
    likely = enough and not _PROSE_NEXT.fullmatch(value) and fits(kind, value, prose=True)
    return _find(value, match.start("bare")) if likely and (strong or kind == PASSWORD) else None


def _alone(text: str, small: str) -> Iterator[Find]:
    """Yield what needs no name: logins in URLs, `IDENTIFIED BY`, pairs of user and password."""
    for match in _URL.finditer(text) if "://" in text else ():
        value = match["login"]
        if not _PORT.match(value) and not is_placeholder(value) and not GIVEN.fullmatch(value):
            yield Find(value, *match.span("login"))
    for part, pattern in (
        ("identified", _IDENTIFIED),
        (":", _PGPASS),
        ("auth", _PROTOCOL),
        ("ftp", _PROTOCOL),
        ("login ", _PROTOCOL),
        ("pass", _PROTOCOL),
        (":", _SERVED),
        ("add-mask", _MASKED),
        ("auth", _LOGIN_PAIR),
        ("sqlplus", _SQLPLUS),
        ("set password", _SET),
        ("={", _BRACED),
        (" /p", _SLASHED),
        ("(", _CONNECT),
    ):
        for match in pattern.finditer(text) if part in small else ():
            group = "quoted" if match["quoted"] is not None else "bare"
            if fits(PASSWORD, match[group], quoted=group == "quoted", prose=group == "bare"):
                yield from filter(None, [_find(match[group], match.start(group))])


_TRIGGER = (
    r"(?i:assword|bearer |passw|passe[^a-z]|senha|[^a-z]ww[:=]|add-mask::|authorization[\"'\\]{0,4}[:=]|/(?:auth|login|signin|sign-in|sso|magic|reset|verify|confirm|invite|activate|callback|oauth)[a-z0-9_/.-]{0,24}[?#]|wachtwoord|has(?:ł|l)o|парол|şifre|sifre|parola|jelsz|heslo|salasana|adgangskode|passord|clave |codice |rootpw|密码|密碼|パスワード|비밀번호|psk|shared.key|[a-z0-9] login |log in with|sign in with|secrets[\"'\\]{0,8}[ ]?:|auth |auth-user|requirepass|networkcred|passwd|passphrase|passcode|pass[\"'\\]{0,6}\]?[ ]?[:=,>-]|[a-z_-]pass[^a-z]|(?:user|login)[^\n\"]{1,48} pass |pass_(?:prod|dev|test|staging)|pass [^ \\\"]*[0-9!#%]|pass:|pwd|pswd|mdp[^a-z]|pw[^a-z]|kennwort|contrase|senha|identified|credential|creds[^a-z]|zugangs(?:daten|code)|schl(?:ü|ue)ssel"
    r"|(?:secret|token|key|auth|authorization|cookies?|dsn)(?:[-_][a-z0-9]{1,6}|value|text)?[\"'\\]{0,8}\]?[ ]{0,3}[:=>,<&]"
    r"|(?:secret|token|key|auth)[\"'\\]{0,8} (?:is|are|ist|lautet|value|[\"'\\]{0,6}[A-Za-z0-9_/+=.-]{16})"
    r"|(?:secret|token|key)[^a-z][^\n]{0,24}[A-Za-z0-9_/+=.-]{20}|-(?:secret|token|key)[\"'\\,]{0,4} [\"'\\]|secret set|put-parameter|secret-string|put-secret"
    r"|(?:secret|token|key)[\"'\\]{0,8}(?:\\+n| )[ -]{0,24}[\"'\\]{0,4}value|cv[vc]2?[^a-z]"
    rf"|{START}(?:(?:pin|t?otp)[^a-z]|(?:un)?rar |(?:un)?zip [^\"]*-P|7za? )"
    r"|(?:verifi|tigungs|sicherheits|curit|segurid|time|factor|mfa)[a-zäéóñ]{0,9}[ _-]?(?:code|passc)|c(?:ode|ódigo) (?:de s|de v|[0-9]{4})|[^a-z]tan[^a-z][^0-9]{0,12}[0-9]{4}|tiecode|einmalc|geheimzahl|code[^a-z][^0-9]{0,24}[0-9]{4}|ódigo[^0-9]{0,24}[0-9]{4}|security.?answer|puk[12]?[^a-z]|(?:認証|確認)コード|验证码|校验码|인증|lock ?box|puerta|türcode|(?:backup|recovery|rescue|scratch|wiederherstellungs)[ -]?codes?[^a-z]|c(?:odes?|ódigos?) (?:de )?(?:secours|récup|recup|respaldo)"
    r"|curl|sshpass|mysql|mariadb|mycli|redis-cli|ftp[> ]|twine|bcp |rpcclient|hydra|freerdp|winrm|crackmap|nxc |certutil|useradd|adduser|usermod|rabbitmqctl|ldap|smbclient|sqlcmd|sqlplus|mongo|net use|chpasswd|cryptsetup|kinit| /p:|sudo|openssl|lftp|htpasswd"
    r"|ipmitool|mosquitto|snmp|plink|pscp|psexec|securestring|getconnection)"
    r"|://[^/:@<>\"]*:[^:<>\" ]*@|:(?:543[0-9]|6432|\*):[^:\" ]+:[^:\" ]+:"
    rf"| -[NP][ =][\"']|{LOGINS}|{LINES}"
)
# Where none of these joins a name and a value, a value may be near a name: one that is worth enough.
PLACED = Scan(
    "secret", _TRIGGER, places, early=True, hint=WORDS, near=NEAR, tokens=TOKENS, worth=is_worthy, local=False
)
FORMED = Scan("secret", FORMS, lambda text, _name: in_forms(flat(text)), early=True, hint=WORDS, local=False)
