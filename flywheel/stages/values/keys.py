"""Which attempts can tell what an action is worth: three states of every step, each with the action as seen from there.

In: episodes and steps of some tasks. Out: for each step its state and action at three levels, as hashes that mean the
same in every partition and every build:

    level  a state is                                                        an action is
    0      the same task and the same calls so far                           its canonical calls, or ASK or FINAL;
                                                                             what the request of a task made of requests
                                                                             named, as placeholders: they differ in it
    1      the same intent, whatever the task: a request that is equal but   the same, with ids, dates, ... as slots
           for numbers, ids and names, and the same position
    2      any intent: how far, after which tool                             the names of its tools, and arguments
                                                                             that are one word

The position is which tools have been called how often and how these calls ended, what came last, how often the user has
spoken, and whether the user has just spoken. Every level contains the one above it: equal at level 0 is equal at 1. No
state crosses the holdout, so that what held-out tasks show never reaches a row that is trained on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import orjson
import polars as pl

from flywheel.records import ToolStatus
from flywheel.stages.common.canonical import SLOTS
from flywheel.stages.common.memo import cached_by_identity
from flywheel.stages.tasks.minhash import as_asked, masked_words, slots_of

LEVELS = (0, 1, 2)
OFTEN = 4  # messages of the user from which their number does not matter
_HEX = 16
_CHOICE = r'"[^"]*":"[A-Za-z_]{1,16}"'  # as canonical JSON writes it
_BY_USER = '"role":"user"'  # as canonical JSON writes it; inside a text the quotes would be escaped


def state_column(level: int) -> str:
    """Return the name of the column with the state at a level."""
    return f"state_{level}"


def action_column(level: int) -> str:
    """Return the name of the column with the action at a level."""
    return f"action_{level}"


def _named(texts: pl.Series, name: Callable[[str], str | None]) -> pl.Series:
    """Return a name for each text, made once for each distinct text."""
    distinct = texts.unique().drop_nulls()
    names = pl.Series([name(text) for text in distinct], dtype=pl.String)
    return texts.replace_strict(distinct, names, default=None, return_dtype=pl.String)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HEX // 2).hexdigest()


def _hashed(frame: pl.DataFrame, *parts: pl.Expr) -> pl.Series:
    """Return a hash of each row's parts; nulls are empty."""
    texts = frame.select(text=pl.concat_str([part.cast(pl.String).fill_null("") for part in parts], separator="\n"))
    return _named(texts["text"], _digest)


def tools_of(steps: pl.DataFrame) -> pl.Series:
    """Return the names of each step's tools, sorted, a blank between two; each set of names is sorted once."""
    together = steps.select(pl.col("tool_names").list.join("\n"))["tool_names"]
    return _named(together, lambda names: " ".join(sorted(names.split("\n"))))


def requests(steps: pl.DataFrame) -> pl.DataFrame:
    """Return {episode_id, request} of every episode: the user's first words; null without words."""
    said = steps.lazy().select("episode_id", "index", "observation")
    said = said.filter(pl.col("observation").str.contains(_BY_USER, literal=True)).sort("episode_id", "index")
    first = said.unique("episode_id", keep="first", maintain_order=True).collect()
    return first.select("episode_id", request=_named(first["observation"], request_of))


def request_of(observation: str) -> str | None:
    """Return the user's first words in messages as JSON; None without words."""
    said = next((m.get("content") for m in orjson.loads(observation) if m["role"] == "user"), None)
    return said if isinstance(said, str) else None


def asked(episodes: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the episodes with `request`, its first words, and `named`: the slots in which requests of a task differ.

    One a line; none where the source names tasks. Where requests make them, "refund order 7" and "order 9" are one.
    """
    known = episodes.drop("request", strict=False).join(
        requests(steps), on="episode_id", how="left", maintain_order="left"
    )
    by_request = pl.col("task_rule") != "task_key"
    named = _named(known["request"], lambda text: "\n".join(slots_of(text)))
    return known.with_columns(named=pl.when(by_request).then(named).fill_null(""))


def intents(episodes: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return {episode_id, named, intent, around} of every episode; `named` as by `asked`.

    An intent is a task that its request made, or, where the source names tasks, a request that is equal but for slots.
    `around` is what any two comparable states share: the side of the holdout and the tools.
    """
    known = asked(episodes, steps)
    known = known.with_columns(_request=_named(known["request"], lambda text: " ".join(masked_words(text))))
    words = pl.col("_request").fill_null("")
    by_request = (pl.col("task_rule") == "task_key") & (words != "")
    intent = pl.when(by_request).then(words).otherwise(pl.col("task_id"))
    return known.select(
        "episode_id",
        "named",
        intent=_hashed(known, intent, pl.col("tool_signature")),
        around=_hashed(known, pl.col("split"), pl.col("tool_signature")),
    )


@cached_by_identity  # what is believed of pairs, and pairs across tasks, ask in a row
def keyed(episodes: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps, sorted by episode and index, with episode_id, index, and state and action at every level."""
    rows = steps.sort("episode_id", "index").join(
        intents(episodes, steps), on="episode_id", how="inner", maintain_order="left"
    )
    rows = (
        rows.with_columns(_tools=tools_of(rows))
        .with_columns(_ended=_ended())
        .with_columns(action_0=_relative(rows))
        .with_columns(action_0=pl.coalesce("action_0", _spoken(rows)))
    )
    rows = rows.hstack(_position(rows)).with_columns(action_1=slotted(rows["action_0"]), action_2=_roughly(rows))
    shared = pl.col("around"), pl.col("intent"), pl.col("place")
    states = {
        "state_0": _hashed(rows, *shared, pl.col("task_id"), pl.col("state_key")),
        "state_1": _hashed(rows, *shared),
        "state_2": _hashed(rows, pl.col("around"), pl.col("far"), pl.col("last"), pl.col("asked")),
    }
    actions = {action_column(level): _hashed(rows, pl.col(action_column(level))) for level in LEVELS}
    keys = [name(level) for level in LEVELS for name in (state_column, action_column)]
    return rows.with_columns(**states, **actions).select("episode_id", "index", *keys)


def _roughly(rows: pl.DataFrame) -> pl.Series:
    """Return each action as its tools and its arguments that are one word, or its kind of text; each is read once."""
    texts = rows.select(text=pl.concat_str("_tools", pl.col("malformed").cast(pl.String), "action_0", separator="\0"))[
        "text"
    ]
    distinct = texts.unique().drop_nulls().to_frame().with_columns(part=pl.col("text").str.splitn("\0", 3))
    name, malformed, action = (pl.col("part").struct[f"field_{n}"] for n in range(3))
    chosen = name + " " + action.str.extract_all(_CHOICE).list.sort().list.join(" ")
    rough = pl.when(name != "").then(chosen).otherwise(action) + malformed
    made = distinct.select(rough=rough)["rough"]
    return texts.replace_strict(distinct["text"], made, default=None, return_dtype=pl.String)


def _relative(rows: pl.DataFrame) -> pl.Series:
    """Return each call's key, with what its request named as placeholders; null without a call."""
    calls = rows.select(pl.concat_str("named", "action_key", separator="\0"))["named"]

    def placed(call: str) -> str:
        slots, _, key = call.partition("\0")
        return as_asked(key, slots.split("\n")) if slots else key

    return _named(calls, placed)


def _ended() -> pl.Expr:
    """Return each step's tools and how they ended; empty for text."""
    failed = pl.col("malformed") | pl.col("tool_status").list.contains(ToolStatus.FAILED.value)
    ending = pl.when(failed).then(pl.lit(" failed")).otherwise(pl.lit(" ok"))
    return pl.when(pl.col("action_key").is_not_null()).then(pl.col("_tools") + ending).otherwise(pl.lit(""))


def _position(rows: pl.DataFrame) -> pl.DataFrame:
    """Return where in its episode each step is: {place, far, last, asked}."""
    marks = _named(rows["_ended"], lambda text: str(int(_digest(text)[:12], 16) if text else 0))
    follows = pl.col("episode_id") == pl.col("episode_id").shift(1)
    before = rows.select(
        "episode_id",
        mark=marks.cast(pl.Int64),
        last=pl.when(follows).then(pl.col("_ended").shift(1)).fill_null(""),
        asked=pl.col("observation").str.contains(_BY_USER, literal=True).cast(pl.Int64),
        called=(pl.col("_ended") != "").cast(pl.Int64),
    ).with_columns(
        # Sums of 48-bit hashes distinguish multisets, and fit for 2^15 calls.
        done=pl.col("mark").cum_sum().over("episode_id") - pl.col("mark"),
        turns=pl.col("asked").cum_sum().over("episode_id").clip(0, OFTEN),
        calls=pl.col("called").cum_sum().over("episode_id") - pl.col("called"),
    )
    return before.select(
        "last",
        "asked",
        place=pl.concat_str("done", "last", "turns", "asked", separator=" "),
        far=pl.concat_str("calls", "turns", separator=" "),
    )


def _spoken(rows: pl.DataFrame) -> pl.Series:
    """Return what kind of text each action is, an answer or a question; wording never repeats. Null for calls."""
    texts = rows.select(text=pl.when(pl.col("action_key").is_null()).then("action"))["text"]
    return _named(texts, _kind_of_text)


def _kind_of_text(action: str) -> str:
    content = orjson.loads(action).get("content")
    return "ASK" if isinstance(content, str) and ("?" in content or "\uff1f" in content) else "FINAL"


def slotted(keys: pl.Series) -> pl.Series:
    """Return actions' keys with placeholders for ids, dates and the like; each distinct key is read once."""
    distinct = keys.unique().drop_nulls()
    slotted_ = distinct
    for pattern, slot in SLOTS:
        slotted_ = slotted_.str.replace_all(pattern, slot)
    return keys.replace_strict(distinct, slotted_, default=None, return_dtype=pl.String)
