"""How a tool call ended: ok, failed, or unknown without evidence.

Evidence, strongest first: a flag, an error object, a structured result's own fields, and at last how the
text begins. A result that merely exists proves nothing.

In: a result's text and fields. Out: a `ToolStatus` value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from flywheel.records import ToolStatus

OK, FAILED, UNKNOWN = ToolStatus.OK.value, ToolStatus.FAILED.value, ToolStatus.UNKNOWN.value

# Only words that say how a call went: an order may be cancelled, denied or completed and the call still be a success.
_FAILED_WORDS = {"error", "failed", "failure", "errored"}
_OK_WORDS = {"ok", "success", "succeeded"}
# Text that begins like an error; a title ("Error rate last week") and a `NoError` are none.
_BEGINS = re.compile(
    r"\s*(?:Traceback \(most recent call last\)|An (?:\w+ )?error occurred\b|Execution error in\b"
    r"|I encountered an error while\b|Tool (?:execution|call) failed\b|[\w.:/-]{1,64} failed with the message:"
    r"|(?:Error|ERROR)\b(?!\s+(?:rates?|budgets?|bars?|margins?|counts?|logs?|handling|trends?|statistics|analysis)\b)"
    r"|(?!No(?:Error|Exception))(?:\w+\.)*\w*(?:Error|Exception)\s*(?:[:(\n]|\Z))"
)
# What a harness or a client writes behind, or before, what a tool gave: `[Command finished with exit code 1]`.
_EXITED = re.compile(
    r"^[\s\[(<*]*(?:the )?(?:(?:command|process|program|script|shell) )?"
    r"(?:(?:finished|completed|failed|ended|terminated) with )?"
    r"(?:exit(?:ed)?(?: with)?(?: exit)?[ _-]?(?:code|status)|return[ _-]?code)\W{0,3}(-?\d{1,9})[\s\])>.*]*$",
    re.IGNORECASE | re.MULTILINE,
)
_SHOWN_RESULT = re.compile(r"\s*(?:CallToolResult\()?(?:meta=|content=\[)")  # of MCP, as Python shows it
_SHOWN_ERROR = re.compile(r"\bis_?Error=(True|False)\b[^=]*\Z")
_EDGE = 300  # characters at the beginning and at the end of a result that may tell how the call went
_FAILED_CODE = re.compile(r"(?:_|\b)(?:FAILED|ERROR)\Z")  # TOOL_EXECUTION_FAILED
_OF_SERVERS = re.compile(
    r"(?:internal server error|bad gateway|service unavailable|unauthorized|forbidden)\b", re.IGNORECASE
)
_NO_ERROR = {"none", "null", "nil", "no", "no error", "no errors", "false", "ok", "0", "n/a", "-"}
_FLAGS = (
    ("is_error", True),
    ("isError", True),
    ("failed", True),
    ("success", False),
    ("ok", False),
)
_ERRORS = ("error", "errors", "exception")
_STATUSES = ("status", "response_status", "responseStatus", "result_status", "execution_status")
_CODES = ("exit_code", "exitCode", "returncode", "return_code")
_CODE = re.compile(r"-?\d{1,9}\Z", re.ASCII)
_TYPE = re.compile(r"\s*(?:[\w.]*\.)?([A-Z]\w*(?:Error|Exception))\b")
_PARSED_LENGTH = 200_000  # longer results are data; their first words decide
_LONGEST_NOTHING = 300  # characters
_ENDINGS = {*(name for name, _ in _FLAGS), *_ERRORS, *_CODES, "status", "stderr"}  # fields that show no result
_RAN_LIST = "ok okay done success successful successfully succeeded executed completed finished"
_RAN = frozenset(_RAN_LIST.split())
_NONE = frozenset(("empty", "none", "null", "nil", "nothing", "undefined"))
_NO = frozenset(("no", "without"))
_WHAT_LIST = (
    "output outputs result results row rows match matches record records content data hit hits entry entries item "
    "items document documents response stdout stderr set value text anything"
)
_WHAT = frozenset(_WHAT_LIST.split())
_AROUND_LIST = (
    "the a an your this it i for tool bash shell command code script program query function cell process call "
    "execution operation search was is has have been there were are and or but with by in on to did ran run return "
    "returned returncode produce produced print printed generate generated give any affected found sec exit exited "
    "standard"
)
_AROUND = frozenset(_AROUND_LIST.split())
_CODE_ZERO = re.compile(
    r"\b(?:exit(?:ed)?|return)?[\s_-]*(?:with )?(?:code|status)\W{0,3}0\b|\(\d+\.\d+ sec\)", re.IGNORECASE
)
_OR_ERRORS = re.compile(r"\b(?:or|and|nor) errors?\b", re.IGNORECASE)
_DID_NOT = re.compile(r"\b(?:did|does) not(?= (?:produce|return|generate|print|give)\b)|\b0(?= \w)", re.IGNORECASE)
_FOUND_NONE = re.compile(
    r"\W*(?:sorry\W+)?(?:there (?:are|were) )?(?:no|0)\s(?!(?:errors?|problems?|issues?|warnings?|violations?)\b)"
    r"(?:[\w-]+\s){0,3}(?:found|results?|match(?:es|ed|ing)?|available|returned)\b(?:\s\w+)?"
    r"(?:\s(?:for|in|with|to|that|on|by|from|at)\b[^\n:;]*)?\W*",
    re.IGNORECASE,
)
_VERDICTS = {
    **dict.fromkeys(
        ("success", "succeeded", "successful", "pass", "passed", "resolved", "solved", "correct", "true"), 1.0
    ),
    **dict.fromkeys(("failure", "failed", "fail", "unresolved", "unsolved", "incorrect", "unsuccessful", "false"), 0.0),
}


def stated_status(fields: Mapping[str, Any]) -> str:
    """Return the status that a structured result's own fields give: flags, an error, a word, an exit code."""
    erred = [_errs(fields[name]) for name in _ERRORS if name in fields]
    for name, bad in _FLAGS:
        value = fields.get(name)
        if isinstance(value, bool):
            return FAILED if value is bad else UNKNOWN if True in erred else OK
    if True in erred:
        return FAILED
    if False in erred and len(fields) > 1:
        return OK
    word = str(next((fields[name] for name in _STATUSES if isinstance(fields.get(name), str)), None)).lower()
    if word in _OK_WORDS:
        return OK
    is_code = "message" in fields and _FAILED_CODE.search(str(fields.get("code")))
    if word in _FAILED_WORDS or is_code or ("code" in fields and _OF_SERVERS.match(str(fields.get("message")))):
        return FAILED
    codes = [code for name in _CODES if _is_code(code := fields.get(name))]
    return UNKNOWN if not codes else FAILED if int(str(codes[0])) else OK


def _is_code(value: Any) -> bool:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number or (isinstance(value, str) and _CODE.match(value) is not None)


def _errs(value: Any) -> bool | None:
    """Whether the value of an error's field is an error; None for a fraction, which is a measure."""
    if isinstance(value, float):
        return None
    return bool(value) and not (isinstance(value, str) and value.strip().lower() in _NO_ERROR)


def tool_status(content: str | None, fields: Mapping[str, Any] | None = None) -> str:
    """Return how a call ended.

    Args:
        content: the result's text.
        fields: the tool message's or result record's own fields, which outweigh the text.
    """
    if fields:
        stated = stated_status({k: v for k, v in fields.items() if k not in {"content", "name"}})
        if stated != UNKNOWN:
            return stated
    if not content:
        return UNKNOWN
    if _BEGINS.match(content):
        return FAILED
    stated = _structured_status(content)
    return _status_at_the_edges(content) if stated == UNKNOWN else stated


def _status_at_the_edges(content: str) -> str:
    """Return the status of a result that Python shows, or whose last lines, or whose first one, give an exit code."""
    if _SHOWN_RESULT.match(content) and (shown := _SHOWN_ERROR.search(content, max(0, len(content) - _EDGE))):
        return FAILED if shown[1] == "True" else OK
    for edge in (content[-_EDGE:], content[:_EDGE].partition("\n")[0]):
        codes = _EXITED.findall(edge) if "code" in edge or "status" in edge or "Code" in edge else []
        if codes:
            return FAILED if int(codes[-1]) else OK
    return UNKNOWN


def _structured_status(content: str) -> str:
    """Return the status that a result states which is JSON: an object by its fields, a list of nothing but errors."""
    opening = content.lstrip()[:1]
    may_state = opening == "{" or (opening == "[" and any(f'"{name}"' in content for name in _ERRORS))
    if not may_state or len(content) >= _PARSED_LENGTH:
        return UNKNOWN
    try:
        parsed = orjson.loads(content)
    except orjson.JSONDecodeError:
        return UNKNOWN
    if isinstance(parsed, list):
        return FAILED if parsed and all(map(_is_error, parsed)) else UNKNOWN
    return stated_status(parsed)


def _is_error(item: Any) -> bool:
    """Whether an item of a list has an error."""
    return isinstance(item, dict) and any(_errs(item.get(name)) for name in _ERRORS)


def says_nothing(content: str | None) -> bool:
    """Return whether a result shows no more than that the call ran, or that it found nothing.

    It is empty, or states that in words or in JSON: `[]`, `(no output)`, `Executed successfully`, `0 rows in set`, `No
    results found for x`, and an object whose fields, but for flags and errors, are all empty. A number is a result.
    """
    text = (content or "").strip()
    if len(text) > _LONGEST_NOTHING:
        return False
    try:
        return text == "" or _is_nothing(orjson.loads(text))
    except orjson.JSONDecodeError:
        pass  # words
    if _FOUND_NONE.fullmatch(text):
        return True
    plain = _DID_NOT.sub("no", _OR_ERRORS.sub(" ", _CODE_ZERO.sub(" ok ", text)))
    words = {*re.findall(r"[^\W_]+", plain.lower())}
    no_more = words & (_RAN | _NONE) or (words & _NO and words & _WHAT)
    return words <= _RAN | _NONE | _NO | _WHAT | _AROUND and (not words or bool(no_more))


def _is_nothing(value: Any) -> bool:
    """Whether a JSON value is empty, or an object whose fields are, but for those that say how the call ended."""
    if isinstance(value, dict):
        return all(name in _ENDINGS or _is_nothing(field) for name, field in value.items())
    if isinstance(value, list):
        return all(map(_is_nothing, value))
    return value is None or (isinstance(value, str) and says_nothing(value))


def error_type(content: str | None) -> str | None:
    """Return the name of the error that a text begins with, like TimeoutError."""
    match = _TYPE.match(content) if content else None
    return match[1] if match else None


def verdict(given: Any) -> float | None:
    """Return 1 or 0 for a word that shows whether something held."""
    return _VERDICTS.get(given.strip().lower()) if isinstance(given, str) else None
