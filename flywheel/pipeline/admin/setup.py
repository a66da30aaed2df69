"""Setup: a project's starting files, its configuration values and the installed extensions."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path

from flywheel.config import CONFIG_FILE, Config, load_config, origins, render_default_config
from flywheel.config.approval import Wish, approve, with_pipelines
from flywheel.errors import ConfigError, FlywheelError, UsageError
from flywheel.extensions import list_extensions
from flywheel.io import files
from flywheel.results.setup import ConfigAnswer, ConfigValue, InitAnswer, PluginsAnswer, TrustAnswer

_IGNORED = """# flywheel: the store, the redaction key, and large files of rounds
.flywheel/
.flywheel.key
.flywheel.made
rounds/*/adapter/
rounds/*/data/
rounds/*/work/
rounds/*/report.html
"""


def init(folder: Path, *, demo: bool) -> InitAnswer:
    """Write flywheel.toml, a nightly pipeline and a .gitignore; with `demo`, sample logs too.

    Raises:
        UsageError: the folder already has a flywheel.toml.
    """
    if (folder / CONFIG_FILE).exists():
        raise UsageError(f"`{folder / CONFIG_FILE}` already exists", hint="edit it, or choose another folder")
    nightly = (files.shipped("pipelines") / "dpo_nightly.toml").read_text(encoding="utf-8")
    written = ["pipelines/nightly.toml"]
    files.atomic_write(folder / written[0], nightly.replace('name = "dpo_nightly"', 'name = "nightly"'))
    if not (folder / ".gitignore").exists():
        files.atomic_write(folder / ".gitignore", _IGNORED)
        written.append(".gitignore")
    if demo:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        for source in sorted(files.shipped("sample_logs").iterdir()):
            if source.name.endswith((".jsonl", ".jsonl.gz")):
                shutil.copyfile(source, folder / "logs" / source.name)
                written.append(f"logs/{source.name}")
    files.atomic_write(folder / CONFIG_FILE, render_default_config())
    with contextlib.suppress(FlywheelError, OSError):  # without a state folder the project asks like any other
        approve(folder, Wish({}, [], None), made_here=True)
    return InitAnswer(made=[CONFIG_FILE, *written])


def trust(folder: Path, file: Path | None, *, outside: bool, seen: str, dry_run: bool) -> TrustAnswer:
    """Approve what a project names in its flywheel.toml and in another configuration, or list it.

    Raises:
        ConfigError: one of them or a pipeline's file is not valid, or they name something else than was seen.
    """
    wish = with_pipelines(folder, load_config(folder / CONFIG_FILE))
    if file is not None:
        more = with_pipelines(folder, load_config(file))
        wish = Wish(wish.code | more.code, sorted({*wish.outside, *more.outside}), wish.owner)
    sha256 = files.hash_text(json.dumps(asdict(wish), sort_keys=True))
    if seen and seen != sha256:
        raise ConfigError("the project changed while it was looked at", hint="`flywheel trust` lists it again")
    record = "" if dry_run else str(approve(folder, wish, outside=outside))
    return TrustAnswer(
        folder=str(folder),
        owner=wish.owner,
        names=sorted(wish.code),
        outside=wish.outside,
        sha256=sha256,
        record=record,
    )


def settings(config: Config, file: Path) -> ConfigAnswer:
    """Return every configuration value with its origin: a line of the file, or the default."""
    values = origins(file, config)
    return ConfigAnswer(values=[ConfigValue(key=key, value=value, origin=origin) for key, value, origin in values])


def plugins() -> PluginsAnswer:
    """Return the installed extensions, without loading them."""
    columns = ("group", "name", "target", "distribution", "version")
    return PluginsAnswer(extensions=[{c: getattr(e, c) for c in columns} for e in list_extensions()])
