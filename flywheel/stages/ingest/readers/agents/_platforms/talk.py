"""What a platform's record holds of a conversation, and the turns that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flywheel.extensions import BadRecordError
from flywheel.reading.feedback import Opinion
from flywheel.reading.messages import flat_text
from flywheel.reading.status import FAILED, OK
from flywheel.reading.values import embedded, number, present, text, when

_RATED = {"like": 1.0, "dislike": 0.0, "THUMBS_UP": 1.0, "THUMBS_DOWN": 0.0}
STARS = (1, 5)

Turn = dict[str, Any]  # a message of Chat Completions; `facts` are those of `Rollout.facts`
# How a record is known, and what reads it.
Shapes = Sequence[tuple[Callable[[Any], object], Callable[[Mapping[str, Any]], "Talk | list[Talk]"]]]


class Talk(NamedTuple):
    """What a record holds of a conversation; one without a name is an attempt of its own."""

    turns: Sequence[Turn]
    conversation: str | None = None
    user: str | None = None
    opinions: Sequence[Opinion] = ()
    tools: Any = None
    is_piece: bool = False  # whether other records go on with the conversation
    seen: int = 0  # turns at the beginning that the agent only saw


def ways(
    parents: Mapping[str, str], conversation: str | None, read: Callable[[str], tuple[list[Turn], list[Opinion]]]
) -> list[Talk]:
    """Return the ways down a tree of messages: the newest, and each that an answer or a question asked again began.

    Args:
        parents: of each message by name, the one it follows; in the order in which they were written.
        conversation: of the newest way; another one has the name of its last message behind it.
        read: returns the turns of a message, and what a user thought of it.

    Raises:
        BadRecordError: messages follow one another in a circle.
    """
    followed, known = set(parents.values()), set[str]()
    talks = []
    for leaf in reversed([own for own in parents if own not in followed]):
        way: dict[str, None] = {}
        own = leaf
        while own in parents and own not in way:
            way[own] = None
            own = parents[own]
        held = [(own in known, *read(own)) for own in reversed(way)]
        talks.append(
            Talk(
                [turn for _, turns, _ in held for turn in turns],
                f"{conversation}/{leaf}" if known and conversation else conversation,
                opinions=[opinion for is_known, _, opinions in held if not is_known for opinion in opinions],
                seen=sum(len(turns) for is_known, turns, _ in held if is_known),
            )
        )
        known.update(way)
    if known != parents.keys():
        raise BadRecordError("bad_record", "messages that follow one another in a circle")
    return talks


def words_said(role: str, words: Any, at: Any = None, **counts: Any) -> list[Turn]:
    """Return the words of a speaker as a turn; nothing where there are none."""
    content = flat_text(words)
    return [{"role": role, "content": content, "facts": present(ts=when(at), **counts)}] if content else []


def thought_and_said(role: str, words: Any, thought: str | None, at: Any = None, **facts: Any) -> list[Turn]:
    """Return the words of a speaker with the thought before them."""
    turns = words_said(role, words, at, **facts)
    return [{**turn, "reasoning_content": thought} for turn in turns] if thought else turns


def call_ran(  # noqa: PLR0913 - what a call is, how it ended and who made it
    own: str,
    tool: Any,
    given: Any,
    result: Any,
    at: Any = None,
    *,
    failed: bool | None = None,
    model: str | None = None,
) -> list[Turn]:
    """Return a call and its result; without one, where neither a result nor a failure is known."""
    facts = present(ts=when(at))
    call = {"id": own, "name": str(tool or ""), "arguments": embedded(given) if given is not None else {}}
    turns: list[Turn] = [{"role": "assistant", "tool_calls": [call], "facts": {**facts, **present(model=model)}}]
    if result is not None or failed:
        status = {True: {"status": FAILED}, False: {"status": OK}, None: {}}[failed]
        turns.append(
            {"role": "tool", "tool_call_id": own, "content": flat_text(result) or "", "facts": facts, **status}
        )
    return turns


def with_calls(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns of one message of an agent: its words and the calls behind them are one act, then the results.

    Whether calls in a row were made at once is not known; they are read as if they were.
    """
    whole: list[Turn] = []
    results: list[Turn] = []
    for turn in turns:
        if turn["role"] == "tool":
            results.append(turn)
        elif turn.get("tool_calls") and whole and whole[-1]["role"] == "assistant":
            calls = [*whole[-1].get("tool_calls", ()), *turn["tool_calls"]]
            whole[-1] = {**whole[-1], "tool_calls": calls}
        else:
            whole += [*results, turn]
            results = []
    return [*whole, *results]


def rating_of(value: Any, comment: Any = None, *, of: str = "") -> list[Opinion]:
    """Return a thumb up or down, of a conversation or of the message `of`; nothing where there is none."""
    given = _RATED.get(value) if isinstance(value, str) else number(value)
    if given not in (0, 1):
        return []
    aim = f"response:{of}" if of else None
    return [Opinion("rating", aim, given, comment=text(comment), annotator="human", scale=(0, 1))]
