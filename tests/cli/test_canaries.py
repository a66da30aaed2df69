"""Canaries: made-up personal data and secrets of every kind, planted in logs of every format, and found nowhere.

They stand in users' words, tools' arguments and results, ids, names of fields, metadata, JSON inside texts, lines that
are refused, files that nobody knows. Searched is everything that flywheel wrote (each byte, each column of each table)
or printed. File names are not planted: paths are recorded as given, for `quarantine --retry` has to find the files.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pytest
from flywheel.extensions import BadRecordError, Reader, list_extensions, load_extension
from flywheel.pipeline.pages.round_page import write_page
from flywheel.project import Project
from flywheel.stages.ingest.redaction.patterns import KINDS
from tests.projects import flywheel
from tests.report.sample import manifest
from tests.stages.ingest.canaries import GENERATORS, Canary, Planter, canaries
from tests.stages.ingest.formats import Sample, samples

NAMES = list(dict.fromkeys(kind.name for kind in KINDS))

LEAST, FEW, MANY = 2, 3, 1000
HEAD = 20  # records that detection looks at
SHOWN = 2  # episodes that are printed in full
# Ways in which a log holds what people say: events, calls of an API, spans, a session's lines. `make e2e` has every
# format, and more of each kind.
FORMATS = ("native", "openai", "otel", "claude_code")


def test_every_kind_has_canaries() -> None:
    assert set(GENERATORS) == set(NAMES), "write a generator for the new kind in tests/stages/ingest/canaries.py"


@dataclass
class Plantation:
    """Logs with canaries in them; `where` says of each canary into what it was planted."""

    folder: Path
    count: int
    where: dict[str, str] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)

    def take(self, where: str, count: int | None = None) -> list[Canary]:
        """Return new canaries of all kinds, mixed."""
        made = [c for kind in NAMES for c in canaries(kind, count or self.count, where)]
        random.Random(where).shuffle(made)  # noqa: S311 - a test's numbers
        self.where |= {c.secret: f"{c.kind} in {where}" for c in made}
        self.kinds.update(c.kind for c in made)
        return made

    def format(self, reader: Reader, shapes: Sequence[Sample]) -> None:
        """Plant a format's logs: nine in ten into records that are still read, the rest anywhere."""
        made = self.take(reader.name)
        for n, sample in enumerate(shapes):
            share = made[n :: len(shapes)]
            rng = random.Random(sample.name)  # noqa: S311
            planter = Planter(sample.records, _told(reader, sample.records), rng)
            cut = len(share) // 10
            head = sample.records * (HEAD // len(sample.records) + 1)  # so that detection is sure
            records = [*head, *planter.whole(share[cut:]), *planter.spoiled(share[:cut])]
            path = sample.write(self.folder, records)
            _break(path, planter.whole(self.take(f"broken lines of {sample.name}", 2)))

    def others(self) -> None:
        """Plant what is no log: unknown records, names of fields, prose, bytes, tool schemas, standard input's like."""
        made = self.take("unknown files", self.count)
        texts = [c.text for c in made]
        folder = self.folder / "others"
        folder.mkdir()
        rows = [{a: 1, b: {c: d}} for a, b, c, d in zip(*[iter(texts[: len(texts) // 4 * 4])] * 4, strict=True)]
        for n in range(0, len(rows), 8):
            (folder / f"fields-{n}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows[n : n + 8]))
        (folder / "README.md").write_text("\n".join(texts))
        (folder / "notes.txt").write_text("\n".join(texts))
        (folder / "bytes.bin").write_bytes(b"\xff\0" + "\0".join(texts).encode())
        tools = [{"type": "function", "function": {"name": t, "description": t, "parameters": {}}} for t in texts]
        (folder / "tools.json").write_text(json.dumps(tools))
        event = {"conversation_id": "c", "kind": "request", "payload": {"messages": []}}
        events = [event, *({**event, text: text} for text in texts)]
        (folder / "native.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))


def _told(reader: Reader, records: Sequence[Any]) -> Callable[[Any], str]:
    least = max(1, min(len(_read(reader, record)) for record in records))

    def told(record: Any) -> str:
        events = _read(reader, record)
        return repr(events) if len(events) >= least else ""

    return told


def _read(reader: Reader, record: Any) -> list[Any]:
    try:
        return list(reader.read(record, 1))
    except (BadRecordError, ValueError, TypeError, LookupError, AttributeError):
        return []


def _break(path: Path, records: Iterator[Any]) -> None:
    """Append lines that are refused: cut off, no UTF-8, another closing bracket."""
    lines = [json.dumps(record, ensure_ascii=False).encode() for record in records]
    ways: list[Callable[[bytes], bytes]] = [lambda t: t[:-2], lambda t: t + b"\xff", lambda t: t + b"]"]
    with path.open("ab") as log:
        log.writelines(ways[n % len(ways)](line) + b"\n" for n, line in enumerate(lines))


def _readers() -> dict[str, Reader]:
    return {
        e.name: load_extension("readers", e.name) for e in list_extensions("readers") if e.distribution == "flywheel-rl"
    }


def _made(folder: Path, count: int, kinds: Sequence[str], names: Sequence[str]) -> Plantation:
    """Make a project whose logs are planted."""
    plantation, readers = Plantation(folder / "logs", count), _readers()
    plantation.folder.mkdir(parents=True)
    (folder / "flywheel.toml").write_text(
        f"[ingest]\nmax_quarantine = 1.0\n[ingest.redact]\nkinds = {json.dumps(list(kinds))}\n"
    )
    for name in names:
        plantation.format(readers[name], samples()[name])
    plantation.others()
    return plantation


def _printed(project: Path) -> Iterator[tuple[str, str]]:
    """Run everything that looks at logs or tables, and yield what it printed."""
    commands = [
        ["-v", "ingest", "--dry-run"], ["-v", "ingest"], ["--json", "ingest"], ["quarantine", "--limit", "100000"],
        ["--json", "quarantine", "--limit", "100000"], ["quarantine", "--retry"], ["-v", "build"], ["-v", "status"],
        ["--json", "status"], ["readers", f"{project}/logs/others/fields-0.jsonl"],
        *[["explain", stage] for stage in ("ingest", "episodes", "pairs")],
    ]  # fmt: skip
    for command in commands:
        yield " ".join(command), _run(project, *command)
    episodes = Project(project).store.table("episodes", "episodes").collect()["episode_id"].sort().to_list()
    for episode in episodes[:: max(1, len(episodes) // SHOWN)][:SHOWN]:
        yield f"show {episode}", _run(project, "show", episode)
        yield f"explain {episode}", _run(project, "--json", "explain", episode)
    yield "a refused ingest", _refused(project)


def _refused(project: Path) -> str:
    """Read what is no log where nothing may be refused; return the errors."""
    config = project / "flywheel.toml"
    before = config.read_text()
    config.write_text(before.replace("max_quarantine = 1.0", "max_quarantine = 0.0"))
    again = project / "logs" / "again"
    again.mkdir()
    for path in (project / "logs" / "others").iterdir():
        (again / path.name).write_bytes(path.read_bytes() + b"\n")  # another content, so that it is read
    told = [_run(project, "ingest", "--dry-run", str(again), *more) for more in ((), ("--format", "native"))]
    assert all("nothing can be read" in text for text in told), told
    config.write_text(before)
    return "".join(told)


def _run(project: Path, *arguments: str) -> str:
    done = flywheel(project, *arguments, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def _stored(project: Path) -> Iterator[tuple[str, str]]:
    """Yield every file outside the logs: its bytes, and the values of its columns where it is a table."""
    for path in sorted(project.rglob("*")):
        if path.is_file() and not path.is_relative_to(project / "logs"):
            name = path.relative_to(project).as_posix()
            yield f"the bytes of {name}", f"{name}\n{path.read_bytes().decode('latin-1')}"
            if path.suffix == ".parquet":
                yield name, pl.read_parquet(path).write_ndjson()


def _forms(secret: str) -> set[str]:
    """Return how a text may be written."""
    bare = secret.replace(" ", "").replace("-", "")
    return {secret, quote(secret), quote(secret, safe=""), json.dumps(secret)[1:-1], bare}


def _leaks(texts: Iterator[tuple[str, str]], where: Mapping[str, str]) -> dict[str, str]:
    """Return the canaries that stand in texts, each with what it was and where it was found."""
    owner = {form.lower(): secret for secret in where for form in _forms(secret)}
    searched = pl.DataFrame(list(texts), schema=["place", "text"], orient="row")
    hits = searched.with_columns(hit=pl.col("text").str.extract_many(list(owner), ascii_case_insensitive=True))
    found: dict[str, str] = {}
    for place, text, hit in hits.explode("hit").drop_nulls().iter_rows():
        secret = owner[hit.lower()]
        if not _by_chance(hit, text):
            found.setdefault(secret, f"{where[secret]} found in {place}: {secret}")
    return found


def _by_chance(hit: str, text: str) -> bool:
    """Whether digits stand in a text only within longer numbers: a probability's sixteen digits hold any nine."""
    return hit.isdigit() and re.search(rf"(?<![\d.]){hit}(?!\d)", text) is None


def _walk(project: Path) -> Iterator[tuple[str, str]]:
    yield from _printed(project)
    Project(project).registry.save(manifest(round=1, parent=None))
    write_page(Project(project).context, 1)
    yield from _stored(project)


def _listed(leaks: Mapping[str, str]) -> str:
    return f"{len(leaks)} canaries found, among them:\n" + "\n".join(sorted(leaks.values())[:40])


def _events(project: Path) -> int:
    return Project(project).store.table("events", "ingest").collect().height


def test_planted_canaries_are_found_nowhere(tmp_path: Path) -> None:
    planted = _made(tmp_path, FEW, NAMES, FORMATS)
    leaks = _leaks(_walk(tmp_path), planted.where)
    assert not leaks, _listed(leaks)
    assert min(planted.kinds.values()) >= FEW * len(FORMATS)


@pytest.mark.e2e
@pytest.mark.parametrize("names", [FORMATS, tuple(sorted(samples()))])
def test_without_redaction_they_are_found(names: tuple[str, ...], tmp_path: Path) -> None:
    """So the search finds what is there, and of every format enough canaries reach the tables to be searched for."""
    planted = _made(tmp_path, LEAST, [], names)
    leaks = _leaks(chain([("ingest", _run(tmp_path, "ingest"))], _stored(tmp_path)), planted.where)
    for name in names:
        own = [secret for secret, where in planted.where.items() if where.endswith(f" in {name}")]
        assert len(own) == LEAST * len(NAMES)
        assert len(set(own) & set(leaks)) > 0.2 * len(own), name


@pytest.mark.e2e
@pytest.mark.parametrize("name", sorted(samples()))
def test_a_thousand_of_every_kind_are_found_nowhere(name: str, tmp_path: Path) -> None:
    planted = _made(tmp_path, MANY, NAMES, [name])
    leaks = _leaks(_walk(tmp_path), planted.where)
    print(f"{name}: {sum(planted.kinds.values()):,} planted, {len(leaks)} found, {_events(tmp_path):,} events")  # noqa: T201
    assert not leaks, _listed(leaks)
