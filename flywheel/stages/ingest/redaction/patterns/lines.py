r"""Secrets in lines of files that give them a place but no name, wherever such a line is: in prose, a log, a dump.

A line of `.pgpass`, of Postfix' or Dovecot's passwords, of `chap-secrets`, an ACL of Redis. Loggers, diffs, quotes and
listings put something before each line: `without_prefixes` reads a text as it was before.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from flywheel.stages.ingest.redaction.patterns.kinds import GIVEN, Find
from flywheel.stages.ingest.redaction.patterns.names import PASSWORD, fits, is_placeholder
from flywheel.stages.ingest.redaction.patterns.near import FAIR, worth

_BEGIN = r"(?:^|(?<=[\s\"'`<>(;|+:\]-]))"
_END = r"(?=[\s\"'`<>);|,]|\Z)"
_VALUE = r"(?P<bare>[^\s:\"'`<>]{4,128})"
_ARGUMENT = r"[\"'][^\"'\n]{1,160}[\"']"
_WAYS = (
    (":", re.compile(rf"{_BEGIN}[\w.*-]{{1,128}}:(?:[0-9]{{4,5}}|\*):[\w*.-]{{1,64}}:[\w*.@-]{{1,64}}:{_VALUE}{_END}")),
    ("]:", re.compile(rf"\[[\w.-]{{3,128}}\](?::[0-9]{{2,5}})?[ \t]{{1,4}}[A-Za-z][\w.@+-]{{0,63}}:{_VALUE}{_END}")),
    ("}", re.compile(rf"(?i){_BEGIN}[\w.@+-]{{1,64}}:\{{(?:plain|clear(?:text)?|sha\d*|ssha\d*|crypt|md5)\}}{_VALUE}(?=:|\s|\Z|[\"'`<])")),
    ("*", re.compile(r"[\"']?[A-Za-z][\w.@-]{0,63}[\"']?[ \t]{1,8}(?:\*|[\w.-]{3,64})[ \t]{1,8}(?P<q>[\"'])(?P<bare>[^\s\"']{4,128})(?P=q)[ \t]{1,8}\*(?=\s|;|\Z|[\"'`])")),
    ("etuser", re.compile(r"(?i)setuser[ \t]{1,4}\S{1,64}(?:[ \t]{1,4}[^\s>]{1,64}){0,8}[ \t]{1,4}[\"']?>(?P<bare>[^\s\"'`<]{4,128})")),
    ("ETUSER", re.compile(r"(?i)setuser[ \t]{1,4}\S{1,64}(?:[ \t]{1,4}[^\s>]{1,64}){0,8}[ \t]{1,4}[\"']?>(?P<bare>[^\s\"'`<]{4,128})")),
    ("requirepass", re.compile(r"requirepass[ \t]{1,4}[\"']?(?P<bare>[^\s\"'`<>]{4,128})")),
    ("masterauth", re.compile(r"masterauth[ \t]{1,4}[\"']?(?P<bare>[^\s\"'`<>]{4,128})")),
    ("!!str", re.compile(r"(?:pass\w{0,8}|pwd|secret|token|key)[\"']?:[ ]{1,4}!!\w{2,8}[ ]{1,4}[\"']?(?P<bare>[^\s\"'`<>]{4,128})")),
    ("<<<", re.compile(r"(?i)(?:sudo|pass|pw|login|auth|token|secret|key)[^\n]{0,80}<<<[ ]{0,2}[\"']?(?P<bare>[^\s\"'`]{4,128})")),
    ("IDENTIFY", re.compile(r"IDENTIFY[ ]{1,2}(?:[A-Za-z]\w{1,16}[ ])?(?P<bare>[^\s\"'`<>]{6,128})")),
    ("(", re.compile(rf"(?i)\w{{0,24}}(?:connect|connection|pdo|mysqli|client)\(\s?{_ARGUMENT}\s{{0,2}},\s{{0,4}}{_ARGUMENT}\s{{0,2}},\s{{0,4}}[\"'](?P<bare>[^\s\"']{{4,128}})[\"']")),
    ("(", re.compile(r"(?i)(?:btoa|b64encode|base64\w{0,12}|encode\w{0,12}|auth\w{0,12})\([bB]?[\"'][\w.@+-]{1,64}:(?P<bare>[^\s\"':/]{4,128})[\"']")),
    ("]:", re.compile(r"(?i)[\"'][^\"'\n]{0,40}(?:passw|passphrase|kennwort|contrase|mot de passe)[^\"'\n]{0,40}[\"'](?:[ ]\[[^\]\n]{1,40}\]){1,4}:[ ][\"']?(?P<bare>[^\s\"']{4,128})")),
    ("@", re.compile(r"(?<![\w/])[A-Za-z][\w.-]{0,63}:(?P<bare>[^\s:\"'`<>/]{4,128})@(?:tcp|unix)\(")),
    ("user(", re.compile(r"(?i)create_?(?:super)?_?user\([\"'][^\"'\n]{1,64}[\"'](?:,\s{0,4}[\"'][^\"'\n]{1,128}[\"'])?,\s{0,4}(?:password=)?[\"'](?P<bare>[^\s\"']{4,128})[\"']")),
    ("Key Content", re.compile(r"Key Content[ ]{1,16}:[ ](?P<bare>[^\s\"'<>]{6,128})")),
    ("rootpw", re.compile(r"rootpw[ ]{1,4}(?:--plaintext[ ]{1,4})?(?P<bare>[^\s\"'`<>\\-][^\s\"'`<>\\]{3,128})")),
    ("Fernet(", re.compile(r"Fernet\([bB]?[\"'](?P<bare>[\w=-]{32,64})[\"']")),
)  # fmt: skip
# Files, protocols and calls that give a secret its place: apart, for one search for all has too many states.
_FORMS = (
    (" >", re.compile(r"(?i)user[ \t]{1,4}\S{1,64}[ \t]{1,4}(?:on|off|resetpass)(?:[ \t]{1,4}[^\s>]{1,64}){0,8}[ \t]{1,4}>(?P<bare>[^\s\"'`<]{4,128})")),
    ("cookie", re.compile(r"(?:-setcookie|erlang\.cookie)[\"']?\s{1,4}[\"']?(?P<bare>[A-Za-z0-9_-]{8,64})")),
    ("_COOKIE=", re.compile(r"(?:RELEASE|ERLANG)_COOKIE=[\"']?(?P<bare>[A-Za-z0-9_-]{8,64})")),
    (",<<", re.compile(r"(?i)(?:pass\w{0,8}|pwd|secret|token),<<[ ]{0,2}[\"'](?P<bare>[^\s\"'<>]{4,128})[ ]{0,2}[\"']>>")),
    ("params_", re.compile(r"amqp_params_\w{1,16},<<[ ]?[\"'][^\"'\n]{0,64}[\"']>>,<<[ ]?[\"'](?P<bare>[^\s\"'<>]{4,128})[ ]?[\"']>>")),
    (";s:", re.compile(r"(?i)(?:pass\w{0,8}|pwd|secret|token|[_-]key)[ ]{0,2}[\"'];s:[0-9]{1,4}:[ ]{0,2}[\"'](?P<bare>[^\"'\n]{4,256})[ ]{0,2}[\"'];")),
    ("(", re.compile(rf"(?i)(?:mysql|postgresql|remotesecure|remote|mongodb|clickhouse|__construct)\(\s?{_ARGUMENT}(?:\s{{0,2}},\s{{0,4}}(?:{_ARGUMENT}|[\w.]{{1,64}})){{1,4}}?\s{{0,2}},\s{{0,4}}[\"'](?P<bare>[^\s\"']{{4,128}})[\"']\s{{0,2}}\)")),
    ("s", re.compile(r"\bs(?P<cut>[|/#,@])[^|/#,@\n]{0,24}(?i:pass|pwd|secret|token)[^|/#,@\n]{0,24}(?P=cut)(?P<bare>[^\s|/#,@]{4,128})(?P=cut)g?")),
    ("createUser", re.compile(r"createUser[ ]{1,4}\S{1,64}[ ]{1,4}(?:MD5|SHA[-0-9]{0,4})[ ]{1,4}[\"']?(?P<bare>[^\s\"']{8,128})")),
    ("userid=", re.compile(r"userid=[\\ ]{0,2}[\"']?[ ]?[\w.-]{1,64}/[\"']?(?P<bare>[^\s\"'@/]{4,128})[\"']?@")),
    ("nd", re.compile(r"(?i)expect[^\n]{0,80}ass(?:word|phrase)[^\n]{0,40}\bsend(?:line)?\s{0,2}(?:--\s)?[\\ ]{0,2}[\"'](?P<bare>[^\s\"'$\[{\\][^\s\"'\\]{3,127})")),
    ("USERPWD", re.compile(r"USERPWD[\"' ]{0,3}(?:,|=>|=)\s{0,3}[\"'][\w.@+-]{1,64}:(?P<bare>[^\s\"']{4,128})[ ]?[\"']")),
    ("##vso[", re.compile(r"##vso\[task\.set(?:secret|variable[ ][^\]\n]{0,120}issecret=true[^\]\n]{0,40})\](?P<bare>[^\s\"'`<>]{4,256})")),
    ("ID", re.compile(r"(?i)(?<![\w])secret[ _]?id[\"']?[ ]{0,12}[:=|][ ]{0,12}[\"']?(?P<bare>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")),
    ("BUNDLE_", re.compile(r"BUNDLE_[A-Z0-9_]{2,64}__[A-Z0-9_]{2,24}(?:=|: )[\"']?(?P<bare>[^\s\"'/]{8,128})")),
    ("bundle config", re.compile(r"bundle config (?:[-a-z]{2,12} ){0,2}[\w-]{1,64}\.[\w.-]{2,64} (?P<bare>[^\s\"'/]{4,64}:[^\s\"'/]{4,64})")),
    ("TRUE", re.compile(r"(?:\t|\\+t)(?:TRUE|FALSE)(?:\t|\\+t)/[^\s\\]{0,64}(?:\t|\\+t)(?:TRUE|FALSE)(?:\t|\\+t)[0-9]{1,12}(?:\t|\\+t)[\w.-]{1,64}(?:\t|\\+t)(?P<bare>[^\s\"'\\]{8,512})")),
    ("value", re.compile(r"(?i)(?:sess(?:ion)?_?id|[.]sid)[\"'],[ ]{0,4}[\"']value[ ]?[\"']:[ ]{0,4}[\"'](?P<bare>[^\s\"']{12,512})")),
    ("WIFI:", re.compile(r"WIFI:(?:[STH]:[^;\n]{0,64};){0,3}P:(?P<bare>[^;\n]{4,64});")),
    ("LPA:", re.compile(r"LPA:1\$[^$\s]{3,64}\$(?P<bare>[A-Z0-9-]{6,64})")),
    ("UNB+", re.compile(r"UNB\+(?:[^+'\n]{0,64}\+){5}(?P<bare>[^+'\n]{4,32})(?=[+'])")),
    ("ISA", re.compile(r"ISA(?P<cut>[*|~^])00(?P=cut)[^\n]{10}(?P=cut)01(?P=cut)(?P<bare>\S{4,10})\s{0,6}(?P=cut)")),
    ("HNSHA:", re.compile(r"HNSHA:[0-9:]{3,12}\+[^+'\n]{1,32}\+[^+'\n]{0,64}\+(?P<bare>[^+':\n]{4,64})")),
    ("nlauth", re.compile(r"nlauth_signature[ ]?=[ ]{0,2}[\"']?(?P<bare>[^\s\"',]{4,128})")),
    ("ignature>", re.compile(r"user>[^<>\n]{1,64}</(?:\w{1,8}:)?user>\s{0,8}<(?:\w{1,8}:)?signature>(?P<bare>[^<>\s]{4,128})<")),
    ("execute_kw", re.compile(r"execute(?:_kw)?\(\s?[\"'][^\"'\n]{1,64}[\"'],\s?[\w.]{1,24},\s?[\"'](?P<bare>[^\s\"']{4,128})[\"']")),
    ("PIN_", re.compile(r"PIN_[0-9]{8}_\w{1,32}[ ]{0,2}=[ ]{0,8}[\"'](?P<bare>[^\s\"']{4,64})[ ]{0,3}[\"']")),
    ("rotect ", re.compile(r"\.(?:Unp|P)rotect (?:Password:=)?[ ]?[\"'](?P<bare>[^\s\"']{4,128})[ ]?[\"']")),
    ("pw ", re.compile(r"(?:pdfto\w{2,6}|pdfinfo|pdfimages|qpdf)[^\n|;]{0,80}? -[uo]pw[ ]{1,3}[\"']?(?P<bare>[^\s\"'`<>|;]{4,128})")),
    ("/", re.compile(r"(?:(?<![\w/.-])(?:exp|imp|FNDLOAD|tkprof|dgmgrl|adrci)[ ]{1,3})[\"']?[A-Za-z]\w{0,31}/(?P<bare>[^\s\"'`@/|;]{4,64})(?=@|[ ]0[ ]Y|[ ]\w+=)")),
    ("radtest", re.compile(r"radtest[ ]{1,4}(?:-\S[ ]\S{1,24}[ ]){0,2}\S{1,64}[ ]{1,4}[\"']?(?P<bare>[^\s\"'`<>]{4,128})")),
    ("login", re.compile(r"(?:[+]login|[Ss]team[ ]?>[ ]?login)[ ]{1,4}(?!anonymous)[^\s+]{1,64}[ ]{1,4}[\"']?(?P<bare>[^\s\"'`<>+][^\s\"'`<>]{3,127})")),
    ("open -u", re.compile(r"open -u[ ]?[\w.@+-]{1,64},(?P<bare>[^\s\"'`<>]{4,128})")),
    ("UGFzc3dvcmQ6", re.compile(r"334 UGFzc3dvcmQ6\s{1,4}(?:[A-Za-z]{1,12}[:>] ?|<?-?> ?)?(?P<bare>[A-Za-z0-9+/]{4,256}={0,2})")),
    ("chpasswd", re.compile(r"chpasswd:[ ]?\n(?:[ \t]{1,16}[^\n]{1,80}\n){0,6}?[ \t]{2,16}(?:- )?[A-Za-z][\w.-]{0,31}:(?P<bare>[^\s:\"'`<>|]{4,128})")),
    ("ey", re.compile(r"(?:kubeadm|bootstrap|USAGES|discovery)[^\n]{0,120}\n?(?<![\w.-])(?P<bare>[a-z0-9]{6}\.[a-z0-9]{16})(?![\w.-])")),
    ("  ", re.compile(r"(?m)^[ ]{0,8}(?:[\w.-]{0,24}[_.-])?(?:password|passwd|secret|token)[ ]{2,40}(?P<bare>[^\s\"'`<>]{6,256})[ ]{0,4}$")),
    ("[", re.compile(r"(?i)(?:pass\w{0,8}|pwd|secret)[\"']?\s{0,2}(?:[:=,]|=>)\s{0,3}(?:[A-Za-z]{1,12}\()?\[(?P<bare>(?:[0-9]{1,3},[ ]?){5,256}[0-9]{1,3})\]")),
    (" LOGIN ", re.compile(r"(?m)^(?:[CS>]{1,2}:? )?\w{1,8} LOGIN \S{1,80} [\"'](?P<bare>[^\s\"']{4,128})[ ]?[\"']")),
)  # fmt: skip
_HANDED = re.compile(
    r"(?:<<<|<\((?:echo|printf)(?:[ ]-\w{1,3}|[ ][\"']?%s(?:\\n)?[\"']?)?)[ ]{0,2}[\"']?(?P<bare>[^\s\"'`<>()]{6,128})[\"')\s]"
)
_AT_PORT = re.compile(
    r"(?<![\w/.-])[A-Za-z][\w.-]{0,63}:(?P<bare>[^\s:\"'`<>/@]{6,128})@[A-Za-z][\w.-]{0,127}:[0-9]{2,5}(?![\w.])"
)
# A password in a sentence without spaces between its words, or whose words are written in other letters.
_FOREIGN = re.compile(
    r"(?:密码|密碼|口令|パスワード|暗証番号|비밀번호|비번|पासवर्ड|كلمة (?:المرور|السر)|رمز عبور|סיסמה|סיסמא|รหัสผ่าน|mật khẩu)"
    r"(?:\s?[^\x00-\x7f\s，。]{1,12})?\s{0,2}(?:[:：=→]|is\b|là\b)?\s{0,3}[「『\"'“]{0,2}"  # noqa: RUF001 - signs as people write them
    r"(?P<bare>(?=[!-~]{0,64}[0-9])[!-~]{6,64}?)(?=[」』\"'”\s，。、,！]|[^\x00-\x7f]|\Z)"  # noqa: RUF001 - signs as people write them
)
_BELOW = re.compile(
    r"(?im)^[ ]{0,4}(?:(?:the|my|new|das|neues|mein|la|le|mon|il|minha|moje|mijn|nouveau) ){0,2}(?:password|passwort|kennwort|contraseña|mot de passe|senha|hasło|wachtwoord|parola|şifre)(?: \w{1,12})?[ ]?:?[ \t]*\n\s{0,4}(?P<bare>(?=\S{0,64}[0-9])\S{6,64})[ \t]*$"
)
_ANSWER = re.compile(
    r"(?i)(?:(?:security|secret) question|sicherheitsfrage|pregunta (?:de seguridad|secreta)|question (?:secrète|de sécurité)|respuesta secreta|réponse secrète)[^\n]{0,80}?(?:\b(?:answer|antwort|respuesta|réponse)\b|(?<=secreta)|(?<=secrète))[ ]?[:=][ ]{0,3}(?P<bare>[^\s\"'<>]{4,64})"
)
_ROUTER = re.compile(
    r"(?i)(?:netzwerkschlüssel|wlan-?(?:schlüssel|passwort|key|code)|wi-?fi[ -]?(?:wachtwoord|password|passwort|key|code)|clave (?:del )?wi-?fi|clé wi-?fi)[^\n0-9]{0,32}(?P<bare>[0-9]{4}(?:[ -]?[0-9]{4}){3,5})(?![0-9])"
)
_ALONE = re.compile(r"(?m)^\"[A-Za-z][\w.@-]{1,63}\"[ \t]{1,4}\"(?P<bare>[^\s\"]{6,128})\"[ \t]*$")
_NEW = re.compile(
    r"(?i)(?:passw|kennwort|contrase)[^\n]{0,60}(?:new one|neue|nueva|it)[ ](?:is|ist|lautet|es)(?:[ ]now)?:?[ ](?P<bare>[^\s\"'`<>]{6,128})"
)
_PROTOCOL = re.compile(
    r"(?:\bUSER[ ]\S{1,64}[^\w]{1,4}(?:[^\n]{0,64}\n[^\n]{0,48}?)?\bPASS|\bAUTH(?:[ ][A-Za-z][\w.-]{1,48})?)[ ]{1,3}(?P<bare>[^\s\"'`<>]{6,128})"
)
LINES = (
    r"\][^ ]{0,6} [A-Za-z0-9_.@+-]*:[^ /]|:\{(?i:plain|clear|s?sha|crypt|md5)|[\"'\\]{1,8} +\*|(?i:etuser)|masterauth|!!str|Fernet\(|<<<|IDENTIFY |\\+\"[ \\t]+\\+\""
    r"|(?i:(?:auth|credentials?|login|connect|connection|pdo|mysqli|client|btoa|b64encode)\()|motdepasse|@(?:tcp|unix)\(|(?i:create_?(?:super)?_?user\()|Key Content|rootpw|\]: |<\((?:echo|printf) |:[^ :/@]+@[A-Za-z][A-Za-z0-9.-]*:[0-9][0-9]"
)
FORMS = (
    r"user [^ ]+ (?:on|off|resetpass) |chpasswd:|expect |密码|密碼|パスワード|비밀번호|setcookie|erlang\.cookie|_COOKIE=|amqp_params|;s:[0-9]|(?i:(?:postgresql|remotesecure|remote|mongodb|clickhouse|mysql|__construct)\()"
    r"|sed [^\"]*[\" '\\]s[|/#,@]|createUser [^ ]+ (?:MD5|SHA)|userid=|USERPWD|##vso\[|(?i:secret[ _]?id)|BUNDLE_|bundle config|(?:TRUE|FALSE)\\+t/|radtest|(?i:(?:sess(?:ion)?_?id|[.]sid)[\"'\\]+,)"
    r"|WIFI:|LPA:1|UNB\+|ISA[*|~^]00|HNSHA:|nlauth_|<(?:[a-z]+:)?signature>|execute(?:_kw)?\(|PIN_[0-9]{8}_|[Pp]rotect [\"\\P]|-[uo]pw |[ \"](?:exp|imp|FNDLOAD|tkprof|dgmgrl) "
    r"|口令|暗証番号|비번|पासवर्ड|كلمة|رمز|סיסמ|รหัสผ่าน|mật khẩu|(?i:secret question|security question|sicherheitsfrage|pregunta |question (?:secr|de s)|respuesta|réponse|wi-?fi|wlan)"
    r"|[+>] ?login |open -u|UGFzc3dvcmQ6|kubeadm|USAGES|(?i:passw(?:or)?d|secret|token)  |(?i:pass[a-z]*|pwd|secret)[^a-z]+[a-z]*\(?\[[0-9]| LOGIN "
)
_PREFIX = re.compile(
    r"(?m)^(?:[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,]{8,20}Z?[ ]?(?:-[ ])?|[A-Z][a-z]{2}[ ]{1,2}[0-9]{1,2}[ ][0-9:]{8}[ ]\S{1,64}[ ]\S{1,64}:[ ]|[0-9]{2}:[0-9]{2}:[0-9]{2}[.,0-9]{0,8}[ ]"
    r"|(?:DEBUG|INFO|WARN(?:ING)?|ERROR|TRACE)[ ](?:-[ ])?|[IWEF][0-9]{4}[ ][0-9:.]{8,16}[ ]+[0-9]+[ ][\w.]{1,40}:[0-9]+\][ ]|level=\w+[ ]|\w{1,16}=\w{1,32}[ ](?:\|[ ])?"
    r"|\[[\w /.:-]{1,60}\][ ]?|[\w.-]{1,32}[ ]{1,8}\|[ ]|[ ]{0,6}[0-9]{1,6}(?:\t|[ ]?\|[ ]|[:-])|[\w./-]{1,80}:[0-9]{1,6}:|[\w.]{1,40}[ ]-[ ]|##\[\w+\]|(?:>[ ]?){1,4}|[+-](?![+-])|[ ]{0,4}(?:#|//|\*)[ ])+"
)
_ENDS_OPEN = re.compile(
    r"(?i)(?:passw|pwd|secret|token|key|kennwort|senha|contrase|credential)[\w-]{0,24}[\"']?[ ]?[:=]?[ ]?[|>]?[+-]?[ \t\r]{0,4}\n"
)
_MOST_TEXT = 1 << 16


def in_lines(text: str) -> Iterator[Find]:
    """Yield what a file's line gives away by its form."""
    for part, pattern in _WAYS:
        for match in pattern.finditer(text) if part in text else ():
            if fits(PASSWORD, match["bare"], quoted=True) and not GIVEN.search(match["bare"]):
                yield Find(match["bare"], *match.span("bare"))
    for match in _BELOW.finditer(text):
        if not GIVEN.search(match["bare"]) and not is_placeholder(match["bare"]):
            yield Find(match["bare"], *match.span("bare"))
    handed = _HANDED.finditer(text + " ") if "<<<" in text or "<(" in text else ()
    at_ports = _AT_PORT.finditer(text) if "@" in text else ()
    for match in (*_PROTOCOL.finditer(text), *_ALONE.finditer(text), *_NEW.finditer(text), *handed, *at_ports):
        if worth(match["bare"]) >= FAIR and fits(PASSWORD, match["bare"], prose=True):
            yield Find(match["bare"], *match.span("bare"))


def in_forms(text: str) -> Iterator[Find]:
    """Yield what files, protocols and calls hold in a place of their own, and passwords in sentences of other scripts."""
    for part, pattern in _FORMS:
        for match in pattern.finditer(text) if part in text else ():
            if fits(PASSWORD, match["bare"].replace(", ", ","), quoted=True) and not GIVEN.search(match["bare"]):
                yield Find(match["bare"], *match.span("bare"))
    for pattern in (_FOREIGN, _ANSWER, _ROUTER):
        for match in pattern.finditer(text):
            if not GIVEN.search(match["bare"]) and not is_placeholder(match["bare"]):
                yield Find(match["bare"], *match.span("bare"))


class Unprefixed:
    """A text without what a logger, a diff or a quote puts before its lines; `place` is where a character was."""

    def __init__(self, text: str) -> None:
        self._ends, self._before, parts, end, gone = [0], [0], [], 0, 0
        for prefix in _PREFIX.finditer(text):
            parts.append(text[end : prefix.start()])
            gone += prefix.end() - prefix.start()
            end = prefix.end()
            self._ends.append(end - gone)
            self._before.append(gone)
        self.text = "".join([*parts, text[end:]])

    def place(self, at: int) -> int:
        """Return where a character of this text is in the other."""
        return at + self._before[bisect_right(self._ends, at) - 1]


def without_prefixes(text: str) -> Unprefixed | None:
    """Return a text as it was before something was put before its lines, where a name is at the end of a line."""
    if len(text) > _MOST_TEXT or "\n" not in text or not _ENDS_OPEN.search(text):
        return None
    shown = Unprefixed(text)
    return shown if shown.text != text else None
