"""Talks as a chat template renders them: text with a mark where each turn begins and ends.

In: a text as servers and trainers log it (ChatML, Llama 3, Gemma, Phi, DeepSeek, Mistral). Out: its turns, each with
its role. Calls and results in the tags of templates are still in their words (`readers._tagged`).
"""

from __future__ import annotations

import re
from typing import Any

_BAR = "\uff5c"  # of DeepSeek's marks
_USER = f"<{_BAR}User{_BAR}>"
MARK = re.compile(
    r"<\|(?:im_start|start_header_id)\|>|<start_of_turn>|<\|(?:system|user|assistant)\|>"
    rf"|<{_BAR}(?:User|Assistant){_BAR}>|\[INST\]"
)
_BEGINS = r"(?:<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|<\|(?=(?:system|user|assistant|tool)\|>))"
_TURN = re.compile(
    rf"{_BEGINS}(system|developer|user|assistant|model|tool|ipython|environment)(?:<\|end_header_id\|>|\|>)?\n+"
    r"(.*?)(?:<\|(?:im_end|eot_id|eom_id|end)\|>|<end_of_turn>|(?=<\|(?:user|assistant|tool)\|>)|\Z)",
    re.DOTALL,
)
# DeepSeek's and Mistral's have no names for who instructs, and an answer behind the last mark of a question.
_BY_TWO = re.compile(
    rf"<{_BAR}(User|Assistant){_BAR}>(.*?)(?=<{_BAR}(?:User|Assistant|end\u2581of\u2581sentence){_BAR}>|\Z)", re.DOTALL
)
_INSTRUCTED = re.compile(r"\[INST\](.*?)\[/INST\]([^\[]*?(?=</s>|<s>|\[INST\]|\Z))", re.DOTALL)
_BEGINNINGS = ("<|begin_of_text|>", "<bos>", "<s>", f"<{_BAR}begin\u2581of\u2581sentence{_BAR}>")
_ROLES = {"model": "assistant", "ipython": "tool", "environment": "tool", "developer": "system"}
_BY_WORDS = {"user", "assistant"}


def turns_of_text(text: str) -> list[tuple[str, str, int]]:
    """Return the turns of a rendered text: role, words, and where each ends."""
    if turns := [(_ROLES.get(turn[1], turn[1]), turn[2], turn.end()) for turn in _TURN.finditer(text)]:
        return turns
    turns = [(turn[1].lower(), turn[2], turn.end()) for turn in _BY_TWO.finditer(text)]
    begins = text.find(_USER)
    if turns and (before := _without_beginning(text[:begins]).strip()):
        return [("system", before, begins), *turns]
    for turn in () if turns else _INSTRUCTED.finditer(text):
        turns += [("user", turn[1], turn.end(1)), *([("assistant", turn[2], turn.end())] if turn[2].strip() else [])]
    return turns


def _without_beginning(text: str) -> str:
    """Return a text without the mark of its own beginning."""
    return next((text.lstrip().removeprefix(mark) for mark in _BEGINNINGS if text.lstrip().startswith(mark)), text)


def rendered_talk(text: str) -> list[dict[str, Any]]:
    """Return the messages of a rendered talk that begins with a turn and in which an agent answers; else []."""
    begun = _without_beginning(text)
    if MARK.match(begun.lstrip()) is None and begun == text:  # DeepSeek's instructions come behind its beginning alone
        return []
    turns = [(role, words.strip()) for role, words, _ in turns_of_text(text)]
    if turns and turns[-1] == ("assistant", ""):  # where the next answer begins
        turns.pop()
    known = {role for role, words in turns if words}
    return [{"role": role, "content": words} for role, words in turns] if known >= _BY_WORDS else []
