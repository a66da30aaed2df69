"""What a tool does, by its name: looks up, changes something, destroys something, or hands over to a person.

In: a tool's name in any spelling. Out: yes or no. Names are all that every log has; a tool whose name does not show
its effect (`bash`, `python`, `run`) is neither a lookup nor a change, and no signal guesses.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DESTRUCTIVE = re.compile(
    r"(?:^|_)(?:delete|drop|remove|cancel|refund|transfer|pay|purge|destroy|truncate|wipe|erase|revoke|terminate"
    r"|overwrite|uninstall)(?:_|$)"
)
_CHANGES = re.compile(
    r"(?:^|_)(?:book|update|modify|change|edit|set|create|add|insert|register|schedule|reserve|order|buy|purchase|issue"
    r"|grant|approve|reject|assign|move|rename|write|save|put|post|patch|publish|send|reply|forward|submit|upload|apply"
    r"|exchange|return|redeem|enable|disable|reset|open_ticket|close|merge|deploy)(?:_|$)"
)
_LOOKS_UP = re.compile(
    r"^(?:get|list|search|find|look|lookup|fetch|read|query|check|view|show|describe|count|browse|calculate|compute"
    r"|think|plan|verify|validate|preview|status|retrieve)(?:_|$)"
)
_SEARCHES = re.compile(r"(?:^|_)(?:search|find|google|look_?up)(?:_|$)")
_PERSON = r"(?:humans?|agents?|operator|support|representative|supervisor|person)"
_TO_A_PERSON = re.compile(rf"(?:^|_){_PERSON}(?:_|$)")
_HANDOFF = re.compile(
    rf"(?:^|_)(?:escalate|escalation|hand_?off|hand_?over)(?:_|$)|(?:^|_)(?:transfer|connect)_.*{_PERSON}(?:_|$)"
)
_ANSWERS = re.compile(r"submit|(?:.*_)?(?:final|finish|finished|answer|respond|completion|done)(?:_.*)?")
_WRITES_TEXT = re.compile(
    r"(?:^|_)(?:edit|multi_?edit|write|overwrite|create_file|insert|replace|patch|diff|apply|save|notebook|append)(?:_|$)"
)
_PATCHES = re.compile(r"(?:apply_)?(?:patch|diff)(?:_file)?")
_FILE_KEYS = frozenset(
    ("path", "file", "filename", "file_path", "filepath", "notebook_path", "target_file", "uri", "absolute_path")
)
_QUOTED_KEYS = frozenset(
    ("old_str", "old_string", "old_text", "oldtext", "original", "search", "find", "patch", "diff", "hunks", "edits")
)
_THINKS = re.compile(r"^(?:think|plan|reason|reflect)(?:ing)?(?:_|$)")


@lru_cache(maxsize=4096)
def _words(tool: str) -> str:
    return re.sub(r"[^0-9a-z]+", "_", _CAMEL.sub("_", tool).lower())


@lru_cache(maxsize=4096)
def is_destructive(tool: str) -> bool:
    """Return whether a tool's name implies that it destroys, moves or spends something."""
    name = _words(tool)
    return bool(_DESTRUCTIVE.search(name)) and not _LOOKS_UP.match(name) and not _TO_A_PERSON.search(name)


@lru_cache(maxsize=4096)
def is_handoff(tool: str) -> bool:
    """Return whether a tool's name implies that it hands the user to a person."""
    return bool(_HANDOFF.search(_words(tool)))


@lru_cache(maxsize=4096)
def is_answer(tool: str) -> bool:
    """Return whether a tool's name implies that calling it is how the agent answers (`final_result`, `finish`)."""
    return _ANSWERS.fullmatch(_words(tool)) is not None


@lru_cache(maxsize=4096)
def is_mere_words(tool: str) -> bool:
    """Return whether a tool's name implies that its arguments are only words, to itself or a person, without effect."""
    return is_handoff(tool) or bool(_THINKS.search(_words(tool)))


def quotes_by_contract(tool: str, arguments: Collection[str]) -> bool:
    """Return whether a call edits a text: it must repeat what was read, so that repeating shows nothing.

    Args:
        tool: its name must say that it writes, replaces or patches.
        arguments: the names of its arguments: one is a file, the text to be replaced, or a patch.
    """
    keys = {_words(key) for key in arguments}
    named = _words(tool)
    if not _WRITES_TEXT.search(named):
        return False
    return bool(keys & (_FILE_KEYS | _QUOTED_KEYS)) or _PATCHES.fullmatch(named) is not None


@lru_cache(maxsize=4096)
def looks_up(tool: str) -> bool:
    """Return whether a tool's name implies that it only reads or thinks."""
    return bool(_LOOKS_UP.match(_words(tool)))


@lru_cache(maxsize=4096)
def changes(tool: str) -> bool:
    """Return whether a tool's name implies that it changes something outside the conversation, destructive or not."""
    if looks_up(tool) or is_handoff(tool):
        return False
    return is_destructive(tool) or bool(_CHANGES.search(_words(tool)))


@lru_cache(maxsize=4096)
def is_search(tool: str) -> bool:
    """Return whether a tool's name implies that it looks for what some words describe."""
    return bool(_SEARCHES.search(_words(tool))) and not _CHANGES.search(_words(tool))
