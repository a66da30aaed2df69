"""`flywheel doctor`: checks of environment, disk, store, model and rounds, each problem with a fix.

In: a project. Out: one result a check. It writes and downloads nothing.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from flywheel.errors import FlywheelError, where
from flywheel.extensions import list_extensions, load_extension
from flywheel.io import files
from flywheel.models.load import base_identity, describe_device
from flywheel.pipeline import redaction_key
from flywheel.pipeline.build.registry import STAGES
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.suites import open_suite
from flywheel.pipeline.ingest.run import default_sources, load_readers
from flywheel.pipeline.train.backend import find_backend
from flywheel.results.setup import DoctorAnswer, DoctorCheck
from flywheel.stages.evaluate.suites.own_cases import read_cases
from flywheel.stages.gate import rule_names
from flywheel.stages.ingest.redaction.redact import Redactor
from flywheel.store import Part, way_out

OK, WARNING, FAILED = "ok", "warning", "failed"
_PACKAGES = ("torch", "transformers", "trl", "peft", "datasets", "polars", "pyarrow", "duckdb")
_TESTED_TRL = "1.16"
_LEAST_FREE = 5 * 10**9  # bytes: a night's adapter, checkpoints and tables
_AHEAD = timedelta(hours=24)
_OTHERS = 0o077  # permission bits of other users


def doctor(ctx: Context, key_file: Path) -> DoctorAnswer:
    """Run every check; one that cannot be run has failed."""
    checks: tuple[tuple[str, Callable[[], Iterator[DoctorCheck]]], ...] = (
        ("python", _python),
        ("packages", _packages),
        ("device", _device),
        ("disk", lambda: _disk(ctx)),
        ("key", lambda: _key(ctx, key_file)),
        ("store", lambda: _store(ctx)),
        ("clock", lambda: _clock(ctx)),
        ("model", lambda: _model(ctx)),
        ("backend", lambda: _backend(ctx)),
        ("rounds", lambda: _rounds(ctx)),
        ("cases", lambda: _cases(ctx)),
        ("hooks", lambda: _hooks(ctx)),
        ("extensions", _extensions),
        ("settings", lambda: _settings(ctx)),
        ("sources", lambda: _sources(ctx)),
    )
    results: list[DoctorCheck] = []
    for name, check in checks:
        try:
            results += check()
        except FlywheelError as error:
            results.append(DoctorCheck(name=name, state=FAILED, says=error.message, fix=error.hint))
        except PermissionError as error:
            says = f"`{error.filename}` cannot be read: Permission denied"
            results.append(DoctorCheck(name=name, state=FAILED, says=says, fix="chmod or chown it for this user"))
        except Exception as error:  # noqa: BLE001 - a damaged store must not end the check of the rest
            message = f"cannot be checked ({where(error)})"
            fix = "fix the other failures first, then run `flywheel doctor` again"
            results.append(DoctorCheck(name=name, state=FAILED, says=message, fix=fix))
    return DoctorAnswer(healthy=all(check.state != FAILED for check in results), checks=results)


def _check(name: str, says: str, *, wrong: str = "", fix: str = "") -> DoctorCheck:
    """Return a check that passed, or a warning with the text of `wrong`."""
    return DoctorCheck(name=name, state=WARNING if wrong else OK, says=wrong or says, fix=fix if wrong else "")


def _python() -> Iterator[DoctorCheck]:
    cores, machine = os.cpu_count() or 1, platform.machine()
    yield _check("python", f"Python {platform.python_version()} on {platform.system()} {machine}, {cores} cores")


def _packages() -> Iterator[DoctorCheck]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            yield DoctorCheck(name="packages", state=FAILED, says=f"{name} is missing", fix=f"pip install {name}")
    listed = ", ".join(f"{name} {number}" for name, number in versions.items())
    other = versions.get("trl", _TESTED_TRL).rsplit(".", 1)[0] != _TESTED_TRL
    wrong = f"{listed}: training is tested with trl {_TESTED_TRL} only" if other else ""
    yield _check("packages", listed, wrong=wrong, fix=f"pip install 'trl=={_TESTED_TRL}.*', or run your tests")


def _device() -> Iterator[DoctorCheck]:
    yield _check("device", describe_device())


def _disk(ctx: Context) -> Iterator[DoctorCheck]:
    folder = next(path for path in (ctx.store.root, *ctx.store.root.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    space = f"{free / 10**9:.1f} GB free"
    wrong = space if free < _LEAST_FREE else ""
    yield _check("disk", space, wrong=wrong, fix="free some space: a nightly run needs about 5 GB")
    for path in (ctx.project, folder):
        if not os.access(path, os.W_OK):
            yield DoctorCheck(
                name="disk", state=FAILED, says=f"`{path}` is not writable", fix="grant this user write permission"
            )


def _key(ctx: Context, path: Path) -> Iterator[DoctorCheck]:
    redaction_key.refuse_other(redaction_key.given(path), ctx.store, path)
    if os.environ.get(redaction_key.VARIABLE):
        yield _check("key", "pseudonyms use FLYWHEEL_KEY")
    elif not path.exists():
        yield _check("key", "no key yet: the first ingest creates one")
    else:
        wrong = f"other users can read `{path.name}`" if path.stat().st_mode & _OTHERS else ""
        yield _check("key", f"`{path.name}` is private; keep a copy: without it pseudonyms change", wrong=wrong,
                   fix=f"chmod 600 {path.name}")  # fmt: skip


def _hooks(ctx: Context) -> Iterator[DoctorCheck]:
    """Check that a hook could be run, without running it."""
    cfg, command = ctx.config.notify, (shlex.split(ctx.config.notify.command) or [""])[0]
    program = shutil.which(str(ctx.project / command) if "/" in command else command)  # as the hook is run
    if command and program is None:
        yield _check("hooks", "", wrong=f"`{command}` of notify.command is not found", fix="write its full path")
    elif cfg.webhook and cfg.token_env and not os.environ.get(cfg.token_env):
        yield _check(
            "hooks",
            "",
            wrong=f"{cfg.token_env} is not set, and the webhook gets no token",
            fix="set it in the schedule",
        )
    else:
        hooks = [name for name in ("command", "webhook") if getattr(cfg, name)]
        yield _check(
            "hooks",
            f"notifications by {' and '.join(hooks)}" if hooks else "no notifications ([notify] in flywheel.toml)",
        )


def _store(ctx: Context) -> Iterator[DoctorCheck]:
    parts = {part.path: part for part in _parts(ctx)}
    ctx.store.place.fetch((path, part.sha256) for path, part in parts.items())
    faults = {path: fault for path, part in parts.items() if (fault := ctx.store.fault(part))}
    for path, fault in sorted(faults.items(), key=lambda found: found[1] != "missing"):
        yield DoctorCheck(
            name="store",
            state=FAILED,
            says=f"`{path}` is {fault}{' since it was written' if fault == 'changed' else ''}",
            fix=way_out(parts[path].table),
        )
    left = sum(1 for _ in ctx.store.root.rglob(f"*{files.PARTIAL}")) if ctx.store.root.exists() else 0
    size = sum(p.size_bytes for p in parts.values()) / 10**6
    more = f"; {left} partial files of an interrupted run, which the next run removes" if left else ""
    if not faults:
        yield _check("store", f"{len(parts):,} parts, {size:,.1f} MB, every hash matches{more}")


def _parts(ctx: Context) -> Iterator[Part]:
    for stage in ("ingest", *(stage.name for stage in STAGES)):
        snapshot = ctx.store.current(stage)
        if snapshot is not None:
            yield from snapshot.parts


def _clock(ctx: Context) -> Iterator[DoctorCheck]:
    newest = ctx.store.table("events", "ingest").select("ts").max().collect().item()
    if newest is None:
        yield _check("clock", "no event with a time yet")
        return
    ahead = newest - ctx.clock()
    wrong = f"the newest event is {ahead.total_seconds() / 3600:.0f} h ahead of this machine's clock"
    yield _check("clock", f"newest event {newest:%Y-%m-%d %H:%M} UTC", wrong=wrong if ahead > _AHEAD else "",
               fix="set the clock of this machine, or of the logging one")  # fmt: skip


def _model(ctx: Context) -> Iterator[DoctorCheck]:
    yield _check("model", f"{ctx.config.model.base} @ {base_identity(ctx.config.model).sha256[:12]}")


def _backend(ctx: Context) -> Iterator[DoctorCheck]:
    """Ask the interpreter that rounds are trained in, where that is not ours, for the system and its version."""
    other = find_backend(ctx)
    if other is None:
        return
    has, shown = other.versions.get(other.backend.package, ""), other.backend.shown
    says = f"rounds are trained in {other.backend.title} {has}".rstrip() + f", by {other.command[0]}"
    wrong = f"{says}: shown with {shown} only" if has != shown else ""
    yield _check("backend", says, wrong=wrong, fix=f"install {other.backend.package}=={shown} there, or run your tests")


def _rounds(ctx: Context) -> Iterator[DoctorCheck]:
    trained = ctx.registry.trained()
    problems = ctx.registry.problems(trained)
    for problem in problems:
        yield DoctorCheck(name="rounds", state=FAILED, says=problem, fix="flywheel rollback returns to an intact round")
    misplaced = ctx.registry.misplaced()
    for problem in misplaced:
        fix = "the next command that writes, such as `flywheel build`, mends it"
        yield DoctorCheck(name="rounds", state=FAILED, says=problem, fix=fix)
    champion = ctx.registry.champion
    who = "no champion: the base model is served" if champion is None else f"round {champion} is champion"
    if not problems and not misplaced:
        yield _check("rounds", f"{len(trained)} trained, every adapter matches its manifest; {who}")


def _cases(ctx: Context) -> Iterator[DoctorCheck]:
    """Read the project's own cases, if any, so that a bad line is found before a nightly run."""
    cases = read_cases(ctx.project, ctx.config.eval)
    if cases:
        yield _check("cases", f"{len(cases):,} own cases in {ctx.config.eval.cases}, every check is valid")


def _extensions() -> Iterator[DoctorCheck]:
    broken, count = [], 0
    for extension in list_extensions():
        count += 1
        try:
            load_extension(extension.group, extension.name)
        except FlywheelError as error:
            broken.append(error)
    for failure in broken:
        yield DoctorCheck(name="extensions", state=FAILED, says=failure.message, fix=failure.hint)
    if not broken:
        yield _check("extensions", f"all {count} can be loaded")


def _settings(ctx: Context) -> Iterator[DoctorCheck]:
    """Load what the configuration names, as a night does: an unknown name ends it, some only after the training."""
    config, project = ctx.config, ctx.project
    named: tuple[tuple[str, Iterable[str]], ...] = (
        ("rewards", config.rewards.signals),
        ("pairs", config.pairs.builders),
        ("gates", rule_names(config.gate)),
        ("trainers", filter(None, [config.train.trainer])),
        ("worlds", filter(None, [config.train.world])),
        ("embeddings", filter(None, [config.episodes.embedding])),
    )
    uses: list[Callable[[], object]] = [
        lambda: load_readers(config.ingest, project),
        lambda: Redactor(config.ingest.redact, b"doctor"),
        *(partial(load_extension, group, name, search=project) for group, names in named for name in names),
        *(partial(open_suite, ctx, name) for name in config.eval.suites),
    ]
    failed = list(filter(None, map(_error_of, uses)))
    for error in failed:
        yield DoctorCheck(name="settings", state=FAILED, says=error.message, fix=error.hint)
    if not failed:
        yield _check("settings", "all that flywheel.toml names is there")


def _error_of(use: Callable[[], object]) -> FlywheelError | None:
    try:
        use()
    except FlywheelError as error:
        return error
    return None


def _sources(ctx: Context) -> Iterator[DoctorCheck]:
    error = _error_of(lambda: default_sources(ctx.config, ctx.project))
    if error:  # who names paths on the command line needs none
        state = FAILED if "sources" in ctx.config.ingest.model_fields_set else WARNING
        yield DoctorCheck(name="sources", state=state, says=error.message, fix=error.hint)
    else:
        yield _check("sources", f"logs are read from {', '.join(ctx.config.ingest.sources) or 'what a command names'}")
