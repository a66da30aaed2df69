"""Logs written by hand, and one way to read them: through the public door."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pytest
from flywheel.config import EpisodesConfig, IngestConfig
from flywheel.extensions import Reader, list_extensions, load_extension
from flywheel.funnel import Funnel
from flywheel.pipeline.build.registry import LINK_COLUMNS
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.conversations.link import build_links, follow_links
from flywheel.stages.ingest.discovery import discover
from flywheel.stages.ingest.events import ingest

if TYPE_CHECKING:
    from flywheel.stages.ingest.batches import Batch
    from flywheel.stages.ingest.sources import SourceState
    from tests.projects import Projects

KEY = b"a project's key"


@dataclass
class Taken:
    """Everything that one ingest gave."""

    events: pl.DataFrame
    quarantined: pl.DataFrame
    read: int
    ignored: Counter[str]
    redacted: Counter[str]
    states: dict[str, SourceState] = field(default_factory=dict)

    def payloads(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.events["payload"]]

    def adds_up(self) -> bool:
        accepted = self.events.select("source_file", "source_line").n_unique() if self.events.height else 0
        return self.read == accepted + sum(self.ignored.values()) + self.quarantined.height

    def built(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the episodes and steps that the events give, read through their links."""
        links = build_links(self.events.select(LINK_COLUMNS), Funnel())
        events = follow_links(self.events.lazy(), links).collect()
        return build_episodes(events, EpisodesConfig(), Funnel())


Take = Callable[..., Taken]


def calls(taken: Taken) -> list[tuple[str, Any]]:
    """Return the calls that were made."""
    made = (call for payload in taken.payloads() for call in payload.get("message", {}).get("tool_calls", ()))
    return [(call["name"], call["arguments"]) for call in made]


def values(taken: Taken) -> list[float]:
    """Return the outcomes."""
    return sorted(payload["value"] for payload in taken.payloads() if payload.get("source"))


def collect(batches: Iterator[Batch]) -> Taken:
    """Put the batches of one ingest together."""
    ignored: Counter[str] = Counter()
    redacted: Counter[str] = Counter()
    events, quarantined, read = [], [], 0
    states: dict[str, SourceState] = {}
    for batch in batches:
        events.append(batch.events)
        quarantined.append(batch.quarantined)
        read += batch.read
        ignored.update(batch.ignored)
        redacted.update(batch.redacted)
        states |= {state.path: state for state in batch.states}
    empty = pl.DataFrame()
    return Taken(
        pl.concat(events) if events else empty,
        pl.concat(quarantined) if quarantined else empty,
        read,
        ignored,
        redacted,
        states,
    )


@pytest.fixture(scope="session")
def readers() -> dict[str, Reader]:
    return {
        e.name: load_extension("readers", e.name) for e in list_extensions("readers") if e.distribution == "flywheel-rl"
    }


@pytest.fixture
def take(tmp_path: Path, readers: Mapping[str, Reader]) -> Take:
    """Read paths (default: everything in tmp_path) as `flywheel ingest` would."""

    def run(
        *paths: Path,
        known: Mapping[str, SourceState] | None = None,
        cfg: IngestConfig | None = None,
        root: Path = tmp_path,
    ) -> Taken:
        files = discover(paths or (root,))
        return collect(ingest(files, root=root, known=known or {}, cfg=cfg or IngestConfig(), key=KEY, readers=readers))

    return run


# For tests that count what real logs hold: what is redacted in them is the subject of test_false_positives.
COUNTING = IngestConfig.model_validate({"workers": 1, "redact": {"kinds": []}})


@pytest.fixture(scope="session")
def real(shared_data: Path, readers: Mapping[str, Reader], session_projects: Projects) -> Callable[[str], Taken]:
    """Read a folder of the real logs, once a session, with nothing redacted; the test is skipped where it is absent."""

    def taken(name: str) -> Taken:
        if not (shared_data / name).is_dir():
            pytest.skip(f"the real logs of {name} are not next to this checkout (../shared/data)")
        return cast("Taken", pickle.loads(session_projects.once(f"real-{name}", read(name)).read_bytes()))  # noqa: S301

    def read(name: str) -> Callable[[Path], object]:
        def write(path: Path) -> None:
            files = discover([shared_data / name])
            batches = ingest(files, root=shared_data, known={}, cfg=COUNTING, key=KEY, readers=readers)
            path.write_bytes(pickle.dumps(collect(batches)))

        return write

    return taken


@pytest.fixture
def fixtures() -> Path:
    """Exports that the producing libraries wrote; the scripts stand in `produce`."""
    return Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write records as JSONL."""

    def lines(name: str, records: Sequence[Any]) -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
        return path

    return lines


def _openai(conversation: str, turn: int) -> dict[str, Any]:
    history = [{"role": "system", "content": "Answer."}, {"role": "user", "content": f"question of {conversation}"}]
    for n in range(turn):
        history += [{"role": "assistant", "content": f"answer {n}"}, {"role": "user", "content": f"and {n}?"}]
    return {
        "timestamp": 1790850000 + turn,
        "metadata": {"session_id": conversation, "release": "r1"},
        "request": {"model": "m", "messages": history},
        "response": {
            "id": f"{conversation}-{turn}",
            "object": "chat.completion",
            "model": "m",
            "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": f"answer {turn}"}}
            ],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3},
        },
    }


@pytest.fixture
def pairs() -> Callable[..., list[dict[str, Any]]]:
    """Make OpenAI pairs: some conversations of some turns."""
    return lambda conversations=2, turns=3: [_openai(f"c{c}", t) for c in range(conversations) for t in range(turns)]
