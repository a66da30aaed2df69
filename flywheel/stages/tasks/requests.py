"""The first requests of a log: what each piece knows of its own, and what all pieces together make of them.

In: episodes whose task no log names. Out: distinct requests, and the documents that they are: texts that are equal but
for their slots. A piece gives the bands of MinHash and the size of a document, not its words, so that whoever puts
all together holds no text; documents that share a band are compared word by word in pieces again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from flywheel.records import content_id
from flywheel.stages.common.pieces import Piece, Reading
from flywheel.stages.tasks.minhash import (
    BANDS,
    alike,
    candidates,
    files_in,
    masked_words,
    may_be_alike,
    shingles,
    signatures,
)

Ints = npt.NDArray[np.int64]

NEVER = datetime.max.replace(tzinfo=UTC)
UNNAMED = pl.col("task_rule") != "task_key"
_AT_ONCE = 4096  # documents whose shingles are in memory
_COMPARED = 200_000  # pairs of requests that are compared by one call


class Seen(NamedTuple):
    """What a piece knows of its requests.

    `requests`: request_id, tool_signature, started, document, and `rank`, 0 where a text is empty and 2 where there is
    none: the id is taken instead. `documents`: document, about, size, bands, and `text` where it was asked for.
    """

    episodes: int
    requests: pl.DataFrame
    documents: pl.DataFrame


class Requests(NamedTuple):
    """All requests, oldest first, and the documents that they are, by their first request."""

    requests: pl.DataFrame  # request_id, document
    documents: pl.DataFrame  # document, request_id of one that is it, about, size, bands, text
    kinds: pl.DataFrame  # request_id, tool_signature
    episodes: int


def requests_in(reading: Reading, piece: Piece, with_texts: bool) -> Seen:  # noqa: FBT001 - it travels to other processes
    """Return what is known of the requests of a piece."""
    episodes = reading.scan("episodes", piece)
    columns = ("task_id", "tool_signature", "request", "started")
    found = (
        episodes.filter(UNNAMED)
        .select(columns)
        .group_by("task_id", "tool_signature")
        .agg(pl.col("request", "started").min())
        .collect()
    )
    texts = [_text(*row) for row in found.select("task_id", "request").iter_rows()]
    documents = [content_id("request", text) for text in texts]
    request = pl.col("request")
    rank = pl.when(request.is_null()).then(2).when(request == "").then(0).otherwise(1)
    requests = found.select("tool_signature", "started", rank=rank, request_id="task_id").with_columns(
        document=pl.Series(documents, dtype=pl.String)
    )
    seen = _documents(dict(zip(documents, texts, strict=True)), with_texts=with_texts)
    return Seen(episodes.select(pl.len()).collect().item(), requests, seen)


def _text(request_id: str, request: str | None) -> str:
    """Return a request as it is compared; one without a word of its own, as a log without requests has, is its id.

    A conversation's id in the place of a request is a number like any other: masked, all of them would be one task.
    """
    words = masked_words(request or "")
    return " ".join(words) if set(words) - {"#"} else request_id


def _documents(texts: dict[str, str], *, with_texts: bool) -> pl.DataFrame:
    words = [text.split() for text in texts.values()]
    bands, sizes = np.zeros((len(words), BANDS), dtype=np.uint64), np.zeros(len(words), dtype=np.int64)
    for start in range(0, len(words), _AT_ONCE):
        sets = [shingles(some) for some in words[start : start + _AT_ONCE]]
        bands[start : start + len(sets)] = signatures(sets)
        sizes[start : start + len(sets)] = [len(own) for own in sets]
    return pl.DataFrame(
        {
            "document": pl.Series([*texts], dtype=pl.String),
            "about": pl.Series([" ".join(sorted(files_in(some))) for some in words], dtype=pl.String),
            "size": sizes,
            "bands": pl.Series(bands, dtype=pl.Array(pl.UInt64, BANDS)),
            "text": pl.Series([*texts.values()] if with_texts else [None] * len(words), dtype=pl.String),
        }
    )


def together(pieces: Iterable[Seen]) -> Requests:
    """Return what all pieces know."""
    seen = list(pieces)
    every = pl.concat([piece.requests for piece in seen])
    requests = (
        every.group_by("request_id")
        .agg(pl.col("document").sort_by("rank").first(), pl.col("started").min())
        .sort(pl.col("started").fill_null(NEVER), "request_id")
        .select("request_id", "document")
    )
    known = pl.concat([piece.documents for piece in seen]).unique("document", keep="any")
    documents = requests.unique("document", keep="first", maintain_order=True).join(
        known, on="document", how="left", maintain_order="left"
    )
    kinds = every.select("request_id", "tool_signature").unique()
    return Requests(requests, documents, kinds, sum(piece.episodes for piece in seen))


def pairs_in(documents: pl.DataFrame) -> Ints:
    """Return (later, earlier) places of documents that share a band and may be alike, by their sizes and files."""
    later, earlier = candidates(documents["bands"].to_numpy()).T
    sizes, about = documents["size"].to_numpy(), documents["about"].rank("dense").to_numpy()
    likely = may_be_alike(sizes[later], sizes[earlier]) & (about[later] == about[earlier])
    return np.stack([later[likely], earlier[likely]], axis=1)


def parts_of(pairs: Ints, documents: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield so many pairs as are compared at once, by the ids of their requests."""
    ids = documents["request_id"]
    for start in range(0, len(pairs), _COMPARED):
        some = pairs[start : start + _COMPARED]
        yield pl.DataFrame({"later": ids.gather(some[:, 0]), "earlier": ids.gather(some[:, 1])})


def compared(reading: Reading, pairs: pl.DataFrame) -> list[bool]:
    """Return which pairs of requests are alike, by their words."""
    wanted = pl.concat([pairs["later"], pairs["earlier"]]).unique()
    found = (
        reading.scan("episodes")
        .filter(UNNAMED & pl.col("task_id").is_in(wanted.implode()))
        .group_by("task_id")
        .agg(pl.col("request").min())
        .collect()
    )
    sets = {request_id: shingles(_text(request_id, request).split()) for request_id, request in found.iter_rows()}
    return [alike(sets[later], sets[earlier]) for later, earlier in pairs.iter_rows()]


def compared_texts(pairs: Ints, texts: pl.Series) -> Iterable[bool]:
    """Return which pairs of documents are alike, where their texts are at hand."""
    sets = {place: shingles(texts[place].split()) for place in np.unique(pairs).tolist()}
    return (alike(sets[later], sets[earlier]) for later, earlier in pairs.tolist())
