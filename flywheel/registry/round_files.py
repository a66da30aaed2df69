"""What is in a round's folder: whether the files are those that its manifest names; the metrics of its training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flywheel.io import files
from flywheel.records import RoundManifest


def weights_problem(weights: Path, manifest: RoundManifest) -> str:
    """Return what is wrong with the file of a round's weights, in words; '' if it is as trained."""
    if manifest.erased:
        return f"the adapter of round {manifest.round} was removed: {manifest.erased}"
    if not weights.exists():
        return f"round {manifest.round} has no adapter file"
    if files.hash_file(weights) != manifest.adapter_sha256:
        return f"round {manifest.round}: the adapter file is not the one its manifest names"
    return ""


def other_problems(folder: Path, weights: Path, manifest: RoundManifest) -> list[str]:
    """Return what is wrong with the other files next to the weights, in words; empty if they are as trained."""
    number = manifest.round
    others = ((o, folder / o.path) for o in manifest.outputs if folder / o.path != weights)
    changed = sorted(o.path for o, path in others if not path.exists() or files.hash_file(path) != o.sha256)
    problems = [f"round {number}: `{path}` is not the file its manifest names" for path in changed]
    listed = {output.path for output in manifest.outputs} | {weights.relative_to(folder).as_posix()}
    inside = {path.relative_to(folder).as_posix(): path for path in weights.parent.rglob("*")}
    links = {name for name, path in {**inside, "adapter": weights.parent}.items() if path.is_symlink()}
    unlisted = {name for name, path in inside.items() if name not in listed and (path.is_file() or name in links)}
    added = unlisted if manifest.outputs else set()
    problems += [f"round {number}: `{name}` is not a file of its manifest; remove it" for name in sorted(added)]
    return problems + [f"round {number}: `{name}` is a link, not a file" for name in sorted(links - added)]


def training_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return a round's logged training metrics, oldest first; a torn last line is skipped."""
    path = folder / "metrics.jsonl"
    rows = []
    for line in files.lines(path.read_text(encoding="utf-8")) if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
