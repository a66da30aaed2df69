"""Whose project this is, and whether this user has approved the code that it names, on this machine.

As with git and direnv, a folder that somebody else wrote must not run code because a command was typed in it, nor send
anything anywhere. Code is what a configuration names as `module:function`, and `notify.command`; addresses and folders
of models that run code as they load count as well. An approval is a file of the user's state folder
and holds the hash of each function's source, so that changed code is asked about again. It also holds which store or
rounds folder outside of the project was approved, and that a project was made here by `flywheel init`.

`FLYWHEEL_TRUST=1` approves everything, for machines that check out what was reviewed, such as CI.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from flywheel.config.files import CONFIG_FILE, load_pipeline, merge_overrides
from flywheel.config.root import Config
from flywheel.config.training import masked
from flywheel.errors import ConfigError, FlywheelError
from flywheel.io import files
from flywheel.io.bucket import address
from flywheel.io.user_files import read_text

VARIABLE = "FLYWHEEL_TRUST"
MADE = ".flywheel.made"  # in a project that `init` made


@dataclass(frozen=True)
class Wish:
    """What a project asks for: functions with the hash of their source, commands and addresses, folders outside."""

    code: dict[str, str]
    outside: list[str]
    owner: int | None  # of its files, where that is somebody else


def wish_of(folder: Path, config: Config) -> Wish:
    """Return what a project asks for, by its configuration."""
    named = {name: _source(folder, name) for name in sorted(set(named_code(config)))}
    named |= dict.fromkeys(_started(folder, config), "")
    named |= dict(_other_trainers(folder, config))
    folders = [place for place in (config.store, config.rounds) if address(place) is None]
    places = (str((folder / place).resolve()) for place in folders)
    outside = sorted(place for place in places if not Path(place).is_relative_to(folder.resolve()))
    return Wish(named, outside, _other_owner(folder, config))


def with_pipelines(folder: Path, config: Config) -> Wish:
    """Return what a project asks for, by its configuration and the overrides of its pipelines.

    Raises:
        ConfigError: a pipeline's file does not fit.
    """
    wish = wish_of(folder, config)
    code, outside = dict(wish.code), set(wish.outside)
    for path in sorted((folder / "pipelines").glob("*.toml")):
        overrides = load_pipeline(read_text(path, ConfigError), path.name).overrides
        more = wish_of(folder, merge_overrides(config, overrides))
        code, outside = code | more.code, outside | set(more.outside)
    return Wish(code, sorted(outside), wish.owner)


def approve(folder: Path, wish: Wish, *, outside: bool = False, made_here: bool = False) -> Path:
    """Take down what is approved, and return the file.

    Args:
        folder: the project's.
        wish: what it asks for.
        outside: whether its folders outside of it are approved too.
        made_here: whether the project was made by this user here: what it names later needs no approval.
    """
    path = _record(folder)
    earlier = _approved(folder)
    if made_here:
        files.atomic_write(folder / MADE, secrets.token_hex(16) + "\n")
    kept = {
        "folder": str(folder.resolve()),
        "code": wish.code,
        "outside": wish.outside if outside else earlier.get("outside", []),
        "owner": wish.owner,
        "made_here": _identity(folder) if made_here else earlier.get("made_here"),
    }
    files.write_json(path, kept)
    return path


def refuse_unapproved(folder: Path, config: Config) -> None:
    """Refuse a project of another owner, or one that asks for what was not approved here.

    Raises:
        ConfigError: names what was not approved, and how to approve it.
    """
    wish = wish_of(folder, config)
    if _everything() or not (wish.code or wish.outside or wish.owner is not None):
        return
    approved = _approved(folder)
    hint = (
        f"look at what it names, then approve it with `flywheel -C {shlex.quote(str(folder))} trust` (and the same "
        "--config, if any); approvals are "
        f"read from `{_record(folder)}`, which follows HOME and XDG_STATE_HOME; in CI set {VARIABLE}=1"
    )
    if wish.owner is not None and approved.get("owner") != wish.owner:
        raise ConfigError(f"the project `{folder}` belongs to another user (uid {wish.owner})", hint=hint)
    if missing := [name for name, source in wish.code.items() if not _has(approved, folder, name, source)]:
        changed = all(name in approved.get("code", {}) for name in missing)
        state = "has changed since it was approved" if changed else "was not approved here"
        raise ConfigError(f"the configuration names code that {state}: {', '.join(missing)}", hint=hint)
    if elsewhere := [place for place in wish.outside if place not in approved.get("outside", [])]:
        hint = f"approve it with `flywheel -C {shlex.quote(str(folder))} trust --outside`; in CI set {VARIABLE}=1"
        raise ConfigError(f"the store or the rounds are outside of the project: {', '.join(elsewhere)}", hint=hint)


def refuse_code(folder: Path, name: str) -> None:
    """Refuse a `module:function` that was not approved, wherever the name comes from: a round, a case, a pipeline.

    Raises:
        ConfigError: it was not approved here.
    """
    if not _everything() and not _has(_approved(folder), folder, name, _source(folder, name)):
        raise ConfigError(
            f"`{name}` was not approved here",
            hint=f"name it in {CONFIG_FILE}, look at it, then approve it with "
            f"`flywheel -C {shlex.quote(str(folder))} trust`",
        )


def _everything() -> bool:
    return os.environ.get(VARIABLE, "").lower() in {"1", "true", "yes", "on"}


def _has(approved: dict[str, Any], folder: Path, name: str, source: str) -> bool:
    made_here = approved.get("made_here")
    if made_here and made_here == _identity(folder):
        return True
    return bool(approved.get("code", {}).get(name) == source)


def named_code(config: Config) -> Iterator[str]:
    """Yield the functions that a configuration names as `module:function`."""
    names = [*config.rewards.signals, *config.pairs.builders, *config.gate.rules, *config.eval.suites]
    names += [config.train.trainer, config.train.world, config.episodes.embedding, config.ingest.format]
    names += config.ingest.readers
    yield from (name for name in (*names, *config.eval.checks.values()) if ":" in name)


def _started(folder: Path, config: Config) -> Iterator[str]:
    """Yield the programs that a configuration starts, and the addresses that it sends to, each under its name."""
    if config.notify.command:
        yield f"notify.command = {config.notify.command}"
    if config.notify.webhook:
        yield f"notify.webhook = {config.notify.webhook}"
    if config.build.engine == "ray" and config.build.address != "auto":
        yield f"build.address = {config.build.address}"
    named = [("store", config.store), *(("ingest.sources", source) for source in config.ingest.sources)]
    yield from (f"{name} = {place}" for name, place in named if address(place) is not None)
    sent_to = {
        "rewards.judge.url": config.rewards.judge.url,
        "eval.endpoint": config.eval.endpoint,
        "push.host": config.push.host,
    }
    yield from (f"{name} = {url}" for name, url in sent_to.items() if url)
    database = config.mlflow.tracking_uri.removeprefix("sqlite:///")
    local = database != config.mlflow.tracking_uri and (folder / database).resolve().is_relative_to(folder.resolve())
    if config.mlflow.tracking_uri and not local:
        yield f"mlflow.tracking_uri = {config.mlflow.tracking_uri}"
    model = config.ingest.redact.presidio_model
    if config.ingest.redact.presidio and model and (folder / model).exists():
        yield f"ingest.redact.presidio_model = {model}"


def _other_trainers(folder: Path, config: Config) -> Iterator[tuple[str, str]]:
    """Yield the commands of other trainers and each argument that they get: a plugin may be one, or a place to send to.

    With each comes the hash of the files of the project's that it names.
    """
    for name, backend in sorted(config.train.backends.items()):
        key, words = f"train.backends.{name}", [backend.python, *backend.command]
        yield f"{key} = {' '.join(words).strip()}", _hash_of([folder / word for word in words], folder)
        for argument, value in sorted(backend.arguments.items()):
            named = [folder / str(word) for word in (value if isinstance(value, list) else [value])]
            shown = masked({argument: value})[argument]
            text = json.dumps(shown, sort_keys=True, ensure_ascii=False, default=str)
            yield f"{key}.arguments.{argument} = {text}", _hash_of(named, folder)


def _source(folder: Path, name: str) -> str:
    """Return the hash of the files of a name's module in the project's folder; of none where it is installed.

    Its files are all that Python may load under the name: compiled modules too, which come before the source.
    """
    module = name.partition(":")[0].split(".")[0]
    beside = [folder / f"{module}{suffix}" for suffix in all_suffixes()] if module else []
    inside = sorted((folder / module).rglob("*")) if module else []
    sources = [*beside, *(path for path in inside if path.name.endswith(tuple(all_suffixes())))]
    return _hash_of([path for path in sources if path.parent.name != "__pycache__"], folder)


def _hash_of(sources: Iterable[Path], folder: Path) -> str:
    """Return the hash of those files that lie in the project's folder."""
    digest = hashlib.sha256()
    for path in (path for path in sources if path.is_relative_to(folder) and _is_file(path)):
        digest.update(f"{path.relative_to(folder)} {files.hash_file(path)}\n".encode())
    return digest.hexdigest()


def _is_file(path: Path) -> bool:
    """Return whether there is such a file; a word of a command may be too long to be a name of one."""
    try:
        return path.is_file()
    except OSError:
        return False


def _other_owner(folder: Path, config: Config) -> int | None:
    """Return the owner of a project's files where that is neither this user nor the machine's administrator."""
    if not hasattr(os, "getuid"):
        return None
    mine = {0, os.getuid()} | ({int(sudo)} if (sudo := os.environ.get("SUDO_UID", "")).isdigit() else set())
    places = [folder / name for name in (CONFIG_FILE, "pipelines", config.store, config.rounds)]
    owners = {place.lstat().st_uid for place in places if os.path.lexists(place)}
    return min(owners - mine, default=None)


def _identity(folder: Path) -> str:
    """Return the token that `init` left, which a folder of the same name that is put in its place does not have."""
    try:
        return (folder / MADE).read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return ""


def _record(folder: Path) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "flywheel" / "trusted" / f"{files.hash_text(str(folder.resolve()))[:32]}.json"


def _approved(folder: Path) -> dict[str, Any]:
    """Return what was approved; nothing where there is no record, or a damaged one."""
    try:
        approved = files.read_json(_record(folder))
    except (FlywheelError, OSError, RuntimeError):
        return {}
    return approved if isinstance(approved, dict) and approved.get("folder") == str(folder.resolve()) else {}
