"""The beginning of a reader for a file that none knows: Python code, with guesses from the first records to be mended.

In: parsed records. Out: a module. Of a log only names of fields, and names of speakers, are in it, where they are plain
words that redaction leaves alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from keyword import iskeyword
from pathlib import PurePath
from typing import Any, NamedTuple

from flywheel.errors import IngestError
from flywheel.reading import as_dict, as_list, when
from flywheel.stages.ingest.detect import plain_names

_SPEAKERS = {
    "user": ("user", "human", "customer", "client", "caller", "visitor", "patient", "buyer"),
    "assistant": ("assistant", "ai", "bot", "agent", "model", "system_agent", "chatbot", "gpt"),
    "tool": ("tool", "function", "observation", "environment"),
    "system": ("system", "developer", "instruction"),
}
_ROLE_OF = {speaker: role for role, speakers in _SPEAKERS.items() for speaker in speakers}
_MOST_SPEAKERS = 8
_UNSURE = "user or assistant?"
_NO_FIELD = "?"
_CHAT = '''"""Reads {file}: begun by `flywheel readers --sketch`. Mend what is guessed.

`readers = ["MODULE:READER"]` under [ingest] in flywheel.toml makes ingest use it; `flywheel readers FILE --events 9`
shows what it makes of a file. docs/extending.md and `flywheel.reading` have the rest: calls, outcomes, users.
"""

from flywheel.reading import Rollout, has, messages, reader, rollout_events, when

# Who speaks: "user", "assistant" (your agent), "tool", "system". Any other speaker's words are context.
ROLES = {roles}


def role_of(turn):
    return ROLES.get(turn.get("{role}"), turn.get("{role}"))


def read(chat):
    turns = [{{"role": role_of(turn), "content": turn.get("{words}")}} for turn in chat["{turns}"]]
    yield from rollout_events(
        Rollout(
            conversation=str(chat["{conversation}"]),
            policy=None,  # what names the agent's version, if a field does
            messages=messages(turns),
            started={time},
            ended={time},
            outcomes=[],  # Outcome("solved", number(chat.get("solved"))), if a field shows how it ended
        )
    )


READER = reader(
    "{name}", 1, "chats as in {file}", marks=has("{conversation}", {has_turns}), read=read, refusal="no turns"
)
'''
_ROW = '''"""Reads {file}: begun by `flywheel readers --sketch`. Mend what is guessed.

`readers = ["MODULE:READER"]` under [ingest] in flywheel.toml makes ingest use it; `flywheel readers FILE --events 9`
shows what it makes of a file. docs/extending.md and `flywheel.reading` have the rest: calls, outcomes, users.
"""

from flywheel.reading import has, messages, reader, source_of, spoken

# Who speaks: "user", "assistant" (your agent), "tool", "system". Any other speaker's words are context.
ROLES = {roles}


def read(row, line):
    turn = {{"role": ROLES.get(row.get("{role}"), row.get("{role}")), "content": row.get("{words}")}}
    # Of the whole: user=..., policy=... (what names the agent's version), task_id=..., where a field has it.
    source = source_of({{"session_id": row["{conversation}"], "timestamp": {time}}})
    for event in spoken(messages([turn]), source, {{}}):
        yield {{**event, "seq": line}}


READER = reader(
    "{name}", 1, "messages as in {file}", marks=has("{conversation}", "{words}"), read=read, refusal="no words"
)
'''


class _Fields(NamedTuple):
    """The fields that were guessed."""

    conversation: str
    role: str
    words: str
    time: str


def sketch(file: PurePath, records: Sequence[Any]) -> str:
    """Return the code of a reader for such records.

    Raises:
        IngestError: they are not objects with words in them.
    """
    objects = [record for record in records if isinstance(record, dict)]
    turns = _turns(objects)
    spoken = [turn for record in objects for turn in as_list(record.get(turns)) if isinstance(turn, dict)]
    fields = _fields(objects, spoken or objects, apart=bool(spoken))
    if not objects or fields.words == _NO_FIELD:
        raise IngestError(
            f"`{file.name}` holds no objects with words in them", hint="a reader takes one record: docs/extending.md"
        )
    time = f'when({"chat" if spoken else "row"}.get("{fields.time}"))' if fields.time != _NO_FIELD else "None"
    if not spoken and fields.time != _NO_FIELD:
        time = f'row.get("{fields.time}")'
    return (_CHAT if spoken else _ROW).format(
        file=_plain_file(file), name=_name(file), roles=_roles(spoken or objects, fields.role), turns=turns,
        has_turns=f'**{{"{turns}": list}}' if iskeyword(turns) else f"{turns}=list",
        conversation=fields.conversation, role=fields.role, words=fields.words, time=time,
    )  # fmt: skip


def _turns(objects: Sequence[Mapping[str, Any]]) -> str:
    """Return the field with the longest lists of objects; '' where no record has one."""
    lengths = {name: sum(len(as_list(record.get(name))) for record in objects) for name in plain_names(objects)}
    lists = [name for name in lengths if any(as_dict(one) for r in objects for one in as_list(r.get(name)))]
    return max(lists, key=lambda name: lengths[name], default="")


def _fields(objects: Sequence[Mapping[str, Any]], turns: Sequence[Mapping[str, Any]], *, apart: bool) -> _Fields:
    """Guess the fields; with `apart` the turns are within the objects."""
    texts = {name: [t[name] for t in turns if isinstance(t.get(name), str)] for name in plain_names(turns)}
    words = _best(texts, lambda name: sum(map(len, texts[name])))
    few = {
        n: t for n, t in texts.items() if n != words and t and len(set(t)) <= _MOST_SPEAKERS and len(t) == len(turns)
    }
    role = _best(few, lambda name: (_speakers(few[name]), len(set(few[name])) > 1, -len("".join(set(few[name])))))
    names = [name for name in plain_names(objects) if name not in {words, role}]
    values = {name: [record.get(name) for record in objects] for name in names}
    keys = {n: [str(v) for v in held if isinstance(v, str | int)] for n, held in values.items() if not _times(held)}
    named = {n: held for n, held in keys.items() if len(held) == len(objects)}
    conversation = _best(
        named,
        lambda name: (len(set(named[name])) == len(objects)) if apart else (1 < len(set(named[name])) < len(objects)),
        lambda name: name.lower().endswith(("id", "uid", "uuid", "key", "no", "number")),
    )
    return _Fields(conversation, role, words, next((name for name in names if _times(values[name])), _NO_FIELD))


def _best(candidates: Mapping[str, Any], *ranks: Callable[[str], Any]) -> str:
    """Return the candidate of the highest rank, the first of equals."""
    return max(candidates, key=lambda name: tuple(rank(name) for rank in ranks), default=_NO_FIELD)


def _speakers(values: Iterable[str]) -> int:
    return sum(value.lower() in _ROLE_OF for value in set(values))


def _times(values: Sequence[Any]) -> bool:
    """Whether all of a field's values are times."""
    return bool(values) and all(value is not None and when(value) is not None for value in values)


def _roles(turns: Sequence[Mapping[str, Any]], role: str) -> str:
    """Return the code of a dictionary of speakers; those with other names than plain words are left out."""
    speakers = sorted({turn[role] for turn in turns if isinstance(turn.get(role), str)})
    plain = plain_names([dict.fromkeys(speakers)])
    pairs = ", ".join(f'"{name}": "{_ROLE_OF.get(name.lower(), _UNSURE)}"' for name in plain[:_MOST_SPEAKERS])
    return "{" + pairs + "}"


def _plain_file(file: PurePath) -> str:
    return re.sub(r"[^\w.\- ]", "_", file.name, flags=re.ASCII)


def _name(file: PurePath) -> str:
    return "my_" + re.sub(r"\W+", "_", file.name.split(".")[0], flags=re.ASCII).strip("_").lower()[:32]
