"""Chats of agents by name, as one of them heard them: AutoGen's and AG2's.

In: messages with a role and a name. Out: the same, each under the role of who speaks, its code and what that gave as a
call and a result. An agent of AutoGen keeps its own words as the assistant's and all others as the user's, whoever
spoke. So in the memory of the one that asks for the user the two are the wrong way round, and in a group's all are
users. There the name shows who speaks: `user_proxy`, `Admin` and `Customer` are people, others are agents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.reading.shapes.spelling import between_two
from flywheel.reading.status import FAILED, OK
from flywheel.reading.values import as_dict, text

_PERSON = re.compile(
    r"(?<![a-z])(?:user|human|customer|client|admin|initiali[sz]er)(?![a-z])|user_?proxy", re.IGNORECASE
)
_AGENT = re.compile(
    r"agent|assistant|bot\b|proxy|manager|planner|coder|engineer|critic|executor|writer|review|research|analy|expert"
    r"|scientist|developer|tester|teacher|tutor|judge",
    re.IGNORECASE,
)
_RAN = re.compile(r"\s*exitcode: (-?\d+)\b", re.IGNORECASE)
_CODE = re.compile(
    r"^```(python|py|sh|bash|shell|powershell|pwsh|ps1)[^\S\n]*\n(.*?)^```[^\S\n]*$", re.MULTILINE | re.DOTALL
)
_ENDS = "TERMINATE"


def by_speaker(items: Sequence[Any], *, is_heard: bool = False) -> Sequence[Any]:
    """Return messages under the role of who speaks; as they are, where their roles say it.

    Args:
        items: the messages of a chat.
        is_heard: what is around them shows that they are AG2's.
    """
    people = people_in(items, is_heard=is_heard)
    if people is None:
        return between_two(_by_expert(items))
    heard = (as_heard(as_dict(item), n, people) for n, item in enumerate(items))
    return [message for message in heard if not is_silent(message)]


def _by_expert(items: Sequence[Any]) -> Sequence[Any]:
    """Return messages of experts whom AG2's captain gave a task, which is the first, under the name of one of them.

    A terminal runs their code, and asks for some when there is none; no person speaks. Others stay as they are.
    """
    messages = [as_dict(item) for item in items]
    names = {_name(message) for message in messages}
    terminals = {_name(message) for message in messages if _is_said(message) and _RAN.match(message["content"])}
    if not terminals or "" in names or any(map(_PERSON.search, names)) or not all(map(_is_said, messages)):
        return items
    if messages[0]["role"] != "assistant" or len(names) <= len({*terminals, _name(messages[0])}):
        return items
    task = {**messages[0], "role": "user"}
    rest = (as_heard(message, n) for n, message in enumerate(messages[1:], 1))
    return [task, *({**m, "role": "system"} if m["role"] != "tool" and _name(m) in terminals else m for m in rest)]


def is_silent(message: Mapping[str, Any]) -> bool:
    """Whether a message is what AutoGen answers for a user who is silent."""
    return message.get("role") == "user" and message.get("content") == ""


def people_in(items: Sequence[Any], *, is_heard: bool = False) -> set[str] | None:
    """Return the names of those that speak for the user, where roles do not show who does; None where they do."""
    spoken = [message for message in map(as_dict, items) if _is_said(message)]
    named = {role: {_name(message) for message in spoken if message["role"] == role} for role in ("assistant", "user")}
    theirs, others = named["assistant"], named["user"]
    ran = {message["role"] for message in spoken if _RAN.match(message["content"])}
    if not others or "" in theirs | others:  # older files have no names: whoever ran the code is the user
        return {""} if theirs == others == {""} and ran == {"assistant"} else None
    if theirs:
        return _first_to_ask(items, spoken, is_heard=is_heard)
    people = set(filter(_PERSON.search, others))
    is_agents = ran or any(map(_AGENT.search, others)) or any(_ENDS in message["content"] for message in spoken)
    return people if is_agents and people and people < others else None


def _first_to_ask(items: Sequence[Any], spoken: Sequence[Mapping[str, Any]], *, is_heard: bool) -> set[str] | None:
    """Return the one who speaks first, as the assistant, and is answered by agents; only those call."""
    asker = _name(spoken[0]) if spoken[0]["role"] == "assistant" else ""
    agents = {_name(message) for message in map(as_dict, items) if message.get("tool_calls")}
    answers = {_name(message) for message in spoken if message["role"] == "user"}
    if not asker or asker in agents | answers:
        return None
    return {asker} if is_heard or agents & answers or _PERSON.search(asker) else None


def as_heard(message: Mapping[str, Any], position: int, people: set[str] | None = None) -> Mapping[str, Any]:
    """Return a message of such a chat under the role of who speaks, and its code as a call.

    Args:
        message: with a role, a name where the chat has any, and words.
        position: its place in the chat, which names its call.
        people: the names of those that speak for the user; None for the usual ones.
    """
    if not _is_said(message):
        return message
    ran = _RAN.match(message["content"])
    if ran is not None:
        return {"role": "tool", "content": message["content"], "status": FAILED if int(ran[1]) else OK}
    name = _name(message)
    is_asked = message["role"] == "assistant" if not name else bool(name in people if people else _PERSON.search(name))
    return {**message, "role": "user"} if is_asked else _acted({**message, "role": "assistant"}, position)


def _acted(message: Mapping[str, Any], position: int) -> Mapping[str, Any]:
    """Return a message whose code is a call, the words around it as its words: it runs as one, in its blocks' order."""
    blocks = _CODE.findall(message["content"])
    if not blocks or _ENDS in message["content"]:
        return message
    words = "\n".join(part.strip() for part in _CODE.split(message["content"])[::3] if part.strip())
    codes = [code.rstrip("\n") for _, code in blocks]
    call = {"id": f"written_{position}", "name": blocks[0][0], "arguments": {"code": "\n".join(codes)}}
    return {**message, "content": words or None, "tool_calls": [call]}


def _name(message: Mapping[str, Any]) -> str:
    return text(message.get("name")) or ""


def _is_said(message: Mapping[str, Any]) -> bool:
    """Whether a message is words of the user's or the assistant's, and not a call or what one gave."""
    return (
        message.get("role") in ("user", "assistant")
        and isinstance(message.get("content"), str)
        and not any(message.get(name) for name in ("tool_calls", "tool_responses", "function_call"))
    )
