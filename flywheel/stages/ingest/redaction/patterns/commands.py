"""Secrets on command lines: what a tool takes as a password or a login, in a shell's line or a list of arguments.

A line is cut into words as a shell does it, roughly: enough to know which word is a flag's. A list of arguments in code
(`["mysql", "-p..."]`) is read as the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from flywheel.stages.ingest.redaction.patterns.kinds import GIVEN, Find
from flywheel.stages.ingest.redaction.patterns.names import COOKIE, fits, is_placeholder


class Word(NamedTuple):
    """A word of a command line and its place, without quotes."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class _Tool:
    """Flags of a tool: `next` word is the password, `glued` to the flag, `login` user:password or `cookies` after it."""

    next: tuple[str, ...] = ()
    glued: tuple[str, ...] = ()
    login: tuple[str, ...] = ()
    cookies: tuple[str, ...] = ()
    separator: str = ":"
    last: bool = False  # the last word is a password, after at least `least` others
    least: int = 2
    only: tuple[str, ...] = field(default=())  # a word that must be there


_TOOLS: dict[str, _Tool] = {
    "mysql": _Tool(glued=("-p",)),
    "mysqldump": _Tool(glued=("-p",)),
    "mysqladmin": _Tool(glued=("-p",)),
    "mysqlimport": _Tool(glued=("-p",)),
    "mysqlsh": _Tool(glued=("-p",)),
    "mariadb": _Tool(glued=("-p",)),
    "mariadb-dump": _Tool(glued=("-p",)),
    "mycli": _Tool(glued=("-p",)),
    "curl": _Tool(login=("-u", "--user", "--proxy-user", "-U"), cookies=("-b", "--cookie")),
    "sshpass": _Tool(next=("-p",), glued=("-p",)),
    "docker": _Tool(next=("-p",), only=("login",)),
    "podman": _Tool(next=("-p",), only=("login",)),
    "nerdctl": _Tool(next=("-p",), only=("login",)),
    "oc": _Tool(next=("-p",), only=("login",)),
    "az": _Tool(next=("-p",), only=("login",)),
    "cf": _Tool(next=("-p",), only=("login",)),
    "twine": _Tool(next=("-p",)),
    "redis-cli": _Tool(next=("-a", "--pass")),
    "mongo": _Tool(next=("-p",)),
    "mongosh": _Tool(next=("-p",)),
    "mongodump": _Tool(next=("-p",)),
    "mongorestore": _Tool(next=("-p",)),
    "mongoexport": _Tool(next=("-p",)),
    "sqlcmd": _Tool(next=("-P",), glued=("-P",)),
    "bcp": _Tool(next=("-P",), glued=("-P",)),
    "sqlplus": _Tool(),
    "ldapsearch": _Tool(next=("-w",), glued=("-w",)),
    "ldapmodify": _Tool(next=("-w",), glued=("-w",)),
    "ldapadd": _Tool(next=("-w",), glued=("-w",)),
    "ldapwhoami": _Tool(next=("-w",), glued=("-w",)),
    "ldappasswd": _Tool(next=("-w", "-s", "-a")),
    "smbclient": _Tool(login=("-U", "--user"), separator="%"),
    "rpcclient": _Tool(login=("-U", "--user"), separator="%"),
    "lftp": _Tool(login=("-u", "--user"), separator=","),
    "zip": _Tool(next=("-P", "--password")),
    "unzip": _Tool(next=("-P",)),
    "7z": _Tool(glued=("-p",)),
    "7za": _Tool(glued=("-p",)),
    "rar": _Tool(glued=("-p", "-hp")),
    "unrar": _Tool(glued=("-p",)),
    "plink": _Tool(next=("-pw",)),
    "pscp": _Tool(next=("-pw",)),
    "psexec": _Tool(next=("-p",)),
    "ipmitool": _Tool(next=("-P",)),
    "mosquitto_passwd": _Tool(last=True, least=4, only=("-b",)),
    "mosquitto_pub": _Tool(next=("-P",)),
    "mosquitto_sub": _Tool(next=("-P",)),
    "ab": _Tool(login=("-A", "-P")),
    "oathtool": _Tool(next=("-b", "--base32")),
    "snmpwalk": _Tool(next=("-A", "-X")),
    "snmpget": _Tool(next=("-A", "-X")),
    "keytool": _Tool(next=("-storepass", "-keypass", "-srcstorepass", "-deststorepass")),
    "jarsigner": _Tool(next=("-storepass", "-keypass")),
    "certutil": _Tool(next=("-p",)),
    "evil-winrm": _Tool(next=("-p",)),
    "crackmapexec": _Tool(next=("-p",)),
    "nxc": _Tool(next=("-p",)),
    "hydra": _Tool(next=("-p",)),
    "xfreerdp": _Tool(glued=("/p:",)),
    "htpasswd": _Tool(last=True, least=3, only=("-b", "-nb", "-bc", "-cb", "-bn", "-bB", "-Bb", "-nbB", "-bnB", "-cbB", "-Bbn")),
    "wpa_passphrase": _Tool(last=True),
    "rabbitmqctl": _Tool(last=True, least=3, only=("add_user", "change_password", "authenticate_user")),
    "adduser": _Tool(next=("-p",)),
    "useradd": _Tool(next=("-p",)),
    "usermod": _Tool(next=("-p",)),
    "vault": _Tool(last=True, least=1, only=("login",)),
}  # fmt: skip
_NAMES = "|".join(sorted(map(re.escape, _TOOLS), key=len, reverse=True))
_TOOL = re.compile(
    rf"(?<![\w.-])(?:{_NAMES}|net(?=\s{{1,4}}use)|openssl|aws|gh|echo|printf|ConvertTo-SecureString)(?![\w.=:/-])"
)
# Before the name of a tool that is not run here.
_NAMED_ONLY = re.compile(
    r"(?:-i?name|install|remove|which|whereis|status|restart|start|stop|reload|grep|man|group|user)\s{1,3}[\"']?\Z"
)
_ALL_NAMES = (*_TOOLS, "net", "openssl", "aws", "gh", "echo", "printf", "ConvertTo-SecureString")
_PLAIN = r"""[^\s"'`|;&,\])]|[,;&|\])](?=[\w!#%*^~.-])|,(?=['"])"""
_WORDS = re.compile(
    rf"""[ \t]*(?:\\\n[ \t]*)?(?:(?P<quote>["'`])(?P<quoted>[^\n]{{0,2048}}?)(?P=quote)(?=[\s,\])|;&<"'`]|\Z)"""
    rf"""|(?P<bare>(?:{_PLAIN})(?:{_PLAIN}){{0,1024}}(?:"[^"\n]{{1,512}}"|'[^'\n]{{1,512}}')?))"""
)
_ARGV = re.compile(r"""\s{0,4},\s{0,8}(?P<quote>["'`])(?P<quoted>[^\n]{0,2048}?)(?P=quote)""")
_MOST = 64  # words of a command that are looked at
_PASS = re.compile(r"(?:pass|stdin):|[\w-]{0,24}=pass:")
_SHORTEST = 3
_SWITCHES = re.compile(r"-[fgikLsSv]{1,6}(?=u)")  # that take nothing, before one that does: `-su user:password`
_TO_STDIN = re.compile(
    r"[ \t]{0,4}\|[ \t]{0,4}(?:sudo\s{1,4})?(?P<tool>chpasswd|passwd|sudo\s[^|\n]{0,40}-S|docker\s{1,4}login|podman\s{1,4}login|helm\s[^\n]{0,40}login|cryptsetup|gpg|su\b|kinit|gh\s{1,4}auth)"
)


def in_commands(text: str) -> Iterator[Find]:
    """Yield what tools take as passwords."""
    if not any(name in text for name in _ALL_NAMES):
        return
    for tool in _TOOL.finditer(text):
        if _NAMED_ONLY.search(text, max(0, tool.start() - 24), tool.start()):
            continue
        words = list(_words(text, tool))
        if words:
            yield from _of(tool[0], words, text)


def in_arguments(words: Sequence[str]) -> Iterator[tuple[int, Find]]:
    """Yield secrets among the arguments of one command, each with its number; without flags that name themselves."""
    tool = words[0].rpartition("/")[2] if words else ""
    if tool in _TOOLS:
        places = [Word(word, n << 16, (n << 16) + len(word)) for n, word in enumerate(words)]
        for find in _taken(_TOOLS[tool], places[1 : _MOST + 1]):
            yield find.start >> 16, Find(find.value, find.start & 0xFFFF, (find.start & 0xFFFF) + len(find.value))


def _words(text: str, tool: re.Match[str]) -> Iterator[Word]:
    end = tool.end()
    in_list = text[tool.start() - 1 : tool.start()] in ("'", '"', "`") and text[end : end + 1] == text[tool.start() - 1]
    pattern = _ARGV if in_list else _WORDS
    end += in_list
    for _ in range(_MOST):
        match = pattern.match(text, end)
        if match is None or match.end() == end:
            return
        group = "quoted" if match["quote"] else "bare"
        value = match[group]
        yield Word(value, match.start(group), match.start(group) + len(value))
        end = match.end()
        if not in_list and text[end : end + 1] not in (" ", "\t"):
            return


def _of(tool: str, words: list[Word], text: str) -> Iterator[Find]:
    if tool in _TOOLS:
        yield from _taken(_TOOLS[tool], words)
    elif tool == "net" and words[0].text == "user":
        yield from (_find(word) for word in words[2:3] if _is_secret(word.text) and not word.text.startswith("/"))
    elif tool == "net":
        login = next((n for n, word in enumerate(words) if word.text.lower().startswith("/user:")), len(words))
        yield from (_find(word) for word in words[login + 1 : login + 2] if _is_secret(word.text))
        yield from (_find(word) for word in words[2:login] if _is_secret(word.text) and word.text[0] not in "\\/*")
    elif tool == "openssl":
        for word in words:
            if mark := _PASS.match(word.text):
                yield _find(word, mark.end())
        flags = pairwise(words) if words[0].text == "enc" else ()
        yield from (_find(after) for word, after in flags if word.text == "-k" and _is_secret(after.text))
    elif tool in ("aws", "gh"):
        yield from _stored(words)
    elif tool in ("echo", "printf"):
        yield from _piped(words, text)
    else:
        yield from (_find(word) for word in words[:2] if _is_secret(word.text) and not word.text.startswith("-"))


def _taken(tool: _Tool, words: list[Word]) -> Iterator[Find]:
    """Yield what the flags of a tool announce."""
    if tool.only and not any(word.text in tool.only for word in words):
        return
    for n, word in enumerate(words):
        following = words[n + 1] if n + 1 < len(words) else None
        switches = match.end() - 1 if tool.login and (match := _SWITCHES.match(word.text)) else 0
        named = "-" + word.text[switches + 1 :] if switches else word.text
        is_password = word.text in tool.next and following is not None and _is_secret(following.text)
        is_cookie = word.text in tool.cookies and following is not None and fits(COOKIE, following.text)
        if following is not None and (is_password or is_cookie):
            yield _find(following)
        elif named in tool.login and following is not None:
            yield from _login(following, tool.separator, 0)
        elif flag := next((f for f in tool.login if named.startswith(f)), ""):
            yield from _login(word, tool.separator, switches + len(flag) + named[len(flag) :].startswith("="))
        elif (flag := next((f for f in tool.glued if word.text.startswith(f)), "")) and _is_secret(
            word.text[len(flag) :].strip("'\"")
        ):
            yield _find(word, len(flag))
    if tool.last and len(words) >= tool.least and _is_secret(words[-1].text):
        yield _find(words[-1])


def _login(word: Word, separator: str, at: int) -> Iterator[Find]:
    _, found, value = word.text[at:].partition(separator)
    if found and _is_secret(value.strip("'\"")):
        yield _find(word, len(word.text) - len(value))


def _stored(words: list[Word]) -> Iterator[Find]:
    """What is put into a store of secrets: `gh secret set`, `aws ssm put-parameter`, `aws configure set`."""
    texts = [word.text for word in words]
    if (
        texts[:2] == ["secret", "set"]
        or "put-parameter" in texts
        or "create-secret" in texts
        or "put-secret-value" in texts
    ):
        for word, following in pairwise(words):
            if word.text in ("--body", "-b", "--value", "--secret-string") and _is_secret(following.text):
                yield _find(following)
    if texts[:2] == ["configure", "set"] and len(words) > _SHORTEST and any(w in texts[2] for w in ("secret", "token")):
        yield _find(words[3])


def _piped(words: list[Word], text: str) -> Iterator[Find]:
    """`echo password | sudo -S`, `echo user:password | chpasswd`."""
    said = [word for word in words if not word.text.startswith("-") and word.text not in ("%s", "%s\\n")]
    end = words[-1].end + (text[words[-1].end : words[-1].end + 1] in ("'", '"'))
    target = _TO_STDIN.match(text, end) if said else None
    if target is None:
        return
    word = said[-1]
    if target["tool"] == "chpasswd":
        yield from _login(word, ":", 0)
    elif _is_secret(word.text):
        yield _find(word)


def _is_secret(text: str) -> bool:
    return (
        len(text) >= _SHORTEST and not text.startswith("-") and not is_placeholder(text) and not GIVEN.fullmatch(text)
    )


def _find(word: Word, at: int = 0) -> Find:
    value = word.text[at:].strip("'\"")
    start = word.start + word.text.index(value, at) if value else word.start
    return Find(value, start, start + len(value))
