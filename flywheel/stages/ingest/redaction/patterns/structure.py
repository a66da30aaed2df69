"""Secrets by their place in JSON: fields, pairs of name and value, arguments, what is typed into a field, columns.

Each is given as the text that holds it and where in it; whoever walks the value replaces it there.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from flywheel.stages.ingest.redaction.patterns.commands import in_arguments
from flywheel.stages.ingest.redaction.patterns.kinds import GIVEN, Find, lowered
from flywheel.stages.ingest.redaction.patterns.names import (
    COOKIE,
    HEADER,
    PASSWORD,
    PIN,
    SECRET,
    fits,
    is_word,
    kind_of_name,
)
from flywheel.stages.ingest.redaction.patterns.near import near

_NAMING = (
    "name", "key", "field", "selector", "element", "label", "id", "xpath", "css", "locator", "placeholder", "header", "target",
    "field_name", "fieldname", "variable", "var", "option", "property", "param", "parameter", "ref", "description", "aria_label", "k",
    "path", "pointer", "setting", "question", "prompt", "q", "title", "env", "column", "parameterkey", "settingname",
)  # fmt: skip
_VALUED = (
    "value", "text", "content", "val", "input", "data", "default", "string", "keys", "body", "secret", "v", "new_value", "stringvalue",
    "defaultvalue", "input_text", "typed", "answer", "a", "reply", "response", "new", "parametervalue", "settingvalue",
)  # fmt: skip
_HOLDING = ("secrets", "passwords", "cookies")  # objects whose fields are
_COOKIES = {"httponly", "samesite", "hostonly"}  # fields of a browser's cookie
_COLUMNS, _ROWS = ("columns", "header", "headers", "fields"), ("rows", "data", "values", "records")
_IDENTIFIER = re.compile(r"[A-Za-z][\w-]{1,60}")
_FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w.-]{1,60})(?:=(?P<value>.+))?", re.DOTALL)
_CREDENTIALS = re.compile(r"(?:(?P<scheme>[A-Za-z][\w-]{0,24})\s{1,4})?(?P<value>[^\s,;]{6,4096})")
_LOGIN = re.compile(r"[A-Za-z][\w.@+\\-]{0,63}:(?P<password>\S.{2,255})", re.DOTALL)
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z][\w.-]{1,80})[=:](?P<value>\S.*)", re.DOTALL)
_LONGEST_NAME = 120
_ASKS = re.compile(r"\bsudo\b.*\s-\w*S|\blogin\b|password|passwd\b|\bsu\b|cryptsetup|kinit")
_TYPING = ("type", "type_text", "text", "keys", "input", "value", "fill", "send_keys", "enter")
_TYPED = re.compile(r"(?i)(?:type|fill|enter|input|send_?keys|write)[ :=]{1,3}[\"']?(?P<value>\S{4,128}?)[\"']?")
_KIND_OF_STEP = re.compile(r"[a-z]+(?:[_-][a-z]+)*")
_FEW, _LONGEST_FIELD = 8, 60  # fields of two steps together, characters that describe a field
_CLASSES = 3
_HUMAN = re.compile(
    r"(?!(?i:v|rev|port|id|version|release|sha|md|utf|ipv)[0-9])[A-Za-z]{4,20}[^\sA-Za-z:/]{1,6}"
)  # a word, then digits or signs
_PAIR = 2


def in_field(name: str, value: str) -> Find | None:
    """Return the secret that the value of a field is or holds by the field's name."""
    kind = kind_of_name(name)
    if not kind or GIVEN.search(value):
        return None
    if kind == HEADER:
        login = _LOGIN.fullmatch(value)
        return Find(login["password"], *login.span("password")) if login and _is_login(login) else _credentials(value)
    text = value.strip()
    start = value.find(text)
    return Find(text, start, start + len(text)) if fits(kind, value, quoted=True) else None


def _is_login(login: re.Match[str]) -> bool:
    return " " not in login["password"] and fits(PASSWORD, login["password"], quoted=True)


def in_object(fields: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Find]]:
    """Yield secrets that another field of an object names, or the field that holds it, each with its own field."""
    keys = {key.lower(): key for key in fields}
    if name.lower() in _HOLDING or (_COOKIES & keys.keys() and "name" in keys):
        kind = PASSWORD if name.lower() == "passwords" else SECRET
        for key in fields if name.lower() in _HOLDING else (keys.get("value", ""),):
            value = fields.get(key)
            if isinstance(value, str) and not GIVEN.search(value) and (find := _whole(kind, value)) is not None:
                yield key, find
    read = [(text, key) for key, text in fields.items() if isinstance(text, str)]
    read.sort(key=lambda pair: pair[1].lower() not in _NAMING)  # what names the others comes first, as people write it
    yield from ((key, find) for key, find in _near(read, name, _COLON))
    yield from _typed(read)
    if keys.keys().isdisjoint(_VALUED):
        return
    naming = [text for key in _NAMING if key in keys for text in _texts(fields[keys[key]])]
    naming += [name] if kind_of_name(name) else []
    kind = next((kind for name in naming if (kind := _named(name))), "")
    for key in _VALUED if kind else ():
        value = fields[keys[key]] if key in keys else None
        if isinstance(value, str) and not GIVEN.search(value) and value not in naming:
            find = _credentials(value) if kind == HEADER else _whole(kind, value)
            if find is not None:
                yield keys[key], find


def _typed(fields: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Find]]:
    """Yield what a command that asks for a password gets as its input: the last line."""
    if any(key.lower() == "stdin" for _, key in fields) and any(_ASKS.search(text) for text, _ in fields):
        for text, key in fields:
            line = text.rstrip("\r\n").rpartition("\n")[2]
            if (
                key.lower() == "stdin"
                and not GIVEN.search(line)
                and " " not in line
                and fits(PASSWORD, line, quoted=True)
            ):
                start = text.rindex(line)
                yield key, Find(line, start, start + len(line))


def _texts(value: Any) -> list[str]:
    """Return a text, or the texts of an object that describes something."""
    if isinstance(value, str):
        return [value]
    return [text for text in value.values() if isinstance(text, str)] if isinstance(value, dict) else []


def in_list(items: Sequence[Any], name: str) -> Iterator[tuple[int, Find]]:
    """Yield secrets in a list of arguments, of settings (`NAME=value`), or in a pair, each with its number."""
    texts = [item if isinstance(item, str) else "" for item in items]
    if len(texts) == _PAIR and all(texts) and (kind := _pair(texts[0], name)) and not GIVEN.search(texts[1]):
        find = _credentials(texts[1]) if kind == HEADER else _whole(kind, texts[1])
        if find is not None:
            yield 1, find
            return
    for n, text in enumerate(texts):
        flag = _FLAG.fullmatch(text) or _ASSIGNED.fullmatch(text)
        kind = kind_of_name(flag["name"]) if flag is not None else ""
        if flag is None or not kind:
            continue
        kind = SECRET if kind == HEADER else kind
        following = texts[n + 1] if n + 1 < len(texts) else ""
        if flag["value"] is not None:
            if fits(kind, flag["value"], quoted=True) and not GIVEN.search(text):
                yield n, Find(flag["value"], *flag.span("value"))
        elif (
            following
            and not following.startswith("-")
            and not GIVEN.search(following)
            and fits(kind, following, quoted=True)
        ):
            yield n + 1, Find(following, 0, len(following))
    yield from _in_turns(texts)
    yield from in_arguments(texts)
    for n, find in _near([(text, n) for n, text in enumerate(texts) if text], name, ""):
        yield n, find
    yield from _typed_next(texts)


def _typed_next(texts: Sequence[str]) -> Iterator[tuple[int, Find]]:
    """Yield what is typed after a password's field was chosen, in a list of steps in words."""
    for n, (before, text) in enumerate(pairwise(texts), 1):
        typed = _TYPED.fullmatch(text) if 0 < len(before) <= _LONGEST_FIELD and _named(before) == PASSWORD else None
        if typed and not GIVEN.search(text) and fits(PASSWORD, typed["value"], quoted=True):
            yield n, Find(typed["value"], *typed.span("value"))


def _in_turns(texts: Sequence[str]) -> Iterator[tuple[int, Find]]:
    """Yield the secrets of a list of names and values in turns, as Node gives headers."""
    if len(texts) > _PAIR and len(texts) % _PAIR == 0:
        for n in range(0, len(texts), _PAIR):
            kind = kind_of_name(texts[n]) if "-" in texts[n] and _IDENTIFIER.fullmatch(texts[n]) else ""
            find = _whole(kind, texts[n + 1]) if kind and not GIVEN.search(texts[n + 1]) else None
            if find is not None:
                yield n + 1, find


_COLON = ": "
_MOST_READ = 1000  # characters of an object or a list that are read as one text


def _near(items: Sequence[tuple[str, Any]], name: str, joint: str) -> Iterator[tuple[Any, Find]]:
    """Yield what is near a word that announces it when an object or a list is read as a text, each with its place."""
    if len(items) < 1 + (not name) or sum(len(text) for text, _ in items) > _MOST_READ:
        return
    shown, places = f"{name}: " if name else "", {}
    for text, place in items:
        shown += f"{place}{joint}" if joint else ""
        places[len(shown) + 1] = text, place
        shown += f'"{text}", '
    for find in near(shown, lowered(shown), ()):
        begin = max((start for start in places if start <= find.start), default=-1)
        text, place = places.get(begin, ("", None))
        if (
            find.value in text
            and not GIVEN.search(text)
            and find.end <= begin + len(text)
            and (begin == find.start or "\n" in text)
        ):
            yield place, Find(find.value, find.start - begin, find.end - begin)


def in_steps(steps: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """Yield what is typed after a password's field was chosen, in a list of steps: the step and its field."""
    for n, (before, step) in enumerate(pairwise(steps)):
        if not isinstance(before, dict) or not isinstance(step, dict) or len(before) + len(step) > _FEW:
            continue
        chosen = [text for text in before.values() if isinstance(text, str)]
        if not any(len(text) <= _LONGEST_FIELD and _named(text) == PASSWORD for text in chosen):
            continue
        for key, text in step.items():
            if key not in _TYPING or not isinstance(text, str) or GIVEN.search(text):
                continue
            if key == "type" and ("type" in before or len(step) > 1 or _KIND_OF_STEP.fullmatch(text)):
                continue  # what the step is, not what is typed
            if _whole(PASSWORD, text):
                yield n + 1, key


def in_rows(rows: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield the cells of a list of lists whose first one names columns: row and column."""
    if len(rows) < _PAIR or not all(isinstance(row, list) for row in rows):
        return
    named = [cell.strip().replace(" ", "_") if isinstance(cell, str) else "" for cell in rows[0]]
    kinds = {n: kind for n, name in enumerate(named) if (kind := kind_of_name(name) if name else "")}
    if not kinds or not all(named) or len(named) < _PAIR:
        return
    for n, row in enumerate(rows[1:], 1):
        for column, kind in kinds.items():
            cell = row[column] if len(row) == len(named) else None
            value = PASSWORD if kind == PASSWORD else SECRET
            if isinstance(cell, str) and not GIVEN.search(cell) and fits(value, cell, quoted=True):
                yield n, column


def in_columns(fields: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Yield the cells of a table that hold secrets: the field of its rows, row and column."""
    if fields.keys().isdisjoint(_COLUMNS):
        return
    names: list[Any] = next((fields[key] for key in _COLUMNS if isinstance(fields.get(key), list)), [])
    kinds = {n: kind for n, name in enumerate(names) if isinstance(name, str) and (kind := kind_of_name(name))}
    for key in _ROWS if kinds else ():
        rows = fields.get(key)
        for n, row in enumerate(rows if isinstance(rows, list) else ()):
            for column, kind in kinds.items():
                cell = row[column] if isinstance(row, list) and column < len(row) else None
                if isinstance(cell, str) and not GIVEN.search(cell) and fits(kind, cell, quoted=True):
                    yield key, n, column


def login_in(text: str) -> str:
    """Return the password of a `user:password` that is all of a text and looks like one; "" otherwise."""
    match = _LOGIN.fullmatch(text.strip("\0 \n\r\"'").replace("\0", ":"))
    if match is None or " " in match["password"]:
        return ""
    word = match["password"]
    if _HUMAN.fullmatch(word):
        return word
    classes = (str.islower, str.isupper, str.isdigit, lambda c: not c.isalnum())
    count = sum(any(map(is_one, word)) for is_one in classes)
    strong = len(word) >= 8 and (count >= _CLASSES or (count > 1 and word.count("-") >= _CLASSES))  # noqa: PLR2004
    return word if strong or (len(word) >= 10 and not is_word(word)) else ""  # noqa: PLR2004


def basic_password(text: str) -> str:
    """Return the password in the base64 of `user:password` (RFC 7617); "" if it is none."""
    try:
        login = b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return login.partition(":")[2] if login.isprintable() else ""


def _named(name: str) -> str:
    """Return what a name, a selector or a description shows that its value is."""
    if len(name) > _LONGEST_NAME:
        return ""
    kinds = [kind_of_name(word) for word in _IDENTIFIER.findall(name)]
    kinds += [kind_of_name(name.strip().replace(" ", "_"))]
    return next((kind for kind in kinds if kind in (PASSWORD, PIN)), next(filter(None, kinds), ""))


def _whole(kind: str, value: str) -> Find | None:
    return Find(value, 0, len(value)) if kind != COOKIE and fits(kind, value, quoted=True) else None


def _pair(first: str, name: str) -> str:
    if name.lower() in ("auth", "credentials", "basic_auth", "login") and not first.startswith("-"):
        return PASSWORD
    return kind_of_name(first) if _IDENTIFIER.fullmatch(first) else ""


def _credentials(value: str) -> Find | None:
    """Return the credentials after a scheme."""
    match = _CREDENTIALS.fullmatch(value.strip())
    if match is None:
        return None
    start = value.find(match["value"], match.start("value"))
    text = match["value"]
    password = basic_password(text)
    if password or fits(SECRET, text):
        return Find(password or text, start, start + len(text))
    return None
