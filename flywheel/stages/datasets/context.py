"""What an agent saw before each action: the context of a step, rebuilt from the `steps` table.

A step stores only what was new to it, so a context is the sum of its predecessors (see `records.Step`). Pairs, examples
and groups all need it, and must agree to the byte, because the identity of a row is the hash of its prompt.

Call ids are renamed to call00000, call00001, ... in order of appearance (nine letters and digits, which the strictest
chat templates demand): the log's random ids would make equal prompts differ and would be noise in training.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import polars as pl

from flywheel.stages.common.canonical import as_canonical

# Tags of episodes whose log is incomplete, or whose reward was not earned: for statistics, never to learn from.
_UNFIT = ("truncated", "content_missing", "unreadable_content", "redacted", "history_missing", "partial", "suspect")
UNFIT = "cut off in the log, or suspect"
PROVISIONAL = "not mature yet, evidence may still arrive"
NEEDS_IMAGE = "needs an image"  # or a recording or file: messages keep references to them, which no template renders
_ATTACHED = '"attachments":[{'


def unfit(episodes: pl.DataFrame) -> list[str]:
    """Return the episodes whose messages the log cut off or blacked out, or whose reward is suspect."""
    return episodes.filter(pl.col("tags").list.eval(pl.element().is_in(_UNFIT)).list.any())["episode_id"].to_list()


def needing_images(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps (`episode_id`, `index`) whose prompt or action holds an image or a file.

    Args:
        steps: rows of the steps table; complete episodes.
    """
    may_hold = pl.any_horizontal(
        pl.col(name).str.contains(_ATTACHED, literal=True) for name in ("observation", "action")
    )
    few = steps.filter(may_hold.any().over("episode_id")).sort("episode_id", "index")
    rows = few.select("observation", "action").iter_rows()
    holds = [_holds(observation) or _holds(f"[{action}]") for observation, action in rows]
    context = few.select(pl.col("resets_context").cast(pl.Int64).cum_sum().over("episode_id")).to_series()
    marked = few.select("episode_id", "index").with_columns(_context=context, _holds=pl.Series(holds, dtype=pl.Boolean))
    seen = pl.col("_holds").cast(pl.Int8).cum_max().over("episode_id", "_context") > 0
    return marked.filter(seen).select("episode_id", "index")


def _holds(messages: str) -> bool:
    """Whether a message names an attachment; a call's own arguments may have a field of that name."""
    return _ATTACHED in messages and any(message.get("attachments") for message in json.loads(messages))


class Fragment(NamedTuple):
    """One step's own part of the conversation: comma-separated JSON messages, without the brackets of a list."""

    step: int
    resets: bool
    n_calls: int
    observation: str
    action: str


class StepContext(NamedTuple):
    """A step as a training row sees it; both texts are canonical JSON lists of messages."""

    prompt: str
    completion: str
    n_calls: int  # calls in the prompt: the number that the next call's id carries


def call_id(number: int) -> str:
    """Return the id of the call with this number in its context."""
    return f"call{number:05d}"


class _Numbering:
    """Renames the call ids of one conversation, in order; an id that is used again means the newest call."""

    def __init__(self) -> None:
        self.count = 0
        self._names: dict[str, str] = {}

    def _next(self) -> str:
        self.count += 1
        return call_id(self.count - 1)

    def message(self, message: dict[str, Any]) -> dict[str, Any]:
        for call in message.get("tool_calls") or []:
            name = self._next()
            if call.get("id"):
                self._names[call["id"]] = name
                call["id"] = name
        answered = message.get("tool_call_id")
        if answered:
            message["tool_call_id"] = self._names.setdefault(answered, answered)
        return message

    def text(self, messages: str) -> str:
        """Return a JSON list of messages without its brackets, ids renamed."""
        if '"tool_call' not in messages:
            return messages.strip()[1:-1]
        return as_canonical(messages, lambda listed: [self.message(m) for m in listed])[1:-1]


def episode_fragments(steps: pl.DataFrame) -> Iterator[tuple[str, list[Fragment]]]:
    """Yield each episode with its steps' fragments, sorted by episode and index."""
    columns = ["episode_id", "index", "observation", "resets_context", "action"]
    episode, fragments, numbering = "", list[Fragment](), _Numbering()
    for row in steps.select(columns).sort("episode_id", "index").iter_rows():
        if row[0] != episode:
            if fragments:
                yield episode, fragments
            episode, fragments, numbering = row[0], [], _Numbering()
        if row[3]:
            numbering = _Numbering()  # equal visible contexts must give equal texts, whatever came before
        observation = numbering.text(row[2])
        before = numbering.count
        fragments.append(Fragment(row[1], row[3], before, observation, numbering.text(f"[{row[4]}]")))
    if fragments:
        yield episode, fragments


def _up_to(steps: pl.DataFrame, wanted: Collection[tuple[str, int]]) -> pl.DataFrame:
    """Return the steps that are wanted and those before them: no later one is part of their contexts."""
    schema = {"episode_id": pl.String, "_until": pl.Int64}
    last = pl.DataFrame(sorted(wanted), schema=schema, orient="row").group_by("episode_id").agg(pl.col("_until").max())
    return steps.join(last, on="episode_id").filter(pl.col("index") <= pl.col("_until")).drop("_until")


def contexts(
    steps: pl.DataFrame, wanted: Collection[tuple[str, int]] | None = None
) -> dict[tuple[str, int], StepContext]:
    """Return the context of each wanted (episode, index), or of every step.

    Args:
        steps: rows of the steps table; complete episodes.
        wanted: the steps asked for; the result holds those of them that exist.
    """
    if wanted is not None:
        steps = _up_to(steps, wanted)
    contexts_: dict[tuple[str, int], StepContext] = {}
    for episode, fragments in episode_fragments(steps):
        seen: list[str] = []
        for part in fragments:
            seen = [] if part.resets else seen
            if part.observation:
                seen.append(part.observation)
            if wanted is None or (episode, part.step) in wanted:
                contexts_[episode, part.step] = StepContext(f"[{','.join(seen)}]", f"[{part.action}]", part.n_calls)
            seen.append(part.action)
    return contexts_
