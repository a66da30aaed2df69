r"""Logins by their form, whichever tool takes them: user and password as flags, in one word, in a call.

What a tool calls its flags differs; that a user and then a password are given does not. A value that may be something
else (a port, a path, a word) stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from flywheel.stages.ingest.redaction.patterns.kinds import GIVEN, Find
from flywheel.stages.ingest.redaction.patterns.names import PASSWORD, fits
from flywheel.stages.ingest.redaction.patterns.structure import login_in

_QUOTED = r"""(?P<q>["'])(?P<quoted>[^"'\n]{4,256})(?P=q)"""
_BARE = r"""(?P<bare>[^\s"'`<>|;&-][^\s"'`<>|;&]{3,255})"""
_WORDS = r"(?:[ \t]{1,4}(?!-[pP][ =])[^\s|;&]{1,128}){0,8}?"
_FLAGS = re.compile(
    rf"(?<![\w-])(?:-[uU]|--?user(?:name)?|--login|/ru)[ \t=]{{0,4}}[\"']?[A-Za-z][^\s|;&]{{0,63}}{_WORDS}[ \t]{{1,4}}"
    rf"(?:-[pPw]|-pw|/p|/rp|--pass)(?:[ \t]{{1,4}}|=)(?:{_QUOTED}|{_BARE})"
)
_LOGIN_FLAG = re.compile(
    r"(?<![\w-])(?:--?(?:\w{1,24}-){0,3}(?:u|a|user|auth|login|creds?|credentials|userpwd)|-[fgikLsSv]{1,6}u)[ =][\"']?"
    r"(?P<login>[A-Za-z][\w.@+-]{0,63}:[^\s\"'`<>|;&]{4,128})"
)
_SLASHED = re.compile(
    r"(?:sqlplus|rman|expdp|impdp|sqlldr|oracle:thin:)[ \t]{0,4}(?:-\w[ \t]{1,4}){0,3}[\"']?[\w.-]{1,64}/"
    r"[\"']?(?P<bare>[^\s\"'@/]{4,128})[\"']?@"
)
_HASHED = re.compile(
    rf"(?:crypt|hashpw|hash_password|password_hash|make_password|check_password\w{{0,8}})\(\s?b?{_QUOTED}"
)
_NUMBERS = re.compile(r"[0-9.:/]+(?:[0-9:/]|tcp|udp)*")
_PARTS = (
    ("-", _FLAGS),
    ("/rp", _FLAGS),
    ("/", _SLASHED),
    ("crypt(", _HASHED),
    ("hash", _HASHED),
    ("password(", _HASHED),
)
# Where none of this is, none of the patterns finds anything; for polars.
LOGINS = (
    r"[ (\"'](?:-[uU]|--?user(?:name)?|--login|/ru)[ =]{0,4}[^ ]+ [^\n|;&]{0,160}?(?:-[pPw]|/p|/rp|-pw|--pass)[ =]"
    r"|-[fgikLsSv]{0,6}(?:u|a|user|auth|login|creds?|credentials|userpwd)[ =][\"'\\]{0,4}[A-Za-z][^ :]*:[^ /]"
    r"|(?:sqlplus|rman|expdp|impdp|sqlldr|oracle:thin:)[^/]*/|(?:crypt|hashpw|hash_password|_hash|make_password|check_password[a-z]*)\("
)


def in_logins(text: str) -> Iterator[Find]:
    """Yield passwords next to a user."""
    seen = set()
    for part, pattern in _PARTS:
        if pattern in seen or part not in text:
            continue
        seen.add(pattern)
        for match in pattern.finditer(text):
            group = "quoted" if match.groupdict().get("quoted") else "bare"
            value = match[group]
            if (
                not GIVEN.search(value)
                and not _NUMBERS.fullmatch(value)
                and _is_password(value, quoted=group == "quoted")
            ):
                yield Find(value, *match.span(group))
    for match in _LOGIN_FLAG.finditer(text) if ":" in text and "-" in text else ():
        if password := login_in(match["login"]):
            yield Find(password, match.end("login") - len(password), match.end("login"))


def _is_password(value: str, *, quoted: bool) -> bool:
    return fits(PASSWORD, value, quoted=quoted, prose=not quoted)
