"""Whether everything new in a chosen action could be known before it was taken (no information leak).

A corrected call often names what only the error message revealed. To prefer it *before* that message teaches guessing.
So every content token of the chosen action that the rejected one lacks must occur in the prompt or the tool schemas,
equal up to letter case, zeros at the ends, thousands separators and the parts of a compound (2024-05-20 is grounded in
"May 20th" and a 2024).

Content tokens are identifiers, numbers and the words of argument values; of prose, only what names something: numbers,
identifiers and, in English, words with a capital letter inside a sentence. Plain words of code (commands, keywords,
functions) are knowledge that needs no source, unless the agent came to see them between the prompt and the action: then
they came from there. Words of SQL, names that a query defines itself, 0 and 1 always pass. Otherwise the rule is
strict: a value that the model computed itself counts as unseen.

One of several things of a kind ("shelf 2") must have been seen with its number where others of its kind were.

The tables and columns of a query are known, as complete words, from instructions, requests, tool schemas, results, and
calls that worked. The rejected action is not a source of them, nor are an earlier guess that failed, its error, or the
parts of a name (see `sql_names` for what passes). The plain words of a request show no table for certain ("how many
players are there"): `guessed` names what only they have.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from flywheel.reading.status import FAILED, tool_status
from flywheel.stages.datasets.sql_names import schema_names

_ESCAPES = re.compile(r"\\+[nrt\"/]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_COMPOUND = re.compile(r"\w+(?:[-./@:+']\w+)*")
_PART = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_OWN_NAMES = re.compile(
    r"\bas\s+\"?(\w+)\"?|(\w+)\s+as\s*\(|\b(?:from|join)\s+[\w.\"]+\s+(?!on\b|where\b)(\w+)", re.IGNORECASE
)
_WORD = re.compile(r"(?<!\w)[A-Za-z][A-Za-z']*(?!\w)")  # not a part of a name like date_of_birth

_QUOTED = re.compile(
    r"\"([^\"\n]{1,80})\"|`([^`\n]{1,80})`|\[([^\[\]\n]{1,80})\]|^\s*([^|\n]{1,60}?)\s*\|", re.MULTILINE
)
_OF_MANY = re.compile(r"[\"']([A-Za-z]{3,} \d{1,3})[\"']|\A([A-Za-z]{3,} \d{1,3})\Z")
_WITH_NUMBER = re.compile(r"\b([A-Za-z]{3,}) (\d{1,3})\b")
_SPEAKS_OF_TABLES = re.compile(r"\b(?:tables?|columns?|schemas?|select|from\s*`)\b|[a-z]_[a-z]|`\w", re.IGNORECASE)
_UNKNOWN_NAME = re.compile(
    r"\A.{0,80}\b(?:no such (?:table|column)|unknown (?:table|column|database)|does(?: no|n'?)t exist)", re.IGNORECASE
)
_CODE = re.compile(r"[()=<>|;$*{}]|\S\s+\S+\s+\S+\s+\S")
_CODE_SIGNS = re.compile(r"[()=<>|;${}]")
_MIN_PROSE_WORDS = 6
_MIN_PROSE_SHARE = 0.15
_ENGLISH = 0.1  # share of little words from which a text with capital letters is taken for English
_FUNCTION_WORD_LIST = (
    "the an you we they it he she this that these those to of for was were are be been has have had will would can "
    "could should my your their his her its there which who whom must may because if but"
)
_NUMBER_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
           "december")  # fmt: skip
_SPELT = (
    {word: str(n) for n, word in enumerate(_NUMBER_WORDS)}
    | {month: str(n) for n, month in enumerate(_MONTHS, 1)}
    | {month[:3]: str(n) for n, month in enumerate(_MONTHS, 1)}
)
_VOCABULARY_LIST = (
    "select from where group by order having join left right inner outer full cross on using as and or not in is null "
    "like ilike between case when then else end distinct limit offset union all except intersect with recursive exists "
    "any sum count avg min max median round floor ceil abs coalesce nullif cast try_cast date time timestamp interval "
    "date_trunc date_part extract strftime year quarter month week day hour now current_date over partition rows "
    "row_number rank dense_rank lag lead first last filter asc desc nulls lower upper trim substr substring length "
    "concat replace true false none int integer bigint double float real decimal numeric varchar text string boolean"
)
_FUNCTION_WORDS = frozenset(_FUNCTION_WORD_LIST.split())
_ENGLISH_WORDS = _FUNCTION_WORDS | {"and", "in", "by", "as", "on", "at", "with", "from", "is", "a", "not", "or"}
_LITTLE_WORDS = _ENGLISH_WORDS - {"not", "or", "but"}
_OPENING = r"\"'\u201c\u201d\u2018\u2019(*_#\["
_CAPITAL = re.compile(
    rf"(?:(?P<start>\A|[.!?:;\n*\u2022\u2013\u2014-][\s{_OPENING}]*)|(?<=[\s{_OPENING}]))(?P<word>[A-Z][\w'\u2019]+)"
)
_NO_NAME_LIST = (
    "i'm i'll i've i'd mr mrs ms dr ok okay yes no please thank thanks sorry hello hi best regards note step"
)
_NO_NAMES = frozenset(_NO_NAME_LIST.split())
_VOCABULARY = frozenset(_VOCABULARY_LIST.split())


def is_prose(text: str) -> bool:
    """Return whether a text is sentences, as opposed to a value or code; decided by its share of function words."""
    words = _WORD.findall(text)
    if len(words) < _MIN_PROSE_WORDS:
        return False
    return sum(w.lower() in _FUNCTION_WORDS for w in words) >= _MIN_PROSE_SHARE * len(words)


def without_prose(text: str) -> str:
    """Return a text without its sentences: nothing of prose; of code its lines but for comments and docstrings."""
    rest = "\n".join(line for line in text.splitlines() if not is_prose(line))
    return rest if _CODE_SIGNS.search(rest) or not is_prose(text) else ""


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text without English's little ones, which negate nothing, and without letter case."""
    return frozenset(_COMPOUND.findall(text.casefold())) - _LITTLE_WORDS


def _plain(text: str) -> str:
    return _THOUSANDS.sub("", _ESCAPES.sub(" ", text))


def _norm(token: str) -> str:
    if _NUMBER.fullmatch(token):
        integer, _, rest = token.partition(".")
        rest = rest.rstrip("0")
        return (integer.lstrip("0") or "0") + (f".{rest}" if rest else "")
    return token.casefold()


def _names_something(token: str) -> bool:
    """Return whether a word of prose is a number, an identifier or a code."""
    return any(c.isdigit() or c in "_@" for c in token) or (len(token) > 1 and token.isupper())


def _free(token: str) -> bool:
    """Return whether a token needs no source."""
    return token in {"0", "1"} or token in _VOCABULARY or (len(token) == 1 and token.isalpha())


def _value_tokens(text: str, *, prose: bool = False) -> dict[str, bool]:
    """Return a value's tokens, and of each whether it always needs a source."""
    tokens = [t for t in _COMPOUND.findall(_plain(text)) if not _free(_norm(t))]
    if prose or is_prose(text):
        return {_norm(t): True for t in tokens if _names_something(t)} | dict.fromkeys(_names_in(text), True)
    own = {_norm(name) for match in _OWN_NAMES.findall(text) for name in match if name}
    code = _CODE.search(text) is not None
    return {_norm(t): not code or _identifies(t) for t in tokens if _norm(t) not in own}


def _names_in(text: str) -> set[str]:
    """Return the words of English sentences that a capital letter marks as names; none of other languages.

    A word that begins a sentence may be any word. German writes every noun so; without English's little words a text is
    not taken for English, unless it is but a few words.
    """
    words = _WORD.findall(text)
    little = sum(word.lower() in _ENGLISH_WORDS for word in words)
    if len(words) >= _MIN_PROSE_WORDS and little < _ENGLISH * len(words):
        return set()
    marked = (m for m in _CAPITAL.finditer(text) if m["start"] is None or len(words) == 1)  # "Lalisa."
    names = {m["word"].replace("\u2019", "'").removesuffix("'s").rstrip("'") for m in marked}
    return {_norm(name) for name in names} - _NO_NAMES - _VOCABULARY - _SPELT.keys()


def _identifies(token: str) -> bool:
    """Return whether a word of code is an identifier or a number of some length, as opposed to a plain word."""
    return len(token) > 1 and any(c.isdigit() or c in "_@" for c in token)


def _strings(value: Any) -> Iterator[str]:
    """Yield the texts and numbers inside a JSON value, keys included."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value).lstrip("-")


_RECENT: deque[tuple[dict[str, Any], dict[str, bool]]] = deque(maxlen=4)  # filters read the same two sides in a row


def _tokens(message: dict[str, Any]) -> dict[str, bool]:
    for known, tokens in _RECENT:
        if known is message:
            return tokens
    _RECENT.append((message, _new_tokens(message)))
    return _RECENT[-1][1]


def _new_tokens(message: dict[str, Any]) -> dict[str, bool]:
    calls = message.get("tool_calls") or []
    if not calls:
        return _value_tokens(str(message.get("content") or ""), prose=True)
    tokens: dict[str, bool] = {}
    for call in calls:
        for text in (call["name"], *_strings(call.get("arguments") or {})):
            for token, strict in _value_tokens(text).items():
                tokens[token] = strict or tokens.get(token, False)
    return tokens


def named_tokens(message: dict[str, Any]) -> set[str]:
    """Return the content tokens of an action: of its calls, or of its text when it makes none."""
    return set(_tokens(message))


@lru_cache(maxsize=64)
def shown(text: str) -> frozenset[str]:
    """Return every token of a JSON text and every part of a token, in normal form."""
    return frozenset[str]().union(*(plain_forms(value) for value in set(_strings(json.loads(text)))))


@lru_cache(maxsize=4096)  # prompts repeat themselves: the same system prompt, the same tool results
def plain_forms(text: str) -> frozenset[str]:
    """Return the same of a plain text."""
    seen: set[str] = set()
    for token in set(_COMPOUND.findall(_plain(text))):
        parts = _PART.findall(token)
        seen.update(_norm(p) for p in (token, *parts))
        seen.update(_SPELT[p.casefold()] for p in parts if p.casefold() in _SPELT)
        seen.update(_norm(m[1]) for p in parts if (m := _ORDINAL.fullmatch(p)))
    return frozenset(seen)


def _names_and_keys(message: dict[str, Any]) -> set[str]:
    calls = message.get("tool_calls") or []
    return {_norm(t) for c in calls for t in (c["name"], *(c.get("arguments") or {}))}


def ungrounded(
    chosen: dict[str, Any], rejected: dict[str, Any], prompt: str, tools: str | None, own: str = "[]"
) -> set[str]:
    """Return the content tokens of `chosen` that are neither in `rejected` nor visible before the action.

    Args:
        chosen: assistant message.
        rejected: assistant message.
        prompt: JSON list of messages.
        tools: JSON list of tool schemas; when unknown, the names and keys of a call to another tool need no source,
            because the agent knew tools that the log does not show.
        own: JSON list of the messages that the agent saw when it chose, if that was more than the prompt.
    """
    tokens = _tokens(chosen)
    new = tokens.keys() - _tokens(rejected).keys()
    unknown = _unshown(chosen, prompt, tools, asked=True)
    called = {c["name"] for c in rejected.get("tool_calls") or []}
    if tools is None and not called & {c["name"] for c in chosen.get("tool_calls") or []}:
        new -= _names_and_keys(chosen)
    visible = shown(prompt) | (shown(tools) if tools else frozenset[str]())
    unseen = {token for token in new if token not in visible and not _parts_visible(token, visible)}
    of_many = {name for name in _numbered(chosen) - _numbered(rejected) if _is_another(name, prompt)}
    return {token for token in unseen if tokens[token] or token in shown(own)} | unknown | of_many


def _numbered(message: dict[str, Any]) -> set[str]:
    """Return the things of several that an action names by their numbers, like "shelf 2", in quotes or as a value."""
    texts = {text for call in message.get("tool_calls") or [] for text in _strings(call.get("arguments") or {})}
    names = (match[1] or match[2] for text in texts for match in _OF_MANY.finditer(text))
    return {name.casefold() for name in names}


def _is_another(name: str, prompt: str) -> bool:
    """Whether a prompt shows things of this kind by their numbers, and not this one."""
    kind = name.rpartition(" ")[0]
    seen = {" ".join(words).casefold() for words in _WITH_NUMBER.findall(prompt)}
    return name not in seen and any(other.rpartition(" ")[0] == kind for other in seen)


def _schema(message: dict[str, Any]) -> frozenset[str]:
    """Return the tables and columns that the queries of an action rely on."""
    calls = message.get("tool_calls") or []
    texts = (text for call in calls for text in _strings(call.get("arguments") or {}) if not is_prose(text))
    return frozenset[str]().union(*map(schema_names, texts))


def guessed(message: dict[str, Any], prompt: str, tools: str | None) -> frozenset[str]:
    """Return the tables and columns of an action's queries that at most a request's plain words have named."""
    return _unshown(message, prompt, tools, asked=False)


def _unshown(message: dict[str, Any], prompt: str, tools: str | None, *, asked: bool) -> frozenset[str]:
    names = _schema(message)
    return names and names - _schema_shown(prompt, asked=asked) - (_words_of(tools) if tools else frozenset[str]())


@lru_cache(maxsize=64)
def _schema_shown(prompt: str, *, asked: bool) -> frozenset[str]:
    """Return the words of the messages that show what tables and columns there are.

    Args:
        prompt: JSON list of messages.
        asked: whether a request counts that neither speaks of tables nor writes names.
    """
    messages = json.loads(prompt)
    failed = {m.get("tool_call_id") for m in messages if m["role"] == "tool" and _failed(m)}
    sources = list[Any]()
    for message in messages:
        content = message.get("content")
        if message["role"] == "assistant":
            calls = message.get("tool_calls") or []
            sources += [call.get("arguments") for call in calls if call.get("id") not in failed]
        elif message["role"] == "tool":
            sources += [] if message.get("tool_call_id") in failed else [content]
        elif asked or message["role"] != "user" or _SPEAKS_OF_TABLES.search(str(content)):
            sources.append(content)
    return _words_of(json.dumps(sources))


def _failed(message: dict[str, Any]) -> bool:
    """Whether a tool's result is an error."""
    content = message.get("content")
    text = content if isinstance(content, str) else None
    return FAILED in {message.get("status"), tool_status(text)} or _UNKNOWN_NAME.search(text or "") is not None


@lru_cache(maxsize=64)
def _words_of(text: str) -> frozenset[str]:
    """Return every complete word of a JSON text, and its quoted names of several words."""
    values = set(_strings(json.loads(text)))
    quoted = (name.casefold() for value in values for names in _QUOTED.findall(_plain(value)) for name in names if name)
    return frozenset(word.casefold() for value in values for word in re.findall(r"\w+", _plain(value))).union(quoted)


def _parts_visible(token: str, visible: frozenset[str]) -> bool:
    parts = [_norm(p) for p in _PART.findall(token)]
    return len(parts) > 1 and not _NUMBER.fullmatch(token) and all(p in visible or _free(p) for p in parts)
