"""A template linter: does the base model's own chat template say what the rows say, and is only the action trained?

In: rows as they would be trained. Out: each row's tokens, and findings with the row, what is wrong and what to do. A
template that drops a message, encodes arguments twice or rewrites earlier turns trains something else than was logged,
in silence; here it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flywheel.errors import PrefixError, TemplateError
from flywheel.models.calls import is_complete_text
from flywheel.models.chat import ChatFormat
from flywheel.records import texts_in

_FIX = {
    "render": "use a base model whose chat template renders these messages",
    "prefix": "use a chat template that does not rewrite earlier turns",
    "message": "use a chat template that renders every role; this one would train on a history that never was",
    "call": "use a chat template that renders tool calls with their arguments",
    "end": "use a chat template that ends an assistant's turn with the tokenizer's eos token",
    "loss": "use a chat template whose generation prompt ends where the assistant begins to write",
}


class Finding(NamedTuple):
    """One thing that a template does wrong with a row."""

    rule: str
    row: str
    problem: str

    @property
    def fix(self) -> str:
        """What to do about it."""
        return _FIX[self.rule]


@dataclass(frozen=True)
class Measured:
    """A row's tokens, of its prompt and of each side's action, and what was found."""

    prompt: int
    sides: tuple[int, ...]
    findings: tuple[Finding, ...]


def rendering(chat: ChatFormat) -> str:
    """Return a sentence on how tools are rendered."""
    thoughts = "; thoughts as production showed them" if chat.thinks else ""
    if chat.arguments is None:
        own = "the base model's template knows no tools: flywheel's own rendering is used, in training and scoring"
        return own + thoughts
    form = "an object" if chat.arguments == "object" else "a text"
    return f"the base model's own template, tool arguments as {form}{thoughts}"


def lint_row(chat: ChatFormat, row: Mapping[str, Any], sides: Sequence[str]) -> Measured:
    """Check one training row.

    Args:
        chat: how the base model reads and writes.
        row: `prompt`, `tools`, `id` and, for each side, a list with one assistant message.
        sides: "completion", or "chosen" and "rejected".
    """
    try:
        before = chat.prompt(row["prompt"], row["tools"])
        actions = [chat.completion(row["prompt"], row["tools"], row[side][0]) for side in sides]
    except TemplateError as error:
        rule = "prefix" if isinstance(error, PrefixError) else "render"
        return Measured(0, (), (Finding(rule, row["id"], error.message),))
    findings = [Finding("message", row["id"], problem) for problem in _missing(chat, row["prompt"], before)]
    for side, action in zip(sides, actions, strict=True):
        findings += [Finding(rule, row["id"], f"{side}: {what}") for rule, what in _of_action(chat, row, side, action)]
    return Measured(len(chat.ids(before)), tuple(len(chat.ids(a)) for a in actions), tuple(findings))


def _missing(chat: ChatFormat, messages: Sequence[Mapping[str, Any]], text: str) -> Iterator[str]:
    """Yield the messages whose text, or whose calls' names, the rendering does not show, in order."""
    place = 0
    for number, message in enumerate(messages):
        for said in _said(message):
            found = _find(chat, said, text, place)
            if found is None:
                yield f"message {number} ({message['role']}) is not in the rendered prompt, or not in its place"
                break
            place = found


def _said(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str) and content.strip():
        yield content.strip()
    for call in message.get("tool_calls") or []:
        if call.get("arguments") is not None or not is_complete_text(call):
            yield call["name"]
        if call.get("arguments") is None:
            yield str(call.get("arguments_raw") or "").strip()


def _find(chat: ChatFormat, said: str, text: str, place: int) -> int | None:
    """Return where a text ends in a rendering: as it is, or as part of a JSON string."""
    shown = chat.shown(said)
    quoted = (json.dumps(shown, ensure_ascii=False)[1:-1], json.dumps(shown)[1:-1])
    for form in (shown, *quoted):
        at = text.find(form, place)
        if at >= 0:
            return at + len(form)
    return None


def _of_action(chat: ChatFormat, row: Mapping[str, Any], side: str, action: str) -> Iterator[tuple[str, str]]:
    message = row[side][0]
    for said in _said(message):
        if _find(chat, said, action, 0) is None:
            yield "call" if message.get("tool_calls") else "message", "the action's text or call is not rendered"
            break
    for call in message.get("tool_calls") or []:
        values = [v for v in (call.get("arguments") or {}).values() if isinstance(v, str) and v.strip()]
        if any(_find(chat, value.strip(), action, 0) is None for value in values):
            yield "call", f"an argument of `{call['name']}` is not rendered, or encoded twice"
    if not action.endswith(str(chat.tokenizer.eos_token)):
        yield "end", "the trained text does not end the turn"
    foreign = {m["content"].strip() for m in row["prompt"] if m["role"] in {"tool", "user"} and _is_long(m)}
    own = "\n".join(_own(message))
    if any(text not in own and chat.shown(text) in action for text in foreign):
        yield "loss", "a tool's result or a user's words would be trained"


_LONG = 24


def _is_long(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, str) and len(content.strip()) >= _LONG


def _own(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield all strings of an action, which may quote what it saw."""
    yield str(message.get("content") or "")
    for call in message.get("tool_calls") or []:
        yield str(call.get("arguments_raw") or "")
        yield from texts_in(call.get("arguments"))
