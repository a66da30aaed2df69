"""Turns blocks of raw records into batches of events: parse, read, redact, name; in some processes, or on a cluster.

In: blocks. Out: their batches, in the same order whoever made them, so that it changes nothing. Other processes only
compute: they touch no file, and end when the process that started them does.
"""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from flywheel.config import IngestConfig
from flywheel.errors import IngestError
from flywheel.extensions import Reader
from flywheel.io.crew import Crew
from flywheel.io.processes import uncollected
from flywheel.io.safe_path import can_start_safely
from flywheel.stages.ingest.batches import Batch, Block, Counts, Segment
from flywheel.stages.ingest.framing.framed import Bad, Passed, Record, Row, parsed
from flywheel.stages.ingest.lost import LostFields
from flywheel.stages.ingest.normalize import Normalizer, finished
from flywheel.stages.ingest.redaction.redact import Redactor

_WORTH_BYTES = 24_000_000  # below this, starting processes takes longer than reading
_MOST = 16
_AHEAD = 2  # blocks that each of the other processes has: one to work on, one for when it is done
_MOST_WAITING = 16  # batches for an earlier one

_worker: Worker | None = None


class Worker:
    """Works on blocks, one at a time.

    Raises:
        ConfigError: the redaction is misconfigured.
    """

    def __init__(self, cfg: IngestConfig, key: bytes, readers: Mapping[str, Reader]) -> None:
        self._redactor = Redactor(cfg.redact, key)
        self._readers, self._policy = readers, cfg.policy

    def work(self, segments: Sequence[Segment]) -> Batch:
        """Return the events of a block."""
        with uncollected():
            return self._work(segments)

    def _work(self, segments: Sequence[Segment]) -> Batch:
        rows: list[Row] = []
        counts, lost = Counts(), LostFields()
        for segment in segments:
            reader = self._readers.get(segment.format)
            normalizer = Normalizer(reader, segment.path, segment.columns, self._policy) if reader is not None else None
            before = counts.read
            for record in parsed(segment.records):
                counts.read += 1
                _take(record, segment, normalizer, rows, counts, lost)
            if normalizer is not None and not segment.ignored:
                counts.by_content[segment.path] += counts.read - before
        counts.bad = [(segment, self._redacted(bad)) for segment, bad in counts.bad]
        columns = finished(rows, self._redactor)
        redacted = dict(self._redactor.counts)
        self._redactor.counts.clear()
        return Batch.of(columns, counts, redacted, lost.counts(self._redactor))

    def _redacted(self, bad: Bad) -> Bad:
        """Return a refusal with its words redacted: they may name a field, and a field's name may be anything."""
        return bad._replace(detail=self._redactor.text(bad.detail))


def _take(
    record: Record | Bad | Passed,
    segment: Segment,
    normalizer: Normalizer | None,
    rows: list[Row],
    counts: Counts,
    lost: LostFields,
) -> None:
    if isinstance(record, Bad):
        counts.bad.append((segment, record))
    elif isinstance(record, Passed):
        counts.ignored[record.reason] += 1
    elif normalizer is None or segment.ignored:
        counts.ignored[segment.ignored or "no reader"] += 1
    else:
        events = normalizer.rows(record)
        if isinstance(events, Bad):
            counts.bad.append((segment, events))
        elif events:
            lost.look(segment.format, record, events)
            rows += events
        else:
            counts.ignored["nothing of an agent in it"] += 1


def asked(crew: Crew, work: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """Yield what a function of a module returns for each call, in order, from those who work on blocks.

    Raises:
        IngestError: a process died.
    """
    if crew.pool is not None:
        with _telling():
            futures = [crew.pool.submit(work, *call) for call in calls]
            yield from (future.result() for future in futures)


@contextmanager
def _telling() -> Iterator[None]:
    """Tell of a process that died."""
    try:
        yield
    except BrokenProcessPool:
        hint = "it was killed, perhaps for lack of memory; set ingest.workers to a smaller number"
        raise IngestError("a process that reads logs died", hint=hint) from None


def batches_of(
    blocks: Iterable[Block],
    total_bytes: int | None,
    cfg: IngestConfig,
    key: bytes,
    readers: Mapping[str, Reader],
    crew: Crew,
) -> Iterator[Batch]:
    """Yield the batch of each block, in order; of an unknown number of bytes, more than a block are taken for many."""
    if total_bytes is None:
        blocks = iter(blocks)
        first = list(islice(blocks, 2))
        total_bytes, blocks = _WORTH_BYTES * (len(first) - 1), chain(first, blocks)
    workers = cfg.workers or (min(os.cpu_count() or 1, _MOST) if total_bytes >= _WORTH_BYTES else 1)
    several = crew.cluster is not None or (workers > 1 and can_start_safely())
    pickled = _pickled(cfg, key, readers) if several else None
    if pickled is None:
        worker = Worker(cfg, key, readers)
        for block in blocks:
            yield replace(worker.work(block.segments), states=tuple(block.states), reached=block.reached)
        return
    pool = crew.start(workers - 1, _begin, pickled)
    yield from _in_order(crew, pool, Worker(cfg, key, readers), blocks)


def _pickled(cfg: IngestConfig, key: bytes, readers: Mapping[str, Reader]) -> bytes | None:
    """Return what a worker needs; None where a reader cannot be sent to another process."""
    try:
        return pickle.dumps((cfg, key, dict(readers)))
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def _in_order(crew: Crew, pool: Executor, here: Worker, blocks: Iterable[Block]) -> Iterator[Batch]:
    """Give the others what keeps them busy, and work on the rest here; on everything while they start.

    So the first batches come at once, whatever starting takes.
    """
    waiting: deque[tuple[Block, Future[Batch]]] = deque()
    started = [pool.submit(_is_prepared) for _ in range(crew.size)]
    try:
        with _telling():
            for block in blocks:
                ready = sum(one.done() for one in started)
                busy = sum(not future.done() for _, future in waiting)
                elsewhere = busy < ready * _AHEAD
                work = pool.submit(_work, block.segments) if elsewhere else _here(here, block.segments)
                waiting.append((block, work))
                while waiting and (waiting[0][1].done() or len(waiting) > _MOST_WAITING + crew.size):
                    yield _next(waiting)
            while waiting:
                yield _next(waiting)
    except BaseException:
        crew.dismiss()
        raise


def _here(worker: Worker, segments: Sequence[Segment]) -> Future[Batch]:
    done: Future[Batch] = Future()
    done.set_result(worker.work(segments))
    return done


def _next(waiting: deque[tuple[Block, Future[Batch]]]) -> Batch:
    block, future = waiting.popleft()
    return replace(future.result(), states=tuple(block.states), reached=block.reached)


def _begin(given: bytes) -> None:
    """Prepare a worker process."""
    global _worker  # noqa: PLW0603 - a pool's process has no other place to keep something
    _worker = Worker(*pickle.loads(given))  # noqa: S301 - made by this program a moment ago


def _is_prepared() -> bool:
    return _worker is not None


def _work(segments: Any) -> Batch:
    if _worker is None:
        raise RuntimeError("the worker was not prepared")
    return _worker.work(segments)
