r"""Secrets in lines of files that give them a place but no name, wherever such a line is: in prose, a log, a dump.

A line of `.pgpass`, of Postfix' or Dovecot's passwords, of `chap-secrets`, an ACL of Redis. Loggers, diffs, quotes and
listings put something before each line: `without_prefixes` reads a text as it was before.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from flywheel.stages.ingest.patterns.kinds import GIVEN, Find
from flywheel.stages.ingest.patterns.names import PASSWORD, fits
from flywheel.stages.ingest.patterns.near import FAIR, worth

_BEGIN = r"(?:^|(?<=[\s\"'`<>(;|+:\]-]))"
_END = r"(?=[\s\"'`<>);|,]|\Z)"
_VALUE = r"(?P<bare>[^\s:\"'`<>]{4,128})"
_ARGUMENT = r"[\"'][^\"'\n]{1,160}[\"']"
_WAYS = (
    (":", re.compile(rf"{_BEGIN}[\w.*-]{{1,128}}:(?:[0-9]{{4,5}}|\*):[\w*.-]{{1,64}}:[\w*.@-]{{1,64}}:{_VALUE}{_END}")),
    ("]:", re.compile(rf"\[[\w.-]{{3,128}}\](?::[0-9]{{2,5}})?[ \t]{{1,4}}[A-Za-z][\w.@+-]{{0,63}}:{_VALUE}{_END}")),
    ("}", re.compile(rf"(?i){_BEGIN}[\w.@+-]{{1,64}}:\{{(?:plain|clear(?:text)?|sha\d*|ssha\d*|crypt|md5)\}}{_VALUE}(?=:|\s|\Z|[\"'`<])")),
    ("*", re.compile(r"[\"']?[A-Za-z][\w.@-]{0,63}[\"']?[ \t]{1,8}(?:\*|[\w.-]{3,64})[ \t]{1,8}(?P<q>[\"'])(?P<bare>[^\s\"']{4,128})(?P=q)[ \t]{1,8}\*(?=\s|;|\Z|[\"'`])")),
    ("etuser", re.compile(r"(?i)setuser[ \t]{1,4}\S{1,64}(?:[ \t]{1,4}[^\s>]{1,64}){0,8}[ \t]{1,4}>(?P<bare>[^\s\"'`<]{4,128})")),
    ("ETUSER", re.compile(r"(?i)setuser[ \t]{1,4}\S{1,64}(?:[ \t]{1,4}[^\s>]{1,64}){0,8}[ \t]{1,4}>(?P<bare>[^\s\"'`<]{4,128})")),
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
_HANDED = re.compile(
    r"(?:<<<|<\((?:echo|printf)(?:[ ]-\w{1,3}|[ ][\"']?%s(?:\\n)?[\"']?)?)[ ]{0,2}[\"']?(?P<bare>[^\s\"'`<>()]{6,128})[\"')\s]"
)
_AT_PORT = re.compile(
    r"(?<![\w/.-])[A-Za-z][\w.-]{0,63}:(?P<bare>[^\s:\"'`<>/@]{6,128})@[A-Za-z][\w.-]{0,127}:[0-9]{2,5}(?![\w.])"
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
    handed = _HANDED.finditer(text + " ") if "<<<" in text or "<(" in text else ()
    at_ports = _AT_PORT.finditer(text) if "@" in text else ()
    for match in (*_PROTOCOL.finditer(text), *_ALONE.finditer(text), *_NEW.finditer(text), *handed, *at_ports):
        if worth(match["bare"]) >= FAIR and fits(PASSWORD, match["bare"], prose=True):
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
