"""Every reader has samples, and every sample is its reader's: a new reader brings one, or this fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import Reader
from flywheel.extensions import Sample as Seen
from flywheel.stages.ingest.detect import SAMPLE_RECORDS, confidences
from tests.stages.ingest.formats import Sample, all_samples, samples


def test_every_reader_has_a_sample(readers: Mapping[str, Reader]) -> None:
    without = sorted(set(readers) - set(samples()))
    assert not without, f"add tests/fixtures/formats/<reader>.json, or a line to formats.WRITTEN, for {without}"
    assert not sorted(set(samples()) - set(readers)), "samples of no reader"
    assert len({sample.path for sample in all_samples()}) == len(all_samples())


@pytest.mark.parametrize("sample", all_samples(), ids=lambda sample: sample.name)
def test_a_sample_is_read_by_its_reader_and_whole(
    sample: Sample, tmp_path: Path, take: Callable[..., Any], readers: Mapping[str, Reader]
) -> None:
    path = sample.write(tmp_path)
    taken = take(path)
    (state,) = taken.states.values()
    assert (state.format, taken.quarantined.height) == (sample.reader, 0)
    assert taken.events.height
    assert taken.adds_up()
    found = confidences(Seen(path.name, sample.records[:SAMPLE_RECORDS]), readers)
    assert all(sure <= getattr(readers[name], "surest", 1.0) for name, sure in found.items())
    sure = found.pop(sample.reader)
    assert sure > max(found.values()), "another reader is as sure of it"


@pytest.mark.e2e
@pytest.mark.slow
def test_blank_lines_and_marks_change_no_event(tmp_path: Path, take: Callable[..., Any]) -> None:
    """Read all samples as they are, and again with blank lines, CRLF and a mark, in two readings: nothing is new."""
    plain = take(*(sample.write(tmp_path / "plain") for sample in all_samples()), root=tmp_path / "plain")
    known: dict[str, Any] = {}
    events: set[str] = set()
    for part in (1, None):
        for sample in all_samples():
            path = sample.write(tmp_path / "blank")
            lines = path.read_bytes().splitlines()[:part]
            path.write_bytes(b"\xef\xbb\xbf\r\n" + b"".join(b"\n \r\n" + line + b"\r\n" for line in lines))
        again = take(tmp_path / "blank", root=tmp_path / "blank", known=known)
        known |= again.states
        events |= set(again.events["event_id"])
    assert events == set(plain.events["event_id"])
