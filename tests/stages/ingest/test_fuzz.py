"""Broken records and bytes of every format: no crash, no hang, events that keep to the contract, every record counted.

Each test takes seeds; the usual run has a few, `make e2e` has 100,000 broken records. A failure names its seed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import IngestConfig
from flywheel.extensions import BadRecordError, Reader
from flywheel.extensions import Sample as Seen
from flywheel.stages.ingest.discovery import discover
from flywheel.stages.ingest.events import ingest
from flywheel.stages.ingest.framing.framed import Raw, Record
from flywheel.stages.ingest.framing.framer import Framing, Limits
from flywheel.stages.ingest.framing.jsontext import storable
from flywheel.stages.ingest.framing.opening import file_content
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.stages.ingest.conftest import KEY, Taken, collect
from tests.stages.ingest.formats import all_samples, samples
from tests.stages.ingest.mutate import PACKS, edited, in_time, spoiled, wrong_with

pytestmark = pytest.mark.slow

SECONDS = 20.0  # for one file; it takes a few milliseconds
RECORDS, RECORDS_E2E = 10, 2700  # for each reader
FILES, FILES_E2E = 6, 1300  # for each packing
SHARED = ("langfuse-traces", "mini-swe-agent-deepseek", "tau2-bench", "intercode", "mint", "star", "prime-environments")
LEAVES = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


def judged(reader: Reader, record: Any) -> None:
    """Read a record, which may be refused and nothing worse; check its events."""
    with suppress(BadRecordError):
        for event in reader.read(record, 1):
            assert not wrong_with(event), (wrong_with(event), event)


def sniffed(readers: Mapping[str, Reader], records: list[Any]) -> None:
    for reader in readers.values():
        assert 0 <= reader.sniff(Seen("x", records)) <= 1
        if hasattr(reader, "from_sidecar") and records:
            assert all(isinstance(value, str) for value in reader.from_sidecar(records[0]).values())


def broken_records(name: str, reader: Reader, readers: Mapping[str, Reader], count: int) -> None:
    rng = random.Random(f"records of {name}")  # noqa: S311 - a test's numbers
    for n in range(count):
        record = storable(edited(rng.choice(rng.choice(samples()[name]).records), rng)).value
        with in_time(SECONDS, f"record {n} of {name}"):
            judged(reader, record)
            sniffed(readers, [record])


@pytest.mark.parametrize("name", sorted(samples()))
def test_a_reader_only_ever_refuses(name: str, readers: Mapping[str, Reader]) -> None:
    broken_records(name, readers[name], readers, RECORDS)


@pytest.mark.e2e
@pytest.mark.parametrize("name", sorted(samples()))
def test_a_reader_only_ever_refuses_much_longer(name: str, readers: Mapping[str, Reader]) -> None:
    start = time.monotonic()
    broken_records(name, readers[name], readers, RECORDS_E2E)
    print(f"{name}: {RECORDS_E2E:,} broken records in {time.monotonic() - start:.1f} s")  # noqa: T201


def read(path: Path, readers: Mapping[str, Reader], **settings: Any) -> Taken:
    """Read a file through the public door, in time; what it gives has to add up and no reader may stumble."""
    cfg = IngestConfig(**settings)
    with in_time(SECONDS, "a file"):
        taken = collect(ingest(discover([path]), root=path.parent, known={}, cfg=cfg, key=KEY, readers=readers))
    assert taken.adds_up()
    assert not [detail for detail in taken.quarantined["detail"] if " fails: " in detail]
    return taken


def broken_files(pack: str, folder: Path, readers: Mapping[str, Reader], count: int) -> int:
    """Break files of every format in one packing: their bytes, or one in three the records before they are packed."""
    rng, records = random.Random(f"files as {pack}"), 0  # noqa: S311
    path = folder / "x"
    for n in range(count):
        given = rng.choices(rng.choice(all_samples()).records, k=rng.randint(1, 6))
        whole = n % 3 == 0
        content = PACKS[pack]([edited(record, rng) for record in given] if whole else given)
        path.write_bytes(content if whole else spoiled(content, rng))
        taken = read(path, readers)
        records += max(taken.read, 1)
    return records


@pytest.mark.parametrize("pack", PACKS)
def test_broken_files_are_read_and_add_up(pack: str, tmp_path: Path, readers: Mapping[str, Reader]) -> None:
    broken_files(pack, tmp_path, readers, FILES)


@pytest.mark.e2e
@pytest.mark.parametrize("pack", PACKS)
def test_broken_files_are_read_and_add_up_much_longer(pack: str, tmp_path: Path, readers: Mapping[str, Reader]) -> None:
    start = time.monotonic()
    records = broken_files(pack, tmp_path, readers, FILES_E2E)
    print(f"{pack}: {FILES_E2E:,} broken files, {records:,} records in {time.monotonic() - start:.1f} s")  # noqa: T201


def real_records(folder: Path) -> Iterator[tuple[Path, list[Any]]]:
    """Yield the first records of real logs."""
    for path in sorted(p for name in SHARED for p in (folder / name).rglob("*") if p.is_file()):
        framing = Framing(file_content(path, path.stat().st_size), Limits(20_000_000, 500))
        found = [r.parse() if isinstance(r, Raw) else r for r in islice(framing, 5)]
        records = [r.value for r in found if isinstance(r, Record)]
        if records and path.stat().st_size < 1_000_000:
            yield path, records


@pytest.mark.e2e
def test_broken_lines_of_real_logs(shared_data: Path, tmp_path: Path, readers: Mapping[str, Reader]) -> None:
    rng, start, done = random.Random("real"), time.monotonic(), 0  # noqa: S311
    for _, records in islice(real_records(shared_data), 60):
        for _ in range(10):
            (tmp_path / "x").write_bytes(spoiled(PACKS["lines"]([edited(r, rng) for r in records]), rng))
            done += max(read(tmp_path / "x", readers).read, 1)
    print(f"{done:,} broken records of real logs in {time.monotonic() - start:.1f} s")  # noqa: T201


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_and_add_up(content: bytes, tmp_path: Path, take: Callable[..., Any]) -> None:
    (tmp_path / "x").write_bytes(content)
    assert take(tmp_path / "x").adds_up()


@given(record=VALUES)
def test_any_json_is_refused_or_read(record: Any, readers: Mapping[str, Reader]) -> None:
    sniffed(readers, [record])
    for reader in readers.values():
        judged(reader, record)
