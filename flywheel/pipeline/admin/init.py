"""`flywheel init`: the defaults written down, a nightly recipe, a .gitignore; with demo, sample logs too."""

from __future__ import annotations

import shutil
from pathlib import Path

from flywheel.config import CONFIG_FILE, render_default_config
from flywheel.errors import UsageError
from flywheel.io import files

__all__ = ["scaffold"]

_IGNORED = """# flywheel: the store, the redaction key, and the rounds' heavy files
.flywheel/
.flywheel.key
rounds/*/adapter/
rounds/*/data/
rounds/*/work/
rounds/*/report.html
"""


def scaffold(folder: Path, *, demo: bool) -> list[str]:
    """Write a project's starting files and return their paths relative to the folder.

    Raises:
        UsageError: the folder already is a project.
    """
    if (folder / CONFIG_FILE).exists():
        raise UsageError(f"`{folder / CONFIG_FILE}` is already there", hint="edit it, or choose another folder")
    nightly = (files.shipped("pipelines") / "dpo_nightly.toml").read_text(encoding="utf-8")
    made = ["pipelines/nightly.toml"]
    files.atomic_write(folder / made[0], nightly.replace('name = "dpo_nightly"', 'name = "nightly"'))
    ignore = folder / ".gitignore"
    if not ignore.exists():
        files.atomic_write(ignore, _IGNORED)
        made.append(".gitignore")
    if demo:
        made += _sample_logs(folder)
    files.atomic_write(folder / CONFIG_FILE, render_default_config())
    return [CONFIG_FILE, *made]


def _sample_logs(folder: Path) -> list[str]:
    made = []
    for source in sorted(files.shipped("sample_logs").iterdir()):
        if source.name.endswith((".jsonl", ".jsonl.gz")):
            (folder / "logs").mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / "logs" / source.name)
            made.append(f"logs/{source.name}")
    return made
