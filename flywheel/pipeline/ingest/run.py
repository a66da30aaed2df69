"""From log files to the events table: reading, deduplicating against what is stored, one snapshot at the end.

The snapshot of the `ingest` stage carries the list of source files with what was read of each, so that events and
cursor can never disagree: both change in one write. Files that cannot be read are set aside and the others stored;
which they are is known only when all was read, so that a run with files that are too bad is done again without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.config import Config, IngestConfig
from flywheel.errors import ConfigError, IngestError
from flywheel.extensions import Reader, list_extensions, load_extension, load_extensions
from flywheel.io.bucket_path import source_path
from flywheel.io.cluster import Cluster
from flywheel.io.crew import Crew
from flywheel.pipeline.cluster import cluster_of
from flywheel.pipeline.ingest.counts import Counts, ReadSoFar
from flywheel.pipeline.ingest.intake import FORGOTTEN, Intake, of_files
from flywheel.pipeline.ingest.policies import policies_of
from flywheel.pipeline.ingest.reread import not_replaceable, older_files, older_readers, reader_of, stored_sources
from flywheel.pipeline.ingest.verdicts import MEMBER, Tally, Verdicts, judge
from flywheel.registry.registry import Registry
from flywheel.results.data import IngestAnswer, NotRead, RefusedSource, SetAside
from flywheel.stages.conversations.policies import acts
from flywheel.stages.ingest.batches import BAD_FILE, Batch, Reached
from flywheel.stages.ingest.detect import NONE_NEAR
from flywheel.stages.ingest.discovery import STDIN, Discovery, discovery, is_missing
from flywheel.stages.ingest.events import UNREADABLE_FILE, ingest
from flywheel.stages.ingest.sources import SourceState, reading_key, shown_path
from flywheel.store import Snapshot, Store

if TYPE_CHECKING:
    import polars as pl

AUDITS = "audits"  # folder of reviewers' answers, in the project
_STDIN_NAME = "stdin"
_UNKNOWN_FORMAT = "unknown_format"
_SHOWN = 3
_HELD = ["source_file", "conversation_id"]
_PLACED = [*_HELD, "source_line"]
_HINT = (
    "`flywheel readers FILE` shows more, and with --sketch begins a reader of your own; or mend the export, name its "
    "--format, or raise --max-quarantine"
)


def load_readers(config: IngestConfig, project: Path) -> dict[str, Reader]:
    """Return the readers that detection may choose from: all of them, or the one the configuration names.

    Raises:
        ConfigError: two readers have one name.
    """
    own = own_readers(config, project)
    if config.format != "auto":
        return {config.format: own.get(config.format) or load_extension("readers", config.format, search=project)}
    return load_extensions("readers", [e.name for e in list_extensions("readers")]) | own


def own_readers(config: IngestConfig, project: Path) -> dict[str, Reader]:
    """Return the readers of a project's own, by name.

    Raises:
        ConfigError: one has the name of an installed reader, or of another one.
    """
    own: dict[str, Reader] = {}
    taken = {extension.name for extension in list_extensions("readers")} if config.readers else set()
    for place in config.readers:
        reader: Reader = load_extension("readers", place, search=project)
        if reader.name in taken:
            raise ConfigError(
                f"`{place}` in `ingest.readers` is called `{reader.name}`, and so is another reader",
                hint="give it a name of its own: the first argument of reader(...)",
            )
        taken.add(reader.name)
        own[reader.name] = reader
    return own


def default_sources(config: Config, project: Path) -> list[Path]:
    """Return what is read when no path is given: the configured sources, and reviewers' answers where there are any.

    Raises:
        IngestError: a source is not there.
    """
    sources = [source_path(source, project) for source in config.ingest.sources]
    if missing := next(filter(is_missing, sources), None):
        hint = "put logs there, or name others: flywheel ingest PATH, or ingest.sources in flywheel.toml"
        raise IngestError(f"`{missing}`, which `ingest.sources` names, does not exist", hint=hint)
    answers = project / AUDITS
    has_answers = any(answers.glob("*.jsonl")) if answers.is_dir() else False
    return sources + ([answers] if has_answers else [])


@dataclass
class _Run:
    """What one ingest reads, where to, and what is known of it."""

    store: Store
    config: IngestConfig
    project: Path
    key: bytes
    readers: Mapping[str, Reader]
    found: Discovery
    before: Snapshot | None
    known: Mapping[str, SourceState]
    cluster: Cluster | None
    forgotten: frozenset[str]  # marks of users, by their certificates
    replaces: frozenset[str]  # files whose events are replaced by what is read of them now
    strict: bool
    on_read: Callable[[ReadSoFar], None]

    @property
    def sources(self) -> dict[str, Path]:
        """By a file's recorded name, the path that named it."""
        return dict(zip(self.files, self.found.sources.values(), strict=True))

    @property
    def files(self) -> dict[str, Path]:
        """The files, by recorded name."""
        return {_STDIN_NAME if file == STDIN else shown_path(file, self.project): file for file in self.found.sources}


@dataclass
class _Reading:
    """One pass over files: counts, parts to be committed, new states."""

    result: Counts
    intake: Intake
    tally: Tally
    states: dict[str, SourceState]
    acting: list[pl.DataFrame] = field(default_factory=list)
    held: list[pl.DataFrame] = field(default_factory=list)  # of files that are read again
    reached: Reached | None = None  # where Ctrl-C ended it
    interrupted: bool = False


def ingest_logs(  # noqa: PLR0913 - what is read, where to, and how
    store: Store,
    config: Config,
    project: Path,
    paths: Sequence[Path],
    *,
    key: bytes,
    dry_run: bool = False,
    again: frozenset[str] = frozenset(),
    reread: bool = False,
    strict: bool = True,
    on_read: Callable[[ReadSoFar], None] = lambda _: None,
) -> IngestAnswer:
    """Read log files into the store; the same files twice change nothing.

    A file that cannot be read, or of whose records more than `ingest.max_quarantine` are unreadable, is set aside: none
    of it is stored, and it is tried again when it, a reader or a setting changes.

    Args:
        store: where events go.
        config: ingest settings.
        project: folder that recorded paths are relative to.
        paths: files, folders or globs.
        key: the project's redaction key.
        dry_run: count everything, store nothing.
        again: recorded paths of files that are read from their beginning although they are known.
        reread: whether known files are read from their beginning too, and what is stored of them is replaced; without
            paths, those that an older version of their reader read. What cannot be read any more stays as it is.
        strict: whether it is an error that nothing can be read; otherwise policies are not looked for.
        on_read: called while reading.

    Raises:
        IngestError: nothing was found, or nothing of it can be read.
        KeyboardInterrupt: what was read is stored before, unless some of it is to be refused; its text has the outcome.
        StoreError: the disk refuses.
        UsageError: `reread` has no paths, and no file was read by an older reader.
    """
    store.refuse_lost_events()
    before, readers = store.current("ingest"), load_readers(config.ingest, project)
    stored = stored_sources(before)
    found = discovery(paths or older_files(stored, readers, project, config.ingest) if reread else paths)
    forgotten = frozenset(c.user_sha256 for c in Registry(project / config.rounds).certificates())
    run = _Run(
        store, config.ingest, project, key, readers, found, before, stored, cluster_of(config, project), forgotten,
        frozenset(), strict, on_read,
    )  # fmt: skip
    kept = not_replaceable(run.files, stored, store, project, config.ingest.max_expand_ratio) if reread else {}
    run = _anew(
        run, stored, frozenset(run.files.keys() & stored.keys() - kept.keys()) if reread else frozenset(), again
    )
    reading, verdicts, empty = _judged(run)
    if not reading.interrupted and (unread := _unread(run, reading, verdicts, empty, stored)):
        kept |= unread
        run = _anew(run, stored, run.replaces - unread.keys(), again)
        reading, verdicts, empty = _judged(run)
    if reading.interrupted:
        raise KeyboardInterrupt("" if dry_run else _so_far(run, reading, verdicts, empty, stored))
    new = {name: _finished(state, run, reading.tally, empty) for name, state in reading.states.items()}
    states = {**run.known, **new}
    set_aside = _set_aside(run, states, reading.tally, empty)
    refused = _refused_sources(run, reading, states, set_aside, verdicts)
    refused += [RefusedSource(source=str(path), files=0, reason=f"it {why}") for path, why in found.absent]
    if not dry_run:
        reading.intake.finish()
        _commit(run, reading, {name: state.to_dict() for name, state in {**stored, **new}.items()})
    not_read = [NotRead(path=shown_path(path, project), why=why) for path, why in found.skipped]
    not_read += [NotRead(path=name, why=f"its events stay: {why}") for name, why in sorted(kept.items())]
    policies = policies_of(reading.acting, store) if strict else []
    return reading.result.answer(
        dry_run=dry_run, set_aside=set_aside, refused=refused, not_read=not_read, policies=policies,
        older=older_readers(list({**stored, **new}.values()), readers),
    )  # fmt: skip


def _anew(run: _Run, stored: Mapping[str, SourceState], replaces: frozenset[str], again: frozenset[str]) -> _Run:
    """Return a run that reads some known files from their beginning."""
    known = {name: state for name, state in stored.items() if name not in again | replaces}
    return replace(run, known=known, replaces=replaces)


def _unread(
    run: _Run,
    reading: _Reading,
    verdicts: Verdicts,
    empty: Mapping[str, str],
    stored: Mapping[str, SourceState],
) -> dict[str, str]:
    """Return the files to be replaced of which nothing, or not all that is stored, would be stored, with the reason."""
    refused = {name: "its source is refused" for name, path in run.sources.items() if verdicts.refuses(path)}
    doubtful = {name: stored[name].overwrote for name in run.replaces if stored[name].overwrote is not False}
    lacking = dict.fromkeys(_lacking(run, reading, doubtful), "it no longer holds all that was read under its name")
    whole = {**lacking, **refused, **reading.tally.whole, **empty, **verdicts.files}
    return {name: why for name, why in whole.items() if name in run.replaces}


def _lacking(run: _Run, reading: _Reading, overwrote: Mapping[str, bool | None]) -> list[str]:
    """Return those files that hold less of a conversation than is stored of it: a log that was rotated or emptied, say.

    Less are fewer records; where other content is known to have been read under the name, also fewer events, since
    what is stored is of both contents and may have the same lines.
    """
    if not overwrote:
        return []
    import polars as pl

    table = run.store.table("events", "ingest").filter(of_files(overwrote))
    stored = _held(table.select(_PLACED).collect())
    read = pl.concat([stored.clear(), *reading.held]).group_by(_HELD).agg(pl.col("records", "events").sum())
    both = stored.join(read, on=_HELD, how="left", suffix="_read").with_columns(pl.selectors.numeric().fill_null(0))
    written_over = pl.col("source_file").is_in(sorted(name for name, known in overwrote.items() if known))
    fewer = pl.col("records_read") < pl.col("records")
    fewer |= written_over & (pl.col("events_read") < pl.col("events"))
    return both.filter(fewer)["source_file"].unique().to_list()


def _held(events: pl.DataFrame) -> pl.DataFrame:
    """Return how many records and events of each conversation each file has; an archive's members are one file."""
    import polars as pl

    return (
        events.group_by(pl.col("source_file").str.split(MEMBER).list.first(), "conversation_id")
        .agg(records=pl.struct("source_file", "source_line").n_unique(), events=pl.len())
    )  # fmt: skip


def _overwrote(state: SourceState, run: _Run) -> bool | None:
    """Return whether other content was read under this name before."""
    earlier = run.before.extra["sources"].get(state.path) if run.before is not None else None
    if earlier is None or state.path in run.replaces:
        return False
    if state.from_line or not earlier["records"] or earlier["sha256"] == state.sha256:
        return SourceState.from_dict(earlier).overwrote
    return True


def _judged(run: _Run) -> tuple[_Reading, Verdicts, dict[str, str]]:
    """Read all files; where some are too bad, read again without them.

    Raises:
        IngestError: standard input would have to be read twice.
    """
    reading = _read(run, Verdicts())
    own = {name: state for name, state in run.known.items() if name in run.sources}
    verdicts, empty = judge(reading.tally, run.sources, own, run.config.max_quarantine)
    if reading.interrupted:
        return reading, verdicts, empty
    if verdicts.files or verdicts.sources:
        if STDIN in run.found.sources and not (_STDIN_NAME in verdicts.files or verdicts.refuses(STDIN)):
            shown = next(iter(verdicts.files.values()), "") or verdicts.sources[0].refusal.reason
            raise IngestError(
                f"{shown}; nothing was stored", hint="read standard input by itself: it is read only once"
            )
        tally = reading.tally
        reading = _read(run, verdicts)
        reading.result.add_refused(verdicts, reading.tally.whole)
        reading.tally.bad = tally.bad
        reading.tally.whole = {name: f"{BAD_FILE}: {why}" for name, why in verdicts.files.items()} | reading.tally.whole
    return reading, verdicts, empty


def _read(run: _Run, verdicts: Verdicts) -> _Reading:
    """Read files, without those that are refused."""
    left_out = verdicts.leaves_out() | ({_STDIN_NAME} & verdicts.files.keys())  # which cannot be read again
    files = [file for name, file in run.files.items() if name not in left_out]
    with Crew(run.cluster) as crew:
        intake = Intake(run.store, run.before, crew, run.replaces, run.forgotten)
        reading = _Reading(Counts(files=len(run.found.sources)), intake, Tally(), {})
        reading.result.replaced = intake.replaced
        _take_in(run, reading, files, verdicts.files, crew)
        intake.settle(reading.result)
    if STDIN in files:
        reading.result.formats["standard input"] += 1
    unreadable = sum(why.startswith(UNREADABLE_FILE) for why in reading.tally.whole.values())
    reading.result.untouched = len(left_out) + unreadable
    return reading


def _take_in(run: _Run, reading: _Reading, files: Sequence[Path], refused: Mapping[str, str], crew: Crew) -> None:
    """Read files until they end, or Ctrl-C."""
    places = _places(files, run.project)
    batches = ingest(
        files, root=run.project, known=run.known, cfg=run.config, key=run.key, readers=run.readers, refused=refused,
        crew=crew,
    )  # fmt: skip
    try:
        run.on_read(ReadSoFar(0, 0, len(files), 0, _end(places)))
        for batch in batches:
            reading.intake.add(batch, reading.result)
            reading.tally.add(batch)
            reading.acting.append(acts(batch.events))
            if run.replaces and batch.events.height:
                reading.held.append(_held(batch.events))
            for state in batch.states:
                reading.result.formats["set aside" if state.path in refused else state.format] += 1
                reading.states[state.path] = state
            reading.reached = batch.reached
            run.on_read(_far(reading, batch, places))
    except KeyboardInterrupt:
        crew.dismiss()
        reading.interrupted = True


def _places(files: Sequence[Path], project: Path) -> dict[str, tuple[int, int]]:
    """Return where each file begins and ends among the bytes of all, in the order of reading."""
    at, places = 0, dict[str, tuple[int, int]]()
    for file in files:
        size = file.stat().st_size if file != STDIN and file.exists() else 0
        places[shown_path(file, project)] = at, at + size
        at += size
    return places


def _end(places: Mapping[str, tuple[int, int]]) -> int:
    return max((end for _, end in places.values()), default=0)


def _far(reading: _Reading, batch: Batch, places: Mapping[str, tuple[int, int]]) -> ReadSoFar:
    """Return how far the reading is: all files before the one that a block ends in count as read."""
    ends = [places[state.path][1] for state in batch.states if state.path in places]
    if batch.reached is not None and batch.reached.path in places:
        ends.append(places[batch.reached.path][0] + batch.reached.position)
    return ReadSoFar(reading.result.read, len(reading.states), len(places), max(ends, default=0), _end(places))


def _so_far(
    run: _Run, reading: _Reading, verdicts: Verdicts, empty: Mapping[str, str], stored: Mapping[str, SourceState]
) -> str:
    """Store what was read before Ctrl-C, and return what to tell.

    The file that it was in is known as if it ended there, so that the next reading goes on behind it, as in a log that
    has grown. Where something is to be refused or replaced, all has to be read again, so nothing is stored.
    """
    if verdicts.files or verdicts.sources or run.replaces or STDIN in run.found.sources:
        return "nothing was stored"
    states = dict(reading.states)
    if reading.reached is not None and reading.reached.state is not None:
        states[reading.reached.path] = reading.reached.state
    done = {name: _finished(state, run, reading.tally, empty) for name, state in states.items()}
    reading.intake.finish()
    _commit(run, reading, {name: state.to_dict() for name, state in {**stored, **done}.items()})
    return f"{reading.result.kept:,} records are stored; the same command goes on behind them"


def _finished(state: SourceState, run: _Run, tally: Tally, empty: Mapping[str, str]) -> SourceState:
    """Return a file's state with what is known only behind its last record: what was refused."""
    before = run.known.get(state.path)
    earlier = before.bad if before is not None and before.offset_bytes and state.from_line else 0
    reader = run.readers.get(reader_of(state.format))
    now = reader.version if reader is not None else 0
    version = before.version if before is not None and state.from_line else now
    state = replace(state, version=version, overwrote=_overwrote(state, run))
    aside = tally.whole_of(state.path) | ({state.path: empty[state.path]} if state.path in empty else {})
    if not aside:
        return replace(state, bad=earlier + tally.bad_of(state.path))
    return replace(state, bad=earlier, set_aside=aside, tried=reading_key(run.config, run.readers))


def _set_aside(run: _Run, states: Mapping[str, SourceState], tally: Tally, empty: Mapping[str, str]) -> list[SetAside]:
    """Return the files, and members of archives, of which nothing is stored: now or since an earlier reading.

    Those that a reader knows, or nearly knows, come first: they are what somebody may want to mend.
    """
    whole = {**tally.whole, **empty}
    for name in run.sources:
        state = states.get(name)
        whole |= state.set_aside if state is not None else {}
    aside = [
        SetAside(file=name, reason=why.partition(": ")[0], detail=why.partition(": ")[2])
        for name, why in sorted(whole.items())
    ]
    return sorted(aside, key=lambda one: (one.reason == _UNKNOWN_FORMAT, NONE_NEAR in one.detail))


def _refused_sources(
    run: _Run, reading: _Reading, states: Mapping[str, SourceState], set_aside: Sequence[SetAside], verdicts: Verdicts
) -> list[RefusedSource]:
    """Return the sources of which nothing is stored: too bad ones, and those whose files are all set aside.

    Raises:
        IngestError: there are such, and no other source has a log.
    """
    aside: dict[Path, list[SetAside]] = {}
    for one in set_aside:
        aside.setdefault(run.sources[one.file.partition(MEMBER)[0]], []).append(one)
    with_logs = {source for name, source in run.sources.items() if _holds_log(name, run, reading, states)}
    refused = [source.refusal for source in verdicts.sources]
    for source, files in sorted(aside.items()):
        if source not in with_logs and not verdicts.refuses(source):
            reason = "it is set aside" if len(files) == 1 else f"all its {len(files):,} files are set aside"
            refused.append(RefusedSource(source=str(source), files=len(files), reason=reason))
    if run.strict and refused and not any(source for source in with_logs if not verdicts.refuses(source)):
        reasons = [f"`{one.file}`: {one.detail}" for one in set_aside[:_SHOWN]]
        reasons += [f"and {len(set_aside) - _SHOWN:,} more files"] if len(set_aside) > _SHOWN else []
        reasons += [f"`{source.refusal.source}`: {source.refusal.reason}" for source in verdicts.sources[:_SHOWN]]
        closed = all(one.reason == UNREADABLE_FILE for one in set_aside) and not verdicts.sources
        hint = "its owner and mode: ls -l shows them" if closed else _HINT
        raise IngestError("\n  ".join(["nothing can be read, so nothing was stored", *reasons]), hint=hint)
    return refused


def _holds_log(name: str, run: _Run, reading: _Reading, states: Mapping[str, SourceState]) -> bool:
    """Whether some reader reads a file, and not all of it is set aside."""
    if name == _STDIN_NAME:
        return _STDIN_NAME in reading.tally.read
    state = states.get(name)
    return state is not None and name not in state.set_aside and state.format.split(" of ")[-1] in run.readers


def _commit(run: _Run, reading: _Reading, sources: Mapping[str, Any]) -> None:
    """Write the snapshot, if anything has changed."""
    extra: dict[str, Any] = {"sources": dict(sources)}
    if reading.intake.forgotten.marks:
        extra[FORGOTTEN] = sorted(reading.intake.forgotten.marks)
    before, parts = run.before, reading.intake.parts
    if before is None or extra != before.extra or set(before.parts) != set(parts):
        versions = {r.name: r.version for r in run.readers.values()}
        run.store.commit(
            "ingest",
            fingerprint={"readers": versions},
            parts=parts,
            funnel=reading.result.funnel(),
            extra=extra,
        )
